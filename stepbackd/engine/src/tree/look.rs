//! Looking at the entries of a directory: what each is now, and what that means against what was known.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nix::errno::Errno;

use super::building::{Building, Open};
use super::dir::{Left, Name, Sig, Slot};
use super::merge::batches;
use super::read::{Outcome, is_ours, left};
use super::scan::{OPEN_MAX, Task, Visit, Walk, at_path, lock};
use super::work::Work;
use crate::error::Error;
use crate::node::Reason;
use crate::path::{TreePath, is_temporary};
use crate::root::{FileType, Stat};
use crate::rules::Below;

/// An entry to be looked at.
pub(super) struct Item {
    /// Which slot of the directory.
    pub at: usize,
    pub name: Name,
    /// What the list said.
    pub kind: Option<FileType>,
    /// What was known of it.
    pub old: Option<Slot>,
}

/// A file to be read.
pub(super) struct Read {
    pub at: usize,
    pub name: Name,
    pub stat: Stat,
    pub old: Option<Slot>,
}

/// So many entries are looked at between two questions whether the walk is to end.
const ENTRIES_PER_QUESTION: usize = 64;

/// What a look at an entry gave.
enum Seen {
    Slot(Option<Slot>),
    Read(Stat, Option<Slot>),
    Visit(Box<Visit>),
    /// The walk has failed by this; what was known comes back.
    Failed(Error, Option<Slot>),
}

impl Item {
    /// Whether what is known of a file or link still holds.
    fn is_fresh(&self, stat: &Stat) -> bool {
        let known = match (&self.old, stat.kind) {
            (Some(slot @ Slot::File(_)), FileType::File) | (Some(slot @ Slot::Link(_)), FileType::Link) => {
                slot.contents()
            }
            _ => None,
        };
        known.is_some_and(|file| !file.racy && file.sig == Sig::of(stat))
    }
}

/// An entry of which not even the stat is known.
pub(super) fn unknown() -> Slot {
    Slot::Left(Box::new(Left {
        reason: Reason::Unreadable,
        size: 0,
        mtime_ns: 0,
    }))
}

impl Walk<'_> {
    /// Looks at entries of a directory; what takes longer becomes tasks.
    pub(super) fn look(
        &self,
        work: &Work<Task>,
        building: &Arc<Building>,
        dir: &Arc<Open>,
        items: Vec<Item>,
    ) {
        let mut path = building.path.as_bytes().to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        let prefix = path.len();
        let mut visits = Vec::new();
        let mut reads = Vec::new();
        let mut done = Vec::with_capacity(items.len());
        let files = items.len();
        let mut is_over = false;
        for (number, mut item) in items.into_iter().enumerate() {
            path.truncate(prefix);
            path.extend_from_slice(&item.name);
            // Asking tells the other threads' processors, too, that the work gets on: not for each entry.
            if number % ENTRIES_PER_QUESTION == 0 {
                is_over = self.is_over();
            }
            let seen = match is_over {
                true => Seen::Slot(item.old.take()),
                false => self.look_at(building, dir, &mut item, &path),
            };
            let Item { at, name, .. } = item;
            match seen {
                Seen::Slot(slot) => done.push((at, name, slot)),
                Seen::Read(stat, old) => reads.push(Read { at, name, stat, old }),
                Seen::Visit(visit) => {
                    visits.push(Task::Visit(visit));
                    done.push((at, name, None));
                }
                Seen::Failed(error, old) => {
                    is_over = true;
                    self.fail(error);
                    done.push((at, name, old));
                }
            }
        }
        self.cx
            .progress
            .advance((files - visits.len() - reads.len()) as u64);
        building.set(done);
        building.remaining.fetch_add(visits.len(), Ordering::Relaxed);
        work.add(visits);
        let mut batches = batches(reads);
        let own = batches.pop();
        building.remaining.fetch_add(batches.len(), Ordering::Relaxed);
        work.add(
            batches
                .into_iter()
                .map(|reads| Task::Read(Arc::clone(building), Arc::clone(dir), reads)),
        );
        self.read(building, dir, own.unwrap_or_default());
    }

    /// Looks at one entry.
    fn look_at(&self, building: &Arc<Building>, dir: &Arc<Open>, item: &mut Item, path: &[u8]) -> Seen {
        let hits = &building.builtin_hits;
        let verdict = |is_dir| {
            building
                .place
                .verdict(self.cx.rules, path, &item.name, is_dir, hits)
        };
        // Most that is ignored needn't be asked for its stat.
        let by_list = item.kind.map(|kind| verdict(kind == FileType::Dir));
        if by_list == Some(None) {
            return Seen::Slot(self.replace(building, item.old.take(), None, path));
        }
        let stat = match dir.handle.stat(&item.name) {
            Ok(stat) => stat,
            Err(error) if is_ours(&error) => {
                return Seen::Failed(at_path(error, &building.path.join(&item.name)), item.old.take());
            }
            Err(error) => {
                let gone = matches!(
                    error.raw_os_error().map(Errno::from_raw),
                    Some(Errno::ENOENT | Errno::ENOTDIR)
                );
                return Seen::Slot(self.replace(building, item.old.take(), (!gone).then(unknown), path));
            }
        };
        let by_stat = match by_list {
            Some(by_list) if item.kind == Some(stat.kind) => by_list,
            _ => verdict(stat.kind == FileType::Dir),
        };
        let Some(below) = by_stat else {
            return Seen::Slot(self.replace(building, item.old.take(), None, path));
        };
        if stat.kind == FileType::File && stat.nlink > 1 {
            let path = TreePath::new(path).expect("names from a directory make a path");
            self.has_other_names(path, stat.ino);
        }
        let new = match stat.kind {
            _ if self.cx.rules.is_forgotten(path) => Some(left(Reason::Forgotten, &stat)),
            _ if self.cx.rules.is_astray(path) => Some(left(Reason::Special, &stat)),
            FileType::Dir if self.cx.rules.is_own_dir(stat.dev, stat.ino) => {
                Some(left(Reason::Special, &stat))
            }
            // What a crash has left of an operation, or somebody's own of such a name: either way it is named.
            _ if is_temporary(&item.name) => Some(left(Reason::Special, &stat)),
            FileType::Dir => return self.look_at_dir(building, dir, item, below, &stat, path),
            // Also what was captured under a higher cap.
            FileType::File if stat.size > self.cx.max_file_size => Some(left(Reason::TooLarge, &stat)),
            FileType::File | FileType::Link if item.is_fresh(&stat) => return Seen::Slot(item.old.take()),
            FileType::File => {
                if let Some(census) = &self.cx.limits.census
                    && let Err(error) = census.count(stat.size)
                {
                    return Seen::Failed(error, item.old.take());
                }
                return Seen::Read(stat, item.old.take());
            }
            FileType::Link => match self.reader.link(&dir.handle, &item.name, &stat) {
                Ok(Outcome::Slot(slot)) => Some(slot),
                Ok(Outcome::Gone) => None,
                Ok(Outcome::OtherType) => Some(self.changing(&stat, path)),
                Err(error) => return Seen::Failed(error, item.old.take()),
            },
            FileType::Fifo => Some(self.reader.fifo(&stat)),
            FileType::Special => Some(left(Reason::Special, &stat)),
        };
        Seen::Slot(self.replace(building, item.old.take(), new, path))
    }

    fn look_at_dir(
        &self,
        building: &Arc<Building>,
        dir: &Arc<Open>,
        item: &mut Item,
        below: Below,
        stat: &Stat,
        path: &[u8],
    ) -> Seen {
        let wanted = lock(&building.wants).remove(&item.name);
        let full = || TreePath::new(path).expect("names from a directory make a path");
        let is_wanted = wanted.is_some();
        let mut want = wanted.unwrap_or_default();
        want.whole |= building.whole;
        want.trusts_names |= building.trusts_names;
        let old = match item.old.take() {
            Some(Slot::Dir(old)) => {
                let known = old.ino == stat.ino && old.below == below;
                // One that is looked at whole is entered when it is opened.
                want.whole =
                    want.whole || !known || (building.list && !self.cx.watch.enter(&full(), stat.into()));
                if !want.whole && !is_wanted {
                    if old.ctime_ns == stat.ctime_ns && !old.racy {
                        return Seen::Slot(Some(Slot::Dir(old)));
                    }
                    // Something in it or about it changed, or it was removed and made anew with the same inode number:
                    // then all directories in it have new ctimes too.
                    want.list = true;
                }
                Some(old)
            }
            other => {
                want.whole = true;
                self.replace(building, other, None, path);
                None
            }
        };
        let keep_open = self.open.load(Ordering::Relaxed) < OPEN_MAX;
        Seen::Visit(Box::new(Visit {
            to: Some((Arc::clone(building), item.at)),
            above: keep_open.then(|| Arc::clone(dir)),
            path: full(),
            stat: Some(*stat),
            place: building.place.clone(),
            below,
            old,
            want,
        }))
    }

    /// Reads files of a directory.
    pub(super) fn read(&self, building: &Arc<Building>, dir: &Open, reads: Vec<Read>) {
        let mut done = Vec::with_capacity(reads.len());
        for read in reads {
            let path = building.path.join(&read.name);
            if self.is_over() {
                done.push((read.at, read.name, read.old));
                continue;
            }
            let earlier = match &read.old {
                Some(Slot::File(file)) => Some(file),
                _ => None,
            };
            let slot = match self.reader.file(&dir.handle, &read.name, &read.stat, earlier) {
                Ok(Outcome::Slot(slot)) => Some(slot),
                Ok(Outcome::Gone) => None,
                Ok(Outcome::OtherType) => Some(self.changing(&read.stat, path.as_bytes())),
                Err(error) => {
                    self.fail(error);
                    done.push((read.at, read.name, read.old));
                    continue;
                }
            };
            if matches!(&slot, Some(Slot::Left(left)) if left.reason == Reason::Changing) {
                self.look_again(path.clone());
            }
            self.cx.progress.advance(1);
            let slot = self.replace(building, read.old, slot, path.as_bytes());
            done.push((read.at, read.name, slot));
        }
        building.set(done);
    }

    fn changing(&self, stat: &Stat, path: &[u8]) -> Slot {
        self.look_again(TreePath::new(path).expect("names from a directory make a path"));
        left(Reason::Changing, stat)
    }

    /// Notes what it means that `new` (never a directory) comes for `old`.
    pub(super) fn replace(
        &self,
        building: &Building,
        old: Option<Slot>,
        new: Option<Slot>,
        path: &[u8],
    ) -> Option<Slot> {
        if let Some(Slot::Dir(dir)) = &old {
            self.leave(
                &TreePath::new(path).expect("names from a directory make a path"),
                dir,
            );
        }
        if old.as_ref().and_then(Slot::node) != new.as_ref().and_then(Slot::node) {
            self.changed.store(true, Ordering::Relaxed);
            lock(&building.parts).changed = true;
        }
        new
    }
}
