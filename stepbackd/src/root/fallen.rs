//! What becomes of a root whose actor died of an error of ours outside the engine: it says so, and refuses jobs.

use std::sync::Arc;

use stepback_proto::{Event, Failure, FailureKind, RootState};
use tokio::sync::broadcast;

use crate::convert;
use crate::daemon::Happening;
use crate::root::mailbox::End;
use crate::root::{Root, lock};

/// Held by an actor's thread. Dropped by a panic, it leaves nobody waiting.
#[derive(Debug)]
pub(super) struct Fallen {
    root: Arc<Root>,
    events: broadcast::Sender<Happening>,
}

impl Fallen {
    /// For the actor of `root`.
    pub(super) fn unless_it_returns(root: &Arc<Root>, events: &broadcast::Sender<Happening>) -> Self {
        Self {
            root: Arc::clone(root),
            events: events.clone(),
        }
    }
}

impl Drop for Fallen {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let root = &self.root;
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
        // Nobody may be listening.
        let _ = self.events.send(Happening {
            root: root.id.clone(),
            event: Event::State {
                root: convert::absolute(&root.path),
                state: RootState::Failed,
            },
        });
    }
}

/// What is said of such a root.
pub fn fallen() -> Failure {
    convert::fail(
        FailureKind::Internal,
        "an internal error ended the watch of this root: nothing is captured",
        "`stepback daemon restart` begins anew; `stepback daemon logs` shows what happened, please report it",
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stepback_proto::Answer;

    use super::*;
    use crate::outlet;
    use crate::root::job::{Errand, Job};

    #[test]
    fn a_dead_actor_leaves_nobody_waiting() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let root = Arc::new(Root::new("r-1".into(), "/r".into(), "/s".into()));
        let (events, mut heard) = broadcast::channel(4);
        let errand = || {
            let (answers, inlet) = outlet::pair(runtime.handle().clone(), "/nowhere".into());
            let errand = Errand {
                job: Job::SessionList,
                answers,
                progress: Arc::default(),
            };
            (errand, inlet)
        };
        let (waiting, mut inlet) = errand();
        root.mailbox.send(waiting).unwrap();
        let guard = Fallen::unless_it_returns(&root, &events);
        let thread = std::thread::spawn(move || {
            let _guard = guard;
            panic!("on purpose");
        });
        assert!(thread.join().is_err());
        assert_eq!(runtime.block_on(inlet.next()), Some(Answer::Failed(fallen())));
        assert_eq!(root.mailbox.send(errand().0).unwrap_err().1, Some(End::Fall));
        let (status, _) = root.status(Duration::ZERO);
        assert_eq!(status.state, RootState::Failed);
        assert_eq!(status.warnings[0].message, fallen().message);
        assert!(heard.try_recv().is_ok());
    }
}
