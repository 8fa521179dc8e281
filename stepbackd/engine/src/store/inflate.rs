//! Contents of objects, which are zlib streams: inflated in pieces, with every check, so that a damaged one is an error and
//! never a hang.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Take, Write};
use std::path::PathBuf;

use flate2::{Decompress, FlushDecompress, Status};
use sha1::{Digest, Sha1};

use crate::error::{At, Error};
use crate::oid::{ObjectKind, Oid};

/// What went wrong while an object was read.
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

/// A zlib stream of which the end must be seen: contents without their checksum aren't whole.
pub struct Stream {
    file: BufReader<Take<File>>,
    inflater: Decompress,
    ended: bool,
    path: PathBuf,
}

impl Stream {
    /// Of what comes next in a file; `path` is for errors.
    pub fn new(file: BufReader<Take<File>>, path: PathBuf) -> Self {
        Self {
            file,
            inflater: Decompress::new(true),
            ended: false,
            path,
        }
    }

    /// Some of the contents; 0 only at the end of a whole stream.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, Fault> {
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

    /// Whether the file, as far as it is read, ends here.
    pub fn is_at_end(&mut self) -> Result<bool, Fault> {
        Ok(self.file.fill_buf().at(&self.path)?.is_empty())
    }
}

/// The contents of one object, to be handed on.
pub struct Contents {
    stream: Stream,
    hasher: Sha1,
    size: u64,
}

impl Contents {
    /// What a stream has left, which is `size` bytes as a header says.
    pub fn new(stream: Stream, kind: ObjectKind, size: u64) -> Self {
        let mut hasher = Sha1::new();
        hasher.update(kind.header(size));
        Self { stream, hasher, size }
    }

    /// Hands them on in pieces; the stream at its end. Whether they were good is known only when this returns.
    pub fn copy(mut self, oid: Oid, to: &mut dyn Write) -> Result<Stream, Fault> {
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
        if Oid(self.hasher.finalize().into()) != oid {
            return Err(Fault::Damaged("has other contents than its name says".into()));
        }
        Ok(self.stream)
    }
}
