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
use crate::mounts::{self, KnownMounts, Volume};
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
    /// What is mounted there, where there is neither: all file systems of that kind have the same inode and id at their
    /// top. Unknown in records from before this was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<Volume>,
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

    /// Of the directory at `path`, through links; `None` when nothing is there or it is no directory.
    ///
    /// # Errors
    /// What the system says, but for "not there".
    pub fn at(path: &Path) -> Result<Option<Self>> {
        match directory(path)? {
            Some(metadata) => Self::of_metadata(&metadata, || file_system_id(path)).map(Some),
            None => Ok(None),
        }
    }

    /// Whether the two are the same directory, for all that is known of them.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let told = |identity: &Self| (identity.ino, identity.born_ns, identity.fsid);
        let volumes = self.volume.is_none() || other.volume.is_none() || self.volume == other.volume;
        told(self) == told(other) && volumes
    }

    /// Whether no other directory is taken for this one, wherever it is. Else it is only known at its path.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        let has_id = self.fsid.is_some_and(|id| id != 0);
        // A program that serves a file system numbers its inodes as it likes.
        self.born_ns.is_some() || has_id || self.volume.is_some_and(|volume| !volume.by_a_program)
    }

    fn of_metadata<E>(metadata: &Metadata, fsid: impl FnOnce() -> Result<u64, E>) -> Result<Self, E> {
        let born_ns = metadata
            .created()
            .ok()
            .and_then(|t| t.duration_since(UNIX_EPOCH).ok())
            .and_then(|d| i64::try_from(d.as_nanos()).ok());
        let fsid = if born_ns.is_none() { Some(fsid()?) } else { None };
        Ok(Self {
            ino: metadata.ino(),
            born_ns,
            fsid,
            volume: fsid
                .filter(|id| *id == 0)
                .and_then(|_| mounts::volume(metadata.dev())),
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
    if Identity::of_open(&root).at(path)?.is(&identity) {
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
    /// Whether something is mounted there.
    pub mount_point: bool,
}

impl Sighting {
    /// Looks at `path`, through links; `None` when nothing is there or it is no directory.
    ///
    /// # Errors
    /// What the system says, but for "not there".
    pub fn of(path: &Path) -> Result<Option<Self>> {
        let Some(metadata) = directory(path)? else {
            return Ok(None);
        };
        let identity = Identity::of_metadata(&metadata, || file_system_id(path))?;
        let mount_point = match path.parent() {
            // A bind mount has the device of what it is bound to.
            Some(parent) => {
                std::fs::metadata(parent).at(parent)?.dev() != metadata.dev() || mounts::is_point(path)
            }
            None => true,
        };
        Ok(Some(Self {
            identity,
            mount_point,
        }))
    }
}

fn directory(path: &Path) -> Result<Option<Metadata>> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata).filter(Metadata::is_dir)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(e).at(path),
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
    fn what_a_program_serves_is_known_at_its_path_alone() {
        let at = |of, by_a_program| Identity {
            ino: 1,
            born_ns: None,
            fsid: Some(0),
            volume: Some(Volume { of, by_a_program }),
        };
        let before_it_was_noted = Identity {
            volume: None,
            ..at(1, true)
        };
        assert!(at(1, true).is(&at(1, true)) && !at(1, true).is(&at(2, true)));
        assert!(at(1, true).is(&before_it_was_noted) && before_it_was_noted.is(&at(1, true)));
        assert!(!at(1, true).is_certain() && !before_it_was_noted.is_certain());
        assert!(at(1, false).is_certain());
        let here = Identity::at(Path::new("/")).unwrap().unwrap();
        assert!(here.is_certain() && here.is(&here));
        let json = serde_json::to_string(&before_it_was_noted).unwrap();
        assert_eq!(json, r#"{"ino":1,"born_ns":null,"fsid":0}"#, "as it always was");
        assert_eq!(
            serde_json::from_str::<Identity>(&json).unwrap(),
            before_it_was_noted
        );
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
