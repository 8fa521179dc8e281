//! A recorded tree with some of its paths replaced.

use std::collections::BTreeMap;

use super::on_stack_for;
use super::persist::Encoder;
use super::stored::{StoredDir, read_dir};
use crate::error::Result;
use crate::node::{CommonModes, Kind, Node, Snapshot};
use crate::path::TreePath;
use crate::store::{ObjectWriter, Store};

/// Below a directory: what comes, by name.
#[derive(Default)]
struct Branch<'a> {
    node: Option<&'a Node>,
    below: BTreeMap<&'a [u8], Self>,
}

/// The tree `snapshot` with `nodes`, none of which is a directory, in place of what it has there. Its new directories are with
/// the writer.
///
/// # Errors
/// [`crate::Error::Damaged`] when a directory can't be read; those of writing.
pub fn replace(
    store: &Store,
    writer: &ObjectWriter<'_>,
    common: &CommonModes,
    snapshot: Snapshot,
    nodes: &BTreeMap<TreePath, Node>,
) -> Result<Snapshot> {
    let mut root = Branch::default();
    for (path, node) in nodes {
        let mut at = &mut root;
        for part in path.parts() {
            at = at.below.entry(part).or_default();
        }
        at.node = Some(node);
    }
    let depth = nodes.keys().map(|path| path.parts().count()).max().unwrap_or(0);
    on_stack_for(depth, || root.write(store, writer, common, Some(snapshot)))
}

impl Branch<'_> {
    /// `old`: the directory that is there.
    fn write(
        &self,
        store: &Store,
        writer: &ObjectWriter<'_>,
        common: &CommonModes,
        old: Option<Snapshot>,
    ) -> Result<Snapshot> {
        let StoredDir { own, entries } = match old {
            Some(old) => read_dir(store, old, common)?,
            None => StoredDir {
                own: Node::plain(Kind::Dir, common.dir),
                entries: Vec::new(),
            },
        };
        let mut encoder = Encoder::new(&own, common);
        let mut held = BTreeMap::new();
        for entry in entries {
            if self.below.contains_key(&*entry.name) {
                held.insert(entry.name.clone(), entry.below);
            } else {
                encoder.add(&entry.name, &entry.node, entry.below);
            }
        }
        let plain = Node::plain(Kind::Dir, common.dir);
        for (name, branch) in &self.below {
            match branch.node {
                Some(node) => encoder.add(name, node, None),
                None => {
                    let old = held.get(*name).copied().flatten();
                    encoder.add(name, &plain, Some(branch.write(store, writer, common, old)?));
                }
            }
        }
        encoder.finish(writer)
    }
}
