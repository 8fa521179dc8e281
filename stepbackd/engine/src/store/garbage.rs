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
    /// When git can't be run or fails, or a ref is broken; then everything that a ref needs is still there.
    pub fn collect_garbage(&self, git: Option<&Path>, path: Option<&OsStr>) -> Result<()> {
        let alone = self.lock_exclusive()?;
        let how = (Thoroughness::Full, Urgency::Waited);
        self.maintain_alone(git, path, how, &alone, &Interrupt::default())
            .map(drop)
    }
}
