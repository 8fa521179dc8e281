//! What a rewind, restore, redo or session revert would do or did, for people.

use owo_colors::Style;
use stepback_proto::{ChangeKind, NamedPath, PlanChange, Report};

use super::path::{one_line, shown};
use super::{count, grouped, paint};

/// A longer list of paths is shortened, unless `--all` asks for all of it.
const LIST_MAX: usize = 40;

/// How much of a list that is too long is shown.
const LIST_SHORT: usize = 20;

/// Above so many paths the first line of a preview says that this is a lot.
const MANY: usize = 500;

/// What an operation would do.
pub struct Plan<'a> {
    /// What is to be done, for the heading: `rewind to 7`.
    pub what: &'a str,
    /// Paths that change.
    pub changes: &'a [PlanChange],
    /// Paths left though they differ.
    pub kept: &'a [NamedPath],
    /// Paths captured neither then nor now.
    pub not_covered: &'a [NamedPath],
}

/// The preview: its first line says what would happen, then come the paths.
pub fn preview(plan: &Plan<'_>, all: bool, color: bool) -> String {
    let mut out = format!("{}\n", paint(color, Style::new().bold(), &first_line(plan)));
    let shown_changes = if all || plan.changes.len() <= LIST_MAX {
        plan.changes.len()
    } else {
        LIST_SHORT
    };
    for change in &plan.changes[..shown_changes] {
        let (word, style) = match change.status {
            ChangeKind::Added => ("create", Style::new().green()),
            ChangeKind::Modified => ("change", Style::new().yellow()),
            ChangeKind::Deleted => ("remove", Style::new().red()),
            ChangeKind::TypeChanged => ("retype", Style::new().yellow()),
        };
        let mark = if change.edited_since {
            "  (edited since)"
        } else {
            ""
        };
        out += &format!("  {}  {}{mark}\n", paint(color, style, word), shown(&change.path));
    }
    if shown_changes < plan.changes.len() {
        let more = (plan.changes.len() - shown_changes) as u64;
        out += &format!("  ... and {} more (--all shows them)\n", grouped(more));
    }
    out + &left_alone(plan.kept, plan.not_covered, all)
}

fn first_line(plan: &Plan<'_>) -> String {
    let number =
        |kinds: &[ChangeKind]| plan.changes.iter().filter(|c| kinds.contains(&c.status)).count() as u64;
    let changed = number(&[ChangeKind::Modified, ChangeKind::TypeChanged]);
    let mut parts = vec![format!("{} changed", count(changed, "file", "files"))];
    parts.push(format!("{} removed", grouped(number(&[ChangeKind::Deleted]))));
    parts.push(format!("{} created", grouped(number(&[ChangeKind::Added]))));
    let mut line = format!("{}: {}", plan.what, parts.join(", "));
    if !plan.kept.is_empty() {
        line += &format!("; {} kept", grouped(plan.kept.len() as u64));
    }
    if plan.changes.len() > MANY {
        line = format!("warning: more than {MANY} paths would change: {line}");
    }
    line
}

/// What an operation did.
pub fn report(what: &str, report: &Report, kept: &[NamedPath], not_covered: &[NamedPath]) -> String {
    let saved = match report.saved {
        Some(n) => format!("; the state before is checkpoint {n}"),
        None => String::new(),
    };
    let mut out = format!(
        "{what}: {} written, {} removed{saved}\n",
        grouped(report.written),
        grouped(report.removed)
    );
    for note in &report.notes {
        out += &format!("  note: {}\n", one_line(note));
    }
    out + &left_alone(kept, not_covered, false)
}

/// The paths that are left: every kept one, since it is what makes the operation partial; the others shortened.
pub fn left_alone(kept: &[NamedPath], not_covered: &[NamedPath], all: bool) -> String {
    let mut out = String::new();
    for p in kept {
        out += &format!("  kept: {} ({})\n", shown(&p.path), one_line(&p.reason));
    }
    let listed = if all || not_covered.len() <= LIST_MAX {
        not_covered.len()
    } else {
        LIST_SHORT
    };
    for p in &not_covered[..listed] {
        out += &format!("  not covered: {} ({})\n", shown(&p.path), one_line(&p.reason));
    }
    if listed < not_covered.len() {
        out += &format!(
            "  ... and {} more not covered\n",
            grouped((not_covered.len() - listed) as u64)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use stepback_proto::WirePath;

    use super::*;

    fn change(path: &str, status: ChangeKind, edited_since: bool) -> PlanChange {
        PlanChange {
            path: WirePath(path.as_bytes().to_vec()),
            status,
            edited_since,
        }
    }

    fn named(path: &str, reason: &str) -> NamedPath {
        NamedPath {
            path: WirePath(path.as_bytes().to_vec()),
            reason: reason.into(),
        }
    }

    #[test]
    fn the_first_line_says_what_would_happen() {
        let changes = [
            change("a", ChangeKind::Modified, true),
            change("out/new.jsonl", ChangeKind::Deleted, false),
            change("c", ChangeKind::Added, false),
        ];
        let kept = [named("big", "too-large")];
        let plan = Plan {
            what: "rewind to 7",
            changes: &changes,
            kept: &kept,
            not_covered: &[named("s", "special")],
        };
        assert_eq!(
            preview(&plan, false, false),
            "rewind to 7: 1 file changed, 1 removed, 1 created; 1 kept\n  change  a  (edited since)\n  remove  \
             out/new.jsonl\n  create  c\n  kept: big (too-large)\n  not covered: s (special)\n"
        );
    }

    #[test]
    fn long_lists_are_shortened_and_many_paths_are_said_first() {
        let changes: Vec<_> = (0..501)
            .map(|n| change(&format!("f{n}"), ChangeKind::Deleted, false))
            .collect();
        let plan = Plan {
            what: "rewind to 1",
            changes: &changes,
            kept: &[],
            not_covered: &[],
        };
        let text = preview(&plan, false, false);
        assert!(
            text.starts_with("warning: more than 500 paths would change: rewind to 1"),
            "{text}"
        );
        assert!(text.contains("... and 481 more (--all shows them)"));
        assert_eq!(preview(&plan, true, false).lines().count(), 502);
        let plan = Plan {
            changes: &changes[..500],
            ..plan
        };
        assert!(preview(&plan, false, false).starts_with("rewind to 1"));
    }

    #[test]
    fn a_report_names_what_was_kept_and_why() {
        let done = Report {
            target: 7,
            saved: Some(9),
            back: None,
            written: 2,
            removed: 1,
            redo: 1,
            notes: vec![],
        };
        assert_eq!(
            report("rewound to 7", &done, &[named("big", "too-large")], &[]),
            "rewound to 7: 2 written, 1 removed; the state before is checkpoint 9\n  kept: big (too-large)\n"
        );
    }
}
