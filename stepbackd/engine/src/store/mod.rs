//! Private git stores: one bare repository (SHA-1, refs as files) for each root, or for all worktrees of one repository.
//!
//! Everything else reads and writes objects and refs only through here, and only here is libgit2 named.
//!
//! What is promised:
//! - Objects are durable before [`ObjectWriter::finish`] returns, refs before [`Store::set_ref`] does.
//! - What is read was checked against its name. A damaged or missing object or ref is an error that names it.
//! - A damaged object in the way of a good one is replaced, not relied on.
//! - Neither git's configuration nor its environment has any effect: libgit2 is given packs to read, nothing else.
//! - After a crash, whatever was half written is removed when the store is opened next; after a power loss, whatever was
//!   durable is put where it belongs (`ahead`).

mod ahead;
mod create;
mod deflate;
mod files;
mod garbage;
mod git;
mod holders;
mod inflate;
mod large;
mod lock;
mod loose;
mod maintenance;
mod object;
mod obstacle;
mod pack;
mod pack_by_pack;
mod pack_entry;
mod pack_index;
mod pack_set;
mod packed_blob;
mod packed_refs;
mod packs;
mod prepared_refs;
mod read;
mod ref_file;
mod refs;
mod replay;
mod reserve;
mod settling;
pub mod size;
mod sweep;
pub mod textdiff;
mod verify;
mod writer;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

pub use git::Interrupt;
pub use holders::Holder;
pub use lock::{ExclusiveLock, SharedLock};
pub use maintenance::{Maintained, Thoroughness};
pub use object::{
    Commit, MODE_BLOB, MODE_GITLINK, MODE_TREE, Malformed, TreeEntry, encode_tree, parse_commit, parse_tree,
    tree_order, write_tree,
};
pub use prepared_refs::{PreparedRefs, RefChange};
pub use read::{Objects, read_different_entries, read_tree};
pub use ref_file::{Found as FoundRef, REF_NAME_MAX};
pub use refs::Expected;
pub use reserve::RESERVE_BYTES;
pub use settling::Settling;
pub use verify::Finding;
pub use writer::{LARGE_BYTES, ObjectWriter};

use crate::error::{Error, Result};
use crate::oid::Oid;

/// A bare repository of ours, open. `Sync`: shared by the threads of a scan.
#[derive(Debug)]
pub struct Store {
    /// The repository.
    dir: PathBuf,
    /// `objects` in it.
    objects: PathBuf,
    /// `stepback` in it: what isn't git's.
    private: PathBuf,
    lock: lock::Lock,
    packs: packs::Packs,
    known: read::Known,
    packed_refs: packed_refs::Cache,
    ahead: Arc<ahead::Ahead>,
    /// Fan-out directories that are known to be durable themselves.
    durable_fan_outs: Mutex<BTreeSet<u8>>,
    size: Arc<size::Size>,
}

impl Store {
    /// Makes a new store with everything that belongs to it, or completes one of which the making was interrupted.
    /// Opens a complete one as it is.
    ///
    /// # Errors
    /// [`Error::Refused`] when there is something else at `dir`; otherwise as the system says.
    pub fn create(dir: &Path) -> Result<Self> {
        create::create(dir)?;
        let store = Self::open(dir)?;
        create::write_empty_tree(&store)?;
        store.restore_reserve()?;
        Ok(store)
    }

    /// Opens one, and removes what crashes have left in it if nobody else uses it. What a power loss took of the newest
    /// changes is brought back before anything is read.
    ///
    /// # Errors
    /// [`Error::Damaged`] when it isn't a whole store.
    pub fn open(dir: &Path) -> Result<Self> {
        create::mend_head(dir)?;
        create::check(dir)?;
        let private = dir.join("stepback");
        let size = size::Size::of(dir);
        let store = Self {
            dir: dir.to_owned(),
            objects: dir.join("objects"),
            lock: lock::Lock::default(),
            packs: packs::Packs::open(dir, &private.join("packs"))?,
            ahead: Arc::new(ahead::Ahead::new(&private, Arc::clone(&size))),
            private,
            known: read::Known::default(),
            packed_refs: packed_refs::Cache::default(),
            durable_fan_outs: Mutex::default(),
            size,
        };
        store.replay()?;
        create::remove_leftovers(&store)?;
        Ok(store)
    }

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// `STORE/stepback/<root id>/`, made when absent: for the journal of this root. Mode 0700.
    ///
    /// # Errors
    /// When it can't be made, or `root_id` isn't one part of a path.
    pub fn root_dir(&self, root_id: &str) -> Result<PathBuf> {
        if root_id.is_empty() || root_id.starts_with('.') || root_id.contains(['/', '\0']) {
            let message = format!("{root_id:?} isn't the id of a root");
            return Err(Error::Refused {
                message,
                hint: "`stepback roots` shows them".into(),
            });
        }
        let dir = self.private.join(root_id);
        if files::make_dir(&dir)? {
            files::sync_dir(&self.private)?;
        }
        Ok(dir)
    }

    /// Waits while maintenance runs, and keeps it out until dropped.
    ///
    /// # Errors
    /// When the lock file can't be opened.
    pub fn lock(&self) -> Result<SharedLock> {
        self.lock.shared(&self.lock_path())
    }

    /// For maintenance: waits until nobody writes, and keeps writers out until dropped. While it is held, locks and
    /// writers of this very `Store` work as parts of the maintenance.
    ///
    /// # Errors
    /// When the lock file can't be opened.
    pub fn lock_exclusive(&self) -> Result<ExclusiveLock> {
        self.lock.exclusive(&self.lock_path())
    }

    /// As [`Store::lock_exclusive`], but `None` instead of waiting.
    ///
    /// # Errors
    /// When the lock file can't be opened.
    pub fn try_lock_exclusive(&self) -> Result<Option<ExclusiveLock>> {
        self.lock.try_exclusive(&self.lock_path())
    }

    /// Starts writing objects.
    #[must_use]
    pub fn writer(&self) -> ObjectWriter<'_> {
        ObjectWriter::new(self)
    }

    /// Looks whether packs that were there are gone: what was in them doesn't count as stored any more.
    ///
    /// # Errors
    /// When the packs can't be listed or opened.
    pub fn notice_lost_packs(&self) -> Result<()> {
        self.packs.notice_lost().map(drop)
    }

    /// How often packs that were known weren't there any more. While it stays the same, what was listed is listed.
    #[must_use]
    pub fn pack_losses(&self) -> usize {
        self.packs.losses()
    }

    /// Whether an object of this name is there, good or not: a look at names alone.
    ///
    /// # Errors
    /// When the store can't be read.
    pub fn lists(&self, oid: Oid) -> Result<bool> {
        Ok(self.packs.lists(oid) || loose::stamp(&self.objects, oid)?.is_some())
    }

    /// Gives back the memory into which packs were mapped.
    ///
    /// # Errors
    /// When the packs can't be listed or opened.
    pub fn let_go(&self) -> Result<()> {
        self.packs.let_go()
    }

    /// Real disk use of the store in bytes, reserve included: measured by a walk.
    ///
    /// # Errors
    /// When a directory can't be read.
    pub fn disk_bytes(&self) -> Result<u64> {
        size::measure(&self.dir)
    }

    /// The same without a walk: as measured last, and counted on since.
    #[must_use]
    pub fn known_bytes(&self) -> u64 {
        self.size.get()
    }

    /// Gives the reserve up; fine when there is none.
    ///
    /// # Errors
    /// When it can't be removed.
    pub fn release_reserve(&self) -> Result<()> {
        reserve::release(&self.reserve_path())
    }

    /// Makes the reserve again. Where there is no room for it, it stays away, which is no error.
    ///
    /// # Errors
    /// When it can't be made for another reason.
    pub fn restore_reserve(&self) -> Result<()> {
        let _lock = self.lock()?;
        reserve::restore(&self.reserve_path())
    }

    fn pack_dir(&self) -> PathBuf {
        self.objects.join("pack")
    }

    fn lock_path(&self) -> PathBuf {
        self.private.join("lock")
    }

    fn refs_lock_path(&self) -> PathBuf {
        self.private.join("refs-lock")
    }

    fn reserve_path(&self) -> PathBuf {
        self.private.join("reserve")
    }
}
