//! What stands at a name, and whether it is what was expected.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;

use sha1::{Digest, Sha1};

use super::{attributes, ops};
use crate::node::{Attributes, Kind, Node, Perm};
use crate::oid::{ObjectKind, Oid};
use crate::root::{FileType, Stat};

const BUFFER_BYTES: usize = 64 * 1024;

/// What stands at a name.
#[derive(Debug)]
pub(super) struct Found {
    pub stat: Stat,
    /// `None`: a socket or device, or it can't be read, or changed while it was read.
    pub node: Option<Node>,
}

/// Looks, and reads it whole. `None`: nothing is there.
pub(super) fn identify(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<Found>> {
    let Some(stat) = ops::stat(dir, name)? else {
        return Ok(None);
    };
    let node = match read_node(dir, name, &stat) {
        Ok(node) => node,
        Err(error) if is_unreadable(&error) => None,
        Err(error) => return Err(error),
    };
    Ok(Some(Found { stat, node }))
}

fn is_unreadable(error: &io::Error) -> bool {
    use nix::errno::Errno;
    let vanished = [
        Errno::ENOENT,
        Errno::ELOOP,
        Errno::EACCES,
        Errno::EPERM,
        Errno::ENXIO,
        Errno::ENOTDIR,
    ];
    vanished
        .iter()
        .any(|errno| error.raw_os_error() == Some(*errno as i32))
}

fn read_node(dir: BorrowedFd<'_>, name: &[u8], stat: &Stat) -> io::Result<Option<Node>> {
    let perm = Perm::of_mode(stat.mode);
    Ok(match stat.kind {
        FileType::Special => None,
        FileType::Fifo => Some(Node::plain(Kind::Fifo, perm)),
        FileType::Link => {
            let oid = Oid::of(ObjectKind::Blob, &ops::read_link(dir, name)?);
            Some(Node::plain(Kind::Link(oid), Perm::of_mode(0o777)))
        }
        FileType::Dir => {
            let file = ops::open_dir(dir, name)?;
            Some(Node {
                kind: Kind::Dir,
                perm,
                attributes: attributes::read(&file)?,
            })
        }
        FileType::File => {
            let mut file = ops::open_file(dir, name)?;
            let attributes = attributes::read(&file)?;
            hash(&mut file, stat)?.map(|oid| Node {
                kind: Kind::File(oid),
                perm,
                attributes,
            })
        }
    })
}

/// The object id of an open file's bytes; `None` when it isn't the one of `stat` or changes meanwhile.
fn hash(file: &mut File, stat: &Stat) -> io::Result<Option<Oid>> {
    if !same_bytes(&Stat::of(&*file)?, stat) {
        return Ok(None);
    }
    let mut hasher = Sha1::new();
    hasher.update(ObjectKind::Blob.header(stat.size));
    let mut buffer = vec![0; BUFFER_BYTES.min(usize::try_from(stat.size).unwrap_or(BUFFER_BYTES) + 1)];
    let mut bytes = 0u64;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => {
                hasher.update(&buffer[..n]);
                bytes += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let same = bytes == stat.size && same_bytes(&Stat::of(&*file)?, stat);
    Ok(same.then(|| Oid(hasher.finalize().into())))
}

fn same_bytes(a: &Stat, b: &Stat) -> bool {
    (a.ino, a.dev, a.size, a.mtime_ns, a.kind) == (b.ino, b.dev, b.size, b.mtime_ns, b.kind)
}

/// Stat fields of something that was compared: as long as they are the same, it needn't be read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Signature {
    ino: u64,
    size: u64,
    mtime_ns: i64,
    ctime_ns: i64,
}

impl Signature {
    pub fn of(stat: &Stat) -> Self {
        Self {
            ino: stat.ino,
            size: stat.size,
            mtime_ns: stat.mtime_ns,
            ctime_ns: stat.ctime_ns,
        }
    }
}

/// Whether exactly this stands at a name; then what its stat was. What can't be read isn't it.
pub(super) fn is_exactly(dir: BorrowedFd<'_>, name: &[u8], node: &Node) -> io::Result<Option<Signature>> {
    let Some(stat) = ops::stat(dir, name)? else {
        return Ok(None);
    };
    let type_fits = matches!(
        (stat.kind, node.kind),
        (FileType::File, Kind::File(_))
            | (FileType::Link, Kind::Link(_))
            | (FileType::Dir, Kind::Dir)
            | (FileType::Fifo, Kind::Fifo)
    );
    if !type_fits || (stat.kind != FileType::Link && Perm::of_mode(stat.mode) != node.perm) {
        return Ok(None);
    }
    let same = match read_node(dir, name, &stat) {
        Ok(found) => found.is_some_and(|found| same_version(&found, node)),
        Err(error) if is_unreadable(&error) => false,
        Err(error) => return Err(error),
    };
    Ok(same.then(|| Signature::of(&stat)))
}

fn same_version(found: &Node, node: &Node) -> bool {
    match node.kind {
        // A link's bits say nothing, and neither links nor FIFOs have attributes.
        Kind::Link(_) => found.kind == node.kind,
        Kind::Fifo => found.kind == node.kind && found.perm == node.perm,
        Kind::File(_) | Kind::Dir => found == node,
    }
}

/// How well what was found fits a recorded version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    /// It is something else.
    No,
    /// It is but for what we may have been refused: attributes, set-id bits.
    Nearly,
    /// Exactly.
    Exactly,
}

/// Compares with a version that we may have written ourselves.
pub(super) fn fit(found: Option<&Node>, version: Option<&Node>) -> Fit {
    let (found, version) = match (found, version) {
        (None, None) => return Fit::Exactly,
        (Some(found), Some(version)) => (found, version),
        _ => return Fit::No,
    };
    if same_version(found, version) {
        return Fit::Exactly;
    }
    let without_set_id = version.perm.bits() & !0o6000;
    let perm_fits = found.perm == version.perm || found.perm.bits() == without_set_id;
    if found.kind == version.kind && perm_fits && is_part_of(&found.attributes, &version.attributes) {
        return Fit::Nearly;
    }
    Fit::No
}

fn is_part_of(some: &Attributes, all: &Attributes) -> bool {
    let mut some = some.iter().flat_map(|some| some.iter());
    some.all(|(name, value)| all.as_ref().is_some_and(|all| all.get(name) == Some(value)))
}
