//! Small files of STATE. They are our own, but what stands there may be anything: a FIFO must not hold up a start, and a start
//! that can't work says what is in its way.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

use crate::error::{At, Error, Result};

/// With it nothing is waited for: a FIFO that nobody reads is an error, and a regular file is as without it.
pub fn flags() -> i32 {
    (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits()
}

/// Reads a regular file.
///
/// # Errors
/// What the system says; `InvalidInput` for anything else than a regular file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = OpenOptions::new().read(true).custom_flags(flags()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file",
        ));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// That `path` is a regular file, or nothing yet.
///
/// # Errors
/// With the remedy, when something else is there.
pub fn check(path: &Path) -> Result<()> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(_) => Err(in_the_way(path, "is not a regular file")),
        Err(e) if e.kind() == io::ErrorKind::NotFound && path.is_symlink() => {
            Err(in_the_way(path, "is a link to nothing"))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e).at(path),
    }
}

/// The error that something else than what is wanted stands at `path`.
pub fn in_the_way(path: &Path, what: &str) -> Error {
    Error::refused(
        format!("{} {what}", path.display()),
        format!("move {} away", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn only_regular_files_are_read_and_nothing_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "x").unwrap();
        fs::create_dir(at("dir")).unwrap();
        mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        std::os::unix::fs::symlink("nothing", at("dangling")).unwrap();
        for good in ["file", "link"] {
            assert_eq!(read(&at(good)).unwrap(), b"x");
            check(&at(good)).unwrap();
        }
        check(&at("absent")).unwrap();
        assert_eq!(read(&at("absent")).unwrap_err().kind(), io::ErrorKind::NotFound);
        for bad in ["dir", "fifo", "dangling"] {
            read(&at(bad)).unwrap_err();
            let refused = check(&at(bad)).unwrap_err();
            assert!(refused.hint().contains(bad), "{refused}");
        }
        let mut to = OpenOptions::new();
        to.write(true).custom_flags(flags()).open(at("fifo")).unwrap_err();
    }
}
