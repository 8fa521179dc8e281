//! Refs that wait beside their old values until what they name is durable.

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use nix::fcntl::Flock;

use super::ahead::Ahead;
use super::files::{self, TempFile};
use super::refs::Expected;
use crate::error::Result;
use crate::oid::Oid;

/// What is to become of a ref.
#[derive(Debug, Clone, Copy)]
pub struct RefChange<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it will point to.
    pub new: Oid,
    /// What it points to now.
    pub expected: Expected,
}

/// Refs of which the new values wait beside the old ones, in order. Nobody else changes refs meanwhile. Dropped, they
/// leave nothing behind.
#[must_use]
#[derive(Debug)]
pub struct PreparedRefs {
    pub(super) waiting: VecDeque<(PathBuf, TempFile)>,
    /// The file ahead has all of them already: their names need no barrier.
    pub(super) ahead: Option<Arc<Ahead>>,
    pub(super) _serial: Option<Flock<File>>,
}

impl Drop for PreparedRefs {
    fn drop(&mut self) {
        if let Some(ahead) = self.ahead.as_ref().filter(|_| !self.waiting.is_empty()) {
            ahead.abandon();
        }
    }
}

impl PreparedRefs {
    /// All of them are in the file ahead, with the objects that they need.
    pub(super) fn are_ahead(&mut self, ahead: &Arc<Ahead>) {
        self.ahead = Some(Arc::clone(ahead));
    }

    /// To be made durable before the first is published.
    pub(super) fn files(&self) -> Vec<&TempFile> {
        self.waiting.iter().map(|(_, temp)| temp).collect()
    }

    /// Makes the next one visible; durable when this returns.
    ///
    /// # Errors
    /// When it can't be written; then it is the old one.
    pub fn publish(&mut self) -> Result<()> {
        let published = self.publish_unsynced()?.filter(|_| self.ahead.is_none());
        published.map_or(Ok(()), |path| {
            files::sync_dir(path.parent().expect("a ref is below refs"))
        })
    }

    /// Makes the next one visible, if there is one, and tells whether there was; for one that is mended when it gets lost:
    /// after a power loss it is the old or the new one, whole.
    ///
    /// # Errors
    /// As [`Self::publish`].
    pub fn publish_lazily(&mut self) -> Result<bool> {
        self.publish_unsynced().map(|path| path.is_some())
    }

    fn publish_unsynced(&mut self) -> Result<Option<PathBuf>> {
        let Some((path, temp)) = self.waiting.pop_front() else {
            return Ok(None);
        };
        if let Err(error) = temp.rename(&path) {
            if let Some(ahead) = &self.ahead {
                ahead.abandon();
            }
            return Err(error);
        }
        Ok(Some(path))
    }
}
