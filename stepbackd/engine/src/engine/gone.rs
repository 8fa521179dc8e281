//! Roots whose directory is gone for good, as far as can be seen: not merely unmounted, unreadable or moved.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::attach::pins_prefix;
use super::{Engine, Environment};
use crate::checkpoint::{self, Checkpoint};
use crate::error::Result;
use crate::locate::{self, KnownRoot};
use crate::record::number;
use crate::state::{self, Identity, RootRecord};
use crate::store::Store;
use crate::time::Time;

/// A root of which the directory is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoneRoot {
    /// Its id.
    pub id: String,
    /// Where the directory was.
    pub path: PathBuf,
    /// The store that holds its checkpoints.
    pub store: PathBuf,
    /// Disk use of that store in bytes.
    pub store_bytes: u64,
    /// So many other roots have their checkpoints in it, too.
    pub others: usize,
    /// So many checkpoints it has,
    pub checkpoints: usize,
    /// of which so many are pinned.
    pub pinned: usize,
    /// When its newest one was made, if that can be read.
    pub newest: Option<Time>,
}

impl Engine {
    /// All roots in all stores whose directory is gone. A store that can't be read is passed over.
    ///
    /// # Errors
    /// When the stores can't be listed.
    pub fn gone_roots(env: &Environment) -> Result<Vec<GoneRoot>> {
        let (known, _) = locate::known_roots(&env.state_dir)?;
        let mut in_store: BTreeMap<PathBuf, usize> = BTreeMap::new();
        for root in &known {
            *in_store.entry(root.store.clone()).or_default() += 1;
        }
        // Of a record that was damaged it isn't sure where the directory was.
        let gone = known
            .into_iter()
            .filter(|known| known.rebuilt.is_none() && is_gone(&known.record));
        gone.map(|KnownRoot { store, record, .. }| {
            let id = record.head.root;
            let held = Held::of(&store, &id)?;
            Ok(GoneRoot {
                path: record.path.0,
                store_bytes: crate::store::size::measure(&store).unwrap_or(0),
                others: in_store.get(&store).map_or(0, |all| all - 1),
                checkpoints: held.checkpoints,
                pinned: held.pinned,
                newest: held.newest,
                store,
                id,
            })
        })
        .collect()
    }
}

/// What a store has of a root.
struct Held {
    checkpoints: usize,
    pinned: usize,
    newest: Option<Time>,
}

impl Held {
    fn of(store: &Path, id: &str) -> Result<Self> {
        let store = Store::open(store)?;
        let refs = store.all_refs(&checkpoint::refs_prefix(id))?;
        let newest = refs.iter().max_by_key(|(name, _)| number(name));
        let newest = newest.and_then(|(name, commit)| {
            let commit = commit.as_ref().ok()?;
            Checkpoint::load(&store, id, name, *commit).ok()
        });
        Ok(Self {
            checkpoints: refs.len(),
            pinned: store.all_refs(&pins_prefix(id))?.len(),
            newest: newest.map(|checkpoint| checkpoint.time),
        })
    }
}

/// Whether a root's directory is surely gone. Whatever can't be told counts as no.
fn is_gone(record: &RootRecord) -> bool {
    let path = &record.path.0;
    // The file system that it was on, without it.
    if record.mount_point || !is_absent(path) {
        return false;
    }
    let Some(above) = path.ancestors().skip(1).find(|dir| !is_absent(dir)) else {
        return false;
    };
    let same_file_system = state::file_system_id(above).is_ok_and(|id| id == record.parent_fsid);
    same_file_system && above.is_dir() && !is_in(above, &record.identity)
}

fn is_absent(path: &Path) -> bool {
    path.symlink_metadata()
        .is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Whether the directory has only got another name. One that can't be listed may have it.
fn is_in(dir: &Path, identity: &Identity) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return true;
    };
    entries.into_iter().any(|entry| match entry {
        Ok(entry) => match Identity::at(&entry.path()) {
            Ok(found) => found.is_some_and(|found| found.is(identity)),
            // What can't be looked at isn't a directory of this user's.
            Err(_) => false,
        },
        Err(_) => true,
    })
}
