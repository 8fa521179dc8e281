//! Keeping checkpoints for ever, and deleting them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Context, Engine, Presence, Scope, Why, attach};
use crate::checkpoint::{self, Checkpoint, Trigger};
use crate::conversation;
use crate::error::{Error, Result};
use crate::side;
use crate::store::{Expected, Store};

/// Result of a `drop`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Checkpoints that are gone, or would go.
    pub checkpoints: Vec<u64>,
    /// Redo entries that needed them.
    pub redo: Vec<u64>,
    /// What the store's disk use fell by, in bytes.
    pub freed_bytes: u64,
    /// Why the space of what is gone isn't free yet, if it isn't.
    pub unreclaimed: Option<String>,
}

impl Engine {
    /// Keeps a checkpoint for ever, or no longer.
    ///
    /// # Errors
    /// [`Error::NoSuchCheckpoint`]; those of the store.
    pub fn pin(&mut self, n: u64, pinned: bool) -> Result<()> {
        let commit = self.checkpoint(n)?.commit;
        let name = format!("{}{n}", attach::pins_prefix(self.id()));
        if pinned {
            self.store.set_ref(&name, commit, Expected::Any)?;
            self.pins.insert(n);
        } else {
            self.store.delete_ref(&name)?;
            self.pins.remove(&n);
        }
        Ok(())
    }

    /// Deletes checkpoints; each hands its base on to those that stood on it, which are written anew with their counts.
    /// `preview`: only says what would go. After a crash in the middle every checkpoint is whole, and another call goes on.
    ///
    /// # Errors
    /// [`Error::Unfinished`]; [`Error::Refused`] for a pinned one and for the start of an open session, before any is
    /// deleted; those of the store.
    pub fn drop_checkpoints(&mut self, ns: &[u64], preview: bool, cx: &Context<'_>) -> Result<Dropped> {
        self.require_finished()?;
        let wanted: BTreeSet<u64> = ns.iter().copied().collect();
        for n in &wanted {
            if self.damaged_ref(*n).is_none() {
                self.checkpoint(*n)?;
            }
            if self.pins.contains(n) {
                return Err(Error::Refused {
                    message: format!("checkpoint {n} is pinned"),
                    hint: format!("`stepback unpin {n}` first"),
                });
            }
            if let Some(session) = self.sessions.iter().find(|s| s.is_open() && s.start == *n) {
                return Err(Error::Refused {
                    message: format!("the open session {} needs checkpoint {n}", session.name),
                    hint: format!("`stepback session end {}` first", session.name),
                });
            }
        }
        let redo: Vec<u64> = self
            .redo
            .iter()
            .filter(|e| wanted.contains(&e.target) || wanted.contains(&e.before))
            .map(|e| e.k)
            .collect();
        let mut dropped = Dropped {
            checkpoints: wanted.iter().copied().collect(),
            redo,
            freed_bytes: 0,
            unreclaimed: None,
        };
        if preview {
            return Ok(dropped);
        }
        let before = self.store.disk_bytes()?;
        self.with_reserve(|engine| engine.take_out(&wanted, &dropped.redo, cx))?;
        let store = Arc::clone(&self.store);
        let git = &self.env.git;
        // They are gone whatever comes of this: only their space isn't free yet.
        dropped.unreclaimed = store
            .collect_garbage(git.program.as_deref(), git.path.as_deref())
            .err()
            .map(|e| e.to_string());
        dropped.freed_bytes = before.saturating_sub(self.store.disk_bytes()?);
        Ok(dropped)
    }

    /// Deletes the refs of checkpoints and redo entries. May be called again after an error.
    fn take_out(&mut self, gone: &BTreeSet<u64>, redo: &[u64], cx: &Context<'_>) -> Result<()> {
        self.hand_bases_on(gone, cx)?;
        // What is on disk may be in one of those only.
        if self.presence() == Presence::Here {
            self.capture(Scope::Paths(BTreeSet::new()), &Why::plain(Trigger::Auto), cx)?;
        }
        let store = Arc::clone(&self.store);
        let id = self.id().to_owned();
        for k in redo {
            self.pop_redo(&store, *k)?;
        }
        for n in gone {
            let name = match self.damaged_ref(*n) {
                Some(name) => name,
                None => checkpoint::ref_name(&id, &self.checkpoint(*n)?.session, *n),
            };
            store.delete_ref(&name)?;
            store.delete_ref(&side::ref_name(&id, *n))?;
            store.delete_ref(&conversation::record::ref_name(&id, *n))?;
            self.damaged.retain(|damaged| damaged.what != name);
        }
        self.checkpoints.retain(|c| !gone.contains(&c.n));
        // Pieces of transcripts that no other record has go with them.
        self.book.forget_pieces();
        Ok(())
    }

    /// Gives every checkpoint that stood on one of `gone`, and the position, the nearest base that stays.
    fn hand_bases_on(&mut self, gone: &BTreeSet<u64>, cx: &Context<'_>) -> Result<()> {
        let bases = self.bases();
        let nearest = |mut n: Option<u64>| {
            while let Some(at) = n.filter(|n| gone.contains(n)) {
                // What a damaged one stood on isn't known any more: the one before it by number stands in.
                let before = || bases.range(..at).next_back().map(|(n, _)| *n);
                n = bases.get(&at).copied().unwrap_or_else(before);
            }
            n
        };
        let store = Arc::clone(&self.store);
        let heirs: Vec<u64> = self
            .checkpoints
            .iter()
            .filter(|c| !gone.contains(&c.n) && c.base.is_some_and(|base| gone.contains(&base)))
            .map(|c| c.n)
            .collect();
        for n in heirs {
            let mut heir = self.checkpoint(n)?.clone();
            heir.base = nearest(heir.base);
            let left_out = self.not_captured(Some(n)).unwrap_or_default();
            let base = heir
                .base
                .and_then(|base| self.checkpoint(base).ok())
                .map(|c| c.snapshot);
            heir.counts = self.counts(&*store, base, heir.snapshot, &left_out)?;
            self.write_anew(&store, heir)?;
        }
        self.record.position = nearest(self.record.position);
        // It keeps the highest number, too, before anything is gone.
        self.write_record(cx.now)
    }

    /// Replaces the record of a checkpoint.
    pub(super) fn write_anew(&mut self, store: &Store, mut checkpoint: Checkpoint) -> Result<()> {
        let id = self.id().to_owned();
        let _lock = store.lock()?;
        let writer = store.writer();
        let message = checkpoint.message(&id, self.record.modes);
        checkpoint.commit = writer.commit(checkpoint.snapshot.tree, &message, checkpoint.time)?;
        writer.finish()?;
        let name = checkpoint::ref_name(&id, &checkpoint.session, checkpoint.n);
        store.set_ref(&name, checkpoint.commit, Expected::Any)?;
        if self.pins.contains(&checkpoint.n) {
            let pin = format!("{}{}", attach::pins_prefix(&id), checkpoint.n);
            store.set_ref(&pin, checkpoint.commit, Expected::Any)?;
        }
        if let Ok(at) = self.checkpoints.binary_search_by_key(&checkpoint.n, |c| c.n) {
            self.checkpoints[at] = checkpoint;
        }
        Ok(())
    }
}
