//! How roots and the daemon are.

use serde::{Deserialize, Serialize};

use super::agent::{AgentLine, Drift};
use super::answer::Progress;
use super::path::WirePath;

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
    /// Edits that hooks and checkpoints don't agree on, if any.
    pub drift: Option<Drift>,
    /// Agents that are at work here, or were since the daemon's start.
    pub agents: Vec<AgentLine>,
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
