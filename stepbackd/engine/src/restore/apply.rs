//! Carrying a plan out.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use super::change::{Changer, Done, Outcome};
use super::converge::converge;
use super::journal::{self, Generation, Journal, JournalHeader};
use super::place::{Ground, Work};
use super::rest::Rest;
use super::step::{Kept, Plan};
use super::survey::{Survey, survey};
use super::{ops, staging};
use crate::error::{At, Error, Result};
use crate::fault;
use crate::path::TreePath;
use crate::progress::Progress;
use crate::root::DirHandle;
use crate::state::{self, Identity};
use crate::store::Store;

/// Where and with what to work.
#[derive(Clone, Copy)]
pub struct ApplyContext<'a> {
    /// Holds every byte of both states.
    pub store: &'a Store,
    /// The root.
    pub root_path: &'a Path,
    /// Which directory it is; another one in its place is refused. `None`: any.
    pub identity: Option<Identity>,
    /// The root's directory in the store.
    pub journal_dir: &'a Path,
    /// Counts staged files; may cancel while the tree is untouched.
    pub progress: &'a Progress,
}

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// Paths made or overwritten, as people count them (see [`Plan::changes`]).
    pub written: u64,
    /// Paths removed.
    pub removed: u64,
    /// Left though they differ: those of the plan and those that were found to have changed since.
    pub kept: Vec<Kept>,
    /// All paths that may have changed, for the picture of the tree in memory.
    pub touched: BTreeSet<TreePath>,
    /// What could not go back.
    pub rest: Rest,
    /// For people: set-id bits, owners and attributes that could not be put back.
    pub notes: Vec<String>,
}

/// Carries `plan` out. The before-checkpoint and the redo entry are durable already. The journal stays, for the caller to
/// record what came out, and then to [`super::finish`].
///
/// # Errors
/// The tree is then as it was before, unless [`journal::unfinished`] says otherwise: then every path is in one of both
/// states, and [`super::recover`] finishes or undoes it.
pub fn apply(cx: &ApplyContext<'_>, plan: &Plan, header: JournalHeader) -> Result<Applied> {
    if let Some(header) = journal::unfinished(cx.journal_dir)? {
        let operation = header.operation.name().to_owned();
        return Err(Error::Unfinished {
            operation,
            target: header.target,
        });
    }
    let mut works = works_of(plan);
    let root_missing = makes_root(plan);
    let (ground, survey) = match open(cx, root_missing)? {
        Some(root) => {
            let survey = survey(cx.root_path, &root, &works)?;
            (Some(root), survey)
        }
        // The root will be made: everything is staged in it.
        None => (None, Survey::in_new_root(&works)),
    };
    let journal = Journal::new(header, plan.clone(), survey.generation.clone());
    if let Err(error) = journal::begin(cx.journal_dir, &journal) {
        return Err(give_up(cx, error));
    }
    let root = match ground {
        Some(root) => root,
        None => match make_root(cx) {
            Ok(root) => root,
            Err(error) => return Err(give_up(cx, error)),
        },
    };
    if root_missing {
        works.retain(|work| !work.path.is_root());
        if let Some(step) = plan.steps.iter().position(|step| step.path.is_root()) {
            works.push(root_mode_work(plan, step));
        }
    }
    let mut ground = Ground {
        root_path: cx.root_path,
        root,
        stagings: Vec::new(),
        staging_of: survey.staging_of,
    };
    let mut outcome = Outcome::default();
    if let Err(error) = carry_out(cx, &mut ground, &works, &survey.generation, &mut outcome) {
        return Err(take_back(cx, &journal, &ground.root, error));
    }
    let mut applied = report(plan, &outcome);
    applied.rest = Rest::of(cx.store, &mut ground, &plan.steps, &outcome.stranded)?;
    Ok(applied)
}

fn carry_out(
    cx: &ApplyContext<'_>,
    ground: &mut Ground<'_>,
    works: &[Work],
    generation: &Generation,
    outcome: &mut Outcome,
) -> Result<()> {
    let opened = &generation.opened;
    Changer {
        ground,
        works,
        opened,
    }
    .open(true)?;
    staging::make_dirs(ground, &generation.stagings)?;
    cx.progress
        .begin(works.iter().filter(|work| work.wants_staging()).count() as u64);
    outcome.notes = staging::stage(ground, cx.store, works, cx.progress)?;
    journal::mark_staged(cx.journal_dir, 0)?;
    let changer = Changer {
        ground,
        works,
        opened,
    };
    changer.run(outcome)?;
    changer.settle(outcome)
}

pub(super) fn works_of(plan: &Plan) -> Vec<Work> {
    let steps = plan.steps.iter().enumerate();
    steps
        .map(|(step, planned)| Work {
            step,
            path: planned.path.clone(),
            from: planned.from.clone(),
            to: planned.to.clone(),
            lenient: false,
            ready: None,
        })
        .collect()
}

/// The root itself is made by the plan.
pub(super) fn makes_root(plan: &Plan) -> bool {
    plan.steps
        .iter()
        .any(|step| step.path.is_root() && step.from.is_none() && step.to.is_some())
}

/// What is left to do about a root that was just made: its mode.
fn root_mode_work(plan: &Plan, step: usize) -> Work {
    let to = plan.steps[step].to.clone();
    Work {
        step,
        path: TreePath::root(),
        from: to.clone(),
        to,
        lenient: true,
        ready: None,
    }
}

fn open(cx: &ApplyContext<'_>, may_be_missing: bool) -> Result<Option<DirHandle>> {
    match open_root(cx) {
        Err(Error::RootMissing(_)) if may_be_missing => Ok(None),
        other => other.map(Some),
    }
}

/// Opens the root, if it is the right one.
pub(super) fn open_root(cx: &ApplyContext<'_>) -> Result<DirHandle> {
    if let Some(identity) = cx.identity {
        return state::open_root(cx.root_path, identity);
    }
    match DirHandle::open_root(cx.root_path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Error::RootMissing(cx.root_path.to_owned()))
        }
        other => other.at(cx.root_path),
    }
}

pub(super) fn make_root(cx: &ApplyContext<'_>) -> Result<DirHandle> {
    let (Some(parent), Some(name)) = (cx.root_path.parent(), cx.root_path.file_name()) else {
        return Err(Error::RootMissing(cx.root_path.to_owned()));
    };
    let parent = DirHandle::open_root(parent).at(parent)?;
    ops::make_dir("stage.mkroot", parent.as_fd(), name.as_encoded_bytes()).at(cx.root_path)?;
    DirHandle::open_root(cx.root_path).at(cx.root_path)
}

/// Nothing was changed yet: the journal goes, and the error is told.
fn give_up(cx: &ApplyContext<'_>, error: Error) -> Error {
    // If even this fails, the journal stays, and `recover` finds nothing to do but to remove it.
    let _ = journal::clear(cx.journal_dir);
    error
}

/// Something failed after the journal was written: all is taken back at once, by the means of `recover`. If that fails
/// too, the operation is unfinished.
fn take_back(cx: &ApplyContext<'_>, journal: &Journal, root: &DirHandle, error: Error) -> Error {
    if fault::point("back.begin").is_ok() {
        // The first error is the one that people need; a journal that stays tells of this one.
        let quiet = Progress::default();
        let cx = ApplyContext {
            progress: &quiet,
            ..*cx
        };
        // In the directory that was worked in, whatever is in its place by now.
        let undone = root
            .open_beneath(&TreePath::root())
            .at(cx.root_path)
            .and_then(|root| converge(&cx, journal, true, Some(root)));
        let _ = undone.and_then(|(_, rest)| match rest.is_empty() {
            true => journal::clear(cx.journal_dir),
            // Whoever finishes or undoes it has a place for what is left.
            false => Ok(()),
        });
    }
    error
}

pub(super) fn report(plan: &Plan, outcome: &Outcome) -> Applied {
    let parents = plan.parents();
    let mut applied = Applied {
        kept: plan.kept.clone(),
        notes: outcome.notes.clone(),
        ..Applied::default()
    };
    for (number, step) in plan.steps.iter().enumerate() {
        applied.touched.insert(step.path.clone());
        match outcome.done.get(&number) {
            Some(Done::Changed(_)) if plan.is_container(step, &parents) && !step.keeps_directory() => {}
            Some(Done::Changed(_)) if step.to.is_some() => applied.written += 1,
            Some(Done::Changed(_)) => applied.removed += 1,
            Some(Done::Kept(reason)) => {
                applied.kept.push(Kept {
                    path: step.path.clone(),
                    reason: reason.clone(),
                });
            }
            Some(Done::Already | Done::Blocked) | None => {}
        }
    }
    applied.kept.sort();
    applied.kept.dedup();
    applied
}

/// Removes a root that was made and is to go again, if nothing is in it.
pub(super) fn remove_root(cx: &ApplyContext<'_>) -> Result<()> {
    let (Some(parent), Some(name)) = (cx.root_path.parent(), cx.root_path.file_name()) else {
        return Ok(());
    };
    let parent = DirHandle::open_root(parent).at(parent)?;
    match ops::remove_dir("clear.rmroot", parent.as_fd(), name.as_encoded_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        other => other.at(cx.root_path),
    }
}
