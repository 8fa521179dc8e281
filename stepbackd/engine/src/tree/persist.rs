//! Writing directories: a git tree and a side tree for each.

use super::dir::{Dir, Entry, Slot};
use super::side::{self, Table};
use crate::error::Result;
use crate::node::{CommonModes, Kind, Node, Snapshot};
use crate::oid::{ObjectKind, Oid};
use crate::store::{MODE_TREE, ObjectWriter, TreeEntry, write_tree};

/// A directory being encoded.
pub(super) struct Encoder<'a> {
    common: &'a CommonModes,
    tree: Vec<TreeEntry>,
    below: Vec<TreeEntry>,
    table: Table,
}

impl<'a> Encoder<'a> {
    /// `own` is the node of the directory itself.
    pub fn new(own: &Node, common: &'a CommonModes) -> Self {
        let perm = (own.perm != common.dir).then_some(own.perm);
        let table = Table {
            perm,
            attributes: own.attributes.clone(),
            ..Table::default()
        };
        Self {
            common,
            tree: Vec::new(),
            below: Vec::new(),
            table,
        }
    }

    /// Adds an entry. `below`: what a directory holds.
    pub fn add(&mut self, name: &[u8], node: &Node, below: Option<Snapshot>) {
        let name_of = |mode, oid| TreeEntry {
            mode,
            name: name.to_vec(),
            oid,
        };
        if let (Kind::Dir, Some(below)) = (node.kind, below) {
            self.tree.push(name_of(MODE_TREE, below.tree));
            if below.side != Oid::EMPTY_TREE {
                self.below.push(name_of(MODE_TREE, below.side));
            }
            return;
        }
        if let (Kind::File(oid) | Kind::Link(oid), Some(mode)) = (node.kind, node.git_mode()) {
            self.tree.push(name_of(mode, oid));
        }
        self.table.add(name, node, self.common);
    }

    /// Writes both trees.
    pub fn finish(self, writer: &ObjectWriter<'_>) -> Result<Snapshot> {
        let mut side = Vec::new();
        if let Some(text) = self.table.encode() {
            let oid = writer.put(ObjectKind::Blob, text.as_bytes())?;
            side.push(TreeEntry {
                mode: 0o100_644,
                name: side::TABLE.to_vec(),
                oid,
            });
        }
        if !self.below.is_empty() {
            let oid = write_tree(writer, &self.below)?;
            side.push(TreeEntry {
                mode: MODE_TREE,
                name: side::BELOW.to_vec(),
                oid,
            });
        }
        Ok(Snapshot {
            tree: write_tree(writer, &self.tree)?,
            side: write_tree(writer, &side)?,
        })
    }
}

/// Writes a directory and what changed below it. Recurses.
pub(super) fn persist(dir: &mut Dir, writer: &ObjectWriter<'_>, common: &CommonModes) -> Result<Snapshot> {
    if let (Some(tree), Some(side)) = (dir.tree, dir.side) {
        return Ok(Snapshot { tree, side });
    }
    let mut encoder = Encoder::new(&dir.node(), common);
    for Entry { name, slot } in &mut dir.entries {
        let Some(node) = slot.node() else { continue };
        let below = match slot {
            Slot::Dir(dir) => Some(persist(dir, writer, common)?),
            _ => None,
        };
        encoder.add(name, &node, below);
    }
    let snapshot = encoder.finish(writer)?;
    dir.tree = Some(snapshot.tree);
    dir.side = Some(snapshot.side);
    dir.unsaved = true;
    Ok(snapshot)
}

/// What was handed to a writer is in the store now.
pub(super) fn saved(dir: &mut Dir) {
    if !std::mem::take(&mut dir.unsaved) {
        return;
    }
    for entry in &mut dir.entries {
        match &mut entry.slot {
            Slot::File(file) => file.unsaved = false,
            Slot::Link(file) => file.unsaved = false,
            Slot::Dir(dir) => saved(dir),
            _ => {}
        }
    }
}

/// It isn't sure that what was handed to a writer is in the store: it is to be read and written anew.
pub(super) fn not_saved(dir: &mut Dir) {
    if !std::mem::take(&mut dir.unsaved) {
        return;
    }
    (dir.tree, dir.side) = (None, None);
    for entry in &mut dir.entries {
        match &mut entry.slot {
            Slot::File(file) => file.racy |= file.unsaved,
            Slot::Link(file) => file.racy |= file.unsaved,
            Slot::Dir(dir) => not_saved(dir),
            _ => {}
        }
    }
}
