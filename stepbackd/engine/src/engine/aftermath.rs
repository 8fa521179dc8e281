//! After an operation: what others wrote meanwhile, and what is there now, becomes checkpoints.

use std::collections::BTreeSet;

use super::look::Within;
use super::operation::Expected;
use super::{Context, Engine, Scope, Why};
use crate::checkpoint::Trigger;
use crate::error::Result;
use crate::node::Snapshot;
use crate::path::TreePath;
use crate::restore::{self, Kept};
use crate::store::Store;
use crate::tree::with;

impl Engine {
    /// Makes a checkpoint of what others wrote and overtook while it was being replaced, beside the one of what is there; then
    /// nothing needs it any more where the operation has left it. What stays for another reason is added to `kept`.
    pub(super) fn keep_overtaken(
        &mut self,
        store: &Store,
        rest: &restore::Rest,
        touched: &BTreeSet<TreePath>,
        ends_at: Option<Expected>,
        kept: &mut Vec<Kept>,
        cx: &Context<'_>,
    ) -> Result<()> {
        if rest.is_empty() {
            return Ok(());
        }
        if !rest.overtaken.is_empty() {
            let look = self.look(store, &Scope::Paths(touched.clone()), Within::Anything, cx)?;
            let writer = store.writer();
            let modes = self.record.modes;
            let snapshot = with::replace(store, &writer, &modes, look.snapshot, &rest.overtaken)?;
            writer.finish()?;
            let why = Why {
                label: Some("edits that others overtook during the operation".into()),
                ..Why::plain(Trigger::AfterOperation)
            };
            let n = self.publish_after(store, snapshot, &why, ends_at, cx)?;
            for kept in kept
                .iter_mut()
                .filter(|kept| rest.overtaken.contains_key(&kept.path))
            {
                kept.reason = format!("{}; an edit before that is in checkpoint {n}", kept.reason);
            }
        }
        let (_, stays) = restore::clear_leftovers(&self.open_root()?, store, &rest.left)?;
        kept.extend(stays);
        kept.sort();
        Ok(())
    }

    /// Looks at what an operation touched. If that made the tree equal to `ends_at`, the position is there; any other
    /// state is a checkpoint of its own at once.
    pub(super) fn look_after(
        &mut self,
        store: &Store,
        touched: &BTreeSet<TreePath>,
        ends_at: Option<Expected>,
        cx: &Context<'_>,
    ) -> Result<()> {
        let look = self.look(store, &Scope::Paths(touched.clone()), Within::Anything, cx)?;
        let reached =
            ends_at.filter(|e| e.snapshot == look.snapshot && self.checkpoint(e.checkpoint).is_ok());
        if let Some(reached) = reached {
            self.record.position = Some(reached.checkpoint);
            if self.position_holds(store, look.snapshot, cx.now)? {
                return self.write_record(cx.now);
            }
        } else if self.position_holds(store, look.snapshot, cx.now)? {
            return Ok(());
        }
        let why = Why::plain(Trigger::AfterOperation);
        self.publish_after(store, look.snapshot, &why, ends_at, cx)
            .map(drop)
    }

    /// A checkpoint that comes from where an operation went: going further back goes on from there.
    fn publish_after(
        &mut self,
        store: &Store,
        snapshot: Snapshot,
        why: &Why,
        ends_at: Option<Expected>,
        cx: &Context<'_>,
    ) -> Result<u64> {
        let before = self.record.position;
        if let Some(e) = ends_at.filter(|e| self.checkpoint(e.checkpoint).is_ok()) {
            self.record.position = Some(e.checkpoint);
        }
        let published = self.publish(store, snapshot, why, None, &[], cx.now);
        if published.is_err() {
            self.record.position = before;
        }
        published
    }
}
