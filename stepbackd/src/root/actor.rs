//! The loop of a root: one thread that owns the engine. It captures bursts of events when they have settled, looks at
//! everything now and then, does the jobs that clients ask for, and survives what goes wrong in any of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use stepback_engine::checkpoint::Trigger;
use stepback_engine::engine::{Captured, Engine, Presence, Scope, Why};
use stepback_engine::path::TreePath;
use stepback_engine::progress::Progress;
use stepback_engine::time::Time;
use stepback_proto::Failure;

use crate::config::RootConfig;
use crate::daemon::Daemon;
use crate::first_looks::Ticket;
use crate::locks::Reach;
use crate::process;
use crate::root::care::ended;
use crate::root::clocks::jumped;
use crate::root::fallen::Fallen;
use crate::root::gaps::Gaps;
use crate::root::gently::gently;
use crate::root::job::Job;
use crate::root::mailbox::{Alarm, End, Wake};
use crate::root::pressure::Pressure;
use crate::root::reconcile::Pass;
use crate::root::turns::Turns;
use crate::root::{Root, Work, now};
use crate::watch::RootWatch;

/// How often the processes of open sessions are looked for.
const SESSIONS_EVERY: Duration = Duration::from_secs(1);
/// ... and after one couldn't be ended.
const SESSIONS_RETRY: Duration = Duration::from_secs(60);
/// How often git's lock is looked at while a burst waits for it.
const GIT_LOCK_EVERY: Duration = Duration::from_millis(50);
/// How long after a checkpoint the rest of a conversation that was too long for it is read.
const TALK_AFTER: Duration = Duration::from_millis(100);
/// A look takes at most this part of the time when polling.
const POLL_SHARE: u32 = 20;

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
    ticket: Option<Ticket>,
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
    /// Retention failed so often in a row.
    pub(super) thin_failures: u32,
    pub(super) timers: Timers,
}

/// Why there is an actor.
#[derive(Debug)]
pub enum Origin {
    /// The daemon starts: the actor opens the engine itself, and looks when its turn comes.
    Start(Ticket),
    /// An `attach`, whose job is the first look.
    Attach(Box<Engine>),
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

/// What a capture of the actor's own accord looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Extent {
    /// What events told of. Nothing when they told nothing.
    Pending,
    /// What events told of, which may be nothing: the checkpoint may be made all the same.
    PendingIfAny,
    /// These directories, and nothing that events told of.
    Part(BTreeSet<TreePath>),
    /// Everything; and what people are told is being done.
    Everything(&'static str),
}

/// When the actor looks at what of itself; `None`: not at all.
#[derive(Debug, Default)]
pub struct Timers {
    pub(super) presence: Option<Instant>,
    poll: Option<Instant>,
    pub(super) reconcile: Option<Instant>,
    sessions: Option<Instant>,
    burst_not_before: Option<Instant>,
    pub(super) store_bytes: Option<Instant>,
    /// Retention.
    pub(super) thin: Option<Instant>,
    /// What was too much of a transcript for the moment of a checkpoint.
    talk: Option<Instant>,
    /// How long the store is left alone after it was measured.
    pub(super) measure_pause: Duration,
}

impl Actor {
    /// The actor of `root`.
    pub fn new(daemon: Arc<Daemon>, root: Arc<Root>, origin: Origin) -> Self {
        let unwatched = match (&origin, daemon.away) {
            (Origin::Start(_), Some((from, to))) => Some((from, to, "the daemon wasn't running")),
            (Origin::Anew(from), _) => Some((*from, now(), "an internal error ended the watch")),
            (Origin::Start(_) | Origin::Attach(_), _) => None,
        };
        let (engine, ticket) = match origin {
            Origin::Start(ticket) => (None, Some(ticket)),
            Origin::Attach(engine) => (Some(*engine), None),
            Origin::Anew(_) => (None, None),
        };
        let watch = daemon.watcher.add_root(&root.path, Arc::clone(&root.mailbox));
        let config = daemon.config().for_root(&root.path);
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
            thin_failures: 0,
            timers: Timers::default(),
        }
    }

    /// Runs until the root or the daemon ends.
    pub fn run(mut self) {
        let _told = Fallen::unless_it_returns(&self.root, &self.daemon);
        self.root.mailbox.capturing();
        // Whoever asks now is to hear of an interrupted operation, though a first look may take long.
        if let Err(error) = self.with_engine(&Progress::default(), |_, _| Ok(())) {
            self.went_wrong(error);
        }
        self.publish();
        let mut clocks = (Instant::now(), SystemTime::now());
        loop {
            let wake = self.root.mailbox.wait(self.alarm());
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
        }
    }

    fn burst_is_due(&self, now: Instant) -> bool {
        let held_back = self.timers.burst_not_before.is_some_and(|from| from > now);
        !held_back
            && self
                .root
                .mailbox
                .is_due(now, self.config.settle, self.config.max_wait)
    }

    fn may_look_from(&self, now: Instant) -> Instant {
        self.ticket.as_ref().map_or(now, |ticket| ticket.from(now))
    }

    /// Captures what events told of.
    fn burst(&mut self) {
        let locked = self.engine.as_ref().is_some_and(Engine::index_locked);
        let overdue = self
            .root
            .mailbox
            .overdue(self.config.max_wait)
            .is_some_and(|at| at <= Instant::now());
        if locked && !overdue {
            self.timers.burst_not_before = Some(Instant::now() + GIT_LOCK_EVERY);
            return;
        }
        self.timers.burst_not_before = None;
        self.capture(Trigger::Auto, None);
        if self.pass.is_some() {
            // A tree in which something always changes has a moment now.
            self.timers.reconcile = Some(Instant::now());
        }
    }

    /// Looks at everything.
    pub(super) fn look(&mut self, trigger: Trigger, what: &'static str) -> Option<Captured> {
        if !self.indexed {
            self.root.mailbox.capturing();
        }
        self.watch.begin_look();
        let started = Instant::now();
        let captured = self.capture(trigger, Some(what));
        if captured.is_some() {
            self.looked(started.elapsed());
            if self.poll.is_none() {
                self.save_cache();
            }
        }
        captured
    }

    /// Everything was looked at, which took so long: settles where changes are heard of from now on.
    pub(super) fn looked(&mut self, took: Duration) {
        let first = !std::mem::replace(&mut self.indexed, true);
        self.ticket = None;
        self.pass = None;
        self.timers.reconcile = self.config.reconcile.map(|every| Instant::now() + every);
        self.poll = None;
        if self.timers.measure_pause.is_zero() {
            self.measure_store();
        }
        if first {
            self.timers.thin.get_or_insert_with(Instant::now);
        }
        // The first look reads every file; those after it only look at what changed.
        self.poll_if_needed(if first { Duration::ZERO } else { took });
        self.timers.poll = self.poll.map(|every| Instant::now() + every);
        self.publish();
    }

    /// Where events don't tell everything, everything is looked at now and then; a look takes so long.
    fn poll_if_needed(&mut self, a_look: Duration) {
        let no_events = self.watch.refused() || self.watch.silent().is_some();
        if no_events {
            self.watch.turn_off();
        }
        // Events still tell of the directories that are watched.
        if no_events || self.watch.unwatched().is_some() {
            self.poll = Some(self.config.poll_min.max(a_look * POLL_SHARE));
        }
    }

    /// A capture of the actor's own accord: of what is pending, or of everything.
    fn capture(&mut self, trigger: Trigger, everything: Option<&'static str>) -> Option<Captured> {
        let why = Why {
            turn: self.turns.label(),
            ..Why::plain(trigger)
        };
        let extent = everything.map_or(Extent::Pending, Extent::Everything);
        self.capture_as(&why, extent).ok().flatten()
    }

    /// Likewise, for a reason of its own. `None`: nothing was pending, or the root is being let go. A failure has been
    /// taken care of when it is returned.
    pub(super) fn capture_as(&mut self, why: &Why, extent: Extent) -> Result<Option<Captured>, Failure> {
        let _held = self.daemon.locks.hold(&self.root.path, Reach::Own);
        if self.root.mailbox.ending() == Some(End::Retire) {
            return Ok(None);
        }
        self.take_over();
        let is_part = matches!(extent, Extent::Part(_));
        // A part is so small that others would only wait longer for it. And until everything was looked at for the first
        // time, the root isn't protected.
        let is_gentle =
            why.trigger == Trigger::Reconcile && !is_part && self.indexed && self.trouble.is_none();
        let keeper = &self.daemon.keeper;
        match why.trigger {
            // An agent waits for it, and not for long.
            Trigger::BeforeCommand => keeper.make_way_quickly(&self.root.store),
            _ => keeper.make_way(Some(&self.root.store)),
        }
        let burst = (!is_part).then(|| self.root.mailbox.take_burst()).flatten();
        let (what, may_be_cancelled) = match &extent {
            Extent::Everything(what) => (*what, true),
            Extent::Pending | Extent::PendingIfAny | Extent::Part(_) => ("capturing", false),
        };
        let scope = match (&burst, extent) {
            (_, Extent::Everything(_)) => Scope::All,
            (_, Extent::Part(dirs)) => Scope::Paths(dirs),
            (Some(burst), _) => burst.scope.clone(),
            (None, Extent::PendingIfAny) => Scope::Paths(BTreeSet::new()),
            (None, Extent::Pending) => return Ok(None),
        };
        let scope_all = matches!(scope, Scope::All);
        let progress = Arc::new(Progress::default());
        let work = Work {
            what,
            progress: Arc::clone(&progress),
            may_be_cancelled,
            ends_with_root: may_be_cancelled,
        };
        // A part takes a moment.
        self.root.works_on((!is_part).then_some(work));
        let result = self.with_engine(&progress, |engine, cx| {
            Ok(match is_gentle {
                true => gently(|| engine.capture(scope, why, cx))?,
                false => engine.capture(scope, why, cx)?,
            })
        });
        self.root.works_on(None);
        let captured = match result {
            Ok(captured) => {
                self.root.mailbox.captured();
                self.went_well(&captured.still_dirty);
                if scope_all {
                    self.note_loss(captured.changed);
                }
                let incomplete = self.watch.refused() || self.watch.unwatched().is_some();
                if incomplete && self.indexed && self.poll.is_none() {
                    // A burst may have made a directory that can't be watched.
                    self.poll_if_needed(Duration::ZERO);
                    self.timers.poll = self.poll.map(|every| Instant::now() + every);
                }
                if is_part && !captured.created && !captured.changed && self.poll.is_none() {
                    // Nothing that anybody would want to be told of.
                    return Ok(Some(captured));
                }
                self.daemon.alive.something_happened();
                self.complete_talk_soon();
                Ok(Some(captured))
            }
            Err(error) => {
                let failure = self.failure(&error);
                self.root.mailbox.put_back(burst);
                self.went_wrong(error);
                Err(failure)
            }
        };
        self.publish();
        self.settle_store(false);
        captured
    }

    fn complete_talk_soon(&mut self) {
        let lacks = self.engine.as_ref().is_some_and(Engine::talk_lacks);
        self.timers.talk = lacks.then(|| Instant::now() + TALK_AFTER);
    }

    /// Adds some of what the record of a long conversation lacks; then it is again the turn of whatever else there is.
    fn complete_talk(&mut self) {
        self.timers.talk = None;
        let _held = self.daemon.locks.hold(&self.root.path, Reach::Own);
        self.take_over();
        self.daemon.keeper.make_way(Some(&self.root.store));
        let progress = Progress::default();
        if let Err(error) = self.with_engine(&progress, |engine, _| Ok(engine.complete_talk()?)) {
            tracing::warn!(root = %self.root.id, "a conversation stays incomplete: {}", self.failure(&error).message);
        }
        self.complete_talk_soon();
    }

    /// What is pending when the daemon stops is still captured.
    fn last_capture(&mut self) {
        if self.indexed && self.absent.is_none() && self.trouble.is_none() {
            self.wait_for_events();
            self.capture(Trigger::Auto, None);
        }
        self.save_cache();
        self.settle_store(true);
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
