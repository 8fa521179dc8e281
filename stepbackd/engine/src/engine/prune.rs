//! Keeping checkpoints for ever, and deleting them: named ones, and those that go with time.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Context, Engine, Presence, Scope, Why, attach};
use crate::checkpoint::{self, Checkpoint, Trigger};
use crate::conversation;
use crate::error::{Error, Result};
use crate::record::number;
use crate::redo::RedoEntry;
use crate::retention::{self, Candidate, Policy};
use crate::side;
use crate::store::{Expected, Store};
use crate::time::Time;

/// Of the checkpoints that may go for want of room, one of so many goes first,
const ROOM_SHARE: usize = 4;
/// and one of so many at least then; in each further round twice the share. Giving space back is what takes long.
const ROOM_SHARE_THEN: usize = 8;

/// So often in a row checkpoints go for room without any space coming of it.
const IN_VAIN_MAX: u32 = 2;

/// What came of giving space back.
enum Back {
    Given,
    /// Loose objects are gone; packs can't be written anew for want of room.
    NoRoom(String),
    Failed(String),
}

impl Back {
    fn of(result: Result<()>) -> Self {
        match result {
            Ok(()) => Self::Given,
            Err(error @ Error::NoRoom { .. }) => Self::NoRoom(error.to_string()),
            Err(error) => Self::Failed(error.with_remedy()),
        }
    }

    const fn is_hopeless(&self) -> bool {
        matches!(self, Self::Failed(_))
    }

    /// Why not all of it could be given back, if it couldn't.
    fn why(self) -> Option<String> {
        match self {
            Self::Given => None,
            Self::NoRoom(why) | Self::Failed(why) => Some(why),
        }
    }
}

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
            self.with_reserve(|engine| engine.store.set_ref(&name, commit, Expected::Any))?;
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
        // They are gone whatever comes of this: only their space isn't free yet.
        dropped.unreclaimed = self.unreclaimed();
        dropped.freed_bytes = before.saturating_sub(self.store.disk_bytes()?);
        Ok(dropped)
    }

    /// Sets the moment by which checkpoints have their age, where the clock that jobs have theirs from is doubted.
    pub const fn set_moment_of_age(&mut self, moment: Time) {
        self.moment_of_age = Some(moment);
    }

    /// Applies retention: deletes the records of what goes by `policy`, not yet the bytes. Its numbers, also with
    /// `preview`, which deletes nothing. As [`Self::drop_checkpoints`] after a crash.
    ///
    /// # Errors
    /// [`Error::Unfinished`]; those of the store.
    pub fn thin(&mut self, policy: &Policy, preview: bool, cx: &Context<'_>) -> Result<BTreeSet<u64>> {
        self.require_finished()?;
        let all = self.candidates();
        let now = self.moment_of_age.unwrap_or(cx.now);
        let gone = retention::thin(&all, now, policy, &self.protected());
        if !preview && !gone.is_empty() {
            self.with_reserve(|engine| engine.take_out(&gone, &[], cx))?;
        } else if !preview {
            // What was given up on a full disk may have room again.
            let _ = self.store.restore_reserve();
        }
        Ok(gone)
    }

    /// The same, and the bytes are gone, too, when it returns.
    ///
    /// # Errors
    /// As [`Self::thin`].
    pub fn prune(&mut self, policy: &Policy, preview: bool, cx: &Context<'_>) -> Result<Dropped> {
        let before = self.store.disk_bytes()?;
        let gone = self.thin(policy, preview, cx)?;
        let mut dropped = Dropped {
            checkpoints: gone.into_iter().collect(),
            redo: Vec::new(),
            freed_bytes: 0,
            unreclaimed: None,
        };
        if !preview {
            dropped.unreclaimed = self.unreclaimed();
            dropped.freed_bytes = before.saturating_sub(self.store.disk_bytes()?);
        }
        Ok(dropped)
    }

    /// Deletes the oldest checkpoints that aren't protected, whatever the policy says of their age, so that the store
    /// comes down to `bytes`. It may end above that: when only protected ones are left, or when their space can't be
    /// given back.
    ///
    /// # Errors
    /// As [`Self::thin`].
    pub fn make_room(&mut self, policy: &Policy, bytes: u64, cx: &Context<'_>) -> Result<Dropped> {
        let before = self.store.disk_bytes()?;
        let mut gone: Vec<u64> = self.thin(policy, false, cx)?.into_iter().collect();
        // Often it is enough that loose objects are packed; that is quick, whatever the store's size.
        let git = &self.env.git;
        let folded = self.store.fold_now(
            git.program.as_deref(),
            git.path.as_deref(),
            git.children.packing(),
        );
        let mut back = Back::of(folded);
        let mut used = self.store.disk_bytes()?;
        if !back.is_hopeless() && used > bytes {
            back = Back::of(self.reclaim());
            used = self.store.disk_bytes()?;
        }
        let (mut share, mut each, mut in_vain) = (ROOM_SHARE, 0, 0);
        while !back.is_hopeless() && used > bytes && in_vain < IN_VAIN_MAX {
            cx.progress.check()?;
            let thinnable = self.thinnable(policy, cx.now);
            let some = share_to_go(thinnable.len(), share, used - bytes, each);
            let oldest: BTreeSet<u64> = thinnable.into_iter().take(some).collect();
            if oldest.is_empty() {
                break;
            }
            self.with_reserve(|engine| engine.take_out(&oldest, &[], cx))?;
            gone.extend(&oldest);
            back = Back::of(self.reclaim());
            let left = self.store.disk_bytes()?;
            // Where nothing can be packed only loose objects go; when the oldest have none, the others stay.
            let nothing = left >= used && matches!(back, Back::NoRoom(_));
            in_vain = if nothing { in_vain + 1 } else { 0 };
            each = used.saturating_sub(left) / oldest.len() as u64;
            used = left;
            share = if share == ROOM_SHARE {
                ROOM_SHARE_THEN
            } else {
                (share / 2).max(1)
            };
        }
        Ok(Dropped {
            checkpoints: gone,
            redo: Vec::new(),
            freed_bytes: before.saturating_sub(self.store.known_bytes()),
            unreclaimed: back.why(),
        })
    }

    /// Whether [`Self::make_room`] has anything to delete.
    #[must_use]
    pub fn has_thinnable(&self, policy: &Policy, now: Time) -> bool {
        !self.thinnable(policy, now).is_empty()
    }

    /// What isn't protected, whatever its age; the oldest first.
    fn thinnable(&self, policy: &Policy, now: Time) -> Vec<u64> {
        let all = self.candidates();
        let now = self.moment_of_age.unwrap_or(now);
        let kept = retention::kept_anyway(&all, now, policy, &self.protected());
        all.iter().map(|c| c.n).filter(|n| !kept.contains(n)).collect()
    }

    /// Gives the space of what no ref needs back. [`Error::NoRoom`] comes when only a part of it could be.
    pub(super) fn reclaim(&self) -> Result<()> {
        let git = &self.env.git;
        self.store
            .collect_garbage(
                git.program.as_deref(),
                git.path.as_deref(),
                git.children.packing(),
            )
            .map_err(|error| self.naming_redo(error))
    }

    /// A damaged checkpoint that is to be given up takes the redo entries with it that need it, and they may have the last
    /// that is left of its state.
    fn naming_redo(&self, error: Error) -> Error {
        let Error::DamagedRecord { store, what, hint } = error else {
            return error;
        };
        let needs = |entry: &&RedoEntry| {
            let prefix = checkpoint::refs_prefix(self.id());
            let name = what.split(' ').next().filter(|name| name.starts_with(&prefix));
            name.and_then(number)
                .is_some_and(|n| n == entry.before || n == entry.target)
        };
        let hint = match self.redo.iter().find(needs) {
            Some(RedoEntry { k, before, .. }) => format!(
                "redo entry {k} needs it: `stepback redo` puts the state of checkpoint {before} back, which is saved then; \
                 after that, {hint}"
            ),
            None => hint,
        };
        Error::DamagedRecord { store, what, hint }
    }

    /// The same; why that didn't work, if it didn't.
    fn unreclaimed(&self) -> Option<String> {
        self.reclaim().err().map(|e| e.with_remedy())
    }

    fn candidates(&self) -> Vec<Candidate> {
        self.checkpoints.iter().map(Candidate::from).collect()
    }

    /// What never goes by itself: pinned ones, the position, what redo goes back to, where open sessions began.
    fn protected(&self) -> BTreeSet<u64> {
        let redo = self.redo.iter().flat_map(|entry| [entry.target, entry.before]);
        let open = self.sessions.iter().filter(|s| s.is_open()).map(|s| s.start);
        self.pins
            .iter()
            .copied()
            .chain(redo)
            .chain(open)
            .chain(self.record.position)
            .collect()
    }

    /// Deletes the refs of checkpoints and redo entries. May be called again after an error.
    fn take_out(&mut self, gone: &BTreeSet<u64>, redo: &[u64], cx: &Context<'_>) -> Result<()> {
        self.hand_bases_on(gone, cx)?;
        // What is on disk may be in one of those only; the position stands on what stays already.
        let store = Arc::clone(&self.store);
        let kept = match self.memory {
            Some(memory) => self.position_holds(&store, memory, cx.now)?,
            None => false,
        };
        if self.presence() == Presence::Here && !kept {
            self.doubts = true;
            self.capture(Scope::Paths(BTreeSet::new()), &Why::plain(Trigger::Auto), cx)?;
        }
        self.keep_cache_true(gone)?;
        let id = self.id().to_owned();
        for k in redo {
            self.pop_redo(&store, *k)?;
        }
        let mut names = Vec::with_capacity(3 * gone.len());
        for n in gone {
            names.push(match self.damaged_ref(*n) {
                Some(name) => name,
                None => checkpoint::ref_name(&id, &self.checkpoint(*n)?.session, *n),
            });
            names.push(side::ref_name(&id, *n));
            names.push(conversation::record::ref_name(&id, *n));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        store.delete_refs(&names)?;
        self.damaged
            .retain(|damaged| !names.contains(&damaged.what.as_str()));
        self.checkpoints.retain(|c| !gone.contains(&c.n));
        // Pieces of transcripts that no other record has go with them.
        self.book.forget_pieces();
        Ok(())
    }

    /// The cache, and the tree that was taken from it, must not name objects that are about to lose their last ref: what is on
    /// disk at the next look may have the very same contents, and would be taken for stored.
    fn keep_cache_true(&mut self, gone: &BTreeSet<u64>) -> Result<()> {
        let stays = |snapshot| {
            self.memory == Some(snapshot)
                || self
                    .checkpoints
                    .iter()
                    .any(|c| c.snapshot == snapshot && !gone.contains(&c.n))
        };
        if self.cached.get().is_some_and(stays) {
            return Ok(());
        }
        if self.memory.is_some() {
            return self.save_cache();
        }
        self.forget_tree();
        self.remove_cache()
    }

    /// Gives every checkpoint that stood on one of `gone`, and the position, the nearest base that stays. All are written
    /// in one go.
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
        let is_heir = |c: &&Checkpoint| !gone.contains(&c.n) && c.base.is_some_and(|b| gone.contains(&b));
        let mut heirs: Vec<Checkpoint> = self.checkpoints.iter().filter(is_heir).cloned().collect();
        for heir in &mut heirs {
            heir.base = nearest(heir.base);
            let left_out = self.not_captured(Some(heir.n)).unwrap_or_default();
            let base = heir
                .base
                .and_then(|base| self.checkpoint(base).ok())
                .map(|c| c.snapshot);
            match self.counts(&*store, base, heir.snapshot, &left_out) {
                Ok(counts) => heir.counts = counts,
                // A damaged one holds up nothing: the old counts are the best there are.
                Err(Error::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.write_anew(&store, heirs)?;
        self.record.position = nearest(self.record.position);
        // It keeps the highest number, too, before anything is gone.
        self.write_record(cx.now)
    }

    /// Replaces the records of checkpoints.
    pub(super) fn write_anew(&mut self, store: &Store, mut checkpoints: Vec<Checkpoint>) -> Result<()> {
        if checkpoints.is_empty() {
            return Ok(());
        }
        let id = self.id().to_owned();
        let _lock = store.lock()?;
        let writer = store.writer();
        let mut refs = Vec::with_capacity(checkpoints.len());
        for checkpoint in &mut checkpoints {
            let message = checkpoint.message(&id, self.record.modes);
            checkpoint.commit = writer.commit(checkpoint.snapshot.tree, &message, checkpoint.time)?;
            let name = checkpoint::ref_name(&id, &checkpoint.session, checkpoint.n);
            refs.push((name, checkpoint.commit));
            if self.pins.contains(&checkpoint.n) {
                let pin = format!("{}{}", attach::pins_prefix(&id), checkpoint.n);
                refs.push((pin, checkpoint.commit));
            }
        }
        writer.finish()?;
        store.set_refs(&refs)?;
        for checkpoint in checkpoints {
            if let Ok(at) = self.checkpoints.binary_search_by_key(&checkpoint.n, |c| c.n) {
                self.checkpoints[at] = checkpoint;
            }
        }
        Ok(())
    }
}

/// How many of so many checkpoints go: one of `share`, or more when what the last ones gave back, `each` so many bytes, tells
/// that it takes more until `wanted` bytes are free. At most half of them on the word of that guess: what went too much
/// is lost.
fn share_to_go(of: usize, share: usize, wanted: u64, each: u64) -> usize {
    let estimate = if each == 0 { 0 } else { wanted.div_ceil(each) };
    let estimate = usize::try_from(estimate).unwrap_or(usize::MAX);
    of.div_ceil(share).max(estimate.min(of.div_ceil(2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_rounds_come_to_what_is_wanted_or_to_the_end() {
        assert_eq!(share_to_go(100, ROOM_SHARE, 1_000, 0), 25);
        assert_eq!(share_to_go(75, ROOM_SHARE_THEN, 1_110, 100), 12);
        assert_eq!(share_to_go(75, ROOM_SHARE_THEN, 1_000, 1), 38);
        assert_eq!(share_to_go(75, ROOM_SHARE_THEN, 10, 100), 10);
        assert_eq!(share_to_go(3, 1, 10, 0), 3);
        assert_eq!(share_to_go(0, 1, 10, 0), 0);
    }
}
