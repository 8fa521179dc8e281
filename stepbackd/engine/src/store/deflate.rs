//! Compression at level 1, with one encoder per thread: a new one for each object halves the speed.

use std::cell::RefCell;
use std::io::{self, Read, Write};

use flate2::{Compress, Compression, FlushCompress, Status};
use sha1::{Digest, Sha1};

use crate::oid::{ObjectKind, Oid};

thread_local! {
    static ENCODER: RefCell<Compress> = RefCell::new(Compress::new(Compression::new(1), true));
}

/// Appends the compressed parts, as one zlib stream, to `out`.
pub fn deflate(parts: &[&[u8]], out: &mut Vec<u8>) -> io::Result<()> {
    ENCODER.with_borrow_mut(|encoder| {
        encoder.reset();
        for part in parts {
            run(encoder, part, FlushCompress::None, out)?;
        }
        run(encoder, &[], FlushCompress::Finish, out).map(drop)
    })
}

fn run(encoder: &mut Compress, mut input: &[u8], flush: FlushCompress, out: &mut Vec<u8>) -> io::Result<()> {
    let finish = matches!(flush, FlushCompress::Finish);
    while finish || !input.is_empty() {
        out.reserve(input.len() / 2 + 64);
        let before = encoder.total_in();
        let status = encoder
            .compress_vec(input, out, flush)
            .map_err(io::Error::other)?;
        let taken = usize::try_from(encoder.total_in() - before).expect("at most the input's length");
        input = &input[taken..];
        if status == Status::StreamEnd {
            break;
        }
    }
    Ok(())
}

/// The compressed form of a loose object.
pub fn loose(kind: ObjectKind, body: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(body.len() / 2 + 64);
    deflate(&[&kind.header(body.len() as u64), body], &mut out)?;
    Ok(out)
}

/// Writes a blob of `size` bytes as a loose object without holding it whole. `None` when the reader gave more or less.
pub fn loose_stream(size: u64, from: &mut dyn Read, to: &mut dyn Write) -> Result<Option<Oid>, StreamError> {
    const PIECE: usize = 128 * 1024;
    let mut encoder = Compress::new(Compression::new(1), true);
    let mut hasher = Sha1::new();
    let mut out = Vec::with_capacity(PIECE);
    let header = ObjectKind::Blob.header(size);
    hasher.update(&header);
    run(&mut encoder, &header, FlushCompress::None, &mut out)?;
    let mut piece = vec![0; PIECE];
    let mut left = size;
    loop {
        let read = match from.read(&mut piece) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(StreamError::Reader(error)),
        };
        if read == 0 {
            break;
        }
        let Some(rest) = left.checked_sub(read as u64) else {
            return Ok(None);
        };
        left = rest;
        hasher.update(&piece[..read]);
        run(&mut encoder, &piece[..read], FlushCompress::None, &mut out)?;
        if out.len() >= PIECE / 2 {
            to.write_all(&out)?;
            out.clear();
        }
    }
    if left > 0 {
        return Ok(None);
    }
    run(&mut encoder, &[], FlushCompress::Finish, &mut out)?;
    to.write_all(&out)?;
    Ok(Some(Oid(hasher.finalize().into())))
}

/// Which end of a stream failed.
#[derive(Debug)]
pub enum StreamError {
    /// The one that is read: the caller's.
    Reader(io::Error),
    /// The one that is written: ours.
    Writer(io::Error),
}

impl From<io::Error> for StreamError {
    fn from(error: io::Error) -> Self {
        Self::Writer(error)
    }
}
