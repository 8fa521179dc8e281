//! The loop of a root: one thread that owns the engine. It captures bursts of events when they have settled, looks at
//! everything now and then, does the jobs that clients ask for, and survives what goes wrong in any of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use stepback_engine::checkpoint::Trigger;
use stepback_engine::engine::{Engine, Presence, StoreUse};
use stepback_engine::path::TreePath;
use stepback_engine::progress::Progress;
use stepback_engine::time::Time;
use stepback_proto::Failure;
use tokio::task::JoinHandle;

use crate::config::RootConfig;
use crate::daemon::Daemon;
use crate::first_looks::Ticket;
use crate::locks::Reach;
use crate::process;
use crate::root::care::ended;
use crate::root::clocks::jumped;
use crate::root::fallen::Fallen;
use crate::root::gaps::Gaps;
use crate::root::job::Job;
use crate::root::mailbox::{Alarm, End, Wake};
use crate::root::pressure::Pressure;
use crate::root::reconcile::Pass;
use crate::root::turns::Turns;
use crate::root::went::Went;
use crate::root::{Root, lock, now, standstill};
use crate::watch::RootWatch;

/// How often the processes of open sessions are looked for.
const SESSIONS_EVERY: Duration = Duration::from_secs(1);
/// ... and after one couldn't be ended.
const SESSIONS_RETRY: Duration = Duration::from_secs(60);

/// The actor of one root.
pub struct Actor {
    pub(super) daemon: Arc<Daemon>,
    pub(super) root: Arc<Root>,
    pub(super) watch: RootWatch,
    pub(super) engine: Option<Engine>,
    pub(super) config: RootConfig,
    /// The directory isn't there, or isn't the one that was attached.
    pub(super) absent: Option<Presence>,
    /// Since when.
    pub(super) absent_since: Time,
    pub(super) gaps: Gaps,
    pub(super) trouble: Option<Trouble>,
    /// Everything was looked at since the actor began (or the directory came back).
    pub(super) indexed: bool,
    /// The first look is the job of an `attach`.
    pub(super) awaits_attach: bool,
    /// For the first look after the daemon's start.
    pub(super) ticket: Option<Ticket>,
    /// Time between looks, where there are no events.
    pub(super) poll: Option<Duration>,
    pub(super) missed: u64,
    /// A look at everything in parts.
    pub(super) pass: Option<Pass>,
    /// The newest checkpoint when the cache was saved.
    pub(super) cached: Option<u64>,
    /// What agents are doing here, as their hooks tell it.
    pub(super) turns: Turns,
    /// The newest checkpoint that was told of.
    pub(super) told: Option<u64>,
    /// Noisy files that the log names already.
    pub(super) noisy: BTreeSet<TreePath>,
    /// What came of making room.
    pub(super) pressure: Pressure,
    /// What went for it.
    pub(super) went: Went,
    /// What no attached root can give back.
    pub(super) elsewhere: Vec<StoreUse>,
    /// When a purge that isn't at its end is gone on with, and how often that has failed in a row.
    pub(super) purge: Option<(Instant, u32)>,
    /// Retention failed so often in a row.
    pub(super) thin_failures: u32,
    /// A thread that makes the store's newest changes durable where they belong.
    pub(super) settling: Option<JoinHandle<()>>,
    pub(super) timers: Timers,
}

/// Why there is an actor.
#[derive(Debug)]
pub enum Origin {
    /// The daemon starts: the actor opens the engine itself, and looks when its turn comes.
    Start(Ticket),
    /// An `attach`, whose job is the first look; since when the directory was elsewhere, unwatched.
    Attach(Box<Engine>, Option<Time>),
    /// An earlier actor of the same root died, at that time.
    Anew(Time),
}

/// A capture that failed.
#[derive(Debug)]
pub struct Trouble {
    pub(super) failure: Failure,
    pub(super) times: u32,
    pub(super) retry_at: Instant,
}

/// When the actor looks at what of itself; `None`: not at all.
#[derive(Debug, Default)]
pub struct Timers {
    pub(super) presence: Option<Instant>,
    pub(super) poll: Option<Instant>,
    pub(super) reconcile: Option<Instant>,
    sessions: Option<Instant>,
    pub(super) burst_not_before: Option<Instant>,
    pub(super) store_bytes: Option<Instant>,
    /// Retention.
    pub(super) thin: Option<Instant>,
    /// What was too much of a transcript for the moment of a checkpoint.
    pub(super) talk: Option<Instant>,
    /// Nothing has been done for a while: what was read of the store goes, with memory that was freed.
    pub(super) quiet: Option<Instant>,
    /// How long the store is left alone after it was measured.
    pub(super) measure_pause: Duration,
}

impl Actor {
    /// The actor of `root`.
    pub fn new(daemon: Arc<Daemon>, root: Arc<Root>, origin: Origin) -> Self {
        let unwatched = match (&origin, daemon.away) {
            (Origin::Start(_), Some((from, to))) => Some((from, to, "the daemon wasn't running")),
            (Origin::Anew(from), _) => Some((*from, now(), "an internal error ended the watch")),
            (Origin::Attach(_, Some(from)), _) => Some((*from, now(), "the directory had moved")),
            (Origin::Start(_) | Origin::Attach(_, None), _) => None,
        };
        let (engine, ticket) = match origin {
            Origin::Start(ticket) => (None, Some(ticket)),
            Origin::Attach(engine, _) => (Some(*engine), None),
            Origin::Anew(_) => (None, None),
        };
        let watch = daemon.watcher.add_root(&root.path, Arc::clone(&root.mailbox));
        let config = daemon.config().for_root(&root.path);
        let went = Went::read(daemon.paths.went_of(&root.id));
        let mut gaps = Gaps::read(daemon.paths.gaps_of(&root.id));
        if let Some((from, to, reason)) = unwatched {
            gaps.add(from, to, reason);
        }
        Self {
            awaits_attach: engine.is_some(),
            ticket,
            daemon,
            root,
            watch,
            engine,
            config,
            absent: None,
            absent_since: now(),
            gaps,
            trouble: None,
            indexed: false,
            poll: None,
            missed: 0,
            pass: None,
            cached: None,
            turns: Turns::default(),
            told: None,
            noisy: BTreeSet::new(),
            pressure: Pressure::default(),
            went,
            elsewhere: Vec::new(),
            purge: None,
            thin_failures: 0,
            settling: None,
            timers: Timers::default(),
        }
    }

    /// Runs until the root or the daemon ends.
    pub fn run(mut self) {
        let _told = Fallen::unless_it_returns(&self.root, &self.daemon);
        self.root.mailbox.capturing();
        self.begins();
        // Whoever asks now is to hear of an interrupted operation, though a first look may take long.
        if let Err(error) = self.with_engine(&Progress::default(), |_, _| Ok(())) {
            self.went_wrong(error);
        }
        self.publish();
        let mut clocks = (Instant::now(), SystemTime::now());
        loop {
            self.ends();
            let wake = self.root.mailbox.wait(self.alarm());
            self.begins();
            if let Some(jump) = jumped(&mut clocks) {
                tracing::info!(root = %self.root.id, "the clock jumped (or the machine slept): everything is looked at");
                self.root.mailbox.everything_pending(Instant::now());
                let length = i64::try_from(jump.as_nanos()).unwrap_or(i64::MAX);
                let to = now();
                let from = Time(to.0.saturating_sub(length));
                self.gaps.add(from, to, "the machine slept, or its clock was set");
            }
            match wake {
                Wake::Errand(errand) => {
                    if self.errand(*errand) {
                        break;
                    }
                }
                Wake::Time => self.on_time(),
                Wake::Reload => self.reload(),
                Wake::Look => self.look_around(),
                Wake::Rest => self.rest(),
                Wake::MakeRoom(over) => {
                    if self.indexed && self.absent.is_none() && self.trouble.is_none() {
                        self.thin(Some(over));
                    }
                }
                Wake::End(End::Stop) => {
                    self.last_capture();
                    self.no_longer_absent();
                    break;
                }
                Wake::End(End::Fall | End::Retire) => break,
            }
        }
        self.ends();
        let end = self.root.mailbox.ending();
        for errand in self.root.mailbox.drain() {
            let answer = match errand.job {
                // That is done.
                Job::Detach { forget: false } if end == Some(End::Retire) => Ok(self.detached(false)),
                _ => Err(ended(end)),
            };
            errand.answers.finish(answer);
        }
    }

    /// There is something to do: whether it gets on is looked at now and then.
    fn begins(&self) {
        self.root.standstill.begins(Instant::now());
        self.daemon.work_begins.notify_one();
    }

    fn ends(&self) {
        if self.root.standstill.ends() {
            let state = lock(&self.root.known).status.state;
            standstill::tell(&self.daemon, &self.root, state);
        }
    }

    fn alarm(&self) -> Alarm {
        let quiet = Alarm {
            at: None,
            settle: None,
            not_before: None,
        };
        let timers = &self.timers;
        let at = if self.absent.is_some() {
            timers.presence
        } else if let Some(trouble) = &self.trouble {
            Some(trouble.retry_at)
        } else if !self.indexed {
            (!self.awaits_attach).then(|| self.may_look_from(Instant::now()))
        } else {
            let at = [
                timers.poll,
                timers.reconcile,
                timers.sessions,
                timers.store_bytes,
                timers.thin,
                timers.talk,
                timers.quiet,
            ]
            .into_iter()
            .flatten()
            .min();
            let settle = Some((self.config.settle, self.config.max_wait));
            return Alarm {
                at,
                settle,
                not_before: timers.burst_not_before,
            };
        };
        Alarm {
            at: [at, timers.sessions].into_iter().flatten().min(),
            ..quiet
        }
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        let due = |timer: Option<Instant>| timer.is_some_and(|at| at <= now);
        if due(self.timers.sessions) {
            self.end_sessions();
        }
        if self.absent.is_some() {
            if due(self.timers.presence) {
                self.look_for_root();
            }
        } else if let Some(trouble) = &self.trouble {
            if trouble.retry_at <= now {
                self.look(Trigger::Reconcile, "scanning");
            }
        } else if !self.indexed {
            if self.may_look_from(now) <= now {
                self.look(Trigger::Reconcile, "indexing");
                self.ticket = None;
            }
        } else if self.burst_is_due(now) {
            self.burst();
        } else if due(self.timers.talk) {
            self.complete_talk();
        } else if due(self.timers.poll) {
            self.look(Trigger::Auto, "scanning");
        } else if due(self.timers.reconcile) {
            self.reconcile();
        } else if due(self.timers.store_bytes) {
            self.measure_store();
        } else if due(self.timers.thin) {
            self.thin(None);
        } else if due(self.timers.quiet) {
            self.quiet();
        }
    }

    fn may_look_from(&self, now: Instant) -> Instant {
        self.ticket.as_ref().map_or(now, |ticket| ticket.from(now))
    }

    /// Ends the sessions of `run` whose process is gone.
    fn end_sessions(&mut self) {
        // Whatever comes of it: a timer that stays in the past leaves the jobs no turn.
        self.timers.sessions = Some(Instant::now() + SESSIONS_EVERY);
        self.end_turns_of_the_gone();
        let _held = self.daemon.locks.hold(&self.root.path, Reach::Own);
        self.take_over();
        let gone: Vec<String> = self
            .engine
            .iter()
            .flat_map(|engine| engine.sessions())
            .filter(|session| session.is_open())
            .filter(|session| {
                session
                    .process
                    .is_some_and(|(pid, start)| !process::is_alive(pid, start))
            })
            .map(|session| session.name.clone())
            .collect();
        if !gone.is_empty() {
            self.daemon.keeper.make_way(Some(&self.root.store));
        }
        let progress = Progress::default();
        let mut failed = false;
        for name in &gone {
            let result = self.with_engine(&progress, |engine, cx| Ok(engine.session_abandoned(name, cx)?));
            if let Err(error) = result {
                tracing::warn!(root = %self.root.id, "session {name} stays open: {}", self.failure(&error).message);
                failed = true;
            }
        }
        self.publish();
        if failed {
            self.timers.sessions = Some(Instant::now() + SESSIONS_RETRY);
        }
    }

    /// A look that is due already stays due: a busy root publishes more often than that.
    pub(super) fn watch_processes(&mut self, any: bool) {
        let running = self.timers.sessions;
        self.timers.sessions = any.then(|| running.unwrap_or_else(|| Instant::now() + SESSIONS_EVERY));
    }
}
