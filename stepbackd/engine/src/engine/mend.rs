//! The position's own records: whether what makes a checkpoint of it is in the store, and writing it anew.
//!
//! Contents and trees are written again by whoever looks at the disk. Commit, ref and side record nobody would miss until the
//! next start: the engine has them in memory.

use super::{Engine, Presence};
use crate::checkpoint::{self, Checkpoint};
use crate::error::{Error, Result};
use crate::node::Snapshot;
use crate::rules::Rules;
use crate::side::{self, Side};
use crate::state;
use crate::store::{Expected, RefChange, Store};
use crate::time::Time;

impl Engine {
    /// Whether the position recorded just this, and the store alone tells so. What is missing of its records, or damaged, is
    /// written anew where memory has it to the byte; where it hasn't, that checkpoint doesn't hold the present any more.
    /// The objects of `snapshot` are durable already.
    pub(super) fn position_holds(&mut self, store: &Store, snapshot: Snapshot, now: Time) -> Result<bool> {
        let position = self.record.position.and_then(|n| self.checkpoint(n).ok());
        let Some(position) = position.filter(|c| c.snapshot == snapshot).cloned() else {
            return Ok(false);
        };
        if !self.is_on_record(store, &position)? && !self.write_position_anew(store, &position)? {
            return Ok(false);
        }
        if !self.has_record(store)? {
            self.write_record(now)?;
        }
        Ok(true)
    }

    /// Whether something of it isn't in the store, or is damaged, and the next capture can do something about that.
    pub(super) fn misses_position(&self) -> Result<bool> {
        let position = self.record.position.and_then(|n| self.checkpoint(n).ok());
        let Some(position) = position.filter(|_| self.presence() == Presence::Here) else {
            return Ok(false);
        };
        Ok(!(self.is_on_record(&self.store, position)? && self.has_record(&self.store)?))
    }

    fn is_on_record(&self, store: &Store, checkpoint: &Checkpoint) -> Result<bool> {
        let name = checkpoint::ref_name(self.id(), &checkpoint.session, checkpoint.n);
        Ok(
            if_readable(store.read_ref(&name))?.flatten() == Some(checkpoint.commit)
                && store.has(checkpoint.commit)?
                && if_readable(Side::load(store, self.id(), checkpoint.n))?.is_some(),
        )
    }

    /// `false`: it can't be had to the byte, or its ref names something else that is there. Then nothing is changed.
    fn write_position_anew(&self, store: &Store, position: &Checkpoint) -> Result<bool> {
        let name = checkpoint::ref_name(self.id(), &position.session, position.n);
        let named = if_readable(store.read_ref(&name))?.flatten();
        if named.is_some_and(|named| named != position.commit) {
            return Ok(false);
        }
        let side = if_readable(store.read_ref(&side::ref_name(self.id(), position.n)))?.flatten();
        let writer = store.writer();
        let message = position.message(self.id(), self.record.modes);
        let commit = writer.commit(position.snapshot.tree, &message, position.time)?;
        let present = Side {
            not_captured: self.tree.not_captured(),
            rules: self.rules.as_ref().map(Rules::outside).unwrap_or_default(),
            extras: None,
        };
        let whole = if_readable(Side::load(store, self.id(), position.n))?.is_some();
        if commit != position.commit
            || !whole && side != Some(present.write(&writer, self.id(), position.snapshot.side)?)
        {
            return Ok(false);
        }
        let change = RefChange {
            name: &name,
            new: commit,
            expected: Expected::Any,
        };
        writer.finish_with(&[change])?.publish()?;
        Ok(true)
    }

    /// Whether the store has the root's record, of whatever time.
    pub(super) fn has_record(&self, store: &Store) -> Result<bool> {
        match if_readable(store.read_ref(&state::ref_name(self.id())))?.flatten() {
            Some(commit) => store.has(commit),
            None => Ok(false),
        }
    }
}

/// `None` of what is damaged.
fn if_readable<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Error::Damaged { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
