//! How far long work is, and the wish that it stop: shared between the thread that works and those that ask.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Error, Result};

/// Counters of one long piece of work.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    cancel: AtomicBool,
    pulse: AtomicU64,
}

impl Progress {
    /// Files done, of so many (0 when unknown).
    #[must_use]
    pub fn get(&self) -> (u64, u64) {
        (
            self.done.load(Ordering::Relaxed),
            self.total.load(Ordering::Relaxed),
        )
    }

    /// Sets how much there is to do, and that none of it is done.
    pub fn begin(&self, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    /// A number that is another one as long as the work gets on, whatever it is at.
    #[must_use]
    pub fn pulse(&self) -> u64 {
        self.pulse.load(Ordering::Relaxed)
    }

    fn beat(&self) {
        // Not exactly one more, when two threads do it at once: it only has to change.
        self.pulse.store(self.pulse().wrapping_add(1), Ordering::Relaxed);
    }

    /// So many files more are done.
    pub fn advance(&self, files: u64) {
        self.beat();
        self.done.fetch_add(files, Ordering::Relaxed);
    }

    /// Asks the work to stop at its next safe point.
    pub fn cancel(&self) {
        self.cancel.store(true, Ordering::Relaxed);
    }

    /// For the worker, at its safe points.
    ///
    /// # Errors
    /// [`Error::Cancelled`] once [`Self::cancel`] was called.
    pub fn check(&self) -> Result<()> {
        self.beat();
        if self.cancel.load(Ordering::Relaxed) {
            Err(Error::Cancelled)
        } else {
            Ok(())
        }
    }
}
