//! Keeping conversations of agents with checkpoints, and completing what was too much at once.

use std::sync::Arc;

use super::Engine;
use crate::checkpoint::{Checkpoint, Trigger};
use crate::conversation::book::{BURST_BYTES_MAX, Wish, records};
use crate::conversation::complete::complete;
use crate::conversation::record::{self, Kept};
use crate::conversation::{Agent, Seen, SessionId, Until};
use crate::error::{Error, Result};
use crate::oid::Oid;
use crate::store::{Expected, Store};
use crate::time::Time;

/// So many records are read for what is known of sessions when a root is opened.
const SEED_MAX: usize = 32;
/// Sessions that changed so long before the first checkpoint belong to it.
const FIRST_SPAN_NS: i64 = 24 * 3600 * 1_000_000_000;

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
        until: Option<&Until>,
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
        match self.try_to_keep(store, checkpoint, &wanted, until) {
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
        until: Option<&Until>,
    ) -> Result<Vec<SessionId>> {
        let quick = [
            Trigger::Auto,
            Trigger::TurnStart,
            Trigger::TurnEnd,
            Trigger::Attach,
        ];
        let wish = (wanted, false, !quick.contains(&checkpoint.trigger));
        let (kept, _) = self.look_until(store, wish, until, checkpoint.time, Some(checkpoint.n))?;
        Ok(kept.into_iter().map(|kept| kept.id).collect())
    }

    /// Looks at the sessions: those that are wanted, with `true` nothing else, and with another `true` at all costs. With
    /// a number they are recorded for that checkpoint. Gives them, and the record's tree if there is one.
    pub(super) fn look_at_talk(
        &mut self,
        store: &Store,
        wish: (&[SessionId], bool, bool),
        now: Time,
        n: Option<u64>,
    ) -> Result<(Vec<Kept>, Option<Oid>)> {
        self.look_until(store, wish, None, now, n)
    }

    /// As [`Self::look_at_talk`]; one of them only as far as it was at some moment.
    fn look_until(
        &mut self,
        store: &Store,
        (wanted, only_wanted, thorough): (&[SessionId], bool, bool),
        until: Option<&Until>,
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
            until,
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
    pub(super) fn complete_talk_of(&mut self, store: &Store, n: u64, mut budget: u64) -> Result<()> {
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
            let dir = self.env.conversations.dir_of(kept, &self.path);
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
}
