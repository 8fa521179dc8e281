//! Operations that were interrupted: what is known of them, and finishing or undoing them.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::operation::Expected;
use super::{Context, Engine};
use crate::error::{Error, Result};
use crate::oid::Oid;
use crate::redo::RedoEntry;
use crate::restore::{self, JournalHeader, Kept, OperationKind};
use crate::state::Sighting;
use crate::store::{Expected as Ref, Store};

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
}

impl Engine {
    /// The operation that a crash interrupted, if one is neither finished nor undone.
    ///
    /// # Errors
    /// When its journal can't be read.
    pub fn unfinished(&self) -> Result<Option<JournalHeader>> {
        restore::unfinished(&self.store.root_dir(self.id())?)
    }

    pub(super) fn require_finished(&self) -> Result<()> {
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
        self.with_reserve(|engine| engine.recover_once(undo, cx))
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
        let recovered = restore::recover(&self.apply_context(&store, &directory, cx), undo)?;
        let Some(mut recovered) = recovered else {
            return Ok(Recovered {
                interrupted: None,
                kept: Vec::new(),
                notes: Vec::new(),
            });
        };
        if ending.makes_root && self.path.exists() {
            self.note_made_root()?;
        }
        let ends_at = if undo { Some(ending.before) } else { ending.ends_at };
        let ends_at = ends_at.and_then(|n| self.checkpoint(n).ok()).map(|c| Expected {
            checkpoint: c.n,
            snapshot: c.snapshot,
        });
        if self.path.exists() {
            let result = self.look_after(&store, &recovered.touched, ends_at, cx);
            if result.is_err() {
                self.reload_tree();
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
            recovered.notes.push(format!("no redo takes this back: {e}"));
        }
        clear_journal(&directory, &mut recovered.notes)?;
        Ok(Recovered {
            interrupted: Some(header),
            kept: recovered.kept,
            notes: recovered.notes,
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
