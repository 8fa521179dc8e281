//! File events of all roots, through one source for the whole process.
//!
//! | file | what |
//! |---|---|
//! | `root` | the watches of one root |
//! | `inotify` | the source on Linux |
//! | `mount_events` | that something was mounted or unmounted |
//! | `portable` | the source elsewhere: the only file that names notify |
//! | `told` | what a source tells |
//! | `taken` | when nothing was left to be told |
//! | `room` | how many watches we may have |
//! | `filesystem` | which file systems tell nothing |
//!
//! A watch is set in three steps: it is entered in the books, set without any lock (its file system may not answer), and
//! counts if an event hasn't told meanwhile that another directory may stand there.

mod filesystem;
#[cfg(target_os = "linux")]
mod inotify;
#[cfg(target_os = "linux")]
mod mount_events;
#[cfg(any(test, not(target_os = "linux")))]
mod portable;
mod room;
mod root;
mod taken;
mod told;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Instant;

use stepback_engine::mounts::Mounts;
use stepback_engine::path::{DOT_GIT, TreePath, is_temporary};
use stepback_engine::time::Time;
use stepback_engine::tree::Inode;

use crate::cookie::Cookies;
use crate::root::mailbox::Mailbox;
use crate::root::now;
use crate::watch::filesystem::Kinds;
pub use crate::watch::filesystem::Silent;
#[cfg(target_os = "linux")]
use crate::watch::inotify as source;
#[cfg(not(target_os = "linux"))]
use crate::watch::portable as source;
use crate::watch::room::Room;
pub use crate::watch::root::{RootWatch, Unwatched};
use crate::watch::taken::Taken;
use crate::watch::told::{Failed, Told, What};
use crate::watches::{Need, RootKey, Watches, key_of};

/// So many watches are let go of in one step; between two, others have their turn.
const RELEASED_AT_ONCE: usize = 256;

/// The watcher of this process.
pub struct Watcher {
    shared: Arc<Shared>,
    next_key: AtomicU64,
}

/// What the thread that takes events works with. It never waits for anything but these short locks.
struct Shared {
    cookies: Arc<Cookies>,
    books: Mutex<Books>,
    roots: RwLock<HashMap<PathBuf, Arc<Mailbox>>>,
    silent: RwLock<Silent>,
    taken: Arc<Taken>,
    /// As they were seen last.
    mounts: Mutex<Mounts>,
}

/// Who watches what. Nothing that may wait is done while it is locked.
struct Books {
    watches: Watches,
    /// `None` when the system gives us none: every root is polled then.
    source: Option<source::Backend>,
    /// Counts the sources: a watch of an earlier one is none.
    generation: u64,
    room: Room,
}

impl Books {
    /// Nobody hears of anything any more.
    fn source_ended(&mut self) {
        self.source = None;
        self.watches = Watches::default();
    }
}

impl Watcher {
    /// Starts it, with the directory of `cookies` watched.
    pub fn start(cookies: Arc<Cookies>) -> Arc<Self> {
        let shared = Arc::new(Shared {
            cookies,
            books: Mutex::new(Books {
                watches: Watches::default(),
                source: None,
                generation: 0,
                room: Room::new(),
            }),
            roots: RwLock::default(),
            silent: RwLock::default(),
            taken: Arc::new(Taken::new(now())),
            mounts: Mutex::default(),
        });
        if let Err(e) = shared.listen() {
            tracing::error!("no file events: {e}; every root is polled");
        }
        Arc::new(Self {
            shared,
            next_key: AtomicU64::new(1),
        })
    }

    /// Which file systems are polled from now on.
    pub fn set_silent(&self, silent: Silent) {
        *self.shared.silent.write().unwrap_or_else(PoisonError::into_inner) = silent;
    }

    /// This process stood still and goes on: what came and went meanwhile nobody saw, and every root is scanned.
    pub fn stood_still(&self) {
        tracing::info!("this process was stopped for a while: every root is scanned");
        let since = self.shared.taken.before_a_stop(now());
        self.shared
            .everything(since, "the daemon was stopped for a while");
    }

    /// Whether there are events at all.
    pub fn works(&self) -> bool {
        lock(&self.shared.books).source.is_some()
    }

    /// Events at and below `root` go to `mailbox` from now on. Nothing is watched yet: the scan does that.
    pub fn add_root(self: &Arc<Self>, root: &Path, mailbox: Arc<Mailbox>) -> RootWatch {
        self.shared
            .roots
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(root.to_owned(), Arc::clone(&mailbox));
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        RootWatch::new(mailbox, Arc::clone(self), root.to_owned(), key)
    }

    /// Whether `count` more watches can be had, as far as is known. Tries to get a source of events if there is none.
    fn has_room(&self, count: u64) -> bool {
        if !self.works()
            && let Err(e) = self.shared.listen()
        {
            tracing::debug!("still no file events: {e}");
            return false;
        }
        let mut books = lock(&self.shared.books);
        books.room.look_again(false, Instant::now());
        let have = books.source.as_ref().map_or(0, source::Backend::count);
        have as u64 + count <= books.room.allowed() as u64
    }

    fn set(&self, dir: &Path, inode: Inode, key: RootKey, kinds: &Mutex<Kinds>) -> Result<bool, Failed> {
        let Inode { dev, ino } = inode;
        let at = key_of(dir);
        let (setter, generation) = {
            let mut books = lock(&self.shared.books);
            let Books {
                watches,
                source,
                generation,
                room,
            } = &mut *books;
            let Some(source) = source else {
                return Err(Failed::NoEvents);
            };
            match watches.enter(&at, ino, key) {
                Need::Nothing => return Ok(true),
                Need::Joined => return Ok(false),
                Need::Watch { stale: true } => source.unwatch(dir),
                Need::Watch { stale: false } => {}
            }
            if source.count() >= room.allowed() {
                watches.failed(&at);
                return Err(Failed::Limit);
            }
            (source.setter(), *generation)
        };
        let silent = *self.shared.silent.read().unwrap_or_else(PoisonError::into_inner);
        let kind = lock(kinds).known(silent, dev);
        let kind = kind.unwrap_or_else(|| {
            // Nothing is locked: it may wait for the file system.
            let kind = silent.kind(dir);
            lock(kinds).learnt(silent, dev, kind);
            kind
        });
        let result = match kind {
            Some(_) => Err(Failed::Silent),
            None => setter.watch(dir),
        };
        let mut books = lock(&self.shared.books);
        let Books {
            watches,
            source,
            generation: newest,
            room,
        } = &mut *books;
        let Some(source) = source.as_mut().filter(|_| generation == *newest) else {
            return Ok(false);
        };
        match result {
            Ok(watch) if watches.has_set(&at, ino) => source.record(at, watch),
            Ok(watch) => source.discard(watch),
            Err(why) => {
                watches.failed(&at);
                if why == Failed::Limit {
                    room.met(source.count(), Instant::now());
                }
                if why != Failed::Gone {
                    return Err(why);
                }
            }
        }
        Ok(false)
    }

    fn release_all(&self, root: &Path, key: RootKey) {
        loop {
            let farewells = {
                let mut books = lock(&self.shared.books);
                let Some(unused) = books.watches.leave_some(root, key, RELEASED_AT_ONCE) else {
                    return;
                };
                let Some(source) = &mut books.source else { continue };
                for dir in unused {
                    source.unwatch(&dir);
                }
                source.farewells()
            };
            farewells.wait();
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Ends the thread.
        lock(&self.shared.books).source = None;
    }
}

impl Shared {
    /// Starts a source of events, and the thread that takes them.
    fn listen(self: &Arc<Self>) -> std::io::Result<()> {
        let (mut source, mut events) = source::Backend::start()?;
        // Changes are told of from here on.
        *lock(&self.mounts) = Mounts::read().unwrap_or_default();
        let cookies = self.cookies.dir();
        match source.setter().watch(cookies) {
            Ok(watch) => source.record(key_of(cookies), watch),
            Err(Failed::Limit) => return Err(std::io::Error::other("no watch is left for this user")),
            Err(_) => return Err(std::io::Error::other("our own directory can't be watched")),
        }
        let generation = {
            let mut books = lock(&self.books);
            if books.source.is_some() {
                // Another root was faster, and may have watches there already.
                return Ok(());
            }
            books.watches = Watches::default();
            books.source = Some(source);
            books.generation += 1;
            books.generation
        };
        let shared = Arc::downgrade(self);
        let thread = std::thread::Builder::new()
            .name("events".into())
            .spawn(move || take(&shared, &mut events, generation));
        if thread.is_err() {
            lock(&self.books).source_ended();
        }
        thread.map(drop)
    }

    /// Sorts an event into the roots' pending sets.
    fn heed(&self, raw: &source::Raw) {
        let told = {
            let mut books = lock(&self.books);
            let Books { watches, source, .. } = &mut *books;
            let Some(source) = source else { return };
            let told = source.told(raw);
            for told in &told {
                match told {
                    Told::Path(path, what) if self.concerns_us(path) => match what {
                        What::Gone => {
                            source.gone(path);
                            watches.gone(path);
                        }
                        What::Another => watches.doubt(path),
                        What::Contents | What::Attributes => {}
                    },
                    Told::Path(..) | Told::Overflow => {}
                }
            }
            told
        };
        for told in told {
            match told {
                Told::Overflow => {
                    tracing::warn!("the queue of file events overflowed: every root is scanned");
                    self.everything(
                        self.taken.last(),
                        "more changed at once than there is room for events",
                    );
                }
                Told::Path(path, what) => self.path(&path, what),
            }
        }
    }

    fn concerns_us(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().as_bytes();
        name != DOT_GIT && !is_temporary(name) && path.parent() != Some(self.cookies.dir())
    }

    fn path(&self, path: &Path, what: What) {
        if path.parent() == Some(self.cookies.dir()) {
            self.cookies.came_back(path.file_name().unwrap_or(OsStr::new("")));
            return;
        }
        // A `.git` that is no directory names one, which the directory that holds it tells whoever looks at it.
        let names_another = path.file_name().is_some_and(|name| name.as_bytes() == DOT_GIT)
            && what != What::Attributes
            && !path.symlink_metadata().is_ok_and(|now| now.is_dir());
        let path = match path.parent() {
            Some(holder) if names_another => holder,
            _ => path,
        };
        let what = if names_another { What::Attributes } else { what };
        if !self.concerns_us(path) {
            return;
        }
        let roots = self.roots.read().unwrap_or_else(PoisonError::into_inner);
        for ancestor in path.ancestors() {
            let Some(mailbox) = roots.get(ancestor) else {
                continue;
            };
            let relative = path.strip_prefix(ancestor).unwrap_or(Path::new(""));
            // A path that can't be one of ours (a part of it is `.git`) is none.
            match TreePath::from_path(relative) {
                Ok(path) if path.is_root() && what != What::Attributes => {
                    mailbox.everything_pending(Instant::now());
                }
                Ok(path) => mailbox.pending(path, Instant::now()),
                Err(_) => {}
            }
        }
    }

    /// Something was mounted or unmounted somewhere. Nothing in a root tells of it: neither a bind mount, nor what was
    /// mounted over a directory that is watched.
    fn mounts_changed(&self) {
        let Some(now) = Mounts::read() else { return };
        let mut before = lock(&self.mounts);
        let changed = now.changed_since(&before);
        *before = now;
        drop(before);
        let roots = self.roots.read().unwrap_or_else(PoisonError::into_inner);
        for (point, (root, mailbox)) in changed
            .iter()
            .flat_map(|point| roots.iter().map(move |it| (point, it)))
        {
            match point.strip_prefix(root).map(TreePath::from_path) {
                // What is below a `.git` is no matter of ours.
                Ok(Err(_)) => {}
                Ok(Ok(path)) if !path.is_root() => {
                    // The watches are those of what was there before.
                    lock(&self.books).watches.doubt(point);
                    mailbox.everything_pending(Instant::now());
                }
                // Another directory may be there now.
                _ if root.starts_with(point) => mailbox.look(),
                _ => {}
            }
        }
    }

    /// Events since then may have been lost, for this reason.
    fn everything(&self, since: Time, why: &'static str) {
        for mailbox in self.roots.read().unwrap_or_else(PoisonError::into_inner).values() {
            mailbox.lost(since, why, Instant::now());
        }
    }
}

/// Takes events until their source, or the watcher, is gone.
fn take(shared: &Weak<Shared>, events: &mut source::Events, generation: u64) {
    let Some(taken) = shared.upgrade().map(|shared| Arc::clone(&shared.taken)) else {
        return;
    };
    loop {
        let batch = events.next(&taken);
        let (Some(batch), Some(shared)) = (batch, shared.upgrade()) else {
            return;
        };
        // Before the events: one of them may be the cookie of somebody who asks whether all of this was seen.
        if events.mounts_changed() {
            shared.mounts_changed();
        }
        match batch {
            Ok(batch) => batch.iter().for_each(|raw| shared.heed(raw)),
            Err(e) => {
                tracing::error!("file events failed: {e}; every root is scanned, and polled");
                let mut books = lock(&shared.books);
                if books.generation == generation {
                    books.source_ended();
                }
                drop(books);
                shared.everything(taken.last(), "file events failed");
                return;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
