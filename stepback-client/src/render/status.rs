//! `status` for people. The first line answers "am I protected?".

use jiff::Timestamp;
use owo_colors::Style;
use stepback_proto::{Drift, NamedPath, RootState, RootStatus, Status};

use super::path::{one_line, shown};
use super::time::{both, clock};
use super::{count, grouped, paint};
use crate::environment::local_zone;
use crate::size;

/// How many paths that aren't captured are listed; `--json` has all.
const PATHS_MAX: usize = 50;

/// How many gaps in the coverage are listed, the latest of them.
const GAPS_MAX: usize = 5;

/// The whole text. `current` is the checkpoint that equals the directory, `place` where the client stands.
pub fn text(
    status: &Status,
    not_captured: &[NamedPath],
    current: Option<u64>,
    place: &str,
    now: Timestamp,
    color: bool,
) -> String {
    let mut out = String::new();
    match &status.root {
        None => {
            let no = paint(color, Style::new().red().bold(), "not protected");
            out += &format!("{no}: no attached directory holds {place}\n");
            out += "  hint: `stepback attach` starts to watch it\n";
        }
        Some(root) => out += &about_root(root, not_captured, current, now, color),
    }
    let d = &status.daemon;
    let line = format!(
        "daemon {} (pid {}), up {}, {} of memory",
        one_line(&d.version),
        d.pid,
        duration(d.uptime_s),
        size::human(d.rss_bytes)
    );
    out + &line + "\n"
}

/// What hooks and checkpoints don't agree on.
fn drifted(drift: Drift) -> String {
    let edits = count(drift.tool_calls, "edit", "edits");
    let files = count(drift.captured, "file", "files");
    match (drift.tool_calls, drift.captured) {
        (0, _) => format!("{files} changed in turns of which hooks told no tool call"),
        (_, 0) => format!("hooks told of {edits} that no checkpoint has"),
        _ => format!("hooks told of {edits} that no checkpoint has, and not of changes of {files}"),
    }
}

fn about_root(
    root: &RootStatus,
    not_captured: &[NamedPath],
    current: Option<u64>,
    now: Timestamp,
    color: bool,
) -> String {
    let zone = local_zone();
    let mut out = String::new();
    let (good, words) = protection(root);
    let style = if good {
        Style::new().green().bold()
    } else {
        Style::new().red().bold()
    };
    let but = match not_captured.len() as u64 {
        0 => String::new(),
        n => format!(", {} not captured", count(n, "path", "paths")),
    };
    out += &format!("{}: {}{but}\n", paint(color, style, words), sentence(root));
    if let Some(u) = &root.unfinished {
        let head = format!("unfinished: {} to {}", one_line(&u.operation), u.target);
        let head = paint(color, Style::new().red().bold(), &head);
        out += &format!(
            "{head}, begun {}, was interrupted\n",
            both(u.started_ms, now, &zone)
        );
        out += "  hint: `stepback recover` finishes it, `stepback recover --undo` takes it back\n";
    }
    let mut line = |name: &str, value: &str| out += &format!("  {name:<13}{value}\n");
    match root.last {
        Some(last) => line(
            "latest",
            &format!("checkpoint {}, {}", last.id, both(last.time_ms, now, &zone)),
        ),
        None if is_unread(root) => line("latest", "not known yet"),
        None => line("latest", "no checkpoint yet"),
    }
    let equals = match (current, root.last) {
        (Some(n), Some(last)) if n != last.id && root.settled == Some(true) && protection(root).0 => {
            format!("; the directory equals checkpoint {n}")
        }
        _ => String::new(),
    };
    line("now", &format!("{}{equals}", settled(root)));
    line(
        "checkpoints",
        &match root.redo {
            _ if is_unread(root) => "not counted yet".into(),
            0 => format!("{}, nothing to redo", grouped(root.checkpoints)),
            n => format!(
                "{}, {} to take back with `stepback redo`",
                grouped(root.checkpoints),
                grouped(n)
            ),
        },
    );
    let open: Vec<String> = root.sessions.iter().map(|s| one_line(s)).collect();
    line(
        "session",
        &if open.len() > 1 {
            open.join(", ")
        } else {
            one_line(&root.session)
        },
    );
    line(
        "store",
        &match is_unread(root) {
            true => shown(&root.store),
            false => format!("{} ({})", shown(&root.store), size::human(root.store_bytes)),
        },
    );
    if let Some(p) = &root.progress {
        let of = if p.total > 0 {
            format!(" of {}", grouped(p.total))
        } else {
            String::new()
        };
        line(
            "progress",
            &format!("{}: {}{of}", one_line(&p.what), grouped(p.done)),
        );
    }
    if let Some(seconds) = root.poll_seconds {
        line("polled", &format!("every {seconds} s"));
    }
    if root.missed > 0 {
        line(
            "missed",
            &format!(
                "{} that no event told, found by a scan",
                count(root.missed, "change", "changes")
            ),
        );
    }
    for agent in root.agents.iter().filter(|agent| agent.live) {
        line(
            "agent",
            &format!("{}, session {}", one_line(&agent.agent), one_line(&agent.session)),
        );
    }
    if let Some(drift) = root.drift {
        line("drift", &drifted(drift));
    }
    for gap in root.gaps.iter().rev().take(GAPS_MAX) {
        let span = format!(
            "{} to {}",
            clock(gap.from_ms, now, &zone),
            clock(gap.to_ms, now, &zone)
        );
        line("unprotected", &format!("{span}: {}", one_line(&gap.reason)));
    }
    let patterns: Vec<String> = root.builtin.iter().map(|p| one_line(p)).collect();
    let builtin = if patterns.is_empty() {
        String::new()
    } else {
        format!(
            "; by built-in patterns, which a `!` rule overrides: {}",
            patterns.join(" ")
        )
    };
    line(
        "left out",
        &format!("ignored files (`attach --include` takes some in){builtin}"),
    );
    if !not_captured.is_empty() {
        line("not captured", &count(not_captured.len() as u64, "path", "paths"));
        for p in not_captured.iter().take(PATHS_MAX) {
            out += &format!("    {} ({})\n", shown(&p.path), one_line(&p.reason));
        }
        if not_captured.len() > PATHS_MAX {
            let more = (not_captured.len() - PATHS_MAX) as u64;
            out += &format!("    ... and {} more (--json names them)\n", grouped(more));
        }
    }
    for w in &root.warnings {
        out += &format!(
            "{} {}\n",
            paint(color, Style::new().yellow(), "warning:"),
            one_line(&w.message)
        );
        if !w.hint.is_empty() {
            out += &format!("  hint: {}\n", one_line(&w.hint));
        }
    }
    out
}

/// Whether its store may not have been read yet: then 0 is no number of anything.
fn is_unread(root: &RootStatus) -> bool {
    root.state == RootState::Indexing && root.last.is_none()
}

/// Whether edits become checkpoints now, and the words that say so.
fn protection(root: &RootStatus) -> (bool, &'static str) {
    let hangs = root.warnings.iter().any(|warning| warning.kind == "no_answer");
    match root.state {
        RootState::Degraded if hangs => (false, "not protected, the file system doesn't answer"),
        RootState::Watching | RootState::Polling => (true, "protected"),
        RootState::Indexing if root.checkpoints > 0 => (true, "protected, scanning"),
        RootState::Indexing => (false, "not protected yet, first scan"),
        RootState::Degraded if root.unfinished.is_some() => (true, "protected, an operation is unfinished"),
        RootState::Degraded => (true, "protected in part"),
        RootState::Missing => (false, "not protected, the directory is missing"),
        RootState::Replaced => (false, "not protected, another directory is in its place"),
        RootState::Failed => (false, "not protected, captures fail"),
    }
}

fn sentence(root: &RootStatus) -> String {
    let path = shown(&root.path);
    match root.state {
        // What helps depends on why it isn't there: the daemon knows.
        RootState::Missing => match root
            .warnings
            .iter()
            .find(|warning| warning.kind == "root_missing")
        {
            Some(warning) if !warning.hint.is_empty() => format!("{path} ({})", one_line(&warning.hint)),
            _ => path,
        },
        RootState::Replaced => format!("{path} (`stepback attach {path}` settles what it is)"),
        RootState::Failed => format!("{path} (see the warnings below)"),
        RootState::Polling => {
            let every = root
                .poll_seconds
                .map_or(String::new(), |n| format!(", looked at every {n} s"));
            format!("{path}, {}{every}", count(root.files, "file", "files"))
        }
        _ => {
            let watched = count(root.watches, "watched directory", "watched directories");
            format!("{path}, {} in {watched}", count(root.files, "file", "files"))
        }
    }
}

fn settled(root: &RootStatus) -> &'static str {
    match root.settled {
        _ if !protection(root).0 => "edits don't become checkpoints",
        Some(true) => "every edit so far is in a checkpoint",
        Some(false) => "edits wait to settle, then become a checkpoint",
        None => "edits are found at the next look",
    }
}

fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use stepback_proto::{Backend, DaemonInfo, Unfinished, WirePath};

    use super::*;

    fn status() -> Status {
        let path = |p: &str| WirePath(p.as_bytes().to_vec());
        let daemon = DaemonInfo {
            version: "0.1.0".into(),
            pid: 7,
            uptime_s: 61,
            rss_bytes: 1 << 20,
            socket: path("/s"),
            log: None,
        };
        let root = RootStatus {
            path: path("/p"),
            id: "p-1".into(),
            state: RootState::Watching,
            backend: Backend::Inotify,
            watches: 1,
            files: 1234,
            settled: Some(true),
            session: "watch".into(),
            sessions: vec![],
            checkpoints: 3,
            redo: 0,
            last: Some(stepback_proto::Last { id: 3, time_ms: 0 }),
            store: path("/st"),
            store_bytes: 0,
            unfinished: None,
            progress: None,
            poll_seconds: None,
            missed: 0,
            gaps: vec![],
            warnings: vec![],
            builtin: vec!["target/".into()],
            drift: None,
            agents: vec![],
        };
        Status {
            daemon,
            root: Some(root),
        }
    }

    #[test]
    fn what_is_not_known_yet_is_not_told_as_nothing() {
        let mut s = status();
        let root = s.root.as_mut().unwrap();
        (root.state, root.checkpoints, root.last) = (RootState::Indexing, 0, None);
        let text = text(&s, &[], None, "/p", Timestamp::UNIX_EPOCH, false);
        assert!(!text.contains("0 B") && !text.contains("  0,"), "{text}");
        assert!(text.contains("not counted yet"), "{text}");
    }

    #[test]
    fn the_first_line_answers_whether_one_is_protected() {
        let now = Timestamp::UNIX_EPOCH;
        let mut s = status();
        let first = |s: &Status| {
            text(s, &[], None, "/p", now, false)
                .lines()
                .next()
                .unwrap()
                .to_owned()
        };
        assert_eq!(first(&s), "protected: /p, 1,234 files in 1 watched directory");
        s.root.as_mut().unwrap().unfinished = Some(Unfinished {
            operation: "rewind".into(),
            target: 7,
            started_ms: 0,
        });
        let whole = text(&s, &[], Some(2), "/p", now, false);
        let lines: Vec<&str> = whole.lines().collect();
        assert!(lines[0].starts_with("protected"), "{whole}");
        assert!(lines[1].starts_with("unfinished: rewind to 7"), "{whole}");
        assert!(lines[2].contains("stepback recover"), "{whole}");
        assert!(whole.contains("checkpoints  3, nothing to redo\n"), "{whole}");
        assert!(whole.contains("; the directory equals checkpoint 2\n"), "{whole}");
        for (state, answer) in [
            (RootState::Indexing, "protected, scanning: "),
            (RootState::Polling, "protected: "),
            (RootState::Degraded, "protected, an operation is unfinished: "),
            (RootState::Missing, "not protected, the directory is missing: "),
            (
                RootState::Replaced,
                "not protected, another directory is in its place: ",
            ),
            (RootState::Failed, "not protected, captures fail: "),
        ] {
            let root = s.root.as_mut().unwrap();
            root.state = state;
            root.poll_seconds = (state == RootState::Polling).then_some(4);
            assert!(first(&s).starts_with(answer), "{}", first(&s));
            assert_eq!(first(&s).contains("every 4 s"), state == RootState::Polling);
            let covered = text(&s, &[], None, "/p", now, false).contains("every edit so far");
            assert_eq!(covered, !answer.starts_with("not"), "{state:?}");
        }
        let root = s.root.as_mut().unwrap();
        (root.state, root.checkpoints) = (RootState::Indexing, 0);
        assert!(first(&s).starts_with("not protected yet, first scan: "));
        let left_out = [NamedPath {
            path: WirePath(b"big".to_vec()),
            reason: "too-large".into(),
        }];
        let whole = text(&s, &left_out, None, "/p", now, false);
        assert!(
            whole.lines().next().unwrap().ends_with(", 1 path not captured"),
            "{whole}"
        );
        let root = s.root.as_mut().unwrap();
        root.unfinished = None;
        root.state = RootState::Missing;
        root.warnings.push(stepback_proto::Warning {
            kind: "root_missing".into(),
            message: "nothing is mounted at /p: nothing is captured".into(),
            hint: "mount it again".into(),
        });
        let whole = text(&s, &[], None, "/p", now, false);
        assert!(
            whole.starts_with("not protected, the directory is missing: /p (mount it again)\n"),
            "{whole}"
        );
        assert!(
            !whole.contains("every edit so far") && !whole.contains("rewind"),
            "{whole}"
        );
        s.root = None;
        assert_eq!(first(&s), "not protected: no attached directory holds /p");
    }
}
