//! Small files of our own that are whole or absent, also after a power loss.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::error::{At, Result};
use crate::fault;

/// Fault points of a write, by the names of whoever writes.
pub struct Points {
    /// Before anything is written.
    pub write: &'static str,
    /// Before the contents are synced.
    pub fsync: &'static str,
    /// Before the new file takes its place.
    pub rename: &'static str,
    /// Before that is durable.
    pub fsync_dir: &'static str,
}

/// Writes `bytes` to `path`: to a temporary file beside it, synced, renamed over it, the directory synced. After a crash
/// the file is the old one or the new one.
///
/// # Errors
/// What the system says, with the path; then the old file stands.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    write_with(path, bytes, None)
}

/// As [`write`], and can be made to fail at `points`.
///
/// # Errors
/// As [`write`].
pub fn write_with(path: &Path, bytes: &[u8], points: Option<&Points>) -> Result<()> {
    let at = |name: fn(&Points) -> &'static str| points.map_or(Ok(()), |points| fault::point(name(points)));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    let result = (|| {
        at(|points| points.write)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(bytes)?;
        at(|points| points.fsync)?;
        file.sync_all()?;
        at(|points| points.rename)?;
        fs::rename(&temporary, path)
    })();
    if result.is_err() {
        // The error that matters is the first one; a leftover is overwritten by the next write.
        let _ = fs::remove_file(&temporary);
    }
    result.at(path)?;
    at(|points| points.fsync_dir).at(path)?;
    sync_dir_of(path)
}

/// Syncs the directory that holds `path`, so that a rename or removal in it is durable.
///
/// # Errors
/// What the system says, with the path.
pub fn sync_dir_of(path: &Path) -> Result<()> {
    sync_dir(path.parent().unwrap_or(path))
}

/// Syncs a directory.
///
/// # Errors
/// What the system says, with the path.
pub fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|dir| dir.sync_all()).at(dir)
}
