//! Loose objects: one file each, read with every check, so that a damaged one is an error and never a hang.

use std::fs::Metadata;
use std::io::{BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{At, Error, Result};
use crate::oid::{ObjectKind, Oid};

use super::files;
use super::inflate::{Contents, Fault, Stream};

/// The longest header: `commit`, a space, twenty digits, NUL.
const HEADER_MAX: usize = 32;
/// No more than this is set aside on the word of a header alone.
const PREALLOCATE_MAX: u64 = 16 << 20;

/// Which file this was when it was looked at: another stamp means other bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    ino: u64,
    size: u64,
    mtime: (i64, i64),
}

impl Stamp {
    /// Of a file looked at just now.
    pub fn of(meta: &Metadata) -> Self {
        Self {
            ino: meta.ino(),
            size: meta.size(),
            mtime: (meta.mtime(), meta.mtime_nsec()),
        }
    }

    /// Its size in bytes.
    pub const fn size(&self) -> u64 {
        self.size
    }
}

/// The directory of the loose objects whose names begin with this byte.
pub fn fan_out(objects: &Path, first: u8) -> PathBuf {
    objects.join(format!("{first:02x}"))
}

/// Where a loose object is, below `objects`.
pub fn path(objects: &Path, oid: Oid) -> PathBuf {
    let hex = oid.to_string();
    objects.join(&hex[..2]).join(&hex[2..])
}

/// The stamp of a loose object's file; `None` when there is none.
pub fn stamp(objects: &Path, oid: Oid) -> Result<Option<Stamp>> {
    let path = path(objects, oid);
    match path.symlink_metadata() {
        Ok(meta) => Ok(Some(Stamp::of(&meta))),
        Err(error) if files::is_absent(&error) => Ok(None),
        Err(error) => Err(error).at(path),
    }
}

/// A loose object being read.
pub struct Loose {
    stream: Stream,
    /// As the header says.
    pub kind: ObjectKind,
    /// Bytes of the contents, as the header says.
    pub size: u64,
}

impl Loose {
    /// Opens it and reads its header. `None` when there is no such file.
    pub fn open(objects: &Path, oid: Oid) -> Result<Option<Self>, Fault> {
        let path = path(objects, oid);
        let file = match files::open_existing(&path) {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(None),
            Err(Error::Io { source, .. }) if source.raw_os_error() == Some(nix::libc::ELOOP) => {
                return Err(Fault::Damaged("is a link, not a file".into()));
            }
            Err(error) => return Err(error.into()),
        };
        let meta = file.metadata().at(&path)?;
        if !meta.is_file() {
            return Err(Fault::Damaged("isn't a regular file".into()));
        }
        let room = usize::try_from(meta.len().clamp(512, 64 << 10)).expect("at most 64 KiB");
        let file = BufReader::with_capacity(room, file.take(u64::MAX));
        let mut stream = Stream::new(file, path);
        let mut header = Vec::with_capacity(HEADER_MAX);
        let (kind, size) = loop {
            let mut byte = [0];
            if stream.read(&mut byte)? == 0 {
                return Err(Fault::Damaged("is truncated".into()));
            }
            if byte[0] == 0 {
                break parse_header(&header).ok_or_else(|| Fault::Damaged("has a wrong header".into()))?;
            }
            if header.len() == HEADER_MAX {
                return Err(Fault::Damaged("has a wrong header".into()));
            }
            header.push(byte[0]);
        };
        Ok(Some(Self { stream, kind, size }))
    }

    /// Hands on the contents in pieces. Whether they were good is known only when this returns.
    pub fn copy(self, oid: Oid, to: &mut dyn Write) -> Result<u64, Fault> {
        let mut end = Contents::new(self.stream, self.kind, self.size).copy(oid, to)?;
        match end.is_at_end()? {
            true => Ok(self.size),
            false => Err(Fault::Damaged("has bytes behind its end".into())),
        }
    }

    /// The whole contents.
    pub fn read(self, oid: Oid) -> Result<Vec<u8>, Fault> {
        let room = self.size.min(PREALLOCATE_MAX);
        let mut body = Vec::with_capacity(usize::try_from(room).expect("at most 16 MiB"));
        self.copy(oid, &mut body)?;
        Ok(body)
    }
}

fn parse_header(header: &[u8]) -> Option<(ObjectKind, u64)> {
    let text = std::str::from_utf8(header).ok()?;
    let (kind, size) = text.split_once(' ')?;
    let kind = match kind {
        "blob" => ObjectKind::Blob,
        "tree" => ObjectKind::Tree,
        "commit" => ObjectKind::Commit,
        _ => return None,
    };
    if size.is_empty() || !size.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    Some((kind, size.parse().ok()?))
}
