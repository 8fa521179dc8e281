//! A directory between the look at it and the end of the last task for something in it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::dir::{Dir, Entry, Name, Slot, is_racy, tells_of_names};
use super::look::Item;
use super::merge::{Slots, merge_known, merge_listed, merge_wanted};
use super::scan::{Visit, lock};
use super::want::Want;
use crate::node::{Attributes, Node, Perm};
use crate::path::TreePath;
use crate::root::{DirHandle, FileType, Stat};
use crate::rules::{DirRules, Place};
use crate::time::Time;

/// What a look at a directory itself gave.
pub(super) struct Looked {
    pub stat: Stat,
    pub attributes: Attributes,
    pub rules: Option<Arc<DirRules>>,
    pub place: Place,
    pub names: Names,
    /// All entries are to be looked at, and all directories whole.
    pub whole: bool,
    /// As [`Want::trusts_names`], for the directories in it.
    pub trusts_names: bool,
}

/// Which entries of a directory are to be looked at.
pub(super) enum Names {
    /// All that it has, sorted by name.
    Listed(Vec<(Vec<u8>, Option<FileType>)>),
    /// All that are known: it has no others.
    Known,
    /// Those that are wanted.
    Wanted,
}

/// A directory as long as it is open.
pub(super) struct Open {
    pub handle: DirHandle,
    /// How many there are.
    count: Arc<AtomicUsize>,
}

impl Open {
    pub fn new(handle: DirHandle, count: &Arc<AtomicUsize>) -> Arc<Self> {
        count.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            handle,
            count: Arc::clone(count),
        })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A directory being put together. It isn't kept open: its subdirectories' tasks outlive those for its own entries.
pub(super) struct Building {
    /// Where it goes.
    pub to: Option<(Arc<Self>, usize)>,
    pub path: TreePath,
    pub place: Place,
    /// As in [`Looked`].
    pub whole: bool,
    /// As in [`Looked`].
    pub trusts_names: bool,
    /// All entries are looked at.
    pub list: bool,
    /// Built-in patterns that leave out something in it, as in [`Dir`].
    pub builtin_hits: AtomicU32,
    /// What is wanted in known directories.
    pub wants: Mutex<BTreeMap<Name, Want>>,
    /// Tasks that haven't ended.
    pub remaining: AtomicUsize,
    pub parts: Mutex<Parts>,
}

/// What the tasks of a directory fill in.
pub(super) struct Parts {
    dir: Option<Box<Dir>>,
    /// What was captured of it before.
    was: Option<Node>,
    pub slots: Slots,
    /// Something captured differs from before.
    pub changed: bool,
}

impl Building {
    /// Begins with what is known. Also gives the entries to be looked at, and those that are gone.
    pub fn new(visit: Visit, looked: Looked, now: Time) -> (Arc<Self>, Vec<Item>, Vec<Entry>) {
        let Looked {
            stat,
            attributes,
            rules,
            place,
            names,
            whole,
            trusts_names,
        } = looked;
        let was = visit.old.as_ref().filter(|old| old.shows()).map(|old| old.node());
        let (listed, builtin_hits) = match (&names, &visit.old) {
            (Names::Listed(_), _) => (tells_of_names(stat.ctime_ns, now.0), 0),
            (_, Some(old)) => (old.listed && old.ctime_ns == stat.ctime_ns, old.builtin_hits),
            (_, None) => (false, 0),
        };
        let (entries, tree, side, unsaved) = match visit.old {
            Some(old) => (old.entries, old.tree, old.side, old.unsaved),
            None => (Vec::new(), None, None, false),
        };
        let list = !matches!(names, Names::Wanted);
        let (slots, items, gone) = match names {
            Names::Listed(listed) => merge_listed(listed, entries),
            Names::Known => merge_known(entries),
            Names::Wanted => merge_wanted(visit.want.names.keys(), entries),
        };
        let changed = gone.iter().any(|entry| entry.slot.shows());
        let dir = Dir {
            entries: Vec::new(),
            ino: stat.ino,
            ctime_ns: stat.ctime_ns,
            perm: Perm::of_mode(stat.mode),
            attributes,
            racy: is_racy(i64::MIN, stat.ctime_ns, now.0),
            listed,
            below: visit.below,
            tree,
            side,
            unsaved,
            rules,
            builtin_hits: 0,
            files: 0,
            left: 0,
        };
        let building = Self {
            to: visit.to,
            path: visit.path,
            place,
            whole,
            trusts_names,
            list,
            builtin_hits: AtomicU32::new(builtin_hits),
            wants: Mutex::new(visit.want.names),
            remaining: AtomicUsize::new(1),
            parts: Mutex::new(Parts {
                dir: Some(Box::new(dir)),
                was,
                slots,
                changed,
            }),
        };
        (Arc::new(building), items, gone)
    }

    /// Fills in what came of entries.
    pub fn set(&self, done: Vec<(usize, Name, Option<Slot>)>) {
        let mut parts = lock(&self.parts);
        for (at, name, slot) in done {
            parts.slots[at] = (name, slot);
        }
    }

    /// The directory, once all its tasks have ended, and whether it differs from before.
    pub fn put_together(&self) -> (Box<Dir>, bool) {
        let mut parts = lock(&self.parts);
        let mut dir = parts.dir.take().expect("a directory is put together once");
        let slots = std::mem::take(&mut parts.slots);
        dir.entries = slots
            .into_iter()
            .filter_map(|(name, slot)| Some(Entry { name, slot: slot? }))
            .collect();
        dir.entries.shrink_to_fit();
        dir.builtin_hits = self.builtin_hits.load(Ordering::Relaxed);
        dir.count();
        dir.unsaved |= dir.entries.iter().any(|entry| match &entry.slot {
            Slot::Dir(dir) => dir.unsaved,
            slot => slot.contents().is_some_and(|file| file.unsaved),
        });
        let is = dir.shows().then(|| dir.node());
        let changed = parts.changed || parts.was != is;
        if changed {
            dir.tree = None;
            dir.side = None;
        }
        (dir, changed)
    }
}
