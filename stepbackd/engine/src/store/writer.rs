//! Adds objects: few become loose objects, many one pack. Hashing and compressing happen outside the lock, on the threads
//! that bring them.

use std::collections::{BTreeSet, HashSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use rayon::prelude::*;

use super::Store;
use super::ahead::Batch;
use super::deflate::{self, StreamError};
use super::files::{self, FSYNC_EACH_MAX, OBJECT_MODE, TempFile};
use super::lock::SharedLock;
use super::loose;
use super::pack::Packed;
use super::pack_set::PackSet;
use super::prepared_refs::{PreparedRefs, RefChange};
use super::read::{Existing, Objects};
use crate::error::{At, Error, Result};
use crate::oid::{ObjectKind, Oid};

/// So many new objects are kept in memory and become loose; one more, and all go to a pack.
const LOOSE_MAX: usize = 32;
/// So many bytes of them are kept in memory.
const PENDING_BYTES_MAX: usize = 8 << 20;
/// Once so many were put, the loose objects of the store are listed, instead of looking for one of each name.
const LIST_FROM: usize = 1_000;
/// Compressed objects above are synced by themselves.
const SMALL_BYTES: usize = 16 << 10;
/// Blobs above are loose whatever comes, so that they can be written and read in pieces.
pub const LARGE_BYTES: u64 = 4 << 20;

/// Collects new objects. `Sync`: shared by the threads of a scan. Holds the store's shared lock from the first object on.
///
/// Nothing of it can be relied on before [`ObjectWriter::finish`] returns; dropped without, it leaves nothing behind.
pub struct ObjectWriter<'a> {
    store: &'a Store,
    /// Where all go once they are many.
    packs: OnceLock<PackSet>,
    /// The store's loose objects, listed in a large batch. What others add meanwhile may be stored twice, which does no harm.
    loose: OnceLock<HashSet<Oid>>,
    /// After the packs, so that their temporary files are gone before its lock is.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Objects that were put, so that none is twice in a pack.
    seen: HashSet<Oid>,
    /// An object that was said to be there isn't: nothing can be finished.
    failed: bool,
    pending: Vec<Pending>,
    pending_bytes: usize,
    /// Written loose objects that wait for their names: large ones, and replacements of damaged ones.
    written: Vec<(Oid, TempFile)>,
    /// How many of `written` aren't durable yet.
    unsynced: usize,
    relied: Relied,
    /// Last, so that temporaries are gone before it is.
    lock: Option<SharedLock>,
}

impl std::fmt::Debug for ObjectWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        f.debug_struct("ObjectWriter")
            .field("store", &self.store.dir)
            .field("seen", &state.seen.len())
            .field("failed", &state.failed)
            .finish_non_exhaustive()
    }
}

struct Pending {
    oid: Oid,
    kind: ObjectKind,
    body: Vec<u8>,
}

/// What others wrote and this batch relies on. They may be about to sync it, or have died before: so we do it too.
#[derive(Default)]
struct Relied {
    fan_outs: BTreeSet<u8>,
    packs: bool,
    loose: Vec<(Oid, loose::Stamp)>,
}

impl<'a> ObjectWriter<'a> {
    pub(super) fn new(store: &'a Store) -> Self {
        Self {
            store,
            packs: OnceLock::new(),
            loose: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an object; does nothing when this writer or the store has it (verified, not just by name).
    ///
    /// # Errors
    /// When the store can't be read or written; then the writer is of no more use.
    pub fn put(&self, kind: ObjectKind, body: &[u8]) -> Result<Oid> {
        self.put_if_new(kind, body).map(|(oid, _)| oid)
    }

    /// As [`ObjectWriter::put`], and tells whether it was added.
    ///
    /// # Errors
    /// As [`ObjectWriter::put`].
    pub fn put_if_new(&self, kind: ObjectKind, body: &[u8]) -> Result<(Oid, bool)> {
        let oid = Oid::of(kind, body);
        let is_new = self.claim(oid)? && self.noting_failure(|| self.add(oid, kind, body))?;
        Ok((oid, is_new))
    }

    /// Adds a blob of exactly `size` bytes; a large one isn't held whole. `None` when the reader gave more or less.
    ///
    /// # Errors
    /// As [`ObjectWriter::put`]; an error of the reader comes back as [`Error::Io`] with an empty path, as only the
    /// caller knows what it reads, and doesn't spoil the writer.
    pub fn put_stream(&self, size: u64, from: &mut dyn Read) -> Result<Option<Oid>> {
        if size <= LARGE_BYTES {
            let room = usize::try_from(size).expect("at most 4 MiB");
            let mut body = Vec::with_capacity(room + 1);
            from.take(size + 1).read_to_end(&mut body).at("")?;
            return if body.len() == room {
                self.put(ObjectKind::Blob, &body).map(Some)
            } else {
                Ok(None)
            };
        }
        drop(self.begin()?);
        let mut temp = TempFile::new(&self.store.objects, "tmp_obj_", OBJECT_MODE)?;
        let oid = match deflate::loose_stream(size, from, &mut temp) {
            Ok(Some(oid)) => oid,
            Ok(None) => return Ok(None),
            Err(StreamError::Reader(error)) => return Err(error).at(""),
            Err(StreamError::Writer(error)) => return Err(error).at(temp.path()),
        };
        if self.claim(oid)? {
            self.noting_failure(|| match self.found(oid)? {
                Existing::Loose { .. } | Existing::Packed => Ok(()),
                Existing::Absent | Existing::Damaged => self.keep(oid, temp),
            })?;
        }
        Ok(Some(oid))
    }

    /// Whether the store has a good object of this name; from here on it stays.
    ///
    /// # Errors
    /// When the store can't be read.
    pub fn has(&self, oid: Oid) -> Result<bool> {
        drop(self.begin()?);
        self.store.has(oid)
    }

    /// From the first object on: nobody prunes, and nobody takes our temporary files for left-over ones.
    fn begin(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        if state.lock.is_none() {
            state.lock = Some(self.store.lock()?);
            self.store.packs.refresh()?;
        }
        Ok(state)
    }

    /// Whether this object is to be looked after by the caller; not when it was put before.
    fn claim(&self, oid: Oid) -> Result<bool> {
        let (is_first, seen) = {
            let mut state = self.begin()?;
            (state.seen.insert(oid), state.seen.len())
        };
        if is_first && seen == LIST_FROM {
            let names = self.store.loose_names()?.into_iter().collect();
            self.loose.get_or_init(|| names);
        }
        Ok(is_first)
    }

    fn noting_failure<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let result = work();
        if result.is_err() {
            self.state().failed = true;
        }
        result
    }

    /// What the store has under this name; when it is good, this batch relies on it from now on.
    fn found(&self, oid: Oid) -> Result<Existing> {
        let existing = match self.loose.get() {
            Some(loose) if !loose.contains(&oid) => self.store.existing_in_packs(oid)?,
            _ => self.store.existing(oid)?,
        };
        match existing {
            Existing::Damaged => self.store.make_way(oid)?,
            Existing::Loose { stamp, known: false } => {
                let relied = &mut self.state().relied;
                relied.fan_outs.insert(oid.0[0]);
                relied.loose.push((oid, stamp));
            }
            Existing::Packed => self.state().relied.packs = true,
            _ => {}
        }
        Ok(existing)
    }

    /// Whether the store doesn't have it yet.
    fn add(&self, oid: Oid, kind: ObjectKind, body: &[u8]) -> Result<bool> {
        match self.found(oid)? {
            Existing::Loose { .. } | Existing::Packed => return Ok(false),
            Existing::Absent if body.len() as u64 <= LARGE_BYTES => {}
            // Loose objects are read first, so this one stands before a damaged one in a pack as well.
            Existing::Absent | Existing::Damaged => {
                let mut temp = TempFile::new(&self.store.objects, "tmp_obj_", OBJECT_MODE)?;
                temp.write_all(&deflate::loose(kind, body).at(temp.path())?)?;
                return self.keep(oid, temp).map(|()| true);
            }
        }
        let (packs, pending) = {
            let mut state = self.state();
            let fits =
                state.pending.len() < LOOSE_MAX && state.pending_bytes + body.len() <= PENDING_BYTES_MAX;
            if self.packs.get().is_none() && fits {
                state.pending_bytes += body.len();
                state.pending.push(Pending {
                    oid,
                    kind,
                    body: body.to_vec(),
                });
                return Ok(true);
            }
            let packs = self.packs.get_or_init(|| PackSet::new(self.store.pack_dir()));
            (packs, std::mem::take(&mut state.pending))
        };
        let append = |oid, kind, body: &[u8]| {
            let packed = Packed::new(oid, kind, body).at(&self.store.objects)?;
            packs.append(&packed)
        };
        for object in pending {
            append(object.oid, object.kind, &object.body)?;
        }
        append(oid, kind, body)?;
        Ok(true)
    }

    /// A written loose object waits for its name.
    fn keep(&self, oid: Oid, mut temp: TempFile) -> Result<()> {
        // The first are synced at once, while their descriptor is at hand; beyond, one barrier does for all.
        let each = self.state().written.len() < FSYNC_EACH_MAX;
        if each {
            temp.sync()?;
        }
        temp.close();
        let mut state = self.state();
        state.unsynced += usize::from(!each);
        state.written.push((oid, temp));
        Ok(())
    }

    /// Makes everything durable: when this returns, refs may point to the objects.
    ///
    /// # Errors
    /// When something can't be written. What is already in the store then stays there, good but unused.
    pub fn finish(self) -> Result<()> {
        self.finish_with(&[]).map(drop)
    }

    /// The same, and the new values of refs are written and durable beside the old ones: nothing is left to do but to
    /// publish them, in this order. That saves a barrier for each.
    ///
    /// # Errors
    /// As [`Self::finish`] and [`Store::set_ref`].
    pub fn finish_with(self, changes: &[RefChange<'_>]) -> Result<PreparedRefs> {
        let store = self.store;
        let mut state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let packs = self.packs.into_inner();
        if state.failed {
            return Err(io::Error::other("an object of this batch couldn't be written")).at(&store.objects);
        }
        let mut batch = Batch::default();
        let mut small = Vec::with_capacity(state.pending.len());
        for (oid, bytes) in compress(&state.pending).at(&store.objects)? {
            let mut temp = TempFile::new(&store.objects, "tmp_obj_", OBJECT_MODE)?;
            temp.write_all(&bytes)?;
            if bytes.len() > SMALL_BYTES {
                temp.sync()?;
                state.written.push((oid, temp));
            } else {
                batch.object(oid, &bytes);
                small.push((oid, temp));
            }
        }
        let (mut named, mut added) = store.publish_large(packs, &mut state)?;
        let mut refs = store.prepare_refs(changes)?;
        changes
            .iter()
            .for_each(|change| batch.set(change.name, change.new));
        if !small.is_empty() || !changes.is_empty() {
            let _serial = match changes {
                [] => Some(store.lock_refs()?),
                _ => None,
            };
            let ahead = store.ahead.append(&batch)?;
            if ahead {
                refs.are_ahead(&store.ahead);
            } else {
                store.ahead.settle(false)?;
                let mut new = refs.files();
                new.extend(small.iter().map(|(_, temp)| temp));
                files::sync_files(&new)?;
            }
            let (oids, fan_outs) = store.name_objects(small)?;
            if !ahead {
                store.sync_fan_outs(&fan_outs)?;
            }
            named.extend(oids);
        }
        for oid in named {
            if let Some(stamp) = loose::stamp(&store.objects, oid)? {
                added.push(stamp.size());
                store.known.add(oid, stamp);
            }
        }
        added.into_iter().for_each(|bytes| store.size.add_file(bytes));
        for (oid, stamp) in state.relied.loose {
            store.known.add(oid, stamp);
        }
        Ok(refs)
    }

    /// A new object that waits in memory.
    fn waiting(&self, oid: Oid) -> Option<(ObjectKind, Vec<u8>)> {
        let state = self.state();
        let object = state.pending.iter().find(|object| object.oid == oid)?;
        Some((object.kind, object.body.clone()))
    }

    /// Whether this is an object that this writer will add, and that can be read through it.
    #[must_use]
    pub fn is_new(&self, oid: Oid) -> bool {
        self.state().pending.iter().any(|object| object.oid == oid)
    }

    /// Whether all that was put can be read through this writer already.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.packs.get().is_none() && self.state().written.is_empty()
    }
}

impl Objects for ObjectWriter<'_> {
    fn read(&self, oid: Oid, kind: ObjectKind) -> Result<Vec<u8>> {
        match self.waiting(oid) {
            Some((found, body)) if found == kind => Ok(body),
            _ => self.store.read(oid, kind),
        }
    }

    fn path(&self) -> &Path {
        self.store.path()
    }
}

/// The loose forms of objects; a few aren't worth another thread.
fn compress(pending: &[Pending]) -> io::Result<Vec<(Oid, Vec<u8>)>> {
    pending
        .par_iter()
        .with_min_len(16)
        .map(|object| Ok((object.oid, deflate::loose(object.kind, &object.body)?)))
        .collect()
}

impl Store {
    /// Makes what is too large for the file ahead durable under its names, and what others wrote that this batch relies on.
    /// Says which loose objects these are, and how many bytes each pack has.
    fn publish_large(&self, packs: Option<PackSet>, state: &mut State) -> Result<(Vec<Oid>, Vec<u64>)> {
        let pack_dir = self.pack_dir();
        let all_at_once = state.unsynced > 0;
        let packs = packs.map(|packs| packs.seal(!all_at_once)).transpose()?;
        if all_at_once {
            files::sync_file_system(&self.objects)?;
        }
        let mut added = Vec::new();
        if let Some(packs) = packs {
            added = packs.publish(&pack_dir)?;
            self.packs.refresh()?;
        } else if state.relied.packs {
            self.packs.sync()?;
        }
        let (named, mut fan_outs) = self.name_objects(std::mem::take(&mut state.written))?;
        fan_outs.append(&mut state.relied.fan_outs);
        self.sync_fan_outs(&fan_outs)?;
        Ok((named, added))
    }

    /// Gives objects their names, not durable yet; and says in which fan-out directories they are.
    fn name_objects(&self, objects: Vec<(Oid, TempFile)>) -> Result<(Vec<Oid>, BTreeSet<u8>)> {
        let mut fan_outs = BTreeSet::new();
        let mut named = Vec::with_capacity(objects.len());
        for (oid, temp) in objects {
            let path = loose::path(&self.objects, oid);
            let fan_out = path.parent().expect("a loose object is in a fan-out directory");
            if fan_outs.insert(oid.0[0]) && self.make_fan_out(fan_out)? {
                // It may have been there before, and garbage collection has removed it since.
                self.durable_fan_outs().remove(&oid.0[0]);
            }
            temp.rename(&path)?;
            named.push(oid);
        }
        Ok((named, fan_outs))
    }

    /// Makes the entries of fan-out directories durable.
    fn sync_fan_outs(&self, fan_outs: &BTreeSet<u8>) -> Result<()> {
        if fan_outs.len() > FSYNC_EACH_MAX {
            return files::sync_file_system(&self.objects);
        }
        let mut dirs: Vec<PathBuf> = fan_outs
            .iter()
            .map(|first| loose::fan_out(&self.objects, *first))
            .collect();
        // A directory that somebody made just now may itself not be durable yet.
        let mut durable = self.durable_fan_outs();
        if !fan_outs.is_subset(&durable) {
            dirs.push(self.objects.clone());
        }
        dirs.iter().try_for_each(|dir| files::sync_dir(dir))?;
        durable.extend(fan_outs);
        Ok(())
    }

    fn durable_fan_outs(&self) -> MutexGuard<'_, BTreeSet<u8>> {
        self.durable_fan_outs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

// A scan shares one writer between its threads.
const _: fn() = || {
    fn shared<T: Sync + Send>() {}
    shared::<ObjectWriter<'_>>();
    shared::<Store>();
    shared::<Error>();
};
