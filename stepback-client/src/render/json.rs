//! The shapes of `--json`. They are a contract: see the README.

use std::collections::HashSet;

use serde_json::{Map, Value, json};
use stepback_proto::{
    Backend, ChangeKind, CheckpointEntry, ConversationLine, DiffFile, Event, Last, NamedPath, PlanChange,
    PrunedRoot, RedoEntry, Report, RootLine, RootState, SessionDetail, SessionLine, SessionPath, Side,
    Status, WirePath,
};

use super::conversation;
use super::time::rfc3339;
use crate::error::Error;

/// A path under the key `name`: as text, and as base64 of its bytes too when they aren't UTF-8.
fn put_path(object: &mut Map<String, Value>, name: &str, path: &WirePath) {
    object.insert(name.into(), path.lossy().into());
    if std::str::from_utf8(&path.0).is_err() {
        object.insert(format!("{name}_b64"), base64(&path.0).into());
    }
}

/// `value`, an object, with the path added as `path` (and `path_b64`).
fn with_path(path: &WirePath, value: Value) -> Value {
    with_named("path", path, value)
}

/// `value`, an object, with a path added under `name`.
pub fn with_named(name: &str, path: &WirePath, mut value: Value) -> Value {
    if let Value::Object(object) = &mut value {
        put_path(object, name, path);
    }
    value
}

/// Standard base64 with padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let three = [
            group[0],
            group.get(1).copied().unwrap_or(0),
            group.get(2).copied().unwrap_or(0),
        ];
        let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
        for at in 0..4 {
            let index = (bits >> (18 - 6 * at)) & 63;
            out.push(if at <= group.len() {
                char::from(ALPHABET[index as usize])
            } else {
                '='
            });
        }
    }
    out
}

/// A failed command.
pub fn error(error: &Error) -> Value {
    json!({ "error": { "kind": error.kind().name(), "message": error.to_string(), "hint": error.hint() } })
}

/// Paths with reasons.
pub fn named(paths: &[NamedPath]) -> Value {
    paths
        .iter()
        .map(|p| with_path(&p.path, json!({ "reason": p.reason })))
        .collect()
}

/// Of `attach`.
pub fn attached(a: &stepback_proto::Attached) -> Value {
    with_path(
        &a.path,
        json!({ "id": a.id, "checkpoint": a.checkpoint, "files": a.files, "created": a.created }),
    )
}

/// Of `detach`.
pub fn detached(path: &WirePath, id: &str, forgotten: bool, freed_bytes: Option<u64>) -> Value {
    let mut value = json!({ "id": id, "forgotten": forgotten });
    if let Some(bytes) = freed_bytes {
        value["freed_bytes"] = bytes.into();
    }
    with_path(path, value)
}

/// Of `forget`.
pub fn forgotten(done: &crate::commands::forget::Forgotten) -> Value {
    let lossy = |paths: &[WirePath]| paths.iter().map(|p| Value::from(p.lossy())).collect::<Value>();
    let mut value = json!({
        "paths": lossy(&done.paths),
        "checkpoints": done.checkpoints,
        "freed_bytes": done.freed_bytes,
        "still_held": lossy(&done.still_held),
    });
    for (key, paths) in [("paths_b64", &done.paths), ("still_held_b64", &done.still_held)] {
        // Beside the list, so that its entries stay plain text.
        if paths.iter().any(|p| std::str::from_utf8(&p.0).is_err()) {
            value[key] = paths.iter().map(|p| Value::from(base64(&p.0))).collect();
        }
    }
    value
}

fn last(last: Option<Last>) -> Value {
    last.map_or(Value::Null, |l| json!({ "id": l.id, "time": rfc3339(l.time_ms) }))
}

/// The word for a state.
pub fn state(state: RootState) -> &'static str {
    match state {
        RootState::Indexing => "indexing",
        RootState::Watching => "watching",
        RootState::Polling => "polling",
        RootState::Degraded => "degraded",
        RootState::Missing => "missing",
        RootState::Replaced => "replaced",
        RootState::Failed => "failed",
    }
}

fn backend(backend: Backend) -> &'static str {
    match backend {
        Backend::Inotify => "inotify",
        Backend::Fsevents => "fsevents",
        Backend::Kqueue => "kqueue",
        Backend::Poll => "poll",
        Backend::None => "none",
    }
}

/// Of `roots`.
pub fn root(root: &RootLine) -> Value {
    let rest = json!({
        "id": root.id,
        "state": state(root.state),
        "checkpoints": root.checkpoints,
        "last": last(root.last),
        "store_bytes": root.store_bytes,
    });
    with_path(&root.path, rest)
}

/// A root of `prune --roots`.
pub fn pruned_root(root: &PrunedRoot) -> Value {
    with_path(
        &root.path,
        json!({ "id": root.id, "store_bytes": root.store_bytes }),
    )
}

/// Of `status`.
pub fn status(status: &Status, not_captured: &[NamedPath]) -> Value {
    let daemon = &status.daemon;
    let root = status.root.as_ref().map_or(Value::Null, |root| {
        let unfinished = root.unfinished.as_ref().map_or(
            Value::Null,
            |u| json!({ "operation": u.operation, "target": u.target, "started": rfc3339(u.started_ms) }),
        );
        let progress = root
            .progress
            .as_ref()
            .map_or(Value::Null, |p| json!({ "done": p.done, "total": p.total }));
        let gaps: Value = root
            .gaps
            .iter()
            .map(|g| json!({ "from": rfc3339(g.from_ms), "to": rfc3339(g.to_ms), "reason": g.reason }))
            .collect();
        let warnings: Value = root
            .warnings
            .iter()
            .map(|w| json!({ "kind": w.kind, "message": w.message, "hint": w.hint }))
            .collect();
        let agents: Value = root
            .agents
            .iter()
            .map(|a| json!({ "agent": a.agent, "session": a.session, "live": a.live }))
            .collect();
        let rest = json!({
            "id": root.id,
            "state": state(root.state),
            "backend": backend(root.backend),
            "watches": root.watches,
            "files": root.files,
            "settled": root.settled,
            "session": root.session,
            "sessions": root.sessions,
            "checkpoints": root.checkpoints,
            "redo": root.redo,
            "last": last(root.last),
            "store": with_path(&root.store, json!({ "bytes": root.store_bytes })),
            "not_captured": named(not_captured),
            "unfinished": unfinished,
            "progress": progress,
            "poll_seconds": root.poll_seconds,
            "missed": root.missed,
            "gaps": gaps,
            "drift": root.drift.map(|d| json!({ "tool_calls": d.tool_calls, "captured": d.captured })),
            "agents": agents,
            "warnings": warnings,
        });
        with_path(&root.path, rest)
    });
    json!({
        "daemon": {
            "version": daemon.version,
            "pid": daemon.pid,
            "uptime_s": daemon.uptime_s,
            "rss_bytes": daemon.rss_bytes,
        },
        "root": root,
    })
}

/// A checkpoint, as in `list`.
pub fn checkpoint(c: &CheckpointEntry) -> Value {
    json!({
        "id": c.id,
        "base": c.base,
        "session": c.session,
        "sessions": c.sessions,
        "time": rfc3339(c.time_ms),
        "trigger": c.trigger.name(),
        "label": c.label,
        "agent": c.agent,
        "agent_session": c.agent_session,
        "turn": c.turn,
        "prompt": c.prompt,
        "tools": c.tools,
        "files": { "added": c.files.added, "modified": c.files.modified, "deleted": c.files.deleted },
        "tree": c.tree,
        "commit": c.commit,
        "conversation": c.conversation.iter().map(|c| conversation::session(c)).collect::<Value>(),
        "pinned": c.pinned,
        "not_captured": c.not_captured,
    })
}

/// Of `show`: the entry, with the paths that it leaves out in place of their number.
pub fn shown(c: &CheckpointEntry, not_captured: &[NamedPath]) -> Value {
    let mut value = checkpoint(c);
    value["not_captured"] = named(not_captured);
    value
}

/// Of `list`.
pub fn list(
    root: &WirePath,
    current: Option<u64>,
    checkpoints: &[CheckpointEntry],
    redo: &[RedoEntry],
) -> Value {
    let redo: Value = redo
        .iter()
        .map(|r| json!({ "id": r.id, "operation": r.operation, "target": r.target, "time": rfc3339(r.time_ms) }))
        .collect();
    let checkpoints: Value = checkpoints.iter().map(checkpoint).collect();
    with_named(
        "root",
        root,
        json!({ "current": current, "checkpoints": checkpoints, "redo": redo }),
    )
}

/// Of `save`.
pub fn saved(id: u64, created: bool, tree: &str) -> Value {
    json!({ "id": id, "created": created, "tree": tree })
}

fn side(side: Side) -> Value {
    match side {
        Side::Checkpoint(n) => n.into(),
        Side::Tree => "tree".into(),
        Side::Empty => Value::Null,
    }
}

fn mode(mode: Option<u32>) -> Value {
    mode.map_or(Value::Null, |m| format!("{m:06o}").into())
}

fn letter(kind: ChangeKind) -> String {
    kind.letter().to_string()
}

/// Of `diff`.
pub fn diff(from: Side, to: Side, files: &[DiffFile]) -> Value {
    let files: Value = files
        .iter()
        .map(|f| {
            let rest = json!({
                "status": letter(f.status),
                "old_mode": mode(f.old_mode),
                "new_mode": mode(f.new_mode),
                "insertions": f.insertions,
                "deletions": f.deletions,
                "binary": f.binary,
            });
            with_path(&f.path, rest)
        })
        .collect();
    json!({ "from": side(from), "to": side(to), "files": files })
}

/// An operation that was only shown.
pub fn preview(
    target: u64,
    noop: bool,
    changes: &[PlanChange],
    included: &HashSet<WirePath>,
    kept: &[NamedPath],
    left: &[NamedPath],
    talk: &[ConversationLine],
) -> Value {
    let changes: Value = changes
        .iter()
        .map(|c| {
            let mut change = json!({ "status": letter(c.status), "edited_since": c.edited_since });
            if included.contains(&c.path) {
                change["included"] = true.into();
            }
            with_path(&c.path, change)
        })
        .collect();
    json!({
        "target": target,
        "changes": changes,
        "kept": named(kept),
        "not_covered": named(left),
        "conversation": talk.iter().map(conversation::planned).collect::<Value>(),
        "noop": noop,
    })
}

/// An operation that was done.
pub fn report(
    report: &Report,
    kept: &[NamedPath],
    not_covered: &[NamedPath],
    talk: &[ConversationLine],
) -> Value {
    json!({
        "target": report.target,
        "saved": report.saved,
        "written": report.written,
        "removed": report.removed,
        "kept": named(kept),
        "not_covered": named(not_covered),
        "conversation": talk.iter().map(conversation::done).collect::<Value>(),
        "redo": report.redo,
    })
}

/// A session, as in `session list`.
pub fn session(s: &SessionLine, agent: Option<&str>) -> Value {
    json!({
        "session": s.session,
        "command": s.command,
        "started": rfc3339(s.started_ms),
        "ended": s.ended_ms.map(rfc3339),
        "checkpoints": s.checkpoints,
        "agent": agent,
    })
}

/// Of `session show`.
pub fn session_detail(detail: &SessionDetail, agent: Option<&str>, paths: &[SessionPath]) -> Value {
    let pick = |dir: bool, kinds: &[ChangeKind]| -> Value {
        paths
            .iter()
            .filter(|p| p.dir == dir && kinds.contains(&p.status))
            .map(|p| p.path.lossy())
            .collect()
    };
    let turns: Value = detail
        .turns
        .iter()
        .map(|t| json!({ "turn": t.turn, "prompt": t.prompt, "checkpoint": t.checkpoint }))
        .collect();
    let line = &detail.line;
    json!({
        "session": line.session,
        "command": line.command,
        "agent": agent,
        "started": rfc3339(line.started_ms),
        "ended": line.ended_ms.map(rfc3339),
        "files_tracked": detail.files_tracked,
        "created": pick(false, &[ChangeKind::Added]),
        "modified": pick(false, &[ChangeKind::Modified, ChangeKind::TypeChanged]),
        "deleted": pick(false, &[ChangeKind::Deleted]),
        "dirs_created": pick(true, &[ChangeKind::Added]),
        "turns": turns,
    })
}

/// A line of `watch`.
pub fn event(event: &Event) -> Value {
    match event {
        Event::Checkpoint { root, checkpoint: c } => with_named(
            "root",
            root,
            json!({ "event": "checkpoint", "checkpoint": checkpoint(c) }),
        ),
        Event::State { root, state: s } => {
            with_named("root", root, json!({ "event": "state", "state": state(*s) }))
        }
    }
}

/// Of `daemon`: the process that answers, by its id and version.
pub fn daemon(running: Option<(u32, &str)>, socket: &WirePath) -> Value {
    let rest = json!({
        "running": running.is_some(),
        "pid": running.map(|(pid, _)| pid),
        "version": running.map(|(_, version)| version),
    });
    with_named("socket", socket, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_the_standard_one() {
        for (bytes, want) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (b"\xff\xfe\xfd", "//79"),
        ] {
            assert_eq!(base64(bytes), want);
        }
    }

    #[test]
    fn a_path_that_is_no_text_has_its_bytes_beside_it() {
        let path = |bytes: &[u8]| NamedPath {
            path: WirePath(bytes.to_vec()),
            reason: "too-large".into(),
        };
        assert_eq!(
            named(&[path("ä".as_bytes()), path(b"x\xff")]).to_string(),
            r#"[{"path":"ä","reason":"too-large"},{"path":"x�","path_b64":"eP8=","reason":"too-large"}]"#
        );
    }

    #[test]
    fn a_diff_has_octal_modes_and_named_sides() {
        let file = DiffFile {
            path: WirePath(b"a".to_vec()),
            status: ChangeKind::Added,
            old_mode: None,
            new_mode: Some(0o100_644),
            insertions: 1,
            deletions: 0,
            binary: false,
        };
        assert_eq!(
            diff(Side::Empty, Side::Tree, &[file]).to_string(),
            r#"{"files":[{"binary":false,"deletions":0,"insertions":1,"new_mode":"100644","old_mode":null,"path":"a","status":"A"}],"from":null,"to":"tree"}"#
        );
        assert_eq!(mode(Some(0o40_000)), "040000");
    }

    #[test]
    fn a_preview_and_a_report_have_the_shape_of_the_contract() {
        let change = PlanChange {
            path: WirePath(b"a".to_vec()),
            status: ChangeKind::Deleted,
            edited_since: true,
        };
        assert_eq!(
            preview(7, false, &[change], &HashSet::new(), &[], &[], &[]).to_string(),
            r#"{"changes":[{"edited_since":true,"path":"a","status":"D"}],"conversation":[],"kept":[],"noop":false,"not_covered":[],"target":7}"#
        );
        let done = Report {
            target: 7,
            saved: None,
            back: None,
            written: 0,
            removed: 0,
            redoable: true,
            redo: 2,
            notes: vec![],
        };
        assert_eq!(
            report(&done, &[], &[], &[]).to_string(),
            r#"{"conversation":[],"kept":[],"not_covered":[],"redo":2,"removed":0,"saved":null,"target":7,"written":0}"#
        );
    }
}
