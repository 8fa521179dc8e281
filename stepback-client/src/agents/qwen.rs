//! Qwen Code. It tells of a prompt again between a tool's result and the next call of the model: `prompt_id` says that it is
//! the same turn.

use serde_json::Value;

use super::Heard;
use super::json_hooks::{Hooks, Matcher};
use super::payload::{self, Names};

const NAMES: Names = Names {
    event_key: "hook_event_name",
    turn_start: "UserPromptSubmit",
    tool_start: "PreToolUse",
    tool_end: &["PostToolUse", "PostToolUseFailure"],
    turn_end: &["Stop"],
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
