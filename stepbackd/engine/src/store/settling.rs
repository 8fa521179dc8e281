//! Emptying the file [`ahead`](super::ahead) while everybody goes on: its long part, a sync of the file system, is done
//! without any lock.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use nix::fcntl::FlockArg;

use super::ahead::{Ahead, Mark};
use super::{Store, lock};
use crate::error::{At, Result};

/// Begun by [`Store::begin_settling`]; to be ended by [`Settling::finish`], on any thread. Dropped, nothing is done.
#[derive(Debug)]
pub struct Settling {
    ahead: Arc<Ahead>,
    mark: Mark,
    /// The lock of the refs, open: its name may go with the store meanwhile.
    lock: File,
    lock_path: PathBuf,
}

impl Store {
    /// What is to be done when so much has gathered that somebody would soon have to wait for [`Store::settle`]; else `None`.
    ///
    /// # Errors
    /// When the store can't be read.
    pub fn begin_settling(&self) -> Result<Option<Settling>> {
        if !self.ahead.is_well_filled() {
            return Ok(None);
        }
        // While it is held, all that is in the file has got its names.
        let serial = self.lock_refs()?;
        let Some(mark) = self.ahead.mark()? else {
            return Ok(None);
        };
        let lock_path = self.refs_lock_path();
        let lock = serial
            .unlock()
            .map_err(|(_, errno)| io::Error::from(errno))
            .at(&lock_path)?;
        Ok(Some(Settling {
            ahead: Arc::clone(&self.ahead),
            mark,
            lock,
            lock_path,
        }))
    }
}

impl Settling {
    /// Makes durable where it belongs what the file held at the beginning; then empties it, unless something was added to it
    /// since. Whether it did. May take as long as the disk needs for whatever anybody has written to it.
    ///
    /// # Errors
    /// When the disk refuses; then the file is as it was.
    pub fn finish(self) -> Result<bool> {
        self.mark.sync().at(&self.lock_path)?;
        let _serial = lock::take(self.lock, &self.lock_path, FlockArg::LockExclusive)?;
        self.ahead.empty_to(&self.mark)
    }
}
