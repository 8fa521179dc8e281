//! Until when the daemon lived: the modification time of `STATE/alive`, set now and then. So the next one can say since
//! when nothing was watched.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use stepback_engine::time::Time;
use tokio_util::sync::CancellationToken;

use crate::error::{At, Result};
use crate::socket::identity;
use crate::state_file;

/// How often it is set when nothing happens: after a kill, a gap begins up to so much too early. Whatever happens sets it,
/// too, so that nobody wakes up for this alone more often.
pub const EVERY: Duration = Duration::from_secs(600);

/// What happens sets it at most this often.
const NOT_AGAIN_FOR: Duration = Duration::from_secs(1);

/// The file, open.
#[derive(Debug)]
pub struct Alive {
    file: File,
    last: Mutex<Option<Instant>>,
    /// The lock of STATE, and which file it was: with another one in its place somebody else may hold that.
    lock: Option<(PathBuf, (u64, u64))>,
    shutdown: CancellationToken,
}

impl Alive {
    /// Opens it; also tells until when the last daemon lived, if there was one. `shutdown` is cancelled when another file is
    /// in the place of the `lock` of this daemon.
    ///
    /// # Errors
    /// When it can't be opened.
    pub fn open(file: &Path, lock: PathBuf, shutdown: CancellationToken) -> Result<(Self, Option<Time>)> {
        let last = file.metadata().and_then(|metadata| metadata.modified()).ok();
        let open = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(state_file::flags())
            .open(file)
            .at(file)?;
        let last = last.and_then(|at| {
            let since = at.duration_since(UNIX_EPOCH).ok()?;
            Some(Time(i64::try_from(since.as_nanos()).ok()?))
        });
        let alive = Self {
            file: open,
            last: Mutex::default(),
            lock: identity(&lock).map(|identity| (lock, identity)),
            shutdown,
        };
        Ok((alive, last))
    }

    /// Something happened: alive until now.
    pub fn something_happened(&self) {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| last.elapsed() >= NOT_AGAIN_FOR) {
            self.beat();
        }
    }

    /// Alive until now at least.
    pub fn beat(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        if let Err(e) = self.file.set_modified(SystemTime::now()) {
            tracing::warn!("when this daemon lived last isn't kept: {e}");
        }
        if let Some((lock, ours)) = &self.lock
            && identity(lock).is_some_and(|now| now != *ours)
            && !self.shutdown.is_cancelled()
        {
            tracing::error!(
                "{} is another file now: a second daemon may serve this state; this one ends",
                lock.display()
            );
            self.shutdown.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_whose_lock_is_another_file_ends() {
        let dir = tempfile::tempdir().unwrap();
        let [file, lock] = ["alive", "lock"].map(|name| dir.path().join(name));
        // Its daemon has it open.
        let _held = File::create(&lock).unwrap();
        let shutdown = CancellationToken::new();
        let (alive, _) = Alive::open(&file, lock.clone(), shutdown.clone()).unwrap();
        alive.beat();
        std::fs::remove_file(&lock).unwrap();
        alive.beat();
        assert!(!shutdown.is_cancelled(), "nobody else is there");
        std::fs::write(dir.path().join("new"), "").unwrap();
        std::fs::rename(dir.path().join("new"), &lock).unwrap();
        alive.beat();
        assert!(shutdown.is_cancelled());
    }
}
