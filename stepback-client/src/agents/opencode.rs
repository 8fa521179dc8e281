//! opencode. It has no hooks of its own but plugins: ours calls us with what it is told, as `{"event", "session", "cwd", ...}`.

use serde_json::Value;
use stepback_proto::HookEvent;

use super::Heard;
use super::payload::{first_line, name, path, text, tool};

pub fn understand(payload: &Value) -> Option<Heard> {
    let tool = || tool(name(payload, "tool"), payload.get("args"));
    let event = match text(payload, "event")? {
        "chat.message" => HookEvent::TurnStart {
            prompt: text(payload, "prompt").and_then(first_line),
            id: name(payload, "message"),
        },
        "tool.execute.before" => HookEvent::ToolStart(tool()?),
        "tool.execute.after" => HookEvent::ToolEnd(tool()?),
        "session.idle" | "session.error" => HookEvent::TurnEnd { prompt: None },
        _ => return None,
    };
    Some(Heard {
        session: name(payload, "session"),
        transcript: None,
        cwd: path(payload, "cwd"),
        event,
    })
}

/// Our plugin. It hands what it is told to `program`, waits for nothing but the save before a command, and swallows every
/// error.
pub fn plugin(program: &str) -> String {
    let program = Value::from(program).to_string();
    PLUGIN.replace("PROGRAM", &program)
}

const PLUGIN: &str = r#"// Tells stepback whose turn it is. `stepback hooks uninstall opencode` removes this file.
import { spawn } from "node:child_process"

const program = PROGRAM

const tell = (payload) =>
  new Promise((done) => {
    try {
      const hook = spawn(program, ["hook", "opencode"], { stdio: ["pipe", "ignore", "ignore"] })
      const timer = setTimeout(done, 12000)
      const over = () => {
        clearTimeout(timer)
        done()
      }
      hook.on("error", over)
      hook.on("close", over)
      hook.stdin.on("error", () => {})
      hook.stdin.end(JSON.stringify(payload))
    } catch {
      done()
    }
  })

export const Stepback = async ({ directory }) => {
  const cwd = directory
  return {
    event: async ({ event }) => {
      if (event.type === "session.idle" || event.type === "session.error") {
        const session = event.properties?.sessionID
        if (session) await tell({ event: event.type, session, cwd })
      }
    },
    "chat.message": async (input, output) => {
      const parts = output?.parts ?? []
      const prompt = parts.filter((part) => part.type === "text").map((part) => part.text).join("\n")
      const message = parts.find((part) => part.messageID)?.messageID
      await tell({ event: "chat.message", session: input.sessionID, cwd, prompt, message })
    },
    "tool.execute.before": async (input, output) => {
      await tell({ event: "tool.execute.before", session: input.sessionID, cwd, tool: input.tool, args: output?.args })
    },
    "tool.execute.after": async (input) => {
      await tell({ event: "tool.execute.after", session: input.sessionID, cwd, tool: input.tool, args: input.args })
    },
  }
}
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_quoted_for_javascript() {
        let text = plugin("/a \"b\"/stepback");
        assert!(text.contains(r#"const program = "/a \"b\"/stepback""#), "{text}");
    }
}
