//! Locks of the store, held by open file descriptions: they end with the process, however it ends.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::{Flock, FlockArg};

use crate::error::{At, Result};

use super::files::FILE_MODE;

/// Held from the first "do we have this object" to the ref. Any number of them at once, never beside an
/// [`ExclusiveLock`].
#[derive(Debug)]
pub struct SharedLock {
    /// `None` inside our own exclusive lock, which covers it.
    _held: Option<Flock<File>>,
}

/// Held by maintenance: nobody else writes, or relies on objects that no ref protects yet.
#[derive(Debug)]
pub struct ExclusiveLock {
    held: Flock<File>,
    inside: Arc<AtomicBool>,
}

impl ExclusiveLock {
    /// The locked file once more: as long as somebody has it open, the lock is held, whatever becomes of this process.
    pub(super) fn file(&self) -> io::Result<File> {
        self.held.try_clone()
    }
}

impl Drop for ExclusiveLock {
    fn drop(&mut self) {
        self.inside.store(false, Ordering::Release);
    }
}

/// The lock file of one open store.
#[derive(Debug, Default)]
pub struct Lock {
    /// This store holds the exclusive lock: its own shared ones must not wait for it.
    inside: Arc<AtomicBool>,
}

impl Lock {
    /// Waits while maintenance runs.
    pub fn shared(&self, file: &Path) -> Result<SharedLock> {
        if self.inside.load(Ordering::Acquire) {
            return Ok(SharedLock { _held: None });
        }
        let held = flock(file, FlockArg::LockShared)?;
        Ok(SharedLock { _held: held })
    }

    /// Waits until nobody uses the store.
    pub fn exclusive(&self, file: &Path) -> Result<ExclusiveLock> {
        let held = flock(file, FlockArg::LockExclusive)?.expect("a lock that waits is got");
        Ok(self.entered(held))
    }

    /// `None` when somebody uses the store.
    pub fn try_exclusive(&self, file: &Path) -> Result<Option<ExclusiveLock>> {
        Ok(flock(file, FlockArg::LockExclusiveNonblock)?.map(|held| self.entered(held)))
    }

    fn entered(&self, held: Flock<File>) -> ExclusiveLock {
        self.inside.store(true, Ordering::Release);
        ExclusiveLock {
            held,
            inside: Arc::clone(&self.inside),
        }
    }
}

/// Takes a lock on a file, which is made when absent. `None` when it would have to wait and mustn't.
pub fn flock(path: &Path, how: FlockArg) -> Result<Option<Flock<File>>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let file = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = options.create(true).mode(FILE_MODE).open(path).at(path)?;
            made.set_permissions(Permissions::from_mode(FILE_MODE)).at(path)?;
            made
        }
        other => other.at(path)?,
    };
    take(file, path, how)
}

/// The same of a lock file that is open; `path` is for errors.
pub fn take(mut file: File, path: &Path, how: FlockArg) -> Result<Option<Flock<File>>> {
    loop {
        match Flock::lock(file, how) {
            Ok(held) => return Ok(Some(held)),
            Err((same, nix::errno::Errno::EINTR)) => file = same,
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => return Ok(None),
            Err((_, errno)) => return Err(io::Error::from(errno)).at(path),
        }
    }
}
