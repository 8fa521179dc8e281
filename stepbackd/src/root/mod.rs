//! A root: an actor (one thread, one engine) and what others may know of it without asking the actor.
//!
//! | file | what |
//! |---|---|
//! | `job` | everything that can be asked |
//! | `mailbox` | what waits for the actor |
//! | `actor` | the loop and its timers |
//! | `capture` | captures of its own accord: bursts, looks at everything |
//! | `errand` | what comes before and after each job |
//! | `care` | how the actor handles its engine, and what goes wrong |
//! | `perform` | each job, on the engine |
//! | `hook` | what agents tell of their work |
//! | `turns` | whose turn it is |
//! | `turn_starts` | the starts of turns that aren't saved yet |
//! | `report` | what the actor tells of itself: status and events |
//! | `reading` | what it reads from the engine for that |
//! | `warnings` | what is wrong, and what helps |
//! | `absence` | what becomes of a root that goes away and comes back |
//! | `fallen` | what becomes of a root whose actor died |
//! | `clocks` | whether the machine slept |
//! | `gaps` | when nothing was watched |
//! | `reconcile` | whether events told of every change |
//! | `gently` | a thread of low priority |
//! | `keep` | retention and quota |
//! | `room` | what has to be given up for it, and what is said of that |
//! | `pressure` | when making room is tried again |
//! | `went` | what went to make room |
//! | `elsewhere` | stores that no attached root uses |
//! | `sight` | what can be seen of the root without the actor |
//! | `looks` | a bounded time for that |
//! | `standstill` | what is said while the actor hangs in its file system |
//! | `aside` | what is done without the actor then |

mod absence;
pub mod actor;
pub mod aside;
mod capture;
mod care;
mod clocks;
mod elsewhere;
mod errand;
mod fallen;
pub mod gaps;
mod gently;
mod hook;
pub mod job;
mod keep;
pub mod looks;
pub mod mailbox;
pub mod perform;
mod pressure;
mod reading;
mod reconcile;
mod report;
mod room;
mod sight;
pub mod standstill;
mod turn_starts;
mod turns;
mod warnings;
mod went;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use stepback_engine::conversation::SessionId;
use stepback_engine::engine::Whereabouts;
use stepback_engine::node::NotCaptured;
use stepback_engine::progress::Progress;
use stepback_engine::time::Time;
use stepback_proto::{Backend, Drift, RootLine, RootState, RootStatus, WirePath};

pub use crate::root::fallen::fallen;
use crate::root::looks::Looks;
use crate::root::mailbox::{End, Mailbox};
use crate::root::standstill::Standstill;
use crate::root::turn_starts::TurnStarts;

/// What is said to be done while an operation writes below a root.
pub const PUTTING_BACK: &str = "putting back";

/// What everyone may know of a root.
#[derive(Debug)]
pub struct Root {
    /// Its id.
    pub id: String,
    /// Its directory.
    pub path: PathBuf,
    /// Its store.
    pub store: PathBuf,
    /// What waits for its actor.
    pub mailbox: Arc<Mailbox>,
    /// So many times in a row its actor has died of an error of ours.
    pub falls: u32,
    known: Mutex<Known>,
    /// The actor has told something.
    reported: Condvar,
    work: Mutex<Option<Work>>,
    /// Words of agents that its full mailbox didn't take.
    unheard: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
    looks: Looks,
    /// Turns of agents whose start isn't saved yet.
    pub turn_starts: TurnStarts,
    /// Whether its actor gets on.
    pub standstill: Standstill,
}

/// What the actor told of itself last.
#[derive(Debug)]
struct Known {
    status: RootStatus,
    /// The checkpoint that equals the tree.
    current: Option<u64>,
    not_captured: Arc<[NotCaptured]>,
    /// Which directory the root is, once the engine was open.
    whereabouts: Option<Whereabouts>,
    /// Since when its directory hasn't been there.
    absent_since: Option<Time>,
    /// Sessions of agents that it knows.
    agents: Vec<SessionId>,
    /// The engine was open (or couldn't be opened) when it was told.
    opened: bool,
}

/// How a root is.
#[derive(Debug)]
pub struct Told {
    /// What the actor told last, corrected.
    pub status: RootStatus,
    /// The checkpoint that equals the tree as it was seen last.
    pub current: Option<u64>,
    /// The paths that it doesn't capture.
    pub not_captured: Arc<[NotCaptured]>,
}

/// What the actor is doing, while it takes long.
#[derive(Debug, Clone)]
pub struct Work {
    /// In a word.
    pub what: &'static str,
    /// How far it is.
    pub progress: Arc<Progress>,
    /// Nothing is lost when it is cancelled because the daemon stops.
    pub may_be_cancelled: bool,
    /// Whoever detaches the root needn't wait for it.
    pub ends_with_root: bool,
}

impl Root {
    /// A root whose actor has told nothing yet.
    pub fn new(id: String, path: PathBuf, store: PathBuf) -> Self {
        let status = RootStatus {
            path: WirePath::from(path.as_path()),
            id: id.clone(),
            state: RootState::Indexing,
            backend: Backend::None,
            watches: 0,
            files: 0,
            settled: Some(false),
            session: stepback_engine::session::WATCH.into(),
            sessions: Vec::new(),
            checkpoints: 0,
            redo: 0,
            last: None,
            store: WirePath::from(store.as_path()),
            store_bytes: 0,
            unfinished: None,
            progress: None,
            poll_seconds: None,
            missed: 0,
            gaps: Vec::new(),
            warnings: Vec::new(),
            builtin: Vec::new(),
            drift: None,
            agents: Vec::new(),
        };
        Self {
            id,
            path,
            store,
            mailbox: Arc::default(),
            falls: 0,
            known: Mutex::new(Known {
                status,
                current: None,
                not_captured: Arc::from([]),
                whereabouts: None,
                absent_since: None,
                agents: Vec::new(),
                opened: false,
            }),
            reported: Condvar::new(),
            work: Mutex::new(None),
            unheard: AtomicU64::new(0),
            thread: Mutex::new(None),
            looks: Looks::default(),
            turn_starts: TurnStarts::default(),
            standstill: Standstill::default(),
        }
    }

    /// Whether it is protected, by what its actor told last: what is pending can be captured.
    pub fn can_capture(&self) -> bool {
        let state = lock(&self.known).status.state;
        matches!(
            state,
            RootState::Watching | RootState::Polling | RootState::Degraded
        )
    }

    /// How it is. Waits for `patience` at most, and only until the actor has opened its store for the first time.
    pub fn status(&self, patience: Duration) -> Told {
        // Before what is known: that may be newer then, and never older than what settled.
        let is_settled = self.mailbox.is_settled();
        let (mut status, current, not_captured, whereabouts) = {
            let known = self.opened(patience);
            (
                known.status.clone(),
                known.current,
                Arc::clone(&known.not_captured),
                known.whereabouts.clone(),
            )
        };
        status.store_bytes = self.store_bytes(status.store_bytes);
        status.settled = (status.backend != Backend::Poll).then_some(is_settled);
        self.correct(&mut status, whereabouts.as_ref());
        self.tell_standstill(&mut status);
        let unheard = self.unheard.load(Ordering::Relaxed);
        if unheard > 0 {
            let drift = status.drift.get_or_insert(Drift {
                tool_calls: 0,
                captured: 0,
            });
            drift.tool_calls += unheard;
        }
        status.progress = lock(&self.work).as_ref().map(|work| {
            let (done, total) = work.progress.get();
            stepback_proto::Progress {
                what: work.what.into(),
                done,
                total,
            }
        });
        Told {
            status,
            current,
            not_captured,
        }
    }

    fn opened(&self, patience: Duration) -> MutexGuard<'_, Known> {
        let known = lock(&self.known);
        let known = self
            .reported
            .wait_timeout_while(known, patience, |known| !known.opened);
        known.unwrap_or_else(PoisonError::into_inner).0
    }

    /// How the actor told it is last.
    pub fn state_told(&self) -> RootState {
        lock(&self.known).status.state
    }

    /// What the actor told last, uncorrected.
    #[cfg(test)]
    pub fn told(&self) -> RootStatus {
        lock(&self.known).status.clone()
    }

    /// Since when its directory hasn't been there, if it isn't.
    pub fn absent_since(&self) -> Option<Time> {
        lock(&self.known).absent_since
    }

    /// The sessions of agents that its newest conversations are of.
    pub fn agents(&self) -> Vec<SessionId> {
        lock(&self.known).agents.clone()
    }

    /// A word of an agent couldn't be taken; whether it is the first one.
    pub fn unheard(&self) -> bool {
        self.unheard.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Its line of `roots`. Waits as [`Self::status`] does.
    pub fn line(&self, patience: Duration) -> RootLine {
        let (mut status, whereabouts) = {
            let known = self.opened(patience);
            (known.status.clone(), known.whereabouts.clone())
        };
        self.correct(&mut status, whereabouts.as_ref());
        self.tell_standstill(&mut status);
        RootLine {
            path: status.path,
            id: self.id.clone(),
            state: status.state,
            checkpoints: status.checkpoints,
            last: status.last,
            store_bytes: self.store_bytes(status.store_bytes),
        }
    }

    /// Of its store as it is known now: packing makes it smaller without a word to the actor. `told`: if it isn't known.
    fn store_bytes(&self, told: u64) -> u64 {
        match stepback_engine::store::size::known_of(&self.store) {
            0 => told,
            known => known,
        }
    }

    /// Ends the actor. When it is [`End::Stop`], work that may be cancelled is.
    pub fn end(&self, end: End) {
        self.mailbox.end(end);
        if let Some(work) = lock(&self.work).as_ref()
            && work.may_be_cancelled
        {
            work.progress.cancel();
        }
    }

    /// The root is to be detached: a look that is only for its own sake ends.
    pub fn cancel_look(&self) {
        if let Some(work) = lock(&self.work).as_ref()
            && work.ends_with_root
        {
            work.progress.cancel();
        }
    }

    /// Its actor's thread.
    pub fn runs_in(&self, thread: JoinHandle<()>) {
        *lock(&self.thread) = Some(thread);
    }

    /// Whether the actor's thread has ended.
    pub fn has_ended(&self) -> bool {
        lock(&self.thread).as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn works_on(&self, work: Option<Work>) {
        // Told to stop between its start and here.
        if let Some(work) = &work
            && work.may_be_cancelled
            && self.mailbox.ending().is_some()
        {
            work.progress.cancel();
        }
        *lock(&self.work) = work;
    }
}

/// The present moment, as the engine takes it.
pub fn now() -> Time {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    Time(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
