//! Files that are the old one or the new one, never half of it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::{At, Result};

/// Writes `text` to `file`: to a temporary file beside it, synced, renamed over it. Directories on the way are made. `mode`
/// is that of the new file, less the umask.
///
/// # Errors
/// When a step fails; then the old file stands.
pub fn write(file: &Path, text: &str, mode: u32) -> Result<()> {
    write_if(file, text, mode, || Ok(()))
}

/// Likewise, if `last`, which is asked right before the rename, has nothing against it.
///
/// # Errors
/// As [`write`]; what `last` says.
pub fn write_if(file: &Path, text: &str, mode: u32, last: impl FnOnce() -> Result<()>) -> Result<()> {
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir).at(dir)?;
    }
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = PathBuf::from(name);
    let filled = (|| {
        let mut to = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&temporary)?;
        to.write_all(text.as_bytes())?;
        to.sync_all()
    })();
    let written = filled
        .at(file)
        .and_then(|()| last())
        .and_then(|()| fs::rename(&temporary, file).at(file));
    if written.is_err() {
        // The first error is the one to tell; the file is ours and useless.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Removes a file; one that isn't there is fine.
///
/// # Errors
/// When it is there and stays.
pub fn remove(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e).at(file),
        _ => Ok(()),
    }
}
