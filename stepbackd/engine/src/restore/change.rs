//! The changes themselves, in four passes: directories that come; files, links and FIFOs; directories that go (deepest
//! first); modes of directories (deepest first). All is staged and durable before.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use rayon::prelude::*;

use super::compare::Signature;
use super::dirs::opened_perm;
use super::journal::Opened;
use super::ops::{self, At as Name};
use super::place::{Ground, Sort, Work, name};
use super::swap::Swap;
use crate::error::{At, Result};
use crate::node::Perm;
use crate::path::TreePath;
use crate::root::FileType;

/// The path, or a directory above it, isn't there, or isn't a directory any more.
pub(super) fn vanished(error: &io::Error) -> bool {
    is_one_of(error, &[Errno::ENOENT, Errno::ENOTDIR, Errno::ELOOP])
}

pub(super) fn is_one_of(error: &io::Error, errnos: &[Errno]) -> bool {
    errnos
        .iter()
        .any(|errno| error.raw_os_error() == Some(*errno as i32))
}

pub(super) const CHANGED: &str = "changed since it was saved";
pub(super) const APPEARED: &str = "something was made here since it was saved";
pub(super) const MOUNT: &str = "something is mounted here";

/// What became of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Done {
    /// It was carried out. For what went through a staging directory: what the old version looked like there.
    Changed(Option<Signature>),
    /// There was nothing to do: it is as wanted.
    Already,
    /// It was left, for this reason.
    Kept(String),
    /// It was left, for a reason that another path names.
    Blocked,
}

/// What became of all of them.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// By number of the step.
    pub done: BTreeMap<usize, Done>,
    /// Slots that hold bytes of somebody else's that could go nowhere: staging directory and step. They stay.
    pub stranded: BTreeSet<(usize, usize)>,
    /// For people.
    pub notes: Vec<String>,
}

/// Carries all works out.
pub(super) struct Changer<'a> {
    pub ground: &'a Ground<'a>,
    pub works: &'a [Work],
    /// Directories to be opened for their owner before and closed after.
    pub opened: &'a [Opened],
}

/// Result of one step inside the parallel pass.
struct Leaf {
    step: usize,
    done: Done,
    stranded: bool,
}

impl Changer<'_> {
    /// All four passes. On an error the tree is somewhere between both states, every path in one of them.
    pub fn run(&self, outcome: &mut Outcome) -> Result<()> {
        self.open(false)?;
        self.narrow()?;
        // Directories that should have been made and weren't.
        let mut failed: Vec<&TreePath> = Vec::new();
        for work in self.of_sort(Sort::MakeDir) {
            let leaf = if is_below(work, &failed) {
                blocked(work)
            } else {
                self.leaf(work)?
            };
            if matches!(leaf.done, Done::Kept(_) | Done::Blocked) {
                failed.push(&work.path);
            }
            record(outcome, self.ground.staging_of[&work.step], leaf);
        }
        self.leaves(&failed, outcome)?;
        let mut going: Vec<&Work> = self.of_sort(Sort::RemoveDir).collect();
        going.sort_by(|a, b| b.path.cmp(&a.path));
        for work in going {
            let done = self.remove_dir(work, outcome)?;
            outcome.done.insert(work.step, done);
        }
        self.close(outcome)
    }

    pub(super) fn of_sort(&self, sort: Sort) -> impl Iterator<Item = &Work> {
        self.works.iter().filter(move |work| work.sort() == sort)
    }

    /// Second pass, in parallel, one directory at a time.
    fn leaves(&self, failed: &[&TreePath], outcome: &mut Outcome) -> Result<()> {
        let mut by_parent: BTreeMap<TreePath, Vec<&Work>> = BTreeMap::new();
        for work in self.of_sort(Sort::Leaf) {
            let (parent, _) = work.path.split_last().unwrap_or_default();
            by_parent.entry(parent).or_default().push(work);
        }
        let groups: Vec<Vec<&Work>> = by_parent.into_values().collect();
        let results = Mutex::new(Vec::new());
        let stop = AtomicBool::new(false);
        let all = groups.par_iter().try_for_each(|group| {
            let mut mine = Vec::with_capacity(group.len());
            let mut ended = Ok(());
            for work in group {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                if is_below(work, failed) {
                    mine.push(blocked(work));
                    continue;
                }
                match self.leaf(work) {
                    Ok(leaf) => mine.push(leaf),
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        ended = Err(error);
                        break;
                    }
                }
            }
            results
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .extend(mine);
            ended
        });
        for leaf in results
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
        {
            record(outcome, self.ground.staging_of[&leaf.step], leaf);
        }
        all
    }

    /// A path that becomes something, or goes, by one rename.
    fn leaf(&self, work: &Work) -> Result<Leaf> {
        let full = self.ground.full(&work.path);
        let done = |done| {
            Ok(Leaf {
                step: work.step,
                done,
                stranded: false,
            })
        };
        let parent = match self.ground.parent(&work.path) {
            Ok(parent) => parent,
            Err(error) if vanished(&error) && work.to.is_none() => return done(Done::Already),
            Err(error) if vanished(&error) => {
                return done(Done::Kept(
                    "the directory that holds it is gone or was replaced".into(),
                ));
            }
            Err(error) => return Err(error).at(full),
        };
        let slot = work.slot();
        let there = Name(parent.as_fd(), name(&work.path));
        let swap = Swap {
            work,
            there,
            staged: self.ground.staging(work).at(&slot),
        };
        let (done, stranded) = match (&work.from, &work.to) {
            (None, Some(_)) => (swap.create().at(full)?, false),
            (Some(from), Some(to)) => swap.replace(from, to).at(full)?,
            (Some(from), None) => swap.remove(from).at(full)?,
            (None, None) => (Done::Already, false),
        };
        Ok(Leaf {
            step: work.step,
            done,
            stranded,
        })
    }

    /// Third pass: what was in it is gone by now, or has stayed for a reason.
    fn remove_dir(&self, work: &Work, outcome: &Outcome) -> Result<Done> {
        let full = self.ground.full(&work.path);
        let parent = match self.ground.parent(&work.path) {
            Ok(parent) => parent,
            Err(error) if vanished(&error) && work.to.is_none() => return Ok(Done::Already),
            Err(error) if vanished(&error) => return Ok(Done::Kept(CHANGED.into())),
            Err(error) => return Err(error).at(full),
        };
        let name = name(&work.path);
        let from = work.from.as_ref().expect("a directory that goes was there");
        if let Some(stat) = ops::stat(parent.as_fd(), name).at(&full)? {
            let known = |perm: Perm| perm == from.perm || perm == opened_perm(from.perm);
            if stat.kind != FileType::Dir || !(known(Perm::of_mode(stat.mode)) || work.lenient) {
                return Ok(Done::Kept(CHANGED.into()));
            }
            match ops::remove_dir("apply.rmdir", parent.as_fd(), name) {
                Ok(()) => {}
                Err(error) if is_one_of(&error, &[Errno::ENOTEMPTY, Errno::EEXIST]) => {
                    return Ok(self.why_not_empty(work, outcome));
                }
                Err(error) if is_one_of(&error, &[Errno::EBUSY]) => return Ok(Done::Kept(MOUNT.into())),
                Err(error) if is_one_of(&error, &[Errno::ENOTDIR]) => return Ok(Done::Kept(CHANGED.into())),
                Err(error) if is_one_of(&error, &[Errno::ENOENT]) => {}
                Err(error) => return Err(error).at(full),
            }
        } else if work.to.is_none() {
            return Ok(Done::Already);
        }
        if work.to.is_some() {
            let slot = work.slot();
            let staged = self.ground.staging(work).at(&slot);
            match ops::rename_new("apply.create", staged, Name(parent.as_fd(), name)) {
                Ok(()) => {}
                Err(error) if is_one_of(&error, &[Errno::EEXIST]) => return Ok(Done::Kept(APPEARED.into())),
                Err(error) => return Err(error).at(full),
            }
        }
        Ok(Done::Changed(None))
    }

    fn why_not_empty(&self, work: &Work, outcome: &Outcome) -> Done {
        let told = self.works.iter().any(|other| {
            other.path != work.path
                && other.path.starts_with(&work.path)
                && matches!(outcome.done.get(&other.step), Some(Done::Kept(_) | Done::Blocked))
        });
        if told && work.to.is_none() {
            return Done::Blocked;
        }
        Done::Kept("something was made in it since it was saved".into())
    }
}

fn is_below(work: &Work, dirs: &[&TreePath]) -> bool {
    dirs.iter().any(|dir| work.path.starts_with(dir))
}

fn blocked(work: &Work) -> Leaf {
    Leaf {
        step: work.step,
        done: Done::Blocked,
        stranded: false,
    }
}

fn record(outcome: &mut Outcome, staging: usize, leaf: Leaf) {
    if leaf.stranded {
        outcome.stranded.insert((staging, leaf.step));
    }
    outcome.done.insert(leaf.step, leaf.done);
}
