//! How an actor takes it that its directory or its store isn't there, or is there again.

use std::time::{Duration, Instant};

use stepback_engine::engine::Presence;
use stepback_engine::progress::Progress;

use crate::locks::Reach;
use crate::root::actor::Actor;
use crate::root::now;

/// How often a root that isn't there is looked for.
const PRESENCE_EVERY: Duration = Duration::from_secs(2);

impl Actor {
    /// Somebody saw that the root or its store isn't what we tell.
    pub(super) fn look_around(&mut self) {
        if self.root.mailbox.take_remade() {
            self.continue_in_remade();
        }
        self.look_for_root();
        if self.absent.is_none()
            && self.trouble.is_none()
            && let Err(error) = self.require_store()
        {
            self.went_wrong(error);
            self.publish();
        }
    }

    /// The directory that stands in the place of the missing one was made by an operation of ours.
    fn continue_in_remade(&mut self) {
        let _held = self.daemon.locks.hold(&self.root.path, Reach::Own);
        let progress = Progress::default();
        match self.with_engine(&progress, |engine, cx| Ok(engine.continue_in_remade(cx.now)?)) {
            Ok(()) => {
                tracing::info!(root = %self.root.id, "the directory was made again by an operation around it")
            }
            // It stays replaced, and says so.
            Err(error) => {
                let failure = self.failure(&error);
                tracing::warn!(root = %self.root.id, "the directory made again isn't taken for the root: {}", failure.message);
            }
        }
    }

    /// Is the root there again (or gone by our own doing)?
    pub(super) fn look_for_root(&mut self) {
        let presence = match &self.engine {
            Some(engine) => engine.presence(),
            None => self.root.presence(),
        };
        self.timers.presence = Some(Instant::now() + PRESENCE_EVERY);
        match (presence, self.absent) {
            (Presence::Here, None) => {}
            (Presence::Here, Some(_)) => {
                tracing::info!(root = %self.root.id, "the directory is there again");
                self.no_longer_absent();
                self.trouble = None;
                self.indexed = false;
                self.publish();
                self.watch.turn_off();
                self.watch.turn_on();
            }
            (presence, was) => {
                if was.is_none() {
                    self.absent_since = now();
                }
                self.absent = Some(presence);
                self.ticket = None;
                if was != self.absent {
                    tracing::warn!(root = %self.root.id, "the directory is {presence:?}");
                    self.publish();
                    self.watch.turn_off();
                }
            }
        }
    }

    /// The directory is there again, or nobody will look any more.
    pub(super) fn no_longer_absent(&mut self) {
        if let Some(presence) = self.absent.take() {
            let reason = match presence {
                Presence::Replaced => "another directory was in its place",
                Presence::Here | Presence::Missing => "the directory wasn't there",
            };
            self.gaps.add(self.absent_since, now(), reason);
        }
    }
}
