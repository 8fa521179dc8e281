//! Looking at the disk: a walk by directory handles that merges what is there with what is known.
//!
//! Each directory is a task of its own. It lists, compares, and adds tasks for its subdirectories and for the files that must
//! be read; whichever task ends last for a directory puts it together and hands it to the directory above. So nothing
//! waits, nothing recurses, and what is known survives an error half-way: a directory that wasn't looked at stays as it was.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;

use super::ScanContext;
use super::building::{Building, Looked, Names, Open};
use super::dir::{Dir, Slot};
use super::look::{Item, Read, unknown};
use super::read::{Reader, attributes, is_ours, left};
use super::want::Want;
use super::work::Work;
use crate::error::{At, Error, Result};
use crate::node::{Attributes, Reason};
use crate::path::TreePath;
use crate::root::{DirHandle, FileType, Stat};
use crate::rules::{Below, DirRules, Place};

/// A directory at more levels below the root counts as unreadable.
pub(super) const DEPTH_MAX: usize = 2_048;
/// So many directories are kept open for their subdirectories; further ones are opened again from the root.
pub(super) const OPEN_MAX: usize = 200;
/// So many entries of a directory are looked at by one task.
const ENTRIES_PER_TASK: usize = 1_024;

/// What a walk found.
pub(super) struct Found {
    /// The root; absent only when there was none before and an error came.
    pub root: Option<Box<Dir>>,
    pub changed: bool,
    pub still_dirty: Vec<TreePath>,
    /// Files with more than one name, and their inodes.
    pub linked: Vec<(TreePath, u64)>,
    /// Levels below the root that were come to.
    pub depth: usize,
    pub error: Option<Error>,
}

/// Looks at what `want` asks for; at everything that isn't known from `old`.
pub(super) fn walk(cx: &ScanContext<'_>, old: Option<Box<Dir>>, want: Want, threads: usize) -> Found {
    let names_show_on = want
        .trusts_names
        .then(|| cx.root.file_system_of_listed_times())
        .flatten();
    let walk = Walk {
        cx,
        names_show_on,
        reader: Reader {
            writer: cx.writer,
            max_file_size: cx.max_file_size,
            room: cx.limits.room.as_ref(),
            now_ns: cx.now.0,
        },
        changed: AtomicBool::new(false),
        failed: AtomicBool::new(false),
        depth: AtomicUsize::new(0),
        open: Arc::default(),
        ends: Mutex::new(Ends {
            root: None,
            still_dirty: Vec::new(),
            linked: Vec::new(),
            error: None,
        }),
    };
    let visit = Visit {
        to: None,
        above: None,
        path: TreePath::root(),
        stat: None,
        place: cx.rules.outermost().clone(),
        below: Below::ByRules,
        old,
        want,
    };
    Work::run(Task::Visit(Box::new(visit)), threads, |work, task| {
        walk.run(work, task)
    });
    let ends = walk.ends.into_inner().unwrap_or_else(PoisonError::into_inner);
    let root = match ends.root {
        Some(Slot::Dir(dir)) => Some(dir),
        _ => None,
    };
    Found {
        root,
        changed: walk.changed.into_inner(),
        still_dirty: ends.still_dirty,
        linked: ends.linked,
        depth: walk.depth.into_inner(),
        error: ends.error,
    }
}

pub(super) struct Walk<'a> {
    pub cx: &'a ScanContext<'a>,
    pub reader: Reader<'a>,
    pub changed: AtomicBool,
    failed: AtomicBool,
    /// The device whose directories show by their times that a name came or went, if the root's is such a one.
    names_show_on: Option<u64>,
    depth: AtomicUsize,
    /// How many directories are open.
    pub open: Arc<AtomicUsize>,
    ends: Mutex<Ends>,
}

struct Ends {
    root: Option<Slot>,
    still_dirty: Vec<TreePath>,
    linked: Vec<(TreePath, u64)>,
    error: Option<Error>,
}

pub(super) enum Task {
    Visit(Box<Visit>),
    Look(Arc<Building>, Arc<Open>, Vec<Item>),
    Read(Arc<Building>, Arc<Open>, Vec<Read>),
}

/// A directory to be looked at.
pub(super) struct Visit {
    /// Where its result goes.
    pub to: Option<(Arc<Building>, usize)>,
    /// The directory above, if it is kept open.
    pub above: Option<Arc<Open>>,
    pub path: TreePath,
    /// As its entry was seen; none for the root.
    pub stat: Option<Stat>,
    pub place: Place,
    pub below: Below,
    pub old: Option<Box<Dir>>,
    pub want: Want,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Walk<'_> {
    fn run(&self, work: &Work<Task>, task: Task) {
        match task {
            Task::Visit(visit) => self.visit(work, *visit),
            Task::Look(building, dir, items) => {
                self.look(work, &building, &dir, items);
                drop(dir);
                self.task_ended(building);
            }
            Task::Read(building, dir, reads) => {
                self.read(&building, &dir, reads);
                drop(dir);
                self.task_ended(building);
            }
        }
    }

    pub(super) fn fail(&self, error: Error) {
        self.failed.store(true, Ordering::Relaxed);
        lock(&self.ends).error.get_or_insert(error);
    }

    /// Whether nothing more is to be looked at: after an error, or when the caller cancels.
    pub(super) fn is_over(&self) -> bool {
        if let Err(error) = self.cx.progress.check() {
            self.fail(error);
        }
        self.failed.load(Ordering::Relaxed)
    }

    /// A file that has other names, too.
    pub(super) fn has_other_names(&self, path: TreePath, ino: u64) {
        lock(&self.ends).linked.push((path, ino));
    }

    pub(super) fn look_again(&self, path: TreePath) {
        lock(&self.ends).still_dirty.push(path);
    }

    fn visit(&self, work: &Work<Task>, mut visit: Visit) {
        let looked = self
            .open(&visit)
            .and_then(|mut dir| Ok((self.begin(&mut dir, &visit)?, dir)));
        // Gone as soon as it isn't needed any more: open directories are few.
        visit.above = None;
        match looked {
            Ok((looked, handle)) => {
                let dir = Open::new(handle, &self.open);
                let path = visit.path.clone();
                self.depth.fetch_max(path.parts().count(), Ordering::Relaxed);
                let (building, mut items, gone) = Building::new(visit, looked, self.cx.now);
                for entry in &gone {
                    if let Slot::Dir(dir) = &entry.slot {
                        self.leave(&path.join(&entry.name), dir);
                    }
                }
                while items.len() > ENTRIES_PER_TASK {
                    let rest = items.split_off(items.len() - ENTRIES_PER_TASK);
                    building.remaining.fetch_add(1, Ordering::Relaxed);
                    work.add([Task::Look(Arc::clone(&building), Arc::clone(&dir), rest)]);
                }
                self.look(work, &building, &dir, items);
                drop(dir);
                self.task_ended(building);
            }
            Err(Instead::Slot(slot)) => {
                self.cx.watch.leave(&visit.path);
                if let Some(old) = &visit.old {
                    self.leave(&visit.path, old);
                }
                let changed = visit.old.is_some_and(|old| old.shows());
                self.deliver(visit.to, slot, changed);
            }
            Err(Instead::Failed(error)) => {
                if let Some(error) = error {
                    self.fail(error);
                }
                self.deliver(visit.to, visit.old.map(Slot::Dir), false);
            }
        }
    }

    /// Opens a directory, or says what stands for it.
    fn open(&self, visit: &Visit) -> Result<DirHandle, Instead> {
        if self.is_over() {
            return Err(Instead::Failed(None));
        }
        let Some((_, name)) = visit.path.split_last() else {
            let root = self.cx.root.open_beneath(&visit.path);
            return root.map_err(|error| Instead::Failed(Some(at_path(error, &visit.path))));
        };
        if visit.path.parts().count() > DEPTH_MAX {
            return Err(self.unopened(&Errno::ENAMETOOLONG.into(), visit));
        }
        let opened = match &visit.above {
            Some(above) => above.handle.open_dir(name),
            None => self.cx.root.open_beneath(&visit.path),
        };
        opened.map_err(|error| self.unopened(&error, visit))
    }

    fn unopened(&self, error: &io::Error, visit: &Visit) -> Instead {
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT) => {
                self.look_again(visit.path.clone());
                Instead::Slot(None)
            }
            Some(Errno::ENOTDIR | Errno::ELOOP) => {
                self.look_again(visit.path.clone());
                Instead::Slot(Some(visit.left(Reason::Changing)))
            }
            Some(errno) if is_ours(error) => Instead::Failed(Some(at_path(errno.into(), &visit.path))),
            _ => Instead::Slot(Some(visit.left(Reason::Unreadable))),
        }
    }

    /// Looks at a directory itself, its list (unless only some entries are wanted) and its rules.
    fn begin(&self, handle: &mut DirHandle, visit: &Visit) -> Result<Looked, Instead> {
        let path = &visit.path;
        let failed = |error| Instead::Failed(Some(error));
        let unreadable = |error| match path.is_root() || is_ours(&error) {
            true => failed(at_path(error, path)),
            false => Instead::Slot(Some(visit.left(Reason::Unreadable))),
        };
        let stat = handle.stat_self().map_err(unreadable)?;
        let old = visit.old.as_deref();
        let want = &visit.want;
        let known = old.filter(|old| old.ino == stat.ino && old.below == visit.below);
        let mut whole = want.whole || known.is_none();
        let list = want.list || known.is_some_and(|known| self.cargo_toggles(known, want, handle));
        // Below one that replaced another, lists were made by rules that went with it.
        let mut trusts_names = want.trusts_names && known.is_some();
        let mut names = Names::Wanted;
        let mut rules = known.and_then(|known| known.rules.clone());
        if whole || list {
            // Watched first, then listed: what comes after the list makes an event.
            if !self.cx.watch.enter(path, (&stat).into()) {
                whole = true;
            }
            let unlisted = known.filter(|_| trusts_names && !list);
            if let Some(known) = unlisted
                && self.has_known_names(known, &handle.stat_self().map_err(unreadable)?)
                && self.read_rules(visit, handle, Has::Stat)?.is_as(rules.as_deref())
            {
                names = Names::Known;
            } else {
                let mut listed = handle.entries().map_err(unreadable)?;
                listed.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
                let found = self.read_rules(visit, handle, Has::List(&listed))?;
                if !found.same_below(rules.as_deref()) {
                    whole = true;
                    trusts_names = false;
                }
                names = Names::Listed(listed);
                rules = (!found.is_empty()).then(|| match rules {
                    Some(known) if *known == found => known,
                    _ => Arc::new(found),
                });
            }
        }
        let place = self
            .cx
            .rules
            .enter_known(&visit.place, visit.below, path, rules.as_deref())
            .map_err(failed)?;
        let attributes = own_attributes(handle, &stat, old).map_err(unreadable)?;
        Ok(Looked {
            stat,
            attributes,
            rules,
            place,
            names,
            whole,
            trusts_names,
        })
    }

    /// Whether a directory with this stat has just the names that are known, but for those that are ignored: each that
    /// comes or goes would have given it another ctime.
    fn has_known_names(&self, known: &Dir, stat: &Stat) -> bool {
        known.listed && known.ctime_ns == stat.ctime_ns && self.names_show_on == Some(stat.dev)
    }

    /// Reads a directory's ignore files.
    fn read_rules(&self, visit: &Visit, handle: &DirHandle, has: Has<'_>) -> Result<DirRules, Instead> {
        let has = |name: &[u8]| match has {
            Has::Stat => handle.stat(name).is_ok(),
            Has::List(listed) => listed
                .binary_search_by(|(listed, _)| (**listed).cmp(name))
                .is_ok(),
        };
        let rules = self.cx.rules;
        rules
            .read_dir(visit.below, &visit.path, handle, &has)
            .map_err(|error| Instead::Failed(Some(error)))
    }

    /// Whether `Cargo.toml` comes or goes, upon which a `target` beside it depends.
    fn cargo_toggles(&self, known: &Dir, want: &Want, handle: &DirHandle) -> bool {
        let name = b"Cargo.toml";
        want.names.contains_key(&name[..])
            && known.rules.as_ref().is_some_and(|rules| rules.has_cargo()) != handle.stat(name).is_ok()
    }

    /// One task of a directory ended; the last one puts it together, and so on upwards.
    fn task_ended(&self, building: Arc<Building>) {
        let mut building = building;
        loop {
            if building.remaining.fetch_sub(1, Ordering::AcqRel) != 1 {
                return;
            }
            self.hold_together(&building);
            let (dir, changed) = building.put_together();
            self.cx.rules.note_builtin_hits(dir.builtin_hits);
            if changed {
                self.changed.store(true, Ordering::Relaxed);
            }
            match self.place_result(building.to.clone(), Some(Slot::Dir(dir)), changed) {
                Some(above) => building = above,
                None => return,
            }
        }
    }

    fn deliver(&self, to: Option<(Arc<Building>, usize)>, slot: Option<Slot>, changed: bool) {
        if changed {
            self.changed.store(true, Ordering::Relaxed);
        }
        if let Some(above) = self.place_result(to, slot, changed) {
            self.task_ended(above);
        }
    }

    /// Puts a directory's result where it belongs and returns the directory above, of which a task has ended.
    fn place_result(
        &self,
        to: Option<(Arc<Building>, usize)>,
        slot: Option<Slot>,
        changed: bool,
    ) -> Option<Arc<Building>> {
        let Some((above, at)) = to else {
            lock(&self.ends).root = slot;
            return None;
        };
        let mut parts = lock(&above.parts);
        parts.slots[at].1 = slot;
        parts.changed |= changed;
        drop(parts);
        Some(above)
    }

    /// Tells the watch of a directory and all below that they are gone or no longer captured.
    pub(super) fn leave(&self, path: &TreePath, dir: &Dir) {
        let mut stack = vec![(path.clone(), dir)];
        while let Some((path, dir)) = stack.pop() {
            stack.extend(dir.dirs().map(|(name, dir)| (path.join(name), dir)));
            self.cx.watch.leave(&path);
        }
    }
}

/// How to find out whether a directory has a name.
#[derive(Clone, Copy)]
enum Has<'a> {
    Stat,
    List(&'a [(Vec<u8>, Option<FileType>)]),
}

/// What stands for a directory that couldn't be looked at.
enum Instead {
    /// This, or nothing.
    Slot(Option<Slot>),
    /// What was known of it: the walk has failed.
    Failed(Option<Error>),
}

fn own_attributes(handle: &DirHandle, stat: &Stat, old: Option<&Dir>) -> io::Result<Attributes> {
    match old {
        Some(old) if old.ctime_ns == stat.ctime_ns && old.ino == stat.ino && !old.racy => {
            Ok(old.attributes.clone())
        }
        _ => attributes(handle),
    }
}

pub(super) fn at_path(error: io::Error, path: &TreePath) -> Error {
    let path = if path.is_root() {
        std::path::Path::new(".")
    } else {
        path.as_path()
    };
    match Err::<(), _>(error).at(path) {
        Err(error) => error,
        Ok(()) => unreachable!("an error stays one"),
    }
}

impl Visit {
    fn left(&self, reason: Reason) -> Slot {
        self.stat.as_ref().map_or_else(unknown, |stat| left(reason, stat))
    }
}
