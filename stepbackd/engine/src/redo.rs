//! The redo stack. `refs/stepback/<root id>/redo/<k>` points to a commit whose tree keeps both states of an operation and
//! its plan:
//!
//! | entry | holds |
//! |---|---|
//! | `before`, `before-tables` | the recorded tree that the operation found |
//! | `target`, `target-tables` | the recorded tree that it put back |
//! | `extras`, `extras-tables` | ignored files that it replaced, if any |
//! | `talk` | the conversations that it found, as a checkpoint's record has them, if it put any back |
//! | `plan` | the plan as JSON (`restore::Plan`) |

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, damaged_object};
use crate::node::Snapshot;
use crate::oid::{ObjectKind, Oid};
use crate::path::TreePath;
use crate::record::{self, Head};
use crate::restore::{OperationKind, Plan, decode_plan, encode_plan};
use crate::store::{ObjectWriter, Store, TreeEntry, write_tree};
use crate::time::Time;
use crate::tree::without::Remains;

/// The most entries that the stack has; the oldest go first.
pub const ENTRIES_MAX: usize = 50;

/// An entry of the redo stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedoEntry {
    /// Number of the entry: counts up, never reused.
    pub k: u64,
    /// What was done.
    pub operation: OperationKind,
    /// The checkpoint that it put back.
    pub target: u64,
    /// The checkpoint that holds the state before.
    pub before: u64,
    /// The recorded tree of that state.
    pub before_snapshot: Snapshot,
    /// When.
    pub time: Time,
    /// Its commit.
    pub commit: Oid,
}

/// What is needed to write an entry.
pub struct NewEntry<'a> {
    /// Number of the entry.
    pub k: u64,
    /// What is about to be done.
    pub operation: OperationKind,
    /// The checkpoint that it puts back, and its tree.
    pub target: (u64, Snapshot),
    /// The checkpoint that holds the state before, and its tree.
    pub before: (u64, Snapshot),
    /// Ignored files that will be replaced.
    pub extras: Option<Snapshot>,
    /// The record of the conversations that will be put back, as they are.
    pub talk: Option<Oid>,
    /// What will be done.
    pub plan: &'a Plan,
    /// When.
    pub now: Time,
}

#[derive(Serialize, Deserialize)]
struct Record {
    #[serde(flatten)]
    head: Head,
    k: u64,
    operation: OperationKind,
    target: u64,
    before: u64,
    before_snapshot: Snapshot,
    time: Time,
}

/// What all redo refs of a root begin with.
#[must_use]
pub fn refs_prefix(root: &str) -> String {
    format!("refs/stepback/{root}/redo/")
}

impl NewEntry<'_> {
    /// Writes the entry; gives its commit.
    ///
    /// # Errors
    /// Those of the store.
    pub fn write(&self, writer: &ObjectWriter<'_>, root: &str) -> Result<Oid> {
        let plan = encode_plan(self.plan)
            .expect("a plan is plain data")
            .to_string()
            .into_bytes();
        let mut entries = vec![
            TreeEntry::dir("before", self.before.1.tree),
            TreeEntry::dir("before-tables", self.before.1.side),
            TreeEntry::blob("plan", writer.put(ObjectKind::Blob, &plan)?),
            TreeEntry::dir("target", self.target.1.tree),
            TreeEntry::dir("target-tables", self.target.1.side),
        ];
        if let Some(extras) = self.extras {
            entries.push(TreeEntry::dir("extras", extras.tree));
            entries.push(TreeEntry::dir("extras-tables", extras.side));
        }
        entries.extend(self.talk.map(|tree| TreeEntry::dir("talk", tree)));
        let tree = write_tree(writer, &entries)?;
        let record = Record {
            head: Head::of(root),
            k: self.k,
            operation: self.operation,
            target: self.target.0,
            before: self.before.0,
            before_snapshot: self.before.1,
            time: self.now,
        };
        let summary = format!("{} to {}", self.operation.name(), self.target.0);
        writer.commit(tree, &record::message(&summary, &record), self.now)
    }
}

impl RedoEntry {
    /// Its ref.
    #[must_use]
    pub fn ref_name(&self, root: &str) -> String {
        format!("{}{}", refs_prefix(root), self.k)
    }

    /// Reads the entry in `commit`.
    ///
    /// # Errors
    /// [`Error::Damaged`] when it can't be read.
    pub fn load(store: &Store, commit: Oid) -> Result<Self> {
        let found = store.read_commit(commit)?;
        let record: Record = record::parse(store, commit, &found.message)?;
        Ok(Self {
            k: record.k,
            operation: record.operation,
            target: record.target,
            before: record.before,
            before_snapshot: record.before_snapshot,
            time: record.time,
            commit,
        })
    }

    /// The recorded trees that it keeps, each with the name that it has there: `before`, `target`, `extras`.
    ///
    /// # Errors
    /// [`Error::Damaged`] when it can't be read.
    pub fn states(&self, store: &Store) -> Result<Vec<(Vec<u8>, Snapshot)>> {
        let entries = store.read_tree(store.read_commit(self.commit)?.tree)?;
        let find = |name: &[u8]| entries.iter().find(|e| e.name == name).map(|e| e.oid);
        Ok(["before", "target", "extras"]
            .into_iter()
            .filter_map(|name| {
                let side = find(format!("{name}-tables").as_bytes())?;
                let tree = find(name.as_bytes())?;
                Some((name.as_bytes().to_vec(), Snapshot { tree, side }))
            })
            .collect())
    }

    /// Writes the entry without `paths`; `remains` says what becomes of its trees. `None` when it has nothing of them.
    ///
    /// # Errors
    /// [`Error::Damaged`] when it, or one of its trees, can't be read; those of the store.
    pub fn without(
        &self,
        store: &Store,
        writer: &ObjectWriter<'_>,
        root: &str,
        remains: &HashMap<Snapshot, Arc<Remains>>,
        paths: &[TreePath],
    ) -> Result<Option<Self>> {
        let anew = |state: Snapshot| {
            let damaged = || damaged_object(store.path(), state.tree, "can't be read");
            Ok::<_, Error>(remains.get(&state).ok_or_else(damaged)?.snapshot)
        };
        let mut plan = self.plan(store)?;
        let steps = plan.steps.len();
        plan.steps
            .retain(|step| !paths.iter().any(|path| step.path.starts_with(path)));
        let mut changed = plan.steps.len() != steps;
        let mut states = HashMap::new();
        for (name, state) in self.states(store)? {
            let new = anew(state)?;
            changed |= new != state;
            states.insert(name, new);
        }
        if !changed {
            return Ok(None);
        }
        let state = |name: &str| states.get(name.as_bytes()).copied();
        let missing = || Error::Damaged {
            store: store.path().to_owned(),
            what: format!("redo entry {} has no state", self.k),
        };
        let before_snapshot = state("before").ok_or_else(missing)?;
        let new = NewEntry {
            k: self.k,
            operation: self.operation,
            target: (self.target, state("target").ok_or_else(missing)?),
            before: (self.before, before_snapshot),
            extras: state("extras"),
            talk: self.talk(store)?,
            plan: &plan,
            now: self.time,
        };
        Ok(Some(Self {
            before_snapshot,
            commit: new.write(writer, root)?,
            ..self.clone()
        }))
    }

    /// The record of the conversations as the operation found them, if it put any back.
    ///
    /// # Errors
    /// [`Error::Damaged`] when the entry can't be read.
    pub fn talk(&self, store: &Store) -> Result<Option<Oid>> {
        let tree = store.read_commit(self.commit)?.tree;
        let entries = store.read_tree(tree)?;
        Ok(entries.iter().find(|e| e.name == b"talk").map(|e| e.oid))
    }

    /// Reads the entry's plan.
    ///
    /// # Errors
    /// [`Error::Damaged`] when it can't be read.
    pub fn plan(&self, store: &Store) -> Result<Plan> {
        let damaged = |what: String| Error::Damaged {
            store: store.path().to_owned(),
            what,
        };
        let tree = store.read_commit(self.commit)?.tree;
        let entries = store.read_tree(tree)?;
        let blob = entries
            .iter()
            .find(|e| e.name == b"plan")
            .ok_or_else(|| damaged(format!("redo entry {} has no plan", self.k)))?;
        serde_json::from_slice(&store.read(blob.oid, ObjectKind::Blob)?)
            .and_then(decode_plan)
            .map_err(|e| damaged(format!("the plan of redo entry {} can't be read: {e}", self.k)))
    }
}
