//! The system calls that change something below a root, and the few that look: all of them, and nothing else. Each
//! takes an open directory and one name in it, never a path, and passes a fault point that the caller names.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, fstatat, mkdirat};
use nix::unistd::{
    AccessFlags, Gid, Uid, UnlinkatFlags, faccessat, fchown, fchownat, mkfifoat, symlinkat, syncfs, unlinkat,
};

use crate::fault;
use crate::path::TreePath;
use crate::root::{DirHandle, Stat};

/// `lstat` of a name in a directory; `None` when nothing is there.
pub(super) fn stat(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Stat>> {
    match fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat.into())),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Opens a directory below the root to work in, part by part, never through a link. Fails with `ENOENT`, `ENOTDIR` or
/// `ELOOP` when there is no such directory.
pub(super) fn open_parent(root: &DirHandle, path: &TreePath) -> io::Result<OwnedFd> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | path_only();
    if path.is_root() {
        return Ok(openat(root, ".", flags, Mode::empty())?);
    }
    if let Some(opened) = open_beneath_at_once(root, path, flags) {
        return opened;
    }
    let mut dir: Option<OwnedFd> = None;
    for part in path.parts() {
        let above = dir.as_ref().map_or(root.as_fd(), |dir| dir.as_fd());
        dir = Some(openat(above, part, flags | OFlag::O_NOFOLLOW, Mode::empty())?);
    }
    Ok(dir.expect("a path that isn't the root has a part"))
}

#[cfg(target_os = "linux")]
fn path_only() -> OFlag {
    OFlag::O_PATH
}

#[cfg(not(target_os = "linux"))]
fn path_only() -> OFlag {
    OFlag::O_RDONLY
}

/// One system call for all parts. `None` where the kernel or a sandbox doesn't know it, or can't answer just now.
#[cfg(target_os = "linux")]
fn open_beneath_at_once(root: &DirHandle, path: &TreePath, flags: OFlag) -> Option<io::Result<OwnedFd>> {
    use nix::fcntl::{OpenHow, ResolveFlag, openat2};
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    match openat2(
        root,
        path.as_bytes(),
        OpenHow::new().flags(flags).resolve(resolve),
    ) {
        Err(
            Errno::ENOSYS | Errno::EPERM | Errno::E2BIG | Errno::EINVAL | Errno::EAGAIN | Errno::ENAMETOOLONG,
        ) => None,
        other => Some(other.map_err(io::Error::from)),
    }
}

#[cfg(not(target_os = "linux"))]
fn open_beneath_at_once(_: &DirHandle, _: &TreePath, _: OFlag) -> Option<io::Result<OwnedFd>> {
    None
}

/// Opens a directory to list it, change its mode or sync it.
pub(super) fn open_dir(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(openat(dir, name, flags, Mode::empty())?.into())
}

/// Opens a file or FIFO to read it, without waiting.
pub(super) fn open_file(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    Ok(openat(dir, name, flags, Mode::empty())?.into())
}

pub(super) fn read_link(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt;
    Ok(nix::fcntl::readlinkat(dir, name)?.into_vec())
}

/// Whether entries may be made and removed in this directory.
pub(super) fn check_writable(dir: BorrowedFd<'_>) -> io::Result<()> {
    Ok(faccessat(
        dir,
        ".",
        AccessFlags::W_OK | AccessFlags::X_OK,
        AtFlags::AT_EACCESS,
    )?)
}

/// `EPERM` for an immutable file, `EROFS` for one on a read-only mount; other refusals don't hinder a rename.
pub(super) fn check_replaceable(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    match faccessat(
        dir,
        name,
        AccessFlags::W_OK,
        AtFlags::AT_EACCESS | AtFlags::AT_SYMLINK_NOFOLLOW,
    ) {
        Err(errno @ (Errno::EPERM | Errno::EROFS)) => Err(errno.into()),
        _ => Ok(()),
    }
}

pub(super) fn create_file(point: &'static str, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<File> {
    fault::point(point)?;
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(openat(dir, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?.into())
}

/// Makes a directory that only the owner may use.
pub(super) fn make_dir(point: &'static str, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    fault::point(point)?;
    Ok(mkdirat(dir, name, Mode::S_IRWXU)?)
}

/// Asks the file system to place each directory that will be made in this one where there is much room, not near it. ext4 does
/// (`EXT4_TOPDIR_FL`; the place follows from the name), and puts the files of a directory where the directory is. For some minutes it
/// passes over every inode that was freed lately, one by one, whenever a file is made near them (`recently_deleted` in
/// fs/ext4/ialloc.c): after 16,000 deletions a file was seen to take 0.5 ms instead of 0.03. Other file systems refuse, and need
/// no such thing.
#[cfg(target_os = "linux")]
pub(super) fn spread_dirs(dir: &File) {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let _ = ioctl_getflags(dir).and_then(|flags| ioctl_setflags(dir, flags | IFlags::TOPDIR));
}

#[cfg(not(target_os = "linux"))]
pub(super) fn spread_dirs(_: &File) {}

pub(super) fn make_link(
    point: &'static str,
    target: &[u8],
    dir: BorrowedFd<'_>,
    name: &[u8],
) -> io::Result<()> {
    fault::point(point)?;
    Ok(symlinkat(target, dir, name)?)
}

pub(super) fn make_fifo(point: &'static str, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    fault::point(point)?;
    Ok(mkfifoat(dir, name, Mode::S_IRUSR | Mode::S_IWUSR)?)
}

/// Where a name is.
#[derive(Clone, Copy)]
pub(super) struct At<'a>(pub BorrowedFd<'a>, pub &'a [u8]);

/// Exchanges two entries at one instant. `false`: this file system can't.
pub(super) fn exchange(point: &'static str, a: At<'_>, b: At<'_>) -> io::Result<bool> {
    fault::point(point)?;
    rename::exchange(a, b)
}

/// Renames, unless something is at the new place (`EEXIST`). On a file system that can't refuse at one instant, looks
/// first.
pub(super) fn rename_new(point: &'static str, from: At<'_>, to: At<'_>) -> io::Result<()> {
    fault::point(point)?;
    if rename::no_replace(from, to)? {
        return Ok(());
    }
    if stat(to.0, to.1)?.is_some() {
        return Err(Errno::EEXIST.into());
    }
    Ok(nix::fcntl::renameat(from.0, from.1, to.0, to.1)?)
}

/// Renames over whatever is there.
pub(super) fn rename_over(point: &'static str, from: At<'_>, to: At<'_>) -> io::Result<()> {
    fault::point(point)?;
    Ok(nix::fcntl::renameat(from.0, from.1, to.0, to.1)?)
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod rename {
    use super::{At, Errno, io};
    use nix::fcntl::{RenameFlags, renameat2};

    pub(super) fn exchange(a: At<'_>, b: At<'_>) -> io::Result<bool> {
        with_flags(a, b, RenameFlags::RENAME_EXCHANGE)
    }

    pub(super) fn no_replace(a: At<'_>, b: At<'_>) -> io::Result<bool> {
        with_flags(a, b, RenameFlags::RENAME_NOREPLACE)
    }

    fn with_flags(a: At<'_>, b: At<'_>, flags: RenameFlags) -> io::Result<bool> {
        match renameat2(a.0, a.1, b.0, b.1, flags) {
            Ok(()) => Ok(true),
            Err(Errno::EINVAL | Errno::ENOSYS | Errno::ENOTSUP) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod rename {
    use super::{At, io};

    pub(super) fn exchange(_: At<'_>, _: At<'_>) -> io::Result<bool> {
        Ok(false)
    }

    pub(super) fn no_replace(_: At<'_>, _: At<'_>) -> io::Result<bool> {
        Ok(false)
    }
}

/// Removes a file, link or FIFO.
pub(super) fn unlink(point: &'static str, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    fault::point(point)?;
    Ok(unlinkat(dir, name, UnlinkatFlags::NoRemoveDir)?)
}

pub(super) fn remove_dir(point: &'static str, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    fault::point(point)?;
    Ok(unlinkat(dir, name, UnlinkatFlags::RemoveDir)?)
}

pub(super) fn chmod_open(point: &'static str, file: impl AsFd, bits: u32) -> io::Result<()> {
    fault::point(point)?;
    Ok(nix::sys::stat::fchmod(file, Mode::from_bits_truncate(bits))?)
}

/// Of a directory; not through a link.
pub(super) fn chmod_dir(point: &'static str, dir: BorrowedFd<'_>, name: &[u8], bits: u32) -> io::Result<()> {
    fault::point(point)?;
    Ok(fchmodat(
        dir,
        name,
        Mode::from_bits_truncate(bits),
        FchmodatFlags::NoFollowSymlink,
    )?)
}

pub(super) fn chown_open(point: &'static str, file: impl AsFd, uid: u32, gid: u32) -> io::Result<()> {
    fault::point(point)?;
    Ok(fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?)
}

/// Of a link itself.
pub(super) fn chown_link(
    point: &'static str,
    dir: BorrowedFd<'_>,
    name: &[u8],
    uid: u32,
    gid: u32,
) -> io::Result<()> {
    fault::point(point)?;
    let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    Ok(fchownat(dir, name, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW)?)
}

pub(super) fn sync_file(point: &'static str, file: &File) -> io::Result<()> {
    fault::point(point)?;
    file.sync_all()
}

/// Everything written to the file system that holds this directory.
pub(super) fn sync_file_system(point: &'static str, dir: BorrowedFd<'_>) -> io::Result<()> {
    fault::point(point)?;
    #[cfg(target_os = "linux")]
    return Ok(syncfs(dir)?);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = dir;
        nix::unistd::sync();
        Ok(())
    }
}
