//! What an actor tells of itself: the status that others read without asking, and events for those who follow.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stepback_engine::engine::Engine;
use stepback_engine::noise::Noisy;
use stepback_proto::{Backend, Event, RootState};

use crate::convert;
use crate::daemon::Happening;
use crate::root::actor::Actor;
use crate::root::reading::Reading;
use crate::root::warnings::{quieter, too_noisy};
use crate::root::{lock, sight};

/// The disk use of a store is counted on with each change, and measured now and then: no more often than this, and for at
/// most a fiftieth of the time.
const MEASURE_EVERY: Duration = Duration::from_secs(300);
const MEASURE_SHARE: u32 = 50;
/// Where events come from on this system.
const EVENTS: Backend = if cfg!(target_os = "macos") {
    Backend::Fsevents
} else if cfg!(target_os = "linux") {
    Backend::Inotify
} else {
    Backend::Kqueue
};

impl Actor {
    /// Brings the status up to date and tells of new checkpoints and of a new state.
    pub(super) fn publish(&mut self) {
        let told = self.told;
        let read = self.engine.as_ref().and_then(|engine| {
            // The engine may be the one in which something just went wrong.
            catch_unwind(AssertUnwindSafe(|| Reading::of(engine, told))).ok()
        });
        let state = self.state(read.as_ref());
        let warnings = self.warnings(read.as_ref());
        let root = convert::absolute(&self.root.path);
        let mut happened = Vec::new();
        {
            let mut known = lock(&self.root.known);
            let status = &mut known.status;
            if status.state != state {
                tracing::info!(root = %self.root.id, "{:?} -> {state:?}", status.state);
                happened.push(Event::State {
                    root: root.clone(),
                    state,
                });
            }
            status.state = state;
            status.backend = match self.poll {
                Some(_) => Backend::Poll,
                None if self.daemon.watcher.works() => EVENTS,
                None => Backend::None,
            };
            status.watches = self.watch.count();
            status.poll_seconds = self.poll.map(|every| every.as_secs_f64().ceil() as u64);
            status.missed = self.missed;
            status.gaps = self.gaps.list();
            status.warnings = warnings;
            status.drift = self.turns.drift();
            status.agents = self.turns.agents();
            known.absent_since = self.absent.map(|_| self.absent_since);
            known.opened |= read.is_some() || self.trouble.is_some();
            self.root.reported.notify_all();
            let status = &mut known.status;
            if let Some(read) = &read {
                read.fill(status);
                known.current = read.current;
                known.not_captured = Arc::clone(&read.not_captured);
                known.whereabouts = Some(read.whereabouts.clone());
                known.agents.clone_from(&read.agents);
            }
        }
        if let Some(read) = read {
            self.log_noise(&read.noisy);
            self.watch_processes(read.has_processes || self.turns.has_processes());
            if self.told != read.newest {
                let now = Instant::now();
                let pause = self.timers.measure_pause.max(MEASURE_EVERY);
                self.timers.store_bytes.get_or_insert(now + pause);
                let store = read.usage.map_or(0, |usage| usage.store);
                let hurry = self.pressure.may_hurry(store) && read.is_pressed(&self.config.quota);
                let thin = now + if hurry { Duration::ZERO } else { self.thin_pause() };
                let at = self.timers.thin.get_or_insert(thin);
                *at = thin.min(*at);
            }
            self.told = Some(read.newest.unwrap_or(0));
            happened.extend(read.untold.into_iter().map(|checkpoint| {
                tracing::info!(root = %self.root.id, checkpoint = checkpoint.id, "{}", checkpoint.trigger.name());
                Event::Checkpoint {
                    root: root.clone(),
                    checkpoint: Box::new(checkpoint),
                }
            }));
        }
        for event in happened {
            // Nobody may be listening.
            let _ = self.daemon.events.send(Happening {
                root: self.root.id.clone(),
                event,
            });
        }
    }

    pub(super) fn measure_store(&mut self) {
        let started = Instant::now();
        let bytes = self.engine.as_ref().map(Engine::store_bytes);
        self.timers.measure_pause = started.elapsed() * MEASURE_SHARE;
        self.timers.store_bytes = None;
        if let Some(Ok(bytes)) = bytes {
            lock(&self.root.known).status.store_bytes = bytes;
        }
    }

    /// Each noisy file is logged once, until it is quiet again.
    fn log_noise(&mut self, noisy: &[Noisy]) {
        for noisy in noisy.iter().filter(|noisy| !self.noisy.contains(&noisy.path)) {
            tracing::warn!(root = %self.root.id, "{}; {}", too_noisy(noisy), quieter(noisy));
        }
        self.noisy = noisy.iter().map(|noisy| noisy.path.clone()).collect();
    }

    fn state(&self, read: Option<&Reading>) -> RootState {
        if let Some(presence) = self.absent {
            sight::state_of(presence)
        } else if self.trouble.is_some() {
            RootState::Failed
        } else if !self.indexed {
            RootState::Indexing
        } else if read.is_some_and(|read| read.unfinished.is_some() || read.bad_journal.is_some()) {
            RootState::Degraded
        } else if self.poll.is_some() {
            RootState::Polling
        } else {
            RootState::Watching
        }
    }
}
