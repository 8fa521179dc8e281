//! Removing what no ref needs any longer.

use std::ffi::OsStr;
use std::path::Path;

use crate::error::Result;

use super::Store;
use super::git::{Interrupt, Urgency};
use super::maintenance::Thoroughness;

impl Store {
    /// Removes objects that no ref reaches, by the user's git when there is one; keeps every writer out meanwhile.
    ///
    /// # Errors
    /// When git can't be run or fails, a ref is broken, or it was interrupted; then everything that a ref needs is still
    /// there.
    pub fn collect_garbage(
        &self,
        git: Option<&Path>,
        path: Option<&OsStr>,
        interrupt: &Interrupt,
    ) -> Result<()> {
        self.give_back(git, path, Thoroughness::Full, interrupt)
    }

    /// The same as far as it costs little: loose objects that no ref reaches, and the room that loose ones take.
    ///
    /// # Errors
    /// As [`Self::collect_garbage`].
    pub fn fold_now(&self, git: Option<&Path>, path: Option<&OsStr>, interrupt: &Interrupt) -> Result<()> {
        self.give_back(git, path, Thoroughness::Fold, interrupt)
    }

    fn give_back(
        &self,
        git: Option<&Path>,
        path: Option<&OsStr>,
        how: Thoroughness,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let alone = self.lock_exclusive()?;
        let how = (how, Urgency::Waited);
        self.maintain_alone(git, path, how, &alone, interrupt).map(drop)
    }
}
