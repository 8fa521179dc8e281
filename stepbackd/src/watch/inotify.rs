//! The kernel's watches of this process, on Linux: one inotify instance, a watch for each directory.
//!
//! Setting a watch may wait for a file system that doesn't answer, so it is done by a [`Setter`] that holds no lock; the
//! watch counts once it is [`Backend::record`]ed. Everything else here is quick. Letting go of a directory, and of all below
//! it, costs what is let go of, however many watches there are.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, PipeReader, PipeWriter};
use std::ops::Bound;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use smallvec::SmallVec;

use super::mount_events::MountEvents;
use super::taken::Taken;
use super::told::{Failed, Told, What};
use crate::root::now;
use crate::watches::{Key, key_of, path_of};

/// What is asked for: changes, not accesses; never through a link.
const MASK: AddWatchFlags = AddWatchFlags::IN_CREATE
    .union(AddWatchFlags::IN_MOVE)
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MODIFY)
    .union(AddWatchFlags::IN_ATTRIB)
    .union(AddWatchFlags::IN_DELETE_SELF)
    .union(AddWatchFlags::IN_MOVE_SELF)
    .union(AddWatchFlags::IN_ONLYDIR)
    .union(AddWatchFlags::IN_DONT_FOLLOW);

/// Each watch that is let go of leaves an event in the kernel's queue, which has room for 16,384: so many wait at most.
const FAREWELLS_MAX: usize = 4096;

/// How long it is waited for them.
const FAREWELLS_PATIENCE: Duration = Duration::from_secs(1);

/// The watches.
#[derive(Debug)]
pub struct Backend {
    setter: Setter,
    by_path: BTreeMap<Key, WatchDescriptor>,
    /// A directory may have several paths: a moved one until its events were taken, one that is mounted twice.
    by_watch: HashMap<WatchDescriptor, SmallVec<[Key; 1]>>,
    farewells: Farewells,
    /// Closed with the backend, which ends [`Events`].
    _stop: PipeWriter,
}

/// Events that tell only of watches that we let go of, on their way.
#[derive(Debug, Clone, Default)]
pub struct Farewells(Arc<AtomicUsize>);

/// Sets watches.
#[derive(Debug, Clone)]
pub struct Setter(Arc<Inotify>);

/// What comes from the kernel, for a thread of its own.
#[derive(Debug)]
pub struct Events {
    instance: Arc<Inotify>,
    stop: PipeReader,
    mounts: MountEvents,
    mounts_changed: bool,
}

/// One event as it comes.
pub type Raw = InotifyEvent;

/// A watch that was set and isn't recorded yet.
pub type Watch = WatchDescriptor;

impl Backend {
    /// Without any watch.
    ///
    /// # Errors
    /// When the system gives us no instance.
    pub fn start() -> io::Result<(Self, Events)> {
        let instance = Arc::new(Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?);
        let (reader, writer) = io::pipe()?;
        let backend = Self {
            setter: Setter(Arc::clone(&instance)),
            by_path: BTreeMap::new(),
            by_watch: HashMap::new(),
            farewells: Farewells::default(),
            _stop: writer,
        };
        Ok((
            backend,
            Events {
                instance,
                stop: reader,
                mounts: MountEvents::open(),
                mounts_changed: false,
            },
        ))
    }

    /// Sets watches without a lock.
    pub fn setter(&self) -> Setter {
        self.setter.clone()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.by_watch.len()
    }

    /// Waits for these, holding no lock, before more is let go of.
    pub fn farewells(&self) -> Farewells {
        self.farewells.clone()
    }

    /// `watch` was set on the directory of this key.
    pub fn record(&mut self, key: Key, watch: Watch) {
        match self.by_path.insert(Arc::clone(&key), watch) {
            Some(before) if before == watch => return,
            Some(before) => self.release(before, &key),
            None => {}
        }
        self.by_watch.entry(watch).or_default().push(key);
    }

    /// `watch` was set, but isn't needed any more.
    pub fn discard(&mut self, watch: Watch) {
        if !self.by_watch.contains_key(&watch) {
            self.remove(watch);
        }
    }

    /// Lets go of `dir` alone.
    pub fn unwatch(&mut self, dir: &Path) {
        if let Some((key, watch)) = self.by_path.remove_entry(&*key_of(dir)) {
            self.release(watch, &key);
        }
    }

    /// Lets go of what was known at `path` and below: it isn't there any more.
    pub fn gone(&mut self, path: &Path) {
        let start = key_of(path);
        let below = self
            .by_path
            .range::<[u8], _>((Bound::Included(&*start), Bound::Unbounded));
        let below: Vec<_> = below
            .take_while(|(key, _)| key.starts_with(&start))
            .map(|(key, watch)| (Arc::clone(key), *watch))
            .collect();
        for (key, watch) in below {
            self.by_path.remove(&key);
            self.release(watch, &key);
        }
    }

    /// What an event tells.
    pub fn told(&mut self, raw: &Raw) -> Vec<Told> {
        let mask = raw.mask;
        if mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            return vec![Told::Overflow];
        }
        if mask.contains(AddWatchFlags::IN_IGNORED) && !self.by_watch.contains_key(&raw.wd) {
            self.farewells.one_came();
            return Vec::new();
        }
        let what = if mask.intersects(
            AddWatchFlags::IN_MOVED_FROM
                | AddWatchFlags::IN_DELETE
                | AddWatchFlags::IN_DELETE_SELF
                | AddWatchFlags::IN_UNMOUNT
                | AddWatchFlags::IN_IGNORED,
        ) {
            What::Gone
        } else if mask
            .intersects(AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_MOVE_SELF)
        {
            // One that moved tells so itself; where from and where to, its parents tell.
            What::Another
        } else if mask.contains(AddWatchFlags::IN_ATTRIB) {
            What::Attributes
        } else {
            What::Contents
        };
        let dirs = self.by_watch.get(&raw.wd).map_or(&[][..], |dirs| &dirs[..]);
        let told = dirs.iter().map(|key| {
            let dir = path_of(key);
            let path = match &raw.name {
                Some(name) => dir.join(name),
                None => dir,
            };
            Told::Path(path, what)
        });
        let told = told.collect();
        if mask.contains(AddWatchFlags::IN_IGNORED) {
            // The kernel has let go of it.
            for key in self.by_watch.remove(&raw.wd).into_iter().flatten() {
                self.by_path.remove(&key);
            }
        }
        told
    }

    fn release(&mut self, watch: Watch, key: &Key) {
        let Some(paths) = self.by_watch.get_mut(&watch) else {
            return;
        };
        paths.retain(|path| path != key);
        if paths.is_empty() {
            self.by_watch.remove(&watch);
            self.remove(watch);
        }
    }

    fn remove(&self, watch: Watch) {
        // The kernel may have let go of it by itself.
        if self.setter.0.rm_watch(watch).is_ok() {
            self.farewells.one_is_out();
        }
    }
}

impl Setter {
    /// Watches `dir`. May take as long as its file system does.
    ///
    /// # Errors
    /// Why it isn't watched.
    pub fn watch(&self, dir: &Path) -> Result<Watch, Failed> {
        self.0.add_watch(dir, MASK).map_err(|errno| match errno {
            Errno::ENOSPC | Errno::ENOMEM => Failed::Limit,
            Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP => Failed::Gone,
            // The scan meets the same obstacle and names it.
            Errno::EACCES => Failed::Gone,
            // Such as a path that is too long for one call: the scan goes there step by step.
            _ => Failed::Unwatchable,
        })
    }
}

impl Farewells {
    fn one_is_out(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn one_came(&self) {
        let less = |out: usize| Some(out.saturating_sub(1));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Waits until there is room for more.
    pub fn wait(&self) {
        let deadline = Instant::now() + FAREWELLS_PATIENCE;
        while self.0.load(Ordering::Relaxed) > FAREWELLS_MAX && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Events {
    /// Waits for the next ones; `None` once the backend is gone. `taken` is told when none is left. There may be none when
    /// [`Self::mounts_changed`] has news.
    pub fn next(&mut self, taken: &Taken) -> Option<io::Result<Vec<Raw>>> {
        loop {
            match self.instance.read_events() {
                Ok(events) if !events.is_empty() => return Some(Ok(events)),
                Ok(_) | Err(Errno::EAGAIN) => taken.all(now()),
                Err(Errno::EINTR) => continue,
                Err(errno) => return Some(Err(errno.into())),
            }
            let mut all = vec![
                PollFd::new(self.instance.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.stop.as_fd(), PollFlags::POLLIN),
            ];
            all.extend(self.mounts.poll_fd());
            match poll(&mut all, PollTimeout::NONE) {
                Ok(_) if all[1].any().unwrap_or(true) => return None,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Some(Err(errno.into())),
            }
            let told = all.get(2).and_then(PollFd::revents);
            if told.is_some_and(|told| self.mounts.has_news(told)) {
                self.mounts_changed = true;
                return Some(Ok(Vec::new()));
            }
        }
    }

    /// Whether something was mounted or unmounted since the last time, before the events that [`Self::next`] gave last.
    pub fn mounts_changed(&mut self) -> bool {
        std::mem::take(&mut self.mounts_changed) || self.mounts.have_changed()
    }
}
