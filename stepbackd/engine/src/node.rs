//! What stands at a path: type, contents by object id, permission bits, attributes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::oid::Oid;

/// The twelve permission bits: set-user-id, set-group-id, sticky, and read, write, execute for user, group, others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Perm(u16);

impl Perm {
    /// The bits of `mode` that are permission bits.
    #[must_use]
    pub const fn of_mode(mode: u32) -> Self {
        Self((mode & 0o7777) as u16)
    }

    /// As a number, 0 to 0o7777.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// Whether git would call a file with these bits executable.
    #[must_use]
    pub const fn is_executable(self) -> bool {
        self.0 & 0o100 != 0
    }
}

impl fmt::Display for Perm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl fmt::Debug for Perm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Perm {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Perm {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match u16::from_str_radix(&text, 8) {
            Ok(bits) if bits <= 0o7777 => Ok(Self(bits)),
            _ => Err(serde::de::Error::custom(format!("not permission bits: {text:?}"))),
        }
    }
}

/// Permission bits that need no entry in a side table. Settled for a root at its first capture, and never changed:
/// side tables of different checkpoints are compared by object id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommonModes {
    /// Of files that aren't executable.
    pub file: Perm,
    /// Of executable files.
    pub exec: Perm,
    /// Of directories.
    pub dir: Perm,
}

impl CommonModes {
    /// Those of a umask of 022.
    pub const DEFAULT: Self = Self {
        file: Perm(0o644),
        exec: Perm(0o755),
        dir: Perm(0o755),
    };
}

/// Extended attributes that are captured: `user.*` and POSIX ACLs (`system.posix_acl_access`,
/// `system.posix_acl_default`), raw values by name. `None` when there are none.
pub type Attributes = Option<Arc<BTreeMap<Vec<u8>, Vec<u8>>>>;

/// Type and contents of what stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file with these bytes.
    File(Oid),
    /// A symbolic link whose target are these bytes.
    Link(Oid),
    /// A directory.
    Dir,
    /// A FIFO.
    Fifo,
}

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Type and contents.
    pub kind: Kind,
    /// Permission bits; of a link always 0o777.
    pub perm: Perm,
    /// Extended attributes.
    pub attributes: Attributes,
}

impl Node {
    /// A node without attributes.
    #[must_use]
    pub const fn plain(kind: Kind, perm: Perm) -> Self {
        Self {
            kind,
            perm,
            attributes: None,
        }
    }

    /// Type bits and permission bits, as `st_mode` has them; of a link, whose bits mean nothing, as git has them.
    #[must_use]
    pub const fn mode(&self) -> u32 {
        let kind = match self.kind {
            Kind::File(_) => 0o100_000,
            Kind::Link(_) => return 0o120_000,
            Kind::Dir => 0o040_000,
            Kind::Fifo => 0o010_000,
        };
        kind | self.perm.bits()
    }

    /// The mode that a git tree entry has for this; `None` for a FIFO, which only the side table holds.
    #[must_use]
    pub const fn git_mode(&self) -> Option<u32> {
        match self.kind {
            Kind::File(_) if self.perm.is_executable() => Some(0o100_755),
            Kind::File(_) => Some(0o100_644),
            Kind::Link(_) => Some(0o120_000),
            Kind::Dir => Some(0o040_000),
            Kind::Fifo => None,
        }
    }

    /// Whether both are of the same type.
    #[must_use]
    pub const fn same_type(&self, other: &Self) -> bool {
        matches!(
            (&self.kind, &other.kind),
            (Kind::File(_), Kind::File(_))
                | (Kind::Link(_), Kind::Link(_))
                | (Kind::Dir, Kind::Dir)
                | (Kind::Fifo, Kind::Fifo)
        )
    }
}

/// Why a path isn't in a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Above `max_file_size`.
    TooLarge,
    /// Can't be opened or listed. For a directory, all below it is left out too.
    Unreadable,
    /// A socket or a device.
    Special,
    /// Changed each time while it was read.
    Changing,
    /// `forget` purged it.
    Forgotten,
    /// The store's quota is used up.
    Quota,
    /// A hook's time limit passed before it was saved.
    Late,
}

impl Reason {
    /// As in `--json`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooLarge => "too-large",
            Self::Unreadable => "unreadable",
            Self::Special => "special",
            Self::Changing => "changing",
            Self::Forgotten => "forgotten",
            Self::Quota => "quota",
            Self::Late => "late",
        }
    }
}

/// A path that a checkpoint leaves out, with what was seen of it then.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NotCaptured {
    /// Where.
    pub path: crate::path::TreePath,
    /// Why.
    pub reason: Reason,
    /// Its size in bytes then.
    pub size: u64,
    /// Its modification time then, in nanoseconds since 1970.
    pub mtime_ns: i64,
}

/// The ids that name a whole recorded directory: everything in which two states can differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Snapshot {
    /// A git tree: names, types, contents, executable bits, empty directories.
    pub tree: Oid,
    /// The side tables (see `tree::side`): other permission bits, attributes, FIFOs. The empty tree when there is
    /// nothing that the git tree doesn't say.
    pub side: Oid,
}

impl Snapshot {
    /// An empty directory with common modes.
    pub const EMPTY: Self = Self {
        tree: Oid::EMPTY_TREE,
        side: Oid::EMPTY_TREE,
    };
}
