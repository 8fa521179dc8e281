//! What is said over the wire: plain data, no behaviour. Positions in structs and enums are the format; see the crate
//! doc before changing any.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// First frame of the client. Its shape is fixed for ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`crate::MAGIC`].
    pub magic: [u8; 4],
    /// [`crate::PROTOCOL`] of the client.
    pub protocol: u32,
}

/// First frame of the daemon. Its shape is fixed for ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`crate::PROTOCOL`] of the daemon.
    pub protocol: u32,
    /// The daemon's program version.
    pub version: String,
    /// The daemon's process id.
    pub pid: u32,
}

/// A path as the kernel has it: bytes, not text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WirePath(pub Vec<u8>);

impl WirePath {
    /// As a path of this system.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// Text for people and JSON: bytes that aren't UTF-8 become U+FFFD.
    #[must_use]
    pub fn lossy(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl fmt::Debug for WirePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_path())
    }
}

impl From<&Path> for WirePath {
    fn from(path: &Path) -> Self {
        Self(path.as_os_str().as_bytes().to_vec())
    }
}

impl From<PathBuf> for WirePath {
    fn from(path: PathBuf) -> Self {
        Self(path.into_os_string().into_vec())
    }
}

impl Serialize for WirePath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for WirePath {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Vec<u8>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E>(self, v: &[u8]) -> Result<Vec<u8>, E> {
                Ok(v.to_vec())
            }
            fn visit_byte_buf<E>(self, v: Vec<u8>) -> Result<Vec<u8>, E> {
                Ok(v)
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<u8>, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = seq.next_element()? {
                    bytes.push(byte);
                }
                Ok(bytes)
            }
        }
        deserializer.deserialize_byte_buf(Visitor).map(Self)
    }
}

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
    /// Register a root, change its options, or settle what a replaced root is.
    Attach(Attach),
    /// Stop watching the root.
    Detach {
        /// Also delete its checkpoints.
        forget: bool,
        /// The place was named: it must be a root itself (or, to be forgotten, one that was detached), not be in one.
        exact: bool,
    },
    /// Every root.
    Roots,
    /// This root and the daemon.
    Status {
        /// Also check the store's integrity.
        verify: bool,
    },
    /// Full scan and checkpoint now.
    Save {
        /// Label of the checkpoint; with one, a checkpoint is made also when nothing changed.
        label: Option<String>,
        /// Pin it.
        pin: bool,
    },
    /// Checkpoints, newest first: `Item::Checkpoint`s, then `Reply::List`.
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
    /// A file's bytes as of a checkpoint: `Item::Bytes`.
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
    /// Put the whole root back.
    Rewind {
        /// To which; `None` is the position or the nearest before it that differs.
        id: Option<Selector>,
        /// Preview or do.
        how: Consent,
    },
    /// Put selected paths back.
    Restore {
        /// From which checkpoint.
        id: Selector,
        /// Absolute paths.
        paths: Vec<WirePath>,
        /// Preview or do.
        how: Consent,
    },
    /// Take back the latest rewind, restore or session revert.
    Redo {
        /// Preview or do.
        how: Consent,
    },
    /// Finish or undo an interrupted operation.
    Recover {
        /// Undo rather than finish.
        undo: bool,
    },
    /// Open a session.
    SessionStart {
        /// Its name; one is made when absent.
        name: Option<String>,
        /// The command line, for `run`.
        command: Option<String>,
        /// The process whose end ends the session, for `run`.
        pid: Option<u32>,
    },
    /// End a session.
    SessionEnd {
        /// Which; the one opened last when absent.
        name: Option<String>,
        /// Put back the state at its start, by preview or for real; `None` keeps.
        revert: Option<Consent>,
    },
    /// Sessions of the root.
    SessionList,
    /// One session.
    SessionShow {
        /// Which; the one opened last when absent.
        name: Option<String>,
    },
    /// Keep a checkpoint for ever, or no longer.
    Pin {
        /// Which.
        id: Selector,
        /// `false` takes the pin away.
        pinned: bool,
    },
    /// Delete checkpoints.
    Drop {
        /// Which.
        ids: Vec<Selector>,
        /// Only name what would go.
        preview: bool,
    },
    /// Follow checkpoints and state changes: `Item::Event`s without end.
    Watch,
    /// What a checkpoint changed, as a patch that `git apply` takes (`Item::Bytes`).
    ExportPatch {
        /// Which.
        id: Selector,
    },
    /// A checkpoint's whole tree as a tar (`Item::Bytes`).
    ExportTar {
        /// Which.
        id: Selector,
    },
    /// Who answers here.
    Ping,
    /// Take the pending checkpoints and exit.
    Shutdown,
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
    /// Do it if the plan is still the one of this preview ([`Preview::plan`]), else fail with `stale_plan`.
    YesTo(Vec<u8>),
}

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
    },
    /// Of `ping`.
    Daemon(DaemonInfo),
}

/// How `recover` ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecoverOutcome {
    /// The operation's target is reached.
    Finished,
    /// The state before the operation is back.
    Undone,
    /// Nothing was interrupted.
    Nothing,
}

/// One end of a diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// A checkpoint.
    Checkpoint(u64),
    /// The tree on disk.
    Tree,
    /// Nothing (the base of a first checkpoint).
    Empty,
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

/// A line of `roots`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootLine {
    /// The root's path.
    pub path: WirePath,
    /// Its id.
    pub id: String,
    /// Its state.
    pub state: RootState,
    /// How many checkpoints it has.
    pub checkpoints: u64,
    /// The newest one.
    pub last: Option<Last>,
    /// Disk use of its store.
    pub store_bytes: u64,
}

/// The newest checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Last {
    /// Its number.
    pub id: u64,
    /// When, in milliseconds since 1970 UTC.
    pub time_ms: i64,
}

/// The daemon itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonInfo {
    /// Program version.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Resident memory.
    pub rss_bytes: u64,
    /// Its socket.
    pub socket: WirePath,
    /// Its log file, unless it logs elsewhere.
    pub log: Option<WirePath>,
}

/// State of a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RootState {
    /// First scan.
    Indexing,
    /// All well, by events.
    Watching,
    /// All well, by looking now and then.
    Polling,
    /// Something needs attention; captures go on.
    Degraded,
    /// The directory isn't there.
    Missing,
    /// Another directory is in its place.
    Replaced,
    /// Captures don't work; see the warnings.
    Failed,
}

/// Where file events come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backend {
    /// Linux.
    Inotify,
    /// macOS.
    Fsevents,
    /// BSD.
    Kqueue,
    /// Looking now and then.
    Poll,
    /// Nowhere.
    None,
}

/// Of `status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The daemon.
    pub daemon: DaemonInfo,
    /// The root that holds the place, if one does.
    pub root: Option<RootStatus>,
}

/// Of `status`, about the root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootStatus {
    /// Its path.
    pub path: WirePath,
    /// Its id.
    pub id: String,
    /// Its state.
    pub state: RootState,
    /// Where its events come from.
    pub backend: Backend,
    /// Watched directories.
    pub watches: u64,
    /// Captured files.
    pub files: u64,
    /// Nothing written before this request is pending; `None` when polling.
    pub settled: Option<bool>,
    /// The session that a checkpoint now belongs to.
    pub session: String,
    /// All open sessions, latest first.
    pub sessions: Vec<String>,
    /// How many checkpoints.
    pub checkpoints: u64,
    /// How many redo entries.
    pub redo: u64,
    /// The newest checkpoint.
    pub last: Option<Last>,
    /// The store's directory.
    pub store: WirePath,
    /// Its disk use.
    pub store_bytes: u64,
    /// An interrupted operation.
    pub unfinished: Option<Unfinished>,
    /// A scan in progress.
    pub progress: Option<Progress>,
    /// Seconds between looks, when polling.
    pub poll_seconds: Option<u64>,
    /// Changes that a reconcile scan found and events had not told.
    pub missed: u64,
    /// Spans of time in which nothing was watched.
    pub gaps: Vec<Gap>,
    /// What people should know.
    pub warnings: Vec<Warning>,
    /// Patterns of the built-in list that leave something out here.
    pub builtin: Vec<String>,
}

/// An interrupted operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfinished {
    /// `rewind`, `restore`, `redo` or `session-revert`.
    pub operation: String,
    /// Its target.
    pub target: u64,
    /// When it began, in milliseconds since 1970 UTC.
    pub started_ms: i64,
}

/// A span of time in which nothing was watched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// From, in milliseconds since 1970 UTC.
    pub from_ms: i64,
    /// To.
    pub to_ms: i64,
    /// Why.
    pub reason: String,
}

/// Something that people should know, with a remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// A word for programs.
    pub kind: String,
    /// A sentence.
    pub message: String,
    /// What to do.
    pub hint: String,
}

/// Why a checkpoint was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(
    missing_docs,
    reason = "the names are those of the JSON, listed in the README"
)]
pub enum Trigger {
    Attach,
    Auto,
    Save,
    SessionStart,
    SessionEnd,
    BeforeRewind,
    BeforeRestore,
    BeforeRedo,
    BeforeRevert,
    BeforeCommand,
    AfterOperation,
    TurnStart,
    TurnEnd,
    Reconcile,
}

impl Trigger {
    /// As in `--json` and in the checkpoint's commit.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Attach => "attach",
            Self::Auto => "auto",
            Self::Save => "save",
            Self::SessionStart => "session-start",
            Self::SessionEnd => "session-end",
            Self::BeforeRewind => "before-rewind",
            Self::BeforeRestore => "before-restore",
            Self::BeforeRedo => "before-redo",
            Self::BeforeRevert => "before-revert",
            Self::BeforeCommand => "before-command",
            Self::AfterOperation => "after-operation",
            Self::TurnStart => "turn-start",
            Self::TurnEnd => "turn-end",
            Self::Reconcile => "reconcile",
        }
    }
}

/// A checkpoint, as `list` and `show` give it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointEntry {
    /// Its number.
    pub id: u64,
    /// The number that the tree stood on when it was made.
    pub base: Option<u64>,
    /// The session that it belongs to.
    pub session: String,
    /// All sessions open then.
    pub sessions: Vec<String>,
    /// When, in milliseconds since 1970 UTC.
    pub time_ms: i64,
    /// Why.
    pub trigger: Trigger,
    /// Its label.
    pub label: Option<String>,
    /// The agent whose turn it was.
    pub agent: Option<String>,
    /// The agent's own session id.
    pub agent_session: Option<String>,
    /// The turn's number.
    pub turn: Option<u64>,
    /// First line of the turn's prompt.
    pub prompt: Option<String>,
    /// Tools that the agent used.
    pub tools: Vec<String>,
    /// Files against the base.
    pub files: FileCounts,
    /// Object id of the tree.
    pub tree: String,
    /// Object id of the commit.
    pub commit: String,
    /// Conversations kept with it.
    pub conversation: Vec<String>,
    /// Kept for ever.
    pub pinned: bool,
    /// How many paths it leaves out.
    pub not_captured: u64,
}

/// Files that differ from the base, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileCounts {
    /// Not in the base.
    pub added: u64,
    /// Other than in the base.
    pub modified: u64,
    /// No longer there.
    pub deleted: u64,
}

/// An entry of the redo stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedoEntry {
    /// Its number.
    pub id: u64,
    /// `rewind`, `restore` or `session-revert`.
    pub operation: String,
    /// What that operation put back.
    pub target: u64,
    /// When, in milliseconds since 1970 UTC.
    pub time_ms: i64,
}

/// A path with a reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NamedPath {
    /// Relative to the root.
    pub path: WirePath,
    /// `too-large`, `unreadable`, ...
    pub reason: String,
}

/// A file in a diff.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffFile {
    /// Relative to the root.
    pub path: WirePath,
    /// What happened.
    pub status: ChangeKind,
    /// Type and permission bits before.
    pub old_mode: Option<u32>,
    /// And after.
    pub new_mode: Option<u32>,
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// Not text, or too large to compare by lines.
    pub binary: bool,
}

/// What happens to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeKind {
    /// `A`: made.
    Added,
    /// `M`: other bytes, mode or attributes.
    Modified,
    /// `D`: removed.
    Deleted,
    /// `T`: another type.
    TypeChanged,
}

impl ChangeKind {
    /// The letter that git uses.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Added => 'A',
            Self::Modified => 'M',
            Self::Deleted => 'D',
            Self::TypeChanged => 'T',
        }
    }
}

/// A path of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanChange {
    /// Relative to the root.
    pub path: WirePath,
    /// What will happen to it.
    pub status: ChangeKind,
    /// The bytes on disk aren't those that the operation being taken back left.
    pub edited_since: bool,
}

/// What an operation would do. Its paths come before, as `Item::Change`, `Item::Kept` and `Item::NotCovered`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preview {
    /// The checkpoint that would be put back.
    pub target: u64,
    /// Identifies this plan: what a yes is bound to.
    pub plan: Vec<u8>,
    /// Nothing would change.
    pub noop: bool,
}

/// What an operation did. Paths left alone come before, as `Item::Kept` and `Item::NotCovered`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The checkpoint that was put back.
    pub target: u64,
    /// The checkpoint of the state before, if one had to be made.
    pub saved: Option<u64>,
    /// What takes this operation back: `redo`, or for a redo the checkpoint to rewind to.
    pub back: Option<u64>,
    /// Paths made or overwritten.
    pub written: u64,
    /// Paths removed.
    pub removed: u64,
    /// Depth of the redo stack now.
    pub redo: u64,
    /// What people should know (set-id bits dropped, hard links parted).
    pub notes: Vec<String>,
}

/// A line of `session list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionLine {
    /// Its name.
    pub session: String,
    /// The command, for `run`.
    pub command: Option<String>,
    /// When it began, in milliseconds since 1970 UTC.
    pub started_ms: i64,
    /// When it ended; `None` while open.
    pub ended_ms: Option<i64>,
    /// How many checkpoints belong to it.
    pub checkpoints: u64,
}

/// A path that a session made, changed or removed between its start and its end (or now).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPath {
    /// Relative to the root.
    pub path: WirePath,
    /// What happened to it.
    pub status: ChangeKind,
    /// A directory.
    pub dir: bool,
}

/// Of `session show`; its paths come before, as `Item::SessionPath`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionDetail {
    /// Name, command, times.
    pub line: SessionLine,
    /// Files in its span: created, modified and deleted together.
    pub files_tracked: u64,
    /// Turns of agents in it.
    pub turns: Vec<TurnLine>,
}

/// A turn of an agent in a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnLine {
    /// Its number.
    pub turn: u64,
    /// First line of its prompt.
    pub prompt: Option<String>,
    /// The checkpoint at its start.
    pub checkpoint: u64,
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
#[allow(
    missing_docs,
    reason = "the names are those of the JSON, listed in the README"
)]
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
