//! Reading recorded directories back: git tree and side tree together.

use std::collections::BTreeMap;

use super::on_stack_for;
use super::persist::Encoder;
use super::side::{self, Table, common_perm};
use crate::error::{Result, damaged_object};
use crate::node::{Attributes, CommonModes, Kind, Node, Snapshot};
use crate::oid::{ObjectKind, Oid};
use crate::path::TreePath;
use crate::store::{ObjectWriter, Objects, Store, TreeEntry, read_different_entries, read_tree};

/// An entry of a recorded directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// What it is.
    pub node: Node,
    /// For a directory: what it holds.
    pub below: Option<Snapshot>,
}

/// A recorded directory: its own node (permission bits, attributes), entries sorted by name bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDir {
    /// Of the directory itself.
    pub own: Node,
    /// Sorted by name.
    pub entries: Vec<StoredEntry>,
}

/// Reads one directory. A directory's own bits stand in its own side table, so an entry that is a directory has the bits of its
/// own table.
///
/// # Errors
/// [`crate::Error::Damaged`] naming the object that isn't what it must be; those of reading.
pub fn read_dir(store: &dyn Objects, snapshot: Snapshot, common: &CommonModes) -> Result<StoredDir> {
    let side = read_side(store, snapshot.side)?;
    put_together(store, snapshot, common, side, read_tree(store, snapshot.tree)?)
}

/// Reads two directories to compare them. Entries that are the same in both may be left out; none is when the directories'
/// own nodes differ.
///
/// # Errors
/// As [`read_dir`].
pub fn read_different(
    store: &dyn Objects,
    old: Snapshot,
    new: Snapshot,
    common: &CommonModes,
) -> Result<(StoredDir, StoredDir)> {
    let side = read_side(store, old.side)?;
    // What a table says of entries is compared with all of them.
    if old.side != new.side || !side.table.entries.is_empty() {
        return Ok((read_dir(store, old, common)?, read_dir(store, new, common)?));
    }
    let (only_old, only_new) = read_different_entries(store, old.tree, new.tree)?;
    let same_side = side.clone();
    Ok((
        put_together(store, old, common, side, only_old)?,
        put_together(store, new, common, same_side, only_new)?,
    ))
}

fn put_together(
    store: &dyn Objects,
    snapshot: Snapshot,
    common: &CommonModes,
    side: Side,
    tree: Vec<TreeEntry>,
) -> Result<StoredDir> {
    let Side { mut table, below } = side;
    let mut entries = Vec::new();
    for entry in tree {
        let kind = match entry.mode & 0o170_000 {
            0o100_000 => Kind::File(entry.oid),
            0o120_000 => Kind::Link(entry.oid),
            0o040_000 => Kind::Dir,
            _ => {
                return Err(damaged_object(
                    store.path(),
                    snapshot.tree,
                    "has an entry of an unknown type",
                ));
            }
        };
        let mut held = None;
        let node = if kind == Kind::Dir {
            let side = below.get(&entry.name).copied().unwrap_or(Oid::EMPTY_TREE);
            held = Some(Snapshot {
                tree: entry.oid,
                side,
            });
            own_node(&read_side(store, side)?.table, common)
        } else {
            let fact = table.entries.remove(&entry.name).unwrap_or_default();
            let usual = common_perm(&kind, entry.mode & 0o100 != 0, common);
            Node {
                kind,
                perm: fact.perm.unwrap_or(usual),
                attributes: fact.attributes,
            }
        };
        entries.push(StoredEntry {
            name: entry.name,
            node,
            below: held,
        });
    }
    let own = own_node(&table, common);
    for (name, fact) in table.entries {
        // What is left over are FIFOs: all else has an entry in the git tree.
        if let (true, Some(perm)) = (fact.fifo, fact.perm) {
            let node = Node {
                kind: Kind::Fifo,
                perm,
                attributes: fact.attributes,
            };
            entries.push(StoredEntry {
                name,
                node,
                below: None,
            });
        } else {
            return Err(damaged_object(
                store.path(),
                snapshot.side,
                "has a line for a file that isn't there",
            ));
        }
    }
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(StoredDir { own, entries })
}

/// What a recorded tree has at a path (with `below` for a directory); None when nothing.
///
/// # Errors
/// As [`read_dir`].
pub fn lookup(
    store: &Store,
    snapshot: Snapshot,
    common: &CommonModes,
    path: &TreePath,
) -> Result<Option<(Node, Option<Snapshot>)>> {
    let mut at = snapshot;
    let mut parts = path.parts().peekable();
    while let Some(part) = parts.next() {
        let tree = store.read_tree(at.tree)?;
        let dir = tree
            .iter()
            .find(|entry| entry.name == part && entry.mode & 0o170_000 == 0o040_000);
        match (dir, parts.peek()) {
            (Some(dir), _) => {
                let side = read_side(store, at.side)?.below.get(part).copied();
                at = Snapshot {
                    tree: dir.oid,
                    side: side.unwrap_or(Oid::EMPTY_TREE),
                };
            }
            (None, Some(_)) => return Ok(None),
            // Only here may it be a file or a FIFO.
            (None, None) => {
                let mut entries = read_dir(store, at, common)?.entries.into_iter();
                return Ok(entries
                    .find(|entry| entry.name == part)
                    .map(|entry| (entry.node, entry.below)));
            }
        }
    }
    Ok(Some((
        own_node(&read_side(store, at.side)?.table, common),
        Some(at),
    )))
}

/// Writes a recorded tree made of loose paths (extras of a checkpoint, plan states). Directories above a path that aren't
/// given themselves have common bits.
///
/// # Errors
/// Those of writing.
pub fn write_paths(
    writer: &ObjectWriter<'_>,
    entries: &BTreeMap<TreePath, Node>,
    common: &CommonModes,
) -> Result<Snapshot> {
    let mut root = Branch::default();
    for (path, node) in entries {
        let mut at = &mut root;
        for part in path.parts() {
            at = at.below.entry(part).or_default();
        }
        at.node = Some(node);
    }
    let depth = entries.keys().map(|path| path.parts().count()).max().unwrap_or(0);
    on_stack_for(depth, move || root.write(writer, common))
}

#[derive(Default)]
struct Branch<'a> {
    node: Option<&'a Node>,
    below: BTreeMap<&'a [u8], Self>,
}

impl Branch<'_> {
    fn write(&self, writer: &ObjectWriter<'_>, common: &CommonModes) -> Result<Snapshot> {
        let plain = Node::plain(Kind::Dir, common.dir);
        let own = self.node.filter(|node| node.kind == Kind::Dir).unwrap_or(&plain);
        let mut encoder = Encoder::new(own, common);
        for (name, branch) in &self.below {
            match branch.node {
                Some(node) if node.kind != Kind::Dir && branch.below.is_empty() => {
                    encoder.add(name, node, None)
                }
                node => {
                    let dir = node.filter(|node| node.kind == Kind::Dir).unwrap_or(&plain);
                    encoder.add(name, dir, Some(branch.write(writer, common)?));
                }
            }
        }
        encoder.finish(writer)
    }
}

#[derive(Clone)]
struct Side {
    table: Table,
    below: BTreeMap<Vec<u8>, Oid>,
}

fn read_side(store: &dyn Objects, side: Oid) -> Result<Side> {
    let mut read = Side {
        table: Table::default(),
        below: BTreeMap::new(),
    };
    if side == Oid::EMPTY_TREE {
        return Ok(read);
    }
    for entry in read_tree(store, side)? {
        match &*entry.name {
            side::TABLE => {
                let text = store.read(entry.oid, ObjectKind::Blob)?;
                let damaged = || damaged_object(store.path(), entry.oid, "isn't a side table");
                read.table = Table::parse(&text).ok_or_else(damaged)?;
            }
            side::BELOW => {
                let below = read_tree(store, entry.oid)?;
                read.below = below.into_iter().map(|entry| (entry.name, entry.oid)).collect();
            }
            _ => return Err(damaged_object(store.path(), side, "isn't a side tree")),
        }
    }
    Ok(read)
}

fn own_node(table: &Table, common: &CommonModes) -> Node {
    let attributes: Attributes = table.attributes.clone();
    Node {
        kind: Kind::Dir,
        perm: table.perm.unwrap_or(common.dir),
        attributes,
    }
}
