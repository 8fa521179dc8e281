//! What the daemon answers: a stream of parts and its end.

use serde::{Deserialize, Serialize};

use super::agent::HookSeen;
use super::change::{DiffFile, PlanChange, Preview, RecoverOutcome, Report, Side};
use super::checkpoint::{CheckpointEntry, RedoEntry};
use super::conversation::ConversationLine;
use super::path::{NamedPath, WirePath};
use super::session::{SessionDetail, SessionLine, SessionPath};
use super::status::{DaemonInfo, RootLine, RootState, Status};

/// A frame of the daemon's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// Long work goes on.
    Progress(Progress),
    /// A part of the answer.
    Item(Item),
    /// The end, well.
    Done(Reply),
    /// The end, not well.
    Failed(Failure),
}

/// How far long work is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// What is being done, in a word or two.
    pub what: String,
    /// Files done.
    pub done: u64,
    /// Of so many, 0 when unknown.
    pub total: u64,
}

/// A part of an answer that comes in parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Item {
    /// Of `list`.
    Checkpoint(Box<CheckpointEntry>),
    /// Of a file, patch or archive; at most [`crate::CHUNK_BYTES_MAX`].
    Bytes(Vec<u8>),
    /// Of `diff` without a patch.
    DiffFile(DiffFile),
    /// Of `watch`.
    Event(Box<Event>),
    /// A changed path of a [`Preview`], sent before it.
    Change(PlanChange),
    /// A path that is not captured: of `show`, `status`, `save` and `attach`.
    NotCaptured(NamedPath),
    /// A path that an operation leaves or left though it differs from the target.
    Kept(NamedPath),
    /// A path that is captured neither in the target nor now.
    NotCovered(NamedPath),
    /// A line of `roots`.
    Root(RootLine),
    /// A line of `session list`.
    Session(SessionLine),
    /// A path of `session show`.
    SessionPath(SessionPath),
    /// A path of an earlier `Item::Change` that is captured because an include pattern names it.
    Included(WirePath),
    /// Of `list`: the record of a checkpoint that can't be read, and isn't listed.
    Damaged {
        /// Which ref or object.
        what: String,
        /// How.
        how: String,
    },
    /// A conversation that belongs to the target of an operation.
    Conversation(ConversationLine),
    /// Of `status`: the checkpoint that equals the tree as it was seen last.
    Current(u64),
    /// Of `session list` and `session show`: the agent that a session's command starts. After the session's own item.
    SessionAgent {
        /// The session's name.
        session: String,
        /// As commands name it.
        agent: String,
    },
    /// Of `roots`, after the root's own item: other attached roots that have their checkpoints in the same store.
    SharedStore {
        /// The root's id.
        id: String,
        /// How many others.
        others: u64,
    },
    /// For people: what is worth knowing of how it was done.
    Note(String),
}

/// What `watch` tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A checkpoint was made.
    Checkpoint {
        /// The root's path.
        root: WirePath,
        /// It.
        checkpoint: Box<CheckpointEntry>,
    },
    /// A root's state changed.
    State {
        /// The root's path.
        root: WirePath,
        /// The new state.
        state: RootState,
    },
}

/// The last frame of an answer that went well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Nothing more to say.
    Empty,
    /// Of `attach`.
    Attached(Attached),
    /// Of `detach`.
    Detached {
        /// The root's path.
        path: WirePath,
        /// Its id.
        id: String,
        /// Whether its checkpoints are gone.
        forgotten: bool,
    },
    /// Of `status`.
    Status(Box<Status>),
    /// Of `save`.
    Saved {
        /// The checkpoint that equals the tree.
        id: u64,
        /// Whether it was made now.
        created: bool,
        /// Its tree.
        tree: String,
        /// How many paths it leaves out (sent before as `Item::NotCaptured`).
        not_captured: u64,
    },
    /// Of `list`, after its items.
    List {
        /// The root's path.
        root: WirePath,
        /// The checkpoint that equals the present tree.
        current: Option<u64>,
        /// The redo stack, latest first.
        redo: Vec<RedoEntry>,
    },
    /// Of `show`.
    Checkpoint(Box<CheckpointEntry>),
    /// Of `diff`.
    Diff {
        /// The older state.
        from: Side,
        /// The newer one.
        to: Side,
    },
    /// Of an operation that was only shown.
    Preview(Preview),
    /// Of an operation that was done.
    Report(Report),
    /// Of `recover`.
    Recovered {
        /// What was interrupted: `rewind`, `restore`, `redo`, `session-revert`; empty when nothing was.
        operation: String,
        /// Its target.
        target: Option<u64>,
        /// How it ended.
        outcome: RecoverOutcome,
        /// What people should know.
        notes: Vec<String>,
    },
    /// Of `session start`.
    SessionStarted {
        /// Its name.
        session: String,
        /// The checkpoint at its start.
        checkpoint: u64,
    },
    /// Of `session end`.
    SessionEnded {
        /// Its name.
        session: String,
        /// The checkpoint at its end.
        checkpoint: u64,
        /// What was put back.
        reverted: Option<Report>,
    },
    /// Of `session show`.
    Session(Box<SessionDetail>),
    /// Of `pin` and `unpin`.
    Pinned {
        /// Which.
        id: u64,
        /// As it is now.
        pinned: bool,
    },
    /// Of `drop`.
    Dropped {
        /// Which are gone (or would go).
        dropped: Vec<u64>,
        /// Redo entries that went with them.
        redo: Vec<u64>,
        /// What the store's size fell by, in bytes.
        freed_bytes: u64,
        /// What people should know: space that isn't free yet.
        notes: Vec<String>,
    },
    /// Of `ping`.
    Daemon(DaemonInfo),
    /// Of a question for the hooks that were heard of.
    HooksSeen(Vec<HookSeen>),
    /// Of `forget`.
    Forgotten {
        /// What is left out from now on (or captured again), relative to the root.
        paths: Vec<WirePath>,
        /// How many checkpoints held one of them.
        checkpoints: u64,
        /// What the store's size fell by, in bytes.
        freed_bytes: u64,
        /// Where the same bytes still are: relative to the root, absolute in another root that shares the store.
        still_held: Vec<WirePath>,
        /// What people should know.
        notes: Vec<String>,
    },
    /// Of `detach` that deleted the checkpoints.
    Deleted {
        /// The root's path.
        path: WirePath,
        /// Its id.
        id: String,
        /// What the store's size fell by, in bytes.
        freed_bytes: u64,
        /// What people should know: space that isn't free yet.
        notes: Vec<String>,
    },
    /// Of `prune`.
    Pruned {
        /// Checkpoints that are gone, or would go.
        removed: Vec<u64>,
        /// Roots that are gone, or would go.
        roots: Vec<PrunedRoot>,
        /// What the stores' sizes fell by, in bytes.
        freed_bytes: u64,
        /// What people should know: space that isn't free yet.
        notes: Vec<String>,
    },
}

/// A root whose directory is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrunedRoot {
    /// Where it was.
    pub path: WirePath,
    /// Its id.
    pub id: String,
    /// Disk use of its store, which other roots may share.
    pub store_bytes: u64,
}

/// Of `attach`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// The root's path.
    pub path: WirePath,
    /// Its id.
    pub id: String,
    /// Its newest checkpoint.
    pub checkpoint: u64,
    /// Captured files.
    pub files: u64,
    /// Whether the root is new.
    pub created: bool,
    /// What people should know: continued history, moved root, without git.
    pub notes: Vec<String>,
}

/// The last frame of an answer that didn't go well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// For programs.
    pub kind: FailureKind,
    /// One line for people.
    pub message: String,
    /// What to do; empty when there is no remedy.
    pub hint: String,
}

/// Kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the JSON and say it all")]
pub enum FailureKind {
    NotAttached,
    NoSuchCheckpoint,
    NoSuchPath,
    NoSuchSession,
    NothingToRedo,
    Declined,
    StalePlan,
    Unfinished,
    RootMissing,
    RootReplaced,
    StoreDamaged,
    NoSpace,
    Permission,
    DaemonUnavailable,
    VersionMismatch,
    Busy,
    Config,
    RefusedRoot,
    Usage,
    Internal,
}

impl FailureKind {
    /// As in `--json`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotAttached => "not_attached",
            Self::NoSuchCheckpoint => "no_such_checkpoint",
            Self::NoSuchPath => "no_such_path",
            Self::NoSuchSession => "no_such_session",
            Self::NothingToRedo => "nothing_to_redo",
            Self::Declined => "declined",
            Self::StalePlan => "stale_plan",
            Self::Unfinished => "unfinished",
            Self::RootMissing => "root_missing",
            Self::RootReplaced => "root_replaced",
            Self::StoreDamaged => "store_damaged",
            Self::NoSpace => "no_space",
            Self::Permission => "permission",
            Self::DaemonUnavailable => "daemon_unavailable",
            Self::VersionMismatch => "version_mismatch",
            Self::Busy => "busy",
            Self::Config => "config",
            Self::RefusedRoot => "refused_root",
            Self::Usage => "usage",
            Self::Internal => "internal",
        }
    }

    /// What the client exits with.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Usage => 2,
            _ => 1,
        }
    }
}
