//! How much disk a store uses, known without walking it: measured now and then, and counted on by whoever writes. All open
//! [`Store`](super::Store)s of one directory in this process share a number.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::files;
use crate::error::Result;

/// Disk blocks are this large, or a file's last one is counted so.
const BLOCK_BYTES: u64 = 4096;

static KNOWN: Mutex<BTreeMap<PathBuf, Arc<Size>>> = Mutex::new(BTreeMap::new());

/// The size of one store in bytes; 0 until it is measured.
#[derive(Debug, Default)]
pub struct Size(AtomicU64);

fn known() -> MutexGuard<'static, BTreeMap<PathBuf, Arc<Size>>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Size {
    /// That of the store in `dir`.
    pub fn of(dir: &Path) -> Arc<Self> {
        Arc::clone(known().entry(dir.to_owned()).or_default())
    }

    /// As far as it is known, in bytes.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// A file of so many bytes was added.
    pub fn add_file(&self, bytes: u64) {
        let blocks = bytes.div_ceil(BLOCK_BYTES).max(1) * BLOCK_BYTES;
        self.0.fetch_add(blocks, Ordering::Relaxed);
    }

    /// It was measured.
    pub fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }
}

/// Measures the store in `dir`; gives its disk use in bytes.
///
/// # Errors
/// When it can't be walked.
pub fn measure(dir: &Path) -> Result<u64> {
    let bytes = files::disk_bytes(dir)?;
    Size::of(dir).set(bytes);
    Ok(bytes)
}

/// Of all stores in `dir` that are known here, in bytes. Those that are gone count no longer.
#[must_use]
pub fn total(dir: &Path) -> u64 {
    let below = |path: &Path| path.parent() == Some(dir);
    known()
        .iter()
        .filter(|(path, _)| below(path))
        .map(|(_, size)| size.get())
        .sum()
}

/// That of the store in `dir`, as far as it is known, in bytes.
#[must_use]
pub fn known_of(dir: &Path) -> u64 {
    known().get(dir).map_or(0, |size| size.get())
}

/// The store in `dir` is gone.
pub fn forget(dir: &Path) {
    known().remove(dir);
}

/// What is free on the file system of `path` for this user, and how much it has in all, in bytes.
///
/// # Errors
/// What the system says.
pub fn free_and_all(path: &Path) -> Result<(u64, u64)> {
    use crate::error::At;
    let stats = nix::sys::statvfs::statvfs(path).at(path)?;
    let unit = stats.fragment_size();
    #[allow(clippy::useless_conversion, reason = "the widths differ between systems")]
    let bytes = |blocks| u64::from(blocks).saturating_mul(unit);
    Ok((bytes(stats.blocks_available()), bytes(stats.blocks())))
}
