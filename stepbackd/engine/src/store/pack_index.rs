//! The index of a pack (git's format, version 2), read where it is asked: which objects the pack has, and where. Nothing is
//! believed that it says of itself before it was checked.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sha1::{Digest, Sha1};

use crate::error::{At, Error, Result};
use crate::oid::Oid;

use super::files;
use super::pack_entry::PACK_HEADER_BYTES;

/// What an index begins with: its mark and version.
const MARK: &[u8; 8] = b"\xfftOc\0\0\0\x02";
/// Behind it 256 counts: of names whose first byte is at most this. The last is that of all.
const COUNTS: usize = 256;
/// Where the names begin, 20 bytes each; behind them as many checksums and offsets of four bytes, then long offsets.
const NAMES_AT: u64 = 8 + 4 * COUNTS as u64;
/// Name, checksum and offset of an object, in bytes.
const EACH: u64 = 20 + 4 + 4;
/// Two checksums end an index, the pack's and its own, and one of them a pack.
pub const CHECKSUM_BYTES: u64 = 20;
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

/// An index that is open. Its mark, counts and size were checked, its checksum only by [`Self::check`].
///
/// All its functions fail with [`Error::Damaged`] where it isn't a good index.
pub struct Index {
    file: File,
    path: PathBuf,
    /// The store that it belongs to, for errors.
    store: PathBuf,
    counts: [u32; COUNTS],
    /// Its size, in bytes.
    bytes: u64,
}

impl Index {
    /// Opens one. `None` when it isn't there.
    pub fn open(store: &Path, path: &Path) -> Result<Option<Self>> {
        let Some(file) = files::open_existing(path)? else {
            return Ok(None);
        };
        let bytes = file.metadata().at(path)?.len();
        let mut index = Self {
            file,
            path: path.to_owned(),
            store: store.to_owned(),
            counts: [0; COUNTS],
            bytes,
        };
        let mut mark = [0; MARK.len()];
        index.read_at(0, &mut mark)?;
        let counts = index.table(MARK.len() as u64, 4 * COUNTS as u64)?;
        for (count, word) in index.counts.iter_mut().zip(words(&counts)) {
            *count = word;
        }
        let sound = mark == *MARK && index.counts.is_sorted() && index.longs_at() <= index.end();
        if sound {
            Ok(Some(index))
        } else {
            Err(index.damaged())
        }
    }

    /// Opens one that must be there, and checks its checksum.
    pub fn open_checked(store: &Path, path: &Path) -> Result<Self> {
        let found = Self::open(store, path)?;
        let index = found
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
            .at(path)?;
        index.check()?;
        Ok(index)
    }

    /// Whether its own checksum is right.
    fn check(&self) -> Result<()> {
        let all = self.table(0, self.bytes)?;
        match all.split_last_chunk::<{ CHECKSUM_BYTES as usize }>() {
            Some((before, stated)) if Sha1::digest(before).as_slice() == stated => Ok(()),
            _ => Err(self.damaged()),
        }
    }

    /// Where an object begins in the pack, in bytes. `None` when it isn't there.
    pub fn find(&self, oid: Oid) -> Result<Option<u64>> {
        let first = usize::from(oid.0[0]);
        let count_up_to = |first: usize| u64::from(self.counts[first]);
        let mut low = first.checked_sub(1).map_or(0, count_up_to);
        let mut high = count_up_to(first);
        while low < high {
            let middle = low + (high - low) / 2;
            let mut name = [0; 20];
            self.read_at(NAMES_AT + 20 * middle, &mut name)?;
            match name.cmp(&oid.0) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => {
                    let mut offset = [0; 4];
                    self.read_at(self.offsets_at() + 4 * middle, &mut offset)?;
                    return self.offset(u32::from_be_bytes(offset)).map(Some);
                }
            }
        }
        Ok(None)
    }

    /// The objects, sorted by name.
    pub fn names(&self) -> Result<Vec<Oid>> {
        let names = self.table(NAMES_AT, 20 * self.count())?;
        Ok(names.chunks_exact(20).filter_map(Oid::from_slice).collect())
    }

    /// The objects, sorted by where they begin in a pack of so many bytes, all of which are in it.
    pub fn places(&self, pack_bytes: u64) -> Result<Vec<Place>> {
        let crcs = self.table(self.crcs_at(), 4 * self.count())?;
        let offsets = self.table(self.offsets_at(), 4 * self.count())?;
        let mut places = Vec::with_capacity(crcs.len() / 4);
        for ((oid, crc), offset) in self.names()?.into_iter().zip(words(&crcs)).zip(words(&offsets)) {
            places.push(Place {
                oid,
                offset: self.offset(offset)?,
                bytes: 0,
                crc,
            });
        }
        places.sort_unstable_by_key(|place| place.offset);
        let isnt_its_pack = || self.damage(&format!("isn't that of its pack of {pack_bytes} bytes"));
        let begin = places.first().map_or(PACK_HEADER_BYTES, |place| place.offset);
        let mut end = pack_bytes
            .checked_sub(CHECKSUM_BYTES)
            .filter(|_| begin >= PACK_HEADER_BYTES)
            .ok_or_else(isnt_its_pack)?;
        for place in places.iter_mut().rev() {
            place.bytes = end.checked_sub(place.offset).ok_or_else(isnt_its_pack)?;
            end = place.offset;
        }
        Ok(places)
    }

    fn count(&self) -> u64 {
        self.counts[COUNTS - 1].into()
    }

    fn crcs_at(&self) -> u64 {
        NAMES_AT + 20 * self.count()
    }

    fn offsets_at(&self) -> u64 {
        NAMES_AT + 24 * self.count()
    }

    fn longs_at(&self) -> u64 {
        NAMES_AT + EACH * self.count()
    }

    /// Where the checksums begin.
    fn end(&self) -> u64 {
        self.bytes.saturating_sub(2 * CHECKSUM_BYTES)
    }

    /// What an entry of the table of offsets stands for.
    fn offset(&self, entry: u32) -> Result<u64> {
        if entry & LONG == 0 {
            return Ok(entry.into());
        }
        let at = self.longs_at() + 8 * u64::from(entry & !LONG);
        if at + 8 > self.end() {
            return Err(self.damaged());
        }
        let mut long = [0; 8];
        self.read_at(at, &mut long)?;
        Ok(u64::from_be_bytes(long))
    }

    /// So many bytes from there on, of which `open` has seen that the index has them.
    fn table(&self, at: u64, bytes: u64) -> Result<Vec<u8>> {
        let mut table = vec![0; usize::try_from(bytes).map_err(|_| self.damaged())?];
        self.read_at(at, &mut table)?;
        Ok(table)
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> Result<()> {
        match self.file.read_exact_at(into, at) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(self.damaged()),
            other => other.at(&self.path),
        }
    }

    fn damaged(&self) -> Error {
        self.damage("isn't a good index of a pack")
    }

    fn damage(&self, how: &str) -> Error {
        Error::Damaged {
            store: self.store.clone(),
            what: format!("{} {how}", self.path.display()),
        }
    }
}

/// Four bytes each.
fn words(table: &[u8]) -> impl Iterator<Item = u32> {
    table.as_chunks().0.iter().map(|word| u32::from_be_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oid::ObjectKind;
    use crate::store::pack::{PackWriter, Packed};

    /// A pack of some blobs: its index, its size, and the blobs.
    fn pack(dir: &Path) -> (PathBuf, u64, Vec<Oid>) {
        let mut writer = PackWriter::new(dir).unwrap();
        let mut names = Vec::new();
        for i in 0..600u32 {
            let body = i.to_string().into_bytes();
            let oid = Oid::of(ObjectKind::Blob, &body);
            writer
                .append(&Packed::new(oid, ObjectKind::Blob, &body).unwrap())
                .unwrap();
            names.push(oid);
        }
        let bytes = writer.end() + CHECKSUM_BYTES;
        let sealed = writer.seal(dir, false).unwrap();
        let index = dir.join(sealed.name()).with_extension("idx");
        sealed.publish(dir).unwrap();
        (index, bytes, names)
    }

    #[test]
    fn what_is_found_alone_is_where_all_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, bytes, names) = pack(dir.path());
        let index = Index::open_checked(dir.path(), &path).unwrap();
        let places = index.places(bytes).unwrap();
        assert_eq!(places.iter().map(|place| place.oid).collect::<Vec<_>>(), names);
        for place in &places {
            assert_eq!(index.find(place.oid).unwrap(), Some(place.offset));
        }
        assert_eq!(places.iter().map(|place| place.bytes).sum::<u64>(), bytes - 32);
        let absent = [Oid([0; 20]), Oid([0xff; 20]), Oid::EMPTY_TREE];
        for oid in absent {
            assert_eq!(index.find(oid).unwrap(), None);
        }
        let sorted = index.names().unwrap();
        assert!(sorted.is_sorted() && sorted.len() == names.len());
        assert!(
            Index::open(dir.path(), &dir.path().join("none"))
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn a_pack_too_small_for_its_index_is_damage() {
        let dir = tempfile::tempdir().unwrap();
        let (path, bytes, _) = pack(dir.path());
        let index = Index::open(dir.path(), &path).unwrap().unwrap();
        for wrong in [0, 19, 20, 31, bytes / 2] {
            let places = index.places(wrong);
            assert!(
                matches!(places, Err(Error::Damaged { .. })),
                "{wrong}: {places:?}"
            );
        }
    }

    /// Whatever a byte of it is made to be, it is never read outside of itself.
    #[test]
    fn a_damaged_index_is_an_error_or_not_followed_too_far() {
        let dir = tempfile::tempdir().unwrap();
        let (path, bytes, names) = pack(dir.path());
        let good = std::fs::read(&path).unwrap();
        let bad = dir.path().join("bad.idx");
        let mut changed = good.clone();
        for at in (0..good.len()).step_by(101) {
            changed[at] ^= 0xff;
            std::fs::write(&bad, &changed).unwrap();
            let checked = Index::open_checked(dir.path(), &bad);
            assert!(matches!(checked, Err(Error::Damaged { .. })), "{at}");
            if let Ok(index) = Index::open(dir.path(), &bad) {
                let index = index.unwrap();
                names.iter().for_each(|oid| drop(index.find(*oid)));
                drop(index.places(bytes));
            }
            changed[at] = good[at];
        }
        for cut in (0..good.len()).step_by(997) {
            std::fs::write(&bad, &good[..cut]).unwrap();
            let opened = Index::open_checked(dir.path(), &bad);
            assert!(matches!(opened, Err(Error::Damaged { .. })), "{cut}");
        }
    }
}
