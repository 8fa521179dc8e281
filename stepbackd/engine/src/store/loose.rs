//! Loose objects: one file each, read with every check, so that a damaged one is an error and never a hang.

use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use flate2::{Decompress, FlushDecompress, Status};
use sha1::{Digest, Sha1};

use crate::error::{At, Error, Result};
use crate::oid::{ObjectKind, Oid};

use super::files;

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

/// What went wrong while a loose object was read.
#[derive(Debug)]
pub enum Fault {
    /// The object isn't what its name says, and how.
    Damaged(String),
    /// The system refused something.
    System(Error),
    /// The caller's writer failed.
    Sink(io::Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::System(error)
    }
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
    hasher: Sha1,
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
        let file = BufReader::with_capacity(room, file);
        let mut stream = Stream {
            file,
            inflater: Decompress::new(true),
            ended: false,
            path,
        };
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
        let mut hasher = Sha1::new();
        hasher.update(kind.header(size));
        Ok(Some(Self {
            stream,
            hasher,
            kind,
            size,
        }))
    }

    /// Hands on the contents in pieces. Whether they were good is known only when this returns.
    pub fn copy(mut self, oid: Oid, to: &mut dyn Write) -> Result<u64, Fault> {
        let room = usize::try_from(self.size.clamp(1, 64 << 10)).expect("at most 64 KiB");
        let mut piece = vec![0; room];
        let mut left = self.size;
        loop {
            let read = self.stream.read(&mut piece)?;
            if read == 0 {
                break;
            }
            left = left
                .checked_sub(read as u64)
                .ok_or_else(|| Fault::Damaged("is longer than it says".into()))?;
            self.hasher.update(&piece[..read]);
            to.write_all(&piece[..read]).map_err(Fault::Sink)?;
        }
        if left > 0 {
            return Err(Fault::Damaged("is truncated".into()));
        }
        if !self.stream.file.fill_buf().at(&self.stream.path)?.is_empty() {
            return Err(Fault::Damaged("has bytes behind its end".into()));
        }
        if Oid(self.hasher.finalize().into()) != oid {
            return Err(Fault::Damaged("has other contents than its name says".into()));
        }
        Ok(self.size)
    }

    /// The whole contents.
    pub fn read(self, oid: Oid) -> Result<Vec<u8>, Fault> {
        let room = self.size.min(PREALLOCATE_MAX);
        let mut body = Vec::with_capacity(usize::try_from(room).expect("at most 16 MiB"));
        self.copy(oid, &mut body)?;
        Ok(body)
    }
}

/// A zlib stream of which the end must be seen: contents without their checksum aren't whole.
struct Stream {
    file: BufReader<File>,
    inflater: Decompress,
    ended: bool,
    path: PathBuf,
}

impl Stream {
    /// Some of the contents; 0 only at the end of a whole stream.
    fn read(&mut self, into: &mut [u8]) -> Result<usize, Fault> {
        while !self.ended {
            let input = self.file.fill_buf().at(&self.path)?;
            let at_end = input.is_empty();
            let (taken, given) = (self.inflater.total_in(), self.inflater.total_out());
            let status = self
                .inflater
                .decompress(input, into, FlushDecompress::None)
                .map_err(|_| Fault::Damaged("isn't a good zlib stream".into()))?;
            let taken = usize::try_from(self.inflater.total_in() - taken).expect("at most the buffer");
            let given = usize::try_from(self.inflater.total_out() - given).expect("at most the buffer");
            self.file.consume(taken);
            self.ended = status == Status::StreamEnd;
            if given > 0 {
                return Ok(given);
            }
            if at_end && !self.ended {
                return Err(Fault::Damaged("is truncated".into()));
            }
        }
        Ok(0)
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
