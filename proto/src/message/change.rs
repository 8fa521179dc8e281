//! What differs, and what operations do about it.

use serde::{Deserialize, Serialize};

use super::path::WirePath;

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
    /// Whether `redo` takes this operation back.
    pub redoable: bool,
    /// Depth of the redo stack now.
    pub redo: u64,
    /// What people should know (set-id bits dropped, hard links parted).
    pub notes: Vec<String>,
}
