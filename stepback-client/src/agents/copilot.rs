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

/// Our own file among its hooks. `command` runs us; the event's name stands behind it. Timeouts are seconds.
pub fn file(command: &str) -> String {
    let events = [
        "sessionStart",
        "userPromptSubmitted",
        "preToolUse",
        "postToolUse",
        "agentStop",
        "errorOccurred",
        "sessionEnd",
    ];
    let hooks: serde_json::Map<String, Value> = events
        .iter()
        .map(|event| {
            let entry = serde_json::json!({"type": "command", "bash": format!("{command} {event}"), "timeoutSec": 15});
            ((*event).to_owned(), Value::Array(vec![entry]))
        })
        .collect();
    let all = serde_json::json!({"version": 1, "hooks": hooks});
    serde_json::to_string_pretty(&all).expect("a JSON value is text") + "\n"
}
