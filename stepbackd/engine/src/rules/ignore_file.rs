//! Reading the ignore files of a directory.

use std::io::{self, Read};
use std::path::Path;

use nix::errno::Errno;

use super::pattern::Patterns;
use crate::error::{Error, Result};
use crate::root::{DirHandle, FileType, Stat};

/// Git's name for ignore files.
pub(super) const GIT: &[u8] = b".gitignore";
/// Ours.
pub(super) const STEPBACK: &[u8] = b".stepbackignore";

/// Larger ones count as absent, as for git. In bytes.
pub(super) const SIZE_MAX: u64 = 100 << 20;

/// Reads an ignore file of an open directory. One that is absent, or isn't a regular file, has no patterns, as for git.
/// `shown` names the directory in an error.
///
/// # Errors
/// [`Error::Rules`] when it is there and can't be read.
pub(super) fn read(dir: &DirHandle, name: &[u8], shown: &Path) -> Result<Patterns> {
    match read_bytes(dir, name) {
        Ok(text) => Ok(Patterns::parse(&text)),
        Err(error) => Err(Error::Rules {
            path: shown.join(String::from_utf8_lossy(name).as_ref()),
            why: format!("this file of ignore rules can't be read: {error}"),
        }),
    }
}

fn read_bytes(dir: &DirHandle, name: &[u8]) -> io::Result<Vec<u8>> {
    let mut file = match dir.open_file(name) {
        Ok(file) => file,
        Err(error) => {
            return match error.raw_os_error().map(Errno::from_raw) {
                // Absent, a link, a socket.
                Some(Errno::ENOENT | Errno::ELOOP | Errno::ENXIO | Errno::EMLINK) => Ok(Vec::new()),
                _ => Err(error),
            };
        }
    };
    let stat = Stat::of(&file)?;
    let mut text = Vec::new();
    if stat.kind == FileType::File && stat.size <= SIZE_MAX {
        file.read_to_end(&mut text)?;
    }
    Ok(text)
}
