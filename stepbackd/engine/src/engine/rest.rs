//! A root that is left alone gives the memory of its tree back; the next look takes the tree from its cache.

use super::Engine;
use crate::error::Result;
use crate::node::{NotCaptured, Snapshot};
use crate::path::TreePath;
use crate::store::Settling;
use crate::tree::Tree;

/// What is told of a tree that isn't in memory.
#[derive(Debug)]
pub(super) struct Resting {
    pub files: u64,
    pub not_captured: Vec<NotCaptured>,
    /// The tree, if it is known to have been this.
    pub snapshot: Option<Snapshot>,
}

impl Engine {
    /// Whether the tree is in memory.
    #[must_use]
    pub const fn holds_tree(&self) -> bool {
        self.resting.is_none() && self.memory.is_some()
    }

    /// The next part of a look at everything in parts, each a capture of [`super::Scope::Paths`]: directories with so many
    /// `entries`, behind `after`. No directories: that was all. `None`: too little is known for that, and a capture of
    /// anything looks at everything.
    #[must_use]
    pub fn part_after(&self, after: Option<&TreePath>, entries: usize) -> Option<Vec<TreePath>> {
        self.holds_tree().then(|| self.tree.dirs_after(after, entries))
    }

    /// Gives the memory of the tree back. What can be asked stays the same; the next look reads the cache, and looks at
    /// everything. A tree of which not all is in the store stays.
    ///
    /// # Errors
    /// When the cache can't be written: then the tree stays.
    pub fn rest(&mut self) -> Result<()> {
        if !self.holds_tree() {
            return Ok(());
        }
        self.save_cache()?;
        self.resting = Some(self.told());
        self.tree = Tree::new();
        Ok(())
    }

    /// What is told of the tree now.
    pub(super) fn told(&mut self) -> Resting {
        self.resting.take().unwrap_or_else(|| Resting {
            files: self.tree.files(),
            not_captured: self.tree.not_captured(),
            snapshot: self.memory,
        })
    }

    /// After an error the tree in memory can't be relied on: the next look takes it from the cache, and looks at everything.
    /// Until then the same is told as before the error, which is `before` where that isn't known any more.
    pub(super) fn distrust_tree(&mut self, before: Option<Resting>) {
        let mut told = match before {
            Some(before) if self.memory.is_none() => before,
            _ => self.told(),
        };
        if !matches!(self.unfinished(), Ok(None)) {
            told.snapshot = None;
        }
        self.forget_tree();
        self.resting = Some(told);
    }

    /// Before a look: takes the tree from the cache, where it isn't in memory.
    pub(super) fn wake(&mut self) {
        if self.resting.take().is_some() {
            self.reload_tree();
        }
    }

    /// Gives back the memory into which parts of the store were mapped, after much was read. They are mapped anew when they
    /// are needed.
    ///
    /// # Errors
    /// When the store can't be read.
    pub fn let_go_of_store(&self) -> Result<()> {
        self.store.let_go()
    }

    /// Puts the newest changes of the store where they belong. Nothing depends on it.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn settle_store(&self) -> Result<()> {
        self.store.settle()
    }

    /// What is to be done, by another thread, so that nobody has to wait for that later; when much has gathered.
    ///
    /// # Errors
    /// When the store can't be read.
    pub fn begin_settling(&self) -> Result<Option<Settling>> {
        self.store.begin_settling()
    }
}
