//! GitHub Copilot CLI. Its payloads don't name the event: our settings put it on the command line.

use serde_json::Value;
use stepback_proto::{HookEvent, WirePath};

use super::Heard;
use super::payload::{first_line, name, path, text, tool};

pub fn understand(event: &str, payload: &Value) -> Option<Heard> {
    let arguments = payload.get("toolArgs").cloned();
    // Some versions send the arguments as a text that holds JSON.
    let arguments = match arguments {
        Some(Value::String(text)) => serde_json::from_str(&text).ok(),
        other => other,
    };
    let tool = || tool(name(payload, "toolName"), arguments.as_ref());
    let event = match event {
        "sessionStart" => HookEvent::SessionStart,
        "userPromptSubmitted" => HookEvent::TurnStart {
            prompt: text(payload, "prompt").and_then(first_line),
            id: None,
        },
        "preToolUse" => HookEvent::ToolStart(tool()?),
        "postToolUse" => HookEvent::ToolEnd(tool()?),
        "agentStop" | "errorOccurred" => HookEvent::TurnEnd { prompt: None },
        "sessionEnd" => HookEvent::SessionEnd,
        _ => return None,
    };
    Some(Heard {
        session: name(payload, "sessionId"),
        transcript: path(payload, "transcriptPath").map(|path| WirePath::from(path.as_path())),
        cwd: path(payload, "cwd"),
        event,
    })
}
