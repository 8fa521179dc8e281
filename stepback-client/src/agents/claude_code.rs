//! Claude Code. Its payloads name session, transcript and directory in every event; a turn's id is `prompt_id`.

use serde_json::Value;

use super::Heard;
use super::json_hooks::{Hooks, Matcher};
use super::payload::{self, Names};

const NAMES: Names = Names {
    event_key: "hook_event_name",
    turn_start: "UserPromptSubmit",
    tool_start: "PreToolUse",
    tool_end: &["PostToolUse", "PostToolUseFailure"],
    turn_end: &["Stop", "StopFailure"],
};

/// What stands in its settings; seconds.
pub const HOOKS: Hooks = Hooks {
    names: &NAMES,
    matcher: Matcher::Tools,
    timeout: 15,
};

pub fn understand(payload: &Value) -> Option<Heard> {
    payload::understand(payload, &NAMES, "prompt_id")
}
