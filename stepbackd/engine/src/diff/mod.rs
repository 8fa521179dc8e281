//! What differs between two recorded trees. Directories with equal ids aren't opened, so the cost is that of what differs.

mod binary;
pub mod patch;

use rayon::prelude::*;

use crate::error::Result;
use crate::node::{CommonModes, Kind, Node, Snapshot};
use crate::path::TreePath;
use crate::store::Objects;
use crate::tree::stored::{StoredDir, StoredEntry, read_different, read_dir};

/// A path at which two states differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where.
    pub path: TreePath,
    /// What stood there.
    pub old: Option<Node>,
    /// What stands there.
    pub new: Option<Node>,
    /// A directory in which nothing is recorded (in the newer state, if it is there).
    pub empty_dir: bool,
}

/// Letters of git for what happened to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// `A`
    Added,
    /// `M`
    Modified,
    /// `D`
    Deleted,
    /// `T`: another type.
    TypeChanged,
}

impl Change {
    /// What happened.
    #[must_use]
    pub fn status(&self) -> Status {
        match (&self.old, &self.new) {
            (None, _) => Status::Added,
            (_, None) => Status::Deleted,
            (Some(old), Some(new)) if old.same_type(new) => Status::Modified,
            _ => Status::TypeChanged,
        }
    }

    /// Whether people are shown it: everything but directories that merely hold what came or went with them.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        match (&self.old, &self.new) {
            (Some(old), Some(new)) if old.same_type(new) => true,
            (Some(Node { kind: Kind::Dir, .. }), None) | (None, Some(Node { kind: Kind::Dir, .. })) => {
                self.empty_dir
            }
            _ => true,
        }
    }

    /// Whether a file, link or FIFO is on either side.
    #[must_use]
    pub fn is_file(&self) -> bool {
        [&self.old, &self.new]
            .into_iter()
            .flatten()
            .any(|node| node.kind != Kind::Dir)
    }
}

/// All differences, directories included; a directory stands before what is below it, names in byte order. `within`: only
/// these paths and what is below them; everything when empty.
///
/// # Errors
/// Those of the store: an object that is missing or damaged is an error, never an empty tree.
pub fn compare(
    store: &dyn Objects,
    old: Snapshot,
    new: Snapshot,
    common: &CommonModes,
    within: &[TreePath],
) -> Result<Vec<Change>> {
    let walk = Walk {
        store,
        common,
        within,
    };
    let side = |snapshot| {
        Some(Side {
            node: Node::plain(Kind::Dir, common.dir),
            below: Some(snapshot),
        })
    };
    let mut changes = Vec::new();
    // Level by level: directories side by side are read at once, and a deep tree needs no deep stack.
    let mut level = Vec::new();
    if old != new {
        level.push(Pair {
            path: TreePath::root(),
            old: side(old),
            new: side(new),
        });
    }
    while !level.is_empty() {
        let compared: Result<Vec<Found>> = if level.len() < DIRS_FOR_THREADS {
            level.into_iter().map(|pair| walk.pair(pair)).collect()
        } else {
            level.into_par_iter().map(|pair| walk.pair(pair)).collect()
        };
        level = Vec::new();
        for found in compared? {
            changes.extend(found.changes);
            level.extend(found.below);
        }
    }
    changes.sort_by(|a, b| a.path.parts().cmp(b.path.parts()));
    Ok(changes)
}

/// Fewer directories aren't worth waking other threads for.
const DIRS_FOR_THREADS: usize = 16;

struct Walk<'a> {
    store: &'a dyn Objects,
    common: &'a CommonModes,
    within: &'a [TreePath],
}

/// A path of which a directory, on one side at least, is to be compared.
struct Pair {
    path: TreePath,
    old: Option<Side>,
    new: Option<Side>,
}

/// What stands at a path in one state. For a directory `below` is what it holds.
struct Side {
    node: Node,
    below: Option<Snapshot>,
}

/// What differs at a path and right below it, and the directories in it that differ.
#[derive(Default)]
struct Found {
    changes: Vec<Change>,
    below: Vec<Pair>,
}

impl Walk<'_> {
    fn pair(&self, pair: Pair) -> Result<Found> {
        let Pair { path, old, new } = pair;
        let below = |side: &Option<Side>| side.as_ref().and_then(|side| side.below);
        let (before, after) = match (below(&old), below(&new)) {
            (Some(old), Some(new)) => {
                let (before, after) = read_different(self.store, old, new, self.common)?;
                (Some(before), Some(after))
            }
            (old, new) => (self.read(old)?, self.read(new)?),
        };
        let node = |side: Option<Side>, dir: &Option<StoredDir>| match dir {
            Some(dir) => Some(dir.own.clone()),
            None => side.map(|side| side.node),
        };
        let (old, new) = (node(old, &before), node(new, &after));
        let mut found = Found::default();
        if old != new {
            let newest = after.as_ref().or(before.as_ref());
            let empty = newest.is_some_and(|dir| dir.entries.is_empty());
            self.push(&mut found, path.clone(), old, new, empty);
        }
        self.entries(&mut found, &path, before, after);
        Ok(found)
    }

    fn read(&self, snapshot: Option<Snapshot>) -> Result<Option<StoredDir>> {
        snapshot
            .map(|snapshot| read_dir(self.store, snapshot, self.common))
            .transpose()
    }

    fn push(&self, found: &mut Found, path: TreePath, old: Option<Node>, new: Option<Node>, empty_dir: bool) {
        if self.within.is_empty() || self.within.iter().any(|w| path.starts_with(w)) {
            found.changes.push(Change {
                path,
                old,
                new,
                empty_dir,
            });
        }
    }

    /// Whether something at or below `path` can be wanted.
    fn leads_to_wanted(&self, path: &TreePath) -> bool {
        self.within.is_empty()
            || self
                .within
                .iter()
                .any(|w| path.starts_with(w) || w.starts_with(path))
    }

    fn entries(&self, found: &mut Found, dir: &TreePath, old: Option<StoredDir>, new: Option<StoredDir>) {
        let entries = |dir: Option<StoredDir>| dir.map(|dir| dir.entries).unwrap_or_default();
        let mut old = entries(old).into_iter().peekable();
        let mut new = entries(new).into_iter().peekable();
        loop {
            let order = match (old.peek(), new.peek()) {
                (Some(a), Some(b)) => a.name.cmp(&b.name),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => return,
            };
            let a = if order.is_le() { old.next() } else { None };
            let b = if order.is_ge() { new.next() } else { None };
            self.entry(found, dir, a, b);
        }
    }

    fn entry(&self, found: &mut Found, dir: &TreePath, old: Option<StoredEntry>, new: Option<StoredEntry>) {
        if old == new {
            return;
        }
        let Some(path) = old.as_ref().or(new.as_ref()).map(|entry| dir.join(&entry.name)) else {
            return;
        };
        if !self.leads_to_wanted(&path) {
            return;
        }
        let side = |entry: StoredEntry| Side {
            node: entry.node,
            below: entry.below,
        };
        let (old, new) = (old.map(side), new.map(side));
        let is_file = |side: &Option<Side>| side.as_ref().is_none_or(|side| side.below.is_none());
        if is_file(&old) && is_file(&new) {
            let node = |side: Option<Side>| side.map(|side| side.node);
            self.push(found, path, node(old), node(new), false);
            return;
        }
        found.below.push(Pair { path, old, new });
    }
}
