//! A root that is left alone gives the memory of its tree back; the next look takes the tree from its cache.

use super::Engine;
use crate::error::Result;
use crate::node::NotCaptured;
use crate::tree::Tree;

/// What is told of a tree that isn't in memory.
#[derive(Debug)]
pub(super) struct Resting {
    pub files: u64,
    pub not_captured: Vec<NotCaptured>,
}

impl Engine {
    /// Whether the tree is in memory.
    #[must_use]
    pub const fn holds_tree(&self) -> bool {
        self.resting.is_none() && self.memory.is_some()
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
        self.resting = Some(Resting {
            files: self.tree.files(),
            not_captured: self.tree.not_captured(),
        });
        self.tree = Tree::new();
        Ok(())
    }

    /// Before a look: takes the tree from the cache, where it isn't in memory.
    pub(super) fn wake(&mut self) {
        if self.resting.take().is_some() {
            self.reload_tree();
        }
    }
}
