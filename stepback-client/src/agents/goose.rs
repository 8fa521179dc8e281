//! goose. Its payloads name the event in `event`, and the directory only with tools. It doesn't tell of the end of a turn,
//! only of the session's.

use serde_json::Value;
use stepback_proto::HookEvent;

use super::Heard;
use super::json_hooks::{self, Hooks, Matcher};
use super::payload::{self, Names, first_line, path, text};

const NAMES: Names = Names {
    event_key: "event",
    turn_start: "UserPromptSubmit",
    tool_start: "PreToolUse",
    tool_end: &["PostToolUse", "PostToolUseFailure"],
    turn_end: &["Stop"],
};

/// What stands in its settings; seconds.
pub const HOOKS: Hooks = Hooks {
    names: &NAMES,
    matcher: Matcher::Nowhere,
    timeout: 15,
};

pub fn understand(payload: &Value) -> Option<Heard> {
    let mut heard = payload::understand(payload, &NAMES, "prompt_id")?;
    heard.cwd = path(payload, "working_dir");
    if let HookEvent::TurnStart { prompt, .. } = &mut heard.event {
        *prompt = text(payload, "message").and_then(first_line);
    }
    Some(heard)
}

/// The files of our plugin: names in its directory, and texts.
pub fn files(command: &str) -> Vec<(&'static str, String)> {
    let about = serde_json::json!({
        "name": "stepback",
        "version": env!("CARGO_PKG_VERSION"),
        "description": "Tells stepback whose turn it is",
    });
    let about = format!("{about:#}\n");
    let hooks = json_hooks::add("", &HOOKS, "goose", command).expect("an empty text takes hooks");
    vec![
        ("plugin.json", about.clone()),
        (".plugin/plugin.json", about),
        ("hooks/hooks.json", hooks),
    ]
}
