//! The index of a pack (git's format, version 2), read: which objects the pack has, and where.

use std::path::Path;

use sha1::{Digest, Sha1};

use crate::error::{At, Error, Result};
use crate::oid::Oid;

/// Names stand behind the header and 256 counts, of which the last is that of all.
const NAMES_AT: usize = 8 + 256 * 4;
/// Checksums stand at the end, the pack's and the index's own.
const CHECKSUM: usize = 20;
/// This bit of an offset says that it stands in the table of long ones, and the rest where.
const LONG: u32 = 1 << 31;

/// Where an object stands in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its name.
    pub oid: Oid,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// So many bytes it has there.
    pub bytes: u64,
    /// Their checksum.
    pub crc: u32,
}

/// An index, in memory.
pub struct Index {
    bytes: Vec<u8>,
    count: usize,
}

impl Index {
    /// Reads and checks one.
    ///
    /// # Errors
    /// [`Error::Damaged`] of `store` when its checksum isn't right, or it isn't one.
    pub fn read(store: &Path, path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).at(path)?;
        let damaged = || Error::Damaged {
            store: store.to_owned(),
            what: format!("{} isn't a good index of a pack", path.display()),
        };
        let (before, stated) = bytes.split_last_chunk::<CHECKSUM>().ok_or_else(damaged)?;
        let sound = Sha1::digest(before).as_slice() == stated;
        if !sound || !bytes.starts_with(b"\xfftOc\0\0\0\x02") || bytes.len() < NAMES_AT + 2 * CHECKSUM {
            return Err(damaged());
        }
        let mut index = Self { bytes, count: 0 };
        index.count = index.word(NAMES_AT / 4 - 1) as usize;
        // Name, checksum and offset of each.
        match index.bytes.len() >= NAMES_AT + 28 * index.count + 2 * CHECKSUM {
            true => Ok(index),
            false => Err(damaged()),
        }
    }

    /// The objects, sorted by name.
    pub fn names(&self) -> impl Iterator<Item = Oid> {
        let names = &self.bytes[NAMES_AT..NAMES_AT + 20 * self.count];
        names.chunks_exact(20).filter_map(Oid::from_slice)
    }

    /// The objects, sorted by where they begin in a pack of so many bytes. `None` when they can't all be in it.
    pub fn places(&self, pack_bytes: u64) -> Option<Vec<Place>> {
        let crcs = (NAMES_AT + 20 * self.count) / 4;
        let mut places = Vec::with_capacity(self.count);
        for (i, oid) in self.names().enumerate() {
            places.push(Place {
                oid,
                offset: self.offset(i)?,
                bytes: 0,
                crc: self.word(crcs + i),
            });
        }
        places.sort_unstable_by_key(|place| place.offset);
        let mut end = pack_bytes.checked_sub(CHECKSUM as u64)?;
        for place in places.iter_mut().rev() {
            place.bytes = end.checked_sub(place.offset)?;
            end = place.offset;
        }
        Some(places)
    }

    fn offset(&self, i: usize) -> Option<u64> {
        let offsets = (NAMES_AT + 24 * self.count) / 4;
        let offset = self.word(offsets + i);
        if offset & LONG == 0 {
            return Some(u64::from(offset));
        }
        let at = 4 * (offsets + self.count) + 8 * (offset & !LONG) as usize;
        let end = self.bytes.len() - 2 * CHECKSUM;
        let long = self.bytes[..end].get(at..at + 8)?;
        Some(u64::from_be_bytes(long.try_into().ok()?))
    }

    /// The `i`-th four bytes; that they are there was checked.
    fn word(&self, i: usize) -> u32 {
        let word = &self.bytes[4 * i..4 * i + 4];
        u32::from_be_bytes(word.try_into().expect("four bytes"))
    }
}
