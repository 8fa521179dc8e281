//! A large blob in a pack, read in pieces: libgit2 would hold it whole. Its place is looked up in the index (git's format,
//! version 2) and nothing is believed that a file says of itself before it was checked.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::At;
use crate::oid::{ObjectKind, Oid};

use super::files;
use super::inflate::{Contents, Fault, Stream};

/// What an index begins with: its mark and version.
const INDEX_MARK: &[u8; 8] = b"\xfftOc\0\0\0\x02";
/// Where 256 counts begin: of names whose first byte is at most this.
const COUNTS_AT: u64 = 8;
/// Where the names begin, 20 bytes each; behind them as many checksums and offsets of four bytes, then long offsets.
const NAMES_AT: u64 = COUNTS_AT + 256 * 4;
/// Two checksums end an index, one of them a pack.
const CHECKSUM_BYTES: u64 = 20;
/// In an offset: it is the number of a long one.
const IS_LONG: u32 = 1 << 31;
/// Objects begin behind the header of a pack.
const PACK_HEADER_BYTES: u64 = 12;

/// How a blob stands in a pack.
pub enum PackedBlob {
    /// As a whole: its contents.
    Whole(Box<Contents>, u64),
    /// As the difference to another object.
    Delta,
}

/// Looks a blob up in the packs that are in `dir` now.
pub fn open(dir: &Path, oid: Oid) -> Result<PackedBlob, Fault> {
    for name in files::names(dir)? {
        let index = dir.join(name);
        if index.extension().is_some_and(|it| it == "idx")
            && let Some(offset) = offset_in(&index, oid)?
            && let Some(found) = open_at(&index.with_extension("pack"), offset)?
        {
            return Ok(found);
        }
    }
    Err(Fault::Damaged(
        "isn't in the index of any pack that is whole".into(),
    ))
}

/// Where an object begins in the pack of this index. `None` when it isn't there, and when the index isn't whole.
fn offset_in(index: &Path, oid: Oid) -> Result<Option<u64>, Fault> {
    let Some(file) = files::open_existing(index)? else {
        return Ok(None);
    };
    let bytes = file.metadata().at(index)?.len();
    match look_up(&file, bytes, oid) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        other => Ok(other.at(index)?),
    }
}

fn look_up(index: &File, bytes: u64, oid: Oid) -> io::Result<Option<u64>> {
    let word = |at: u64| -> io::Result<u32> {
        let mut word = [0; 4];
        index.read_exact_at(&mut word, at)?;
        Ok(u32::from_be_bytes(word))
    };
    let count_up_to = |first: u8| word(COUNTS_AT + 4 * u64::from(first)).map(u64::from);
    let mut mark = [0; 8];
    index.read_exact_at(&mut mark, 0)?;
    let all = count_up_to(u8::MAX)?;
    let Some(tables) = bytes.checked_sub(NAMES_AT + all * 28 + 2 * CHECKSUM_BYTES) else {
        return Ok(None);
    };
    let first = oid.0[0];
    let mut low = first.checked_sub(1).map_or(Ok(0), count_up_to)?;
    let mut high = count_up_to(first)?;
    if mark != *INDEX_MARK || low > high || high > all {
        return Ok(None);
    }
    while low < high {
        let middle = low + (high - low) / 2;
        let mut name = [0; 20];
        index.read_exact_at(&mut name, NAMES_AT + middle * 20)?;
        match name.cmp(&oid.0) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
            std::cmp::Ordering::Equal => {
                let offset = word(NAMES_AT + all * 24 + middle * 4)?;
                if offset & IS_LONG == 0 {
                    return Ok(Some(offset.into()));
                }
                let number = u64::from(offset & !IS_LONG);
                if (number + 1) * 8 > tables {
                    return Ok(None);
                }
                let mut long = [0; 8];
                index.read_exact_at(&mut long, NAMES_AT + all * 28 + number * 8)?;
                return Ok(Some(u64::from_be_bytes(long)));
            }
        }
    }
    Ok(None)
}

/// What begins at this place of a pack. `None` when the pack isn't there.
fn open_at(pack: &Path, offset: u64) -> Result<Option<PackedBlob>, Fault> {
    let Some(mut file) = files::open_existing(pack)? else {
        return Ok(None);
    };
    let meta = file.metadata().at(pack)?;
    let end = meta.len().saturating_sub(CHECKSUM_BYTES);
    if !meta.is_file() || offset < PACK_HEADER_BYTES || offset >= end {
        return Err(Fault::Damaged(
            "is said to be where its pack doesn't reach".into(),
        ));
    }
    file.seek(SeekFrom::Start(offset)).at(pack)?;
    let mut file = BufReader::with_capacity(64 << 10, file.take(end - offset));
    let mut next = || -> Result<u8, Fault> {
        let mut byte = [0];
        match file.read_exact(&mut byte) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(Fault::Damaged("is truncated".into()))
            }
            other => Ok(other.at(pack).map(|()| byte[0])?),
        }
    };
    // The kind in three bits, the size in the rest, seven bits a byte, the first with four.
    let mut byte = next()?;
    let kind = byte >> 4 & 0x07;
    let mut size = u64::from(byte & 0x0f);
    let mut shift = 4;
    while byte & 0x80 != 0 {
        byte = next()?;
        if shift > u64::BITS - 8 {
            return Err(Fault::Damaged("has a wrong header".into()));
        }
        size |= u64::from(byte & 0x7f) << shift;
        shift += 7;
    }
    match kind {
        3 => {
            let stream = Stream::new(file, pack.to_owned());
            let contents = Contents::new(stream, ObjectKind::Blob, size);
            Ok(Some(PackedBlob::Whole(Box::new(contents), size)))
        }
        6 | 7 => Ok(Some(PackedBlob::Delta)),
        _ => Err(Fault::Damaged("is no blob where it is said to be".into())),
    }
}
