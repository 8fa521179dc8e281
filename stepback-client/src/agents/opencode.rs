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
