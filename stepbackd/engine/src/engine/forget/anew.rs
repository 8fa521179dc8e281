//! Writing every record of a root anew, without some paths.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::under_way_ref;
use crate::checkpoint::{self, Checkpoint};
use crate::engine::{Context, Engine, attach};
use crate::error::{Error, Result, damaged_object};
use crate::node::{NotCaptured, Reason, Snapshot};
use crate::oid::{ObjectKind, Oid};
use crate::path::TreePath;
use crate::side::{self, Side};
use crate::store::{ObjectWriter, Store};
use crate::tree::without::{self, Remains, Removed, Without};

/// Of no file: its contents then aren't known to be those of now.
const NOT_AS_NOW: (u64, i64) = (0, i64::MIN);

/// What is learnt while records are written anew.
#[derive(Default)]
pub(super) struct Found {
    pub refs: Vec<(String, Oid)>,
    pub checkpoints: Vec<Checkpoint>,
    pub redo: Vec<crate::redo::RedoEntry>,
    /// Checkpoints that held one of the paths.
    pub held: u64,
    /// Contents that were taken out.
    pub blobs: HashSet<Oid>,
    /// Side tables of both states.
    pub tables: BTreeSet<Oid>,
    /// Records that could not be read.
    pub unreadable: Vec<String>,
}

impl Engine {
    /// Writes every record that holds one of the paths anew.
    pub(super) fn write_without(
        &self,
        store: &Store,
        paths: &[TreePath],
        now: &[(Removed, (u64, i64))],
        cx: &Context<'_>,
    ) -> Result<Found> {
        let sides = self.side_records(store)?;
        let remains = self.strip_all(store, &sides, paths, cx)?;
        let mut found = Found::default();
        let mut seen = HashSet::new();
        for remains in remains.values() {
            for removed in &remains.removed {
                match without::contents(store, removed, &mut found.blobs, &mut seen) {
                    // Contents that can't be named can't be looked for; what is above them goes all the same.
                    Err(Error::Damaged { .. }) => {}
                    other => other?,
                }
            }
        }
        // Every empty file is the same; there is nothing in it to be held.
        found.blobs.remove(&Oid::of(ObjectKind::Blob, b""));
        let writer = store.writer();
        let mut anew = Anew {
            engine: self,
            store,
            writer: &writer,
            paths,
            now,
            remains: &remains,
            sides: HashMap::new(),
        };
        let id = self.id();
        for checkpoint in &self.checkpoints {
            let side = sides.get(&checkpoint.n);
            match anew.checkpoint(checkpoint, side, &mut found) {
                Err(Error::Damaged { .. }) => found.unreadable.push(format!("checkpoint {}", checkpoint.n)),
                other => other?,
            }
        }
        for entry in &self.redo {
            match entry.without(store, &writer, id, &remains, paths) {
                Ok(Some(anew)) => {
                    found.refs.push((anew.ref_name(id), anew.commit));
                    found.redo.push(anew);
                }
                Ok(None) => {}
                Err(Error::Damaged { .. }) => found.unreadable.push(format!("redo entry {}", entry.k)),
                Err(e) => return Err(e),
            }
        }
        found
            .unreadable
            .extend(self.damaged.iter().map(|damaged| damaged.what.clone()));
        found.tables.extend(self.tables_under_way(store)?);
        // It comes first: from the first ref that changes to the last, both states are kept from being pruned.
        let under_way = self.write_under_way(&writer, paths, &found.tables, cx)?;
        writer.finish()?;
        found.refs.insert(0, (under_way_ref(id), under_way));
        Ok(found)
    }

    /// The side records of all checkpoints, with their commits; without those that can't be read.
    fn side_records(&self, store: &Store) -> Result<BTreeMap<u64, (Oid, Arc<Side>)>> {
        let id = self.id();
        let refs = store.all_refs(&side::refs_prefix(id))?;
        let mut known: HashMap<Oid, Arc<Side>> = HashMap::new();
        let mut sides = BTreeMap::new();
        for checkpoint in &self.checkpoints {
            let name = side::ref_name(id, checkpoint.n);
            let Some(Ok(commit)) = refs.get(&name) else {
                continue;
            };
            let side = match known.get(commit) {
                Some(side) => Arc::clone(side),
                None => match Side::load_commit(store, &name, *commit) {
                    Ok(side) => Arc::clone(known.entry(*commit).or_insert(Arc::new(side))),
                    Err(Error::Damaged { .. }) => continue,
                    Err(e) => return Err(e),
                },
            };
            sides.insert(checkpoint.n, (*commit, side));
        }
        Ok(sides)
    }

    /// Every recorded tree of this root without the paths; those that can't be read aren't among them.
    fn strip_all(
        &self,
        store: &Store,
        sides: &BTreeMap<u64, (Oid, Arc<Side>)>,
        paths: &[TreePath],
        cx: &Context<'_>,
    ) -> Result<HashMap<Snapshot, Arc<Remains>>> {
        let writer = store.writer();
        let mut without = Without::new(store, &writer, self.record.modes, paths);
        let mut strip = |snapshot| match without.strip(snapshot) {
            Err(Error::Damaged { .. }) => Ok(()),
            other => other.map(drop),
        };
        cx.progress.begin(self.checkpoints.len() as u64);
        for checkpoint in &self.checkpoints {
            cx.progress.check()?;
            strip(checkpoint.snapshot)?;
            cx.progress.advance(1);
        }
        for extras in sides.values().filter_map(|(_, side)| side.extras) {
            strip(extras)?;
        }
        for entry in &self.redo {
            match entry.states(store) {
                Ok(states) => states.into_iter().try_for_each(|(_, state)| strip(state))?,
                Err(Error::Damaged { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        let remains = without.into_remains();
        writer.finish()?;
        Ok(remains)
    }
}

/// Writes records anew.
struct Anew<'a> {
    engine: &'a Engine,
    store: &'a Store,
    writer: &'a ObjectWriter<'a>,
    paths: &'a [TreePath],
    now: &'a [(Removed, (u64, i64))],
    remains: &'a HashMap<Snapshot, Arc<Remains>>,
    /// New side records by the old one and what is added to its list.
    sides: HashMap<(Oid, Vec<NotCaptured>), (Oid, Arc<Side>)>,
}

impl Anew<'_> {
    fn remains(&self, snapshot: Snapshot) -> Result<&Remains> {
        let damaged = || damaged_object(self.store.path(), snapshot.tree, "can't be read");
        self.remains
            .get(&snapshot)
            .map(|remains| &**remains)
            .ok_or_else(damaged)
    }

    fn checkpoint(
        &mut self,
        checkpoint: &Checkpoint,
        side: Option<&(Oid, Arc<Side>)>,
        found: &mut Found,
    ) -> Result<()> {
        let (id, modes) = (self.engine.id(), self.engine.record.modes);
        let name = side::ref_name(id, checkpoint.n);
        let (old, record) = side.ok_or_else(|| Error::Damaged {
            store: self.store.path().to_owned(),
            what: format!("{name} can't be read"),
        })?;
        let remains = self.remains(checkpoint.snapshot)?;
        let (snapshot, holds) = (remains.snapshot, !remains.removed.is_empty());
        let marks: Vec<NotCaptured> = remains
            .removed
            .iter()
            .map(|removed| mark(removed, self.now))
            .collect();
        let (new, record) = self.side((*old, marks), record, snapshot)?;
        let mut anew = checkpoint.clone();
        anew.snapshot = snapshot;
        anew.not_captured = record.not_captured.len() as u64;
        let base = checkpoint.base.and_then(|n| self.engine.checkpoint(n).ok());
        // A base that can't be read counts as none, as when the checkpoint was made.
        let base = base.and_then(|base| self.remains(base.snapshot).ok());
        let of_base = base.map_or(&[][..], |base| &base.removed);
        if self.remains(checkpoint.snapshot)?.removed != of_base {
            let base = base.map(|base| base.snapshot);
            anew.counts = self
                .engine
                .counts(self.store, base, snapshot, &record.not_captured)?;
        }
        found.held += u64::from(holds);
        if new != *old {
            found.refs.push((name, new));
        }
        if anew != *checkpoint {
            found.tables.extend([checkpoint.snapshot.side, snapshot.side]);
            anew.commit = self
                .writer
                .commit(snapshot.tree, &anew.message(id, modes), anew.time)?;
            let name = checkpoint::ref_name(id, &anew.session, anew.n);
            found.refs.push((name, anew.commit));
            found.checkpoints.push(anew.clone());
        }
        if self.engine.pins.contains(&anew.n) {
            // Also when the checkpoint is as it must be: a purge that was killed may not have come to its pin.
            let name = format!("{}{}", attach::pins_prefix(id), anew.n);
            found.refs.push((name, anew.commit));
        }
        Ok(())
    }

    fn side(
        &mut self,
        key: (Oid, Vec<NotCaptured>),
        record: &Side,
        snapshot: Snapshot,
    ) -> Result<(Oid, Arc<Side>)> {
        if let Some(known) = self.sides.get(&key) {
            return Ok(known.clone());
        }
        let extras = record.extras.map(|extras| self.remains(extras)).transpose()?;
        let anew = Side {
            not_captured: marked(&record.not_captured, &key.1, self.paths),
            rules: record.rules.clone(),
            extras: extras.map(|extras| extras.snapshot),
        };
        let commit = anew.write(self.writer, self.engine.id(), snapshot.side)?;
        let known = (commit, Arc::new(anew));
        self.sides.insert(key, known.clone());
        Ok(known)
    }
}

/// How a checkpoint that held this is told that it did.
fn mark(removed: &Removed, now: &[(Removed, (u64, i64))]) -> NotCaptured {
    let (size, mtime_ns) = now
        .iter()
        .find(|(now, _)| {
            now.path == removed.path && now.node.kind == removed.node.kind && now.below == removed.below
        })
        .map_or(NOT_AS_NOW, |(_, stamp)| *stamp);
    NotCaptured {
        path: removed.path.clone(),
        reason: Reason::Forgotten,
        size,
        mtime_ns,
    }
}

/// The list of what a checkpoint leaves out with `marks`, which stand for all below them.
fn marked(list: &[NotCaptured], marks: &[NotCaptured], paths: &[TreePath]) -> Vec<NotCaptured> {
    let mut anew: Vec<NotCaptured> = list
        .iter()
        .filter(|entry| !marks.iter().any(|mark| entry.path.starts_with(&mark.path)))
        // Names below a forgotten directory are purged even where nothing of it was captured.
        .filter(|entry| {
            !paths
                .iter()
                .any(|path| entry.path.starts_with(path) && entry.path != *path)
        })
        .chain(marks)
        .cloned()
        .collect();
    anew.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    anew
}
