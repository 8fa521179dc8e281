//! What a scan may take in: how large a directory may be at its first look, and how much new there may be.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Files up to so many bytes are captured also when there is no room left: source code, in practice.
pub const SMALL_BYTES: u64 = 1 << 20;

/// The limits of one scan; by default none.
#[derive(Debug, Default)]
pub struct Limits {
    /// Room for new contents.
    pub room: Option<Room>,
    /// How much there may be in all.
    pub census: Option<Census>,
}

/// Room for new contents, shared by the threads of a scan.
#[derive(Debug)]
pub struct Room(AtomicU64);

impl Room {
    /// For so many bytes.
    #[must_use]
    pub const fn of(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }

    /// Takes room for a file's contents; whether there was enough. Small ones always fit.
    pub fn take(&self, bytes: u64) -> bool {
        bytes <= SMALL_BYTES
            || self
                .0
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(bytes)
                })
                .is_ok()
    }
}

/// Counts what is captured, and fails a scan that comes to more than was agreed on.
#[derive(Debug)]
pub struct Census {
    /// The directory, for the error.
    pub path: PathBuf,
    /// At most so many files.
    pub files_max: u64,
    /// At most so many bytes in them.
    pub bytes_max: u64,
    /// Counted so far.
    pub files: AtomicU64,
    /// Counted so far.
    pub bytes: AtomicU64,
}

impl Census {
    /// A file of so many bytes is to be captured.
    ///
    /// # Errors
    /// [`Error::RefusedRoot`] when it is one too many.
    pub fn count(&self, bytes: u64) -> Result<()> {
        let files = self.files.fetch_add(1, Ordering::Relaxed) + 1;
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let why = if files > self.files_max {
            format!("it has more than {} files", self.files_max)
        } else if bytes > self.bytes_max {
            format!(
                "its files have more than the {} MiB that a store may use",
                self.bytes_max >> 20
            )
        } else {
            return Ok(());
        };
        Err(Error::RefusedRoot {
            path: self.path.clone(),
            why,
            hint: "ignore what needn't be kept (in .gitignore or .stepbackignore), or use --force".into(),
        })
    }
}
