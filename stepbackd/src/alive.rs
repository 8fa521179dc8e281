//! Until when the daemon lived: the modification time of `STATE/alive`, set now and then. So the next one can say since
//! when nothing was watched.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use stepback_engine::time::Time;

use crate::error::{At, Result};

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
}

impl Alive {
    /// Opens it; also tells until when the last daemon lived, if there was one.
    ///
    /// # Errors
    /// When it can't be opened.
    pub fn open(file: &Path) -> Result<(Self, Option<Time>)> {
        let last = file.metadata().and_then(|metadata| metadata.modified()).ok();
        let open = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(file)
            .at(file)?;
        let last = last.and_then(|at| {
            let since = at.duration_since(UNIX_EPOCH).ok()?;
            Some(Time(i64::try_from(since.as_nanos()).ok()?))
        });
        let alive = Self {
            file: open,
            last: Mutex::default(),
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
    }
}
