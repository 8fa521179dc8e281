//! Finishing or undoing an interrupted operation: by what is on disk, path by path, not by how far it had come.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::AsFd;
use std::path::Path;

use super::apply::{ApplyContext, make_root, makes_root, open_root, remove_root, report};
use super::change::{CHANGED, Changer, Done, Outcome as Changes, vanished};
use super::compare::{self, Fit, Found};
use super::dirs::may_be_ours;
use super::journal::{self, Generation, Journal, JournalHeader, Opened};
use super::ops::At as Name;
use super::place::{Ground, Work, name};
use super::rest::Rest;
use super::step::{Kept, Step, is_dir};
use super::survey::survey;
use super::swap::Swap;
use super::{staging, unstaging};
use crate::error::{At, Error, Result};
use crate::node::{Kind, Node};
use crate::path::TreePath;
use crate::root::DirHandle;

/// How a recovery ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The operation is done, as if it had never been interrupted.
    Finished,
    /// The tree is as it was before the operation.
    Undone,
}

/// What a recovery did.
#[derive(Debug, Clone, PartialEq)]
pub struct Recovered {
    /// The operation that was interrupted.
    pub header: JournalHeader,
    /// How it ended.
    pub outcome: Outcome,
    /// Left alone: it held neither of the two recorded versions. When finishing, also what the plan keeps.
    pub kept: Vec<Kept>,
    /// All paths that may have changed, by this or by what was interrupted.
    pub touched: BTreeSet<TreePath>,
    /// What could not go back.
    pub rest: Rest,
    /// For people.
    pub notes: Vec<String>,
}

/// Finishes the interrupted operation, or takes it back. `None`: there is none. May be interrupted itself, and run again. The
/// journal stays, for the caller to record what came out, and then to [`super::finish`].
///
/// # Errors
/// The operation is still unfinished then.
pub fn recover(cx: &ApplyContext<'_>, undo: bool) -> Result<Option<Recovered>> {
    let Some(journal) = journal::read(cx.journal_dir)? else {
        return Ok(None);
    };
    let (changes, rest) = converge(cx, &journal, undo, None)?;
    let applied = report(&journal.plan, &changes);
    let mut kept = applied.kept;
    if undo {
        kept.retain(|kept| !journal.plan.kept.contains(kept));
    }
    Ok(Some(Recovered {
        outcome: if undo { Outcome::Undone } else { Outcome::Finished },
        rest,
        header: journal.header,
        kept,
        touched: applied.touched,
        notes: applied.notes,
    }))
}

/// Brings every path of the plan to one side, and removes all staging directories. `root`: open already.
pub(super) fn converge(
    cx: &ApplyContext<'_>,
    journal: &Journal,
    undo: bool,
    root: Option<DirHandle>,
) -> Result<(Changes, Rest)> {
    let plan = &journal.plan;
    let makes_root = makes_root(plan);
    // Which directory one is that the operation made, nobody knows.
    let identity = cx.identity.filter(|_| !makes_root);
    let root = match root.map_or_else(|| open_root(&ApplyContext { identity, ..*cx }), Ok) {
        Err(Error::RootMissing(_)) if makes_root => {
            if undo {
                return Ok((Changes::default(), Rest::default()));
            }
            make_root(cx)?
        }
        other => other?,
    };
    let ground = Ground {
        root_path: cx.root_path,
        root,
        stagings: Vec::new(),
        staging_of: BTreeMap::new(),
    };
    let mut recovery = Recovery {
        ground,
        steps: &plan.steps,
        undo,
        opened: BTreeMap::new(),
        ready: HashMap::new(),
        homeless: Vec::new(),
        changes: Changes::default(),
    };
    recovery.take_stock(cx.journal_dir, journal)?;
    let works = recovery.works()?;
    recovery.carry_out(cx, &works)?;
    let Recovery {
        mut ground, changes, ..
    } = recovery;
    let rest = Rest::of(cx.store, &mut ground, &plan.steps, &changes.stranded)?;
    if undo && makes_root {
        remove_root(cx)?;
    }
    Ok((changes, rest))
}

struct Recovery<'a> {
    ground: Ground<'a>,
    steps: &'a [Step],
    undo: bool,
    /// Directories that may be open still, with the bits to put back.
    opened: BTreeMap<TreePath, Opened>,
    /// Staging directories in which the wanted version of a step lies ready.
    ready: HashMap<usize, usize>,
    /// Slots, by staging directory and step, with bytes of somebody else's whose directory isn't there now.
    homeless: Vec<(usize, usize)>,
    changes: Changes,
}

impl Recovery<'_> {
    fn goal<'s>(&self, step: &'s Step) -> Option<&'s Node> {
        if self.undo {
            step.from.as_ref()
        } else {
            step.to.as_ref()
        }
    }

    fn other<'s>(&self, step: &'s Step) -> Option<&'s Node> {
        if self.undo {
            step.to.as_ref()
        } else {
            step.from.as_ref()
        }
    }

    /// Looks at what earlier attempts left in staging directories. What is neither version of its path was written by
    /// somebody else, and goes back to its place.
    fn take_stock(&mut self, dir: &Path, journal: &Journal) -> Result<()> {
        let later = journal::later_generations(dir)?;
        for (number, generation) in std::iter::once(&journal.first).chain(&later).enumerate() {
            for opened in &generation.opened {
                self.opened
                    .entry(opened.path.clone())
                    .or_insert_with(|| opened.clone());
            }
            let stagings = self.ground.open_stagings(&generation.stagings)?;
            if !journal::is_staged(dir, number) {
                unstaging::remove(&mut self.ground, stagings, self.steps.len(), &|_, _| false)?;
                continue;
            }
            for index in stagings {
                for (step, found) in unstaging::slots(&self.ground, index, self.steps.len())? {
                    self.slot(index, step, &found)?;
                }
            }
        }
        // Those of the plan's own directories are set by its steps.
        for step in self.steps {
            if is_dir(self.goal(step)) {
                self.opened.remove(&step.path);
            }
        }
        Ok(())
    }

    fn slot(&mut self, index: usize, number: usize, found: &Found) -> Result<()> {
        let step = &self.steps[number];
        if found.stat.kind == crate::root::FileType::Dir
            && (is_dir(step.from.as_ref()) || is_dir(step.to.as_ref()))
        {
            // Empty, or it can't be removed and will be named.
            return Ok(());
        }
        let node = found.node.as_ref();
        if node.is_some() && compare::fit(node, self.goal(step)) == Fit::Exactly {
            self.ready.insert(number, index);
            return Ok(());
        }
        let known = [&step.from, &step.to]
            .iter()
            .any(|side| side.is_some() && compare::fit(node, side.as_ref()) > Fit::No);
        if known {
            return Ok(());
        }
        if !self.bring_home(index, number)? {
            self.homeless.push((index, number));
        }
        Ok(())
    }

    /// Puts bytes of somebody else's back where they were. `false`: the directory isn't there.
    fn bring_home(&mut self, index: usize, number: usize) -> Result<bool> {
        let step = &self.steps[number];
        let full = self.ground.full(&step.path);
        let parent = match self.ground.parent(&step.path) {
            Ok(parent) => parent,
            Err(error) if vanished(&error) => return Ok(false),
            Err(error) => return Err(error).at(full),
        };
        let there = compare::identify(parent.as_fd(), name(&step.path)).at(&full)?;
        let to = match there {
            None => None,
            Some(Found { node: Some(node), .. }) if self.is_version(step, &node) => Some(node),
            Some(_) => {
                self.strand(index, number);
                return Ok(true);
            }
        };
        let work = Work {
            step: number,
            path: step.path.clone(),
            from: None,
            to,
            lenient: true,
            ready: None,
        };
        let slot = work.slot();
        let staged = self.ground.stagings[index].at(&slot);
        let swap = Swap {
            work: &work,
            there: Name(parent.as_fd(), name(&step.path)),
            staged,
        };
        if !swap.put_back().at(&full)? {
            self.strand(index, number);
        }
        Ok(true)
    }

    fn is_version(&self, step: &Step, node: &Node) -> bool {
        let sides = [&step.from, &step.to];
        sides
            .iter()
            .any(|side| side.is_some() && compare::fit(Some(node), side.as_ref()) > Fit::No)
    }

    fn strand(&mut self, index: usize, step: usize) {
        self.changes.stranded.insert((index, step));
    }

    /// What is left to do, by what is on disk.
    fn works(&mut self) -> Result<Vec<Work>> {
        let mut works = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            match self.work(number, step)? {
                Next::Nothing => {}
                Next::Keep(reason) => {
                    self.changes.done.insert(number, Done::Kept(reason.into()));
                }
                Next::Change(work) => works.push(work),
            }
        }
        Ok(works)
    }

    fn work(&self, number: usize, step: &Step) -> Result<Next> {
        let (goal, other) = (self.goal(step), self.other(step));
        let full = self.ground.full(&step.path);
        let found = if step.path.is_root() {
            let root = compare::identify(self.ground.root.as_fd(), b".").at(&full)?;
            if goal.is_none() {
                // A root that was made goes last, when all else is done.
                return Ok(Next::Nothing);
            }
            root
        } else {
            match self.ground.parent(&step.path) {
                Ok(parent) => compare::identify(parent.as_fd(), name(&step.path)).at(&full)?,
                Err(error) if vanished(&error) => None,
                Err(error) => return Err(error).at(full),
            }
        };
        let change = |from: Option<Node>, lenient| {
            let ready = self.ready.get(&number).copied();
            let (path, to) = (step.path.clone(), goal.cloned());
            Ok(Next::Change(Work {
                step: number,
                path,
                from,
                to,
                lenient,
                ready,
            }))
        };
        let Some(found) = found else {
            return match (goal, other) {
                (None, _) => Ok(Next::Nothing),
                (Some(_), None) => change(None, false),
                // For an instant a directory that becomes something else is neither.
                (Some(goal), Some(other)) if goal.kind == Kind::Dir || other.kind == Kind::Dir => {
                    change(None, false)
                }
                (Some(_), Some(_)) => Ok(Next::Keep("it is gone")),
            };
        };
        let Some(node) = found.node else {
            return Ok(Next::Keep(NEITHER));
        };
        if node.kind == Kind::Dir {
            return self
                .dir(step, node)
                .map_or(Ok(Next::Keep(NEITHER)), |node| match node {
                    None => Ok(Next::Nothing),
                    Some(node) => change(Some(node), true),
                });
        }
        let fits = (compare::fit(Some(&node), goal), compare::fit(Some(&node), other));
        match fits {
            (Fit::Exactly, _) => Ok(Next::Nothing),
            (_, Fit::Exactly) => change(Some(node), false),
            (Fit::Nearly, _) => Ok(Next::Nothing),
            (_, Fit::Nearly) => change(Some(node), false),
            _ => Ok(Next::Keep(NEITHER)),
        }
    }

    /// A directory is there. Outer `None`: not one of ours; inner: it is as wanted; else the version to start from.
    fn dir(&self, step: &Step, node: Node) -> Option<Option<Node>> {
        let (goal, other) = (self.goal(step), self.other(step));
        let dir = |side: Option<&Node>| side.filter(|side| side.kind == Kind::Dir).cloned();
        let (a, b) = (dir(goal), dir(other));
        if (a.is_none() && b.is_none()) || !may_be_ours(node.perm, a.as_ref(), b.as_ref()) {
            return None;
        }
        if goal == Some(&node) {
            return Some(None);
        }
        Some(Some(node))
    }

    fn carry_out(&mut self, cx: &ApplyContext<'_>, works: &[Work]) -> Result<()> {
        let plan = survey(cx.root_path, &self.ground.root, works)?;
        let mut number = None;
        if plan.generation != Generation::default() {
            number = Some(journal::add_generation(cx.journal_dir, &plan.generation)?);
        }
        for opened in plan.generation.opened {
            // What the journal says of its bits holds; that staging goes into it, only this attempt knows.
            self.opened
                .entry(opened.path.clone())
                .and_modify(|known| known.for_staging |= opened.for_staging)
                .or_insert(opened);
        }
        let opened: Vec<Opened> = self.opened.values().cloned().collect();
        if works.is_empty() && self.homeless.is_empty() {
            return Changer {
                ground: &self.ground,
                works,
                opened: &opened,
            }
            .close(&mut self.changes);
        }
        Changer {
            ground: &self.ground,
            works,
            opened: &opened,
        }
        .open(true)?;
        let made = staging::make_dirs(&mut self.ground, &plan.generation.stagings)?;
        for (step, index) in plan.staging_of {
            self.ground.staging_of.insert(step, made.start + index);
        }
        for work in works {
            if let Some(index) = work.ready {
                self.ground.staging_of.insert(work.step, index);
            }
        }
        let notes = staging::stage(&self.ground, cx.store, works, cx.progress)?;
        self.changes.notes.extend(notes);
        if let Some(number) = number {
            journal::mark_staged(cx.journal_dir, number)?;
        }
        let changer = Changer {
            ground: &self.ground,
            works,
            opened: &opened,
        };
        changer.run(&mut self.changes)?;
        for (index, step) in std::mem::take(&mut self.homeless) {
            if !self.bring_home(index, step)? {
                self.strand(index, step);
            }
            self.changes.done.insert(step, Done::Kept(CHANGED.into()));
        }
        Changer {
            ground: &self.ground,
            works,
            opened: &opened,
        }
        .settle(&mut self.changes)
    }
}

const NEITHER: &str = "it holds neither of the two recorded versions";

enum Next {
    Nothing,
    Keep(&'static str),
    Change(Work),
}
