//! Recorded trees without some of their paths. Directories that hold none of them keep their ids; equal directories are
//! written once, however many trees they are in.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::on_stack_for;
use super::persist::Encoder;
use super::stored::read_dir;
use crate::error::Result;
use crate::node::{CommonModes, Kind, Node, Snapshot};
use crate::oid::Oid;
use crate::path::TreePath;
use crate::store::{MODE_GITLINK, MODE_TREE, ObjectWriter, Store};

/// What was taken out of a recorded tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// Where it stood.
    pub path: TreePath,
    /// What it was.
    pub node: Node,
    /// For a directory: what it held.
    pub below: Option<Snapshot>,
}

/// A recorded tree without the paths.
#[derive(Debug)]
pub struct Remains {
    /// What is left.
    pub snapshot: Snapshot,
    /// What was taken out, in order of paths.
    pub removed: Vec<Removed>,
}

/// Takes always the same paths out of recorded trees.
pub struct Without<'a> {
    store: &'a Store,
    writer: &'a ObjectWriter<'a>,
    common: CommonModes,
    branches: Vec<Branch>,
    depth: usize,
    known: HashMap<(usize, Snapshot), Arc<Remains>>,
}

/// A directory above one of the paths, or a path.
#[derive(Default)]
struct Branch {
    path: Option<TreePath>,
    below: BTreeMap<Vec<u8>, usize>,
    goes: bool,
}

impl<'a> Without<'a> {
    /// `paths`: none of them is the root.
    #[must_use]
    pub fn new(
        store: &'a Store,
        writer: &'a ObjectWriter<'a>,
        common: CommonModes,
        paths: &[TreePath],
    ) -> Self {
        let mut branches = vec![Branch::default()];
        for path in paths {
            let (mut at, mut here) = (0, TreePath::root());
            for part in path.parts() {
                here = here.join(part);
                let next = branches.len();
                let child = *branches[at].below.entry(part.to_vec()).or_insert(next);
                if child == next {
                    branches.push(Branch::default());
                }
                at = child;
                branches[at].path = Some(here.clone());
            }
            branches[at].goes = true;
        }
        Self {
            store,
            writer,
            common,
            branches,
            depth: paths.iter().map(|path| path.parts().count()).max().unwrap_or(0),
            known: HashMap::new(),
        }
    }

    /// The tree without the paths; its new directories are with the writer.
    ///
    /// # Errors
    /// [`crate::Error::Damaged`] when a directory can't be read; those of writing.
    pub fn strip(&mut self, snapshot: Snapshot) -> Result<Arc<Remains>> {
        on_stack_for(self.depth, || self.strip_at(0, snapshot))
    }

    /// What became of all trees that were given to [`Self::strip`].
    #[must_use]
    pub fn into_remains(self) -> HashMap<Snapshot, Arc<Remains>> {
        let whole = self.known.into_iter().filter(|((at, _), _)| *at == 0);
        whole
            .map(|((_, snapshot), remains)| (snapshot, remains))
            .collect()
    }

    fn strip_at(&mut self, at: usize, snapshot: Snapshot) -> Result<Arc<Remains>> {
        if let Some(known) = self.known.get(&(at, snapshot)) {
            return Ok(Arc::clone(known));
        }
        let dir = read_dir(self.store, snapshot, &self.common)?;
        let mut removed = Vec::new();
        let common = self.common;
        let mut encoder = Encoder::new(&dir.own, &common);
        for entry in dir.entries {
            let Some(branch) = self.branches[at].below.get(&entry.name).copied() else {
                encoder.add(&entry.name, &entry.node, entry.below);
                continue;
            };
            if self.branches[branch].goes {
                let path = self.branches[branch]
                    .path
                    .clone()
                    .expect("a path that goes has a name");
                removed.push(Removed {
                    path,
                    node: entry.node,
                    below: entry.below,
                });
                continue;
            }
            let below = match entry.below {
                Some(below) => {
                    let remains = self.strip_at(branch, below)?;
                    removed.extend(remains.removed.iter().cloned());
                    Some(remains.snapshot)
                }
                None => None,
            };
            encoder.add(&entry.name, &entry.node, below);
        }
        let remains = Arc::new(Remains {
            snapshot: if removed.is_empty() {
                snapshot
            } else {
                encoder.finish(self.writer)?
            },
            removed,
        });
        self.known.insert((at, snapshot), Arc::clone(&remains));
        Ok(remains)
    }
}

/// Adds the contents of what was removed to `blobs`; `seen` are directories that were looked into before.
///
/// # Errors
/// Those of reading.
pub fn contents(
    store: &Store,
    removed: &Removed,
    blobs: &mut HashSet<Oid>,
    seen: &mut HashSet<Oid>,
) -> Result<()> {
    match removed.node.kind {
        Kind::File(oid) | Kind::Link(oid) => {
            blobs.insert(oid);
        }
        Kind::Fifo => {}
        Kind::Dir => {
            let mut stack: Vec<Oid> = removed.below.iter().map(|below| below.tree).collect();
            while let Some(tree) = stack.pop() {
                if !seen.insert(tree) {
                    continue;
                }
                for entry in store.read_tree(tree)? {
                    match entry.mode {
                        MODE_TREE => stack.push(entry.oid),
                        MODE_GITLINK => {}
                        _ => {
                            blobs.insert(entry.oid);
                        }
                    }
                }
            }
        }
    }
    Ok(())
}
