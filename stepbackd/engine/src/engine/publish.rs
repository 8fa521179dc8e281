//! Writing a checkpoint, and the root's record, so that they are there whole or not at all.

use std::sync::Arc;

use super::Why;
use super::capture::is_left_out;
use super::{Engine, attach};
use crate::checkpoint::{self, Checkpoint, Counts, Trigger};
use crate::conversation::{self, SessionId};
use crate::diff::{self, Change, Status};
use crate::error::{Error, Result};
use crate::head::GitHead;
use crate::node::{NotCaptured, Snapshot};
use crate::record;
use crate::rules::Rules;
use crate::salvage;
use crate::session;
use crate::side::{self, Side};
use crate::state::{self, RootRecord};
use crate::store::{Expected, ObjectWriter, Objects, RefChange, Store, TreeEntry, write_tree};
use crate::{oid::Oid, time::Time};

/// So many checkpoints may tell of themselves alone before the root's record is written with one. Should refs of the newest
/// get lost without a trace, this is how far their numbers may go back.
const RECORD_EVERY: u64 = 16;

impl Engine {
    /// Without hooks: the agent that `run` has started, if just one session that is open has one. Of several nobody can say
    /// whose work it is, nor whose it is that a person had saved.
    fn agent_at_work(&self, trigger: Trigger) -> Option<String> {
        let is_work = matches!(
            trigger,
            Trigger::Auto | Trigger::Reconcile | Trigger::SessionStart | Trigger::SessionEnd
        );
        let mut agents = self
            .sessions
            .iter()
            .filter(|session| is_work && session.is_open())
            .filter_map(session::Session::agent);
        let agent = agents.next()?;
        agents.next().is_none().then(|| agent.name().to_owned())
    }

    /// Writes a checkpoint of `snapshot`, whose objects are durable already. `sessions`: conversations that are kept with it
    /// in any case. See [`Self::publish_with`].
    pub(super) fn publish(
        &mut self,
        store: &Store,
        snapshot: Snapshot,
        why: &Why,
        extras: Option<Snapshot>,
        sessions: &[SessionId],
        now: Time,
    ) -> Result<u64> {
        self.publish_with(store.writer(), store, snapshot, why, extras, sessions, now)
    }

    /// Writes a checkpoint of `snapshot`, of which new objects may wait in `writer`. What is large is durable under its name
    /// first; then one barrier makes all the rest durable at once, refs included, in the store's file ahead of their
    /// places (`store/ahead.rs`). Only then the small objects get their names, and after them the refs, the checkpoint's
    /// behind that of its side record: whoever is killed in between leaves no checkpoint, and objects that nobody needs.
    ///
    /// Where that file can't be had there are four barriers: contents of objects and refs under temporary names; names of
    /// the objects; the side record's ref; the checkpoint's. The root's ref comes last, without one: when it is lost, the
    /// old one is mended when the root is opened next.
    #[allow(
        clippy::too_many_arguments,
        reason = "one call each; what is gathered has no name of its own"
    )]
    pub(super) fn publish_with(
        &mut self,
        writer: ObjectWriter<'_>,
        store: &Store,
        snapshot: Snapshot,
        why: &Why,
        extras: Option<Snapshot>,
        sessions: &[SessionId],
        now: Time,
    ) -> Result<u64> {
        let n = self.record.highest + 1;
        let not_captured = self.tree.not_captured();
        // What the base needs and the store can't give, the present may need, too: all is read and written anew, if that
        // hasn't been done yet. Then a damaged base counts as none: the present must become a checkpoint all the same.
        let base = self
            .record
            .position
            .and_then(|n| self.checkpoint(n).ok())
            .map(|c| c.snapshot);
        let (changes, base) = match self.changes(&writer, base, snapshot) {
            Err(Error::Damaged { .. }) if base.is_some() && !self.may_heal => {
                (self.changes(&writer, None, snapshot)?, None)
            }
            other => (other?, base),
        };
        let counts = self.counts_of(&changes, &not_captured)?;
        let uncovered = match self.record.position.zip(base) {
            Some(before) => match self.look_for_uncovered(store, &changes, before, n) {
                // It is no more than a word of warning.
                Err(Error::Damaged { .. }) => Vec::new(),
                other => other?,
            },
            None => Vec::new(),
        };
        let git = GitHead::read(&self.path);
        let open: Vec<String> = self
            .sessions
            .iter()
            .rev()
            .filter(|s| s.is_open())
            .map(|s| s.name.clone())
            .collect();
        let turn = why.turn.clone();
        let mut checkpoint = Checkpoint {
            n,
            base: self.record.position,
            session: open.first().cloned().unwrap_or_else(|| session::WATCH.to_owned()),
            sessions: open,
            trigger: why.trigger,
            time: now,
            label: why.label.clone(),
            agent: match &turn {
                Some(turn) => Some(turn.agent.clone()),
                None => self.agent_at_work(why.trigger),
            },
            agent_session: turn.as_ref().map(|turn| turn.session.clone()),
            turn: turn.as_ref().map(|turn| turn.turn),
            prompt: turn.as_ref().and_then(|turn| turn.prompt.clone()),
            tools: turn.map(|turn| turn.tools).unwrap_or_default(),
            counts,
            head: git.commit,
            branch: git.branch,
            not_captured: not_captured.len() as u64,
            conversation: Vec::new(),
            snapshot,
            commit: Oid::EMPTY_TREE,
        };
        checkpoint.conversation = self.keep_talk(store, &checkpoint, sessions, why.until.as_ref());
        let rules = self.rules.as_ref().map(Rules::outside).unwrap_or_default();
        let id = self.id().to_owned();
        let before = (self.record.highest, self.record.position);
        (self.record.highest, self.record.position) = (n, Some(n));
        let result = (|| {
            let side = Side {
                not_captured,
                rules,
                extras,
            }
            .write(&writer, &id, snapshot.side)?;
            let message = checkpoint.message(&id, self.record.modes);
            checkpoint.commit = writer.commit(snapshot.tree, &message, now)?;
            let mut refs = vec![
                (side::ref_name(&id, n), side, Expected::Any),
                (
                    checkpoint::ref_name(&id, &checkpoint.session, n),
                    checkpoint.commit,
                    Expected::Absent,
                ),
            ];
            if self.record_is_due() {
                // The checkpoint and its side record hold the tree in memory.
                let record = self.write_record_commit(&writer, snapshot.tree, now)?;
                refs.push((state::ref_name(&id), record, Expected::Any));
            }
            let changes: Vec<_> = refs
                .iter()
                .map(|(name, new, expected)| RefChange {
                    name,
                    new: *new,
                    expected: *expected,
                })
                .collect();
            let mut refs = writer.finish_with(&changes)?;
            refs.publish()?;
            refs.publish()?;
            Ok(refs)
        })();
        let mut refs = match result {
            Ok(refs) => refs,
            Err(e) => {
                (self.record.highest, self.record.position) = before;
                self.take_back(store, &checkpoint);
                return Err(e);
            }
        };
        let commit = checkpoint.commit;
        self.checkpoints.push(checkpoint);
        self.note_changes(&changes, base.is_some(), now);
        self.uncovered.extend(uncovered);
        // From here on the checkpoint exists. An older record is mended when the root is opened next.
        if refs.publish_lazily()? {
            self.written = Some(self.record.clone());
        }
        drop(refs);
        if why.pin {
            store.set_ref(&format!("{}{n}", attach::pins_prefix(&id)), commit, Expected::Any)?;
            self.pins.insert(n);
        }
        Ok(n)
    }

    /// Of a checkpoint that could not be announced, the ref may be there all the same: its name was given, and then the
    /// disk refused to make it durable. It goes, and its number isn't given again.
    fn take_back(&mut self, store: &Store, checkpoint: &Checkpoint) {
        let name = checkpoint::ref_name(self.id(), &checkpoint.session, checkpoint.n);
        let left = store.read_ref(&name);
        if left.as_ref().is_ok_and(|found| *found == Some(checkpoint.commit)) {
            // Should that fail, too, the next start finds a checkpoint, which is whole. What belongs to it goes with it: a side
            // record alone would be taken for what is left of a lost one.
            let side = side::ref_name(self.id(), checkpoint.n);
            let talk = conversation::record::ref_name(self.id(), checkpoint.n);
            let _ = store.delete_refs(&[&name, &side, &talk]);
        }
        if !matches!(left, Ok(None)) {
            self.record.highest = checkpoint.n;
        }
    }

    /// Writes the root's record as it is in memory.
    ///
    /// # Errors
    /// When the store can't be written.
    pub fn write_record(&mut self, now: Time) -> Result<()> {
        let store = Arc::clone(&self.store);
        let _lock = store.lock()?;
        let writer = store.writer();
        let held = match self.memory.or_else(|| {
            self.record
                .position
                .and_then(|n| self.checkpoint(n).ok())
                .map(|c| c.snapshot)
        }) {
            Some(snapshot) => snapshot,
            None => Snapshot::EMPTY,
        };
        let tree = if self.is_position(held) {
            held.tree
        } else {
            write_tree(
                &writer,
                &[
                    TreeEntry::dir("tables", held.side),
                    TreeEntry::dir("tree", held.tree),
                ],
            )?
        };
        let commit = self.write_record_commit(&writer, tree, now)?;
        writer.finish()?;
        store.set_ref(&state::ref_name(self.id()), commit, Expected::Any)?;
        self.written = Some(self.record.clone());
        let part = salvage::constant_part(&self.record);
        if self.copied.as_ref() != Some(&part) {
            salvage::keep_copy(&store.root_dir(self.id())?, &part)?;
            self.copied = Some(part);
        }
        Ok(())
    }

    /// Whether the root's record is to be written with a checkpoint. What it says of the newest one, and that the tree stands
    /// on it, the checkpoint itself tells when the root is opened; all else in it seldom changes.
    fn record_is_due(&self) -> bool {
        let Some(written) = &self.written else {
            return true;
        };
        let all_but_numbers = RootRecord {
            highest: self.record.highest,
            position: self.record.position,
            ..written.clone()
        };
        self.record.highest >= written.highest + RECORD_EVERY || self.record != all_but_numbers
    }

    /// `tree`: what the record keeps from being pruned.
    fn write_record_commit(&self, writer: &ObjectWriter<'_>, tree: Oid, now: Time) -> Result<Oid> {
        writer.commit(tree, &record::message("root", &self.record), now)
    }

    /// Files that differ from `base`, which is nothing for a first checkpoint.
    pub(super) fn counts(
        &self,
        store: &dyn Objects,
        base: Option<Snapshot>,
        snapshot: Snapshot,
        left_out: &[NotCaptured],
    ) -> Result<Counts> {
        self.counts_of(&self.changes(store, base, snapshot)?, left_out)
    }

    /// All that differs from `base`, which is nothing for a first checkpoint.
    fn changes(
        &self,
        store: &dyn Objects,
        base: Option<Snapshot>,
        snapshot: Snapshot,
    ) -> Result<Vec<Change>> {
        let base = base.unwrap_or(Snapshot::EMPTY);
        diff::compare(store, base, snapshot, &self.record.modes, &[])
    }

    fn counts_of(&self, changes: &[Change], left_out: &[NotCaptured]) -> Result<Counts> {
        let mut counts = Counts::default();
        for change in changes {
            if !change.is_file() {
                continue;
            }
            match change.status() {
                Status::Added => counts.added += 1,
                Status::Modified | Status::TypeChanged => counts.modified += 1,
                // Out of capture isn't gone: by a new rule, or by one of the reasons that are listed.
                Status::Deleted => {
                    let ignored = match &self.rules {
                        Some(rules) => rules.ignores(&change.path, false)?,
                        None => false,
                    };
                    counts.deleted += u64::from(!ignored && !is_left_out(left_out, &change.path));
                }
            }
        }
        Ok(counts)
    }
}
