//! Who holds contents: looking through everything that the refs keep.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::oid::Oid;
use crate::path::TreePath;
use crate::record;
use crate::state::{self, RootRecord};

use super::{MODE_GITLINK, MODE_TREE, Store, TreeEntry};

/// A path of a root at which some checkpoint, or an entry of the redo stack, holds contents.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// Id of the root.
    pub root: String,
    /// Its directory, where its record tells.
    pub directory: Option<PathBuf>,
    /// The path in it.
    pub path: TreePath,
}

impl Store {
    /// All paths at which one of `blobs` is held, in any root. A record that can't be read is passed over.
    ///
    /// # Errors
    /// When the store can't be read.
    pub fn holders(&self, blobs: &HashSet<Oid>) -> Result<Vec<Holder>> {
        let mut search = Search {
            store: self,
            blobs,
            known: HashMap::new(),
        };
        let mut found: BTreeSet<(String, TreePath)> = BTreeSet::new();
        for (name, oid) in self.all_refs("refs/")? {
            let parts: Vec<&str> = name.split('/').collect();
            let (Ok(commit), Some(root)) = (oid, parts.get(2)) else {
                continue;
            };
            // Side records, redo entries and some root records hold trees one level down.
            let wrapped = parts.get(1) == Some(&"stepback") && parts.get(3) != Some(&"pin");
            let paths = match self
                .read_commit(commit)
                .and_then(|commit| search.paths(commit.tree))
            {
                Err(Error::Damaged { .. }) => continue,
                other => other?,
            };
            let is_root_record = parts.get(3) == Some(&"root");
            let is_pair = is_root_record && self.is_pair(commit)?;
            for path in paths {
                let first = path.parts().next().unwrap_or_default();
                let is_state = matches!(first, b"before" | b"target" | b"extras");
                // A root record's tree is the captured tree itself, or holds it as `tree` beside `tables`.
                let inner = if wrapped && is_root_record && is_pair {
                    (first == b"tree").then(|| below(&path)).flatten()
                } else if wrapped && !is_root_record {
                    is_state.then(|| below(&path)).flatten()
                } else {
                    Some(path)
                };
                found.extend(inner.map(|path| ((*root).to_owned(), path)));
            }
        }
        let mut directories: HashMap<String, Option<PathBuf>> = HashMap::new();
        Ok(found
            .into_iter()
            .map(|(root, path)| {
                let directory = directories
                    .entry(root.clone())
                    .or_insert_with(|| self.directory_of(&root));
                Holder {
                    directory: directory.clone(),
                    root,
                    path,
                }
            })
            .collect())
    }

    /// Whether the tree of a root record is one of two entries, `tables` and `tree`.
    fn is_pair(&self, commit: Oid) -> Result<bool> {
        let entries = self.read_tree(self.read_commit(commit)?.tree)?;
        let names: Vec<&[u8]> = entries.iter().map(|entry| entry.name.as_slice()).collect();
        Ok(names == [&b"tables"[..], b"tree"])
    }

    fn directory_of(&self, root: &str) -> Option<PathBuf> {
        let commit = self.read_ref(&state::ref_name(root)).ok()??;
        let message = self.read_commit(commit).ok()?.message;
        let record: RootRecord = record::parse(self, commit, &message).ok()?;
        Some(record.path.0)
    }
}

/// A path without its first part.
fn below(path: &TreePath) -> Option<TreePath> {
    let mut rest = TreePath::root();
    for part in path.parts().skip(1) {
        rest = rest.join(part);
    }
    (!rest.is_root()).then_some(rest)
}

struct Search<'a> {
    store: &'a Store,
    blobs: &'a HashSet<Oid>,
    /// Where in a tree the contents are, relative to it. Trees of which checkpoints share most are looked into once.
    known: HashMap<Oid, Vec<TreePath>>,
}

impl Search<'_> {
    /// No recursion, because trees may be deep.
    fn paths(&mut self, tree: Oid) -> Result<Vec<TreePath>> {
        let mut stack = vec![(tree, None::<Vec<TreeEntry>>)];
        while let Some((tree, entries)) = stack.pop() {
            if self.known.contains_key(&tree) {
                continue;
            }
            let Some(entries) = entries else {
                let entries = self.store.read_tree(tree)?;
                let inner: Vec<Oid> = entries
                    .iter()
                    .filter(|entry| entry.mode == MODE_TREE)
                    .map(|entry| entry.oid)
                    .collect();
                stack.push((tree, Some(entries)));
                stack.extend(inner.into_iter().map(|oid| (oid, None)));
                continue;
            };
            let mut paths = Vec::new();
            for entry in entries {
                let here = TreePath::root().join(&entry.name);
                match entry.mode {
                    MODE_TREE => paths.extend(
                        self.known
                            .get(&entry.oid)
                            .into_iter()
                            .flatten()
                            .map(|below| below.parts().fold(here.clone(), |at, part| at.join(part))),
                    ),
                    MODE_GITLINK => {}
                    _ if self.blobs.contains(&entry.oid) => paths.push(here),
                    _ => {}
                }
            }
            self.known.insert(tree, paths);
        }
        Ok(self.known.get(&tree).cloned().unwrap_or_default())
    }
}
