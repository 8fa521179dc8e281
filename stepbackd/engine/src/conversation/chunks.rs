//! Transcripts in pieces. A piece ends where a line does, if a line ends within it, and stays as it is while the
//! transcript only grows: growth costs what grew.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::oid::{ObjectKind, Oid};
use crate::store::{ObjectWriter, Store, TreeEntry, write_tree};

/// The most bytes of a piece.
pub(super) const CHUNK_BYTES_MAX: usize = 256 << 10;
/// A piece of so many bytes is never joined with others.
const CHUNK_BYTES_FINAL: u64 = 64 << 10;
/// So many smaller ones may stand at the end before they are joined.
const SMALL_MAX: usize = 16;
/// A longer line isn't put together: it would be held in memory, some times over.
const LINE_BYTES_MAX: usize = 64 << 20;
/// Pieces in one tree object, so that a long transcript's tree is shared, too.
const FAN_OUT: usize = 256;

/// A piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub oid: Oid,
    pub size: u64,
}

/// Sizes of pieces, as they stand in a record.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Sizes(pub Vec<u64>);

/// Cuts a stream of bytes into pieces, along the cuts of an earlier version of it as far as they are the same.
pub(super) struct Cutter<'w, 's> {
    writer: &'w ObjectWriter<'s>,
    earlier: Vec<Chunk>,
    /// The piece of `earlier` that is due; beyond its end, or after a difference, cuts are made anew.
    next: usize,
    buffer: Vec<u8>,
    done: Vec<Chunk>,
}

impl<'w, 's> Cutter<'w, 's> {
    /// `earlier`: the pieces of the version before.
    pub fn new(writer: &'w ObjectWriter<'s>, earlier: &[Chunk]) -> Self {
        let small = earlier
            .iter()
            .rev()
            .take_while(|chunk| chunk.size < CHUNK_BYTES_FINAL)
            .count();
        let keep = if small > SMALL_MAX {
            earlier.len() - small
        } else {
            earlier.len()
        };
        Self {
            writer,
            earlier: earlier[..keep].to_vec(),
            next: 0,
            buffer: Vec::new(),
            done: Vec::new(),
        }
    }

    /// The piece that is due, when the bytes before it were all as earlier.
    pub fn due(&self) -> Option<Chunk> {
        if self.buffer.is_empty() {
            self.earlier.get(self.next).copied()
        } else {
            None
        }
    }

    /// How many pieces are still due.
    pub fn remaining(&self) -> usize {
        self.earlier.len() - self.next
    }

    /// Takes the piece that is due for unchanged, unread; its bytes are to be passed over.
    pub fn trust(&mut self) {
        if let Some(chunk) = self.due() {
            self.next += 1;
            self.done.push(chunk);
        }
    }

    /// More bytes. `false`: a piece isn't as it was; those after it are cut as they come.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<bool> {
        let mut same = true;
        while !bytes.is_empty() {
            let due = self.earlier.get(self.next).copied();
            let want = due.map_or(CHUNK_BYTES_MAX, |chunk| chunk.size as usize);
            let take = bytes.len().min(want.saturating_sub(self.buffer.len()).max(1));
            self.buffer.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
            if self.buffer.len() < want {
                continue;
            }
            match due {
                Some(chunk) => {
                    self.next += 1;
                    // What a record has is in the store: reading it back only to be sure would map all of a long transcript.
                    if Oid::of(ObjectKind::Blob, &self.buffer) == chunk.oid {
                        self.done.push(chunk);
                        self.buffer.clear();
                    } else {
                        let len = self.buffer.len();
                        self.put(len)?;
                        same = false;
                    }
                }
                None => {
                    let end = self.buffer.iter().rposition(|b| *b == b'\n');
                    let len = end.map_or(self.buffer.len(), |end| end + 1);
                    self.put(len)?;
                }
            }
        }
        Ok(same)
    }

    fn put(&mut self, len: usize) -> Result<Oid> {
        let oid = self.writer.put(ObjectKind::Blob, &self.buffer[..len])?;
        self.done.push(Chunk {
            oid,
            size: len as u64,
        });
        self.buffer.drain(..len);
        Ok(oid)
    }

    /// The end: all pieces.
    pub fn finish(mut self) -> Result<Vec<Chunk>> {
        if !self.buffer.is_empty() {
            let len = self.buffer.len();
            self.put(len)?;
        }
        Ok(self.done)
    }
}

/// Bytes in all.
pub(super) fn total(chunks: &[Chunk]) -> u64 {
    chunks.iter().map(|chunk| chunk.size).sum()
}

/// Writes the tree that holds the pieces.
pub(super) fn write_tree_of(writer: &ObjectWriter<'_>, chunks: &[Chunk]) -> Result<Oid> {
    let mut dirs = Vec::new();
    for (number, group) in chunks.chunks(FAN_OUT).enumerate() {
        let entries: Vec<TreeEntry> = group
            .iter()
            .enumerate()
            .map(|(at, chunk)| TreeEntry::blob(&format!("{at:02x}"), chunk.oid))
            .collect();
        dirs.push(TreeEntry::dir(
            &format!("{number:06x}"),
            write_tree(writer, &entries)?,
        ));
    }
    write_tree(writer, &dirs)
}

/// Reads the pieces of a tree, whose sizes stand in the record.
pub(super) fn read_tree_of(store: &Store, tree: Oid, sizes: &Sizes) -> Result<Vec<Chunk>> {
    let mut oids = Vec::new();
    for dir in store.read_tree(tree)? {
        oids.extend(store.read_tree(dir.oid)?.into_iter().map(|entry| entry.oid));
    }
    if oids.len() != sizes.0.len() {
        return Err(Error::Damaged {
            store: store.path().to_owned(),
            what: format!("tree {tree} of a transcript doesn't have the pieces that its record names"),
        });
    }
    let chunk = |(oid, size): (Oid, &u64)| Chunk { oid, size: *size };
    Ok(oids.into_iter().zip(&sizes.0).map(chunk).collect())
}

/// Hands the bytes of all pieces out, one piece at a time, up to `len` bytes in all.
pub(super) fn read(
    store: &Store,
    chunks: &[Chunk],
    len: u64,
    each: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<io::Result<()>> {
    let mut left = len;
    for chunk in chunks {
        if left == 0 {
            break;
        }
        let body = store.read(chunk.oid, ObjectKind::Blob)?;
        let take = body.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        left -= take as u64;
        if let Err(error) = each(&body[..take]) {
            return Ok(Err(error));
        }
    }
    Ok(Ok(()))
}

/// Length up to the end of the last whole line.
pub(super) fn whole_lines(store: &Store, chunks: &[Chunk]) -> Result<u64> {
    let mut end = total(chunks);
    for chunk in chunks.iter().rev() {
        let body = store.read(chunk.oid, ObjectKind::Blob)?;
        if let Some(at) = body.iter().rposition(|b| *b == b'\n') {
            return Ok(end - chunk.size + at as u64 + 1);
        }
        end -= chunk.size;
    }
    Ok(0)
}

/// How many bytes at the beginning of two lists of pieces are the same, however they are cut.
pub(super) fn common(store: &Store, a: &[Chunk], b: &[Chunk]) -> Result<u64> {
    let shared = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let skipped = total(&a[..shared]);
    Ok(skipped + Bytes::new(store, &a[shared..]).same_as(&mut Bytes::new(store, &b[shared..]))?)
}

/// Whether from `at` on `a` is what `b` has there, to the end of `a`.
pub(super) fn same_from(store: &Store, a: &[Chunk], b: &[Chunk], at: u64) -> Result<bool> {
    let (mut x, mut y) = (Bytes::new(store, a), Bytes::new(store, b));
    if !x.skip(at)? || !y.skip(at)? {
        return Ok(false);
    }
    Ok(at + x.same_as(&mut y)? == total(a))
}

/// Reads pieces one after the other.
struct Bytes<'a> {
    store: &'a Store,
    rest: &'a [Chunk],
    body: Vec<u8>,
    at: usize,
}

impl<'a> Bytes<'a> {
    const fn new(store: &'a Store, rest: &'a [Chunk]) -> Self {
        Self {
            store,
            rest,
            body: Vec::new(),
            at: 0,
        }
    }

    /// Passes over so many bytes; `false` when there aren't so many.
    fn skip(&mut self, mut bytes: u64) -> Result<bool> {
        while bytes > 0 {
            let have = self.peek()?.len();
            if have == 0 {
                return Ok(false);
            }
            let take = have.min(usize::try_from(bytes).unwrap_or(usize::MAX));
            self.at += take;
            bytes -= take as u64;
        }
        Ok(true)
    }

    /// How many bytes from here on are the same.
    fn same_as(&mut self, other: &mut Self) -> Result<u64> {
        let mut same = 0;
        loop {
            let (x, y) = (self.peek()?, other.peek()?);
            let take = x.len().min(y.len());
            let equal = x.iter().zip(y).take_while(|(x, y)| x == y).count();
            self.at += equal;
            other.at += equal;
            same += equal as u64;
            if equal < take || take == 0 {
                return Ok(same);
            }
        }
    }

    /// Bytes that come next; none at the end.
    fn peek(&mut self) -> Result<&[u8]> {
        while self.at == self.body.len() {
            let Some((first, rest)) = self.rest.split_first() else {
                break;
            };
            self.rest = rest;
            self.body = self.store.read(first.oid, ObjectKind::Blob)?;
            self.at = 0;
        }
        Ok(&self.body[self.at..])
    }
}

/// Hands whole lines on, without their ends; a last one without an end, too.
pub(super) struct Lines<F: FnMut(&[u8]) -> io::Result<()>> {
    rest: Vec<u8>,
    each: F,
}

impl<F: FnMut(&[u8]) -> io::Result<()>> Lines<F> {
    pub const fn new(each: F) -> Self {
        Self {
            rest: Vec::new(),
            each,
        }
    }

    pub fn finish(mut self) -> io::Result<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        (self.each)(&self.rest)
    }
}

impl<F: FnMut(&[u8]) -> io::Result<()>> Write for Lines<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut from = bytes;
        while let Some(end) = from.iter().position(|b| *b == b'\n') {
            if self.rest.is_empty() {
                (self.each)(&from[..end])?;
            } else {
                self.rest.extend_from_slice(&from[..end]);
                (self.each)(&self.rest)?;
                self.rest.clear();
            }
            from = &from[end + 1..];
        }
        if self.rest.len() + from.len() > LINE_BYTES_MAX {
            return Err(io::Error::other("a line of it is too long"));
        }
        self.rest.extend_from_slice(from);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
