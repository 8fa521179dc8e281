//! Gemini CLI. Turns have no id: a prompt while a turn is open is a new turn.

use serde_json::Value;

use super::Heard;
use super::json_hooks::{Hooks, Matcher};
use super::payload::{self, Names};

const NAMES: Names = Names {
    event_key: "hook_event_name",
    turn_start: "BeforeAgent",
    tool_start: "BeforeTool",
    tool_end: &["AfterTool"],
    turn_end: &["AfterAgent"],
};

/// What stands in its settings; milliseconds.
pub const HOOKS: Hooks = Hooks {
    names: &NAMES,
    matcher: Matcher::Everywhere,
    timeout: 15000,
};

pub fn understand(payload: &Value) -> Option<Heard> {
    payload::understand(payload, &NAMES, "prompt_id")
}
