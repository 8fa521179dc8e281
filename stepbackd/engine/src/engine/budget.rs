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
        Ok(Limits {
            room: Some(Room::of(self.usage()?.room(&self.budget))),
            census,
        })
    }
}
