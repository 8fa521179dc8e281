//! Files of the user's outside what is captured: a repository's own, settings. Links are followed, as git does, but what
//! stands there is believed to be anything: a FIFO must not hold us up, nor a device or a huge file fill the memory.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

use crate::root::{FileType, Stat};

/// A small file is no larger, in bytes.
const SMALL_BYTES_MAX: u64 = 64 * 1024;

/// No line of a text that is read line by line is longer, in bytes.
const LINE_BYTES_MAX: u64 = 16 * 1024;

/// Opens what stands at `path`, whatever it is, without waiting for it.
///
/// # Errors
/// What the system says.
pub(crate) fn open_any(path: &Path) -> io::Result<(File, Stat)> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).bits())
        .open(path)?;
    let stat = Stat::of(&file)?;
    Ok((file, stat))
}

/// Opens a regular file.
///
/// # Errors
/// What the system says; `InvalidInput` for anything else than a regular file.
pub(crate) fn open(path: &Path) -> io::Result<(File, Stat)> {
    let (file, stat) = open_any(path)?;
    if stat.kind == FileType::File {
        Ok((file, stat))
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file",
        ))
    }
}

/// Reads a small regular file.
///
/// # Errors
/// As [`open`]; `FileTooLarge` above 64 KiB.
pub(crate) fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    let (file, _) = open(path)?;
    let mut bytes = Vec::new();
    file.take(SMALL_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > SMALL_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "it is larger than 64 KiB",
        ));
    }
    Ok(bytes)
}

/// Reads a text of the user's settings of at most 64 KiB; `/dev/null` is an empty one.
///
/// # Errors
/// As [`open`]; `FileTooLarge` above 64 KiB, `InvalidData` when it isn't UTF-8.
pub fn read_settings(path: &Path) -> io::Result<String> {
    let bytes = match read_small(path) {
        Err(e) if e.kind() == io::ErrorKind::InvalidInput && is_null(path) => return Ok(String::new()),
        other => other?,
    };
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it isn't UTF-8"))
}

/// Whether `path` leads to `/dev/null`, where people link what shall be empty.
pub(crate) fn is_null(path: &Path) -> bool {
    std::fs::canonicalize(path).is_ok_and(|path| path == Path::new("/dev/null"))
}

/// The first line of a regular file that `pick` takes; `None` when none is, the file can't be read, or a line is too long.
pub(crate) fn find_line<T>(path: &Path, mut pick: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    let mut text = BufReader::new(open(path).ok()?.0);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = text
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)
            .ok()?;
        if read == 0 || read as u64 == LINE_BYTES_MAX {
            return None;
        }
        if let Some(found) = pick(line.trim_ascii_end()) {
            return Some(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn only_small_regular_files() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        symlink("/dev/null", at("null")).unwrap();
        File::create(at("huge")).unwrap().set_len(1 << 40).unwrap();
        fs::write(at("small"), "text").unwrap();
        symlink("small", at("link")).unwrap();
        for (name, kind) in [
            ("fifo", io::ErrorKind::InvalidInput),
            ("zero", io::ErrorKind::InvalidInput),
            ("huge", io::ErrorKind::FileTooLarge),
            (".", io::ErrorKind::InvalidInput),
            ("none", io::ErrorKind::NotFound),
        ] {
            assert_eq!(read_small(&at(name)).unwrap_err().kind(), kind, "{name}");
            assert_eq!(read_settings(&at(name)).unwrap_err().kind(), kind, "{name}");
            assert_eq!(find_line(&at(name), |_| Some(())), None, "{name}");
        }
        assert_eq!(read_small(&at("link")).unwrap(), b"text");
        assert_eq!(read_settings(&at("null")).unwrap(), "");
    }

    #[test]
    fn lines() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lines");
        fs::write(&file, "one\ntwo").unwrap();
        assert_eq!(find_line(&file, |line| (line == b"two").then_some(2)), Some(2));
        assert_eq!(find_line(&file, |line| (line == b"three").then_some(3)), None);
    }
}
