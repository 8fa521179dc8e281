//! Checkpoints for people: one line each.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use owo_colors::Style;
use stepback_proto::{CheckpointEntry, NamedPath, Trigger};

use super::path::{one_line, shown};
use super::time::{age, both, clock};
use super::{count, paint};
use crate::environment::local_zone;

/// The longest label or prompt that a line shows, in characters.
const LABEL_MAX: usize = 60;

/// The session that isn't one: what is captured outside of all.
const WATCH: &str = "watch";

/// The columns that are padded to the widest of the list.
struct Row {
    id: String,
    clock: String,
    age: String,
    session: String,
    what: String,
    rest: String,
}

impl Row {
    /// What the columns hold.
    fn header() -> Self {
        let [id, clock, age, session, what, rest] =
            ["id", "time", "age", "session", "why", "files"].map(str::to_owned);
        Self {
            id,
            clock,
            age,
            session,
            what,
            rest,
        }
    }
}

/// Newest first, as the daemon sends them. `current` gets a `*`. With a line that names the columns if `header`.
pub fn table(
    checkpoints: &[CheckpointEntry],
    current: Option<u64>,
    now: Timestamp,
    header: bool,
    color: bool,
) -> String {
    let zone = local_zone();
    let mut rows: Vec<Row> = checkpoints.iter().map(|c| row(c, now, &zone)).collect();
    if header {
        rows.insert(0, Row::header());
    }
    let width = |of: fn(&Row) -> &str| rows.iter().map(|r| of(r).chars().count()).max().unwrap_or(0);
    let (id, at, old) = (width(|r| &r.id), width(|r| &r.clock), width(|r| &r.age));
    let (session, what) = (width(|r| &r.session), width(|r| &r.what));
    let mut out = String::new();
    let mut rows = rows.iter();
    if header && let Some(row) = rows.next() {
        let line = format!(
            "  {:>id$}  {:>at$}  {:>old$}  {:session$}  {:what$}  {}",
            row.id, row.clock, row.age, row.session, row.what, row.rest
        );
        out += &paint(color, Style::new().dimmed(), &line);
        out.push('\n');
    }
    for (row, c) in rows.zip(checkpoints) {
        let here = current == Some(c.id);
        let mark = if here {
            paint(color, Style::new().green(), "*")
        } else {
            " ".into()
        };
        let number = paint(color, Style::new().yellow(), &format!("{:>id$}", row.id));
        let line = format!(
            "{mark} {number}  {:>at$}  {:>old$}  {:session$}  {:what$}  {}",
            row.clock, row.age, row.session, row.what, row.rest
        );
        out += line.trim_end();
        out.push('\n');
    }
    out
}

fn row(c: &CheckpointEntry, now: Timestamp, zone: &TimeZone) -> Row {
    let f = c.files;
    let mut rest = format!("+{} ~{} -{}", f.added, f.modified, f.deleted);
    if c.pinned {
        rest += "  pinned";
    }
    if c.not_captured > 0 {
        rest += &format!("  {} not captured", c.not_captured);
    }
    let mut agents: Vec<&str> = c
        .conversation
        .iter()
        .filter_map(|c| Some(c.split_once(':')?.0))
        .collect();
    agents.dedup();
    if !agents.is_empty() {
        rest += &format!("  with {}", one_line(&agents.join(", ")));
    }
    Row {
        id: c.id.to_string(),
        clock: clock(c.time_ms, now, zone),
        age: age(c.time_ms, now),
        session: if c.session == WATCH {
            "-".into()
        } else {
            one_line(&c.session)
        },
        what: what(c),
        rest,
    }
}

/// Why there is this checkpoint, in the words of whoever made it if there are any.
fn what(c: &CheckpointEntry) -> String {
    let trigger = c.trigger.name();
    let turn = c.turn.map(|n| format!(" turn:{n}")).unwrap_or_default();
    match (&c.label, &c.prompt) {
        (Some(label), _) if c.trigger == Trigger::Save => short(label),
        (Some(label), _) => format!("{trigger}{turn}: {}", short(label)),
        (None, Some(prompt)) => format!("{trigger}{turn}: {}", short(prompt)),
        (None, None) => format!("{trigger}{turn}"),
    }
}

fn short(text: &str) -> String {
    let line = one_line(text.trim().lines().next().unwrap_or(""));
    if line.chars().count() <= LABEL_MAX {
        return line;
    }
    line.chars().take(LABEL_MAX - 3).chain("...".chars()).collect()
}

/// A checkpoint as `watch` tells it.
pub fn event_line(c: &CheckpointEntry, now: Timestamp, color: bool) -> String {
    let row = row(c, now, &local_zone());
    let number = paint(color, Style::new().yellow(), &row.id);
    format!(
        "{}  {number}  {}  {}  {}\n",
        row.clock, row.session, row.what, row.rest
    )
}

/// A checkpoint's details.
pub fn details(c: &CheckpointEntry, not_captured: &[NamedPath], now: Timestamp, color: bool) -> String {
    let mut out = format!(
        "checkpoint {}\n",
        paint(color, Style::new().yellow(), &c.id.to_string())
    );
    let mut line = |name: &str, value: &str| out += &format!("  {name:<13}{value}\n");
    line("time", &both(c.time_ms, now, &local_zone()));
    line("trigger", c.trigger.name());
    if let Some(label) = &c.label {
        line("label", &one_line(label));
    }
    match c.base {
        Some(base) => line("base", &base.to_string()),
        None => line("base", "none, it is the first"),
    }
    let others = c
        .sessions
        .iter()
        .filter(|s| **s != c.session)
        .map(|s| one_line(s))
        .collect::<Vec<_>>();
    let also = if others.is_empty() {
        String::new()
    } else {
        format!(" (also open: {})", others.join(", "))
    };
    line("session", &format!("{}{also}", one_line(&c.session)));
    if let Some(agent) = &c.agent {
        line("agent", &one_line(agent));
    }
    if let Some(turn) = c.turn {
        line("turn", &turn.to_string());
    }
    if let Some(prompt) = &c.prompt {
        line("prompt", &one_line(prompt));
    }
    for conversation in &c.conversation {
        line("conversation", &one_line(&conversation.replacen(':', " ", 1)));
    }
    let f = c.files;
    line(
        "files",
        &format!(
            "{} added, {} modified, {} deleted",
            f.added, f.modified, f.deleted
        ),
    );
    line("tree", &c.tree);
    line("commit", &c.commit);
    line("pinned", if c.pinned { "yes" } else { "no" });
    if not_captured.is_empty() {
        line("not captured", "nothing but what is ignored");
    } else {
        line("not captured", &count(not_captured.len() as u64, "path", "paths"));
        for p in not_captured {
            out += &format!("    {} ({})\n", shown(&p.path), one_line(&p.reason));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use stepback_proto::FileCounts;

    use super::*;

    fn entry(id: u64, label: Option<&str>) -> CheckpointEntry {
        CheckpointEntry {
            id,
            base: None,
            session: "watch".into(),
            sessions: vec!["watch".into()],
            time_ms: 0,
            trigger: Trigger::Save,
            label: label.map(str::to_owned),
            agent: None,
            agent_session: None,
            turn: None,
            prompt: None,
            tools: vec![],
            files: FileCounts {
                added: 1,
                modified: 2,
                deleted: 3,
            },
            tree: "t".into(),
            commit: "c".into(),
            conversation: vec![],
            pinned: id == 9,
            not_captured: 0,
        }
    }

    #[test]
    fn one_line_each_with_bare_numbers_and_marks() {
        let text = table(
            &[entry(10, Some("two\nlines")), entry(9, None)],
            Some(10),
            Timestamp::UNIX_EPOCH,
            false,
            false,
        );
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("  -  two"), "{text}");
        let with_header = table(&[entry(9, None)], None, Timestamp::UNIX_EPOCH, true, false);
        let header = with_header.lines().next().unwrap();
        assert_eq!(
            header.split_whitespace().collect::<Vec<_>>(),
            ["id", "time", "age", "session", "why", "files"]
        );
        assert_eq!(
            header.find("files"),
            with_header.lines().nth(1).unwrap().find("+1")
        );
        assert!(
            lines[0].starts_with("* 10  ") && lines[0].ends_with("two   +1 ~2 -3"),
            "{text}"
        );
        assert!(
            lines[1].starts_with("   9  ") && lines[1].ends_with("save  +1 ~2 -3  pinned"),
            "{text}"
        );
    }

    #[test]
    fn long_labels_are_shortened() {
        assert_eq!(short(&"x".repeat(70)).chars().count(), LABEL_MAX);
        assert_eq!(short("a\x1b[1mb"), "a [1mb");
    }
}
