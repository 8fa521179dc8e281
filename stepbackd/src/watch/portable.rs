//! The same as `inotify` for other systems, through notify. The only file that names it.
//!
//! Its callback runs in a thread that also does what is asked of it, so it only passes events on.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use notify::event::{EventKind, EventKindMask, ModifyKind, RenameMode};
use notify::{ErrorKind, RecommendedWatcher, RecursiveMode, WatchPathConfig, Watcher as _};

use super::taken::Taken;
use super::told::{Failed, Told, What};
use crate::root::now;
use crate::watches::Key;

/// The watches.
#[derive(Debug)]
pub struct Backend {
    setter: Setter,
    count: usize,
}

/// Nothing to wait for.
#[derive(Debug, Clone, Default)]
pub struct Farewells;

/// Sets watches.
#[derive(Debug, Clone)]
pub struct Setter(Arc<Mutex<RecommendedWatcher>>);

/// What comes, for a thread of its own.
#[derive(Debug)]
pub struct Events(Receiver<Raw>);

/// One event as it comes.
pub type Raw = notify::Result<notify::Event>;

/// A watch that was set and isn't recorded yet.
pub type Watch = ();

impl Backend {
    /// Without any watch.
    ///
    /// # Errors
    /// When the system gives us no source of events.
    pub fn start() -> io::Result<(Self, Events)> {
        let (sender, receiver): (Sender<Raw>, _) = channel();
        let config = notify::Config::default()
            .with_event_kinds(EventKindMask::CORE)
            .with_follow_symlinks(false);
        // Nobody listens any more when the daemon ends.
        let pass_on = move |event| drop(sender.send(event));
        let watcher = RecommendedWatcher::new(pass_on, config).map_err(io::Error::other)?;
        let setter = Setter(Arc::new(Mutex::new(watcher)));
        Ok((Self { setter, count: 0 }, Events(receiver)))
    }

    /// Sets watches without a lock of ours.
    pub fn setter(&self) -> Setter {
        self.setter.clone()
    }

    /// About how many there are.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Waits for nothing.
    pub const fn farewells(&self) -> Farewells {
        Farewells
    }

    /// A watch was set on the directory of this key.
    pub fn record(&mut self, _key: Key, _watch: Watch) {
        self.count += 1;
    }

    /// A watch was set, but isn't needed: it goes with its directory.
    pub const fn discard(&mut self, _watch: Watch) {}

    /// Lets go of `dir` alone.
    pub fn unwatch(&mut self, dir: &Path) {
        // It may have gone by itself.
        if lock(&self.setter.0).unwatch(dir).is_ok() {
            self.count = self.count.saturating_sub(1);
        }
    }

    /// It isn't there any more: the system has let go of it.
    pub const fn gone(&mut self, _path: &Path) {}

    /// What an event tells.
    pub fn told(&mut self, raw: &Raw) -> Vec<Told> {
        let Ok(event) = raw else {
            return vec![Told::Overflow];
        };
        if event.need_rescan() {
            return vec![Told::Overflow];
        }
        let what = match event.kind {
            // The same as the two events before it.
            EventKind::Modify(ModifyKind::Name(RenameMode::Both)) => return Vec::new(),
            EventKind::Remove(_) => What::Gone,
            EventKind::Modify(ModifyKind::Name(RenameMode::From)) if event.tracker().is_some() => What::Gone,
            EventKind::Create(_) | EventKind::Modify(ModifyKind::Name(_)) => What::Another,
            EventKind::Modify(ModifyKind::Metadata(_)) => What::Attributes,
            _ => What::Contents,
        };
        event
            .paths
            .iter()
            .map(|path| Told::Path(path.clone(), what))
            .collect()
    }
}

impl Setter {
    /// Watches `dir`.
    ///
    /// # Errors
    /// Why it isn't watched.
    pub fn watch(&self, dir: &Path) -> Result<Watch, Failed> {
        let config = WatchPathConfig::new(RecursiveMode::NonRecursive).with_dereference_symlinks(false);
        lock(&self.0).watch_with(dir, config).map_err(|e| match e.kind {
            ErrorKind::MaxFilesWatch => Failed::Limit,
            ErrorKind::PathNotFound => Failed::Gone,
            ErrorKind::Io(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied
                ) =>
            {
                Failed::Gone
            }
            _ => Failed::Unwatchable,
        })
    }
}

impl Farewells {
    /// Returns at once.
    pub const fn wait(&self) {}
}

impl Events {
    /// Waits for the next ones; `None` once the backend is gone. `taken` is told when it begins to wait.
    pub fn next(&mut self, taken: &Taken) -> Option<io::Result<Vec<Raw>>> {
        taken.all(now());
        self.0.recv().ok().map(|event| Ok(vec![event]))
    }

    /// Nobody tells.
    pub const fn mounts_changed(&mut self) -> bool {
        false
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_tells_of_a_file_and_ends_with_the_backend() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let (mut backend, mut events) = Backend::start().unwrap();
        backend.setter().watch(&dir).unwrap();
        backend.record(crate::watches::key_of(&dir), ());
        assert_eq!(
            backend.setter().watch(&dir.join("none")),
            Err(Failed::Gone),
            "{}",
            backend.count()
        );
        std::fs::write(dir.join("f"), "1").unwrap();
        let raw = events.next(&Taken::new(now())).unwrap().unwrap().remove(0);
        assert_eq!(backend.told(&raw), [Told::Path(dir.join("f"), What::Another)]);
        backend.gone(&dir.join("f"));
        backend.discard(());
        backend.farewells().wait();
        backend.unwatch(&dir);
        assert_eq!(backend.count(), 0);
        assert!(!events.mounts_changed());
        drop(backend);
        while events.next(&Taken::new(now())).is_some() {}
    }
}
