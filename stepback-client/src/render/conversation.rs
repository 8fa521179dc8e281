//! What becomes, or became, of agents' conversations, for people and programs.

use serde_json::{Value, json};
use stepback_proto::{ConversationLine, RewindWhat};

use super::path::one_line;

/// Of a preview.
pub fn planned(line: &ConversationLine) -> Value {
    let mut value = json!({ "agent": line.agent, "session": line.session, "action": line.action });
    if let Some(why) = &line.why {
        value["reason"] = json!(why);
    }
    if let Some(hint) = &line.hint {
        value["hint"] = json!(hint);
    }
    value
}

/// Of what was done.
pub fn done(line: &ConversationLine) -> Value {
    let mut value = planned(line);
    value["resume"] = json!(line.resume);
    if let Some(fork) = &line.fork {
        value["fork"] = json!(fork);
    }
    value
}

/// Of a checkpoint: `agent:session`.
pub fn session(text: &str) -> Value {
    let (agent, session) = text.split_once(':').unwrap_or((text, ""));
    json!({ "agent": agent, "session": session })
}

/// Whether something of it changes, or changed.
pub fn acts(line: &ConversationLine) -> bool {
    matches!(line.action.as_str(), "rewind" | "fork")
}

/// Whether it isn't put back, though it differs.
pub fn stays(line: &ConversationLine) -> bool {
    !acts(line) && line.action != "none"
}

fn named(line: &ConversationLine) -> String {
    format!(
        "conversation: {} {}",
        one_line(&line.agent),
        one_line(&line.session)
    )
}

fn why(line: &ConversationLine) -> String {
    one_line(line.why.as_deref().unwrap_or("it can't be put back"))
}

/// A line for each that an operation would put back, or leave.
pub fn preview(lines: &[ConversationLine]) -> String {
    let mut out = String::new();
    for line in lines {
        out += &match line.action.as_str() {
            "rewind" => format!("  {}: back to what was said then\n", named(line)),
            "fork" => format!("  {}: what was said then, under a new id\n", named(line)),
            "none" => continue,
            "ahead" => format!("  {}: isn't put back: {}\n", named(line), why(line)),
            _ => format!("  {}: left as it is: {}\n", named(line), why(line)),
        };
    }
    out
}

/// A line for each that was put back, with the command that goes on from there, or left.
pub fn report(lines: &[ConversationLine]) -> String {
    let mut out = String::new();
    for line in lines {
        let resume = one_line(line.resume.as_deref().unwrap_or_default());
        out += &match line.action.as_str() {
            "rewind" => format!("  {}: as it was then; resume it with: {resume}\n", named(line)),
            "fork" => format!(
                "  {}: forked as it was then; resume it with: {resume}\n",
                named(line)
            ),
            "none" => format!(
                "  {}: as it was then already; resume it with: {resume}\n",
                named(line)
            ),
            "ahead" => format!("  {}: isn't put back: {}\n", named(line), why(line)),
            _ => format!("  {}: left as it is: {}\n", named(line), why(line)),
        };
    }
    out
}

/// What to do about conversations that were left or are ahead, each once.
pub fn hints(lines: &[ConversationLine]) -> Vec<String> {
    let mut hints: Vec<String> = Vec::new();
    for hint in lines.iter().filter_map(|line| line.hint.as_deref()) {
        let hint = one_line(hint);
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    hints
}

/// Says so when files and conversations are out of step after a rewind to `target`, and what to do where the lines don't say
/// it. `agents`: some are known to work here.
pub fn step(
    what: RewindWhat,
    lines: &[ConversationLine],
    target: u64,
    agents: bool,
) -> Option<(String, Option<String>)> {
    let is = |action: &str| lines.iter().any(|line| line.action == action);
    let (note, hint) = match what {
        RewindWhat::Files if agents => Some((
            format!("out of step: files are as of checkpoint {target}, the agent's conversation is not"),
            format!("quit the agent, then run `stepback rewind {target} --conversation-only`"),
        )),
        RewindWhat::Conversation if lines.iter().any(acts) => Some((
            format!("out of step: the conversation is as of checkpoint {target}, files are as they were"),
            format!("`stepback rewind {target} --files-only` puts the files back, too"),
        )),
        _ if is("left") => Some((
            "out of step: a conversation was left as it is, the agent still remembers what came later".into(),
            String::new(),
        )),
        _ if is("ahead") => Some((
            "out of step: an agent still remembers what came later".into(),
            String::new(),
        )),
        RewindWhat::Both if lines.is_empty() && agents => Some((
            format!(
                "out of step: no conversation belongs to checkpoint {target}, agents still remember what came later"
            ),
            "tell the agent, or start a new session".into(),
        )),
        _ => None,
    }?;
    Some((note, Some(hint).filter(|hint| !hint.is_empty())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(action: &str) -> ConversationLine {
        ConversationLine {
            agent: "codex".into(),
            session: "s".into(),
            action: action.into(),
            why: (action == "left").then(|| "codex is running here (process 7)".into()),
            resume: Some("codex resume s".into()),
            fork: None,
            hint: (action == "left").then(|| "quit the agent, then come back".into()),
        }
    }

    #[test]
    fn what_was_left_is_named_with_what_to_do() {
        let lines = [line("left")];
        assert_eq!(
            report(&lines),
            "  conversation: codex s: left as it is: codex is running here (process 7)\n"
        );
        let (note, hint) = step(RewindWhat::Both, &lines, 7, true).unwrap();
        assert!(note.starts_with("out of step") && hint.is_none(), "{note}");
        let twice = [line("left"), line("left")];
        assert_eq!(hints(&twice), ["quit the agent, then come back"]);
    }

    #[test]
    fn in_step_nothing_is_said() {
        assert!(step(RewindWhat::Both, &[line("rewind")], 7, true).is_none());
        assert!(step(RewindWhat::Both, &[], 7, false).is_none());
        assert!(step(RewindWhat::Files, &[], 7, false).is_none());
        assert!(step(RewindWhat::Files, &[], 7, true).is_some());
        assert!(step(RewindWhat::Conversation, &[line("rewind")], 7, true).is_some());
        assert!(report(&[line("rewind")]).contains("resume it with: codex resume s"));
        assert_eq!(preview(&[line("none")]), "");
    }
}
