//! After the changes: they are made durable, and what was swapped out is looked at once more.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};

use super::change::{CHANGED, Changer, Done, Outcome, vanished};
use super::compare::Signature;
use super::ops::{self, At as Name};
use super::place::{Sort, Work, name};
use super::staging;
use super::swap::{Swap, expected};
use crate::error::{At, Result};
use crate::path::TreePath;
use crate::root::Stat;

impl Changer<'_> {
    /// The last sync, and the last look at what was swapped out.
    pub fn settle(&self, outcome: &mut Outcome) -> Result<()> {
        self.sync()?;
        if self.compare_again(outcome)? {
            self.sync()?;
        }
        Ok(())
    }

    /// Makes what was done durable: a few directories each, or the whole file systems.
    fn sync(&self) -> Result<()> {
        let ground = self.ground;
        let mut dirs: BTreeSet<TreePath> = self
            .works
            .iter()
            .filter_map(|work| work.path.split_last())
            .map(|(parent, _)| parent)
            .collect();
        dirs.extend(
            self.works
                .iter()
                .filter(|work| work.sort() != Sort::Leaf)
                .map(|work| work.path.clone()),
        );
        if dirs.len() <= staging::SYNC_EACH_MAX && self.sync_each(&dirs)? {
            return Ok(());
        }
        ops::sync_file_system("sync.syncfs", ground.root.as_fd()).at(ground.root_path)?;
        let mut synced = BTreeSet::from([Stat::of(&ground.root).at(ground.root_path)?.dev]);
        for staging in &ground.stagings {
            let full = ground.full(&staging.path());
            if synced.insert(Stat::of(&staging.dir).at(&full)?.dev) {
                ops::sync_file_system("sync.syncfs", staging.dir.as_fd()).at(full)?;
            }
        }
        Ok(())
    }

    /// `false`: one of them couldn't be synced on its own.
    fn sync_each(&self, dirs: &BTreeSet<TreePath>) -> Result<bool> {
        let stagings = self.ground.stagings.iter().map(|staging| staging.path());
        for path in dirs.iter().cloned().chain(stagings) {
            let full = self.ground.full(&path);
            let dir = match self.ground.root.open_beneath(&path) {
                Ok(dir) => dir,
                Err(error) if vanished(&error) => continue,
                Err(_) => return Ok(false),
            };
            let dir = ops::open_dir(dir.as_fd(), b".").at(&full)?;
            ops::sync_file("sync.fsync", &dir).at(&full)?;
        }
        Ok(true)
    }

    /// Looks again at what was swapped out: a process may have gone on writing to it. What changed goes back.
    fn compare_again(&self, outcome: &mut Outcome) -> Result<bool> {
        let mut any = false;
        for work in self.works {
            let Some(Done::Changed(Some(signature))) = outcome.done.get(&work.step) else {
                continue;
            };
            let slot = work.slot();
            let index = self.ground.staging_of[&work.step];
            let staged = self.ground.stagings[index].at(&slot);
            let full = self.ground.full(&work.path);
            let Some(stat) = ops::stat(staged.0, staged.1).at(&full)? else {
                continue;
            };
            if Signature::of(&stat) == *signature {
                continue;
            }
            let from = work.from.as_ref().expect("something was swapped out");
            if expected(staged.0, staged.1, from, work.lenient)
                .at(&full)?
                .is_some()
            {
                continue;
            }
            any = true;
            let parent = match self.ground.parent(&work.path) {
                Ok(parent) => parent,
                Err(error) if vanished(&error) => match self.make_again(work, outcome)? {
                    Some(parent) => parent,
                    None => {
                        strand(outcome, index, work.step);
                        continue;
                    }
                },
                Err(error) => return Err(error).at(full),
            };
            let swap = Swap {
                work,
                there: Name(parent.as_fd(), name(&work.path)),
                staged,
            };
            let back = swap.put_back().at(&full)?;
            if back {
                outcome.done.insert(
                    work.step,
                    Done::Kept("written to while it was being replaced".into()),
                );
            } else {
                strand(outcome, index, work.step);
            }
        }
        Ok(any)
    }

    /// Makes the directories above a path again that were removed just before. `None`: something else is there.
    fn make_again(&self, work: &Work, outcome: &mut Outcome) -> Result<Option<OwnedFd>> {
        let mut at = TreePath::root();
        let (above, _) = work.path.split_last().unwrap_or_default();
        for part in above.parts() {
            let parent = at.clone();
            at = at.join(part);
            let full = self.ground.full(&at);
            let removed = self
                .works
                .iter()
                .find(|other| other.path == at && other.to.is_none());
            let Some(Work {
                from: Some(from),
                step,
                ..
            }) = removed
            else {
                continue;
            };
            let Ok(dir) = ops::open_parent(&self.ground.root, &parent) else {
                return Ok(None);
            };
            match ops::make_dir("apply.back-mkdir", dir.as_fd(), part) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error).at(full),
            }
            ops::chmod_dir("apply.chmod", dir.as_fd(), part, from.perm.bits()).at(full)?;
            outcome.done.insert(*step, Done::Blocked);
        }
        Ok(self.ground.parent(&work.path).ok())
    }
}

fn strand(outcome: &mut Outcome, staging: usize, step: usize) {
    outcome.stranded.insert((staging, step));
    outcome.done.insert(step, Done::Kept(CHANGED.into()));
}
