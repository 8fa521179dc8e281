//! What becomes of a root whose actor died of an error of ours outside the engine: it says so, refuses jobs, and is begun
//! anew after a pause, which grows when that happens again and again.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use stepback_proto::{Event, Failure, FailureKind, RootState};

use crate::convert;
use crate::daemon::{Daemon, Happening};
use crate::root::care::pause_after;
use crate::root::mailbox::End;
use crate::root::{Root, lock, now};

/// One that lived so long fell for another reason: the pauses begin anew.
const LONG_LIFE: Duration = Duration::from_secs(600);

/// Held by an actor's thread. Dropped by a panic, it leaves nobody waiting.
#[derive(Debug)]
pub(super) struct Fallen {
    root: Arc<Root>,
    daemon: Weak<Daemon>,
    since: Instant,
}

impl Fallen {
    /// For the actor of `root`.
    pub(super) fn unless_it_returns(root: &Arc<Root>, daemon: &Arc<Daemon>) -> Self {
        Self {
            root: Arc::clone(root),
            daemon: Arc::downgrade(daemon),
            since: Instant::now(),
        }
    }

    fn begin_anew(&self, daemon: Arc<Daemon>) {
        let times = if self.since.elapsed() < LONG_LIFE {
            self.root.falls + 1
        } else {
            1
        };
        let (root, fell) = (Arc::clone(&self.root), now());
        daemon.runtime.clone().spawn(async move {
            let stopped = daemon.shutdown.clone();
            let pause = tokio::time::sleep(pause_after(times));
            if stopped.run_until_cancelled(pause).await.is_none() {
                return;
            }
            // It has said so if that fails.
            let _ = tokio::task::spawn_blocking(move || daemon.begin_anew(&root, times, fell)).await;
        });
    }
}

impl Drop for Fallen {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let root = &self.root;
        root.standstill.ends();
        tracing::error!(root = %root.id, "the root's thread died: nothing is captured");
        root.mailbox.end(End::Fall);
        for errand in root.mailbox.drain() {
            errand.answers.finish(Err(fallen()));
        }
        root.works_on(None);
        {
            let mut known = lock(&root.known);
            known.opened = true;
            known.status.state = RootState::Failed;
            known.status.warnings.insert(0, convert::warning(fallen()));
            root.reported.notify_all();
        }
        let Some(daemon) = self.daemon.upgrade() else {
            return;
        };
        // Nobody may be listening.
        let _ = daemon.events.send(Happening {
            root: root.id.clone(),
            event: Event::State {
                root: convert::absolute(&root.path),
                state: RootState::Failed,
            },
        });
        self.begin_anew(daemon);
    }
}

/// What is said of such a root.
pub fn fallen() -> Failure {
    convert::fail(
        FailureKind::Internal,
        "an internal error ended the watch of this root: nothing is captured for a moment",
        "it is begun anew by itself; `stepback daemon logs` shows what happened, please report it",
    )
}
