//! The packs of one batch: one, and when that gets large several, filled in turn. Then threads seldom wait for each other's
//! writes, and what the end of a pack costs, its checksum and its barrier, is paid side by side.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::files;
use super::pack::{PackWriter, Packed, SealedPack};
use crate::error::Result;

/// From so many bytes on a batch has more than one pack.
const ONE_PACK_BYTES: u64 = 16 << 20;
/// It has at most so many: each is one more to look into when an object is read.
const PACKS_MAX: usize = 4;

/// Packs being written. `Sync`: shared by the threads of a scan.
pub struct PackSet {
    dir: PathBuf,
    /// Each is begun when something comes for it.
    packs: Vec<Mutex<Option<PackWriter>>>,
    /// Bytes of objects in all of them.
    bytes: AtomicU64,
    /// Counts those that could go to any.
    turn: AtomicUsize,
}

impl PackSet {
    /// Of packs in `dir`, none yet.
    pub fn new(dir: PathBuf) -> Self {
        let packs = rayon::current_num_threads().clamp(1, PACKS_MAX);
        Self {
            dir,
            packs: (0..packs).map(|_| Mutex::default()).collect(),
            bytes: AtomicU64::new(0),
            turn: AtomicUsize::new(0),
        }
    }

    /// Appends an object that isn't in any of them.
    pub fn append(&self, object: &Packed) -> Result<()> {
        let before = self.bytes.fetch_add(object.bytes(), Ordering::Relaxed);
        let at = match before {
            ..ONE_PACK_BYTES => 0,
            _ => self.turn.fetch_add(1, Ordering::Relaxed) % self.packs.len(),
        };
        let mut pack = self.packs[at].lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *pack {
            Some(pack) => pack.append(object),
            None => pack.insert(PackWriter::new(&self.dir)?).append(object),
        }
    }

    /// Ends all of them, which wait for their names then; durable with `sync`.
    pub fn seal(self, sync: bool) -> Result<SealedSet> {
        let dir = &self.dir;
        let packs = self
            .packs
            .into_par_iter()
            .filter_map(|pack| pack.into_inner().unwrap_or_else(PoisonError::into_inner))
            .map(|pack| Ok((pack.bytes(), pack.seal(dir, sync)?)))
            .collect::<Result<_>>()?;
        Ok(SealedSet(packs))
    }
}

/// Whole packs, each with its bytes and those of its index, about.
pub struct SealedSet(Vec<(u64, SealedPack)>);

impl SealedSet {
    /// Gives them their names, durably. Returns how many bytes each added.
    pub fn publish(self, dir: &Path) -> Result<Vec<u64>> {
        let mut added = Vec::with_capacity(self.0.len());
        for (bytes, pack) in self.0 {
            pack.rename(dir)?;
            added.push(bytes);
        }
        files::sync_dir(dir)?;
        Ok(added)
    }
}
