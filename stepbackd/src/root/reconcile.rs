//! The look at everything that proves, now and then, that events told of every change. It is done in small parts, with
//! rests between them in which whatever else there is to do has its turn.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use stepback_engine::checkpoint::Trigger;
use stepback_engine::engine::Why;
use stepback_engine::path::TreePath;

use crate::root::actor::Actor;
use crate::root::capture::Extent;

/// The entries of one part: a millisecond or two.
const ENTRIES_PER_PART: usize = 512;
/// After a part the root rests for so many times what it took.
const REST: u32 = 4;
/// How long a part is put off while there is something else to do.
const RETRY: Duration = Duration::from_secs(1);

/// A look in parts that is under way.
#[derive(Debug, Default)]
pub struct Pass {
    /// All up to this directory was looked at.
    after: Option<TreePath>,
    /// Something was found that no event had told of.
    found: bool,
}

impl Actor {
    /// Looks at the next part; what it finds, events had not told.
    pub(super) fn reconcile(&mut self) {
        if self.poll.is_some() {
            // Each look is one at everything.
            return self.reconcile_later();
        }
        let busy = !self.root.mailbox.nothing_pending() || self.daemon.keeper.works_on(&self.root.store);
        if busy {
            self.timers.reconcile = Some(Instant::now() + RETRY);
            return;
        }
        let pass = self.pass.get_or_insert_default();
        if pass.after.is_none() {
            self.watch.begin_look();
            // The store is proved with it, as far as names go.
            if let Some(engine) = &mut self.engine {
                engine.doubt_names();
            }
        }
        match self.part_after(ENTRIES_PER_PART) {
            Some(dirs) if dirs.is_empty() => self.pass_ended(),
            Some(dirs) => self.look_at_part(dirs),
            None => {
                // The tree isn't in memory: nobody has used the root for long. It is done at low priority.
                let captured = self.look(Trigger::Reconcile, "scanning");
                self.note_missed(captured.is_some_and(|captured| captured.changed));
            }
        }
    }

    fn part_after(&self, entries: usize) -> Option<Vec<TreePath>> {
        let after = self.pass.as_ref().and_then(|pass| pass.after.as_ref());
        self.engine.as_ref()?.part_after(after, entries)
    }

    fn look_at_part(&mut self, dirs: Vec<TreePath>) {
        let started = Instant::now();
        let last = dirs.last().cloned();
        let why = Why {
            turn: self.turns.label(),
            ..Why::plain(Trigger::Reconcile)
        };
        let dirs: BTreeSet<TreePath> = dirs.into_iter().collect();
        let Ok(Some(captured)) = self.capture_as(&why, Extent::Part(dirs)) else {
            // After a failure everything is looked at, when it is tried again.
            self.pass = None;
            return self.reconcile_later();
        };
        let took = started.elapsed();
        if let Some(pass) = &mut self.pass {
            pass.after = last;
        }
        self.note_missed(captured.changed);
        if self.part_after(1).is_some_and(|dirs| dirs.is_empty()) {
            self.pass_ended();
        } else if self.pass.is_some() {
            self.timers.reconcile = Some(Instant::now() + took * REST);
        }
    }

    fn pass_ended(&mut self) {
        self.pass = None;
        self.reconcile_later();
        if self.cached != self.told {
            self.save_cache();
        }
    }

    fn reconcile_later(&mut self) {
        self.timers.reconcile = self.config.reconcile.map(|every| Instant::now() + every);
    }

    /// Counts once for each pass that something `changed` of which no event told, nor tells now.
    fn note_missed(&mut self, changed: bool) {
        let counted = self.pass.as_ref().is_some_and(|pass| pass.found);
        if !changed || counted || self.poll.is_some() {
            return;
        }
        self.wait_for_events();
        if !self.root.mailbox.nothing_pending() {
            return;
        }
        if let Some(pass) = &mut self.pass {
            pass.found = true;
        }
        self.missed += 1;
        tracing::warn!(root = %self.root.id, "a look at everything found changes that no event had told of");
        self.publish();
    }
}
