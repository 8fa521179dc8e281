//! What a store knows of a root: `refs/stepback/<root id>/root`.
//!
//! The ref points to a commit whose message holds a [`RootRecord`] as JSON. Its tree keeps the tree in memory from being
//! pruned: the captured tree itself when a checkpoint holds it, else a tree of two entries, `tree` and `tables`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{At, Error, Result};
use crate::head::GitSighting;
use crate::mounts::KnownMounts;
use crate::node::CommonModes;
use crate::path::{TreePath, escape, unescape};
use crate::root::DirHandle;
use crate::time::Time;

/// The ref of a root's record.
#[must_use]
pub fn ref_name(root: &str) -> String {
    format!("refs/stepback/{root}/root")
}

/// Which directory a root is, apart from its path. Device numbers don't belong to it: they change over a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Inode number.
    pub ino: u64,
    /// Birth time in nanoseconds since 1970, where the file system has one.
    pub born_ns: Option<i64>,
    /// File system id, where there is no birth time.
    pub fsid: Option<u64>,
}

impl Identity {
    /// Of an open directory.
    ///
    /// # Errors
    /// What the system says.
    pub fn of_open(dir: &DirHandle) -> io::Result<Self> {
        let metadata = std::fs::File::from(dir.as_fd().try_clone_to_owned()?).metadata()?;
        Self::of_metadata(&metadata, || {
            Ok(nix::sys::statvfs::fstatvfs(dir)?.filesystem_id() as u64)
        })
    }

    fn of_metadata<E>(metadata: &Metadata, fsid: impl FnOnce() -> Result<u64, E>) -> Result<Self, E> {
        let born_ns = metadata
            .created()
            .ok()
            .and_then(|t| t.duration_since(UNIX_EPOCH).ok())
            .and_then(|d| i64::try_from(d.as_nanos()).ok());
        Ok(Self {
            ino: metadata.ino(),
            born_ns,
            fsid: if born_ns.is_none() { Some(fsid()?) } else { None },
        })
    }
}

/// Opens a directory if it is this one. Whoever works with the handle works in it, whatever its path leads to later.
///
/// # Errors
/// [`Error::RootMissing`], [`Error::RootReplaced`]; what the system says.
pub fn open_root(path: &Path, identity: Identity) -> Result<DirHandle> {
    let root = match DirHandle::open_root(path) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Err(Error::RootMissing(path.to_owned()));
        }
        other => other.at(path)?,
    };
    if Identity::of_open(&root).at(path)? == identity {
        Ok(root)
    } else {
        Err(Error::RootReplaced(path.to_owned()))
    }
}

/// What a look at a directory tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sighting {
    /// Which directory it is.
    pub identity: Identity,
    /// Whether it is another file system than its parent.
    pub mount_point: bool,
}

impl Sighting {
    /// Looks at `path`, through links; `None` when nothing is there or it is no directory.
    ///
    /// # Errors
    /// What the system says, but for "not there".
    pub fn of(path: &Path) -> Result<Option<Self>> {
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => metadata,
            Ok(_) => return Ok(None),
            Err(e)
                if matches!(
                    e.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(None);
            }
            Err(e) => return Err(e).at(path),
        };
        let identity = Identity::of_metadata(&metadata, || file_system_id(path))?;
        let mount_point = match path.parent() {
            Some(parent) => std::fs::metadata(parent).at(parent)?.dev() != metadata.dev(),
            None => true,
        };
        Ok(Some(Self {
            identity,
            mount_point,
        }))
    }
}

/// The id of the file system that holds `path`: of the mount, not of the device number.
///
/// # Errors
/// What the system says.
pub fn file_system_id(path: &Path) -> Result<u64> {
    let stats = nix::sys::statvfs::statvfs(path).at(path)?;
    Ok(stats.filesystem_id() as u64)
}

/// An absolute path in JSON: text with `%XX` for what isn't plain UTF-8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbsolutePath(pub PathBuf);

impl Serialize for AbsolutePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&escape(self.0.as_os_str().as_bytes()))
    }
}

impl<'de> Deserialize<'de> for AbsolutePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = unescape(&text).ok_or_else(|| serde::de::Error::custom("a bad % escape in a path"))?;
        Ok(Self(PathBuf::from(OsString::from_vec(bytes))))
    }
}

/// What a store knows of a root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootRecord {
    /// Schema version and root id.
    #[serde(flatten)]
    pub head: crate::record::Head,
    /// Where the root was seen last.
    pub path: AbsolutePath,
    /// Which directory it is.
    pub identity: Identity,
    /// It was a mount point when it was seen last: without its mount it is missing, not replaced.
    pub mount_point: bool,
    /// File system id of its parent directory: a missing root is made again only there.
    pub parent_fsid: u64,
    /// When it was attached first.
    pub attached: Time,
    /// Include patterns that were given to `attach`.
    pub include: Vec<String>,
    /// The size cap that was given to `attach`, in bytes.
    pub max_file_size: Option<u64>,
    /// Paths that `forget` purged: left out from then on.
    pub forgotten: Vec<TreePath>,
    /// Permission bits that side tables don't name.
    pub modes: CommonModes,
    /// The highest checkpoint number ever given.
    pub highest: u64,
    /// The highest redo entry number ever given.
    pub highest_redo: u64,
    /// What the tree stands on.
    pub position: Option<u64>,
    /// Its git repository when it was attached last; `None` in records from before this was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSighting>,
    /// Mount points in it; `None` until they are looked at, and again after an `attach`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mounts: Option<KnownMounts>,
    /// Git directories in it that aren't named `.git`, and that some `.git` names or once named.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub git_dirs: BTreeSet<TreePath>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_directory_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| dir.path().join(name));
        std::fs::create_dir(&a).unwrap();
        let identity = Sighting::of(&a).unwrap().unwrap().identity;
        assert!(open_root(&a, identity).is_ok());
        std::fs::rename(&a, &b).unwrap();
        assert!(matches!(open_root(&a, identity), Err(Error::RootMissing(_))));
        std::fs::create_dir(&a).unwrap();
        assert!(matches!(open_root(&a, identity), Err(Error::RootReplaced(_))));
        assert!(open_root(&b, identity).is_ok());
    }

    #[test]
    fn a_directory_keeps_its_identity_over_a_rename_and_loses_it_when_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let a = dir.path().join("a");
        let b = dir.path().join("b");
        std::fs::create_dir(&a).unwrap();
        let before = Sighting::of(&a).unwrap().unwrap();
        std::fs::rename(&a, &b).unwrap();
        assert_eq!(Sighting::of(&a).unwrap(), None);
        assert_eq!(Sighting::of(&b).unwrap(), Some(before));
        std::fs::create_dir(&a).unwrap();
        assert_ne!(Sighting::of(&a).unwrap(), Some(before));
    }
}
