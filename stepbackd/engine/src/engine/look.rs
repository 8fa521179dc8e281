//! Looking at the disk: the tree in memory is brought up to date, its new objects are written.

use super::{Context, Engine, Presence, Scope};
use crate::error::{Error, Result, damaged_object};
use crate::node::Snapshot;
use crate::oid::Oid;
use crate::path::is_temporary;
use crate::place_check;
use crate::root::DirHandle;
use crate::rules::{Rules, Stale};
use crate::state;
use crate::store::{ObjectWriter, Store};
use crate::tree::{Limits, ScanContext, ScanOutcome};

/// What a look may add to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Within {
    /// As much as it finds: what an operation is about to change is saved in any case.
    Anything,
    /// New contents only as far as the budget goes.
    Budget,
    /// The same, for somebody who asks for it: small changes may use half of what is to stay free.
    Asked,
}

/// A look at the disk: the tree in memory is up to date, and its objects are durable.
pub(super) struct Look {
    pub snapshot: Snapshot,
    pub outcome: ScanOutcome,
}

/// What is found in a worktree inside a git directory may name further ones, so often at most.
const GIT_DIR_LOOKS_MAX: usize = 8;

impl Engine {
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
    pub(super) fn finish_look(
        &mut self,
        writer: ObjectWriter<'_>,
        store: &Store,
        snapshot: Snapshot,
    ) -> Result<()> {
        writer.finish()?;
        self.tree.saved();
        require_stored(store, snapshot, |part| store.has(part))?;
        self.memory = Some(snapshot);
        Ok(())
    }

    /// Brings the tree in memory up to date. Its new objects are in `writer`, which is yet to be finished.
    pub(super) fn look_into(
        &mut self,
        writer: &ObjectWriter<'_>,
        store: &Store,
        scope: &Scope,
        within: Within,
        cx: &Context<'_>,
    ) -> Result<Look> {
        store.notice_lost_packs()?;
        self.wake();
        self.compare_with_store(store)?;
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
        // `attach` refuses roots around them, but a mount may bring them in later.
        rules.leave_out_dirs(place_check::which(self.env.own_dirs()));
        let mut outcome = match (scope, stale) {
            (Scope::All, Stale::Nothing) => {
                self.tree
                    .scan_again(&scan_context(&root, rules, writer, max_file_size, &limits, cx))?
            }
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

    /// Forgets the tree in memory if the store, by the names that it lists, hasn't all that it had: then everything is read
    /// and written anew. Asked when packs went, which maintenance does, too, when the tree is that of the cache, and for a
    /// save.
    fn compare_with_store(&mut self, store: &Store) -> Result<()> {
        let losses = store.pack_losses();
        let is_due = self.doubts || losses != self.losses || self.memory.is_none();
        if is_due && !self.tree.is_stored(&|oid| store.lists(oid))? {
            self.forget_tree();
        }
        if is_due {
            self.doubts = true;
            if !self.has_record(store)? {
                self.written = None;
            }
        }
        self.losses = losses;
        Ok(())
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
pub(super) fn require_stored(
    store: &Store,
    snapshot: Snapshot,
    has: impl Fn(Oid) -> Result<bool>,
) -> Result<()> {
    for part in [snapshot.tree, snapshot.side] {
        if !has(part)? {
            return Err(damaged_object(store.path(), part, "is missing"));
        }
    }
    Ok(())
}
