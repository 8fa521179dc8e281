//! The watches of one root.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use stepback_engine::path::TreePath;
use stepback_engine::tree::{DirWatch, Inode};

use crate::root::mailbox::{End, Mailbox};
use crate::watch::filesystem::Kinds;
use crate::watch::told::Failed;
use crate::watch::{Books, Watcher, lock};
use crate::watches::RootKey;

/// Why some directories that are captured aren't watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unwatched {
    /// Their paths are too long for the system.
    TooLong,
    /// Their file system tells of nothing.
    Silent,
}

/// The watches of one root. The engine calls it from several threads while it scans.
pub struct RootWatch {
    mailbox: Arc<Mailbox>,
    watcher: Arc<Watcher>,
    root: PathBuf,
    pub(super) key: RootKey,
    limit: AtomicBool,
    off: AtomicBool,
    /// Directories that were entered since [`Self::begin_look`].
    entered: AtomicU64,
    /// Of the file systems that were met since then.
    kinds: Mutex<Kinds>,
    /// Directories that are captured but can't be watched.
    unwatched: Mutex<BTreeMap<TreePath, Unwatched>>,
}

impl RootWatch {
    pub(super) fn new(mailbox: Arc<Mailbox>, watcher: Arc<Watcher>, root: PathBuf, key: RootKey) -> Self {
        Self {
            mailbox,
            watcher,
            root,
            key,
            limit: AtomicBool::new(false),
            off: AtomicBool::new(false),
            entered: AtomicU64::new(0),
            kinds: Mutex::default(),
            unwatched: Mutex::default(),
        }
    }

    /// How many directories are watched.
    pub fn count(&self) -> u64 {
        lock(&self.watcher.shared.books).watches.count(self.key)
    }

    /// Whether the system refused to watch (more of) this root since [`Self::turn_on`].
    pub fn refused(&self) -> bool {
        self.limit.load(Ordering::Relaxed)
    }

    /// How many directories the last look came to: each needs a watch.
    pub fn needed(&self) -> u64 {
        self.entered.load(Ordering::Relaxed)
    }

    /// How many directories are captured but can't be watched, and one of them.
    pub fn unwatched(&self) -> Option<(usize, TreePath, Unwatched)> {
        let unwatched = lock(&self.unwatched);
        let (path, why) = unwatched.first_key_value()?;
        Some((unwatched.len(), path.clone(), *why))
    }

    /// The name of the root's file system when it tells of nothing. May wait for it.
    pub fn silent(&self) -> Option<&'static str> {
        let silent = *self
            .watcher
            .shared
            .silent
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        silent.kind(&self.root)
    }

    /// What events told was lost by a failure: no directory counts as known until it was looked at again.
    pub fn untold(&self) {
        lock(&self.watcher.shared.books).watches.untold(self.key);
    }

    /// Everything will be looked at. A root that was refused gets another chance if there is room now.
    pub fn begin_look(&self) {
        let entered = self.entered.swap(0, Ordering::Relaxed);
        *lock(&self.kinds) = Kinds::default();
        if self.refused() && self.watcher.has_room(entered.max(1)) {
            self.turn_on();
        }
    }

    /// Gives all watches back; nothing is watched until [`Self::turn_on`].
    pub fn turn_off(&self) {
        self.off.store(true, Ordering::Relaxed);
        lock(&self.unwatched).clear();
        self.watcher.release_all(&self.root, self.key);
    }

    /// Directories that are scanned from now on are watched.
    pub fn turn_on(&self) {
        self.limit.store(false, Ordering::Relaxed);
        self.off.store(false, Ordering::Relaxed);
    }

    /// As [`Self::turn_on`], also where a limit was met before: the user may have raised it.
    pub fn turn_on_anew(&self) {
        let mut books = lock(&self.watcher.shared.books);
        books.room.look_again(true, Instant::now());
        drop(books);
        self.turn_on();
    }

    fn no_longer_unwatched(&self, dir: &TreePath) {
        let mut unwatched = lock(&self.unwatched);
        if !unwatched.is_empty() {
            unwatched.remove(dir);
        }
    }
}

impl Drop for RootWatch {
    fn drop(&mut self) {
        {
            let mut roots = self
                .watcher
                .shared
                .roots
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            // Another root may be at the same path by now.
            if roots
                .get(&self.root)
                .is_some_and(|mailbox| Arc::ptr_eq(mailbox, &self.mailbox))
            {
                roots.remove(&self.root);
            }
        }
        // At the daemon's end all watches go at once. Giving them back before would cost the other roots theirs while they
        // take their last capture.
        if self.mailbox.ending() != Some(End::Stop) {
            self.turn_off();
        }
    }
}

impl DirWatch for RootWatch {
    fn enter(&self, dir: &TreePath, inode: Inode) -> bool {
        self.entered.fetch_add(1, Ordering::Relaxed);
        if self.off.load(Ordering::Relaxed) || self.refused() {
            return false;
        }
        match self
            .watcher
            .set(&absolute(&self.root, dir), inode, self.key, &self.kinds)
        {
            Ok(known) => {
                self.no_longer_unwatched(dir);
                return known;
            }
            Err(Failed::Limit | Failed::NoEvents) => self.limit.store(true, Ordering::Relaxed),
            Err(Failed::Silent) => drop(lock(&self.unwatched).insert(dir.clone(), Unwatched::Silent)),
            Err(Failed::Unwatchable | Failed::Gone) => {
                lock(&self.unwatched).insert(dir.clone(), Unwatched::TooLong);
            }
        }
        false
    }

    fn leave(&self, dir: &TreePath) {
        self.no_longer_unwatched(dir);
        let mut books = lock(&self.watcher.shared.books);
        let Books { watches, source, .. } = &mut *books;
        let unused = watches.leave(&absolute(&self.root, dir), self.key);
        for dir in unused {
            if let Some(source) = source {
                source.unwatch(&dir);
            }
        }
    }
}

fn absolute(root: &Path, dir: &TreePath) -> PathBuf {
    if dir.is_root() {
        root.to_owned()
    } else {
        root.join(dir.as_path())
    }
}
