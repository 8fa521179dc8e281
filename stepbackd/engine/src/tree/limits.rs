//! What a scan may take in: how large a directory may be at its first look, and how much new there may be.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Of what is kept for small changes when there is no other room left, one file takes at most one part of so many: large
/// files find no place there soon, and an edit of source code does for long.
const SMALL_SHARE: u64 = 16;

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
pub struct Room {
    /// For whatever comes.
    any: AtomicU64,
    /// For small changes, when the other is used up.
    small: AtomicU64,
}

impl Room {
    /// For so many bytes, and so many more of small changes.
    #[must_use]
    pub const fn of(any: u64, small: u64) -> Self {
        Self {
            any: AtomicU64::new(any),
            small: AtomicU64::new(small),
        }
    }

    /// Takes room for a file's contents; whether there was enough.
    pub fn take(&self, bytes: u64) -> bool {
        let fits = |left: u64| left.checked_sub(bytes);
        let is_small = |left: u64| fits(left).filter(|_| bytes <= left / SMALL_SHARE);
        take_from(&self.any, fits) || take_from(&self.small, is_small)
    }

    /// The contents of which so many bytes were taken room for are in the store already.
    pub fn give_back(&self, bytes: u64) {
        self.any.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn take_from(left: &AtomicU64, without: impl Fn(u64) -> Option<u64>) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, without)
        .is_ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_changes_find_room_for_long_and_never_more_than_there_is() {
        let room = Room::of(1_000, 16_000);
        assert!(room.take(900));
        assert!(!room.take(1_001), "more than a sixteenth");
        assert!(room.take(1_000), "a small change");
        let taken: u64 = (0..1_000).map(|_| if room.take(900) { 900 } else { 0 }).sum();
        assert!(taken <= 2_000, "{taken}");
        assert!((0..500).all(|_| room.take(2)), "an edit still has room");
        let left = room.small.load(Ordering::Relaxed);
        assert!((0..100_000).filter(|_| room.take(1)).count() as u64 <= left);
        let none = Room::of(0, 0);
        assert!(!none.take(1));
    }
}
