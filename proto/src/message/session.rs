//! Sessions, as lists show them.

use serde::{Deserialize, Serialize};

use super::change::ChangeKind;
use super::path::WirePath;

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
