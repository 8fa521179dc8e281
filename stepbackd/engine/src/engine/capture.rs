//! Making checkpoints: scan, persist, publish.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::look::{Within, require_stored};
use super::{Context, Engine};
use crate::checkpoint::Trigger;
use crate::conversation::Until;
use crate::error::{Error, Result};
use crate::head;
use crate::node::{NotCaptured, Reason, Snapshot};
use crate::path::TreePath;
use crate::restore;
use crate::side::Side;
use crate::store::Store;
use crate::tree::ScanOutcome;

/// What to look at for a capture.
#[derive(Debug, Clone)]
pub enum Scope {
    /// Everything.
    All,
    /// These paths, and new directories whole.
    Paths(BTreeSet<TreePath>),
}

/// Why a capture is made, and what it is called.
#[derive(Debug, Clone)]
pub struct Why {
    /// Why.
    pub trigger: Trigger,
    /// Label; with one a checkpoint is made even when nothing differs.
    pub label: Option<String>,
    /// Pin it; likewise.
    pub pin: bool,
    /// The agent's turn that it belongs to.
    pub turn: Option<TurnLabel>,
    /// A conversation that is kept only as far as it was when the word of this came.
    pub until: Option<Until>,
}

/// Whose work a checkpoint holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnLabel {
    /// The agent, as commands name it.
    pub agent: String,
    /// The agent's own id of the session.
    pub session: String,
    /// The turn's number in that session, from 1.
    pub turn: u64,
    /// First line of the prompt.
    pub prompt: Option<String>,
    /// Tools used so far, each once.
    pub tools: Vec<String>,
}

impl Why {
    /// Without a label or a pin.
    #[must_use]
    pub const fn plain(trigger: Trigger) -> Self {
        Self {
            trigger,
            label: None,
            pin: false,
            turn: None,
            until: None,
        }
    }

    const fn makes_one_anyway(&self) -> bool {
        self.trigger.always_makes_one() || self.label.is_some() || self.pin
    }
}

/// What a capture did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// The checkpoint that the tree stands on now.
    pub id: u64,
    /// Whether it was made now.
    pub created: bool,
    /// Files that kept changing while they were read: to be looked at again.
    pub still_dirty: Vec<TreePath>,
    /// What is captured differs from what was in memory before, whether or not a checkpoint had to be made.
    pub changed: bool,
}

impl Engine {
    /// Looks at the disk and makes a checkpoint if it differs from the position, or if `why` makes one anyway. Durable
    /// when it returns; on an error there is no checkpoint and the next capture begins afresh.
    ///
    /// # Errors
    /// [`Error::RootMissing`], [`Error::RootReplaced`], [`Error::Rules`], [`Error::Cancelled`], and those of the disk
    /// and the store.
    pub fn capture(&mut self, scope: Scope, why: &Why, cx: &Context<'_>) -> Result<Captured> {
        self.require_presence()?;
        let store = Arc::clone(&self.store);
        let captured = {
            let _lock = store.lock()?;
            self.healing(|engine, healed| {
                let scope = if healed { &Scope::All } else { &scope };
                engine.capture_locked(&store, scope, why, cx)
            })?
        };
        if why.trigger == Trigger::Attach && self.unfinished().is_ok() {
            // What stays is named by the status, and by whatever meets it.
            self.clear_leftovers(cx)?;
        }
        Ok(captured)
    }

    /// Does `work`. When an object that the tree in memory relied on is gone from the store, does it once more with nothing
    /// known of the tree: then all that is on disk is read and written anew. After an error the tree is that of the cache.
    pub(super) fn healing<T>(&mut self, mut work: impl FnMut(&mut Self, bool) -> Result<T>) -> Result<T> {
        let mut before = None;
        self.may_heal = true;
        let mut result = work(self, false);
        self.may_heal = false;
        if matches!(result, Err(Error::Damaged { .. })) {
            before = Some(self.told());
            self.forget_tree();
            result = work(self, true);
            if result.is_err() {
                // What it says to be stored may be what is missing. One that stays is compared with the store before it is
                // relied on, and the first error is the one to tell.
                let _ = self.remove_cache();
            }
        }
        if result.is_err() {
            self.distrust_tree(before);
        }
        result
    }

    fn capture_locked(
        &mut self,
        store: &Store,
        scope: &Scope,
        why: &Why,
        cx: &Context<'_>,
    ) -> Result<Captured> {
        let within = if why.trigger.may_exceed_the_quota() {
            Within::Anything
        } else if why.trigger == Trigger::Save {
            Within::Asked
        } else {
            Within::Budget
        };
        if why.trigger == Trigger::Save {
            // It promises more than others: that all of it is there.
            self.doubts = true;
        }
        let mut writer = store.writer();
        let look = self.look_into(&writer, store, scope, within, cx)?;
        let captured = |id, created, outcome: ScanOutcome| Captured {
            id,
            created,
            still_dirty: outcome.still_dirty,
            changed: outcome.changed,
        };
        if let Some(position) = self.record.position
            && self.is_position(look.snapshot)
            && !why.makes_one_anyway()
            && !(why.trigger == Trigger::Save && self.leaves_out_more(position))
        {
            // The store has all of it: the position holds it, if that is on record.
            self.finish_look(writer, store, look.snapshot)?;
            let is_asked = self.doubts || why.trigger == Trigger::BeforeCommand;
            if !is_asked || self.position_holds(store, look.snapshot, cx.now)? {
                self.doubts = false;
                // What was said since is saved with it, when that was asked for; one that was rewound to stays as it was.
                if why.trigger == Trigger::Save && position == self.record.highest {
                    self.refresh_talk(store, position, cx.now);
                }
                return Ok(captured(position, false, look.outcome));
            }
            writer = store.writer();
        } else if !writer.is_readable() {
            // So many objects that a second barrier is nothing beside them.
            self.finish_look(writer, store, look.snapshot)?;
            writer = store.writer();
        }
        require_stored(store, look.snapshot, |part| {
            Ok(writer.is_new(part) || store.has(part)?)
        })?;
        let id = self.publish_with(writer, store, look.snapshot, why, None, &[], cx.now)?;
        self.tree.saved();
        self.memory = Some(look.snapshot);
        self.doubts = false;
        Ok(captured(id, true, look.outcome))
    }

    /// Whether something isn't captured that checkpoint `n` doesn't name as left out. A rewind to it would take what is there
    /// later for new, and remove it.
    fn leaves_out_more(&self, n: u64) -> bool {
        let now = self.tree.not_captured();
        if now.is_empty() {
            return false;
        }
        // One that can't be read names nothing.
        let then = self.not_captured(Some(n)).unwrap_or_default();
        // What was forgotten stands in the root's record, whatever a checkpoint names.
        let counts = |entry: &NotCaptured| entry.reason != Reason::Forgotten && !restore::is_leftover(entry);
        now.iter()
            .any(|entry| counts(entry) && !is_left_out(&then, &entry.path))
    }

    /// Whether the position recorded just this.
    pub(super) fn is_position(&self, snapshot: Snapshot) -> bool {
        self.record
            .position
            .and_then(|n| self.checkpoint(n).ok())
            .is_some_and(|c| c.snapshot == snapshot)
    }

    /// What a checkpoint leaves out, or the tree in memory.
    ///
    /// # Errors
    /// [`Error::NoSuchCheckpoint`]; [`Error::Damaged`] when its side record can't be read.
    pub fn not_captured(&self, n: Option<u64>) -> Result<Vec<NotCaptured>> {
        match n {
            None => Ok(match &self.resting {
                Some(resting) => resting.not_captured.clone(),
                None => self.tree.not_captured(),
            }),
            Some(n) => Ok(Side::load(&self.store, self.id(), self.checkpoint(n)?.n)?.not_captured),
        }
    }

    /// Whether a git command is changing the root's repository right now.
    #[must_use]
    pub fn index_locked(&self) -> bool {
        head::git_dir(&self.path).is_some_and(|dir| dir.join("index.lock").exists())
    }
}

/// Whether a list of what isn't captured, sorted by path, has `path` or a directory above it.
pub(super) fn is_left_out(list: &[NotCaptured], path: &TreePath) -> bool {
    let listed = |path: &TreePath| list.binary_search_by(|left_out| left_out.path.cmp(path)).is_ok();
    let mut at = path.clone();
    while !listed(&at) {
        match at.split_last() {
            Some((above, _)) => at = above,
            None => return false,
        }
    }
    true
}
