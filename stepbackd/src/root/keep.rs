//! What an actor does to keep its store small: retention, and room within the quota.

use std::time::{Duration, Instant};

use stepback_engine::engine::{Budget, Dropped, Engine, Usage};
use stepback_engine::node::{NotCaptured, Reason};
use stepback_engine::path::TreePath;
use stepback_engine::progress::Progress;
use stepback_engine::store::RESERVE_BYTES;
use stepback_proto::Warning;

use crate::locks::Reach;
use crate::root::actor::Actor;
use crate::root::mailbox::End;
use crate::root::perform::JobError;
use crate::root::pressure::Pressure;

/// Retention is applied at most this often.
const THIN_EVERY: Duration = Duration::from_secs(60);
/// A limit is told of from here on, in percent.
const TOLD_FROM: u64 = 80;
/// Room is made down to this, in percent of a limit.
const ROOM_TO: u64 = 90;

/// What came of it.
#[derive(Debug, Default)]
struct Thinned {
    /// So many checkpoints are gone by their age.
    gone: usize,
    /// What came of making room, if that was tried.
    made: Option<Dropped>,
    /// So many bytes all stores together use too much.
    over_total: u64,
    /// What was left out for want of room and has room now.
    fits: Vec<TreePath>,
    still_pressed: bool,
}

impl Actor {
    /// Applies retention, and makes room when there is none. `asked`: all stores together use so many bytes too
    /// much for what another root has to capture.
    pub(super) fn thin(&mut self, asked: Option<u64>) {
        self.timers.thin = None;
        let _held = self.daemon.locks.hold(&self.root.path, Reach::Own);
        if self.root.mailbox.ending() == Some(End::Retire) {
            return;
        }
        self.take_over();
        self.daemon.keeper.make_way(Some(&self.root.store));
        self.settle_store(true);
        let (policy, budget, pressure) = (self.config.retention, self.config.quota, self.pressure);
        let result = self.with_engine(&Progress::default(), |engine, cx| {
            if engine.unfinished()?.is_some() {
                return Ok(Thinned::default());
            }
            let mut thinned = Thinned {
                gone: engine.thin(&policy, false, cx)?.len(),
                ..Thinned::default()
            };
            let refused = refused(engine)?;
            let usage = engine.usage()?;
            // Nothing is given up for what has no room in an empty store either.
            let wanted = |left_out: &&NotCaptured| left_out.size <= most(usage, &budget);
            let wanted: Vec<u64> = refused.iter().filter(wanted).map(|it| it.size).collect();
            let free = usage.room(&budget);
            let largest = wanted.into_iter().max().unwrap_or(0);
            let pressed = free == 0 || largest > free;
            let over = match asked {
                None if pressed => over_total(usage, &budget, largest),
                asked => asked.unwrap_or(0),
            };
            if (pressed || over > 0) && pressure.is_due(engine.has_thinnable(&policy, cx.now)) {
                thinned.over_total = over;
                thinned.made = Some(engine.make_room(&policy, target(usage, &budget, largest, over), cx)?);
            }
            // What there is room for now is captured at once.
            let free = engine.usage()?.room(&budget);
            let (fits, rest): (Vec<_>, Vec<_>) =
                refused.into_iter().partition(|left_out| left_out.size <= free);
            thinned.fits = fits.into_iter().map(|left_out| left_out.path).collect();
            thinned.still_pressed = free == 0 || !rest.is_empty();
            Ok(thinned)
        });
        match result {
            Ok(thinned) => {
                self.thin_failures = 0;
                self.daemon.keeper.thinning(&self.root.store, Ok(()));
                if thinned.over_total > 0 && asked.is_none() {
                    let roots = self.daemon.roots().into_iter();
                    let others = roots.filter(|root| root.store != self.root.store);
                    others.for_each(|root| root.mailbox.make_room(thinned.over_total));
                }
                self.thinned(thinned);
            }
            Err(JobError::Engine(error)) => {
                self.thin_failures += 1;
                let (why, hint) = (error.to_string(), error.hint());
                self.daemon.keeper.thinning(&self.root.store, Err((&why, &hint)));
                // Tried again soon only where a capture asks for it, and ever later.
                self.pressure.tried(0);
            }
            // A panic was told of; nobody waits for this.
            Err(_) => {}
        }
        self.publish();
        self.timers.thin = self.timers.thin.or(self.pressure.again());
    }

    fn thinned(&mut self, thinned: Thinned) {
        let id = &self.root.id;
        let gone = thinned.made.as_ref().map(|made| made.checkpoints.len());
        if let Some(made) = &thinned.made {
            if !made.checkpoints.is_empty() {
                tracing::warn!(
                    root = %id,
                    "{} checkpoints went to make room, from {:?} to {:?}; {} bytes were given back",
                    made.checkpoints.len(),
                    made.checkpoints.iter().min(),
                    made.checkpoints.iter().max(),
                    made.freed_bytes
                );
            }
            self.daemon
                .keeper
                .packed(&self.root.store, made.unreclaimed.as_deref());
        }
        if thinned.gone > 0 {
            tracing::info!(root = %id, "{} checkpoints went with time", thinned.gone);
            // After what was packed: that may have been a part only.
            self.daemon.keeper.thinned(&self.root.store);
        }
        match (thinned.still_pressed, gone) {
            (false, _) => self.pressure.found(gone.unwrap_or(0)),
            (true, Some(gone)) => self.pressure.tried(gone),
            // Nothing could help, or it isn't time yet.
            (true, None) => self.pressure.waits(),
        }
        for path in thinned.fits {
            self.root.mailbox.pending(path, Instant::now());
        }
    }

    /// The time between two applications of retention.
    pub(super) fn thin_pause(&self) -> Duration {
        THIN_EVERY * (1 << self.thin_failures.min(10))
    }

    /// A command has packed the store, or could not.
    pub(super) fn packed(&mut self, unreclaimed: Option<&str>) {
        self.pressure = Pressure::default();
        self.daemon.keeper.packed(&self.root.store, unreclaimed);
    }
}

/// What is left out for want of room.
fn refused(engine: &Engine) -> stepback_engine::Result<Vec<NotCaptured>> {
    let mut left_out = engine.not_captured(None)?;
    left_out.retain(|left_out| left_out.reason == Reason::Quota);
    Ok(left_out)
}

/// The largest file that the store could take in if it had nothing else, in bytes.
fn most(usage: Usage, budget: &Budget) -> u64 {
    let others = usage.total.saturating_sub(usage.store);
    budget
        .store
        .min(budget.total.saturating_sub(others))
        .min((usage.free.saturating_add(usage.store)).saturating_sub(usage.floor))
        .saturating_sub(RESERVE_BYTES)
}

/// What all stores have to come down by so that `wanted` bytes more have room within what all may use.
fn over_total(usage: Usage, budget: &Budget, wanted: u64) -> u64 {
    if usage.total.saturating_add(wanted) < budget.total {
        return 0;
    }
    let to = (budget.total / 100 * ROOM_TO).min(budget.total.saturating_sub(wanted));
    usage.total.saturating_sub(to)
}

/// What the store has to come down to so that `wanted` bytes more have room, and all stores come down by `over`.
fn target(usage: Usage, budget: &Budget, wanted: u64, over: u64) -> u64 {
    let part = |limit: u64| limit / 100 * ROOM_TO;
    // All give in proportion: that one root is at work now costs it no more than the others.
    let share = u128::from(over) * u128::from(usage.store);
    let share = share.div_ceil(u128::from(usage.total.max(1)));
    let share = u64::try_from(share).unwrap_or(u64::MAX);
    let short = usage.floor.saturating_add(wanted).saturating_sub(usage.free);
    part(budget.store)
        .min(budget.store.saturating_sub(wanted))
        .min(usage.store.saturating_sub(share))
        .min(usage.store.saturating_sub(short))
}

/// What people should know of the use of disk.
pub(super) fn warnings(usage: Usage, budget: &Budget, refused: usize) -> Vec<Warning> {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let mut said = Vec::new();
    for (who, they, used, limit, setting) in [
        ("the store uses", "it", usage.store, budget.store, "store"),
        ("all stores use", "they", usage.total, budget.total, "total"),
    ] {
        if used / TOLD_FROM < limit / 100 {
            continue;
        }
        let full = used >= limit;
        let left_out = if full {
            ": large new files are left out"
        } else {
            ""
        };
        said.push(Warning {
            kind: "quota".into(),
            message: format!(
                "{who} {} MiB of the {} MiB that {they} may use{left_out}",
                mib(used),
                mib(limit)
            ),
            hint: format!(
                "`stepback drop` and `stepback prune` give space back (unpin what isn't needed), `{setting}` in \
                 [quota] allows more"
            ),
        });
    }
    if usage.free < usage.floor {
        said.push(Warning {
            kind: "quota".into(),
            message: format!(
                "{} MiB are free where the store is, less than the {} MiB that stay free: large new files are left out",
                usage.free >> 20,
                mib(usage.floor)
            ),
            hint: "free some space on that file system, or set `free` in [quota]".into(),
        });
    }
    if refused > 0 && said.is_empty() {
        said.push(Warning {
            kind: "quota".into(),
            message: format!(
                "{refused} files are left out: they are larger than the room that the store has left"
            ),
            hint: "`store` in [quota] allows more; an ignore rule says that they needn't be kept".into(),
        });
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Budget = Budget {
        store: 1_000 << 20,
        total: 2_000 << 20,
        free: 100 << 20,
        files: 1,
    };

    fn usage(store: u64, total: u64, free: u64) -> Usage {
        Usage {
            store: store << 20,
            total: total << 20,
            free: free << 20,
            floor: 100 << 20,
        }
    }

    #[test]
    fn limits_are_told_of_from_80_percent_on() {
        let told = |store, total, free| warnings(usage(store, total, free), &BUDGET, 0).len();
        assert_eq!(told(799, 799, 5_000), 0);
        assert_eq!(told(801, 801, 5_000), 1);
        assert_eq!(told(801, 1_601, 5_000), 2);
        assert_eq!(told(10, 10, 99), 1);
        assert_eq!(warnings(usage(1, 1, 500), &BUDGET, 2).len(), 1);
        let no_limit = Budget::default();
        assert!(warnings(usage(801, 801, 5_000), &no_limit, 0).is_empty());
    }

    #[test]
    fn what_has_no_room_in_an_empty_store_is_not_waited_for() {
        let most = |usage| most(usage, &BUDGET) >> 20;
        assert_eq!(most(usage(1_000, 1_000, 5_000)), 1_000 - 4);
        assert_eq!(most(usage(500, 2_000, 5_000)), 500 - 4);
        assert_eq!(most(usage(500, 500, 60)), 460 - 4);
        assert_eq!(most(usage(0, 2_000, 60)), 0);
    }

    #[test]
    fn room_is_made_for_what_is_wanted() {
        let to = |usage, wanted: u32| {
            let wanted = u64::from(wanted) << 20;
            target(usage, &BUDGET, wanted, over_total(usage, &BUDGET, wanted)).div_ceil(1 << 20)
        };
        assert_eq!(to(usage(1_000, 1_000, 5_000), 0), 900);
        assert_eq!(to(usage(1_000, 1_000, 5_000), 300), 700);
        // Of 200 too many in all, this store's share.
        assert_eq!(to(usage(500, 2_000, 5_000), 0), 450);
        assert_eq!(to(usage(500, 1_900, 5_000), 400), 500 - 78);
        assert_eq!(to(usage(500, 1_900, 5_000), 0), 500);
        assert_eq!(to(usage(500, 500, 60), 10), 450);
    }
}
