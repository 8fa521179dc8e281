//! Emptying the file [`ahead`](super::ahead) while everybody goes on: its long part, a sync of the file system, is done
//! without any lock.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use nix::fcntl::{Flock, FlockArg};

use super::ahead::{Ahead, Mark};
use super::{Store, files};
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
    /// Whether so much has gathered that somebody would soon have to wait for [`Store::settle`]; then what has to be done
    /// about it.
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
        drop(serial);
        let lock_path = self.refs_lock_path();
        let Some(lock) = files::open_existing(&lock_path)? else {
            return Ok(None);
        };
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
        let _serial = Flock::lock(self.lock, FlockArg::LockExclusive)
            .map_err(|(_, errno)| io::Error::from(errno))
            .at(&self.lock_path)?;
        self.ahead.empty_to(&self.mark)
    }
}
