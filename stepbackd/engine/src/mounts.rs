//! Which directories below a root have a file system mounted on them.
//!
//! Bind mounts have the device of what they are bound to, so that no `stat` tells them apart: the kernel's own list does.
//! Where there is none (no Linux, no `/proc`), nothing is known of mount points.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::sys::stat::{major, minor};
use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

use crate::path::TreePath;

const LIST: &str = "/proc/self/mountinfo";

/// The kernel's list. It says that its size is 0, and writes the list down anew for each read: so few, large ones.
fn list() -> io::Result<Vec<u8>> {
    let mut list = Vec::with_capacity(16 << 10);
    File::open(LIST)?.read_to_end(&mut list)?;
    Ok(list)
}

/// All mounts at one moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Mounts(BTreeSet<Mount>);

/// What is mounted and where. Options aren't told apart.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mount {
    at: Vec<u8>,
    /// The mount's number, the one around it, the device and what of it is mounted.
    what: Vec<u8>,
}

impl Mounts {
    /// Those of now; `None` when the system doesn't tell.
    #[must_use]
    pub fn read() -> Option<Self> {
        Some(Self::parse(&list().ok()?))
    }

    fn parse(list: &[u8]) -> Self {
        let mounts = list.split(|byte| *byte == b'\n').filter_map(|line| {
            let fields: Vec<&[u8]> = line.splitn(6, |byte| *byte == b' ').collect();
            let at = unescape(fields.get(4)?);
            Some(Mount {
                at,
                what: fields[..4].join(&b' '),
            })
        });
        Self(mounts.collect())
    }

    /// Where something else is mounted than was in `before`, or nothing any more.
    #[must_use]
    pub fn changed_since(&self, before: &Self) -> BTreeSet<PathBuf> {
        let changed = self.0.symmetric_difference(&before.0);
        changed
            .map(|mount| PathBuf::from(OsStr::from_bytes(&mount.at)))
            .collect()
    }
}

/// What a root's record says of mount points in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownMounts {
    /// They were mounted when they were captured last.
    pub points: BTreeSet<TreePath>,
    /// Captured directories over which something was mounted later.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub covered: BTreeSet<TreePath>,
}

/// Why what is at a mount point isn't captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Astray {
    /// It was mounted when it was captured; now it isn't, and the directory is empty.
    Unmounted,
    /// Something is mounted over captured files.
    Covered,
}

/// What a file system is, as far as the list of mounts says it: its type and what was mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// A hash of the two.
    pub of: u64,
    /// A program serves it (FUSE).
    pub by_a_program: bool,
}

/// The file system with this device number; `None` when the system doesn't tell.
#[must_use]
pub fn volume(dev: u64) -> Option<Volume> {
    volume_in(&list().ok()?, dev)
}

fn volume_in(list: &[u8], dev: u64) -> Option<Volume> {
    let number = format!("{}:{}", major(dev), minor(dev));
    let line = list
        .split(|byte| *byte == b'\n')
        .find(|line| line.split(|byte| *byte == b' ').nth(2) == Some(number.as_bytes()))?;
    let mut rest = line
        .split(|byte| *byte == b' ')
        .skip_while(|field| *field != b"-")
        .skip(1);
    let (kind, source) = (rest.next()?, rest.next()?);
    let mut hasher = Sha1::new();
    hasher.update(kind);
    hasher.update(b"\0");
    hasher.update(source);
    let [a, b, c, d, e, f, g, h, ..] = <[u8; 20]>::from(hasher.finalize());
    Some(Volume {
        of: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        by_a_program: kind.starts_with(b"fuse"),
    })
}

/// Whether something is mounted right at `path`, an absolute path without links.
#[must_use]
pub fn is_point(path: &Path) -> bool {
    list().is_ok_and(|list| points(&list).any(|point| point == path.as_os_str().as_bytes()))
}

/// Mount points strictly below `root`, an absolute path without links; `None` when the system doesn't tell.
#[must_use]
pub fn below(root: &Path) -> Option<BTreeSet<TreePath>> {
    Some(parse(&list().ok()?, root))
}

fn points(list: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let lines = list.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    points.map(unescape)
}

fn parse(list: &[u8], root: &Path) -> BTreeSet<TreePath> {
    points(list)
        .filter_map(|point| {
            let below = Path::new(OsStr::from_bytes(&point)).strip_prefix(root).ok()?;
            // What is below a `.git` is no matter of ours.
            TreePath::from_path(below).ok().filter(|path| !path.is_root())
        })
        .collect()
}

/// Space, tab, line break and backslash stand as `\ooo`.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        let digits = (*byte == b'\\').then(|| after.get(..3)).flatten();
        let value = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match value {
            Some(value) => {
                bytes.push(value);
                rest = &after[3..];
            }
            None => bytes.push(*byte),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read_and_unescaped() {
        let list = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                     30 22 0:40 / /p rw - tmpfs t rw\n\
                     31 30 0:41 / /p/a\\040b/c\\134 rw shared:1 - tmpfs t rw\n\
                     32 30 8:1 /x /p/bound rw - ext4 /dev/sda1 rw\n\
                     33 30 8:1 /x /p/.git/x rw - ext4 /dev/sda1 rw\n\
                     34 22 0:42 / /pq rw - tmpfs t rw\nshort\n";
        let found: Vec<String> = parse(list, Path::new("/p"))
            .iter()
            .map(|path| String::from_utf8_lossy(path.as_bytes()).into_owned())
            .collect();
        assert_eq!(found, ["a b/c\\", "bound"]);
    }

    #[test]
    fn what_is_mounted_anew_has_changed() {
        let before = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:40 / /a\\040b rw - tmpfs t rw\n\
                       31 22 0:41 / /b rw - tmpfs t rw\n32 22 0:42 / /c rw - tmpfs t rw\n";
        let after = b"22 1 8:1 / / ro - ext4 /dev/sda1 ro\n30 22 0:40 /x /a\\040b rw - tmpfs t rw\n\
                      31 22 0:41 / /b ro - tmpfs t ro\n33 22 0:42 / /d rw - tmpfs t rw\n";
        let changed = Mounts::parse(after).changed_since(&Mounts::parse(before));
        assert_eq!(changed, ["/a b", "/c", "/d"].map(PathBuf::from).into());
    }

    #[test]
    fn a_volume_is_its_type_and_source() {
        let list = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                     30 22 0:40 / /a rw,nosuid shared:1 - fuse.sshfs h:/x rw\n\
                     31 22 0:41 / /b rw - fuse.sshfs h:/y rw\n\
                     32 22 0:42 / /c rw - nfs4 h:/x rw\n";
        let of = |minor| volume_in(list, nix::sys::stat::makedev(0, minor));
        assert!(of(40).is_some() && of(40) != of(41) && of(40) != of(42) && of(43).is_none());
        assert!(of(41).is_some_and(|volume| volume.by_a_program));
        assert!(of(42).is_some_and(|volume| !volume.by_a_program));
    }
}
