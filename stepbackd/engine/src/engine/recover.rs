//! Operations that were interrupted: what is known of them, and finishing or undoing them.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::operation::Expected;
use super::talk::TalkEnding;
use super::{Context, Engine, Presence, Scope, Why, attach};
use crate::checkpoint::Trigger;
use crate::durable;
use crate::error::{At, Error, Result};
use crate::oid::Oid;
use crate::redo::{self, RedoEntry};
use crate::restore::{self, JournalHeader, Kept, OperationKind};
use crate::session;
use crate::state::{self, Sighting};
use crate::store::{Expected as Ref, Finding, Store};

/// How `recover` ended.
#[derive(Debug)]
pub struct Recovered {
    /// What was interrupted; `None`: nothing was.
    pub interrupted: Option<JournalHeader>,
    /// Left alone.
    pub kept: Vec<Kept>,
    /// For people.
    pub notes: Vec<String>,
}

/// What the journal keeps for us: where the tree stands once the operation is finished, or undone.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ending {
    /// The checkpoint that holds the state before.
    pub before: u64,
    /// The checkpoint whose state the operation ends in, unless it ends in none.
    pub ends_at: Option<u64>,
    /// The root wasn't there.
    pub makes_root: bool,
    /// The commit of the redo entry that a redo uses up, or that any other operation has made.
    #[serde(default)]
    pub entry: Option<Oid>,
    /// Conversations that are put back after the files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub talk: Option<TalkEnding>,
}

impl Engine {
    /// The operation that a crash interrupted, if one is neither finished nor undone.
    ///
    /// # Errors
    /// When its journal can't be read.
    pub fn unfinished(&self) -> Result<Option<JournalHeader>> {
        restore::unfinished(&self.store.root_dir(self.id())?)
    }

    /// That no operation is unfinished.
    ///
    /// # Errors
    /// [`Error::Unfinished`]; when the journal can't be read.
    pub fn require_finished(&self) -> Result<()> {
        match self.unfinished()? {
            Some(header) => Err(Error::Unfinished {
                operation: header.operation.name().to_owned(),
                target: header.target,
            }),
            None => Ok(()),
        }
    }

    /// Finishes an interrupted operation, or undoes it. Only paths that hold one of the two recorded versions change.
    ///
    /// # Errors
    /// [`Error::RootMissing`], [`Error::RootReplaced`]; those of the disk and the store: it can be called again.
    pub fn recover(&mut self, undo: bool, cx: &Context<'_>) -> Result<Recovered> {
        let notes = self.clear_the_way(cx)?;
        let mut recovered = self.with_reserve(|engine| engine.recover_once(undo, cx))?;
        recovered.notes.splice(0..0, notes);
        let named: Vec<_> = recovered.kept.iter().map(|kept| kept.path.clone()).collect();
        let left = self.clear_leftovers(cx)?;
        recovered
            .kept
            .extend(left.into_iter().filter(|kept| !named.contains(&kept.path)));
        Ok(recovered)
    }

    /// What operations without a journal left below the root goes, as far as the store has it. Says what stays.
    pub(super) fn clear_leftovers(&mut self, cx: &Context<'_>) -> Result<Vec<Kept>> {
        if self.presence() != Presence::Here || self.unfinished()?.is_some() {
            return Ok(Vec::new());
        }
        let again = |engine: &mut Self| {
            let nothing_new = Scope::Paths(BTreeSet::new());
            engine.capture(nothing_new, &Why::plain(Trigger::AfterOperation), cx)
        };
        if self.memory.is_none() {
            again(self)?;
        }
        let places: Vec<_> = self
            .not_captured(None)?
            .into_iter()
            .filter(restore::is_leftover)
            .map(|entry| entry.path)
            .collect();
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let store = Arc::clone(&self.store);
        let (went, left) = {
            let _lock = store.lock()?;
            restore::clear_leftovers(&self.open_root()?, &store, &places)?
        };
        if went {
            again(self)?;
        }
        Ok(left)
    }

    fn recover_once(&mut self, undo: bool, cx: &Context<'_>) -> Result<Recovered> {
        let store = Arc::clone(&self.store);
        let directory = store.root_dir(self.id())?;
        let Some(header) = restore::unfinished(&directory)? else {
            return Ok(Recovered {
                interrupted: None,
                kept: Vec::new(),
                notes: Vec::new(),
            });
        };
        let ending: Ending = serde_json::from_value(header.data.clone()).map_err(|e| Error::Damaged {
            store: store.path().to_owned(),
            what: format!("the journal of {} can't be read: {e}", self.id()),
        })?;
        if !ending.makes_root {
            self.require_presence()?;
        }
        let _lock = store.lock()?;
        if self.presence() == Presence::Here {
            self.require_mounts(&store, &restore::unfinished_paths(&directory)?)?;
        }
        let recovered = restore::recover(&self.apply_context(&store, &directory, cx), undo)?;
        let Some(recovered) = recovered else {
            return Ok(Recovered {
                interrupted: None,
                kept: Vec::new(),
                notes: Vec::new(),
            });
        };
        if ending.makes_root && self.path.exists() {
            self.note_made_root()?;
        }
        let (mut notes, mut kept) = (recovered.notes, recovered.kept);
        if let Some(talk) = &ending.talk {
            // What can't be done with a conversation holds up no files.
            match self.recover_talk(&store, talk, undo, cx.now) {
                Ok(left) => notes.extend(left),
                Err(e) => notes.push(format!("conversations were left as they are: {e}")),
            }
        }
        let ends_at = if undo { Some(ending.before) } else { ending.ends_at };
        let ends_at = ends_at.and_then(|n| self.checkpoint(n).ok()).map(|c| Expected {
            checkpoint: c.n,
            snapshot: c.snapshot,
        });
        if self.path.exists() {
            let (rest, touched) = (&recovered.rest, &recovered.touched);
            let result = self
                .keep_overtaken(&store, rest, touched, ends_at, &mut kept, cx)
                .and_then(|()| self.look_after(&store, touched, ends_at, cx));
            if result.is_err() {
                self.distrust_tree(None);
            }
            result?;
        }
        // A redo that is finished has used its entry up; any other operation that is undone needs none.
        if undo != (header.operation == OperationKind::Redo)
            && let Some(k) = header.redo
        {
            self.pop_redo(&store, k)?;
        }
        // The other way round it is needed, and may be gone already: what was interrupted was nearly done, or was recovered.
        if undo == (header.operation == OperationKind::Redo)
            && let Some(entry) = ending.entry
            && let Err(e) = self.push_again(&store, entry)
        {
            notes.push(format!("no redo takes this back: {e}"));
        }
        clear_journal(&directory, &mut notes)?;
        Ok(Recovered {
            interrupted: Some(header),
            kept,
            notes,
        })
    }

    /// Makes sure that an entry is on the stack.
    fn push_again(&mut self, store: &Store, commit: Oid) -> Result<()> {
        let entry = RedoEntry::load(store, commit)?;
        if self.redo.iter().all(|known| known.k != entry.k) {
            store.set_ref(&entry.ref_name(self.id()), commit, Ref::Any)?;
            self.redo.push(entry);
            self.redo.sort_by_key(|entry| std::cmp::Reverse(entry.k));
        }
        Ok(())
    }

    /// Sets aside what can't be read and would stand in the way of every later operation: a damaged journal, damaged redo
    /// entries and sessions, broken lines of packed refs. Says what.
    fn clear_the_way(&mut self, cx: &Context<'_>) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        if let Err(error @ Error::DamagedRecord { .. }) = self.unfinished() {
            let aside = restore::set_aside(&self.store.root_dir(self.id())?)?;
            notes.push(format!(
                "{error}; it is set aside as {}, and what the operation had done stays",
                aside.display()
            ));
            if self.presence() == Presence::Here {
                self.capture(Scope::All, &Why::plain(Trigger::AfterOperation), cx)?;
            }
        }
        if let Some(aside) = self.store.set_broken_refs_aside()? {
            notes.push(format!(
                "the store's packed-refs had lines that can't be read; as it was it is set aside as {}",
                aside.display()
            ));
        }
        let mut findings = self.damaged_records()?;
        for finding in self.unreadable_refs()? {
            if !findings.iter().any(|known| known.what == finding.what) {
                findings.push(finding);
            }
        }
        for finding in findings {
            self.note_set_aside(&finding)?;
            self.store.delete_ref(&finding.what)?;
            self.damaged.retain(|known| known.what != finding.what);
            if let Some(n) = finding.what.strip_prefix(&attach::pins_prefix(self.id())) {
                self.pins.retain(|pinned| pinned.to_string() != n);
            }
            let id = self.id().to_owned();
            self.redo.retain(|entry| entry.ref_name(&id) != finding.what);
            notes.push(format!("{} is set aside: {}", finding.what, finding.how));
        }
        Ok(notes)
    }

    /// Refs that can't be read, of this root but for its checkpoints and its record, and such as belong to no root: they keep
    /// anything from being removed.
    fn unreadable_refs(&self) -> Result<Vec<Finding>> {
        let id = self.id();
        let mut found = self.store.unreadable_refs(&format!("refs/stepback/{id}/"))?;
        found.remove(&state::ref_name(id));
        for space in ["refs/checkpoints/", "refs/stepback/"] {
            let unreadable = self.store.unreadable_refs(space)?;
            let of_none = |name: &str| !name[space.len()..].contains('/');
            found.extend(unreadable.into_iter().filter(|(name, _)| of_none(name)));
        }
        Ok(found
            .into_iter()
            .map(|(what, how)| Finding::of_record(what, how))
            .collect())
    }

    /// Redo entries and sessions that can't be read.
    fn damaged_records(&self) -> Result<Vec<Finding>> {
        let prefixes = [redo::refs_prefix(self.id()), session::refs_prefix(self.id())];
        let is_one = |f: &&Finding| prefixes.iter().any(|prefix| f.what.starts_with(prefix));
        let mut found: Vec<Finding> = self.damaged.iter().filter(is_one).cloned().collect();
        for entry in &self.redo {
            match entry.plan(&self.store) {
                Ok(_) => {}
                Err(error @ Error::Damaged { .. }) => {
                    found.push(Finding::of_record(entry.ref_name(self.id()), error.to_string()));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// A line in `set-aside` of the root's directory in the store, for whoever wants to look into it later.
    fn note_set_aside(&self, finding: &Finding) -> Result<()> {
        let file = self.store.root_dir(self.id())?.join("set-aside");
        let mut text = match fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error).at(&file),
        };
        text.extend_from_slice(format!("{} {}\n", finding.what, finding.how).as_bytes());
        durable::write(&file, &text)
    }

    /// Takes the directory that an operation made in the place of the missing root for the root.
    pub(super) fn note_made_root(&mut self) -> Result<()> {
        let sighting = Sighting::of(&self.path)?.ok_or_else(|| Error::RootMissing(self.path.clone()))?;
        self.note_sighting(&sighting)
    }
}

/// The last step. Once the journal is gone all is done: an error after that is told, and isn't one of the operation.
pub(super) fn clear_journal(directory: &Path, notes: &mut Vec<String>) -> Result<()> {
    match restore::finish(directory) {
        Err(error) if restore::unfinished(directory)?.is_none() => {
            notes.push(format!("all is done; clearing up failed: {error}"));
            Ok(())
        }
        other => other,
    }
}
