//! Codex. Its hooks have Claude Code's shape; `notify` is told of ends of turns alone, with a payload of its own.

use serde_json::Value;
use stepback_proto::HookEvent;

use super::Heard;
use super::json_hooks::{Hooks, Matcher};
use super::payload::{self, Names, first_line, name, path, text};

const NAMES: Names = Names {
    event_key: "hook_event_name",
    turn_start: "UserPromptSubmit",
    tool_start: "PreToolUse",
    tool_end: &["PostToolUse"],
    turn_end: &["Stop", "Interrupt"],
};

/// What stands in its settings; seconds.
pub const HOOKS: Hooks = Hooks {
    names: &NAMES,
    matcher: Matcher::Nowhere,
    timeout: 15,
};

pub fn understand(payload: &Value) -> Option<Heard> {
    if text(payload, "type") == Some("agent-turn-complete") {
        let prompts = payload.get("input-messages").and_then(Value::as_array);
        let prompt = prompts.and_then(|all| all.last()).and_then(Value::as_str);
        return Some(Heard {
            session: name(payload, "thread-id"),
            transcript: None,
            cwd: path(payload, "cwd"),
            event: HookEvent::TurnEnd {
                prompt: prompt.and_then(first_line),
            },
        });
    }
    payload::understand(payload, &NAMES, "turn_id")
}
