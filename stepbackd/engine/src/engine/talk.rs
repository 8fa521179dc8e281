//! Conversations: kept with each checkpoint, put back by rewinds. What goes wrong with one never hinders the files.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Engine;
use crate::checkpoint::{Checkpoint, Trigger};
use crate::conversation::book::{BURST_BYTES_MAX, Wish, records};
use crate::conversation::complete::complete;
use crate::conversation::plan::{Act, Cx, Step};
use crate::conversation::record::{self, Kept};
use crate::conversation::{Agent, Mode, Outcome, Seen, SessionId, plan, running};
use crate::error::{Error, Result};
use crate::oid::Oid;
use crate::store::{Expected, Store};
use crate::time::Time;

/// So many records are read for what is known of sessions when a root is opened.
const SEED_MAX: usize = 32;
/// Sessions that changed so long before the first checkpoint belong to it.
const FIRST_SPAN_NS: i64 = 24 * 3600 * 1_000_000_000;

/// How far back a rewind of conversations without a target looks.
const NEAREST_MAX: usize = 50;

/// The conversations of an operation, planned.
pub(super) struct Talk {
    pub steps: Vec<Step>,
    /// The recorded sessions that are put back, and where they stand in the store.
    pub target: Vec<Kept>,
    pub target_tree: Oid,
    /// Taken back by `redo`: every byte.
    pub exact: bool,
    /// A new id is made of it.
    pub seed: String,
}

/// What the journal keeps of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TalkEnding {
    /// The record of the state before.
    pub from: Oid,
    /// That of the state which is put back.
    pub to: Oid,
    pub exact: bool,
    /// Those that are put back.
    pub sessions: Vec<SessionId>,
}

impl Talk {
    pub fn is_noop(&self) -> bool {
        !self
            .steps
            .iter()
            .any(|step| matches!(step.act, Act::Put | Act::Fork))
    }

    /// The sessions whose files will change.
    pub fn put(&self) -> Vec<SessionId> {
        let put = self.steps.iter().filter(|step| step.act == Act::Put);
        put.map(|step| step.id.clone()).collect()
    }
}

impl Engine {
    /// Remembers a session that a hook told of, so that it is kept wherever its transcript is.
    pub fn note_seen(&mut self, seen: Seen) {
        self.book.note(seen);
    }

    /// Sessions of agents that are known in this root: those that the newest checkpoint with any has.
    #[must_use]
    pub fn agent_sessions(&self) -> Vec<SessionId> {
        let newest = self.checkpoints.iter().rev().find(|c| !c.conversation.is_empty());
        newest.map(|c| c.conversation.clone()).unwrap_or_default()
    }

    /// What couldn't be kept of conversations at the last look, by agent.
    #[must_use]
    pub fn conversation_notes(&self) -> Vec<(Agent, String)> {
        let notes = self.book.notes.iter();
        notes.map(|(agent, note)| (*agent, note.clone())).collect()
    }

    /// Whether conversations are kept.
    #[must_use]
    pub fn keeps_conversations(&self) -> bool {
        self.settings.conversations
    }

    /// Records the sessions that belong to a checkpoint which is about to be published; durable with its ref when this
    /// returns. What can't be recorded is a note.
    pub(super) fn keep_talk(
        &mut self,
        store: &Store,
        checkpoint: &Checkpoint,
        wanted: &[SessionId],
    ) -> Vec<SessionId> {
        if !self.settings.conversations {
            return Vec::new();
        }
        let mut wanted = wanted.to_vec();
        // A checkpoint that changed nothing is of the same span as the one that it stands on.
        if let Some(base) = checkpoint.base.and_then(|n| self.checkpoint(n).ok())
            && base.snapshot == checkpoint.snapshot
        {
            wanted.extend(base.conversation.iter().cloned());
        }
        if let (Some(agent), Some(session)) = (&checkpoint.agent, &checkpoint.agent_session)
            && let Some(agent) = Agent::of_name(agent)
        {
            wanted.push(SessionId {
                agent,
                session: session.clone(),
            });
        }
        match self.try_to_keep(store, checkpoint, &wanted) {
            Ok(sessions) => sessions,
            Err(e) => {
                self.note_for_all(&e);
                Vec::new()
            }
        }
    }

    fn try_to_keep(
        &mut self,
        store: &Store,
        checkpoint: &Checkpoint,
        wanted: &[SessionId],
    ) -> Result<Vec<SessionId>> {
        let quick = [
            Trigger::Auto,
            Trigger::TurnStart,
            Trigger::TurnEnd,
            Trigger::Attach,
        ];
        let wish = (wanted, false, !quick.contains(&checkpoint.trigger));
        let (kept, _) = self.look_at_talk(store, wish, checkpoint.time, Some(checkpoint.n))?;
        Ok(kept.into_iter().map(|kept| kept.id).collect())
    }

    /// Looks at the sessions: those that are wanted, with `true` nothing else, and with another `true` at all costs. With
    /// a number they are recorded for that checkpoint. Gives them, and the record's tree if there is one.
    fn look_at_talk(
        &mut self,
        store: &Store,
        (wanted, only_wanted, thorough): (&[SessionId], bool, bool),
        now: Time,
        n: Option<u64>,
    ) -> Result<(Vec<Kept>, Option<Oid>)> {
        self.seed_book(store);
        let last = self.checkpoints.last().map(|c| c.time);
        let homes = self.env.conversations.clone();
        let writer = store.writer();
        let wish = Wish {
            homes: &homes,
            root: &self.path,
            now,
            since: last.unwrap_or(Time(now.0 - FIRST_SPAN_NS)),
            thorough,
            wanted,
            only_wanted,
        };
        let kept = self.book.look(&wish, &writer)?;
        let id = self.id().to_owned();
        if let Some(n) = n.filter(|_| kept.is_empty())
            && store.read_ref(&record::ref_name(&id, n))?.is_some()
        {
            // Of a checkpoint that was about to be made when the power went.
            store.delete_ref(&record::ref_name(&id, n))?;
        }
        let Some(n) = n.filter(|_| !kept.is_empty()) else {
            // Nothing refers to what was written: it is only durable for comparing.
            writer.finish()?;
            return Ok((kept, None));
        };
        let (tree, commit) = record::write(&writer, &id, &kept)?;
        writer.finish()?;
        store.set_ref(&record::ref_name(&id, n), commit, Expected::Any)?;
        self.book.remember(&kept);
        self.book.lacks(n, kept.iter().any(|kept| kept.partial));
        Ok((kept, Some(tree)))
    }

    /// Takes the conversations of the position's checkpoint anew: `save` promises that the present is saved, and the tree
    /// needs no other checkpoint.
    pub(super) fn refresh_talk(&mut self, store: &Store, n: u64, now: Time) {
        if !self.settings.conversations {
            return;
        }
        if let Err(e) = self.try_to_refresh(store, n, now) {
            self.note_for_all(&e);
        }
    }

    fn try_to_refresh(&mut self, store: &Store, n: u64, now: Time) -> Result<()> {
        let listed = self.checkpoint(n)?.conversation.clone();
        let (mut kept, _) = self.look_at_talk(store, (&[], false, true), now, None)?;
        if kept.is_empty() {
            return Ok(());
        }
        let found: Vec<SessionId> = kept.iter().map(|kept| kept.id.clone()).collect();
        let recorded = self.talk_of(n)?.filter(|_| !listed.is_empty());
        let recorded = recorded.map_or(Ok(Vec::new()), |tree| record::load(store, tree))?;
        kept.extend(recorded.into_iter().filter(|old| !found.contains(&old.id)));
        let id = self.id().to_owned();
        let writer = store.writer();
        let (_, commit) = record::write(&writer, &id, &kept)?;
        writer.finish()?;
        store.set_ref(&record::ref_name(&id, n), commit, Expected::Any)?;
        self.book.remember(&kept);
        let now: Vec<SessionId> = kept.into_iter().map(|kept| kept.id).collect();
        if now != listed {
            let mut checkpoint = self.checkpoint(n)?.clone();
            checkpoint.conversation = now;
            self.write_anew(store, vec![checkpoint])?;
        }
        Ok(())
    }

    /// Whether the record of a checkpoint lacks what was too much for its moment.
    #[must_use]
    pub fn talk_lacks(&self) -> bool {
        self.settings.conversations && self.book.lacking().is_some()
    }

    /// Adds to such a record some of what it lacks. To be called while nothing else is to be done.
    ///
    /// # Errors
    /// Those of the store; it isn't tried again.
    pub fn complete_talk(&mut self) -> Result<()> {
        let Some(n) = self.book.lacking() else {
            return Ok(());
        };
        let store = Arc::clone(&self.store);
        let done = match store.lock() {
            Ok(_lock) => self.complete_talk_of(&store, n, BURST_BYTES_MAX),
            Err(error) => Err(error),
        };
        if done.is_err() {
            self.book.lacks(n, false);
        }
        done
    }

    /// Adds up to `budget` bytes to what the record of checkpoint `n` lacks.
    fn complete_talk_of(&mut self, store: &Store, n: u64, mut budget: u64) -> Result<()> {
        let tree = self.talk_of(n)?;
        let mut all = tree.map_or(Ok(Vec::new()), |tree| record::load(store, tree))?;
        if !all.iter().any(|kept| kept.partial) {
            self.book.lacks(n, false);
            return Ok(());
        }
        self.seed_book(store);
        let writer = store.writer();
        let mut added = false;
        for kept in all.iter_mut().filter(|kept| kept.partial) {
            let dir = self.env.conversations.dir(kept.id.agent, &self.path);
            let later = self.book.known(&kept.id);
            added |= complete(kept, later, dir.as_deref(), &mut budget, (store, &writer))?;
        }
        if added {
            let id = self.id().to_owned();
            let (_, commit) = record::write(&writer, &id, &all)?;
            writer.finish()?;
            store.set_ref(&record::ref_name(&id, n), commit, Expected::Any)?;
            let as_known = |kept: &&Kept| {
                let stamps = |kept: &Kept| {
                    kept.parts
                        .iter()
                        .map(|part| part.stamp.clone())
                        .collect::<Vec<_>>()
                };
                self.book
                    .known(&kept.id)
                    .is_some_and(|known| stamps(known) == stamps(kept))
            };
            let newest: Vec<Kept> = all.iter().filter(as_known).cloned().collect();
            self.book.remember(&newest);
        }
        // What can't be read any more won't come back.
        self.book.lacks(n, added && all.iter().any(|kept| kept.partial));
        Ok(())
    }

    fn note_for_all(&mut self, e: &Error) {
        for agent in Agent::ALL {
            if self.env.conversations.dir(agent, &self.path).is_some() {
                self.book.notes.insert(agent, e.to_string());
            }
        }
    }

    fn seed_book(&mut self, store: &Store) {
        if self.book.is_seeded() {
            return;
        }
        let id = self.id().to_owned();
        let with = self
            .checkpoints
            .iter()
            .rev()
            .filter(|c| !c.conversation.is_empty());
        let newest: Vec<u64> = with.map(|c| c.n).take(SEED_MAX).collect();
        self.book.seed(records(store, &id, newest.into_iter()));
    }

    fn talk_cx<'a>(&'a self, store: &'a Store, exact: bool) -> Cx<'a> {
        Cx {
            store,
            homes: &self.env.conversations,
            root: &self.path,
            exact,
        }
    }

    /// Plans what becomes of the conversations that a record has, or should have: `listed`. `None`: there are none.
    pub(super) fn plan_talk(
        &mut self,
        store: &Store,
        tree: Option<Oid>,
        listed: &[SessionId],
        exact: bool,
        fork: bool,
        now: Time,
    ) -> Option<Talk> {
        if !self.settings.conversations || (tree.is_none() && listed.is_empty()) {
            return None;
        }
        let planned = tree.map(|tree| self.try_to_plan(store, tree, exact, fork, now));
        let why = match planned {
            Some(Ok(talk)) => return Some(talk),
            Some(Err(e)) => e.to_string(),
            None => "its record is missing".into(),
        };
        // Files can be put back all the same.
        let left = |id: &SessionId| Step {
            id: id.clone(),
            act: Act::Left(why.clone()),
        };
        Some(Talk {
            steps: listed.iter().map(left).collect(),
            target: Vec::new(),
            target_tree: Oid::EMPTY_TREE,
            exact,
            seed: String::new(),
        })
    }

    fn try_to_plan(&mut self, store: &Store, tree: Oid, exact: bool, fork: bool, now: Time) -> Result<Talk> {
        let target = record::load(store, tree)?;
        let wanted: Vec<SessionId> = target.iter().map(|kept| kept.id.clone()).collect();
        let (present, _) = self.look_at_talk(store, (&wanted, true, true), now, None)?;
        let steps = self.talk_cx(store, exact).plan(&target, &present, fork)?;
        Ok(Talk {
            steps,
            target,
            target_tree: tree,
            exact,
            seed: format!("{} {} {tree}", self.id(), now.0),
        })
    }

    /// As [`Self::plan_talk`], for a checkpoint.
    pub(super) fn plan_talk_of(&mut self, store: &Store, n: u64, mode: Mode, now: Time) -> Option<Talk> {
        let listed = self
            .checkpoint(n)
            .map(|c| c.conversation.clone())
            .unwrap_or_default();
        if listed.is_empty() {
            return None;
        }
        // What its record lacks still is there, as a rule. Whatever comes of it, the plan tells.
        let _ = self.complete_talk_of(store, n, u64::MAX);
        let tree = self.talk_of(n).ok().flatten();
        self.plan_talk(store, tree, &listed, false, mode.fork, now)
    }

    /// The nearest checkpoint along `base` whose conversations aren't as they are there; the position when there is none.
    pub(super) fn nearest_talk(&mut self, store: &Store, mode: Mode, now: Time) -> Result<u64> {
        let position = self.record.position;
        let position = position.ok_or_else(|| Error::NoSuchCheckpoint("yet".into()))?;
        let mut at = Some(position);
        for _ in 0..NEAREST_MAX {
            let Some(n) = at else { break };
            let talk = self.plan_talk_of(store, n, mode, now);
            if talk.is_some_and(|talk| !talk.is_noop()) {
                return Ok(n);
            }
            at = self.checkpoint(n).ok().and_then(|c| c.base);
        }
        Ok(position)
    }

    /// What would become of them.
    pub(super) fn foretell(&self, talk: Option<&Talk>) -> Vec<Outcome> {
        let Some(talk) = talk else { return Vec::new() };
        talk.steps.iter().map(|step| self.outcome(talk, step)).collect()
    }

    fn outcome(&self, talk: &Talk, step: &Step) -> Outcome {
        let kept = record::find(&talk.target, &step.id);
        let resume = kept.map(|kept| plan::resume(kept, &step.id.session, &self.path));
        let (action, why) = match &step.act {
            Act::Nothing => ("none", None),
            Act::Put => ("rewind", None),
            Act::Fork => ("fork", None),
            Act::Left(why) => ("left", Some(why.clone())),
        };
        Outcome {
            agent: step.id.agent,
            session: step.id.session.clone(),
            action,
            why,
            resume: resume.filter(|_| action != "fork"),
            fork: None,
        }
    }

    /// Does what was planned, and says what became of each. The present sessions are in the record `from`: what isn't
    /// in it, and is there, isn't touched.
    pub(super) fn carry_out_talk(&mut self, store: &Store, talk: &Talk, from: Option<Oid>) -> Vec<Outcome> {
        // Without a record nothing of them was there.
        let present = from.map_or(Ok(Vec::new()), |tree| record::load(store, tree));
        let cx = self.talk_cx(store, talk.exact);
        let mut outcomes = Vec::new();
        for step in &talk.steps {
            let mut outcome = self.outcome(talk, step);
            let Some(kept) = record::find(&talk.target, &step.id) else {
                outcomes.push(outcome);
                continue;
            };
            let left = match step.act {
                Act::Put => match &present {
                    Ok(present) => {
                        let put = cx.put(kept, record::find(present, &step.id));
                        put.unwrap_or_else(|e| Some(e.to_string()))
                    }
                    Err(e) => Some(e.to_string()),
                },
                Act::Fork => match cx.fork(kept, &talk.seed) {
                    Ok(Ok(new)) => {
                        outcome.resume = Some(plan::resume(kept, &new, &self.path));
                        outcome.fork = Some(new);
                        None
                    }
                    Ok(Err(why)) => Some(why),
                    Err(e) => Some(e.to_string()),
                },
                _ => None,
            };
            if let Some(why) = left {
                (outcome.action, outcome.why) = ("left", Some(why));
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    /// Takes what is there for known, so that what we wrote ourselves doesn't count as an agent's doing. `target`: the
    /// records that it was made of.
    pub(super) fn notice_own_talk(
        &mut self,
        store: &Store,
        sessions: &[SessionId],
        target: &[Kept],
        now: Time,
    ) {
        if sessions.is_empty() {
            return;
        }
        if let Ok((mut kept, _)) = self.look_at_talk(store, (sessions, true, true), now, None) {
            for kept in &mut kept {
                let recorded = record::find(target, &kept.id);
                for part in &mut kept.parts {
                    // Only pieces that a record has are sure to stay.
                    let pieces = recorded.and_then(|r| r.parts.iter().find(|p| p.is_at(part)));
                    part.chunks = pieces.map(|p| p.chunks.clone()).unwrap_or_default();
                }
            }
            self.book.remember(&kept);
        }
    }

    /// Finishes the conversations of an interrupted operation, or takes them back. A session that isn't somewhere between
    /// the two recorded states is left.
    pub(super) fn recover_talk(
        &mut self,
        store: &Store,
        ending: &TalkEnding,
        undo: bool,
        now: Time,
    ) -> Result<Vec<String>> {
        let from = record::load(store, ending.from)?;
        let to = record::load(store, ending.to)?;
        let (present, _) = self.look_at_talk(store, (&ending.sessions, true, true), now, None)?;
        let target = if undo { &from } else { &to };
        let running = running(&self.env.conversations, &self.path);
        let cx = self.talk_cx(store, undo || ending.exact);
        let mut notes = Vec::new();
        for id in &ending.sessions {
            let Some(kept) = record::find(target, id) else {
                continue;
            };
            let now = record::find(&present, id);
            let left = match now {
                _ if running.as_ref().is_none_or(|running| running.contains(&id.agent)) => {
                    Some("it is running, or nobody can say".to_owned())
                }
                Some(now) if !cx.is_between(now, record::find(&from, id), record::find(&to, id))? => {
                    Some("it went on since".to_owned())
                }
                now => cx.put(kept, now)?,
            };
            if let Some(why) = left {
                notes.push(format!(
                    "the conversation of {} ({}) was left as it is: {why}",
                    id.agent.name(),
                    id.session
                ));
            }
        }
        let target = target.clone();
        self.notice_own_talk(store, &ending.sessions, &target, now);
        Ok(notes)
    }

    /// The tree of a checkpoint's record of conversations.
    pub(super) fn talk_of(&self, n: u64) -> Result<Option<Oid>> {
        record::tree_of(&Arc::clone(&self.store), self.id(), n)
    }
}
