//! goose. Its payloads name the event in `event`, and the directory only with tools. It doesn't tell of the end of a turn,
//! only of the session's.

use serde_json::Value;
use stepback_proto::HookEvent;

use super::Heard;
use super::payload::{self, Names, first_line, path, text};

const NAMES: Names = Names {
    event_key: "event",
    turn_start: "UserPromptSubmit",
    tool_start: "PreToolUse",
    tool_end: &["PostToolUse", "PostToolUseFailure"],
    turn_end: &["Stop"],
};

pub fn understand(payload: &Value) -> Option<Heard> {
    let mut heard = payload::understand(payload, &NAMES, "prompt_id")?;
    heard.cwd = path(payload, "working_dir");
    if let HookEvent::TurnStart { prompt, .. } = &mut heard.event {
        *prompt = text(payload, "message").and_then(first_line);
    }
    Some(heard)
}
