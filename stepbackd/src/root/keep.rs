//! What an actor does to keep its store small: retention, and room within the quota.

use std::time::{Duration, Instant};

use stepback_engine::Error;
use stepback_engine::engine::{Dropped, Engine};
use stepback_engine::node::{NotCaptured, Reason};
use stepback_engine::path::TreePath;
use stepback_engine::progress::Progress;

use crate::locks::Reach;
use crate::root::actor::Actor;
use crate::root::mailbox::End;
use crate::root::perform::JobError;
use crate::root::pressure::Pressure;
use crate::root::room::{is_near, most, over_total, target};
use crate::root::{elsewhere, now};

/// Retention is applied at most this often.
const THIN_EVERY: Duration = Duration::from_secs(60);
/// The first and the longest pause before a purge that isn't at its end is gone on with.
const PURGE_RETRY: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(24 * 3600));
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
    /// What the store uses now, in bytes.
    store: u64,
    /// All stores together are near their limit, which is this.
    near_total: Option<u64>,
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
        self.settle_store();
        self.finish_purge();
        let (policy, budget, pressure) = (self.config.retention, self.config.quota, self.pressure);
        let live = elsewhere::live_bytes(&self.daemon);
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
                None if pressed => over_total(usage, &budget, largest, live),
                asked => asked.unwrap_or(0),
            };
            let may_give = engine.has_thinnable(&policy, cx.now);
            if (pressed || over > 0) && pressure.is_due(may_give, usage.store) {
                thinned.over_total = over;
                let to = target(usage, &budget, largest, (over, live));
                thinned.made = Some(engine.make_room(&policy, to, cx)?);
            }
            // What there is room for now is captured at once.
            let usage = engine.usage()?;
            thinned.store = usage.store;
            thinned.near_total = is_near(usage.total, budget.total).then_some(budget.total);
            let free = usage.room(&budget);
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
                let store = stepback_engine::store::size::known_of(&self.root.store);
                self.pressure.tried(0, store);
            }
            // A panic was told of; nobody waits for this.
            Err(_) => {}
        }
        self.publish();
        let again = [
            self.timers.thin.or(self.pressure.again()),
            self.purge.map(|(at, _)| at),
        ];
        self.timers.thin = again.into_iter().flatten().min();
    }

    /// Goes on with a purge that was cut off, or whose bytes couldn't be removed: nobody else does.
    fn finish_purge(&mut self) {
        if self.purge.is_some_and(|(at, _)| at > Instant::now()) {
            return;
        }
        let result = self.with_engine(&Progress::default(), |engine, cx| {
            match engine.unfinished()?.is_none() && engine.interrupted_forget()?.is_some() {
                true => Ok(engine.finish_forget(cx)?),
                false => Ok(None),
            }
        });
        match result {
            Ok(None) => self.purge = None,
            Ok(Some(done)) => {
                self.purge = None;
                let paths: Vec<String> = done.paths.iter().map(TreePath::to_string).collect();
                tracing::info!(root = %self.root.id, "the purge of {} is finished", paths.join(", "));
                for note in &done.notes {
                    tracing::warn!(root = %self.root.id, "{note}");
                }
                self.daemon
                    .keeper
                    .packed(&self.root.store, done.unreclaimed.as_deref());
            }
            Err(error) => {
                tracing::warn!(root = %self.root.id, "a purge stays unfinished: {}", self.failure(&error).message);
                if let JobError::Engine(Error::Unpurged { why }) = &error {
                    self.daemon
                        .keeper
                        .packed(&self.root.store, Some(&why.with_remedy()));
                }
                self.purge_failed();
            }
        }
    }

    /// It is tried again by itself, ever later.
    pub(super) fn purge_failed(&mut self) {
        let times = self.purge.map_or(0, |(_, times)| times + 1);
        let pause = PURGE_RETRY
            .0
            .saturating_mul(1 << times.min(10))
            .min(PURGE_RETRY.1);
        let at = Instant::now() + pause;
        self.purge = Some((at, times));
        self.timers.thin = Some(self.timers.thin.map_or(at, |thin| thin.min(at)));
    }

    fn thinned(&mut self, thinned: Thinned) {
        let id = &self.root.id;
        let freed = thinned.made.as_ref().map(|made| made.freed_bytes);
        self.elsewhere = match thinned.near_total {
            Some(total) => elsewhere::detached(&self.daemon, total),
            None => Vec::new(),
        };
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
            self.went.add(made.checkpoints.len(), now());
            self.daemon
                .keeper
                .packed(&self.root.store, made.unreclaimed.as_deref());
        }
        if thinned.gone > 0 {
            tracing::info!(root = %id, "{} checkpoints went with time", thinned.gone);
            // After what was packed: that may have been a part only.
            self.daemon.keeper.thinned(&self.root.store);
        }
        match (thinned.still_pressed, freed) {
            (false, _) => self.pressure.found(),
            (true, Some(freed)) => self.pressure.tried(freed, thinned.store),
            // Nothing could help, or it isn't time yet.
            (true, None) => self.pressure.waits(thinned.store),
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
