//! How much disk a root's checkpoints may use.

use std::sync::atomic::AtomicU64;

use super::Engine;
use super::look::Within;
use crate::error::Result;
use crate::store::size;
use crate::tree::{Census, Limits, Room};

/// The most files that a directory has to be attached without being forced.
const FILES_MAX: u64 = 1_000_000;
/// Of the file system, so much stays free in any case, in percent, unless the setting says less.
const FREE_PERCENT: u64 = 5;

/// Small changes may exceed a limit by so much of it in all, in percent,
const SMALL_PERCENT: u64 = 5;
/// or by so many bytes, if that is more: what each checkpoint needs for itself has room there, too.
const SMALL_BYTES_MIN: u64 = 4 << 20;
/// When that is used up, too, one look takes in so many bytes of them: an edit of source code. As new checkpoints come, older
/// ones lose what protects them, and make room.
const SMALL_BYTES_EACH: u64 = 1 << 20;

/// How much disk may be used, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// By the root's store.
    pub store: u64,
    /// By all stores.
    pub total: u64,
    /// What must stay free on the file system, if that is less than 5 % of it.
    pub free: u64,
    /// The most files of a directory that is attached.
    pub files: u64,
}

/// No limit but for the number of files.
impl Default for Budget {
    fn default() -> Self {
        Self {
            store: u64::MAX,
            total: u64::MAX,
            free: 0,
            files: FILES_MAX,
        }
    }
}

/// What is used of a budget, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// By the root's store.
    pub store: u64,
    /// By all stores that are known.
    pub total: u64,
    /// Free on the file system.
    pub free: u64,
    /// What must stay free.
    pub floor: u64,
}

impl Usage {
    /// How much may still be added within `budget`; 0 when it is used up.
    #[must_use]
    pub fn room(&self, budget: &Budget) -> u64 {
        let store = budget.store.saturating_sub(self.store);
        let total = budget.total.saturating_sub(self.total);
        store.min(total).min(self.free.saturating_sub(self.floor))
    }

    /// How much of small changes may be added beside [`Self::room`], so that they go on being captured when `budget` is used
    /// up: a little beyond it, and beyond that a little at each look. Nothing where no more than `floor` bytes are free.
    #[must_use]
    pub fn room_for_small(&self, budget: &Budget, floor: u64) -> u64 {
        let store = with_small(budget.store).saturating_sub(self.store);
        let total = with_small(budget.total).saturating_sub(self.total);
        let beyond = store.min(total).saturating_sub(self.room(budget));
        beyond.max(SMALL_BYTES_EACH).min(self.free.saturating_sub(floor))
    }
}

/// A limit, and what small changes may take beyond.
fn with_small(limit: u64) -> u64 {
    limit.saturating_add((limit / 100 * SMALL_PERCENT).max(SMALL_BYTES_MIN))
}

impl Engine {
    /// Sets how much may be used from now on.
    pub const fn set_budget(&mut self, budget: Budget) {
        self.budget = budget;
    }

    /// What is used, without a walk through the store.
    ///
    /// # Errors
    /// When the file system doesn't tell what is free.
    pub fn usage(&self) -> Result<Usage> {
        let store = self.store.path();
        if self.store.known_bytes() == 0 {
            self.store.disk_bytes()?;
        }
        let (free, all) = size::free_and_all(store)?;
        Ok(Usage {
            store: self.store.known_bytes(),
            total: store.parent().map_or(0, size::total),
            free,
            floor: self.budget.free.min(all / 100 * FREE_PERCENT),
        })
    }

    pub(super) fn limits(&self, within: Within) -> Result<Limits> {
        let first = self.record.highest == 0;
        if within == Within::Anything || (first && self.forced) {
            return Ok(Limits::default());
        }
        let census = first.then(|| Census {
            path: self.path.clone(),
            files_max: self.budget.files,
            bytes_max: self.budget.store,
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        });
        let usage = self.usage()?;
        let floor = match within {
            Within::Asked => usage.floor / 2,
            _ => usage.floor,
        };
        let small = usage.room_for_small(&self.budget, floor);
        Ok(Limits {
            room: Some(Room::of(usage.room(&self.budget), small)),
            census,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn small_changes_may_exceed_a_limit_by_a_little_and_never_use_what_stays_free() {
        let budget = Budget {
            store: 1_000 * MIB,
            total: 2_000 * MIB,
            ..Budget::default()
        };
        let small = |store, total, free, floor: u64| {
            let usage = Usage {
                store: store * MIB,
                total: total * MIB,
                free: free * MIB,
                floor: 100 * MIB,
            };
            usage.room_for_small(&budget, floor * MIB) / MIB
        };
        assert_eq!(small(900, 900, 5_000, 100), 50);
        assert_eq!(small(1_000, 1_000, 5_000, 100), 50);
        assert_eq!(small(1_040, 1_040, 5_000, 100), 10);
        assert_eq!(small(1_060, 1_060, 5_000, 100), 1, "an edit");
        assert_eq!(small(10, 2_090, 5_000, 100), 10);
        assert_eq!(small(1_000, 1_000, 120, 100), 20);
        assert_eq!(small(10, 10, 100, 100), 0);
        assert_eq!(small(10, 10, 100, 50), 50);
    }
}
