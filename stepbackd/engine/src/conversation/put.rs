//! Brings files of agents to a recorded state, in place: an inode that a process may know stays the same. The one place
//! that writes in the agents' directories, and, of aider's two files, in a root.
//!
//! Only plain files of ours are touched, no part of a path is followed through a link, and a file that isn't as it was
//! looked at is left. Every step may be done again after a crash.

use std::fs::{File, FileTimes, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::chunks;
use super::look::{check_owned, stamp};
use super::record::Part;
use crate::fault;
use crate::path::TreePath;
use crate::root::Stat;
use crate::store::Store;

const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

/// What can go wrong: with the agent's file, or with the store.
pub(super) enum Trouble {
    File(io::Error),
    Store(crate::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl From<crate::Error> for Trouble {
    fn from(error: crate::Error) -> Self {
        Self::Store(error)
    }
}

/// Opens the directory of `path` below `dir`, made where it is missing.
fn parent(dir: &Path, path: &TreePath, make: bool) -> io::Result<OwnedFd> {
    let mut at = nix::fcntl::open(dir, DIRECTORY, Mode::empty())?;
    let (above, _) = path.split_last().unwrap_or((TreePath::root(), b""));
    for part in above.parts() {
        at = match openat(&at, part, DIRECTORY, Mode::empty()) {
            Err(Errno::ENOENT) if make => {
                fault::point("talk.mkdir")?;
                mkdirat(&at, part, Mode::S_IRWXU)?;
                openat(&at, part, DIRECTORY, Mode::empty())?
            }
            other => other?,
        };
    }
    Ok(at)
}

fn name(path: &TreePath) -> &[u8] {
    path.split_last().map_or(b".", |(_, name)| name)
}

fn open_existing(dir: impl AsFd, name: &[u8]) -> io::Result<Option<File>> {
    let flags = OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    match openat(dir, name, flags, Mode::empty()) {
        Ok(file) => Ok(Some(file.into())),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn create(dir: impl AsFd, name: &[u8]) -> io::Result<File> {
    fault::point("talk.create")?;
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(openat(dir, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?.into())
}

/// Makes a file the first `len` bytes of `part`, with its mode and time. `present`: what it was when it was saved; `None`:
/// it wasn't there.
pub(super) fn file(
    dir: &Path,
    store: &Store,
    part: &Part,
    len: u64,
    present: Option<&Part>,
) -> Result<(), Trouble> {
    let above = parent(dir, &part.path, true)?;
    let name = name(&part.path);
    let file = match (open_existing(&above, name)?, present) {
        (Some(file), Some(present)) => {
            check_unchanged(&file, present)?;
            file
        }
        (None, _) => create(&above, name)?,
        (Some(_), None) => return Err(io::Error::other("it is there, and couldn't be saved before").into()),
    };
    let stat = Stat::of(&file)?;
    if stat.nlink > 1 {
        return Err(io::Error::other("it has more than one name").into());
    }
    write(&file, store, part, len, present)?;
    // What its owner has closed to others since stays closed.
    let mode = present.map_or(part.mode, |_| part.mode & stat.mode & 0o7777);
    if stat.mode & 0o7777 != mode {
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    file.set_times(FileTimes::new().set_modified(time(part.mtime_ns)))?;
    file.sync_all()?;
    if present.is_none() {
        File::from(above).sync_all()?;
    }
    Ok(())
}

/// Compares, writes what differs, cuts. Pieces at the beginning that `present` has are there: they were read just now.
fn write(file: &File, store: &Store, part: &Part, len: u64, present: Option<&Part>) -> Result<(), Trouble> {
    let size = file.metadata()?.len();
    let known = present.map_or(&[][..], |present| &present.chunks);
    let shared = part.chunks.iter().zip(known).take_while(|(a, b)| a == b).count();
    let mut at = chunks::total(&part.chunks[..shared]);
    let mut there = Vec::new();
    let left = len.saturating_sub(at);
    chunks::read(store, &part.chunks[shared..], left, &mut |bytes| {
        there.resize(bytes.len(), 0);
        let same = at + bytes.len() as u64 <= size && {
            file.read_exact_at(&mut there, at)?;
            there == bytes
        };
        if !same {
            fault::point("talk.write")?;
            file.write_all_at(bytes, at)?;
        }
        at += bytes.len() as u64;
        Ok(())
    })??;
    if file.metadata()?.len() != len {
        fault::point("talk.cut")?;
        file.set_len(len)?;
    }
    Ok(())
}

fn check_unchanged(file: &File, present: &Part) -> io::Result<()> {
    let stat = Stat::of(file)?;
    check_owned(&stat)?;
    if stamp(&stat) != present.stamp {
        return Err(io::Error::other("it was written to just now"));
    }
    Ok(())
}

/// Removes a file that is as it was when it was saved.
pub(super) fn remove(dir: &Path, present: &Part) -> io::Result<()> {
    let above = match parent(dir, &present.path, false) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let name = name(&present.path);
    let Some(file) = open_existing(&above, name)? else {
        return Ok(());
    };
    check_unchanged(&file, present)?;
    fault::point("talk.remove")?;
    unlinkat(&above, name, UnlinkatFlags::NoRemoveDir)?;
    File::from(above).sync_all()
}

/// Writes a new file; it must not be there.
pub(super) fn new_file(
    dir: &Path,
    path: &TreePath,
    mode: u32,
    fill: &mut dyn FnMut(&mut File) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let above = parent(dir, path, true)?;
    let mut file = create(&above, name(path))?;
    let filled = fill(&mut file);
    if filled.is_err() {
        // Ours, and nobody knows it yet.
        let _ = unlinkat(&above, name(path), UnlinkatFlags::NoRemoveDir);
        return filled;
    }
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()?;
    File::from(above).sync_all()?;
    Ok(())
}

fn time(ns: i64) -> SystemTime {
    let span = Duration::from_nanos(ns.unsigned_abs());
    if ns >= 0 {
        UNIX_EPOCH + span
    } else {
        UNIX_EPOCH - span
    }
}
