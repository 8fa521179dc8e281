//! What a client asks.

use serde::{Deserialize, Serialize};

use super::agent::Hook;
use super::conversation::RewindWhat;
use super::path::WirePath;

/// The client's one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Where the client stands: `-C`, else its current directory; absolute, no `.` or `..`. The innermost root that
    /// holds it is the one that is meant.
    pub place: WirePath,
    /// What is asked.
    pub verb: Verb,
}

/// Everything that can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verb {
    /// Register a root, change its options, or settle what a replaced root is: `Item::NotCaptured`s, then
    /// `Reply::Attached`.
    Attach(Attach),
    /// Stop watching the root: `Reply::Detached`, or `Reply::Deleted` when its checkpoints were deleted.
    Detach {
        /// Also delete its checkpoints.
        forget: bool,
        /// The place was named: it must be a root itself (or, to be forgotten, one that was detached), not be in one.
        exact: bool,
    },
    /// Every root: `Item::Root`s, then `Reply::Empty`.
    Roots,
    /// This root and the daemon: `Item::Current` if one equals the tree, `Item::NotCaptured`s, then `Reply::Status`.
    Status {
        /// Also check the store's integrity.
        verify: bool,
    },
    /// Full scan and checkpoint now: `Item::NotCaptured`s, then `Reply::Saved`.
    Save {
        /// Label of the checkpoint; with one, a checkpoint is made also when nothing changed.
        label: Option<String>,
        /// Pin it.
        pin: bool,
    },
    /// Checkpoints, newest first: `Item::Checkpoint`s and `Item::Damaged`s, then `Reply::List`.
    List {
        /// At most so many.
        limit: Option<u64>,
        /// Only of this session.
        session: Option<String>,
        /// Only those that changed this path (absolute) or something below it.
        path: Option<WirePath>,
    },
    /// One checkpoint's details: `Item::NotCaptured`s, then `Reply::Checkpoint`.
    Show {
        /// Which.
        id: Selector,
    },
    /// A file's bytes as of a checkpoint: `Item::Bytes`, then `Reply::Empty`.
    Cat {
        /// Which checkpoint.
        id: Selector,
        /// Relative to the root.
        path: WirePath,
    },
    /// What differs: `Item::Bytes` of a unified patch, or `Item::DiffFile`s; then `Reply::Diff`.
    Diff {
        /// Which two states.
        between: DiffSides,
        /// Only these (absolute) paths and what is below them; all when empty.
        paths: Vec<WirePath>,
        /// Lines or a list of files.
        form: DiffForm,
    },
    /// Put the whole root back. A preview is `Item::Change`s, `Item::Included`s, `Item::Kept`s, `Item::NotCovered`s and
    /// `Item::Conversation`s, then `Reply::Preview`; what was done the last three of these, then `Reply::Report`.
    Rewind {
        /// To which; `None` is the position or the nearest before it that differs.
        id: Option<Selector>,
        /// Preview or do.
        how: Consent,
    },
    /// Put selected paths back. Answered as `Rewind` is.
    Restore {
        /// From which checkpoint.
        id: Selector,
        /// Absolute paths.
        paths: Vec<WirePath>,
        /// Preview or do.
        how: Consent,
    },
    /// Take back the latest rewind, restore or session revert. Answered as `Rewind` is.
    Redo {
        /// Preview or do.
        how: Consent,
    },
    /// Finish or undo an interrupted operation: `Item::Kept`s, then `Reply::Recovered`.
    Recover {
        /// Undo rather than finish.
        undo: bool,
    },
    /// Open a session: `Reply::SessionStarted`.
    SessionStart {
        /// Its name; one is made when absent.
        name: Option<String>,
        /// The command line, for `run`.
        command: Option<String>,
        /// The process whose end ends the session, for `run`.
        pid: Option<u32>,
    },
    /// End a session. A preview of its revert is answered as that of `Rewind`; what was done with the items of one, then
    /// `Reply::SessionEnded`.
    SessionEnd {
        /// Which; the one opened last when absent.
        name: Option<String>,
        /// Put back the state at its start, by preview or for real; `None` keeps.
        revert: Option<Consent>,
    },
    /// Sessions of the root: `Item::Session`s and `Item::SessionAgent`s, then `Reply::Empty`.
    SessionList,
    /// One session: `Item::SessionPath`s, `Item::SessionAgent` if it has one, then `Reply::Session`.
    SessionShow {
        /// Which; the one opened last when absent.
        name: Option<String>,
    },
    /// Keep a checkpoint for ever, or no longer: `Reply::Pinned`.
    Pin {
        /// Which.
        id: Selector,
        /// `false` takes the pin away.
        pinned: bool,
    },
    /// Delete checkpoints: `Reply::Dropped`.
    Drop {
        /// Which.
        ids: Vec<Selector>,
        /// Only name what would go.
        preview: bool,
    },
    /// Follow checkpoints and state changes: `Item::Event`s until the daemon stops, then `Reply::Empty`.
    Watch,
    /// What a checkpoint changed, as a patch that `git apply` takes: `Item::Bytes`, then `Reply::Empty`.
    ExportPatch {
        /// Which.
        id: Selector,
    },
    /// A checkpoint's whole tree as a tar: `Item::Bytes`, then `Reply::Empty`.
    ExportTar {
        /// Which.
        id: Selector,
    },
    /// Who answers here: `Reply::Daemon`.
    Ping,
    /// Take the pending checkpoints and exit: `Reply::Empty`, before that is done.
    Shutdown,
    /// What an agent is doing in the place: `Reply::Empty`.
    Hook(Box<Hook>),
    /// When hooks were heard of last: `Reply::HooksSeen`.
    HooksSeen,
    /// Purge paths from everything recorded, and leave them out from now on; or capture them again:
    /// `Reply::Forgotten`.
    Forget {
        /// Absolute paths, each with all below it.
        paths: Vec<WirePath>,
        /// Capture them again, from now on.
        undo: bool,
        /// Only say what would go.
        preview: bool,
    },
    /// As `Rewind`, with a say in what becomes of conversations, and answered as that is.
    RewindAs {
        /// To which; `None` is the position or the nearest before it that differs.
        id: Option<Selector>,
        /// What is put back.
        what: RewindWhat,
        /// Conversations are written under a new id, those that are there left alone.
        fork: bool,
        /// Preview or do.
        how: Consent,
    },
    /// Apply retention to the root now, or remove roots whose directory is gone: `Reply::Pruned`.
    Prune {
        /// Those roots, of all stores, rather than checkpoints of this root.
        roots: bool,
        /// Of those roots only the ones with these ids, unless it is a preview.
        only: Vec<String>,
        /// Only name what would go.
        preview: bool,
    },
}

/// Options of `attach`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// The directory, absolute.
    pub path: WirePath,
    /// Exactly this directory, not the top level of its git work tree.
    pub here: bool,
    /// Capture ignored paths that match, too. Replaces the earlier list when not empty.
    pub include: Vec<String>,
    /// Leave out files above this many bytes.
    pub max_file_size: Option<u64>,
    /// Attach also what is refused for its size or place (but `/` and the state directory).
    pub force: bool,
    /// Start a new history for a replaced root.
    pub new: bool,
    /// Continue the history of a replaced root.
    pub yes: bool,
}

/// Which checkpoint: an ID as people write it, with times already in UTC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Selector {
    /// `7`, `#7`
    Number(u64),
    /// `latest`
    Latest,
    /// `first`
    First,
    /// `~2`: so many before the latest.
    Back(u64),
    /// `@10m`, `@2026-11-29T14:05`: the newest at or before this time, in milliseconds since 1970 UTC.
    At(i64),
    /// `session:NAME`: its start.
    Session(String),
    /// `turn:3`
    Turn(u64),
    /// `turn:~3`
    TurnBack(u64),
}

/// The two states of a `diff`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiffSides {
    /// The position against the tree on disk.
    PositionToTree,
    /// What a checkpoint changed against its base.
    BaseTo(Selector),
    /// A checkpoint against the tree on disk.
    ToTree(Selector),
    /// Two checkpoints.
    Between(Selector, Selector),
}

/// What a `diff` answers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiffForm {
    /// A unified patch.
    Patch,
    /// The files with counts of lines.
    Files,
    /// The files without counts of lines (`insertions` and `deletions` are 0).
    Names,
}

/// Whether an operation that writes shall only be shown, or done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Consent {
    /// Show the plan; change nothing, make no checkpoint.
    Preview,
    /// Do it.
    Yes,
    /// Do it if the plan is still the one of this preview ([`Preview::plan`](super::Preview::plan)), else fail with `stale_plan`.
    YesTo(Vec<u8>),
}
