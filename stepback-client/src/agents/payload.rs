//! Taking a payload apart, as far as several agents have the same shape.

use std::path::PathBuf;

use serde_json::Value;
use stepback_proto::{HookEvent, Tool, WirePath};

use super::{Heard, harmless};

/// The most bytes of an id or a tool's name that are taken.
const NAME_BYTES_MAX: usize = 200;
/// The most characters of a prompt's first line that are kept.
const PROMPT_CHARS_MAX: usize = 200;

/// Where a tool's arguments have a shell command, or what is typed into a running one.
const COMMAND_KEYS: [&str; 4] = ["command", "cmd", "script", "chars"];

/// A text of the payload; `None` when it isn't there, isn't one, or is empty.
pub fn text<'a>(payload: &'a Value, key: &str) -> Option<&'a str> {
    payload.get(key)?.as_str().filter(|text| !text.is_empty())
}

/// A short text.
pub fn name(payload: &Value, key: &str) -> Option<String> {
    text(payload, key)
        .filter(|text| text.len() <= NAME_BYTES_MAX)
        .map(str::to_owned)
}

/// An absolute path.
pub fn path(payload: &Value, key: &str) -> Option<PathBuf> {
    text(payload, key)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

/// First line of a prompt that has any, shortened, without control characters.
pub fn first_line(prompt: &str) -> Option<String> {
    let line = prompt.lines().map(str::trim).find(|line| !line.is_empty())?;
    let mut shown: String = line
        .chars()
        .filter(|c| !c.is_control())
        .take(PROMPT_CHARS_MAX)
        .collect();
    if line.chars().count() > PROMPT_CHARS_MAX {
        shown.push('…');
    }
    Some(shown)
}

/// A tool call: its name and its arguments.
pub fn tool(name: Option<String>, arguments: Option<&Value>) -> Option<Tool> {
    let arguments = arguments.unwrap_or(&Value::Null);
    let mut commands = COMMAND_KEYS.iter().filter_map(|key| arguments.get(key));
    let name = name?;
    let destructive = commands.any(may_destroy);
    Some(Tool {
        writes: destructive || edits(&name),
        destructive,
        edits: if edits(&name) {
            edited(arguments)
        } else {
            Vec::new()
        },
        name,
    })
}

/// Whether a shell command, a text or a list of its words, may destroy work. Other values are no commands.
fn may_destroy(command: &Value) -> bool {
    match command {
        Value::String(text) => !harmless::is_harmless(text),
        Value::Array(words) => {
            let words: Option<Vec<&str>> = words.iter().map(Value::as_str).collect();
            words.is_some_and(|words| !harmless::are_harmless(&words))
        }
        _ => false,
    }
}

/// Whether a tool of this name writes the files that it is given. Readers have the same arguments.
pub fn edits(tool: &str) -> bool {
    const EDITORS: [&str; 12] = [
        "write",
        "edit",
        "multiedit",
        "notebookedit",
        "write_file",
        "replace",
        "edit_file",
        "create",
        "str_replace",
        "insert",
        "apply_patch",
        "patch",
    ];
    let tool = tool.to_ascii_lowercase();
    let own = tool.rsplit("__").next().unwrap_or(&tool);
    EDITORS.contains(&own)
}

fn edited(arguments: &Value) -> Vec<WirePath> {
    ["file_path", "filePath", "path", "notebook_path", "absolute_path"]
        .iter()
        .find_map(|key| path(arguments, key))
        .map(|path| WirePath::from(path.as_path()))
        .into_iter()
        .collect()
}

/// What an agent calls its events.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    pub event_key: &'static str,
    pub turn_start: &'static str,
    pub tool_start: &'static str,
    /// A call that failed may have written all the same.
    pub tool_end: &'static [&'static str],
    /// Well, by an error, or by an interruption.
    pub turn_end: &'static [&'static str],
}

/// How the event of a call that failed ends.
const FAILED: &str = "Failure";
const SESSION_START: &str = "SessionStart";
const SESSION_END: &str = "SessionEnd";

impl Names {
    /// All of them, in the order of a session.
    pub fn events(&self) -> impl Iterator<Item = &'static str> {
        [SESSION_START, self.turn_start, self.tool_start]
            .into_iter()
            .chain(self.tool_end.iter().copied())
            .chain(self.turn_end.iter().copied())
            .chain([SESSION_END])
    }

    /// Whether it tells of a tool.
    pub fn is_of_tools(&self, event: &str) -> bool {
        event == self.tool_start || self.tool_end.contains(&event)
    }
}

/// A payload of the shape that Claude Code has, which others took over.
pub fn understand(payload: &Value, names: &Names, turn_id: &str) -> Option<Heard> {
    let called = text(payload, names.event_key)?;
    let tool = || tool(name(payload, "tool_name"), payload.get("tool_input"));
    let event = if called == SESSION_START {
        HookEvent::SessionStart
    } else if called == SESSION_END {
        HookEvent::SessionEnd
    } else if called == names.turn_start {
        HookEvent::TurnStart {
            prompt: text(payload, "prompt").and_then(first_line),
            id: name(payload, turn_id),
        }
    } else if called == names.tool_start {
        HookEvent::ToolStart(tool()?)
    } else if names.tool_end.contains(&called) {
        let mut tool = tool()?;
        if called.ends_with(FAILED) {
            // Nobody can say whether it edited anything.
            tool.edits.clear();
        }
        HookEvent::ToolEnd(tool)
    } else if names.turn_end.contains(&called) {
        HookEvent::TurnEnd { prompt: None }
    } else {
        return None;
    };
    Some(Heard {
        session: name(payload, "session_id"),
        transcript: path(payload, "transcript_path").map(|path| WirePath::from(path.as_path())),
        cwd: path(payload, "cwd"),
        event,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_prompt_is_its_first_line() {
        assert_eq!(first_line("\n  a b \nc"), Some("a b".into()));
        assert_eq!(first_line(" \n"), None);
        assert_eq!(first_line("a\u{1b}[31mb"), Some("a[31mb".into()));
        let long = first_line(&"é".repeat(500)).unwrap();
        assert_eq!(long.chars().count(), PROMPT_CHARS_MAX + 1);
    }

    #[test]
    fn edit_tools_name_their_file_and_readers_none() {
        let arguments = json!({"file_path": "/p/a"});
        let of = |name: &str| tool(Some(name.into()), Some(&arguments)).unwrap().edits.len();
        assert_eq!(
            (of("Write"), of("Edit"), of("write_file"), of("mcp__x__edit_file")),
            (1, 1, 1, 1)
        );
        assert_eq!((of("Read"), of("read_file"), of("Grep")), (0, 0, 0));
        let relative = json!({"file_path": "a"});
        assert_eq!(tool(Some("Write".into()), Some(&relative)).unwrap().edits, []);
    }

    #[test]
    fn a_command_may_be_a_list_of_words() {
        for arguments in [
            json!({"command": "rm -rf x"}),
            json!({"command": ["bash", "-lc", "rm -rf x"]}),
        ] {
            assert!(tool(Some("shell".into()), Some(&arguments)).unwrap().destructive);
        }
        for arguments in [
            json!({"command": "ls"}),
            json!({"command": ["bash", "-lc", "ls -l"]}),
            json!({}),
        ] {
            assert!(!tool(Some("shell".into()), Some(&arguments)).unwrap().destructive);
        }
    }
}
