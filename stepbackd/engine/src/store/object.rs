//! What stands in trees and commits, as bytes.

use std::cmp::Ordering;

use crate::error::{Result, damaged_object};
use crate::oid::{ObjectKind, Oid};
use crate::time::Time;

use super::read::read_tree;
use super::{ObjectWriter, Store};

/// Mode of an entry that is a directory.
pub const MODE_TREE: u32 = 0o040_000;
/// Mode of an entry that is a plain file.
pub const MODE_BLOB: u32 = 0o100_644;
/// Mode of an entry that is a link to another repository's commit. We never write it.
pub const MODE_GITLINK: u32 = 0o160_000;

/// An entry of a tree object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    /// As git has it: `0o100644`, `0o100755`, `0o120000`, `0o040000`.
    pub mode: u32,
    /// One part of a path: not empty, without `/` and NUL.
    pub name: Vec<u8>,
    /// Its contents.
    pub oid: Oid,
}

impl TreeEntry {
    /// A plain file.
    #[must_use]
    pub fn blob(name: &str, oid: Oid) -> Self {
        Self {
            mode: MODE_BLOB,
            name: name.into(),
            oid,
        }
    }

    /// A directory.
    #[must_use]
    pub fn dir(name: &str, oid: Oid) -> Self {
        Self {
            mode: MODE_TREE,
            name: name.into(),
            oid,
        }
    }
}

/// Bytes that are no tree or commit, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// The order of entries in a tree: by bytes, directories as if their names ended in `/`.
#[must_use]
pub fn tree_order(a: (&[u8], u32), b: (&[u8], u32)) -> Ordering {
    let shared = a.0.len().min(b.0.len());
    let next = |(name, mode): (&[u8], u32)| {
        name.get(shared)
            .copied()
            .unwrap_or(if is_dir(mode) { b'/' } else { 0 })
    };
    a.0[..shared]
        .cmp(&b.0[..shared])
        .then_with(|| next(a).cmp(&next(b)))
}

const fn is_dir(mode: u32) -> bool {
    mode & 0o170_000 == MODE_TREE
}

/// A tree object's contents; the entries may come in any order, their names all different.
#[must_use]
pub fn encode_tree(entries: &[TreeEntry]) -> Vec<u8> {
    let mut sorted: Vec<&TreeEntry> = entries.iter().collect();
    sorted.sort_by(|a, b| tree_order((&a.name, a.mode), (&b.name, b.mode)));
    let mut bytes = Vec::with_capacity(sorted.iter().map(|entry| entry.name.len() + 28).sum());
    for entry in sorted {
        bytes.extend_from_slice(format!("{:o} ", entry.mode).as_bytes());
        bytes.extend_from_slice(&entry.name);
        bytes.push(0);
        bytes.extend_from_slice(&entry.oid.0);
    }
    bytes
}

/// The entries of a tree object, in its order.
///
/// # Errors
/// When the bytes are no tree, or an entry's name can't be a name in a directory.
pub fn parse_tree(bytes: &[u8]) -> Result<Vec<TreeEntry>, Malformed> {
    let mut entries = Vec::with_capacity(bytes.len() / 32);
    for entry in parse_refs(bytes) {
        entries.push(entry?.to_entry());
    }
    Ok(entries)
}

/// An entry of a tree object, as it stands in its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryRef<'a> {
    mode: u32,
    name: &'a [u8],
    oid: Oid,
}

impl EntryRef<'_> {
    pub fn to_entry(self) -> TreeEntry {
        TreeEntry {
            mode: self.mode,
            name: self.name.to_vec(),
            oid: self.oid,
        }
    }

    /// Which stands first in a tree.
    pub fn order(&self, other: &EntryRef<'_>) -> Ordering {
        tree_order((self.name, self.mode), (other.name, other.mode))
    }
}

/// As [`parse_tree`], one by one; nothing comes after an error.
pub(super) fn parse_refs(mut bytes: &[u8]) -> impl Iterator<Item = Result<EntryRef<'_>, Malformed>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let entry = parse_entry(bytes);
        bytes = match &entry {
            Ok((_, rest)) => rest,
            Err(_) => &[],
        };
        Some(entry.map(|(entry, _)| entry))
    })
}

/// The first entry, and the bytes behind it.
fn parse_entry(bytes: &[u8]) -> Result<(EntryRef<'_>, &[u8]), Malformed> {
    let space = bytes
        .iter()
        .take(8)
        .position(|&b| b == b' ')
        .ok_or(Malformed("has a mode without an end"))?;
    let mode = std::str::from_utf8(&bytes[..space])
        .ok()
        .filter(|text| text.bytes().all(|digit| digit.is_ascii_digit()))
        .and_then(|text| u32::from_str_radix(text, 8).ok())
        .ok_or(Malformed("has a mode that isn't a number"))?;
    let bytes = &bytes[space + 1..];
    let end = bytes
        .iter()
        .position(|&b| b == 0)
        .ok_or(Malformed("has a name without an end"))?;
    let name = &bytes[..end];
    if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') {
        return Err(Malformed("has an entry with an impossible name"));
    }
    let oid = bytes
        .get(end + 1..end + 21)
        .and_then(Oid::from_slice)
        .ok_or(Malformed("ends in the middle"))?;
    Ok((EntryRef { mode, name, oid }, &bytes[end + 21..]))
}

/// Adds a tree; see [`encode_tree`].
///
/// # Errors
/// When it can't be written.
pub fn write_tree(writer: &ObjectWriter<'_>, entries: &[TreeEntry]) -> Result<Oid> {
    writer.put(ObjectKind::Tree, &encode_tree(entries))
}

/// A commit of ours: no parents; its author, committer and dates are always the same and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// What it records.
    pub tree: Oid,
    /// All lines of the message.
    pub message: String,
}

impl ObjectWriter<'_> {
    /// Adds a commit without parents, by `stepback <stepback@localhost>` at `time`, UTC.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn commit(&self, tree: Oid, message: &str, time: Time) -> Result<Oid> {
        let who = format!("stepback <stepback@localhost> {} +0000", time.seconds().max(0));
        let body = format!("tree {tree}\nauthor {who}\ncommitter {who}\n\n{message}");
        self.put(ObjectKind::Commit, body.as_bytes())
    }
}

/// Takes a commit apart.
///
/// # Errors
/// When the bytes are no commit, or its message isn't UTF-8.
pub fn parse_commit(bytes: Vec<u8>) -> Result<Commit, Malformed> {
    let text = String::from_utf8(bytes).map_err(|_| Malformed("isn't UTF-8"))?;
    let (head, message) = text.split_once("\n\n").ok_or(Malformed("has no message"))?;
    let tree = head
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("tree "))
        .and_then(|oid| oid.parse().ok())
        .ok_or(Malformed("names no tree"))?;
    Ok(Commit {
        tree,
        message: message.to_owned(),
    })
}

impl Store {
    /// A commit, verified.
    ///
    /// # Errors
    /// [`crate::Error::Damaged`] when it is missing, damaged or no commit.
    pub fn read_commit(&self, oid: Oid) -> Result<Commit> {
        let bytes = self.read(oid, ObjectKind::Commit)?;
        parse_commit(bytes).map_err(|how| damaged_object(self.path(), oid, how.0))
    }

    /// A tree, verified.
    ///
    /// # Errors
    /// [`crate::Error::Damaged`] when it is missing, damaged or no tree.
    pub fn read_tree(&self, oid: Oid) -> Result<Vec<TreeEntry>> {
        read_tree(self, oid)
    }
}
