//! What a rewind, restore, redo or session revert would do or did, for people.

use std::collections::HashSet;

use owo_colors::Style;
use stepback_proto::{ChangeKind, NamedPath, PlanChange, Report, WirePath};

use super::collapse::{self, Line};
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
    /// Paths of `changes` that an include pattern names.
    pub included: &'a HashSet<WirePath>,
}

/// The kinds of change, in the order in which they are listed.
const KINDS: [(&str, &[ChangeKind]); 4] = [
    ("change", &[ChangeKind::Modified]),
    ("retype", &[ChangeKind::TypeChanged]),
    ("remove", &[ChangeKind::Deleted]),
    ("create", &[ChangeKind::Added]),
];

/// The preview: its first line says what would happen, then come the paths: changed, removed, created. `all` is `None`
/// for a command that has no `--all`.
pub fn preview(plan: &Plan<'_>, all: Option<bool>, color: bool) -> String {
    let mut out = format!("{}\n", paint(color, Style::new().bold(), &first_line(plan)));
    let lines = changes(plan.changes, plan.included, all == Some(true), color);
    let listed = if all == Some(true) || lines.len() <= LIST_MAX {
        lines.len()
    } else {
        LIST_SHORT
    };
    lines[..listed].iter().for_each(|line| out += &line.text);
    let more: usize = lines[listed..].iter().map(|line| line.paths).sum();
    let closed = lines[..listed].iter().any(|line| line.paths > 1);
    let way = way_to_all(all);
    if more > 0 {
        out += &format!("  ... and {} more ({way})\n", grouped(more as u64));
    } else if closed {
        let way = way.replace("them", "every path");
        out += &format!("  ({way})\n");
    }
    out + &left_alone(plan.kept, plan.not_covered, all == Some(true), way)
}

/// How to see all of a list that a preview shortens.
pub const fn way_to_all(all: Option<bool>) -> &'static str {
    match all {
        Some(_) => "--all shows them",
        None => "-n --json names them",
    }
}

/// A line of the preview and how many paths it stands for.
struct Listed {
    text: String,
    paths: usize,
}

fn changes(changes: &[PlanChange], included: &HashSet<WirePath>, all: bool, color: bool) -> Vec<Listed> {
    let mut sorted: Vec<&PlanChange> = changes.iter().collect();
    sorted.sort_by(|a, b| collapse::order(&a.path.0, &b.path.0));
    let dirs = directories(&sorted);
    let room = if all || changes.len() <= LIST_MAX {
        usize::MAX
    } else {
        // Each kind may fill a share; what is then still too long is cut.
        let kinds = KINDS
            .iter()
            .filter(|(_, of)| sorted.iter().any(|c| of.contains(&c.status)));
        LIST_MAX / kinds.count().max(1)
    };
    let mut out = Vec::new();
    for (word, kinds) in KINDS {
        let style = match word {
            "remove" => Style::new().red(),
            "create" => Style::new().green(),
            _ => Style::new().yellow(),
        };
        let word = paint(color, style, word);
        let of: Vec<&PlanChange> = sorted
            .iter()
            .copied()
            .filter(|c| kinds.contains(&c.status))
            .collect();
        let paths: Vec<&[u8]> = of.iter().map(|c| c.path.0.as_slice()).collect();
        let lines = if room == usize::MAX {
            (0..of.len()).map(Line::Path).collect()
        } else {
            collapse::lines(&paths, room)
        };
        for line in lines {
            let (range, what) = match line {
                Line::Path(at) => {
                    let dir = !kinds.contains(&ChangeKind::TypeChanged) && dirs.contains(paths[at]);
                    (
                        at..at + 1,
                        format!("{}{}", shown(&of[at].path), if dir { "/" } else { "" }),
                    )
                }
                Line::Below(name, range) => {
                    let files = range.clone().filter(|n| !dirs.contains(paths[*n])).count();
                    let files = count(files as u64, "file", "files");
                    let dir = &paths[range.start][..name];
                    let dir_shown = shown(&WirePath(dir.to_vec()));
                    let whole = paths[range.start] == dir;
                    let what = if whole {
                        format!("{dir_shown}/ ({files})")
                    } else {
                        format!("{files} in {dir_shown}/")
                    };
                    (range, what)
                }
            };
            let edited = of[range.clone()].iter().filter(|c| c.edited_since).count();
            let mark = match (edited, range.len()) {
                (0, _) => String::new(),
                (_, 1) => "  (edited since)".into(),
                (n, _) => format!("  ({} edited since)", grouped(n as u64)),
            };
            let of_these = of[range.clone()].iter().filter(|c| included.contains(&c.path));
            let mark = match (of_these.count(), range.len()) {
                (0, _) => mark,
                (_, 1) => format!("  (included){mark}"),
                (n, _) => format!("  ({} included){mark}", grouped(n as u64)),
            };
            out.push(Listed {
                text: format!("  {word}  {what}{mark}\n"),
                paths: range.len(),
            });
        }
    }
    out
}

/// The paths that others in the list are below of. Sorted, a directory comes right before them.
fn directories<'a>(sorted: &[&'a PlanChange]) -> HashSet<&'a [u8]> {
    sorted
        .windows(2)
        .filter(|pair| collapse::is_at_or_below(&pair[1].path.0, &pair[0].path.0))
        .map(|pair| pair[0].path.0.as_slice())
        .collect()
}

fn number(changes: &[PlanChange], kinds: &[ChangeKind]) -> u64 {
    changes.iter().filter(|c| kinds.contains(&c.status)).count() as u64
}

/// `3 changed, 14 removed, 12 created`
pub fn counts(changes: &[PlanChange]) -> String {
    let changed = number(changes, &[ChangeKind::Modified, ChangeKind::TypeChanged]);
    format!("{} changed, {}", grouped(changed), gone_and_new(changes))
}

fn gone_and_new(changes: &[PlanChange]) -> String {
    format!(
        "{} removed, {} created",
        grouped(number(changes, &[ChangeKind::Deleted])),
        grouped(number(changes, &[ChangeKind::Added]))
    )
}

fn first_line(plan: &Plan<'_>) -> String {
    let changed = number(plan.changes, &[ChangeKind::Modified, ChangeKind::TypeChanged]);
    let mut line = format!(
        "{}: {} changed, {}",
        plan.what,
        count(changed, "file", "files"),
        gone_and_new(plan.changes)
    );
    if !plan.kept.is_empty() {
        line += &format!("; {} kept", grouped(plan.kept.len() as u64));
    }
    if plan.changes.len() > MANY {
        line = format!("warning: more than {MANY} paths would change: {line}");
    }
    line
}

/// What an operation did. `all`: show long lists whole.
pub fn report(
    what: &str,
    report: &Report,
    kept: &[NamedPath],
    not_covered: &[NamedPath],
    all: bool,
) -> String {
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
    out + &left_alone(kept, not_covered, all, &way_after(report.target))
}

/// How to see all of what is still not as in a checkpoint, after the fact.
pub fn way_after(target: u64) -> String {
    format!("`stepback rewind {target} -n --all` shows them")
}

/// The paths that are left. Long lists are shortened, unless `all` is wanted; `way` says how to see all.
pub fn left_alone(kept: &[NamedPath], not_covered: &[NamedPath], all: bool, way: &str) -> String {
    let mut out = String::new();
    for (word, paths) in [("kept", kept), ("not covered", not_covered)] {
        let listed = if all || paths.len() <= LIST_MAX {
            paths.len()
        } else {
            LIST_SHORT
        };
        for p in &paths[..listed] {
            out += &format!("  {word}: {}: {}\n", shown(&p.path), reason(&p.reason));
        }
        if listed < paths.len() {
            let more = grouped((paths.len() - listed) as u64);
            out += &format!("  ... and {more} more {word} ({way})\n");
        }
    }
    out
}

/// A reason in words for people: `not in the checkpoint, too large`.
fn reason(text: &str) -> String {
    let text = one_line(text).replace("too-large", "too large");
    match text.strip_suffix(')').and_then(|t| t.rsplit_once(" (")) {
        Some((what, why)) => format!("{what}, {why}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
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
        let kept = [named("big", "not in the checkpoint (too-large)")];
        let plan = Plan {
            what: "rewind to 7",
            changes: &changes,
            kept: &kept,
            not_covered: &[named("s", "special")],
            included: &HashSet::from([WirePath(b"c".to_vec())]),
        };
        assert_eq!(
            preview(&plan, Some(false), false),
            "rewind to 7: 1 file changed, 1 removed, 1 created; 1 kept\n  change  a  (edited since)\n  remove  \
             out/new.jsonl\n  create  c  (included)\n  kept: big: not in the checkpoint, too large\n  not covered: s: special\n"
        );
        assert_eq!(counts(&changes), "1 changed, 1 removed, 1 created");
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
            included: &HashSet::new(),
        };
        let text = preview(&plan, Some(false), false);
        assert!(
            text.starts_with("warning: more than 500 paths would change: rewind to 1"),
            "{text}"
        );
        assert!(text.contains("... and 481 more (--all shows them)"));
        assert_eq!(preview(&plan, Some(true), false).lines().count(), 502);
        let plan = Plan {
            changes: &changes[..500],
            ..plan
        };
        assert!(preview(&plan, Some(false), false).starts_with("rewind to 1"));
    }

    #[test]
    fn directories_stand_for_what_is_below_them() {
        let mut changes: Vec<_> = (0..488)
            .map(|n| change(&format!("big/f{n}"), ChangeKind::Deleted, false))
            .collect();
        changes.push(change("big", ChangeKind::Deleted, false));
        changes.push(change("new/x", ChangeKind::Added, false));
        changes.push(change("new", ChangeKind::Added, false));
        let edited = (0..30).map(|n| change(&format!("src/m{n}"), ChangeKind::Modified, n == 0));
        changes.extend(edited);
        let plan = Plan {
            what: "redo back to 1",
            changes: &changes,
            kept: &[],
            not_covered: &[],
            included: &HashSet::new(),
        };
        let lines = |all| {
            preview(&plan, all, false)
                .lines()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            lines(None)[1..],
            [
                "  change  30 files in src/  (1 edited since)",
                "  remove  big/ (488 files)",
                "  create  new/",
                "  create  new/x",
                "  (-n --json names every path)"
            ]
        );
        assert_eq!(lines(Some(true)).len(), 1 + changes.len());
    }

    #[test]
    fn a_report_names_what_was_kept_and_why() {
        let done = Report {
            target: 7,
            saved: Some(9),
            back: None,
            written: 2,
            removed: 1,
            redoable: true,
            redo: 1,
            notes: vec![],
        };
        assert_eq!(
            report("rewound to 7", &done, &[named("big", "too-large")], &[], false),
            "rewound to 7: 2 written, 1 removed; the state before is checkpoint 9\n  kept: big: too large\n"
        );
        let many: Vec<_> = (0..41).map(|n| named(&format!("f{n}"), "it is gone")).collect();
        let text = report("rewound to 7", &done, &many, &[], false);
        assert_eq!(text.lines().count(), 22, "{text}");
        assert!(
            text.ends_with("  ... and 21 more kept (`stepback rewind 7 -n --all` shows them)\n"),
            "{text}"
        );
        let text = report("rewound to 7", &done, &many, &[], true);
        assert_eq!(text.lines().count(), 42, "{text}");
    }
}
