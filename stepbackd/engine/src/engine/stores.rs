//! Which store holds what, whether or not its roots are attached.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{Engine, Environment};
use crate::error::Result;
use crate::locate;
use crate::store::size;

/// A store and whose checkpoints are in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUse {
    /// Its directory.
    pub store: PathBuf,
    /// Disk use in bytes, as it was measured last; measured now when it wasn't yet.
    pub bytes: u64,
    /// The directories of its roots.
    pub roots: Vec<PathBuf>,
}

impl Engine {
    /// All stores with a root whose record can be read, by path.
    ///
    /// # Errors
    /// When the stores can't be listed.
    pub fn stores(env: &Environment) -> Result<Vec<StoreUse>> {
        let (known, _) = locate::known_roots(&env.state_dir)?;
        let mut stores: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
        for root in known {
            stores.entry(root.store).or_default().push(root.record.path.0);
        }
        let bytes = |store: &PathBuf| match size::known_of(store) {
            0 => size::measure(store).unwrap_or(0),
            known => known,
        };
        Ok(stores
            .into_iter()
            .map(|(store, roots)| StoreUse {
                bytes: bytes(&store),
                store,
                roots,
            })
            .collect())
    }
}
