//! What differs between two recorded trees. Directories with equal ids aren't opened, so the cost is that of what differs.

mod binary;
pub mod patch;

use crate::error::Result;
use crate::node::{CommonModes, Kind, Node, Snapshot};
use crate::path::TreePath;
use crate::store::Objects;
use crate::tree::stored::{StoredDir, StoredEntry, read_dir};

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
    let mut walk = Walk {
        store,
        common,
        within,
        changes: Vec::new(),
    };
    let root = TreePath::root();
    if old != new {
        let before = walk.read(Some(old))?;
        let after = walk.read(Some(new))?;
        let (old_own, new_own) = (before.own.clone(), after.own.clone());
        if old_own != new_own {
            walk.push(&root, Some(old_own), Some(new_own), after.entries.is_empty());
        }
        walk.entries(&root, before, after)?;
    }
    Ok(walk.changes)
}

struct Walk<'a> {
    store: &'a dyn Objects,
    common: &'a CommonModes,
    within: &'a [TreePath],
    changes: Vec<Change>,
}

impl Walk<'_> {
    fn read(&self, snapshot: Option<Snapshot>) -> Result<StoredDir> {
        match snapshot {
            Some(snapshot) => read_dir(self.store, snapshot, self.common),
            None => Ok(StoredDir {
                own: Node::plain(Kind::Dir, self.common.dir),
                entries: Vec::new(),
            }),
        }
    }

    fn push(&mut self, path: &TreePath, old: Option<Node>, new: Option<Node>, empty_dir: bool) {
        if self.within.is_empty() || self.within.iter().any(|w| path.starts_with(w)) {
            self.changes.push(Change {
                path: path.clone(),
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

    fn entries(&mut self, dir: &TreePath, old: StoredDir, new: StoredDir) -> Result<()> {
        let mut old = old.entries.into_iter().peekable();
        let mut new = new.entries.into_iter().peekable();
        loop {
            let order = match (old.peek(), new.peek()) {
                (Some(a), Some(b)) => a.name.cmp(&b.name),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => return Ok(()),
            };
            let a = if order.is_le() { old.next() } else { None };
            let b = if order.is_ge() { new.next() } else { None };
            self.entry(dir, a, b)?;
        }
    }

    fn entry(&mut self, dir: &TreePath, old: Option<StoredEntry>, new: Option<StoredEntry>) -> Result<()> {
        let Some(name) = old.as_ref().or(new.as_ref()).map(|e| e.name.clone()) else {
            return Ok(());
        };
        let path = dir.join(&name);
        if old == new || !self.leads_to_wanted(&path) {
            return Ok(());
        }
        let below = |entry: &Option<StoredEntry>| entry.as_ref().and_then(|e| e.below);
        let (old_below, new_below) = (below(&old), below(&new));
        let old_node = old.map(|e| e.node);
        let new_node = new.map(|e| e.node);
        if old_below.is_none() && new_below.is_none() {
            self.push(&path, old_node, new_node, false);
            return Ok(());
        }
        let before = self.read(old_below)?;
        let after = self.read(new_below)?;
        if old_node != new_node {
            let empty = if new_below.is_some() {
                after.entries.is_empty()
            } else {
                before.entries.is_empty()
            };
            self.push(&path, old_node, new_node, empty);
        }
        self.entries(&path, before, after)
    }
}
