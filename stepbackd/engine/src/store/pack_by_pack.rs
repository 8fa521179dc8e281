//! Giving space back where a store can't be packed anew beside itself: one pack after the other, so that each makes room for
//! the next. Packs of which refs reach nothing go at once, which needs no room. Of another what refs reach is copied into a
//! new one, as it stands there: a delta stays one as long as its base stays.
//!
//! At any moment, also after a crash, everything that a ref needs is there: a pack goes after the one in its place is durable.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::PathBuf;

use flate2::CrcReader;

use crate::error::{At, Error, Result, damaged_object};
use crate::fault;
use crate::oid::Oid;

use super::git::Interrupt;
use super::pack::{PackWriter, Packed};
use super::pack_entry::{EntryHeader, Form};
use super::pack_index::{Index, Place};
use super::sweep::Reached;
use super::{RESERVE_BYTES, Store, create, files};

/// Room that is left alone beside a new pack, in bytes: files end in blocks, and others write, too.
const SPARE: u64 = 64 << 10;
/// A pack of one object, without the object: header, index, checksums.
const FRAME_BYTES: u64 = 12 + 20 + 1_092;
/// What an index has of each object.
const INDEX_BYTES: u64 = 28;

/// A pack that has something that refs don't reach.
struct Mixed {
    name: OsString,
    /// Its size with its index, in bytes.
    bytes: u64,
    /// What is known to be needed for what refs reach of it, in bytes.
    kept: u64,
}

impl Mixed {
    /// Whether it gives more for what it needs than another.
    fn cmp_worth(&self, other: &Self) -> std::cmp::Ordering {
        // Bytes over bytes needed, without dividing.
        let worth = |a: &Self, b: &Self| u128::from(a.bytes) * u128::from(b.kept);
        worth(self, other).cmp(&worth(other, self))
    }
}

/// What became of a pack.
enum Became {
    Smaller,
    /// What was written came to more than was to be used.
    TooLarge,
}

impl Store {
    /// Removes what no ref reaches from packs as far as `free`, which says how many bytes are free, allows it; whether
    /// nothing of that is left. The caller has the exclusive lock. The reserve goes when nothing else helps.
    ///
    /// # Errors
    /// [`Error::Cancelled`]; when a ref is broken, or an object on the way to others can't be read: then nothing is removed.
    pub(super) fn give_back_by_pack(
        &self,
        free: &dyn Fn() -> Result<u64>,
        interrupt: &Interrupt,
    ) -> Result<bool> {
        let reached = self.reached(interrupt)?;
        self.remove_torn(&reached)?;
        let mut all = true;
        let mut waiting = Vec::new();
        for name in self.pack_names()? {
            interrupt.check()?;
            match self.look_at(&name, &reached) {
                Ok((0, _)) => self.remove_pack(&name)?,
                Ok((_, mixed)) => waiting.extend(mixed),
                // It stays as it is.
                Err(Error::Damaged { .. }) => all = false,
                Err(error) => return Err(error),
            }
        }
        // The one that gives most for what it needs comes last, and first out.
        waiting.sort_by(Mixed::cmp_worth);
        while !waiting.is_empty() {
            // A deleted pack takes its room as long as it is open.
            self.packs.refresh()?;
            let room = free()?.saturating_sub(SPARE);
            let Some(at) = waiting.iter().rposition(|pack| pack.kept <= room) else {
                let with_reserve = room.saturating_add(RESERVE_BYTES);
                if self.reserve_path().exists() && waiting.iter().any(|pack| pack.kept <= with_reserve) {
                    self.release_reserve()?;
                    continue;
                }
                return Ok(false);
            };
            let mut pack = waiting.remove(at);
            match self.write_anew(&pack, &reached, room.min(pack.bytes), interrupt) {
                Ok(Became::Smaller) => {}
                Ok(Became::TooLarge) if pack.bytes > room => {
                    // With more room it may be worth another try.
                    pack.kept = (room + 1).saturating_mul(2);
                    waiting.insert(0, pack);
                }
                Ok(Became::TooLarge) | Err(Error::Damaged { .. }) => all = false,
                Err(error) if error.is_no_space() => all = false,
                Err(error) => return Err(error),
            }
        }
        self.packs.refresh()?;
        Ok(all)
    }

    /// How many objects of a pack refs reach, and what it is when they don't reach all.
    fn look_at(&self, name: &OsStr, reached: &Reached) -> Result<(usize, Option<Mixed>)> {
        let (file, places) = self.open_pack(name)?;
        let bytes = file.metadata().at(self.pack_file(name, "pack"))?.len();
        let index = |count: usize| FRAME_BYTES + INDEX_BYTES * count as u64;
        let kept: Vec<_> = places
            .iter()
            .filter(|place| reached.contains_key(&place.oid))
            .collect();
        let mixed = (kept.len() < places.len()).then(|| Mixed {
            name: name.to_owned(),
            bytes: bytes + index(places.len()) - 32,
            kept: kept.iter().map(|place| place.bytes).sum::<u64>() + index(kept.len()),
        });
        Ok((kept.len(), mixed))
    }

    /// Puts a pack of what refs reach in the place of this one, unless it takes more than `most` bytes. What is a delta of
    /// something that goes is written as a whole.
    fn write_anew(&self, old: &Mixed, reached: &Reached, most: u64, interrupt: &Interrupt) -> Result<Became> {
        let dir = self.pack_dir();
        let path = self.pack_file(&old.name, "pack");
        let (file, places) = self.open_pack(&old.name)?;
        let mut from = BufReader::with_capacity(64 << 10, file);
        let mut at = 0;
        let mut pack = PackWriter::new(&dir)?;
        // Where objects stand in the new pack, by where they stand in the old one.
        let mut moved: HashMap<u64, u64> = HashMap::new();
        for place in &places {
            let Some(kind) = reached.get(&place.oid) else {
                continue;
            };
            interrupt.check()?;
            if pack.bytes() + place.bytes > most {
                return Ok(Became::TooLarge);
            }
            let skipped = i64::try_from(place.offset - at).expect("no file is larger");
            from.seek_relative(skipped).at(&path)?;
            at = place.offset + place.bytes;
            let damaged = || damaged_object(&self.dir, place.oid, "is damaged in its pack");
            let mut entry = CrcReader::new((&mut from).take(place.bytes));
            let begins = pack.end();
            let header = EntryHeader::read(&mut entry).map_err(|_| damaged())?;
            match anew(header, place.offset, begins, &moved) {
                Some(header) => pack.append_from(place.oid, &header, &mut entry)?,
                None => {
                    io::copy(&mut entry, &mut io::sink()).at(&path)?;
                    let body = self.read(place.oid, *kind)?;
                    pack.append(&Packed::new(place.oid, *kind, &body).at(&dir)?)?;
                }
            }
            if entry.crc().sum() != place.crc {
                return Err(damaged());
            }
            moved.insert(place.offset, begins);
        }
        drop(from);
        if pack.bytes() > most {
            return Ok(Became::TooLarge);
        }
        let sealed = pack.seal(&dir, true)?;
        let name = OsString::from(sealed.name());
        sealed.publish(&dir)?;
        if name != old.name {
            self.remove_pack(&old.name)?;
        }
        Ok(Became::Smaller)
    }

    /// Removes a pack and all that belongs to it, so that it is one no longer from the first moment on.
    pub(super) fn remove_pack(&self, name: &OsStr) -> Result<()> {
        for ending in ["idx", "rev", "bitmap", "mtimes", "pack"] {
            let path = self.pack_file(name, ending);
            fault::point("store.remove_pack").at(&path)?;
            files::remove(&path)?;
        }
        Ok(())
    }

    /// Removes halves of packs that were being removed or written, when everything that refs reach is elsewhere.
    fn remove_torn(&self, reached: &Reached) -> Result<()> {
        let mut missing: HashSet<Oid> = reached.keys().copied().collect();
        // Nobody needs this one.
        missing.remove(&Oid::EMPTY_TREE);
        for oid in self.loose_names()? {
            missing.remove(&oid);
        }
        for name in self.pack_names()? {
            let index = Index::open_checked(&self.dir, &self.pack_file(&name, "idx"));
            match index.and_then(|index| index.names()) {
                Ok(names) => names.iter().for_each(|oid| {
                    missing.remove(oid);
                }),
                Err(Error::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        match missing.is_empty() {
            true => create::remove_torn_packs(&self.pack_dir()),
            false => Ok(()),
        }
    }

    /// Names of whole packs, without an ending.
    fn pack_names(&self) -> Result<Vec<OsString>> {
        let mut found = Vec::new();
        for name in files::names(&self.pack_dir())? {
            let path = self.pack_dir().join(name);
            if path.extension().is_some_and(|it| it == "idx")
                && path.with_extension("pack").exists()
                && let Some(name) = path.file_stem()
            {
                found.push(name.to_owned());
            }
        }
        Ok(found)
    }

    fn pack_file(&self, name: &OsStr, ending: &str) -> PathBuf {
        self.pack_dir().join(name).with_extension(ending)
    }

    /// A pack and what it has, in the order in which it stands there.
    fn open_pack(&self, name: &OsStr) -> Result<(File, Vec<Place>)> {
        let path = self.pack_file(name, "pack");
        let file = File::open(&path).at(&path)?;
        let bytes = file.metadata().at(&path)?.len();
        let index = Index::open_checked(&self.dir, &self.pack_file(name, "idx"))?;
        Ok((file, index.places(bytes)?))
    }
}

/// The header of what stood at `offset`, for where it `begins` now. `None` when its base isn't among what was `moved`.
fn anew(header: EntryHeader, offset: u64, begins: u64, moved: &HashMap<u64, u64>) -> Option<EntryHeader> {
    let form = match header.form {
        Form::DeltaOfBefore(distance) => {
            Form::DeltaOfBefore(begins - moved.get(&offset.checked_sub(distance)?)?)
        }
        Form::DeltaOfNamed => return None,
        whole @ Form::Whole(_) => whole,
    };
    Some(EntryHeader { form, ..header })
}
