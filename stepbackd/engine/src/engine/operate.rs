//! What writes below the root: rewind, restore, redo, session revert.
//!
//! Each follows the same order: look at the disk, plan, checkpoint what is there, note it for redo, change, look again.

use std::sync::Arc;

use rayon::prelude::*;

use super::operation::Prepared;
use super::recover::Ending;
use super::talk::{Talk, TalkEnding};
use super::{Context, Engine, Select, Why};
use crate::checkpoint::Trigger;
use crate::conversation::{Mode, Outcome, SessionId, What};
use crate::error::{Error, Result, damaged_object};
use crate::node::{Kind, Snapshot};
use crate::path::TreePath;
use crate::restore::{
    self, Applied, ApplyContext, JournalHeader, Kept, NotCovered, OperationKind, PlanId, PlannedChange,
};
use crate::rules::included_by;
use crate::side::Side;
use crate::store::{ObjectWriter, Store};
use crate::tree::stored;

/// An operation that writes below the root.
#[derive(Debug, Clone)]
pub enum Operation {
    /// Put the whole root back. `None`: to the position if something is unsaved, else to the nearest along `base` that
    /// differs from what is there; further back where all that differs would be kept.
    Rewind(Option<Select>),
    /// Put selected paths and all below them back.
    Restore(Select, Vec<TreePath>),
    /// Take back the latest rewind, restore or session revert.
    Redo,
    /// Put back the state at a session's start.
    Revert(String),
}

impl Operation {
    pub(super) const fn kind(&self) -> OperationKind {
        match self {
            Self::Rewind(_) => OperationKind::Rewind,
            Self::Restore(..) => OperationKind::Restore,
            Self::Redo => OperationKind::Redo,
            Self::Revert(_) => OperationKind::SessionRevert,
        }
    }

    const fn before(&self) -> Trigger {
        match self {
            Self::Rewind(_) => Trigger::BeforeRewind,
            Self::Restore(..) => Trigger::BeforeRestore,
            Self::Redo => Trigger::BeforeRedo,
            Self::Revert(_) => Trigger::BeforeRevert,
        }
    }
}

/// What an operation would do.
#[derive(Debug)]
pub struct Preview {
    /// The checkpoint whose state, or part of it, is put back.
    pub target: u64,
    /// Bound to the paths and to the versions on both sides.
    pub plan: PlanId,
    /// Paths that change, as people are shown them.
    pub changes: Vec<PlannedChange>,
    /// Left though they differ.
    pub kept: Vec<Kept>,
    /// Captured neither then nor now.
    pub not_covered: Vec<NotCovered>,
    /// Paths of `changes` that are captured because an include pattern names them.
    pub included: Vec<TreePath>,
    /// Conversations that belong to the target.
    pub conversation: Vec<Outcome>,
    /// Nothing would change, and nothing is kept: the tree is in that state.
    pub noop: bool,
}

/// What an operation did.
#[derive(Debug)]
pub struct Report {
    /// As in the preview.
    pub target: u64,
    /// The checkpoint of the state before, if one had to be made.
    pub saved: Option<u64>,
    /// After a redo: the checkpoint to rewind to, to take it back.
    pub back: Option<u64>,
    /// Paths made or overwritten.
    pub written: u64,
    /// Paths removed.
    pub removed: u64,
    /// Left though they differ.
    pub kept: Vec<Kept>,
    /// Captured neither then nor now.
    pub not_covered: Vec<NotCovered>,
    /// Conversations that belong to the target.
    pub conversation: Vec<Outcome>,
    /// Whether a redo takes this operation back.
    pub redoable: bool,
    /// Depth of the redo stack.
    pub redo: u64,
    /// For people.
    pub notes: Vec<String>,
}

impl Engine {
    /// Says what an operation would do. Changes nothing, makes no checkpoint, takes no number.
    ///
    /// # Errors
    /// As [`Self::execute`].
    pub fn preview(&mut self, operation: &Operation, cx: &Context<'_>) -> Result<Preview> {
        self.preview_as(operation, Mode::default(), cx)
    }

    /// As [`Self::preview`]; `mode` says what becomes of conversations.
    ///
    /// # Errors
    /// As [`Self::execute`].
    pub fn preview_as(&mut self, operation: &Operation, mode: Mode, cx: &Context<'_>) -> Result<Preview> {
        self.require_finished()?;
        self.with_reserve(|engine| engine.preview_once(operation, mode, cx))
    }

    fn preview_once(&mut self, operation: &Operation, mode: Mode, cx: &Context<'_>) -> Result<Preview> {
        let store = Arc::clone(&self.store);
        let _lock = store.lock()?;
        let (prepared, talk) = self.healing(|engine, _| engine.prepare_as(&store, operation, mode, cx))?;
        let Prepared {
            plan,
            target,
            writer,
            present,
            makes_root,
            ..
        } = prepared;
        if !makes_root && !self.is_position(present) {
            writer.finish()?;
            self.write_record(cx.now)?;
        }
        let changes = plan.changes();
        Ok(Preview {
            target,
            plan: plan.id(),
            included: self.included(&store, &changes, target),
            changes,
            noop: plan.is_noop() && plan.kept.is_empty() && talk.as_ref().is_none_or(Talk::is_noop),
            conversation: self.foretell(talk.as_ref()),
            kept: plan.kept,
            not_covered: plan.not_covered,
        })
    }

    /// Which of these paths an include pattern names, or named when `target` was made: ignored files that people put their
    /// hands on.
    fn included(&self, store: &Store, changes: &[PlannedChange], target: u64) -> Vec<TreePath> {
        let Some(rules) = &self.rules else {
            return Vec::new();
        };
        // What can't be read marks nothing.
        let then = Side::load(store, self.id(), target).map(|side| side.rules.include);
        let then = included_by(&then.unwrap_or_default());
        let paths = changes.iter().map(|change| &change.path);
        paths
            .filter(|path| rules.is_included(path, false) || then(path))
            .cloned()
            .collect()
    }

    /// Does an operation. `expected`: only if its plan is still the one of this preview.
    ///
    /// On an error before anything was changed the tree is as it was, and the state before may have become a checkpoint.
    /// On a later one the tree was put back as it was, or [`Self::unfinished`] says so.
    ///
    /// # Errors
    /// [`Error::StalePlan`], [`Error::Unfinished`], [`Error::RootMissing`], [`Error::RootReplaced`],
    /// [`Error::NothingToRedo`], [`Error::NoSuchCheckpoint`], [`Error::NoSuchPath`], [`Error::NoSuchSession`]; those of
    /// the disk and the store.
    pub fn execute(
        &mut self,
        operation: &Operation,
        expected: Option<&PlanId>,
        cx: &Context<'_>,
    ) -> Result<Report> {
        self.execute_as(operation, Mode::default(), expected, cx)
    }

    /// As [`Self::execute`]; `mode` says what becomes of conversations. What an agent's files refuse fails nothing: it is
    /// in the report.
    ///
    /// # Errors
    /// As [`Self::execute`].
    pub fn execute_as(
        &mut self,
        operation: &Operation,
        mode: Mode,
        expected: Option<&PlanId>,
        cx: &Context<'_>,
    ) -> Result<Report> {
        self.require_finished()?;
        self.with_reserve(|engine| {
            let store = Arc::clone(&engine.store);
            let _lock = store.lock()?;
            engine.healing(|engine, healed| {
                if healed {
                    engine.require_finished()?;
                }
                engine.execute_locked(&store, operation, mode, expected, cx)
            })
        })
    }

    /// Does `work`, and does it once more with the room of the reserve if the disk was full and nothing had begun: going
    /// back, and deleting, is how people get out of a full disk.
    pub(super) fn with_reserve<T>(&mut self, mut work: impl FnMut(&mut Self) -> Result<T>) -> Result<T> {
        let before = self.unfinished()?;
        let mut result = work(self);
        if result.as_ref().is_err_and(Error::is_no_space) && self.unfinished()? == before {
            self.store.release_reserve()?;
            result = work(self);
        }
        // What was done is done, with or without a reserve; the next operation makes it again.
        let _ = self.store.restore_reserve();
        result
    }

    /// Plans files and conversations, as far as `mode` wants them.
    fn prepare_as<'a>(
        &mut self,
        store: &'a Store,
        operation: &Operation,
        mode: Mode,
        cx: &Context<'_>,
    ) -> Result<(Prepared<'a>, Option<Talk>)> {
        let alone = mode.what == What::Conversation;
        let nearest;
        let operation = match operation {
            Operation::Rewind(None) if alone => {
                nearest = Operation::Rewind(Some(Select::Number(self.nearest_talk(store, mode, cx.now)?)));
                &nearest
            }
            other => other,
        };
        let mut prepared = self.prepare(store, operation, cx)?;
        if alone && prepared.makes_root {
            return Err(Error::RootMissing(self.path.clone()));
        }
        if alone {
            prepared.plan.steps.clear();
            prepared.plan.kept.clear();
            prepared.plan.not_covered.clear();
            prepared.ends_at = None;
        }
        let talk = if mode.what == What::Files || prepared.makes_root {
            None
        } else {
            match (operation, &prepared.entry) {
                (Operation::Restore(..), _) => None,
                (_, Some(entry)) => {
                    let talk = (entry.before, entry.talk(store)?);
                    self.plan_talk(store, talk, &[], true, false, cx.now)
                }
                _ => {
                    let files = !prepared.plan.steps.is_empty();
                    self.plan_talk_at(store, prepared.target, mode, files, cx.now)
                }
            }
        };
        Ok((prepared, talk))
    }

    fn execute_locked(
        &mut self,
        store: &Store,
        operation: &Operation,
        mode: Mode,
        expected: Option<&PlanId>,
        cx: &Context<'_>,
    ) -> Result<Report> {
        let (prepared, talk) = self.prepare_as(store, operation, mode, cx)?;
        require_saved(store, &prepared.plan)?;
        if expected.is_some_and(|id| *id != prepared.plan.id()) {
            return Err(Error::StalePlan);
        }
        let sessions = talk.as_ref().map(Talk::put).unwrap_or_default();
        if prepared.plan.is_noop() && sessions.is_empty() {
            let conversation = match &talk {
                // A new id: nothing that is there changes.
                Some(talk) if !talk.is_noop() => self.carry_out_talk(store, talk, None),
                talk => self.foretell(talk.as_ref()),
            };
            if !self.is_position(prepared.present) {
                self.write_record(cx.now)?;
            }
            // An entry of which nothing is left to do is used up all the same; one of which nothing could be done waits.
            if let Some(entry) = prepared.entry.filter(|_| prepared.plan.kept.is_empty()) {
                self.pop_redo(store, entry.k)?;
            }
            let nothing = Applied {
                kept: prepared.plan.kept,
                ..Applied::default()
            };
            let mut report = self.report(prepared.target, None, None, nothing, prepared.plan.not_covered);
            report.conversation = conversation;
            return Ok(report);
        }
        let Prepared {
            plan,
            target,
            present,
            makes_root,
            target_snapshot,
            ends_at,
            entry,
            writer,
        } = prepared;
        let (saved, before, extras) = if makes_root {
            // Where nothing is, there is nothing to save, and no state to come back to.
            (None, self.record.position.unwrap_or(target), None)
        } else {
            self.save_before(store, operation, &plan, present, writer, &sessions, cx)?
        };
        // Conversations as they are now; without a record of that nothing of them is changed.
        let from = if sessions.is_empty() {
            None
        } else {
            self.talk_of(before)?
        };
        let k = match &entry {
            _ if makes_root => None,
            Some(entry) => Some(entry.k),
            None => {
                let (target, before) = ((target, target_snapshot), (before, present));
                Some(self.push_redo(store, operation, &plan, target, before, extras, from, cx)?)
            }
        };
        let ending = Ending {
            before,
            ends_at: ends_at.map(|e| e.checkpoint),
            makes_root,
            entry: k.and_then(|k| {
                self.redo
                    .iter()
                    .find(|entry| entry.k == k)
                    .map(|entry| entry.commit)
            }),
            talk: from.zip(talk.as_ref()).map(|(from, talk)| TalkEnding {
                from,
                to: talk.target_tree,
                exact: talk.exact,
                sessions: sessions.clone(),
            }),
        };
        let header = JournalHeader {
            operation: operation.kind(),
            target,
            started: cx.now,
            saved,
            redo: k,
            data: serde_json::to_value(ending).expect("plain data"),
        };
        let directory = store.root_dir(self.id())?;
        let context = self.apply_context(store, &directory, cx);
        let mut applied = match restore::apply(&context, &plan, header) {
            Ok(applied) => applied,
            Err(e) => {
                if let Some(k) = k.filter(|_| entry.is_none())
                    && restore::unfinished(&directory)?.is_none()
                {
                    self.pop_redo(store, k)?;
                }
                return Err(e);
            }
        };
        // The journal goes last: until all is on record, `recover` must be able to bring it about.
        if makes_root {
            self.note_made_root()?;
        }
        let conversation = match &talk {
            Some(talk) => self.carry_out_talk(store, talk, from),
            None => Vec::new(),
        };
        let recorded = talk.as_ref().map_or(&[][..], |talk| &talk.target);
        self.notice_own_talk(store, &sessions, recorded, cx.now);
        let Applied {
            touched, rest, kept, ..
        } = &mut applied;
        self.keep_overtaken(store, rest, touched, ends_at, kept, cx)?;
        self.look_after(store, &applied.touched, ends_at, cx)?;
        let talked = conversation.iter().any(|outcome| outcome.action == "rewind");
        let changed_nothing = applied.written == 0 && applied.removed == 0 && !talked;
        let used_up = match entry {
            Some(_) => !changed_nothing || applied.kept.is_empty(),
            None => changed_nothing,
        };
        if let Some(k) = k.filter(|_| used_up) {
            self.pop_redo(store, k)?;
        }
        self.trim_redo(store)?;
        super::recover::clear_journal(&directory, &mut applied.notes)?;
        let back = entry.is_some().then_some(before);
        let mut report = self.report(target, saved, back, applied, plan.not_covered);
        report.conversation = conversation;
        report.redoable = self.redo.first().is_some_and(|newest| Some(newest.k) == k);
        Ok(report)
    }

    fn report(
        &self,
        target: u64,
        saved: Option<u64>,
        back: Option<u64>,
        applied: Applied,
        not_covered: Vec<NotCovered>,
    ) -> Report {
        Report {
            target,
            saved,
            back,
            written: applied.written,
            removed: applied.removed,
            kept: applied.kept,
            not_covered,
            conversation: Vec::new(),
            redoable: false,
            redo: self.redo.len() as u64,
            notes: applied.notes,
        }
    }

    /// Makes what is there durable: a checkpoint if it differs from the position, if ignored files stand in the way, or for
    /// the sake of `sessions`. Gives that checkpoint if one was made, the one that holds the state before, and the extras.
    #[allow(clippy::too_many_arguments, reason = "one call; the parts belong together")]
    fn save_before(
        &mut self,
        store: &Store,
        operation: &Operation,
        plan: &restore::Plan,
        present: Snapshot,
        writer: ObjectWriter<'_>,
        sessions: &[SessionId],
        cx: &Context<'_>,
    ) -> Result<(Option<u64>, u64, Option<Snapshot>)> {
        let extras = plan.extras();
        let extras = if extras.is_empty() {
            None
        } else {
            let extras = stored::write_paths(&writer, &extras, &self.record.modes)?;
            writer.finish()?;
            Some(extras)
        };
        if let Some(position) = self.record.position
            && extras.is_none()
            && sessions.is_empty()
            && self.position_holds(store, present, cx.now)?
        {
            return Ok((None, position, None));
        }
        let why = Why::plain(operation.before());
        let n = self.publish(store, present, &why, extras, sessions, cx.now)?;
        Ok((Some(n), n, extras))
    }

    pub(super) fn apply_context<'a>(
        &'a self,
        store: &'a Store,
        directory: &'a std::path::Path,
        cx: &'a Context<'_>,
    ) -> ApplyContext<'a> {
        ApplyContext {
            store,
            root_path: &self.path,
            identity: Some(self.record.identity),
            journal_dir: directory,
            progress: cx.progress,
        }
    }
}

/// The present bytes that are about to be replaced must be in the store, whole, whatever became of it since they were
/// captured. An error has all read and written anew: see [`Engine::healing`].
fn require_saved(store: &Store, plan: &restore::Plan) -> Result<()> {
    plan.steps
        .par_iter()
        // Extras were read for this very plan, and wait in its writer.
        .filter(|step| !step.extra)
        .try_for_each(|step| match step.from.as_ref().map(|from| from.kind) {
            Some(Kind::File(oid) | Kind::Link(oid)) if !store.has(oid)? => {
                Err(damaged_object(store.path(), oid, "is missing or damaged"))
            }
            _ => Ok(()),
        })
}
