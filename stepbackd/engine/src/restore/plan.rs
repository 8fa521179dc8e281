//! Making a plan: every difference between what is on disk and the target, judged by the table.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;

use super::change::MOUNT;
use super::compare::{self, Fit};
use super::journal::OperationKind;
use super::leftovers::{LEFT, has_temporary_name};
use super::step::{Kept, NotCovered, Plan, Step, is_dir};
use super::table::{OnDisk, Target, Verdict, verdict};
use super::way::{self, Ignored};
use crate::diff::Change;
use crate::error::{At, Result};
use crate::node::{Kind, Node, NotCaptured, Reason};
use crate::path::TreePath;
use crate::root::{DirHandle, FileType, Stat};
use crate::store::ObjectWriter;

/// Why a git directory that the target holds is kept.
const GIT_OWN: &str = "a git directory, which is never touched";

/// Whether rules ignore a path, which is a directory when the flag is set.
pub type IgnoredBy<'a> = &'a dyn Fn(&TreePath, bool) -> Result<bool>;

/// What stands at a path.
pub type LookUp<'a> = &'a dyn Fn(&TreePath) -> Option<Node>;

/// What a plan is made from.
pub struct PlanInput<'a> {
    /// The root, open; `None` when it isn't there and is to be made.
    pub root: Option<&'a DirHandle>,
    /// Its path, for errors.
    pub root_path: &'a std::path::Path,
    /// What is captured at a path now: the tree, just scanned.
    pub present: LookUp<'a>,
    /// From `present` to the target: directories included, a directory before what is below it. In a redo also each path,
    /// with nothing on both sides, at which the operation left something that the present tree doesn't have: it may be
    /// there, ignored.
    pub changes: &'a [Change],
    /// What the target has at a path: asked for directories above `changes` that aren't there any more.
    pub target: &'a dyn Fn(&TreePath) -> Result<Option<Node>>,
    /// Bits of a directory that even the target doesn't know.
    pub common: &'a crate::node::CommonModes,
    /// The target's list of what it left out.
    pub target_unknown: &'a [NotCaptured],
    /// The same list of the present tree.
    pub present_unknown: &'a [NotCaptured],
    /// Paths that were forgotten: what is there is in no checkpoint, and must come into none.
    pub forgotten: &'a [TreePath],
    /// Only what is at or below one of these is reported as kept or not covered; everything when empty.
    pub within: &'a [TreePath],
    /// Whether a path (a directory, when the flag is set) is ignored by the rules of now.
    pub ignored_now: IgnoredBy<'a>,
    /// The same by the rules of the target.
    pub ignored_then: IgnoredBy<'a>,
    /// What git keeps for itself, outside of any `.git`, that is this path or holds it.
    pub git_own: &'a dyn Fn(&TreePath) -> Option<TreePath>,
    /// On these something is mounted: nothing can take their place.
    pub mounted: &'a BTreeSet<TreePath>,
    /// Files above this size in bytes aren't captured.
    pub max_file_size: u64,
    /// Gets the bytes of ignored files that stand in the way.
    pub writer: &'a ObjectWriter<'a>,
    /// What the plan is for.
    pub operation: OperationKind,
    /// In a redo: what the operation that is taken back left at a path.
    pub left_by: Option<LookUp<'a>>,
}

/// Makes a plan. Reads the disk where something uncaptured may stand in the way; changes nothing below the root. Objects
/// of extras are given to the writer, and are durable when the caller has finished it.
///
/// A directory that can't become what the target has there, because something in it must stay, is kept; what is captured
/// in it still goes if the target doesn't have it, and what is ignored in it stays.
///
/// # Errors
/// A rule that can't be evaluated, or a path that can't be looked at.
pub fn plan(input: &PlanInput<'_>) -> Result<Plan> {
    let mut planner = Planner::new(input);
    planner.unknown()?;
    let mut going = Vec::new();
    let mut asked = Vec::new();
    for change in input.changes {
        planner.change(change, &mut going, &mut asked)?;
    }
    // What is in a directory before the directory.
    for path in asked.into_iter().rev() {
        planner.remove_ignored(path)?;
    }
    way::clear(&mut planner, &going)?;
    let Planner {
        steps,
        kept,
        not_covered,
        ..
    } = planner;
    let steps = steps.into_values().filter(|step| step.from != step.to).collect();
    let kept = kept
        .into_iter()
        .map(|(path, reason)| Kept { path, reason })
        .collect();
    let not_covered = not_covered
        .into_iter()
        .map(|(path, reason)| NotCovered { path, reason })
        .collect();
    Ok(Plan {
        operation: input.operation,
        steps,
        kept,
        not_covered,
    })
}

/// A directory that becomes nothing, or something else.
pub(super) struct Going<'a> {
    pub path: &'a TreePath,
    pub from: &'a Node,
    pub to: Option<&'a Node>,
}

/// What a directory will be when steps in it are carried out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parent {
    OnDisk,
    ToBeMade,
    /// Something stays in its place.
    Blocked,
}

pub(super) struct Planner<'a> {
    pub input: &'a PlanInput<'a>,
    pub steps: BTreeMap<TreePath, Step>,
    pub kept: BTreeMap<TreePath, String>,
    pub not_covered: BTreeMap<TreePath, String>,
    target_unknown: HashMap<&'a TreePath, &'a NotCaptured>,
    pub present_unknown: HashMap<&'a TreePath, &'a NotCaptured>,
    parents: HashMap<TreePath, Parent>,
}

impl<'a> Planner<'a> {
    fn new(input: &'a PlanInput<'a>) -> Self {
        let by_path = |list: &'a [NotCaptured]| list.iter().map(|entry| (&entry.path, entry)).collect();
        Self {
            input,
            steps: BTreeMap::new(),
            kept: BTreeMap::new(),
            not_covered: BTreeMap::new(),
            target_unknown: by_path(input.target_unknown),
            present_unknown: by_path(input.present_unknown),
            parents: HashMap::new(),
        }
    }

    /// `lstat` on disk; `None` when nothing is there.
    pub fn stat(&self, path: &TreePath) -> Result<Option<Stat>> {
        let Some(root) = self.input.root else {
            return Ok(None);
        };
        let full = self.input.root_path.join(path.as_path());
        let Some((parent, name)) = path.split_last() else {
            return root.stat_self().map(Some).at(full);
        };
        match root.open_beneath(&parent).and_then(|parent| parent.stat(name)) {
            Ok(stat) => Ok(Some(stat)),
            Err(error) if super::change::vanished(&error) => Ok(None),
            // What is in a directory that can't be entered is in its list of unknowns.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
            Err(error) => Err(error).at(full),
        }
    }

    pub fn keep(&mut self, path: &TreePath, reason: impl Into<String>) {
        self.kept.entry(path.clone()).or_insert_with(|| reason.into());
    }

    /// The entry of the target's list that makes `path` unknown there: itself or something above it.
    pub fn unknown_in_target(&self, path: &TreePath) -> Option<&'a NotCaptured> {
        nearest(&self.target_unknown, path)
    }

    /// The same in the present tree.
    pub fn unknown_now(&self, path: &TreePath) -> Option<&'a NotCaptured> {
        nearest(&self.present_unknown, path)
    }

    /// Whether it was forgotten, itself or with a directory above it.
    pub fn is_forgotten(&self, path: &TreePath) -> bool {
        self.input
            .forgotten
            .iter()
            .any(|forgotten| path.starts_with(forgotten))
    }

    /// Whether a rule of now or of the target ignores it.
    pub fn is_ignored(&self, path: &TreePath, is_dir: bool) -> Result<bool> {
        Ok((self.input.ignored_now)(path, is_dir)? || (self.input.ignored_then)(path, is_dir)?)
    }

    /// In a redo: the operation that is taken back left this here, but for what it may have been refused.
    pub fn is_left_by(&self, path: &TreePath, node: &Node) -> bool {
        self.input
            .left_by
            .and_then(|left_by| left_by(path))
            .is_some_and(|left| compare::fit(Some(node), Some(&left)) > Fit::No)
    }

    /// Names everything that either side left out.
    fn unknown(&mut self) -> Result<()> {
        let input = self.input;
        let is_within = |entry: &&NotCaptured| {
            input.within.is_empty() || input.within.iter().any(|within| entry.path.starts_with(within))
        };
        // A redo takes back what one operation did; what that left alone was as it is now for other reasons.
        let concerns = |path: &TreePath| {
            input.operation != OperationKind::Redo
                || input.changes.iter().any(|change| change.path.starts_with(path))
        };
        let is_git_own = |path: &TreePath| (input.git_own)(path).is_some();
        for then in input.target_unknown.iter().filter(is_within) {
            if is_git_own(&then.path) {
                continue;
            }
            let (path, reason) = (&then.path, unknown_because(then));
            let now = match self.present_unknown.get(path) {
                Some(now) => Some((now.size, now.mtime_ns)),
                None if (self.input.present)(path).is_some() => None,
                None => self.stat(path)?.map(|stat| (stat.size, stat.mtime_ns)),
            };
            if now.is_none() && has_temporary_name(path) {
                // Cleared since.
                continue;
            }
            let as_noted = now == Some((then.size, then.mtime_ns));
            match verdict(OnDisk::Unknown { as_noted }, Target::Nothing) {
                Verdict::NotCovered => {
                    self.not_covered.insert(path.clone(), then.reason.name().into());
                }
                _ if concerns(path) => self.keep(path, reason),
                _ => {}
            }
        }
        for now in input.present_unknown.iter().filter(is_within) {
            if concerns(&now.path) && self.unknown_in_target(&now.path).is_none() && !self.was_ignored(now)? {
                self.keep(&now.path, unknown_because(now));
            }
        }
        Ok(())
    }

    /// A forgotten path that the target ignored: nobody expects it to be put back, or to go.
    fn was_ignored(&self, now: &NotCaptured) -> Result<bool> {
        if now.reason != Reason::Forgotten {
            return Ok(false);
        }
        let is_dir = self
            .stat(&now.path)?
            .is_some_and(|stat| stat.kind == FileType::Dir);
        (self.input.ignored_then)(&now.path, is_dir)
    }

    fn change(
        &mut self,
        change: &'a Change,
        going: &mut Vec<Going<'a>>,
        asked: &mut Vec<&'a TreePath>,
    ) -> Result<()> {
        let path = &change.path;
        if let Some(own) = (self.input.git_own)(path) {
            // Captured while nothing showed what it was.
            self.keep(&own, GIT_OWN);
            return Ok(());
        }
        if let Some(unknown) = self.unknown_in_target(path) {
            if !self.not_covered.contains_key(&unknown.path) {
                self.keep(&unknown.path, unknown_because(unknown));
            }
            return Ok(());
        }
        if let Some(unknown) = self.unknown_now(path) {
            self.keep(&unknown.path, unknown_because(unknown));
            return Ok(());
        }
        match (&change.old, &change.new) {
            (Some(from), None) => self.remove(path, from, going),
            (Some(from), Some(to)) if from.kind == Kind::Dir && to.kind != Kind::Dir => {
                going.push(Going {
                    path,
                    from,
                    to: Some(to),
                });
                Ok(())
            }
            (Some(from), Some(to)) => {
                if self.parent(path)? != Parent::Blocked {
                    self.step(path, Some(from.clone()), Some(to.clone()), false);
                }
                Ok(())
            }
            (None, Some(to)) => self.create(path, to),
            (None, None) => {
                asked.push(path);
                Ok(())
            }
        }
    }

    /// The target has nothing here.
    fn remove(&mut self, path: &'a TreePath, from: &'a Node, going: &mut Vec<Going<'a>>) -> Result<()> {
        let is_dir = from.kind == Kind::Dir;
        let ignored = !self.is_left_by(path, from) && (self.input.ignored_then)(path, is_dir)?;
        if is_dir && !ignored {
            going.push(Going { path, from, to: None });
            return Ok(());
        }
        let on_disk = match from.kind {
            Kind::Fifo => OnDisk::Fifo,
            // Of a directory that the target ignores everything is ignored: it stays, with all that is in it.
            _ if ignored => OnDisk::Ignored,
            _ => OnDisk::Captured,
        };
        if verdict(on_disk, Target::Nothing) == Verdict::Remove {
            self.step(path, Some(from.clone()), None, false);
        }
        Ok(())
    }

    /// Neither the present tree nor the target has anything here; what an operation that is taken back left may be here,
    /// ignored by now.
    fn remove_ignored(&mut self, path: &TreePath) -> Result<()> {
        let Some(stat) = self.stat(path)? else {
            return Ok(());
        };
        if stat.kind == FileType::Dir {
            return way::remove_uncaptured(self, path, &stat);
        }
        match way::judge(self, path, &stat, Target::Nothing)? {
            Ignored::Saved(from) => self.step(path, Some(from), None, true),
            Ignored::Kept(reason) => self.keep(path, reason),
            Ignored::Stays => {}
        }
        Ok(())
    }

    /// The present tree has nothing here; the disk may.
    fn create(&mut self, path: &TreePath, to: &Node) -> Result<()> {
        match self.parent(path)? {
            Parent::Blocked => Ok(()),
            Parent::ToBeMade => {
                self.step(path, None, Some(to.clone()), false);
                Ok(())
            }
            Parent::OnDisk => self.put(path, to),
        }
    }

    /// Puts `to` where something uncaptured may stand.
    fn put(&mut self, path: &TreePath, to: &Node) -> Result<()> {
        let Some(stat) = self.stat(path)? else {
            self.step(path, None, Some(to.clone()), false);
            return Ok(());
        };
        if stat.kind == FileType::Dir && to.kind == Kind::Dir {
            let Some(from) = way::read_uncaptured(self, path, &stat)? else {
                self.keep(path, not_in_checkpoint(Reason::Unreadable));
                self.parents.insert(path.clone(), Parent::Blocked);
                return Ok(());
            };
            self.step(path, Some(from), Some(to.clone()), true);
            return Ok(());
        }
        if stat.kind == FileType::Dir {
            return way::clear_uncaptured(self, path, &stat, to);
        }
        match way::judge(self, path, &stat, Target::Something)? {
            Ignored::Kept(reason) => self.keep(path, reason),
            Ignored::Saved(from) => self.step(path, Some(from), Some(to.clone()), true),
            Ignored::Stays => {}
        }
        Ok(())
    }

    /// What the directory that holds `path` will be. Plans those above it that are missing.
    fn parent(&mut self, path: &TreePath) -> Result<Parent> {
        let Some((parent, _)) = path.split_last() else {
            return Ok(Parent::OnDisk);
        };
        if let Some(known) = self.parents.get(&parent) {
            return Ok(*known);
        }
        let state = self.look_at_parent(&parent)?;
        self.parents.insert(parent, state);
        Ok(state)
    }

    fn look_at_parent(&mut self, path: &TreePath) -> Result<Parent> {
        if let Some(step) = self.steps.get(path) {
            return Ok(match (is_dir(step.from.as_ref()), is_dir(step.to.as_ref())) {
                (true, true) => Parent::OnDisk,
                (false, true) => Parent::ToBeMade,
                _ => Parent::Blocked,
            });
        }
        if self.kept.contains_key(path) && !self.stat(path)?.is_some_and(|stat| stat.kind == FileType::Dir) {
            return Ok(Parent::Blocked);
        }
        let above = self.parent(path)?;
        match above {
            Parent::Blocked => return Ok(Parent::Blocked),
            Parent::OnDisk => {
                if self.stat(path)?.is_some_and(|stat| stat.kind == FileType::Dir) {
                    return Ok(Parent::OnDisk);
                }
            }
            Parent::ToBeMade => {}
        }
        if path.is_root() && self.input.root.is_some() {
            return Ok(Parent::OnDisk);
        }
        // Missing, though no change names it: it is above the selected paths.
        let wanted = (self.input.target)(path)?.filter(|node| node.kind == Kind::Dir);
        let to = wanted.unwrap_or_else(|| Node::plain(Kind::Dir, self.input.common.dir));
        match (self.input.present)(path) {
            Some(from) => self.step(path, Some(from), Some(to), false),
            None if above == Parent::ToBeMade => self.step(path, None, Some(to), false),
            None => self.put(path, &to)?,
        }
        let made = self.steps.get(path).is_some_and(|step| is_dir(step.to.as_ref()));
        Ok(if made { Parent::ToBeMade } else { Parent::Blocked })
    }

    pub fn step(&mut self, path: &TreePath, from: Option<Node>, to: Option<Node>, extra: bool) {
        let stays_dir = is_dir(from.as_ref()) && is_dir(to.as_ref());
        if from.is_some() && !stays_dir && self.input.mounted.contains(path) {
            self.keep(path, MOUNT);
            return;
        }
        let edited_since = self.edited_since(path, from.as_ref());
        self.steps.insert(
            path.clone(),
            Step {
                path: path.clone(),
                from,
                to,
                extra,
                edited_since,
            },
        );
    }

    fn edited_since(&self, path: &TreePath, from: Option<&Node>) -> bool {
        let Some(left_by) = self.input.left_by else {
            return false;
        };
        let without_set_id = |node: &Node| (node.kind, node.perm.bits() & !0o6000);
        match (from, left_by(path)) {
            (Some(from), _) if from.kind == Kind::Dir => false,
            (Some(from), Some(left)) => without_set_id(from) != without_set_id(&left),
            (None, None) => false,
            _ => true,
        }
    }
}

fn nearest<'a>(list: &HashMap<&'a TreePath, &'a NotCaptured>, path: &TreePath) -> Option<&'a NotCaptured> {
    if list.is_empty() {
        return None;
    }
    let mut at = path.clone();
    loop {
        if let Some(found) = list.get(&at) {
            return Some(found);
        }
        at = at.split_last()?.0;
    }
}

/// Why a path that a list of what isn't captured names is kept.
pub(super) fn unknown_because(entry: &NotCaptured) -> String {
    if has_temporary_name(&entry.path) {
        return LEFT.into();
    }
    // Sockets and devices have no size, directories have one.
    if entry.reason == Reason::Special && entry.size > 0 {
        return ASTRAY.into();
    }
    not_in_checkpoint(entry.reason)
}

/// Why a directory is kept that wasn't captured: see [`crate::mounts::Astray`].
const ASTRAY: &str = "not in the checkpoint (what is mounted there had changed)";

pub(super) fn not_in_checkpoint(reason: Reason) -> String {
    format!("not in the checkpoint ({})", reason.name())
}
