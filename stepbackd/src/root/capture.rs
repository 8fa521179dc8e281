//! Captures of the actor's own accord: bursts, looks at everything, the last one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stepback_engine::checkpoint::Trigger;
use stepback_engine::engine::{Captured, Engine, Scope, Why};
use stepback_engine::path::TreePath;
use stepback_engine::progress::Progress;
use stepback_proto::Failure;

use crate::locks::Reach;
use crate::root::Work;
use crate::root::actor::Actor;
use crate::root::care::MUCH;
use crate::root::gently::gently;
use crate::root::mailbox::End;

/// How often git's lock is looked at while a burst waits for it.
const GIT_LOCK_EVERY: Duration = Duration::from_millis(50);

/// How long after a checkpoint the rest of a conversation that was too long for it is read.
const TALK_AFTER: Duration = Duration::from_millis(100);

/// A look takes at most this part of the time when polling.
const POLL_SHARE: u32 = 20;

/// How long a root that wasn't looked at since the start may be looked at when the daemon ends.
const LAST_LOOK: Duration = Duration::from_secs(1);

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
    /// Everything, for [`LAST_LOOK`]: the daemon ends.
    AtLast,
}

impl Actor {
    pub(super) fn burst_is_due(&self, now: Instant) -> bool {
        let held_back = self.timers.burst_not_before.is_some_and(|from| from > now);
        !held_back
            && self
                .root
                .mailbox
                .is_due(now, self.config.settle, self.config.max_wait)
    }

    /// Captures what events told of.
    pub(super) fn burst(&mut self) {
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
            Extent::AtLast | Extent::Pending | Extent::PendingIfAny | Extent::Part(_) => ("capturing", false),
        };
        let is_last = extent == Extent::AtLast;
        let scope = match (&burst, extent) {
            (_, Extent::Everything(_) | Extent::AtLast) => Scope::All,
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
        let started = Instant::now();
        if is_last {
            let progress = Arc::clone(&progress);
            self.daemon.runtime.spawn(async move {
                tokio::time::sleep(LAST_LOOK).await;
                progress.cancel();
            });
        }
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
                self.went_well(&captured.still_dirty);
                if scope_all {
                    self.note_loss(captured.changed);
                    self.catch_up_record();
                }
                let incomplete = self.watch.refused() || self.watch.unwatched().is_some();
                if incomplete && self.indexed && self.poll.is_none() {
                    // A burst may have made a directory that can't be watched.
                    self.poll_if_needed(Duration::ZERO);
                    self.timers.poll = self.poll.map(|every| Instant::now() + every);
                }
                if is_part && !captured.created && !captured.changed && self.poll.is_none() {
                    // Nothing that anybody would want to be told of.
                    self.root.mailbox.captured();
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
        if captured.is_ok() {
            // Only now: whoever sees the root settled sees what came of it, too.
            self.root.mailbox.captured();
        }
        self.settle_store_aside();
        let took = started.elapsed();
        if took >= MUCH {
            self.give_back(took);
        } else {
            // The next burst may need the same again.
            self.quiet_soon();
        }
        captured
    }

    fn complete_talk_soon(&mut self) {
        let lacks = self.engine.as_ref().is_some_and(Engine::talk_lacks);
        self.timers.talk = lacks.then(|| Instant::now() + TALK_AFTER);
    }

    /// Adds some of what the record of a long conversation lacks; then it is again the turn of whatever else there is.
    pub(super) fn complete_talk(&mut self) {
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
    pub(super) fn last_capture(&mut self) {
        if self.absent.is_none() && self.trouble.is_none() {
            if self.indexed {
                self.wait_for_events();
                self.capture(Trigger::Auto, None);
            } else if self
                .engine
                .as_ref()
                .is_some_and(|engine| engine.position().is_some())
            {
                // Its turn hasn't come since the start. It isn't told of any path, but what it knows makes it a quick look.
                let why = Why::plain(Trigger::Reconcile);
                let _ = self.capture_as(&why, Extent::AtLast);
            }
        }
        if self.engine.as_ref().is_some_and(Engine::is_record_behind) {
            let _held = self.daemon.locks.hold(&self.root.path, Reach::Own);
            self.take_over();
            self.catch_up_record();
        }
        self.save_cache();
        self.settle_store();
    }
}
