//! What an operation found in a path's place and could not put back, because something newer stood there by then.

use std::collections::{BTreeMap, BTreeSet};

use super::place::Ground;
use super::step::Step;
use super::{compare, ops, unstaging};
use crate::error::{At, Result};
use crate::node::{Kind, Node};
use crate::oid::ObjectKind;
use crate::path::TreePath;
use crate::store::{ObjectWriter, Store};

/// What is left in staging directories when all else is done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rest {
    /// Versions that others wrote and overtook, by the path where they stood. Their bytes are in the store, where nothing
    /// names them yet: that is the caller's to do, before the directories go.
    pub overtaken: BTreeMap<TreePath, Node>,
    /// Staging directories that hold them, or what else isn't ours: see [`super::clear_leftovers`].
    pub left: Vec<TreePath>,
}

impl Rest {
    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.overtaken.is_empty() && self.left.is_empty()
    }

    /// Removes all staging directories, but for the slots in `stranded`, whose contents it gives to the store.
    pub(super) fn of(
        store: &Store,
        ground: &mut Ground<'_>,
        steps: &[Step],
        stranded: &BTreeSet<(usize, usize)>,
    ) -> Result<Self> {
        let mut overtaken = BTreeMap::new();
        if !stranded.is_empty() {
            let writer = store.writer();
            for (index, step) in stranded {
                let path = &steps[*step].path;
                if !overtaken.contains_key(path)
                    && let Some(node) = save(&writer, ground, *index, *step)?
                {
                    overtaken.insert(path.clone(), node);
                }
            }
            writer.finish()?;
        }
        let all = 0..ground.stagings.len();
        let left = unstaging::remove(ground, all, steps.len(), &|at, step| {
            stranded.contains(&(at, step))
        })?;
        Ok(Self { overtaken, left })
    }
}

/// `None`: it can't be read, or has no bytes.
fn save(writer: &ObjectWriter<'_>, ground: &Ground<'_>, index: usize, step: usize) -> Result<Option<Node>> {
    let staging = &ground.stagings[index];
    let slot = step.to_string();
    let at = staging.at(&slot);
    let full = ground.full(&staging.path().join(slot.as_bytes()));
    let found = compare::identify(at.0, at.1).at(&full)?;
    let Some((stat, node)) = found.and_then(|found| Some((found.stat, found.node?))) else {
        return Ok(None);
    };
    let saved = match node.kind {
        Kind::File(_) => {
            let mut file = ops::open_file(at.0, at.1).at(&full)?;
            writer.put_stream(stat.size, &mut file)?.map(Kind::File)
        }
        Kind::Link(_) => {
            let target = ops::read_link(at.0, at.1).at(&full)?;
            Some(Kind::Link(writer.put(ObjectKind::Blob, &target)?))
        }
        Kind::Dir | Kind::Fifo => None,
    };
    Ok(saved.map(|kind| Node { kind, ..node }))
}
