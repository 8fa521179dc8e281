//! Ignore files of a recorded tree.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::ignore_file;
use super::pattern::Patterns;
use super::place::DirRules;
use crate::error::Result;
use crate::oid::{ObjectKind, Oid};
use crate::path::TreePath;
use crate::store::{MODE_TREE, Store};

/// A recorded tree, of which directories are read when they are asked for.
pub(super) struct Recorded {
    store: Store,
    /// Git trees of directories; `None` where the recorded tree has no directory.
    trees: Mutex<HashMap<TreePath, Option<Oid>>>,
}

impl Recorded {
    pub fn new(store: Store, tree: Oid) -> Self {
        Self {
            store,
            trees: Mutex::new(HashMap::from([(TreePath::root(), Some(tree))])),
        }
    }

    /// The ignore files of a directory; the empty rules where there is none.
    pub fn dir_rules(&self, dir: &TreePath, repo: bool) -> Result<DirRules> {
        let mut rules = DirRules {
            repo,
            ..DirRules::default()
        };
        let Some(tree) = self.tree(dir)? else {
            return Ok(rules);
        };
        for entry in self.store.read_tree(tree)? {
            rules.cargo |= entry.name == b"Cargo.toml";
            let patterns = match entry.name.as_slice() {
                ignore_file::GIT => &mut rules.git,
                ignore_file::STEPBACK => &mut rules.stepback,
                _ => continue,
            };
            if entry.mode & 0o170_000 == 0o100_000 {
                *patterns = Patterns::parse(&self.store.read(entry.oid, ObjectKind::Blob)?);
            }
        }
        Ok(rules)
    }

    fn tree(&self, dir: &TreePath) -> Result<Option<Oid>> {
        if let Some(known) = self.trees().get(dir) {
            return Ok(*known);
        }
        let mut found = None;
        if let Some((above, name)) = dir.split_last()
            && let Some(tree) = self.tree(&above)?
        {
            let entries = self.store.read_tree(tree)?;
            found = entries
                .iter()
                .find(|entry| entry.name == name && entry.mode == MODE_TREE)
                .map(|entry| entry.oid);
        }
        self.trees().insert(dir.clone(), found);
        Ok(found)
    }

    fn trees(&self) -> std::sync::MutexGuard<'_, HashMap<TreePath, Option<Oid>>> {
        self.trees.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
