//! Until when the daemon lived: the modification time of `STATE/alive`, set now and then. So the next one can say since
//! when nothing was watched.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use stepback_engine::time::Time;

use crate::error::{At, Result};

/// How often it is set. After a kill, a gap begins up to so much too early.
pub const EVERY: Duration = Duration::from_secs(60);

/// The file, open.
#[derive(Debug)]
pub struct Alive(File);

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
        Ok((Self(open), last))
    }

    /// Alive until now at least.
    pub fn beat(&self) {
        if let Err(e) = self.0.set_modified(SystemTime::now()) {
            tracing::warn!("when this daemon lived last isn't kept: {e}");
        }
    }
}
