//! What captures tell beside checkpoints: files that cost too much, and ignore files whose going away took much in.

use super::Engine;
use crate::diff::{Change, Status};
use crate::error::Result;
use crate::node::{Kind, Snapshot};
use crate::noise::Noisy;
use crate::path::TreePath;
use crate::rules::{self, Rules};
use crate::side::Side;
use crate::store::Store;
use crate::time::Time;

/// An ignore file that went away is worth a word when so many files came with it,
const UNCOVERED_FILES: u64 = 1_000;
/// or files of so many bytes.
const UNCOVERED_BYTES: u64 = 100 << 20;

/// An ignore file is gone, and what it ignored is captured since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uncovered {
    /// The ignore file.
    pub rules: TreePath,
    /// Files that it ignored.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The first checkpoint that has them.
    pub checkpoint: u64,
    /// The latest one that has the ignore file.
    pub before: u64,
}

impl Engine {
    /// Files, and directories of files, that were rewritten so often in the hour before `now` that they fill the store, the
    /// dearest first.
    #[must_use]
    pub fn noisy(&self, now: Time) -> Vec<Noisy> {
        let mut noisy = self.noise.noisy(now);
        // What isn't captured any more makes no more noise.
        noisy.retain(|noisy| {
            let is_there = match noisy.is_dir {
                true => self.tree.node(&noisy.path).is_some(),
                false => self.tree.size(&noisy.path).is_some(),
            };
            self.resting.is_some() || is_there
        });
        noisy
    }

    /// Ignore files that went away and uncovered a lot, and aren't back.
    #[must_use]
    pub fn uncovered(&self) -> Vec<Uncovered> {
        let is_gone = |uncovered: &&Uncovered| self.tree.node(&uncovered.rules).is_none();
        self.uncovered.iter().filter(is_gone).cloned().collect()
    }

    /// A checkpoint with these changes was made.
    pub(super) fn note_changes(&mut self, changes: &[Change], has_base: bool, now: Time) {
        let is_file =
            |change: &&Change| matches!(change.new.as_ref().map(|node| node.kind), Some(Kind::File(_)));
        let sized = |change: &Change| Some((change.path.clone(), self.tree.size(&change.path)?));
        if has_base {
            let files: Vec<_> = changes.iter().filter(is_file).filter_map(sized).collect();
            self.noise.add(&files, now);
        }
        let tree = &self.tree;
        self.uncovered
            .retain(|uncovered| tree.node(&uncovered.rules).is_none());
    }

    /// Which of the ignore files that these changes take away ignored many of the files that they add. `before`: the
    /// checkpoint that the changes are counted from; `n`: the one that is about to be made.
    pub(super) fn look_for_uncovered(
        &self,
        store: &Store,
        changes: &[Change],
        before: (u64, Snapshot),
        n: u64,
    ) -> Result<Vec<Uncovered>> {
        let is_rules = |change: &&Change| {
            let name = change.path.split_last();
            change.status() == Status::Deleted && name.is_some_and(|(_, name)| rules::is_rule_file(name))
        };
        let gone: Vec<&Change> = changes.iter().filter(is_rules).collect();
        let added = || {
            let added = changes
                .iter()
                .filter(|change| change.is_file() && change.old.is_none());
            added.map(|change| (&change.path, self.tree.size(&change.path).unwrap_or(0)))
        };
        let is_much = |files: u64, bytes: u64| files > UNCOVERED_FILES || bytes > UNCOVERED_BYTES;
        let (files, bytes) = added().fold((0, 0), |(files, sum), (_, bytes)| (files + 1, sum + bytes));
        if gone.is_empty() || !is_much(files, bytes) {
            return Ok(Vec::new());
        }
        let side = Side::load(store, self.id(), before.0)?;
        let then = Rules::of_snapshot(store, before.1, &side.rules)?;
        let mut found = Vec::new();
        for gone in gone {
            let Some((dir, _)) = gone.path.split_last() else {
                continue;
            };
            let (mut files, mut bytes) = (0, 0);
            for (path, size) in added().filter(|(path, _)| path.starts_with(&dir)) {
                if then.ignores(path, false)? {
                    files += 1;
                    bytes += size;
                }
            }
            if is_much(files, bytes) {
                found.push(Uncovered {
                    rules: gone.path.clone(),
                    files,
                    bytes,
                    checkpoint: n,
                    before: before.0,
                });
            }
        }
        Ok(found)
    }
}
