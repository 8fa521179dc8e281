//! The list of a directory, read through its own descriptor from the beginning: one call for each buffer of it. The C
//! library's stream would open the directory once more and ask for its stat and flags.

use std::io;
use std::os::fd::OwnedFd;

use super::FileType;

/// Names with types, as far as they are told.
type Entries = Vec<(Vec<u8>, Option<FileType>)>;

/// Room for some hundred entries, on the stack.
#[cfg(target_os = "linux")]
const BUFFER_BYTES: usize = 16 * 1024;

#[cfg(target_os = "linux")]
pub(super) fn entries(dir: &OwnedFd) -> io::Result<Entries> {
    use rustix::fs::{FileType as Type, RawDir, SeekFrom, seek};
    use rustix::io::Errno;

    seek(dir, SeekFrom::Start(0))?;
    let mut buffer = [std::mem::MaybeUninit::uninit(); BUFFER_BYTES];
    let mut list = RawDir::new(dir, &mut buffer);
    let mut entries = Vec::new();
    while let Some(entry) = list.next() {
        let entry = match entry {
            // It was removed, so it was empty; the C library's stream ends then, too.
            Err(Errno::NOENT) => break,
            entry => entry?,
        };
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let kind = match entry.file_type() {
            Type::RegularFile => Some(FileType::File),
            Type::Symlink => Some(FileType::Link),
            Type::Directory => Some(FileType::Dir),
            Type::Fifo => Some(FileType::Fifo),
            Type::Socket | Type::CharacterDevice | Type::BlockDevice => Some(FileType::Special),
            _ => None,
        };
        entries.push((name.to_vec(), kind));
    }
    Ok(entries)
}

/// Elsewhere through the C library, which wants a descriptor for itself.
#[cfg(not(target_os = "linux"))]
pub(super) fn entries(dir: &OwnedFd) -> io::Result<Entries> {
    use nix::dir::{Dir, Type};
    use nix::sys::stat::Mode;

    let mut list = Dir::openat(dir, c".", super::DIRECTORY, Mode::empty())?;
    let mut entries = Vec::new();
    for entry in list.iter() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let kind = entry.file_type().map(|kind| match kind {
            Type::File => FileType::File,
            Type::Symlink => FileType::Link,
            Type::Directory => FileType::Dir,
            Type::Fifo => FileType::Fifo,
            Type::Socket | Type::CharacterDevice | Type::BlockDevice => FileType::Special,
        });
        entries.push((name.to_vec(), kind));
    }
    Ok(entries)
}
