//! File events of all roots, through one watcher for the whole process. The only file that names notify.
//!
//! Facts about it that this file rests on (9.0.0-rc.7, inotify): when a watched path is moved away or deleted, the
//! watches of that path and below are dropped at the end of the same batch of events, whatever stands there by then; a
//! moved directory keeps its watch under the old path until then; calls are messages to the thread that also runs the
//! callback, so that none may be made from there; `watch` on a path that it has does nothing, even when another
//! directory stands there now.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use notify::event::{EventKind, EventKindMask, ModifyKind, RenameMode};
use notify::{ErrorKind, RecommendedWatcher, RecursiveMode, WatchPathConfig, Watcher as _};
use stepback_engine::path::{DOT_GIT, TEMPORARY_PREFIX, TreePath};
use stepback_engine::tree::DirWatch;

use crate::cookie::Cookies;
use crate::root::mailbox::{End, Mailbox};
use crate::watches::{Need, RootKey, Watches};

/// When so many watches go at once, a new watcher is cheaper: each single one costs a walk through all of them.
const SINGLE_REMOVALS_MAX: usize = 2000;

/// The watcher of this process.
pub struct Watcher {
    shared: Arc<Shared>,
    /// `None` when the system gives us none: every root is polled then. Locked over a whole change of a watch.
    backend: Mutex<Option<RecommendedWatcher>>,
    next_key: AtomicU64,
}

/// What the callback works with. It never waits for anything but these short locks.
struct Shared {
    cookies: Arc<Cookies>,
    watches: Mutex<Watches>,
    roots: RwLock<HashMap<PathBuf, Arc<Mailbox>>>,
}

impl Watcher {
    /// Starts it, with the directory of `cookies` watched.
    pub fn start(cookies: Arc<Cookies>) -> Arc<Self> {
        let shared = Arc::new(Shared {
            cookies,
            watches: Mutex::default(),
            roots: RwLock::default(),
        });
        let backend = Mutex::new(new_backend(&shared));
        Arc::new(Self {
            shared,
            backend,
            next_key: AtomicU64::new(1),
        })
    }

    /// Whether there are events at all.
    pub fn works(&self) -> bool {
        lock(&self.backend).is_some()
    }

    /// Events at and below `root` go to `mailbox` from now on. Nothing is watched yet: the scan does that.
    pub fn add_root(self: &Arc<Self>, root: &Path, mailbox: Arc<Mailbox>) -> RootWatch {
        self.shared
            .roots
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(root.to_owned(), Arc::clone(&mailbox));
        RootWatch {
            mailbox,
            watcher: Arc::clone(self),
            root: root.to_owned(),
            key: self.next_key.fetch_add(1, Ordering::Relaxed),
            limit: AtomicBool::new(false),
            off: AtomicBool::new(false),
            unwatched: Mutex::default(),
        }
    }

    fn set(&self, dir: &Path, ino: u64, key: RootKey) -> Result<bool, Failed> {
        if lock(&self.shared.watches).has(dir, ino, key) {
            return Ok(true);
        }
        let mut backend = lock(&self.backend);
        let Some(backend) = backend.as_mut() else {
            return Err(Failed::NoEvents);
        };
        let need = lock(&self.shared.watches).enter(dir, ino, key);
        match need {
            Need::Nothing => return Ok(true),
            Need::Joined => return Ok(false),
            Need::Watch { stale: true } => drop(backend.unwatch(dir)),
            Need::Watch { stale: false } => {}
        }
        let result = watch_one(backend, dir);
        // An event may have told meanwhile that the directory is gone; a watch that nobody knows of must not stay.
        let stands = lock(&self.shared.watches).stands(dir, ino);
        match result {
            Ok(()) if stands => Ok(false),
            Ok(()) => {
                drop(backend.unwatch(dir));
                Ok(false)
            }
            Err(e) => {
                lock(&self.shared.watches).failed(dir);
                match e.kind {
                    ErrorKind::MaxFilesWatch => Err(Failed::Limit),
                    ErrorKind::PathNotFound => Ok(false),
                    ErrorKind::Io(e) if gone(&e) => Ok(false),
                    // The scan meets the same obstacle and names it.
                    ErrorKind::Io(e) if e.kind() == std::io::ErrorKind::PermissionDenied => Ok(false),
                    // Such as a path that is too long for one call: the scan goes there step by step.
                    _ => Err(Failed::Unwatchable),
                }
            }
        }
    }

    fn unset(&self, dirs: &[PathBuf]) {
        if dirs.is_empty() {
            return;
        }
        let mut backend = lock(&self.backend);
        if dirs.len() > SINGLE_REMOVALS_MAX {
            // The old one goes first: its descriptors count against the user's limit.
            *backend = None;
            lock(&self.shared.watches).clear();
            *backend = new_backend(&self.shared);
            self.shared.everything();
            return;
        }
        if let Some(backend) = backend.as_mut() {
            for dir in dirs {
                // It may have gone by itself.
                let _ = backend.unwatch(dir);
            }
        }
    }
}

enum Failed {
    Limit,
    NoEvents,
    Unwatchable,
}

fn watch_one(backend: &mut RecommendedWatcher, dir: &Path) -> notify::Result<()> {
    let config = WatchPathConfig::new(RecursiveMode::NonRecursive).with_dereference_symlinks(false);
    backend.watch_with(dir, config)
}

fn new_backend(shared: &Arc<Shared>) -> Option<RecommendedWatcher> {
    let config = notify::Config::default()
        .with_event_kinds(EventKindMask::CORE)
        .with_follow_symlinks(false);
    let callback = Arc::clone(shared);
    let started =
        RecommendedWatcher::new(move |event| callback.handle(event), config).and_then(|mut backend| {
            watch_one(&mut backend, shared.cookies.dir())?;
            Ok(backend)
        });
    match started {
        Ok(backend) => Some(backend),
        Err(e) => {
            tracing::error!("no file events: {e}; every root is polled");
            None
        }
    }
}

impl Shared {
    /// The callback: sorts an event into the roots' pending sets.
    fn handle(&self, event: notify::Result<notify::Event>) {
        match event {
            Ok(event) if event.need_rescan() => {
                tracing::warn!("the queue of file events overflowed: every root is scanned");
                self.everything();
            }
            // The same as the two events before it.
            Ok(event) if event.kind == EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => {}
            Ok(event) => {
                for path in &event.paths {
                    self.path(path, &event);
                }
            }
            Err(e) => {
                tracing::warn!("file events failed: {e}; every root is scanned");
                self.everything();
            }
        }
    }

    fn path(&self, path: &Path, event: &notify::Event) {
        let name = path.file_name().unwrap_or_default();
        if path.parent() == Some(self.cookies.dir()) {
            self.cookies.came_back(name);
            return;
        }
        if name.as_bytes() == DOT_GIT || name.as_bytes().starts_with(TEMPORARY_PREFIX) {
            return;
        }
        match event.kind {
            EventKind::Remove(_) => lock(&self.watches).gone(path),
            // With a tracker the parent tells: the watches are dropped. Without, the directory itself tells: they stay.
            EventKind::Modify(ModifyKind::Name(RenameMode::From)) if event.tracker().is_some() => {
                lock(&self.watches).gone(path);
            }
            EventKind::Create(_) | EventKind::Modify(ModifyKind::Name(_)) => lock(&self.watches).doubt(path),
            _ => {}
        }
        let roots = self.roots.read().unwrap_or_else(PoisonError::into_inner);
        for ancestor in path.ancestors() {
            let Some(mailbox) = roots.get(ancestor) else {
                continue;
            };
            let relative = path.strip_prefix(ancestor).unwrap_or(Path::new(""));
            // A path that can't be one of ours (a part of it is `.git`) is none.
            match TreePath::from_path(relative) {
                Ok(path)
                    if path.is_root()
                        && !matches!(event.kind, EventKind::Modify(ModifyKind::Metadata(_))) =>
                {
                    mailbox.everything_pending(Instant::now());
                }
                Ok(path) => mailbox.pending(path, Instant::now()),
                Err(_) => {}
            }
        }
    }

    fn everything(&self) {
        for mailbox in self.roots.read().unwrap_or_else(PoisonError::into_inner).values() {
            mailbox.everything_pending(Instant::now());
        }
    }
}

/// The watches of one root. The engine calls it from several threads while it scans.
pub struct RootWatch {
    mailbox: Arc<Mailbox>,
    watcher: Arc<Watcher>,
    root: PathBuf,
    key: RootKey,
    limit: AtomicBool,
    off: AtomicBool,
    /// Directories that are captured but can't be watched.
    unwatched: Mutex<BTreeSet<TreePath>>,
}

impl RootWatch {
    /// How many directories are watched.
    pub fn count(&self) -> u64 {
        lock(&self.watcher.shared.watches).count(self.key)
    }

    /// Whether the system refused to watch (more of) this root since [`Self::turn_on`].
    pub fn refused(&self) -> bool {
        self.limit.load(Ordering::Relaxed)
    }

    /// How many directories are captured but can't be watched, and one of them.
    pub fn unwatched(&self) -> Option<(usize, TreePath)> {
        let unwatched = lock(&self.unwatched);
        Some((unwatched.len(), unwatched.first()?.clone()))
    }

    /// What events told was lost by a failure: no directory counts as known until it was looked at again.
    pub fn untold(&self) {
        lock(&self.watcher.shared.watches).untold(self.key);
    }

    /// Gives all watches back; nothing is watched until [`Self::turn_on`].
    pub fn turn_off(&self) {
        self.off.store(true, Ordering::Relaxed);
        lock(&self.unwatched).clear();
        let unused = lock(&self.watcher.shared.watches).leave_all(self.key);
        self.watcher.unset(&unused);
    }

    /// Directories that are scanned from now on are watched.
    pub fn turn_on(&self) {
        self.limit.store(false, Ordering::Relaxed);
        self.off.store(false, Ordering::Relaxed);
    }
}

impl RootWatch {
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
    fn enter(&self, dir: &TreePath, ino: u64) -> bool {
        if self.off.load(Ordering::Relaxed) || self.refused() {
            return false;
        }
        match self.watcher.set(&absolute(&self.root, dir), ino, self.key) {
            Ok(known) => {
                self.no_longer_unwatched(dir);
                known
            }
            Err(Failed::Limit | Failed::NoEvents) => {
                self.limit.store(true, Ordering::Relaxed);
                false
            }
            Err(Failed::Unwatchable) => {
                lock(&self.unwatched).insert(dir.clone());
                false
            }
        }
    }

    fn leave(&self, dir: &TreePath) {
        self.no_longer_unwatched(dir);
        let unused = lock(&self.watcher.shared.watches).leave(&absolute(&self.root, dir), self.key);
        self.watcher.unset(&unused);
    }
}

fn absolute(root: &Path, dir: &TreePath) -> PathBuf {
    if dir.is_root() {
        root.to_owned()
    } else {
        root.join(dir.as_path())
    }
}

fn gone(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the file system at `path` tells of changes that other machines or the other side of it make.
pub fn has_events(path: &Path) -> bool {
    use nix::sys::statfs::{FUSE_SUPER_MAGIC, FsType, NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, statfs};
    const CIFS: FsType = FsType(0xFF53_4D42);
    const SMB2: FsType = FsType(0xFE53_4D42);
    const V9FS: FsType = FsType(0x0102_1997);
    const CEPH: FsType = FsType(0x00C3_6400);
    statfs(path).map_or(true, |stat| {
        let kind = stat.filesystem_type();
        ![
            NFS_SUPER_MAGIC,
            SMB_SUPER_MAGIC,
            FUSE_SUPER_MAGIC,
            CIFS,
            SMB2,
            V9FS,
            CEPH,
        ]
        .contains(&kind)
    })
}

#[cfg(test)]
mod tests;
