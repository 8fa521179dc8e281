//! How an actor handles its engine: opens it, calls it, and takes what goes wrong.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use stepback_engine::Error;
use stepback_engine::engine::{Context, Engine, Settings};
use stepback_engine::path::TreePath;
use stepback_engine::progress::Progress;
use stepback_proto::{Failure, FailureKind};

use crate::convert;
use crate::memory;
use crate::root::actor::{Actor, Trouble};
use crate::root::fallen::fallen;
use crate::root::mailbox::End;
use crate::root::perform::JobError;
use crate::root::{now, sight};

/// The first and the longest pause after a capture that failed, or an actor that died.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// What is said of a failure for which nobody knows a remedy.
const TRIED_AGAIN: &str = "it is tried again by itself; `stepback doctor` looks for the cause, `stepback save` tries at \
    once and says whether it is mended";
/// How long the actor waits for events that are under way.
const EVENTS_PATIENCE: Duration = Duration::from_secs(1);

/// Work that took longer has used memory that is worth giving back.
pub(super) const MUCH: Duration = Duration::from_millis(50);
/// After less, it is waited so long for more of it.
const QUIET_AFTER: Duration = Duration::from_secs(2);

impl Actor {
    pub(super) fn went_well(&mut self, dirty: &[TreePath]) {
        self.trouble = None;
        self.no_longer_absent();
        for path in dirty {
            self.root.mailbox.pending(path.clone(), Instant::now());
        }
    }

    /// Everything was looked at. What events had not told of is known now; what was there in between and changed again
    /// isn't.
    pub(super) fn note_loss(&mut self, changed: bool) {
        if let Some((since, why)) = self.root.mailbox.take_lost()
            && changed
        {
            self.gaps.add(since, now(), why);
        }
    }

    /// A job that captures failed. What the caller did wrong says nothing of captures: only what would fail one of our
    /// own too is trouble.
    pub(super) fn job_went_wrong(&mut self, error: JobError) {
        let of_the_capture = match &error {
            JobError::Engine(e) => matches!(
                e,
                Error::Io { .. }
                    | Error::Damaged { .. }
                    | Error::DamagedRecord { .. }
                    | Error::Library { .. }
                    | Error::Rules { .. }
                    | Error::RootMissing(_)
                    | Error::NotMounted(_)
                    | Error::RootReplaced(_)
            ),
            // A panic, or a store that is gone.
            JobError::Failure(failure) => {
                matches!(failure.kind, FailureKind::Internal | FailureKind::StoreDamaged)
            }
            JobError::Gone => false,
        };
        if of_the_capture {
            return self.went_wrong(error);
        }
        self.watch.untold();
        self.root.mailbox.everything_pending(Instant::now());
    }

    pub(super) fn went_wrong(&mut self, error: JobError) {
        // What the engine knew may be older than the events that it has been told of.
        self.watch.untold();
        self.root.mailbox.everything_pending(Instant::now());
        // Whatever is wrong here, others needn't wait for it.
        self.ticket = None;
        match error {
            JobError::Engine(
                Error::RootMissing(_)
                | Error::NotMounted(_)
                | Error::CannotMakeRoot { .. }
                | Error::RootReplaced(_),
            ) => {
                self.look_for_root();
                if self.absent.is_some() {
                    return;
                }
                // It came back meanwhile, or the two don't agree: tried again, but not at once.
            }
            JobError::Engine(Error::Cancelled) | JobError::Gone => return,
            _ => {}
        }
        let mut failure = self.failure(&error);
        if failure.hint.is_empty() {
            failure.hint = TRIED_AGAIN.into();
        }
        tracing::error!(root = %self.root.id, "a capture failed: {}", failure.message);
        let times = self.trouble.as_ref().map_or(0, |trouble| trouble.times);
        self.trouble = Some(Trouble {
            failure,
            times: times + 1,
            retry_at: Instant::now() + pause_after(times + 1),
        });
    }

    pub(super) fn failure(&self, error: &JobError) -> Failure {
        match error {
            JobError::Engine(Error::Cancelled) if self.root.mailbox.ending().is_some() => {
                ended(self.root.mailbox.ending())
            }
            JobError::Engine(Error::Io { .. } | Error::Damaged { .. } | Error::Library { .. })
                if !self.root.store.is_dir() =>
            {
                sight::store_gone(&self.root.path, &self.root.store)
            }
            JobError::Engine(e) => convert::failure(e),
            JobError::Failure(failure) => failure.clone(),
            JobError::Gone if self.root.mailbox.ending().is_some() => ended(self.root.mailbox.ending()),
            JobError::Gone => convert::fail(FailureKind::Internal, "the client went away", ""),
        }
    }

    /// An engine with other options that an `attach` made.
    pub(super) fn take_over(&mut self) {
        if let Some(engine) = self.root.mailbox.adopted() {
            self.engine = Some(*engine);
            self.indexed = false;
            self.no_longer_absent();
            self.trouble = None;
            // Rules and tree are read anew: no directory counts as known.
            self.watch.untold();
            self.watch.turn_on_anew();
            self.awaits_attach = true;
        }
    }

    pub(super) fn reload(&mut self) {
        self.config = self.daemon.config().for_root(&self.root.path);
        let settings = self.settings();
        if let Some(engine) = &mut self.engine {
            engine.set_settings(&settings);
        }
        if self.poll.is_some() {
            // The limit may have been raised.
            self.watch.turn_on_anew();
        }
        self.indexed = false;
    }

    pub(super) fn settings(&self) -> Settings {
        Settings {
            include: self.config.include.clone(),
            max_file_size: self.config.max_file_size,
            conversations: self.config.conversations,
        }
    }

    /// The engine may still know what a store held that is gone. Then it goes too, so that nobody is told of checkpoints
    /// that nobody can have.
    pub(super) fn require_store(&mut self) -> Result<(), JobError> {
        if self.root.store.is_dir() {
            return Ok(());
        }
        self.engine = None;
        Err(JobError::Failure(sight::store_gone(
            &self.root.path,
            &self.root.store,
        )))
    }

    pub(super) fn open(&mut self) -> Result<(), JobError> {
        self.require_store()?;
        if self.engine.is_none() {
            let settings = self.settings();
            let engine = Engine::open(
                &self.daemon.environment,
                &self.root.store,
                &self.root.id,
                &settings,
            )?;
            // What was made before is no news.
            self.told
                .get_or_insert(engine.checkpoints().last().map_or(0, |c| c.n));
            self.engine = Some(engine);
        }
        Ok(())
    }

    /// Runs `work` on the engine, opened if it must be. A panic costs the engine, not the actor.
    pub(super) fn with_engine<T>(
        &mut self,
        progress: &Progress,
        work: impl FnOnce(&mut Engine, &Context<'_>) -> Result<T, JobError>,
    ) -> Result<T, JobError> {
        let result = catch_unwind(AssertUnwindSafe(|| {
            self.open()?;
            let engine = self.engine.as_mut().expect("opened right above");
            engine.set_budget(self.config.quota);
            let now = now();
            engine.set_moment_of_age(self.daemon.steady.moment(now));
            work(
                engine,
                &Context {
                    now,
                    watch: &self.watch,
                    progress,
                },
            )
        }));
        if self.engine.as_ref().is_some_and(Engine::holds_tree) {
            let max = self.daemon.config().cache_roots;
            self.daemon.idle_trees.used(&self.root.mailbox, max);
        }
        result.unwrap_or_else(|_| {
            let engine = self.engine.take();
            // Its parts may be in any state.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(engine)));
            self.watch.untold();
            self.root.mailbox.everything_pending(Instant::now());
            Err(JobError::Failure(convert::fail(
                FailureKind::Internal,
                "an internal error; the root is opened anew",
                "`stepback daemon logs` shows what happened; please report it",
            )))
        })
    }

    /// Gives the memory of the tree back.
    pub(super) fn rest(&mut self) {
        // Until a first look has ended, the tree is being made; what went wrong is looked at again soon.
        if !self.indexed || self.trouble.is_some() {
            return;
        }
        let Some(engine) = &mut self.engine else { return };
        match catch_unwind(AssertUnwindSafe(|| engine.rest())) {
            Ok(Ok(())) => {
                memory::give_back();
                tracing::debug!(root = %self.root.id, "the tree is no longer in memory");
            }
            Ok(Err(e)) => tracing::warn!(root = %self.root.id, "the tree stays in memory: {e}"),
            Err(_) => self.engine = None,
        }
    }

    pub(super) fn save_cache(&mut self) {
        self.cached = self.told;
        if let Some(engine) = &self.engine
            && let Err(e) = engine.save_cache()
        {
            tracing::debug!(root = %self.root.id, "the cache isn't saved: {e}");
        }
    }

    /// Brings the store's record of the root up to date. Whoever calls this holds the root: an `attach` writes it, too.
    pub(super) fn catch_up_record(&mut self) {
        let Some(engine) = self.engine.as_mut().filter(|engine| engine.is_record_behind()) else {
            return;
        };
        self.daemon.keeper.make_way(Some(&self.root.store));
        if let Err(e) = engine.write_record(now()) {
            tracing::debug!(root = %self.root.id, "the root's record stays behind: {e}");
        }
    }

    /// A sync of the file system, which may take long beside somebody's large writes: for when nobody waits.
    pub(super) fn settle_store(&self) {
        if let Some(engine) = &self.engine
            && let Err(e) = engine.settle_store()
        {
            stays_ahead(&self.root.id, &e);
        }
    }

    /// The same when much has gathered, by another thread: the next checkpoint doesn't wait for it.
    pub(super) fn settle_store_aside(&mut self) {
        if self.settling.as_ref().is_some_and(|at_it| !at_it.is_finished()) {
            return;
        }
        let begun = self.engine.as_ref().map(Engine::begin_settling).transpose();
        match begun {
            Ok(Some(Some(settling))) => {
                let id = self.root.id.clone();
                self.settling = Some(self.daemon.runtime.spawn_blocking(move || {
                    if let Err(e) = settling.finish() {
                        stays_ahead(&id, &e);
                    }
                }));
            }
            Ok(_) => self.settling = None,
            Err(e) => stays_ahead(&self.root.id, &e),
        }
    }

    /// After work that may have read much of the store, or used much memory.
    pub(super) fn give_back(&self, took: Duration) {
        if let Some(engine) = &self.engine
            && let Err(e) = engine.let_go_of_store()
        {
            tracing::debug!(root = %self.root.id, "what was read of the store stays in memory: {e}");
        }
        if took >= MUCH {
            memory::give_back();
        }
    }

    /// Something small was done, which is nothing to give back for at once: when nothing follows, it is.
    pub(super) fn quiet_soon(&mut self) {
        self.timers.quiet = Some(Instant::now() + QUIET_AFTER);
    }

    pub(super) fn quiet(&mut self) {
        self.timers.quiet = None;
        self.give_back(MUCH);
    }

    /// Waits until what happened until now has been told; `false` when that takes too long.
    pub(super) fn wait_for_events(&self) -> bool {
        self.daemon
            .runtime
            .block_on(self.daemon.cookies.seen_everything(EVENTS_PATIENCE))
    }
}

/// The pause after the `times`-th failure in a row.
pub(super) fn pause_after(times: u32) -> Duration {
    let growth = 1 << times.saturating_sub(1).min(10);
    RETRY.0.saturating_mul(growth).min(RETRY.1)
}

fn stays_ahead(root: &str, error: &stepback_engine::Error) {
    tracing::debug!(root, "the store's newest changes stay in one file: {error}");
}

/// What is said to jobs that an actor leaves undone.
pub(super) fn ended(end: Option<End>) -> Failure {
    match end {
        Some(End::Fall) => fallen(),
        Some(End::Retire) => convert::fail(
            FailureKind::Busy,
            "the root was detached or attached anew meanwhile",
            "try again",
        ),
        _ => convert::fail(
            FailureKind::DaemonUnavailable,
            "the daemon is stopping",
            "try again",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_grow_to_a_bound() {
        let seconds: Vec<u64> = (1..9).map(|times| pause_after(times).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pause_after(u32::MAX), RETRY.1);
    }
}
