//! The stack that redo takes from: an operation puts its entry on before it changes anything.

use super::Operation;
use super::{Context, Engine};
use crate::error::Result;
use crate::node::Snapshot;
use crate::oid::Oid;
use crate::redo::{self, NewEntry, RedoEntry};
use crate::restore::{self};
use crate::store::{Expected as Ref, Store};

impl Engine {
    #[allow(clippy::too_many_arguments, reason = "one call; the pairs belong together")]
    pub(super) fn push_redo(
        &mut self,
        store: &Store,
        operation: &Operation,
        plan: &restore::Plan,
        target: (u64, Snapshot),
        before: (u64, Snapshot),
        extras: Option<Snapshot>,
        talk: Option<Oid>,
        cx: &Context<'_>,
    ) -> Result<u64> {
        let k = self.record.highest_redo + 1;
        let writer = store.writer();
        let new = NewEntry {
            k,
            operation: operation.kind(),
            target,
            before,
            extras,
            talk,
            plan,
            now: cx.now,
        };
        let commit = new.write(&writer, self.id())?;
        writer.finish()?;
        let entry = RedoEntry {
            k,
            operation: operation.kind(),
            target: target.0,
            before: before.0,
            before_snapshot: before.1,
            time: cx.now,
            commit,
        };
        store.set_ref(&entry.ref_name(self.id()), commit, Ref::Any)?;
        self.record.highest_redo = k;
        self.redo.insert(0, entry);
        Ok(k)
    }

    /// The oldest entries go when there are too many.
    pub(super) fn trim_redo(&mut self, store: &Store) -> Result<()> {
        while self.redo.len() > redo::ENTRIES_MAX
            && let Some(oldest) = self.redo.last().map(|entry| entry.k)
        {
            self.pop_redo(store, oldest)?;
        }
        Ok(())
    }

    pub(super) fn pop_redo(&mut self, store: &Store, k: u64) -> Result<()> {
        store.delete_ref(&format!("{}{k}", redo::refs_prefix(self.id())))?;
        self.redo.retain(|e| e.k != k);
        Ok(())
    }
}
