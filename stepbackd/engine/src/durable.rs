//! Small files of our own that are whole or absent, also after a power loss.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::error::{At, Result};

/// Writes `bytes` to `path`: to a temporary file beside it, synced, renamed over it, the directory synced. After a crash
/// the file is the old one or the new one.
///
/// # Errors
/// What the system says, with the path; then the old file stands.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    let result = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    })();
    if result.is_err() {
        // The error that matters is the first one; a leftover is overwritten by the next write.
        let _ = fs::remove_file(&temporary);
    }
    result.at(path)?;
    sync_dir_of(path)
}

/// Syncs the directory that holds `path`, so that a rename or removal in it is durable.
///
/// # Errors
/// What the system says, with the path.
pub fn sync_dir_of(path: &Path) -> Result<()> {
    let dir = path.parent().unwrap_or(path);
    File::open(dir).and_then(|dir| dir.sync_all()).at(dir)
}
