//! Our entries among the hooks of an agent's JSON settings. Comments, order and spaces of everything else stay as they are.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstObjectProp, CstRootNode};

use super::command::{is_by_hand, is_ours};
use super::payload::Names;

/// Which entries say that they are for every tool (or whatever else the event has): `"matcher": "*"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matcher {
    Nowhere,
    Tools,
    Everywhere,
}

/// What stands in the settings of one agent.
#[derive(Debug, Clone, Copy)]
pub struct Hooks {
    /// The events that we want to be told of.
    pub names: &'static Names,
    /// What else their entries say.
    pub matcher: Matcher,
    /// How long a hook may take, in the agent's unit: longer than a hook ever waits.
    pub timeout: u64,
}

/// Adds our entries; one of ours that has another command is brought up to date. An event whose hooks call our program by
/// somebody's hand gets none.
///
/// # Errors
/// What is wrong with the text, with line and column.
pub fn add(text: &str, hooks: &Hooks, agent: &str, command: &str) -> Result<String, String> {
    let (bom, text) = split_bom(text);
    let text = if text.trim().is_empty() { "{\n}\n" } else { text };
    let root = parse(text)?;
    let top = root.object_value().ok_or("the settings are no JSON object")?;
    check(&top)?;
    let all = object(&top, "hooks")?;
    for event in hooks.names.events() {
        let groups = array(&all, event)?;
        let mut found = false;
        for command_node in commands(&groups) {
            if let Some(value) = text_of(&command_node) {
                found |= is_by_hand(&value, agent);
                if !is_ours(&value, agent) {
                    continue;
                }
                found = true;
                if value != command
                    && let Some(literal) = command_node.as_string_lit()
                {
                    literal.replace_with(CstInputValue::String(command.to_owned()));
                }
            }
        }
        if !found {
            groups.append(group(event, hooks, command));
        }
    }
    Ok(format!("{bom}{root}"))
}

/// Takes our entries out, and what only held them.
///
/// # Errors
/// As [`add`].
pub fn remove(text: &str, agent: &str) -> Result<String, String> {
    let (bom, _) = split_bom(text);
    let root = parse(text)?;
    let Some(top) = root.object_value() else {
        return Ok(text.to_owned());
    };
    check(&top)?;
    let Some(all) = top.object_value("hooks") else {
        return Ok(text.to_owned());
    };
    for event in all.properties() {
        let Some(groups) = event.array_value() else {
            continue;
        };
        let mut any = false;
        for group in groups.elements() {
            let Some(entries) = group.as_object().and_then(|group| group.array_value("hooks")) else {
                continue;
            };
            let mut ours = false;
            for entry in entries.elements() {
                let command = entry.as_object().and_then(|entry| entry.get("command"));
                let value = command.and_then(|command| command.value());
                if value
                    .and_then(|node| text_of(&node))
                    .is_some_and(|text| is_ours(&text, agent))
                {
                    ours = true;
                    entry.remove();
                }
            }
            if ours && entries.elements().is_empty() {
                group.remove();
            }
            any |= ours;
        }
        if any && groups.elements().is_empty() {
            event.remove();
        }
    }
    let has_comments = all.children().iter().any(CstNode::is_comment);
    if all.properties().is_empty()
        && !has_comments
        && let Some(hooks) = top.get("hooks")
    {
        hooks.remove();
    }
    Ok(format!("{bom}{root}"))
}

/// The commands that have to do with us.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Ours, each once.
    pub ours: Vec<String>,
    /// How many hooks call our program by somebody's hand.
    pub by_hand: usize,
}

/// What stands in the text.
///
/// # Errors
/// As [`add`].
pub fn find(text: &str, agent: &str) -> Result<Found, String> {
    let root = parse(text)?;
    let mut found = Found::default();
    let Some(top) = root.object_value() else {
        return Ok(found);
    };
    check(&top)?;
    let all = top.object_value("hooks");
    for event in all.iter().flat_map(CstObject::properties) {
        for node in event.array_value().iter().flat_map(commands) {
            match text_of(&node) {
                Some(text) if is_by_hand(&text, agent) => found.by_hand += 1,
                Some(text) if is_ours(&text, agent) && !found.ours.contains(&text) => found.ours.push(text),
                _ => {}
            }
        }
    }
    Ok(found)
}

/// Whether two texts say the same, whatever their spaces and comments are.
pub fn are_alike(one: &str, other: &str) -> bool {
    let options = ParseOptions::default();
    let value = |text| jsonc_parser::parse_to_value(split_bom(text).1, &options);
    matches!((value(one), value(other)), (Ok(one), Ok(other)) if one == other)
}

/// What stands there twice is read by some as the first, by most as the last, and by nobody as both.
fn check(top: &CstObject) -> Result<(), String> {
    let twice = |of: &CstObject| {
        let mut names: Vec<String> = of
            .properties()
            .iter()
            .filter_map(CstObjectProp::decoded_name)
            .collect();
        names.sort();
        let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
        twice.map(|pair| pair[0].clone())
    };
    let refuse = |name: &str| Err(format!("`{name}` stands there twice: make it one"));
    if twice(top).is_some_and(|name| name == "hooks") {
        return refuse("hooks");
    }
    match top.object_value("hooks").and_then(|all| twice(&all)) {
        Some(event) => refuse(&format!("hooks.{event}")),
        None => Ok(()),
    }
}

fn parse(text: &str) -> Result<CstRootNode, String> {
    let (_, text) = split_bom(text);
    CstRootNode::parse(text, &ParseOptions::default()).map_err(|e| e.to_string())
}

/// Some editors begin a file with a mark that says that it is UTF-8. It stays.
fn split_bom(text: &str) -> (&str, &str) {
    text.split_at(if text.starts_with('\u{feff}') { 3 } else { 0 })
}

fn object(of: &CstObject, name: &str) -> Result<CstObject, String> {
    of.object_value_or_create(name)
        .ok_or_else(|| format!("`{name}` is no JSON object"))
}

fn array(of: &CstObject, name: &str) -> Result<CstArray, String> {
    of.array_value_or_create(name)
        .ok_or_else(|| format!("`hooks.{name}` is no JSON array"))
}

/// The values of `command` in all groups of an event.
fn commands(groups: &CstArray) -> Vec<CstNode> {
    let groups = groups
        .elements()
        .into_iter()
        .filter_map(|group| group.as_object());
    let entries = groups
        .filter_map(|group| group.array_value("hooks"))
        .flat_map(|entries| entries.elements());
    entries
        .filter_map(|entry| entry.as_object()?.get("command")?.value())
        .collect()
}

fn text_of(node: &CstNode) -> Option<String> {
    node.as_string_lit()?.decoded_value().ok()
}

fn group(event: &str, hooks: &Hooks, command: &str) -> CstInputValue {
    let text = |text: &str| CstInputValue::String(text.to_owned());
    let entry = CstInputValue::Object(vec![
        ("type".into(), text("command")),
        ("command".into(), text(command)),
        ("timeout".into(), CstInputValue::Number(hooks.timeout.to_string())),
    ]);
    let matched = match hooks.matcher {
        Matcher::Nowhere => false,
        Matcher::Tools => hooks.names.is_of_tools(event),
        Matcher::Everywhere => true,
    };
    let matcher = matched.then(|| ("matcher".to_owned(), text("*")));
    let hooks = ("hooks".to_owned(), CstInputValue::Array(vec![entry]));
    CstInputValue::Object(matcher.into_iter().chain([hooks]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Names = Names {
        event_key: "event",
        turn_start: "UserPromptSubmit",
        tool_start: "PreToolUse",
        tool_end: &[],
        turn_end: &["Stop"],
    };
    const HOOKS: Hooks = Hooks {
        names: &NAMES,
        matcher: Matcher::Tools,
        timeout: 15,
    };
    fn ours(text: &str, agent: &str) -> Result<Vec<String>, String> {
        find(text, agent).map(|found| found.ours)
    }

    const OURS: &str = "/usr/bin/stepback hook codex";

    /// Texts that people have: empty, compact, with comments and other hooks, in another indentation, without a last newline.
    const TEXTS: [&str; 8] = [
        "{}",
        "{}\n",
        "{\"model\":\"x\"}\n",
        "{\n  // mine\n  \"model\": \"x\", // why\n  \"a\": [1, 2],\n}\n",
        "{\n\t\"hooks\": {\n\t\t\"Stop\": [\n\t\t\t{\n\t\t\t\t\"hooks\": [\n\t\t\t\t\t{ \"type\": \"command\", \"command\": \"say done\" }\n\t\t\t\t]\n\t\t\t}\n\t\t]\n\t}\n}\n",
        "{\n  \"hooks\": {\n    \"Other\": []\n  },\n  \"z\": null\n}",
        "{\r\n  \"a\": 1\r\n}\r\n",
        "\u{feff}{\n  // mine\n  \"a\": 1\n}\n",
    ];

    #[test]
    fn added_once_and_taken_out_again_the_rest_is_as_it_was() {
        for text in TEXTS {
            let added = add(text, &HOOKS, "codex", OURS).unwrap();
            assert_eq!(ours(&added, "codex").unwrap(), [OURS], "{added}");
            assert_eq!(
                add(&added, &HOOKS, "codex", OURS).unwrap(),
                added,
                "not idempotent"
            );
            let removed = remove(&added, "codex").unwrap();
            assert_eq!(ours(&removed, "codex").unwrap(), [""; 0]);
            let value = |text: &str| parse(text).unwrap().object_value().unwrap().properties().len();
            assert_eq!(value(&removed), value(text), "{removed}");
            for kept in ["\u{feff}", "// mine", "// why", "say done", "\"Other\": []"] {
                assert_eq!(text.contains(kept), removed.contains(kept), "{removed}");
                assert_eq!(text.contains(kept), added.contains(kept), "{added}");
            }
        }
    }

    #[test]
    fn an_entry_with_another_path_is_brought_up_to_date() {
        let old = add("{}", &HOOKS, "codex", "'/old place/stepback' hook codex").unwrap();
        let new = add(&old, &HOOKS, "codex", OURS).unwrap();
        assert_eq!(ours(&new, "codex").unwrap(), [OURS]);
        assert_eq!(new.matches(OURS).count(), NAMES.events().count());
        // An empty group of somebody else's, after ours, stays.
        let theirs = "{\"hooks\":{\"Stop\":[{\"matcher\":\"x\",\"hooks\":[]}]}}";
        let ours_first = theirs.replace("[{", &format!("[{{\"hooks\":[{{\"command\":\"{OURS}\"}}]}},{{"));
        let removed = remove(&ours_first, "codex").unwrap();
        assert!(
            removed.contains("\"matcher\":\"x\"") && !removed.contains(OURS),
            "{removed}"
        );
        // Another agent's are none of ours.
        assert_eq!(ours(&new, "gemini").unwrap(), [""; 0]);
        assert_eq!(remove(&new, "gemini").unwrap(), new);
    }

    #[test]
    fn what_somebody_made_of_our_hook_stays_theirs() {
        let theirs = "timeout 5 /usr/local/bin/stepback hook codex && notify-send done";
        let text = format!(
            r#"{{"hooks": {{"Stop": [{{"hooks": [{{"type": "command", "command": "{theirs}"}}]}}]}}}}"#
        );
        let added = add(&text, &HOOKS, "codex", OURS).unwrap();
        let events = NAMES.events().count();
        assert_eq!(
            added.matches(OURS).count(),
            events - 1,
            "no second one at Stop: {added}"
        );
        let found = find(&added, "codex").unwrap();
        assert_eq!((found.ours.len(), found.by_hand), (1, 1));
        let removed = remove(&added, "codex").unwrap();
        assert!(removed.contains(theirs) && !removed.contains(OURS), "{removed}");
    }

    #[test]
    fn what_stands_there_twice_is_an_error() {
        for text in [
            r#"{"hooks": {}, "a": 1, "hooks": {"Stop": []}}"#,
            r#"{"hooks": {"Stop": [], "Other": [], "Stop": []}}"#,
        ] {
            for result in [
                add(text, &HOOKS, "codex", OURS),
                remove(text, "codex"),
                find(text, "codex").map(|_| String::new()),
            ] {
                assert!(result.unwrap_err().contains("twice"), "{text}");
            }
        }
        assert!(
            add(r#"{"a": 1, "a": 2}"#, &HOOKS, "codex", OURS).is_ok(),
            "none of ours"
        );
    }

    #[test]
    fn a_comment_among_hooks_stays() {
        let text = "{\n  \"hooks\": {\n    // mine\n  }\n}\n";
        let added = add(text, &HOOKS, "codex", OURS).unwrap();
        let removed = remove(&added, "codex").unwrap();
        assert!(removed.contains("// mine"), "{removed}");
        assert!(are_alike(&removed, text));
    }

    #[test]
    fn an_empty_group_of_the_users_own_stays() {
        let stop = format!(
            r#"{{"hooks": {{"Stop": [{{"hooks": [{{"command": "{OURS}"}}]}}, {{"matcher": "x", "hooks": []}}]}}}}"#
        );
        let removed = remove(&stop, "codex").unwrap();
        assert!(
            !removed.contains(OURS) && removed.contains(r#""matcher": "x""#),
            "{removed}"
        );
    }

    #[test]
    fn what_is_broken_is_an_error_that_says_where() {
        for text in [
            "{",
            "[]",
            "{\"hooks\": 7}",
            "{\"hooks\": {\"Stop\": {}}}",
            "{\n \"a\": }",
        ] {
            let error = add(text, &HOOKS, "codex", OURS).unwrap_err();
            assert!(!error.is_empty());
        }
        assert!(
            add("{\n \"a\": }", &HOOKS, "codex", OURS)
                .unwrap_err()
                .contains("line 2")
        );
    }
}
