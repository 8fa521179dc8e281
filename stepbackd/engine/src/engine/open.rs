//! Opening a root: its records are read from the store, damaged ones named and passed over.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::attach::pins_prefix;
use super::{Budget, Engine, Environment, Settings};
use crate::checkpoint::{self, Checkpoint};
use crate::conversation::book::Book;
use crate::error::Result;
use crate::locate::{self, KnownRoot};
use crate::noise::Noise;
use crate::oid::Oid;
use crate::record::number;
use crate::redo::{self, RedoEntry};
use crate::session::{self, Session};
use crate::side;
use crate::state::RootRecord;
use crate::store::{Finding, Store};
use crate::tree::Tree;

impl Engine {
    pub(super) fn load(env: &Environment, store: &Path, id: &str, settings: &Settings) -> Result<Self> {
        let store = Store::open(store)?;
        let record = locate::read_record(&store, id)?;
        Self::with_record(env, store, record, settings)
    }

    /// As [`Self::load`], of a root whose record may have been built anew.
    pub(super) fn load_known(env: &Environment, known: &KnownRoot, settings: &Settings) -> Result<Self> {
        Self::with_record(env, Store::open(&known.store)?, known.record.clone(), settings)
    }

    /// As [`Self::load`], of a root whose record is known.
    pub(super) fn with_record(
        env: &Environment,
        store: Store,
        mut record: RootRecord,
        settings: &Settings,
    ) -> Result<Self> {
        let id = record.head.root.clone();
        let id = id.as_str();
        let mut damage = Damage::default();
        let mut checkpoints = damage.load(&store, &checkpoint::refs_prefix(id), |name, commit| {
            Checkpoint::load(&store, id, name, commit)
        })?;
        checkpoints.sort_by_key(|c| c.n);
        // The record isn't written with each checkpoint: the newest one is what the tree stood on last.
        if let Some(newest) = checkpoints.last()
            && newest.n > record.highest
        {
            record.highest = newest.n;
            record.position = Some(newest.n);
        }
        damage.missing(&store, id, &checkpoints, record.highest)?;
        let pins_prefix = pins_prefix(id);
        let pins = damage
            .load(&store, &pins_prefix, |name, _| Ok(number(name)))?
            .into_iter()
            .flatten()
            .collect();
        let mut redo = damage.load(&store, &redo::refs_prefix(id), |_, commit| {
            RedoEntry::load(&store, commit)
        })?;
        redo.sort_by_key(|e| std::cmp::Reverse(e.k));
        let mut sessions = damage.load(&store, &session::refs_prefix(id), |_, commit| {
            Session::load(&store, commit)
        })?;
        sessions.sort_by_key(|s| (s.started, s.start));
        // What is damaged keeps its number, too.
        record.highest = record.highest.max(damage.highest(&checkpoint::refs_prefix(id)));
        let highest_redo = redo
            .first()
            .map_or(0, |e| e.k)
            .max(damage.highest(&redo::refs_prefix(id)));
        record.highest_redo = record.highest_redo.max(highest_redo);
        let path = record.path.0.clone();
        let mut engine = Self {
            env: env.clone(),
            settings: settings.clone(),
            store: Arc::new(store),
            copied: None,
            may_heal: false,
            losses: 0,
            doubts: true,
            written: None,
            record,
            path,
            tree: Tree::new(),
            memory: None,
            resting: None,
            cached: Cell::default(),
            budget: Budget::default(),
            moment_of_age: None,
            forced: false,
            rules: None,
            checkpoints,
            pins,
            redo,
            sessions,
            damaged: damage.found,
            noise: Noise::default(),
            uncovered: Vec::new(),
            mounted: Default::default(),
            astray: Default::default(),
            book: Book::default(),
        };
        engine.reload_tree();
        engine.noise = std::fs::read(engine.noise_file())
            .map(|bytes| Noise::of_bytes(&bytes))
            .unwrap_or_default();
        Ok(engine)
    }

    /// Takes the tree in memory from the cache again, or forgets it: after a failure it may name objects that never
    /// became durable.
    pub(super) fn reload_tree(&mut self) {
        self.tree = Tree::load(&self.cache_file(), self.id()).unwrap_or_default();
        self.memory = None;
        self.resting = None;
    }
}

/// Refs whose records can't be read: they are named, and hold up nothing else.
#[derive(Default)]
struct Damage {
    found: Vec<Finding>,
}

impl Damage {
    /// Reads what each ref below `prefix` points to.
    fn load<T>(
        &mut self,
        store: &Store,
        prefix: &str,
        read: impl Fn(&str, Oid) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut all = Vec::new();
        for (name, found) in store.all_refs(prefix)? {
            match found.map(|oid| read(&name, oid)) {
                Ok(Ok(record)) => all.push(record),
                Ok(Err(error)) => self.found.push(Finding::of_record(name, error.to_string())),
                Err(how) => self.found.push(Finding::of_record(name, how)),
            }
        }
        Ok(all)
    }

    /// Names the checkpoints of which only the side record is there. The one of the very last side record, when `highest` doesn't
    /// know it, never was: a crash came before its ref.
    fn missing(&mut self, store: &Store, id: &str, known: &[Checkpoint], highest: u64) -> Result<()> {
        let prefix = checkpoint::refs_prefix(id);
        let damaged: Vec<u64> = self.found.iter().filter_map(|f| number(&f.what)).collect();
        let sides = store.all_refs(&side::refs_prefix(id))?;
        let sides: BTreeSet<u64> = sides.keys().filter_map(|name| number(name)).collect();
        let made = highest.max(sides.last().map_or(0, |last| last.saturating_sub(1)));
        for n in sides.range(..=made).copied().filter(|n| !damaged.contains(n)) {
            if known.binary_search_by_key(&n, |c| c.n).is_err() {
                let missing =
                    Finding::of_record(format!("{prefix}{n}"), "is missing; its side record is there");
                self.found.push(missing);
            }
        }
        Ok(())
    }

    /// The highest number among the damaged refs below `prefix`.
    fn highest(&self, prefix: &str) -> u64 {
        let below = self.found.iter().filter(|f| f.what.starts_with(prefix));
        below.filter_map(|f| number(&f.what)).max().unwrap_or(0)
    }
}
