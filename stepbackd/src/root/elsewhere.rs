//! Stores of which no attached root can give anything back: named where all stores together come to their limit.

use std::path::PathBuf;

use stepback_engine::engine::{Engine, StoreUse};
use stepback_engine::path::for_shell;
use stepback_proto::{RootState, Warning};

use crate::daemon::Daemon;

/// So many are named.
const NAMED_MAX: usize = 3;
/// A smaller one doesn't help, in percent of what all may use.
const NAMED_PERCENT: u64 = 2;

/// Of the stores whose roots can give something back: so many bytes are in them.
pub(super) fn live_bytes(daemon: &Daemon) -> u64 {
    let mut stores: Vec<PathBuf> = daemon
        .roots()
        .iter()
        .filter(|root| {
            !matches!(
                root.state_told(),
                RootState::Missing | RootState::Replaced | RootState::Failed
            )
        })
        .map(|root| root.store.clone())
        .collect();
    stores.sort_unstable();
    stores.dedup();
    let bytes = stores
        .iter()
        .map(|store| stepback_engine::store::size::known_of(store));
    bytes.sum()
}

/// Those that no attached root uses and that are worth a word, the largest first.
pub(super) fn detached(daemon: &Daemon, total: u64) -> Vec<StoreUse> {
    let mut stores = Engine::stores(&daemon.environment).unwrap_or_default();
    let roots = daemon.roots();
    stores.retain(|it| {
        it.bytes > total / 100 * NAMED_PERCENT && !roots.iter().any(|root| root.store == it.store)
    });
    stores.sort_by_key(|it| std::cmp::Reverse(it.bytes));
    stores.truncate(NAMED_MAX);
    stores
}

/// What people should know of one.
pub(super) fn warning(it: &StoreUse) -> Warning {
    let named: Vec<String> = it.roots.iter().map(|path| path.display().to_string()).collect();
    let remedy = it.roots.first().map_or_else(String::new, |path| {
        format!("`stepback detach --forget {}` deletes them", for_shell(path))
    });
    Warning {
        kind: "quota".into(),
        message: format!(
            "{} MiB of what all stores use are checkpoints of {}, which isn't attached any more",
            it.bytes >> 20,
            named.join(" and ")
        ),
        hint: remedy,
    }
}
