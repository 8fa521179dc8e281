//! From an operation to its plan: which checkpoint, which paths, what stands in the way.

use std::collections::{BTreeMap, BTreeSet};

use super::look::Within;
use super::{Context, Engine, Operation, Presence, Scope};
use crate::diff::{self, Change};
use crate::error::{Error, Result};
use crate::node::{Kind, Node, Snapshot};
use crate::path::TreePath;
use crate::redo::{self, RedoEntry};
use crate::restore::{self, Plan, PlanInput, Step};
use crate::rules::Rules;
use crate::side::Side;
use crate::state;
use crate::store::{ObjectWriter, Store};
use crate::tree::{Tree, stored};

/// Where the tree is when all of an operation was done: then the position is that checkpoint.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub checkpoint: u64,
    pub snapshot: Snapshot,
}

/// An operation with its plan; nothing was changed yet.
pub(super) struct Prepared<'a> {
    pub plan: Plan,
    pub target: u64,
    pub target_snapshot: Snapshot,
    /// `None`: what comes out is no recorded state.
    pub ends_at: Option<Expected>,
    /// What is on disk.
    pub present: Snapshot,
    /// The root isn't there; the plan makes it.
    pub makes_root: bool,
    /// The redo entry that is used up.
    pub entry: Option<RedoEntry>,
    /// Holds new objects of `present`.
    pub writer: ObjectWriter<'a>,
}

/// How far back a rewind without a target looks for a state that it can do something for.
const NEAREST_MAX: usize = 50;

impl Engine {
    /// Resolves, looks at everything, plans.
    pub(super) fn prepare<'a>(
        &mut self,
        store: &'a Store,
        operation: &Operation,
        cx: &Context<'_>,
    ) -> Result<Prepared<'a>> {
        // Names are resolved before anything is looked at: a wrong one costs nothing.
        let named = match operation {
            Operation::Rewind(None) => None,
            Operation::Rewind(Some(select)) | Operation::Restore(select, _) => Some(self.resolve(select)?),
            Operation::Revert(name) => {
                let start = self.session_named(name)?.start;
                Some(self.checkpoint(start)?.n)
            }
            Operation::Redo => Some(self.newest_redo()?.before),
        };
        let makes_root = self.may_make_root(operation)?;
        let present = if makes_root {
            self.forget_tree()
        } else {
            self.look(store, &Scope::All, Within::Anything, cx)?.snapshot
        };
        let Some(target) = named else {
            return self.prepare_nearest(store, operation, present, makes_root);
        };
        self.prepare_for(store, operation, target, present, makes_root)
    }

    /// For a rewind without a target: the nearest state along `base` that something would have to be done for. Where all
    /// that differs would be kept, a state further back is what people want.
    fn prepare_nearest<'a>(
        &self,
        store: &'a Store,
        operation: &Operation,
        present: Snapshot,
        makes_root: bool,
    ) -> Result<Prepared<'a>> {
        let (mut nothing_to_do, mut damaged) = (None, None);
        for target in self.states_that_differ(present)? {
            match self.prepare_for(store, operation, target, present, makes_root) {
                Ok(prepared) if !prepared.plan.is_noop() => return Ok(prepared),
                Ok(prepared) => drop(nothing_to_do.get_or_insert(prepared)),
                // One further back may be whole.
                Err(error @ Error::Damaged { .. }) => drop(damaged.get_or_insert(error)),
                Err(error) => return Err(error),
            }
        }
        match (nothing_to_do, damaged) {
            (Some(prepared), None) => Ok(prepared),
            (_, Some(error)) => Err(error),
            (None, None) => Err(Error::NoSuchCheckpoint("yet".into())),
        }
    }

    /// The entry that a redo takes: not an older one in the place of a newer one that can't be read.
    fn newest_redo(&self) -> Result<&RedoEntry> {
        let prefix = redo::refs_prefix(self.id());
        let newest = self.redo.first();
        let damaged = self.damaged.iter().find(|finding| {
            let k = finding
                .what
                .strip_prefix(&prefix)
                .and_then(|k| k.parse::<u64>().ok());
            k.is_some_and(|k| newest.is_none_or(|newest| newest.k < k))
        });
        match damaged {
            Some(finding) => Err(Error::DamagedRecord {
                store: self.store.path().to_owned(),
                what: format!(
                    "the latest redo entry, {}, can't be read: {}",
                    finding.what, finding.how
                ),
                hint: "`stepback recover` takes it off the stack; `stepback rewind N` goes to any checkpoint"
                    .into(),
            }),
            None => newest.ok_or(Error::NothingToRedo),
        }
    }

    fn prepare_for<'a>(
        &self,
        store: &'a Store,
        operation: &Operation,
        target: u64,
        present: Snapshot,
        makes_root: bool,
    ) -> Result<Prepared<'a>> {
        let writer = store.writer();
        let entry = if matches!(operation, Operation::Redo) {
            self.redo.first().cloned()
        } else {
            None
        };
        let target_snapshot = match &entry {
            // The entry keeps that state even when its checkpoint is gone.
            Some(entry) => entry.before_snapshot,
            None => self.checkpoint(target)?.snapshot,
        };
        let left = entry
            .as_ref()
            .map(|entry| plan_of(store, entry))
            .transpose()?
            .map(|plan| left_by(&plan));
        let mut changes = match (operation, &entry) {
            (Operation::Restore(_, paths), _) => {
                self.restore_changes(store, present, target, target_snapshot, paths)?
            }
            (_, Some(entry)) => self.redo_changes(store, present, entry)?,
            _ => diff::compare(store, present, target_snapshot, &self.record.modes, &[])?,
        };
        if makes_root {
            let own = stored::read_dir(store, target_snapshot, &self.record.modes)?.own;
            changes.retain(|change| !change.path.is_root());
            let root = Change {
                path: TreePath::root(),
                old: None,
                new: Some(own),
                empty_dir: false,
            };
            changes.insert(0, root);
        }
        let side = match self.checkpoint(target) {
            Ok(checkpoint) => match Side::load(store, self.id(), checkpoint.n) {
                // A redo changes only paths that its own plan knows.
                Err(Error::Damaged { .. }) if entry.is_some() => Side::default(),
                side => side?,
            },
            // Only a redo gets here: its checkpoint was dropped, its entry lives on.
            Err(_) => Side::default(),
        };
        let plan = self.plan(
            store,
            operation,
            &changes,
            target_snapshot,
            &side,
            left.as_ref(),
            makes_root,
            &writer,
        )?;
        let ends_at = match operation {
            Operation::Restore(..) => None,
            _ => Some(Expected {
                checkpoint: target,
                snapshot: target_snapshot,
            }),
        };
        Ok(Prepared {
            plan,
            target,
            target_snapshot,
            ends_at,
            present,
            makes_root,
            entry,
            writer,
        })
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "one call; what is gathered for it has no name of its own"
    )]
    fn plan(
        &self,
        store: &Store,
        operation: &Operation,
        changes: &[Change],
        target: Snapshot,
        side: &Side,
        left: Option<&BTreeMap<TreePath, Option<Node>>>,
        makes_root: bool,
        writer: &ObjectWriter<'_>,
    ) -> Result<Plan> {
        let modes = &self.record.modes;
        let root = match makes_root {
            true => None,
            false => Some(self.open_root()?),
        };
        let then = Rules::of_snapshot(store, target, &side.rules)?;
        let ignored_now = |path: &TreePath, is_dir: bool| {
            self.rules.as_ref().map_or(Ok(false), |r| r.ignores(path, is_dir))
        };
        let left_by = |path: &TreePath| left?.get(path).cloned().flatten();
        restore::plan(&PlanInput {
            root: root.as_ref(),
            root_path: &self.path,
            present: &|path| self.tree.node(path),
            changes,
            target: &|path| Ok(stored::lookup(store, target, modes, path)?.map(|(node, _)| node)),
            common: modes,
            target_unknown: &side.not_captured,
            present_unknown: &self.tree.not_captured(),
            forgotten: &self.record.forgotten,
            within: match operation {
                Operation::Restore(_, paths) => paths,
                _ => &[],
            },
            ignored_now: &ignored_now,
            ignored_then: &|path, is_dir| then.ignores(path, is_dir),
            git_own: &|path| self.rules.as_ref()?.git_own(path),
            mounted: &self.mounted,
            max_file_size: self.max_file_size(),
            writer,
            operation: operation.kind(),
            left_by: left
                .is_some()
                .then_some(&left_by as &dyn Fn(&TreePath) -> Option<Node>),
        })
    }

    /// Nothing is known of the tree any more, as for a root that isn't there.
    pub(super) fn forget_tree(&mut self) -> Snapshot {
        self.tree = Tree::new();
        self.memory = None;
        self.resting = None;
        self.rules = None;
        Snapshot::EMPTY
    }

    /// The position when something is unsaved, else the nearest checkpoints along `base` that aren't what is there; the
    /// position itself when there is none. Not more than [`NEAREST_MAX`]. A damaged one is passed over: the one before it
    /// by number stands in for its base.
    fn states_that_differ(&self, present: Snapshot) -> Result<Vec<u64>> {
        let position = self
            .record
            .position
            .ok_or_else(|| Error::NoSuchCheckpoint("yet".into()))?;
        let mut found = Vec::new();
        let mut at = Some(position);
        while let Some(n) = at.filter(|_| found.len() < NEAREST_MAX) {
            at = match self.checkpoint(n) {
                Ok(checkpoint) => {
                    if checkpoint.snapshot != present {
                        found.push(n);
                    }
                    checkpoint.base
                }
                Err(_) => self
                    .checkpoints
                    .iter()
                    .rev()
                    .map(|c| c.n)
                    .find(|earlier| *earlier < n),
            };
        }
        if found.is_empty() {
            found.push(position);
        }
        Ok(found)
    }

    /// What differs at and below `paths`, and the directories that they need.
    fn restore_changes(
        &self,
        store: &Store,
        present: Snapshot,
        target: u64,
        target_snapshot: Snapshot,
        paths: &[TreePath],
    ) -> Result<Vec<Change>> {
        let modes = &self.record.modes;
        let mut changes: BTreeMap<TreePath, Change> = BTreeMap::new();
        for path in paths {
            let then = stored::lookup(store, target_snapshot, modes, path)?;
            if then.is_none() && self.tree.node(path).is_none() {
                let place = format!("checkpoint {target} nor in the tree");
                return Err(Error::NoSuchPath {
                    path: path.clone(),
                    place,
                });
            }
            if then.is_some() {
                self.parents_of(store, target_snapshot, path, &mut changes)?;
            }
        }
        for change in diff::compare(store, present, target_snapshot, modes, paths)? {
            changes.insert(change.path.clone(), change);
        }
        Ok(changes.into_values().collect())
    }

    /// Adds the directories above `path` that aren't there as directories now, as the target has them.
    fn parents_of(
        &self,
        store: &Store,
        target: Snapshot,
        path: &TreePath,
        changes: &mut BTreeMap<TreePath, Change>,
    ) -> Result<()> {
        let mut at = path.clone();
        while let Some((parent, _)) = at.split_last() {
            let now = self.tree.node(&parent);
            if parent.is_root() || now.as_ref().is_some_and(|n| n.kind == Kind::Dir) {
                return Ok(());
            }
            if !changes.contains_key(&parent)
                && let Some((then, _)) = stored::lookup(store, target, &self.record.modes, &parent)?
            {
                let change = Change {
                    path: parent.clone(),
                    old: now,
                    new: Some(then),
                    empty_dir: false,
                };
                changes.insert(parent.clone(), change);
            }
            at = parent;
        }
        Ok(())
    }

    /// From what is there to what was before the operation of `entry`, at the paths that it changed and what now stands in
    /// their way. Later edits elsewhere stay.
    fn redo_changes(&self, store: &Store, present: Snapshot, entry: &RedoEntry) -> Result<Vec<Change>> {
        let modes = &self.record.modes;
        let steps = plan_of(store, entry)?.steps;
        let wanted: BTreeSet<&TreePath> = steps.iter().map(|step| &step.path).collect();
        let mut changes: BTreeMap<TreePath, Change> = BTreeMap::new();
        for Step {
            path, from: then, to, ..
        } in &steps
        {
            let now = self.tree.node(path);
            // Nothing on both sides is passed on: what the operation made may be there, ignored by now.
            if now == *then && now.is_some() {
                continue;
            }
            if then.is_some() {
                self.parents_of(store, entry.before_snapshot, path, &mut changes)?;
            }
            let is_dir = |node: &Option<Node>| node.as_ref().is_some_and(|n| n.kind == Kind::Dir);
            // Of a directory that the operation made, or removed, others may be making use by now.
            let is_known_dir = is_dir(then) || (then.is_none() && is_dir(to));
            if is_dir(&now) && !is_known_dir {
                // All that is in the directory now stands in the way.
                for below in
                    diff::compare(store, present, Snapshot::EMPTY, modes, std::slice::from_ref(path))?
                {
                    changes.entry(below.path.clone()).or_insert(below);
                }
            }
            changes.insert(
                path.clone(),
                Change {
                    path: path.clone(),
                    old: now,
                    new: then.clone(),
                    empty_dir: false,
                },
            );
        }
        self.keep_directories_in_use(store, present, &wanted, &mut changes)?;
        Ok(changes.into_values().collect())
    }

    /// A directory that goes by the plan, but in which something was made since, stays for its sake.
    fn keep_directories_in_use(
        &self,
        store: &Store,
        present: Snapshot,
        wanted: &BTreeSet<&TreePath>,
        changes: &mut BTreeMap<TreePath, Change>,
    ) -> Result<()> {
        let going: BTreeSet<TreePath> = changes
            .values()
            .filter(|c| c.new.is_none() && c.old.as_ref().is_some_and(|n| n.kind == Kind::Dir))
            .map(|c| c.path.clone())
            .collect();
        for path in &going {
            let below = diff::compare(
                store,
                present,
                Snapshot::EMPTY,
                &self.record.modes,
                std::slice::from_ref(path),
            )?;
            let in_use = below
                .iter()
                .any(|c| c.path != *path && !changes.contains_key(&c.path) && !wanted.contains(&c.path));
            if in_use {
                changes.remove(path);
            }
        }
        Ok(())
    }

    /// Whether a rewind may make the missing root again; `Ok(false)` when it is there.
    fn may_make_root(&self, operation: &Operation) -> Result<bool> {
        match self.presence() {
            Presence::Here => Ok(false),
            Presence::Replaced => Err(Error::RootReplaced(self.path.clone())),
            Presence::Missing => {
                let parent = self.path.parent().unwrap_or(&self.path);
                let same_disk = parent.is_dir() && state::file_system_id(parent)? == self.record.parent_fsid;
                let whole = matches!(operation, Operation::Rewind(_));
                let cannot = |why| {
                    let path = self.path.clone();
                    Err(Error::CannotMakeRoot { path, why })
                };
                match () {
                    () if self.record.mount_point || !whole => Err(self.missing()),
                    () if !parent.is_dir() => cannot("the directory that held it isn't there either"),
                    () if !same_disk => cannot("another file system is where it was"),
                    () if self.path.exists() => cannot("something else is in its place"),
                    () => Ok(true),
                }
            }
        }
    }
}

/// The plan of a redo entry.
fn plan_of(store: &Store, entry: &RedoEntry) -> Result<Plan> {
    entry.plan(store).map_err(|error| match error {
        Error::Damaged { store, what } => Error::DamagedRecord {
            store,
            what: format!("redo entry {}: {what}", entry.k),
            hint: format!(
                "`stepback rewind {}` goes to the state before that operation; `stepback recover` takes the entry off \
                 the stack",
                entry.before
            ),
        },
        other => other,
    })
}

/// What an operation left at each path of its plan.
fn left_by(plan: &Plan) -> BTreeMap<TreePath, Option<Node>> {
    plan.steps
        .iter()
        .map(|step| (step.path.clone(), step.to.clone()))
        .collect()
}
