//! Making checkpoints: scan, persist, publish.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Context, Engine, Presence, attach};
use crate::checkpoint::{self, Checkpoint, Counts, Trigger};
use crate::conversation::{self, SessionId};
use crate::diff::{self, Change, Status};
use crate::error::{Error, Result, damaged_object};
use crate::head::{self, GitHead};
use crate::node::{NotCaptured, Reason, Snapshot};
use crate::path::{TreePath, is_temporary};
use crate::record;
use crate::restore;
use crate::root::DirHandle;
use crate::rules::{Rules, Stale};
use crate::salvage;
use crate::session;
use crate::side::{self, Side};
use crate::state;
use crate::store::{Expected, ObjectWriter, Objects, RefChange, Store, TreeEntry, write_tree};
use crate::tree::{Limits, ScanContext, ScanOutcome};
use crate::{oid::Oid, time::Time};

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

/// What a look may add to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Within {
    /// As much as it finds: what an operation is about to change is saved in any case.
    Anything,
    /// Large new contents only as far as the budget goes.
    Budget,
}

/// A look at the disk: the tree in memory is up to date, and its objects are durable.
pub(super) struct Look {
    pub snapshot: Snapshot,
    pub outcome: ScanOutcome,
}

/// What is found in a worktree inside a git directory may name further ones, so often at most.
const GIT_DIR_LOOKS_MAX: usize = 8;

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
        let mut result = work(self, false);
        if matches!(result, Err(Error::Damaged { .. })) {
            before = Some(self.told());
            self.forget_tree();
            result = work(self, true);
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
        } else {
            Within::Budget
        };
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
            // The store has all of it: the position holds it. What was said since is saved with it, when that was asked for;
            // one that was rewound to stays as it was.
            self.finish_look(writer, store, look.snapshot)?;
            if why.trigger == Trigger::Save && position == self.record.highest {
                self.refresh_talk(store, position, cx.now);
            }
            return Ok(captured(position, false, look.outcome));
        }
        if !writer.is_readable() {
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

    /// What is said of a root that isn't there.
    pub(super) fn missing(&self) -> Error {
        if self.record.mount_point {
            Error::NotMounted(self.path.clone())
        } else {
            Error::RootMissing(self.path.clone())
        }
    }

    pub(super) fn require_presence(&self) -> Result<()> {
        match self.presence() {
            Presence::Here => Ok(()),
            Presence::Missing => Err(self.missing()),
            Presence::Replaced => Err(Error::RootReplaced(self.path.clone())),
        }
    }

    /// Opens the root, if it is the directory that was attached.
    pub(super) fn open_root(&self) -> Result<DirHandle> {
        state::open_root(&self.path, self.record.identity).or_else(|error| {
            // A mount point without its mount is another directory, and missing.
            self.require_presence()?;
            Err(error)
        })
    }

    /// Brings the tree in memory up to date and writes its new objects.
    ///
    /// # Errors
    /// [`Error::Damaged`] when the store has lost what the tree in memory relied on: see [`Self::healing`].
    pub(super) fn look(
        &mut self,
        store: &Store,
        scope: &Scope,
        within: Within,
        cx: &Context<'_>,
    ) -> Result<Look> {
        let writer = store.writer();
        let look = self.look_into(&writer, store, scope, within, cx)?;
        self.finish_look(writer, store, look.snapshot)?;
        Ok(look)
    }

    /// Makes what [`Self::look_into`] found durable.
    fn finish_look(&mut self, writer: ObjectWriter<'_>, store: &Store, snapshot: Snapshot) -> Result<()> {
        writer.finish()?;
        self.tree.saved();
        require_stored(store, snapshot, |part| store.has(part))?;
        self.memory = Some(snapshot);
        Ok(())
    }

    /// Brings the tree in memory up to date. Its new objects are in `writer`, which is yet to be finished.
    fn look_into(
        &mut self,
        writer: &ObjectWriter<'_>,
        store: &Store,
        scope: &Scope,
        within: Within,
        cx: &Context<'_>,
    ) -> Result<Look> {
        store.notice_lost_packs()?;
        self.wake();
        let limits = self.limits(within)?;
        let root = self.open_root()?;
        let stale = match self.refresh_rules()? {
            // The tree is that of the cache, if any: older than what the caller has been told of since.
            _ if self.memory.is_none() => Stale::All,
            stale => stale,
        };
        let mounts_changed = self.refresh_mounts(store)?;
        let max_file_size = self.max_file_size();
        let rules = self.rules.as_mut().expect("refreshed right above");
        rules.leave_out(self.astray.keys());
        let mut outcome = match (scope, stale) {
            (Scope::All, _) | (_, Stale::All) => {
                self.tree
                    .scan(&scan_context(&root, rules, writer, max_file_size, &limits, cx))?
            }
            (Scope::Paths(dirty), stale) => {
                let mut dirty = dirty.clone();
                dirty.extend(mounts_changed);
                if let Stale::Paths(more) = stale {
                    dirty.extend(more);
                }
                // No event tells when what an operation had left goes.
                let listed = self.tree.not_captured().into_iter().map(|entry| entry.path);
                dirty.extend(
                    listed.filter(|path| path.split_last().is_some_and(|(_, name)| is_temporary(name))),
                );
                self.tree.update(
                    &dirty,
                    &scan_context(&root, rules, writer, max_file_size, &limits, cx),
                )?
            }
        };
        // A `.git` may name a directory that was looked at before it was met.
        for _ in 0..GIT_DIR_LOOKS_MAX {
            let dirty = rules.settle_git_dirs();
            if dirty.is_empty() {
                break;
            }
            self.tree.look_further(
                &dirty,
                &scan_context(&root, rules, writer, max_file_size, &limits, cx),
                &mut outcome,
            )?;
        }
        if self.record.git_dirs != *rules.git_dirs() {
            self.record.git_dirs.clone_from(rules.git_dirs());
        }
        // What was looked at may have been on its way out.
        self.require_presence()?;
        if self.record.highest == 0 {
            self.record.modes = self.tree.common_modes();
        }
        let snapshot = self.tree.persist(writer, &self.record.modes)?;
        Ok(Look { snapshot, outcome })
    }

    /// Re-reads the rules from outside the tree if they changed; says what must be looked at anew because of it.
    pub(super) fn refresh_rules(&mut self) -> Result<Stale> {
        if let Some(rules) = &mut self.rules {
            return rules.refresh();
        }
        let mut include = self.settings.include.clone();
        include.extend(self.record.include.iter().cloned());
        let mut rules = Rules::of_disk(
            &self.path,
            &self.env.git,
            &include,
            self.max_file_size(),
            &self.record.forgotten,
        )?;
        rules.know_git_dirs(&self.record.git_dirs);
        if !self.settings.conversations {
            rules.take_conversations();
        }
        self.rules = Some(rules);
        Ok(Stale::All)
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
    fn publish_with(
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
        // A damaged base counts as none: the present must become a checkpoint all the same.
        let base = self
            .record
            .position
            .and_then(|n| self.checkpoint(n).ok())
            .map(|c| c.snapshot);
        let (changes, base) = match self.changes(&writer, base, snapshot) {
            Err(Error::Damaged { .. }) if base.is_some() => (self.changes(&writer, None, snapshot)?, None),
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
            agent: turn.as_ref().map(|turn| turn.agent.clone()),
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
        checkpoint.conversation = self.keep_talk(store, &checkpoint, sessions);
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
            // The checkpoint and its side record hold the tree in memory.
            let record = self.write_record_commit(&writer, snapshot.tree, now)?;
            let refs = [
                (side::ref_name(&id, n), side, Expected::Any),
                (
                    checkpoint::ref_name(&id, &checkpoint.session, n),
                    checkpoint.commit,
                    Expected::Absent,
                ),
                (state::ref_name(&id), record, Expected::Any),
            ];
            let changes = refs.each_ref().map(|(name, new, expected)| RefChange {
                name,
                new: *new,
                expected: *expected,
            });
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
        refs.publish_lazily()?;
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
    pub(super) fn write_record(&mut self, now: Time) -> Result<()> {
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
        let part = salvage::constant_part(&self.record);
        if self.copied.as_ref() != Some(&part) {
            salvage::keep_copy(&store.root_dir(self.id())?, &part)?;
            self.copied = Some(part);
        }
        Ok(())
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

fn scan_context<'a>(
    root: &'a DirHandle,
    rules: &'a Rules,
    writer: &'a ObjectWriter<'a>,
    max_file_size: u64,
    limits: &'a Limits,
    cx: &'a Context<'_>,
) -> ScanContext<'a> {
    ScanContext {
        root,
        rules,
        writer,
        max_file_size,
        now: cx.now,
        watch: cx.watch,
        progress: cx.progress,
        limits,
    }
}

/// The cache may name objects that somebody has deleted from the store since.
fn require_stored(store: &Store, snapshot: Snapshot, has: impl Fn(Oid) -> Result<bool>) -> Result<()> {
    for part in [snapshot.tree, snapshot.side] {
        if !has(part)? {
            return Err(damaged_object(store.path(), part, "is missing"));
        }
    }
    Ok(())
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
