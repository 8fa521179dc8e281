//! Opening a root: its records are read from the store, damaged ones named and passed over.

use std::path::Path;
use std::sync::Arc;

use super::attach::pins_prefix;
use super::{Engine, Environment, Settings};
use crate::checkpoint::{self, Checkpoint};
use crate::error::{Error, Result};
use crate::noise::Noise;
use crate::oid::Oid;
use crate::record;
use crate::redo::{self, RedoEntry};
use crate::session::{self, Session};
use crate::state::{self, RootRecord};
use crate::store::{Finding, Store};
use crate::tree::Tree;

impl Engine {
    pub(super) fn load(env: &Environment, store: &Path, id: &str, settings: &Settings) -> Result<Self> {
        let store = Store::open(store)?;
        let name = state::ref_name(id);
        let record_commit = store.read_ref(&name)?.ok_or_else(|| Error::Damaged {
            store: store.path().to_owned(),
            what: format!("{name} is missing"),
        })?;
        let mut record: RootRecord =
            record::parse(&store, record_commit, &store.read_commit(record_commit)?.message)?;
        let mut damage = Damage::default();
        let mut checkpoints = damage.load(&store, &checkpoint::refs_prefix(id), |name, commit| {
            Checkpoint::load(&store, id, name, commit)
        })?;
        checkpoints.sort_by_key(|c| c.n);
        // A crash between a checkpoint's ref and the record: the checkpoint is what the tree stood on last.
        if let Some(newest) = checkpoints.last()
            && newest.n > record.highest
        {
            record.highest = newest.n;
            record.position = Some(newest.n);
        }
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
            record,
            path,
            tree: Tree::new(),
            memory: None,
            resting: None,
            rules: None,
            checkpoints,
            pins,
            redo,
            sessions,
            damaged: damage.found,
            noise: Noise::default(),
            uncovered: Vec::new(),
        };
        engine.reload_tree();
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
                Ok(Err(error)) => self.found.push(Finding {
                    what: name,
                    how: error.to_string(),
                }),
                Err(how) => self.found.push(Finding { what: name, how }),
            }
        }
        Ok(all)
    }

    /// The highest number among the damaged refs below `prefix`.
    fn highest(&self, prefix: &str) -> u64 {
        let below = self.found.iter().filter(|f| f.what.starts_with(prefix));
        below.filter_map(|f| number(&f.what)).max().unwrap_or(0)
    }
}

/// The number in which a ref's name ends.
fn number(name: &str) -> Option<u64> {
    name.rsplit('/').next()?.parse().ok()
}
