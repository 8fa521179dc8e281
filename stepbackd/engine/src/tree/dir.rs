//! What is kept in memory of a directory.
//!
//! About 90 bytes for each file: no path is kept, only names; what few entries have is behind a pointer.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::node::{Attributes, Kind, Node, Perm, Reason};
use crate::oid::Oid;
use crate::path::TreePath;
use crate::root::Stat;
use crate::rules::{Below, DirRules};

/// A directory.
#[derive(Debug)]
pub(super) struct Dir {
    /// Sorted by name.
    pub entries: Vec<Entry>,
    pub ino: u64,
    pub ctime_ns: i64,
    pub perm: Perm,
    pub attributes: Attributes,
    /// Its attributes and bits aren't to be trusted by `ctime_ns`.
    pub racy: bool,
    /// Its entries are all that it has as long as it has this `ctime_ns`, but for those that are ignored.
    pub listed: bool,
    /// How it is captured. One of [`Below::Exceptions`] shows only if something in it does.
    pub below: Below,
    /// Its git tree; `None` when something in it changed since.
    pub tree: Option<Oid>,
    /// Its side tree, likewise.
    pub side: Option<Oid>,
    /// Something in it was handed to a writer of which it isn't known whether it came to its end.
    pub unsaved: bool,
    /// Ignore files in it; `None` when there are none (or they aren't known, after a cached start).
    pub rules: Option<Arc<DirRules>>,
    /// Bit by bit, which built-in patterns left out something in it.
    pub builtin_hits: u32,
    /// Files, links and FIFOs below.
    pub files: u64,
    /// Entries below that aren't captured, each with a reason.
    pub left: u64,
}

/// The name of an entry. Most are so short that they need no allocation.
pub(super) type Name = SmallVec<[u8; 16]>;

/// An entry of a directory.
#[derive(Debug)]
pub(super) struct Entry {
    pub name: Name,
    pub slot: Slot,
}

// There is one for each file of every root.
const _: () = assert!(size_of::<Entry>() <= 88);

/// What is known of an entry. What is rare is behind a pointer.
#[derive(Debug)]
pub(super) enum Slot {
    File(File),
    Link(Box<File>),
    Fifo(Box<File>),
    Dir(Box<Dir>),
    Left(Box<Left>),
}

/// A file, a link (whose contents is its target) or a FIFO (which has none).
#[derive(Debug, Clone)]
pub(super) struct File {
    pub sig: Sig,
    pub attributes: Attributes,
    pub oid: Oid,
    pub perm: Perm,
    /// Changed so shortly before it was read that a later change may have the same signature.
    pub racy: bool,
    /// Handed to a writer of which it isn't known whether it came to its end.
    pub unsaved: bool,
}

/// What tells whether a file is still the one that was read. `ctime` can't be set by anyone, so that an edit that keeps the
/// size and puts the mtime back is seen too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sig {
    pub ino: u64,
    pub size: u64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
}

/// Something that isn't captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Left {
    pub reason: Reason,
    pub size: u64,
    pub mtime_ns: i64,
}

/// A stat isn't trusted later if the file changed less than this before it was taken: file systems stamp by a coarse clock.
/// In nanoseconds.
const RACY_MARGIN_NS: i64 = 100_000_000;

/// The same for the names in a directory. Longer, as some file systems stamp by whole seconds, and a name that is overlooked
/// once would be for long. In nanoseconds.
const NAMES_MARGIN_NS: i64 = 2_100_000_000;

impl Sig {
    pub fn of(stat: &Stat) -> Self {
        Self {
            ino: stat.ino,
            size: stat.size,
            mtime_ns: stat.mtime_ns,
            ctime_ns: stat.ctime_ns,
        }
    }
}

/// Whether a stat taken in a look that began at `now_ns` can't vouch for the contents later.
pub(super) fn is_racy(mtime_ns: i64, ctime_ns: i64, now_ns: i64) -> bool {
    let from = now_ns.saturating_sub(RACY_MARGIN_NS);
    // An mtime far in the future was set by hand; the ctime tells of changes then.
    ctime_ns >= from || (mtime_ns >= from && mtime_ns <= now_ns.saturating_add(RACY_MARGIN_NS))
}

/// Whether a name that comes after a look that began at `now_ns` gives a directory of this ctime another one.
pub(super) const fn tells_of_names(ctime_ns: i64, now_ns: i64) -> bool {
    ctime_ns < now_ns.saturating_sub(NAMES_MARGIN_NS)
}

impl Slot {
    /// What is captured of it.
    pub fn node(&self) -> Option<Node> {
        let (kind, file) = match self {
            Self::File(file) => (Kind::File(file.oid), file),
            Self::Link(file) => (Kind::Link(file.oid), &**file),
            Self::Fifo(file) => (Kind::Fifo, &**file),
            Self::Dir(dir) => return dir.shows().then(|| dir.node()),
            Self::Left(_) => return None,
        };
        Some(Node {
            kind,
            perm: file.perm,
            attributes: file.attributes.clone(),
        })
    }

    /// A file or a link: what has contents in the store.
    pub fn contents(&self) -> Option<&File> {
        match self {
            Self::File(file) => Some(file),
            Self::Link(file) => Some(file),
            _ => None,
        }
    }

    /// Whether something of it is in a checkpoint.
    pub fn shows(&self) -> bool {
        match self {
            Self::Dir(dir) => dir.shows(),
            Self::Left(_) => false,
            _ => true,
        }
    }
}

impl Dir {
    /// Of the directory itself.
    pub fn node(&self) -> Node {
        Node {
            kind: Kind::Dir,
            perm: self.perm,
            attributes: self.attributes.clone(),
        }
    }

    /// Whether it is in a checkpoint.
    pub fn shows(&self) -> bool {
        self.below != Below::Exceptions || self.entries.iter().any(|entry| entry.slot.shows())
    }

    pub fn entry(&self, name: &[u8]) -> Option<&Entry> {
        self.entries
            .binary_search_by(|entry| (*entry.name).cmp(name))
            .ok()
            .map(|at| &self.entries[at])
    }

    /// What stands at a path below.
    pub fn find(&self, path: &TreePath) -> Option<&Slot> {
        let (above, name) = path.split_last()?;
        let mut dir = self;
        for part in above.parts() {
            match &dir.entry(part)?.slot {
                Slot::Dir(below) => dir = below,
                _ => return None,
            }
        }
        dir.entry(name).map(|entry| &entry.slot)
    }

    /// Counts what is below anew from what the entries say.
    pub fn count(&mut self) {
        (self.files, self.left) =
            self.entries
                .iter()
                .fold((0, 0), |(files, left), entry| match &entry.slot {
                    Slot::Dir(dir) => (files + dir.files, left + dir.left),
                    Slot::Left(_) => (files, left + 1),
                    _ => (files + 1, left),
                });
    }

    /// The subdirectories.
    pub fn dirs(&self) -> impl Iterator<Item = (&[u8], &Self)> {
        self.entries.iter().filter_map(|entry| match &entry.slot {
            Slot::Dir(dir) => Some((&*entry.name, &**dir)),
            _ => None,
        })
    }
}
