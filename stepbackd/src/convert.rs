//! Between the engine's words and those of the wire. The only file that knows both.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use stepback_engine::checkpoint::{Checkpoint, Trigger};
use stepback_engine::conversation::{Agent, Mode, Outcome, Seen, SessionId, What};
use stepback_engine::diff::{Change, Status};
use stepback_engine::engine as core;
use stepback_engine::node::{NotCaptured, Snapshot};
use stepback_engine::path::TreePath;
use stepback_engine::redo::RedoEntry;
use stepback_engine::restore::{JournalHeader, Kept, NotCovered, PlanId, PlannedChange};
use stepback_engine::session::Session;
use stepback_engine::time::Time;
use stepback_engine::{Error, node};
use stepback_proto as wire;
use stepback_proto::{Failure, FailureKind, Item, Reply, WirePath};

use crate::root::job::{Consent, Form};

/// What the wire says of an engine's error.
pub fn failure(error: &Error) -> Failure {
    let kind = match error {
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            FailureKind::Permission
        }
        Error::Unpurged { why } => failure(why).kind,
        Error::NoRoom { .. } => FailureKind::NoSpace,
        error if error.is_no_space() => FailureKind::NoSpace,
        Error::Damaged { .. } | Error::DamagedRecord { .. } | Error::Library { .. } => {
            FailureKind::StoreDamaged
        }
        Error::NoSuchCheckpoint(_) => FailureKind::NoSuchCheckpoint,
        Error::NoSuchPath { .. } => FailureKind::NoSuchPath,
        Error::NoSuchSession(_) | Error::SessionEnded(_) | Error::NoOpenSession | Error::NoSessionYet => {
            FailureKind::NoSuchSession
        }
        Error::BadName(_) | Error::BadPattern { .. } => FailureKind::Usage,
        Error::NothingToRedo => FailureKind::NothingToRedo,
        Error::StalePlan => FailureKind::StalePlan,
        Error::Unfinished { .. } => FailureKind::Unfinished,
        Error::RootMissing(_) | Error::NotMounted(_) | Error::CannotMakeRoot { .. } => {
            FailureKind::RootMissing
        }
        Error::RootReplaced(_) => FailureKind::RootReplaced,
        Error::RefusedRoot { .. } => FailureKind::RefusedRoot,
        Error::Rules { .. } => FailureKind::Config,
        Error::Refused { .. } => FailureKind::Declined,
        Error::Cancelled => FailureKind::Busy,
        _ => FailureKind::Internal,
    };
    Failure {
        kind,
        message: error.to_string(),
        hint: error.hint(),
    }
}

/// A failure of the daemon's own.
pub fn fail(kind: FailureKind, message: impl Into<String>, hint: impl Into<String>) -> Failure {
    Failure {
        kind,
        message: message.into(),
        hint: hint.into(),
    }
}

/// A failure as a warning.
pub fn warning(failure: Failure) -> wire::Warning {
    wire::Warning {
        kind: failure.kind.name().into(),
        message: failure.message,
        hint: failure.hint,
    }
}

/// Which checkpoint is meant.
pub fn select(selector: wire::Selector) -> core::Select {
    use wire::Selector as S;
    match selector {
        S::Number(n) => core::Select::Number(n),
        S::Latest => core::Select::Latest,
        S::First => core::Select::First,
        S::Back(n) => core::Select::Back(n),
        S::At(ms) => core::Select::At(Time::from_ms(ms)),
        S::Session(name) => core::Select::Session(name),
        S::Turn(n) => core::Select::Turn(n),
        S::TurnBack(n) => core::Select::TurnBack(n),
    }
}

/// The two sides of a diff.
pub fn sides(between: wire::DiffSides) -> core::Sides {
    use wire::DiffSides as D;
    match between {
        D::PositionToTree => core::Sides::PositionToTree,
        D::BaseTo(id) => core::Sides::BaseTo(select(id)),
        D::ToTree(id) => core::Sides::ToTree(select(id)),
        D::Between(a, b) => core::Sides::Between(select(a), select(b)),
    }
}

/// How a diff is told.
pub const fn form(form: wire::DiffForm) -> Form {
    match form {
        wire::DiffForm::Patch => Form::Patch,
        wire::DiffForm::Files => Form::Files,
        wire::DiffForm::Names => Form::Names,
    }
}

/// Whether to show or to do.
///
/// # Errors
/// When the plan's id can't be one of ours: then it is no plan that we showed.
pub fn consent(how: wire::Consent) -> Result<Consent, Failure> {
    Ok(match how {
        wire::Consent::Preview => Consent::Preview,
        wire::Consent::Yes => Consent::Yes,
        wire::Consent::YesTo(plan) => {
            Consent::YesTo(PlanId::try_from(plan.as_slice()).map_err(|_| failure(&Error::StalePlan))?)
        }
    })
}

/// What `attach` asks of the engine; `path` is canonical.
pub fn attach(request: wire::Attach, path: std::path::PathBuf) -> core::AttachRequest {
    let wire::Attach {
        path: _,
        here,
        include,
        max_file_size,
        force,
        new,
        yes,
    } = request;
    core::AttachRequest {
        path,
        here,
        include,
        max_file_size,
        force,
        new,
        yes,
    }
}

/// A path within a root.
pub fn path(path: &TreePath) -> WirePath {
    WirePath(path.as_bytes().to_vec())
}

/// A checkpoint as `list` and `show` give it.
pub fn checkpoint(checkpoint: &Checkpoint, pinned: bool) -> wire::CheckpointEntry {
    wire::CheckpointEntry {
        id: checkpoint.n,
        base: checkpoint.base,
        session: checkpoint.session.clone(),
        sessions: checkpoint.sessions.clone(),
        time_ms: checkpoint.time.ms(),
        trigger: trigger(checkpoint.trigger),
        label: checkpoint.label.clone(),
        agent: checkpoint.agent.clone(),
        agent_session: checkpoint.agent_session.clone(),
        turn: checkpoint.turn,
        prompt: checkpoint.prompt.clone(),
        tools: checkpoint.tools.clone(),
        files: wire::FileCounts {
            added: checkpoint.counts.added,
            modified: checkpoint.counts.modified,
            deleted: checkpoint.counts.deleted,
        },
        tree: tree(checkpoint.snapshot),
        commit: checkpoint.commit.to_string(),
        conversation: checkpoint.conversation.iter().map(ToString::to_string).collect(),
        pinned,
        not_captured: checkpoint.not_captured,
    }
}

/// The id of a tree.
pub fn tree(snapshot: Snapshot) -> String {
    snapshot.tree.to_string()
}

/// Why a checkpoint was made.
const fn trigger(trigger: Trigger) -> wire::Trigger {
    use wire::Trigger as T;
    match trigger {
        Trigger::Attach => T::Attach,
        Trigger::Auto => T::Auto,
        Trigger::Save => T::Save,
        Trigger::SessionStart => T::SessionStart,
        Trigger::SessionEnd => T::SessionEnd,
        Trigger::BeforeRewind => T::BeforeRewind,
        Trigger::BeforeRestore => T::BeforeRestore,
        Trigger::BeforeRedo => T::BeforeRedo,
        Trigger::BeforeRevert => T::BeforeRevert,
        Trigger::BeforeCommand => T::BeforeCommand,
        Trigger::AfterOperation => T::AfterOperation,
        Trigger::TurnStart => T::TurnStart,
        Trigger::TurnEnd => T::TurnEnd,
        Trigger::Reconcile => T::Reconcile,
    }
}

/// A path that isn't captured.
pub fn not_captured(left_out: &NotCaptured) -> Item {
    Item::NotCaptured(wire::NamedPath {
        path: path(&left_out.path),
        reason: left_out.reason.name().into(),
    })
}

/// A path that is left.
pub fn kept(kept: &Kept) -> Item {
    Item::Kept(wire::NamedPath {
        path: path(&kept.path),
        reason: kept.reason.clone(),
    })
}

/// A path that is not covered.
pub fn not_covered(left_out: &NotCovered) -> Item {
    Item::NotCovered(wire::NamedPath {
        path: path(&left_out.path),
        reason: left_out.reason.clone(),
    })
}

/// A path of a plan.
pub fn planned(change: &PlannedChange) -> Item {
    let status = match change.status {
        'A' => wire::ChangeKind::Added,
        'D' => wire::ChangeKind::Deleted,
        'T' => wire::ChangeKind::TypeChanged,
        _ => wire::ChangeKind::Modified,
    };
    Item::Change(wire::PlanChange {
        path: path(&change.path),
        status,
        edited_since: change.edited_since,
    })
}

fn change_kind(change: &Change) -> wire::ChangeKind {
    match change.status() {
        Status::Added => wire::ChangeKind::Added,
        Status::Modified => wire::ChangeKind::Modified,
        Status::Deleted => wire::ChangeKind::Deleted,
        Status::TypeChanged => wire::ChangeKind::TypeChanged,
    }
}

/// A file of a diff.
pub fn diff_file(change: &Change, lines: core::LineCounts) -> Item {
    Item::DiffFile(wire::DiffFile {
        path: path(&change.path),
        status: change_kind(change),
        old_mode: change.old.as_ref().map(node::Node::mode),
        new_mode: change.new.as_ref().map(node::Node::mode),
        insertions: lines.insertions,
        deletions: lines.deletions,
        binary: lines.binary,
    })
}

/// The end of a diff.
pub const fn diff_end(from: core::Side, to: core::Side) -> Reply {
    Reply::Diff {
        from: side(from),
        to: side(to),
    }
}

const fn side(side: core::Side) -> wire::Side {
    match side {
        core::Side::Checkpoint(n) => wire::Side::Checkpoint(n),
        core::Side::Tree => wire::Side::Tree,
        core::Side::Empty => wire::Side::Empty,
    }
}

/// How a rewind treats conversations.
pub const fn mode(what: wire::RewindWhat, fork: bool) -> Mode {
    let what = match what {
        wire::RewindWhat::Both => What::Both,
        wire::RewindWhat::Files => What::Files,
        wire::RewindWhat::Conversation => What::Conversation,
    };
    Mode { what, fork }
}

/// A session that a hook told of; `None` for an agent that isn't known.
pub fn seen(agent: &str, session: &str, transcript: Option<PathBuf>) -> Option<Seen> {
    Some(Seen {
        agent: Agent::of_name(agent)?,
        session: session.to_owned(),
        path: transcript,
    })
}

/// What becomes of a conversation.
pub fn conversation(outcome: &Outcome) -> Item {
    Item::Conversation(wire::ConversationLine {
        agent: outcome.agent.name().into(),
        session: outcome.session.clone(),
        action: outcome.action.into(),
        why: outcome.why.clone(),
        resume: outcome.resume.clone(),
        fork: outcome.fork.clone(),
        hint: outcome.hint.clone(),
    })
}

/// Adds to the agents that hooks told of those whose conversations are kept, and which of all run.
pub fn add_agents(agents: &mut Vec<wire::AgentLine>, sessions: &[SessionId], running: &BTreeSet<Agent>) {
    for id in sessions {
        let is_it = |line: &wire::AgentLine| line.agent == id.agent.name() && line.session == id.session;
        if !agents.iter().any(is_it) {
            agents.push(wire::AgentLine {
                agent: id.agent.name().into(),
                session: id.session.clone(),
                live: false,
            });
        }
    }
    for line in agents {
        line.live |= Agent::of_name(&line.agent).is_some_and(|agent| running.contains(&agent));
    }
}

/// An operation that was shown; its paths are items.
pub fn preview(preview: &core::Preview) -> Reply {
    Reply::Preview(wire::Preview {
        target: preview.target,
        plan: preview.plan.to_vec(),
        noop: preview.noop,
    })
}

/// An operation that was done; its paths are items.
pub fn report(report: &core::Report) -> wire::Report {
    wire::Report {
        target: report.target,
        saved: report.saved,
        back: report.back,
        written: report.written,
        removed: report.removed,
        redoable: report.redoable,
        redo: report.redo,
        notes: report.notes.clone(),
    }
}

/// How `recover` ended; its paths are items.
pub fn recovered(recovered: &core::Recovered, undo: bool) -> Reply {
    let interrupted = recovered.interrupted.as_ref();
    Reply::Recovered {
        operation: interrupted
            .map(|i| i.operation.name().to_owned())
            .unwrap_or_default(),
        target: interrupted.map(|i| i.target),
        outcome: match interrupted {
            None => wire::RecoverOutcome::Nothing,
            Some(_) if undo => wire::RecoverOutcome::Undone,
            Some(_) => wire::RecoverOutcome::Finished,
        },
        notes: recovered.notes.clone(),
    }
}

/// An interrupted operation.
pub fn unfinished(header: &JournalHeader) -> wire::Unfinished {
    wire::Unfinished {
        operation: header.operation.name().into(),
        target: header.target,
        started_ms: header.started.ms(),
    }
}

/// An entry of the redo stack.
pub fn redo_entry(entry: &RedoEntry) -> wire::RedoEntry {
    wire::RedoEntry {
        id: entry.k,
        operation: entry.operation.name().into(),
        target: entry.target,
        time_ms: entry.time.ms(),
    }
}

/// A line of `session list`.
pub fn session(session: &Session, checkpoints: u64) -> wire::SessionLine {
    wire::SessionLine {
        session: session.name.clone(),
        command: session.command.clone(),
        started_ms: session.started.ms(),
        ended_ms: session.ended.map(Time::ms),
        checkpoints,
    }
}

/// The agent that a session's command starts.
pub fn session_agent(session: &Session) -> Option<Item> {
    Some(Item::SessionAgent {
        session: session.name.clone(),
        agent: session.agent()?.name().to_owned(),
    })
}

/// A path of `session show`.
pub fn session_path(change: &Change) -> Item {
    Item::SessionPath(wire::SessionPath {
        path: path(&change.path),
        status: change_kind(change),
        dir: !change.is_file(),
    })
}

/// The end of `session show`.
pub fn session_detail(summary: &core::SessionSummary, turns: Vec<wire::TurnLine>) -> Reply {
    let files = summary.changes.iter().filter(|change| change.is_file()).count();
    Reply::Session(Box::new(wire::SessionDetail {
        line: session(&summary.session, summary.checkpoints),
        files_tracked: files as u64,
        turns,
    }))
}

/// The newest checkpoint.
pub fn last(checkpoint: &Checkpoint) -> wire::Last {
    wire::Last {
        id: checkpoint.n,
        time_ms: checkpoint.time.ms(),
    }
}

/// Deleted checkpoints.
pub fn dropped(dropped: core::Dropped) -> Reply {
    let core::Dropped {
        checkpoints,
        redo,
        freed_bytes,
        unreclaimed,
    } = dropped;
    Reply::Dropped {
        dropped: checkpoints,
        redo,
        freed_bytes,
        notes: unreclaimed.map(self::unreclaimed).into_iter().collect(),
    }
}

/// What a purge did in root `id`.
pub fn forgotten(forgotten: core::Forgotten, id: &str) -> Reply {
    let still_held = forgotten.still_held.iter().map(|holder| match &holder.directory {
        Some(directory) if holder.root != id => absolute(&directory.join(holder.path.as_path())),
        _ => path(&holder.path),
    });
    Reply::Forgotten {
        still_held: still_held.collect(),
        paths: forgotten.paths.iter().map(path).collect(),
        checkpoints: forgotten.checkpoints,
        freed_bytes: forgotten.freed_bytes,
        notes: forgotten.notes,
    }
}

/// What the deletion of a root's checkpoints gave back.
pub fn deleted(path: WirePath, id: String, deleted: core::Deleted) -> Reply {
    Reply::Deleted {
        path,
        id,
        freed_bytes: deleted.freed_bytes,
        notes: deleted.unreclaimed.map(unreclaimed).into_iter().collect(),
    }
}

/// Why space isn't free yet.
pub fn unreclaimed(why: String) -> String {
    format!("the space that they used isn't free yet: {why}")
}

/// What `prune` removed of a root's checkpoints, or would.
pub fn pruned(dropped: core::Dropped) -> Reply {
    let core::Dropped {
        checkpoints,
        freed_bytes,
        unreclaimed,
        ..
    } = dropped;
    Reply::Pruned {
        removed: checkpoints,
        roots: Vec::new(),
        freed_bytes,
        notes: unreclaimed.map(self::unreclaimed).into_iter().collect(),
    }
}

/// A root whose directory is gone.
pub fn gone_root(gone: &core::GoneRoot) -> wire::PrunedRoot {
    wire::PrunedRoot {
        path: absolute(&gone.path),
        id: gone.id.clone(),
        store_bytes: gone.store_bytes,
    }
}

/// An absolute path.
pub fn absolute(path: &Path) -> WirePath {
    WirePath::from(path)
}

#[cfg(test)]
mod tests {
    use stepback_engine::error::At;

    use super::*;

    #[test]
    fn errors_have_their_kinds() {
        let io = |kind| Err::<(), _>(std::io::Error::from(kind)).at("/p").unwrap_err();
        for (error, kind) in [
            (io(std::io::ErrorKind::PermissionDenied), FailureKind::Permission),
            (io(std::io::ErrorKind::StorageFull), FailureKind::NoSpace),
            (io(std::io::ErrorKind::NotFound), FailureKind::Internal),
            (Error::StalePlan, FailureKind::StalePlan),
            (Error::NothingToRedo, FailureKind::NothingToRedo),
            (
                Error::Rules {
                    path: "/x".into(),
                    why: "y".into(),
                },
                FailureKind::Config,
            ),
            (
                Error::Refused {
                    message: "no".into(),
                    hint: "h".into(),
                },
                FailureKind::Declined,
            ),
        ] {
            assert_eq!(failure(&error).kind, kind, "{error}");
        }
        let refused = failure(&Error::Refused {
            message: "no".into(),
            hint: "do so".into(),
        });
        assert_eq!((refused.message.as_str(), refused.hint.as_str()), ("no", "do so"));
    }

    #[test]
    fn triggers_have_the_same_names_in_commits_and_for_clients() {
        // Serde names all that there are.
        let unknown = serde_json::from_str::<Trigger>(r#""""#).unwrap_err().to_string();
        let quoted: Vec<&str> = unknown.split('`').skip(3).step_by(2).collect();
        assert!(quoted.len() >= 14, "{unknown}");
        for name in quoted {
            let of_commit: Trigger = serde_json::from_value(name.into()).unwrap();
            assert_eq!(trigger(of_commit).name(), name);
        }
    }

    #[test]
    fn a_plan_that_is_none_of_ours_is_stale() {
        assert_eq!(
            consent(wire::Consent::YesTo(vec![1])).unwrap_err().kind,
            FailureKind::StalePlan
        );
        assert_eq!(
            consent(wire::Consent::YesTo(vec![7; 20])).unwrap(),
            Consent::YesTo([7; 20])
        );
    }
}
