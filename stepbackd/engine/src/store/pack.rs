//! Writes one pack and its index (git's formats, version 2 each). Objects come whole, each once, in any order.

use std::fs::File;
use std::io::{self, BufRead, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc, CrcWriter};
use sha1::{Digest, Sha1};

use crate::error::{At, Result};
use crate::fault;
use crate::oid::{ObjectKind, Oid};

use super::deflate;
use super::files::{self, OBJECT_MODE, TempFile};
use super::pack_entry::{EntryHeader, Form, PACK_HEADER_BYTES};

/// Offsets from here on stand in the index's table of long ones.
const LONG_OFFSET: u64 = 1 << 31;

/// An object ready to be appended: its bytes as they stand in a pack. Made outside any lock.
pub struct Packed {
    oid: Oid,
    bytes: Vec<u8>,
    crc: u32,
}

impl Packed {
    /// Compresses an object.
    pub fn new(oid: Oid, kind: ObjectKind, body: &[u8]) -> io::Result<Self> {
        let mut bytes = Vec::with_capacity(body.len() / 2 + 64);
        let header = EntryHeader {
            form: Form::Whole(kind),
            size: body.len() as u64,
        };
        bytes.extend(header.bytes());
        deflate::deflate(&[body], &mut bytes)?;
        let mut crc = Crc::new();
        crc.update(&bytes);
        Ok(Self {
            oid,
            bytes,
            crc: crc.sum(),
        })
    }

    /// How many bytes it takes in a pack.
    pub const fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }
}

struct Entry {
    oid: Oid,
    crc: u32,
    offset: u64,
}

/// A pack being written, as a temporary file.
pub struct PackWriter {
    file: BufWriter<TempFile>,
    entries: Vec<Entry>,
    end: u64,
}

impl PackWriter {
    /// Starts a pack in `dir`.
    pub fn new(dir: &Path) -> Result<Self> {
        let temp = TempFile::new(dir, "tmp_pack_", OBJECT_MODE)?;
        let path = temp.path().to_owned();
        let mut file = BufWriter::with_capacity(1 << 20, temp);
        // The number of objects is put in at the end.
        file.write_all(b"PACK\0\0\0\x02\0\0\0\0").at(path)?;
        Ok(Self {
            file,
            entries: Vec::new(),
            end: PACK_HEADER_BYTES,
        })
    }

    /// Bytes of the pack and of its index, about.
    pub const fn bytes(&self) -> u64 {
        self.end + 1_092 + 28 * self.entries.len() as u64
    }

    /// Appends an object that isn't in it yet.
    pub fn append(&mut self, object: &Packed) -> Result<()> {
        let written = self.file.write_all(&object.bytes);
        written.at(self.file.get_ref().path())?;
        self.entries.push(Entry {
            oid: object.oid,
            crc: object.crc,
            offset: self.end,
        });
        self.end += object.bytes.len() as u64;
        Ok(())
    }

    /// Appends a blob that isn't in it yet, of `size` bytes, which `copy` writes: it isn't held whole.
    pub fn append_blob(
        &mut self,
        oid: Oid,
        size: u64,
        copy: impl FnOnce(&mut dyn Write) -> Result<u64>,
    ) -> Result<()> {
        let path = self.file.get_ref().path().to_owned();
        let form = Form::Whole(ObjectKind::Blob);
        let header = EntryHeader { form, size }.bytes();
        let mut out = CrcWriter::new(&mut self.file);
        out.write_all(&header).at(&path)?;
        let mut encoder = ZlibEncoder::new(out, Compression::new(1));
        if copy(&mut encoder)? != size {
            return Err(io::Error::from(io::ErrorKind::InvalidData)).at(path);
        }
        encoder.try_finish().at(&path)?;
        let bytes = header.len() as u64 + encoder.total_out();
        let crc = encoder.finish().at(&path)?.crc().sum();
        self.entries.push(Entry {
            oid,
            crc,
            offset: self.end,
        });
        self.end += bytes;
        Ok(())
    }

    /// Appends an object that stands in another pack: its header made anew, and `rest` as it is.
    pub fn append_from(&mut self, oid: Oid, header: &EntryHeader, rest: &mut dyn BufRead) -> Result<()> {
        let offset = self.end;
        let mut crc = Crc::new();
        self.write(&header.bytes(), &mut crc)?;
        loop {
            let piece = match rest.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other.at(self.file.get_ref().path())?,
            };
            if piece.is_empty() {
                break;
            }
            self.write(piece, &mut crc)?;
            let taken = piece.len();
            rest.consume(taken);
        }
        self.entries.push(Entry {
            oid,
            crc: crc.sum(),
            offset,
        });
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], crc: &mut Crc) -> Result<()> {
        let written = self.file.write_all(bytes);
        written.at(self.file.get_ref().path())?;
        crc.update(bytes);
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Where the next object begins.
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Ends pack and index; both durable but not yet under their names.
    pub fn seal(self, dir: &Path, sync: bool) -> Result<SealedPack> {
        let Self {
            file, mut entries, ..
        } = self;
        let mut pack = file
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
            .at(dir)?;
        let count = u32::try_from(entries.len())
            .map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))
            .at(dir)?;
        let hash = finish_pack(&mut pack, count)?;
        entries.sort_unstable_by_key(|entry| entry.oid);
        let mut index = TempFile::new(dir, "tmp_idx_", OBJECT_MODE)?;
        write_index(&mut index, &entries, hash)?;
        if sync {
            pack.sync()?;
            index.sync()?;
        }
        pack.close();
        index.close();
        Ok(SealedPack {
            pack,
            index,
            name: format!("pack-{}", Oid(hash)),
        })
    }
}

/// A whole pack that waits for its name.
pub struct SealedPack {
    pack: TempFile,
    index: TempFile,
    name: String,
}

impl SealedPack {
    /// Its name, without an ending.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives both files their names, durably.
    pub fn publish(self, dir: &Path) -> Result<()> {
        self.rename(dir)?;
        files::sync_dir(dir)
    }

    /// Gives both files their names, the index last: a pack counts once its index is there. Durable with the directory.
    pub fn rename(self, dir: &Path) -> Result<()> {
        self.pack.rename(&dir.join(format!("{}.pack", self.name)))?;
        self.index.rename(&dir.join(format!("{}.idx", self.name)))
    }
}

/// Puts the count in and the checksum of the whole behind, which is returned.
fn finish_pack(pack: &mut TempFile, count: u32) -> Result<[u8; 20]> {
    let hash = count_and_hash(pack.file(), count).at(pack.path())?;
    pack.write_all(&hash)?;
    Ok(hash)
}

/// The checksum covers the count, which is known last: so it is made of the file, not of what was written.
fn count_and_hash(mut file: &File, count: u32) -> io::Result<[u8; 20]> {
    fault::point("store.write")?;
    file.seek(SeekFrom::Start(8))?;
    file.write_all(&count.to_be_bytes())?;
    file.seek(SeekFrom::Start(0))?;
    let mut hasher = Sha1::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(hasher.finalize().into()),
            Ok(read) => hasher.update(&piece[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Writes the index of `entries`, which are sorted by name.
fn write_index(index: &mut TempFile, entries: &[Entry], pack: [u8; 20]) -> Result<()> {
    let mut bytes = Vec::with_capacity(1032 + entries.len() * 28 + 40);
    bytes.extend_from_slice(b"\xfftOc\0\0\0\x02");
    let mut counts = [0u32; 256];
    for entry in entries {
        counts[usize::from(entry.oid.0[0])] += 1;
    }
    let mut sum = 0;
    for count in counts {
        sum += count;
        bytes.extend_from_slice(&sum.to_be_bytes());
    }
    for entry in entries {
        bytes.extend_from_slice(&entry.oid.0);
    }
    for entry in entries {
        bytes.extend_from_slice(&entry.crc.to_be_bytes());
    }
    let mut long = Vec::new();
    for entry in entries {
        let word = match u32::try_from(entry.offset) {
            Ok(offset) if entry.offset < LONG_OFFSET => offset,
            _ => {
                let place = u32::try_from(long.len()).expect("fewer objects than 2^31");
                long.push(entry.offset);
                place | 1 << 31
            }
        };
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    for offset in long {
        bytes.extend_from_slice(&offset.to_be_bytes());
    }
    bytes.extend_from_slice(&pack);
    let hash: [u8; 20] = Sha1::digest(&bytes).into();
    bytes.extend_from_slice(&hash);
    index.write_all(&bytes)
}

/// Whether a pack and its index are as they were written, by the checksums at their ends; read once, in pieces.
pub fn is_sound(pack: &Path) -> Result<bool> {
    let (whole, [_, in_pack]) = read_through(pack)?;
    let (index_whole, [of_pack, _]) = read_through(&pack.with_extension("idx"))?;
    Ok(whole && index_whole && of_pack == in_pack)
}

/// Whether the checksum at the end of a file is right, and the last two of them.
fn read_through(path: &Path) -> Result<(bool, [[u8; 20]; 2])> {
    let mut file = File::open(path).at(path)?;
    let mut hasher = Sha1::new();
    let mut piece = vec![0; 256 << 10];
    // The last bytes so far: they may be the end.
    let mut kept = 0;
    loop {
        let read = match file.read(&mut piece[kept..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other.at(path)?,
        };
        let all = kept + read;
        let keep = all.min(40);
        if read == 0 {
            let Some((before, stated)) = piece[..all].split_last_chunk::<20>() else {
                return Ok((false, [[0; 20]; 2]));
            };
            hasher.update(before);
            let hash: [u8; 20] = hasher.finalize().into();
            let before = before.last_chunk::<20>().copied().unwrap_or_default();
            return Ok((hash == *stated, [before, *stated]));
        }
        hasher.update(&piece[..all - keep]);
        piece.copy_within(all - keep..all, 0);
        kept = keep;
    }
}
