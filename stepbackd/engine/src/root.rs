//! A directory of a root, open: everything below it is reached from here, part by part, never through a symbolic link.
//! This file only reads; what writes below a root is in `restore`.
//!
//! Every call is relative to an open directory and names one part, so that a path longer than the system's limit works
//! like any other, and no link that is swapped in on the way leads outside.

mod listing;

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};

use crate::path::TreePath;

/// An open directory.
#[derive(Debug)]
pub struct DirHandle(OwnedFd);

/// Type of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileType {
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A directory.
    Dir,
    /// A FIFO.
    Fifo,
    /// A socket or a device.
    Special,
}

/// What `lstat` says of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Type.
    pub kind: FileType,
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
    /// Bytes.
    pub size: u64,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Status change time, nanoseconds since 1970.
    pub ctime_ns: i64,
    /// Inode number.
    pub ino: u64,
    /// Device.
    pub dev: u64,
    /// Hard links.
    pub nlink: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Stat {
    /// `fstat` of something open.
    ///
    /// # Errors
    /// What the system says.
    pub fn of(open: impl AsFd) -> io::Result<Self> {
        Ok(Self::from(fstat(open)?))
    }
}

#[allow(
    clippy::unnecessary_cast,
    clippy::cast_lossless,
    clippy::useless_conversion,
    reason = "the fields have other widths on other systems"
)]
impl From<FileStat> for Stat {
    fn from(stat: FileStat) -> Self {
        let nanoseconds = |s: i64, ns: i64| s.saturating_mul(1_000_000_000).saturating_add(ns);
        Self {
            kind: match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
                SFlag::S_IFREG => FileType::File,
                SFlag::S_IFLNK => FileType::Link,
                SFlag::S_IFDIR => FileType::Dir,
                SFlag::S_IFIFO => FileType::Fifo,
                _ => FileType::Special,
            },
            mode: stat.st_mode as u32,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mtime_ns: nanoseconds(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            ctime_ns: nanoseconds(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
            ino: stat.st_ino as u64,
            dev: stat.st_dev as u64,
            nlink: stat.st_nlink as u64,
            uid: stat.st_uid,
            gid: stat.st_gid,
        }
    }
}

const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

const FILE: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_NOCTTY)
    .union(OFlag::O_CLOEXEC);

impl DirHandle {
    /// Opens a root itself. `path` is absolute and canonical.
    ///
    /// # Errors
    /// What the system says; a link in the last place is refused.
    pub fn open_root(path: &Path) -> io::Result<Self> {
        Ok(Self(open(path, DIRECTORY, Mode::empty())?))
    }

    /// Opens a directory right below, not through a link.
    ///
    /// # Errors
    /// What the system says; `ENOTDIR` or `ELOOP` for what isn't a directory.
    pub fn open_dir(&self, name: &[u8]) -> io::Result<Self> {
        Ok(Self(openat(&self.0, name, DIRECTORY, Mode::empty())?))
    }

    /// Opens a directory anywhere below (or this one again, for the empty path), part by part.
    ///
    /// # Errors
    /// As [`Self::open_dir`], for the first part that fails.
    pub fn open_beneath(&self, path: &TreePath) -> io::Result<Self> {
        let mut parts = path.parts();
        let mut at = self.open_dir(parts.next().unwrap_or(b"."))?;
        for part in parts {
            at = at.open_dir(part)?;
        }
        Ok(at)
    }

    /// `lstat` of an entry.
    ///
    /// # Errors
    /// What the system says.
    pub fn stat(&self, name: &[u8]) -> io::Result<Stat> {
        Ok(fstatat(&self.0, name, AtFlags::AT_SYMLINK_NOFOLLOW)?.into())
    }

    /// `fstat` of this directory.
    ///
    /// # Errors
    /// What the system says.
    pub fn stat_self(&self) -> io::Result<Stat> {
        Stat::of(&self.0)
    }

    /// The device of this directory, if it is a file system of which it is known that whatever comes to or goes from a
    /// directory changes the directory's ctime at once.
    ///
    /// None elsewhere: what another machine did may show late, and some file systems keep no such time at all.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn file_system_of_listed_times(&self) -> Option<u64> {
        use nix::sys::statfs::{
            BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, F2FS_SUPER_MAGIC, FsType, OVERLAYFS_SUPER_MAGIC,
            TMPFS_MAGIC, XFS_SUPER_MAGIC, fstatfs,
        };
        const KNOWN: [FsType; 6] = [
            BTRFS_SUPER_MAGIC,
            EXT4_SUPER_MAGIC,
            F2FS_SUPER_MAGIC,
            OVERLAYFS_SUPER_MAGIC,
            TMPFS_MAGIC,
            XFS_SUPER_MAGIC,
        ];
        let kind = fstatfs(&self.0).ok()?.filesystem_type();
        KNOWN
            .contains(&kind)
            .then(|| self.stat_self().ok())
            .flatten()
            .map(|stat| stat.dev)
    }

    /// Not known here.
    #[cfg(not(target_os = "linux"))]
    #[must_use]
    pub const fn file_system_of_listed_times(&self) -> Option<u64> {
        None
    }

    /// Names of all entries but `.` and `..`, unsorted, with the type if the file system told it (None: stat it). The handle
    /// has one position in the list, so nobody else may read it meanwhile.
    ///
    /// # Errors
    /// What the system says, also in the middle of the list.
    pub fn entries(&mut self) -> io::Result<Vec<(Vec<u8>, Option<FileType>)>> {
        listing::entries(&self.0)
    }

    /// Opens an entry for reading, not through a link, without waiting (a FIFO doesn't block).
    ///
    /// # Errors
    /// What the system says; `ELOOP` for a link.
    pub fn open_file(&self, name: &[u8]) -> io::Result<File> {
        Ok(openat(&self.0, name, FILE, Mode::empty())?.into())
    }

    /// Target of a link.
    ///
    /// # Errors
    /// What the system says; `EINVAL` for what isn't a link.
    pub fn read_link(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        let name = CString::new(name).map_err(|_| Errno::EINVAL)?;
        Ok(readlinkat(&self.0, name.as_c_str())?.into_vec())
    }
}

impl AsRawFd for DirHandle {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl xattr::FileExt for DirHandle {}

impl AsFd for DirHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn path(text: &str) -> TreePath {
        TreePath::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn nothing_is_reached_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("real/below")).unwrap();
        fs::write(dir.path().join("real/f"), "x").unwrap();
        symlink("real", dir.path().join("link")).unwrap();
        symlink("real/f", dir.path().join("file-link")).unwrap();
        let root = DirHandle::open_root(dir.path()).unwrap();
        assert!(root.open_beneath(&path("real/below")).is_ok());
        assert!(root.open_beneath(&path("link/below")).is_err());
        assert!(root.open_file(b"file-link").is_err());
        assert_eq!(root.stat(b"link").unwrap().kind, FileType::Link);
        assert_eq!(root.read_link(b"link").unwrap(), b"real");
        assert!(DirHandle::open_root(&dir.path().join("link")).is_err());
    }

    #[test]
    fn listing_twice_gives_the_same() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "").unwrap();
        fs::create_dir(dir.path().join("b")).unwrap();
        let mut root = DirHandle::open_root(dir.path()).unwrap();
        for _ in 0..2 {
            let mut names: Vec<_> = root
                .entries()
                .unwrap()
                .into_iter()
                .map(|(name, _)| name)
                .collect();
            names.sort();
            assert_eq!(names, [b"a", b"b"]);
        }
    }

    #[test]
    fn one_that_was_removed_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        fs::create_dir(&path).unwrap();
        let mut gone = DirHandle::open_root(&path).unwrap();
        fs::remove_dir(&path).unwrap();
        assert!(gone.entries().unwrap().is_empty());
    }

    #[test]
    fn a_fifo_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&dir.path().join("pipe"), Mode::S_IRWXU).unwrap();
        let root = DirHandle::open_root(dir.path()).unwrap();
        let pipe = root.open_file(b"pipe").unwrap();
        assert_eq!(Stat::of(&pipe).unwrap().kind, FileType::Fifo);
    }

    #[test]
    fn depth_beyond_the_path_limit_works() {
        let dir = tempfile::tempdir().unwrap();
        let name = [b'd'; 200];
        let root = DirHandle::open_root(dir.path()).unwrap();
        let mut at = root.open_beneath(&TreePath::root()).unwrap();
        let mut deep = TreePath::root();
        for _ in 0..40 {
            nix::sys::stat::mkdirat(&at, &name[..], Mode::S_IRWXU).unwrap();
            at = at.open_dir(&name).unwrap();
            deep = deep.join(&name);
        }
        assert_eq!(
            root.open_beneath(&deep).unwrap().stat_self().unwrap(),
            at.stat_self().unwrap()
        );
    }
}
