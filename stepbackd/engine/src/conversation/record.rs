//! The conversations of a checkpoint: `refs/stepback/<root id>/talk/<n>` points to a commit with this tree:
//!
//! | entry | holds |
//! |---|---|
//! | `index` | one JSON object ([`Index`]): the sessions, their parts, and the sizes of the pieces of each |
//! | `parts` | for each part, by its number in the index, a tree of trees of its pieces in order |
//!
//! Only sessions that the checkpoint's span belongs to are in it. Its time is zero and its message names only the root, so
//! that equal records are one object.

use serde::{Deserialize, Serialize};

use super::chunks::{self, Chunk, Sizes};
use super::{SessionId, Table};
use crate::error::{Error, Result};
use crate::oid::{ObjectKind, Oid};
use crate::path::TreePath;
use crate::record::{self, Head};
use crate::store::{ObjectWriter, Store, TreeEntry, write_tree};

/// A file of a session, or its rows of a table, as recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Relative to the agent's directory; of rows, the database.
    pub path: TreePath,
    /// For rows: which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<Table>,
    /// Permission bits.
    #[serde(default)]
    pub mode: u32,
    /// Modification time, nanoseconds since 1970.
    #[serde(default)]
    pub mtime_ns: i64,
    /// Differs when the part does. Only compared with another one of the same place.
    pub stamp: String,
    /// Of a file that was too much for that moment: how large it was. Else 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub due: u64,
    /// Of the pieces.
    sizes: Sizes,
    #[serde(skip)]
    pub chunks: Vec<Chunk>,
}

impl Part {
    pub fn file(path: TreePath, mode: u32, mtime_ns: i64, stamp: String) -> Self {
        Self {
            path,
            table: None,
            mode,
            mtime_ns,
            stamp,
            due: 0,
            sizes: Sizes::default(),
            chunks: Vec::new(),
        }
    }

    pub fn rows(table: Table, stamp: String) -> Self {
        Self {
            table: Some(table.clone()),
            ..Self::file(table.db, 0, 0, stamp)
        }
    }

    /// Whether two are the same place.
    pub fn is_at(&self, other: &Self) -> bool {
        self.path == other.path
            && self.table.as_ref().map(|t| &t.name) == other.table.as_ref().map(|t| &t.name)
    }

    pub fn is_derived(&self) -> bool {
        self.table.as_ref().is_some_and(|table| table.derived)
    }

    pub fn size(&self) -> u64 {
        chunks::total(&self.chunks)
    }

    /// Records are lines, each in one write: a last one without its end was being written.
    pub fn is_lines(&self) -> bool {
        self.table.is_none() && self.path.as_bytes().ends_with(b".jsonl")
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands references out")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A session as recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    #[serde(flatten)]
    pub id: SessionId,
    /// Where it runs, or began.
    pub cwd: crate::state::AbsolutePath,
    /// The directory that the paths of its parts are relative to, where that isn't the one that the daemon knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<crate::state::AbsolutePath>,
    /// The transcript first.
    pub parts: Vec<Part>,
    /// Some of it was too much for that moment, and hasn't been added yet: it can't be put back from here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Index {
    #[serde(flatten)]
    head: Head,
    sessions: Vec<Kept>,
}

#[derive(Serialize, Deserialize)]
struct Record {
    #[serde(flatten)]
    head: Head,
    kind: String,
}

/// What all records of a root begin with.
#[must_use]
pub fn refs_prefix(root: &str) -> String {
    format!("refs/stepback/{root}/talk/")
}

/// The ref of the record of checkpoint `n`.
pub(crate) fn ref_name(root: &str, n: u64) -> String {
    format!("{}{n}", refs_prefix(root))
}

/// Writes a record; gives its tree and its commit.
pub(crate) fn write(writer: &ObjectWriter<'_>, root: &str, sessions: &[Kept]) -> Result<(Oid, Oid)> {
    let mut sessions = sessions.to_vec();
    let mut parts = Vec::new();
    for part in sessions.iter_mut().flat_map(|kept| &mut kept.parts) {
        let name = format!("{:06}", parts.len());
        parts.push(TreeEntry::dir(
            &name,
            chunks::write_tree_of(writer, &part.chunks)?,
        ));
        part.sizes = Sizes(part.chunks.iter().map(|chunk| chunk.size).collect());
    }
    let head = Head::of(root);
    let index = serde_json::to_vec(&Index { head, sessions }).expect("an index is plain data");
    let entries = [
        TreeEntry::blob("index", writer.put(ObjectKind::Blob, &index)?),
        TreeEntry::dir("parts", write_tree(writer, &parts)?),
    ];
    let tree = write_tree(writer, &entries)?;
    let record = Record {
        head: Head::of(root),
        kind: "talk".into(),
    };
    let commit = writer.commit(tree, &record::message("conversations", &record), record::NO_TIME)?;
    Ok((tree, commit))
}

/// The tree of the record of checkpoint `n`, if it has one.
pub(crate) fn tree_of(store: &Store, root: &str, n: u64) -> Result<Option<Oid>> {
    match store.read_ref(&ref_name(root, n))? {
        Some(commit) => Ok(Some(store.read_commit(commit)?.tree)),
        None => Ok(None),
    }
}

/// Reads a record's tree.
pub(crate) fn load(store: &Store, tree: Oid) -> Result<Vec<Kept>> {
    let damaged = |what: String| Error::Damaged {
        store: store.path().to_owned(),
        what,
    };
    let entries = store.read_tree(tree)?;
    let find = |wanted: &str| {
        let found = entries.iter().find(|e| e.name == wanted.as_bytes());
        found
            .map(|e| e.oid)
            .ok_or_else(|| damaged(format!("the conversations in tree {tree} have no {wanted}")))
    };
    let index = store.read(find("index")?, ObjectKind::Blob)?;
    let mut index: Index = serde_json::from_slice(&index)
        .map_err(|e| damaged(format!("the conversations in tree {tree} can't be read: {e}")))?;
    let trees = store.read_tree(find("parts")?)?;
    let mut parts: Vec<&mut Part> = index
        .sessions
        .iter_mut()
        .flat_map(|kept| &mut kept.parts)
        .collect();
    if parts.len() != trees.len() {
        return Err(damaged(format!(
            "the conversations in tree {tree} lack some of their parts"
        )));
    }
    for (part, entry) in parts.iter_mut().zip(&trees) {
        part.chunks = chunks::read_tree_of(store, entry.oid, &part.sizes)?;
    }
    Ok(index.sessions)
}

/// The session's own place in a list.
pub(crate) fn find<'a>(all: &'a [Kept], id: &SessionId) -> Option<&'a Kept> {
    all.iter().find(|kept| kept.id == *id)
}
