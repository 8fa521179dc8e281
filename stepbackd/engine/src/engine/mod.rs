//! The engine of one root: what the daemon calls. Each file here is one group of commands.
//!
//! | file | what |
//! |---|---|
//! | `astray` | mount points without their mounts, and mounts over captured files |
//! | `attach` | find or make a root, its presence, forget it |
//! | `open` | read a root's records from its store |
//! | `capture` | make a checkpoint of what differs |
//! | `look` | bring the tree in memory up to date with the disk |
//! | `publish` | write a checkpoint and the root's record |
//! | `mend` | the position's own records: whether they are there, writing them anew |
//! | `query` | resolve ids, list, cat, diff, tar |
//! | `gone` | roots whose directory is gone |
//! | `operate` | preview and execute what writes below the root |
//! | `operation` | from an operation to its plan |
//! | `redo_stack` | what redo takes from |
//! | `aftermath` | checkpoints of what is there after an operation |
//! | `recover` | finish or undo an operation that was interrupted |
//! | `sessions` | open, end, sum up |
//! | `verify` | check everything; what of the damage the disk can mend |
//! | `watchful` | files that cost too much, ignore files that went away |
//! | `prune` | pin, drop, and what goes with time |
//! | `forget` | purge paths from everything |
//! | `rest` | give the tree's memory back |
//! | `keep_talk` | keep conversations of agents with checkpoints |
//! | `talk` | put conversations back |
//! | `budget` | how much disk a root's checkpoints may use |
//! | `stores` | which store holds what |

mod aftermath;
mod astray;
mod attach;
mod budget;
mod capture;
mod forget;
mod gone;
mod keep_talk;
mod look;
mod mend;
mod open;
mod operate;
mod operation;
mod prune;
mod publish;
mod query;
mod recover;
mod redo_stack;
mod rest;
mod sessions;
mod stores;
mod talk;
mod talk_steps;
mod verify;
mod watchful;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use attach::{AttachRequest, Deleted, Found, Presence, Whereabouts};
pub use budget::{Budget, Usage};
pub use capture::{Captured, Scope, TurnLabel, Why};
pub use forget::Forgotten;
pub use gone::GoneRoot;
pub use operate::{Operation, Preview, Report};
pub use prune::Dropped;
pub use query::{Diff, Select, Side, Sides};
pub use recover::Recovered;
pub use sessions::SessionSummary;
pub use stores::StoreUse;
pub use watchful::Uncovered;

use crate::checkpoint::Checkpoint;
use crate::conversation::Homes;
use crate::conversation::book::Book;
pub use crate::diff::patch::LineCounts;
use crate::error::{At, Error, Result};
pub use crate::head::GitChange;
use crate::mounts::Astray;
use crate::node::Snapshot;
use crate::noise::Noise;
use crate::path::TreePath;
use crate::progress::Progress;
use crate::redo::RedoEntry;
use crate::rules::{GitEnvironment, Rules};
use crate::session::Session;
use crate::state::RootRecord;
use crate::store::{Finding, Store};
use crate::time::Time;
use crate::tree::{DirWatch, Tree};

/// What the engine may know of the world around it.
#[derive(Debug, Clone)]
pub struct Environment {
    /// STATE: stores are in `stores/`, caches in `cache/`.
    pub state_dir: PathBuf,
    /// Where the socket is, if that is a directory of our own elsewhere.
    pub runtime_dir: Option<PathBuf>,
    /// The user's git.
    pub git: GitEnvironment,
    /// The user's coding agents.
    pub conversations: Homes,
}

impl Environment {
    /// The directories that are stepback's own: no root holds them or is in them.
    pub(crate) fn own_dirs(&self) -> impl Iterator<Item = &Path> {
        let runtime = self.runtime_dir.as_deref();
        std::iter::once(self.state_dir.as_path()).chain(runtime)
    }
}

/// Effective settings of a root: those of the config file. What was given to `attach` is in the root's record and wins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Include patterns.
    pub include: Vec<String>,
    /// Files above so many bytes are left out.
    pub max_file_size: u64,
    /// Conversations of coding agents are kept and put back.
    pub conversations: bool,
}

/// For one job: the moment, who wants to know of directories, who counts.
pub struct Context<'a> {
    /// Now.
    pub now: Time,
    /// Told of captured directories before they are listed.
    pub watch: &'a dyn DirWatch,
    /// Counts, and may cancel.
    pub progress: &'a Progress,
}

/// The engine of one root. Synchronous; owned by one thread.
pub struct Engine {
    env: Environment,
    settings: Settings,
    budget: Budget,
    /// By which moment checkpoints have their age, if not by that of the job.
    moment_of_age: Option<Time>,
    /// The size of the directory doesn't matter at its first capture.
    forced: bool,
    store: Arc<Store>,
    record: RootRecord,
    /// What the copy of the record says, once this engine has written it.
    copied: Option<RootRecord>,
    /// A damaged object that something fails by has all read and written anew.
    may_heal: bool,
    /// How often the store had lost packs when the tree in memory was compared with it.
    losses: usize,
    /// The store may have lost something: the next look compares the names of what is taken as stored, the next capture looks
    /// at the position's records.
    doubts: bool,
    /// The root's record as the store has it; `None` when that isn't known.
    written: Option<RootRecord>,
    path: PathBuf,
    tree: Tree,
    /// What `tree` was persisted as last.
    memory: Option<Snapshot>,
    /// The tree isn't in memory: it waits in the cache.
    resting: Option<rest::Resting>,
    /// What the cache file holds, if that is known.
    cached: Cell<Option<Snapshot>>,
    rules: Option<Rules>,
    /// Oldest first.
    checkpoints: Vec<Checkpoint>,
    pins: BTreeSet<u64>,
    /// Latest first.
    redo: Vec<RedoEntry>,
    /// Opened first in front.
    sessions: Vec<Session>,
    /// Refs whose records could not be read when the root was opened.
    damaged: Vec<Finding>,
    noise: Noise,
    uncovered: Vec<Uncovered>,
    /// Mount points in the root at the last look.
    mounted: BTreeSet<TreePath>,
    astray: BTreeMap<TreePath, Astray>,
    /// What is known of the agents' sessions.
    book: Book,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("id", &self.id())
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// The root's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.record.head.root
    }

    /// The root's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The store's directory.
    #[must_use]
    pub fn store_path(&self) -> &Path {
        self.store.path()
    }

    /// Disk use of the store, in bytes.
    ///
    /// # Errors
    /// When the store can't be walked.
    pub fn store_bytes(&self) -> Result<u64> {
        // What was given up on a full disk may have room again.
        let _ = self.store.restore_reserve();
        self.store.disk_bytes()
    }

    /// Captured files, links and FIFOs in the tree in memory.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.resting
            .as_ref()
            .map_or_else(|| self.tree.files(), |resting| resting.files)
    }

    /// All checkpoints, oldest first.
    #[must_use]
    pub fn checkpoints(&self) -> &[Checkpoint] {
        &self.checkpoints
    }

    /// Refs of this root whose records could not be read when it was opened. Everything else is usable.
    #[must_use]
    pub fn damaged(&self) -> &[Finding] {
        &self.damaged
    }

    /// Those of them that are checkpoints.
    pub fn damaged_checkpoints(&self) -> impl Iterator<Item = &Finding> {
        let prefix = crate::checkpoint::refs_prefix(self.id());
        self.damaged
            .iter()
            .filter(move |finding| finding.what.starts_with(&prefix))
    }

    /// Whether the checkpoint is kept for ever.
    #[must_use]
    pub fn pinned(&self, n: u64) -> bool {
        self.pins.contains(&n)
    }

    /// The redo stack, latest first.
    #[must_use]
    pub fn redo_stack(&self) -> &[RedoEntry] {
        &self.redo
    }

    /// The checkpoint that the tree stands on.
    #[must_use]
    pub const fn position(&self) -> Option<u64> {
        self.record.position
    }

    /// The checkpoint of this number.
    ///
    /// # Errors
    /// [`Error::NoSuchCheckpoint`].
    pub fn checkpoint(&self, n: u64) -> Result<&Checkpoint> {
        self.checkpoints
            .binary_search_by_key(&n, |c| c.n)
            .map(|at| &self.checkpoints[at])
            .map_err(|_| self.why_not(n))
    }

    /// The ref of checkpoint `n`, if its record can't be read.
    fn damaged_ref(&self, n: u64) -> Option<String> {
        self.damage_of(n).map(|damaged| damaged.what.clone())
    }

    fn damage_of(&self, n: u64) -> Option<&Finding> {
        let prefix = crate::checkpoint::refs_prefix(self.id());
        let ending = format!("/{n}");
        self.damaged
            .iter()
            .find(|f| f.what.starts_with(&prefix) && f.what.ends_with(&ending))
    }

    /// Why a number can't be had: its record is damaged, or there is none.
    fn why_not(&self, n: u64) -> Error {
        match self.damage_of(n) {
            Some(damaged) => Error::Damaged {
                store: self.store.path().to_owned(),
                what: format!("checkpoint {n} ({}): {}", damaged.what, damaged.how),
            },
            None => Error::NoSuchCheckpoint(n.to_string()),
        }
    }

    /// Takes over settings; those that change what is captured take effect at the next capture.
    pub fn set_settings(&mut self, settings: &Settings) {
        if *settings != self.settings {
            self.settings = settings.clone();
            self.rules = None;
        }
    }

    fn max_file_size(&self) -> u64 {
        self.record.max_file_size.unwrap_or(self.settings.max_file_size)
    }

    /// Patterns of the built-in list that leave something out here.
    #[must_use]
    pub fn builtin_hits(&self) -> Vec<String> {
        self.rules.as_ref().map(Rules::builtin_hits).unwrap_or_default()
    }

    /// What people should know of the rules: git isn't installed, though it is needed here.
    #[must_use]
    pub fn rule_notes(&self) -> Vec<String> {
        self.rules.as_ref().map(Rules::notes).unwrap_or_default()
    }

    fn cache_file(&self) -> PathBuf {
        self.env
            .state_dir
            .join("cache")
            .join(format!("{}.tree", self.id()))
    }

    fn noise_file(&self) -> PathBuf {
        self.cache_file().with_extension("noise")
    }

    /// Saves the tree in memory, so that the next start needs only look at stats. Losing it costs time, nothing else.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn save_cache(&self) -> Result<()> {
        if self.resting.is_some() {
            // It waits in the cache already.
            return Ok(());
        }
        let file = self.cache_file();
        if let Some(dir) = file.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir)
                .at(dir)?;
        }
        self.cached.set(None);
        self.tree.save(&file, self.id())?;
        self.cached.set(self.memory);
        if !self.noise.is_empty() {
            crate::tree::cache::replace(&self.noise_file(), &self.noise.to_bytes())?;
        }
        Ok(())
    }

    /// Whether checkpoints were made since the root's record was written: for a while they alone tell of themselves.
    #[must_use]
    pub fn is_record_behind(&self) -> bool {
        self.written
            .as_ref()
            .is_some_and(|written| *written != self.record)
    }

    /// Removes what [`Self::save_cache`] saved.
    fn remove_cache(&self) -> Result<()> {
        let file = self.noise_file();
        match std::fs::remove_file(&file) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e).at(file),
            _ => {}
        }
        let file = self.cache_file();
        match std::fs::remove_file(&file) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e).at(file),
            _ => {
                self.cached.set(None);
                Ok(())
            }
        }
    }

    /// Bases by checkpoint, for walking along them.
    fn bases(&self) -> BTreeMap<u64, Option<u64>> {
        self.checkpoints.iter().map(|c| (c.n, c.base)).collect()
    }
}
