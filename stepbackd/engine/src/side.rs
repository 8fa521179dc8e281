//! The side record of a checkpoint: all that its git tree can't say.
//!
//! `refs/stepback/<root id>/side/<n>` points to a commit with this tree:
//!
//! | entry | holds |
//! |---|---|
//! | `tables` | side tables: permission bits, attributes, FIFOs (`tree::side`) |
//! | `not-captured` | what the checkpoint leaves out: one JSON object a line ([`NotCaptured`]) |
//! | `rules` | the rules from outside the tree that held then: one JSON object ([`OutsideRules`]) |
//! | `extras`, `extras-tables` | ignored files that an operation replaced, as a recorded tree of their own; only if any |
//!
//! The commit's time is zero and its record names only the root, so that checkpoints with equal side records share it.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::node::{NotCaptured, Snapshot};
use crate::oid::{ObjectKind, Oid};
use crate::record::{self, Head};
use crate::rules::OutsideRules;
use crate::store::{ObjectWriter, Store, TreeEntry, write_tree};

/// What stands in a side record beside the tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Side {
    /// Sorted by path.
    pub not_captured: Vec<NotCaptured>,
    /// As they held at the capture.
    pub rules: OutsideRules,
    /// Ignored files that an operation was about to replace.
    pub extras: Option<Snapshot>,
}

#[derive(Serialize, Deserialize)]
struct Record {
    #[serde(flatten)]
    head: Head,
    kind: String,
}

/// The ref of the side record of checkpoint `n`.
#[must_use]
pub fn ref_name(root: &str, n: u64) -> String {
    format!("{}{n}", refs_prefix(root))
}

/// What all refs of a root's side records begin with.
#[must_use]
pub fn refs_prefix(root: &str) -> String {
    format!("refs/stepback/{root}/side/")
}

impl Side {
    /// Writes the record of a checkpoint whose tables are `tables`; gives its commit.
    ///
    /// # Errors
    /// Those of the store.
    pub fn write(&self, writer: &ObjectWriter<'_>, root: &str, tables: Oid) -> Result<Oid> {
        let mut lines = Vec::new();
        for left_out in &self.not_captured {
            serde_json::to_writer(&mut lines, left_out).expect("a list entry is plain data");
            lines.push(b'\n');
        }
        let rules = serde_json::to_vec(&self.rules).expect("rules are plain data");
        let mut entries = vec![
            TreeEntry::blob("not-captured", writer.put(ObjectKind::Blob, &lines)?),
            TreeEntry::blob("rules", writer.put(ObjectKind::Blob, &rules)?),
            TreeEntry::dir("tables", tables),
        ];
        if let Some(extras) = self.extras {
            entries.push(TreeEntry::dir("extras", extras.tree));
            entries.push(TreeEntry::dir("extras-tables", extras.side));
        }
        let tree = write_tree(writer, &entries)?;
        let record = Record {
            head: Head::of(root),
            kind: "side".into(),
        };
        writer.commit(tree, &record::message("side record", &record), record::NO_TIME)
    }

    /// Reads the record of checkpoint `n`.
    ///
    /// # Errors
    /// [`Error::Damaged`] when there is none, or one that can't be read.
    pub fn load(store: &Store, root: &str, n: u64) -> Result<Self> {
        let name = ref_name(root, n);
        let commit = store.read_ref(&name)?.ok_or_else(|| Error::Damaged {
            store: store.path().to_owned(),
            what: format!("{name} is missing"),
        })?;
        Self::load_commit(store, &name, commit)
    }

    /// Reads the record in `commit`, to which ref `name` points.
    ///
    /// # Errors
    /// [`Error::Damaged`] when it can't be read.
    pub fn load_commit(store: &Store, name: &str, commit: Oid) -> Result<Self> {
        let damaged = |what: String| Error::Damaged {
            store: store.path().to_owned(),
            what,
        };
        let tree = store.read_commit(commit)?.tree;
        let entries = store.read_tree(tree)?;
        let find = |wanted: &str| {
            entries
                .iter()
                .find(|e| e.name == wanted.as_bytes())
                .map(|e| e.oid)
        };
        let blob = |wanted: &str| -> Result<Vec<u8>> {
            let oid = find(wanted).ok_or_else(|| damaged(format!("{name} has no {wanted}")))?;
            store.read(oid, ObjectKind::Blob)
        };
        let unreadable =
            |wanted: &str, e: serde_json::Error| damaged(format!("{wanted} of {name} can't be read: {e}"));
        let mut not_captured = Vec::new();
        for line in blob("not-captured")?
            .split(|b| *b == b'\n')
            .filter(|line| !line.is_empty())
        {
            not_captured.push(serde_json::from_slice(line).map_err(|e| unreadable("not-captured", e))?);
        }
        let rules = serde_json::from_slice(&blob("rules")?).map_err(|e| unreadable("rules", e))?;
        let extras = match (find("extras"), find("extras-tables")) {
            (Some(tree), Some(side)) => Some(Snapshot { tree, side }),
            _ => None,
        };
        Ok(Self {
            not_captured,
            rules,
            extras,
        })
    }
}
