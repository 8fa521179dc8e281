//! Checkpoints and redo entries, as lists show them.

use serde::{Deserialize, Serialize};

/// Why a checkpoint was made: what the engine's `checkpoint::Trigger` is on the wire. They are two on purpose, like all words
/// of wire and engine: the bytes of this one follow its order, so that variants come at the end; the other one's names stand
/// in commits. The daemon's `convert.rs` goes from that to this, and a test there holds the names together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those of the JSON and say it all")]
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
