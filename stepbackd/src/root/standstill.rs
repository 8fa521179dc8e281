//! A root whose file system doesn't answer: its actor hangs in a system call and can tell nothing. While actors work, the
//! daemon looks now and then whether they get on; of one that doesn't, whether the file systems of its root answer.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stepback_engine::mounts;
use stepback_engine::path::for_shell;
use stepback_engine::time::Time;
use stepback_proto::{Event, Failure, FailureKind, RootState, RootStatus, Warning};

use crate::convert;
use crate::daemon::{Daemon, Happening};
use crate::root::{Root, aside, lock, now};

/// How often those that work are looked at.
const EVERY: Duration = Duration::from_secs(2);
/// One that has got no further for so long may stand still.
const PATIENCE: Duration = Duration::from_secs(5);
/// So long its file systems may take to answer then.
const ANSWER: Duration = Duration::from_secs(2);

/// The kind of the warning.
pub const NO_ANSWER: &str = "no_answer";

/// Whether an actor gets on.
#[derive(Debug, Default)]
pub struct Standstill(Mutex<Doing>);

#[derive(Debug, Default)]
enum Doing {
    /// It waits for something to do.
    #[default]
    Nothing,
    Something {
        /// How far it was when it was looked at last, and since when.
        pulse: u64,
        since: Instant,
        /// It stands still, as it turned out.
        stands: Option<Stands>,
    },
}

/// Where an actor hangs.
#[derive(Debug, Clone)]
pub struct Stands {
    since: Time,
    /// The root, or a mount point in it.
    at: PathBuf,
}

/// What a look at an actor gave.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Idle,
    GetsOn,
    /// For so long it hasn't.
    Suspect(Duration),
    StandsStill,
}

impl Standstill {
    /// The actor has something to do.
    pub fn begins(&self, now: Instant) {
        *self.doing() = Doing::Something {
            pulse: 0,
            since: now,
            stands: None,
        };
    }

    /// It is done; `true`: it had stood still.
    pub fn ends(&self) -> bool {
        let done = std::mem::take(&mut *self.doing());
        matches!(done, Doing::Something { stands: Some(_), .. })
    }

    fn look(&self, pulse: u64, now: Instant) -> Seen {
        match &mut *self.doing() {
            Doing::Nothing => Seen::Idle,
            Doing::Something {
                pulse: known,
                since,
                stands,
            } => {
                if *known != pulse {
                    (*known, *since, *stands) = (pulse, now, None);
                }
                let long = now.duration_since(*since);
                match stands {
                    Some(_) => Seen::StandsStill,
                    None if long >= PATIENCE => Seen::Suspect(long),
                    None => Seen::GetsOn,
                }
            }
        }
    }

    /// Its file systems answer (`None`), or the one at this path doesn't.
    fn found(&self, at: Option<PathBuf>, for_so_long: Duration, now: (Instant, Time)) {
        if let Doing::Something { since, stands, .. } = &mut *self.doing() {
            match at {
                None => *since = now.0,
                Some(at) => {
                    let long = i64::try_from(for_so_long.as_nanos()).unwrap_or(i64::MAX);
                    let since = Time(now.1.0.saturating_sub(long));
                    *stands = Some(Stands { since, at });
                }
            }
        }
    }

    fn stands(&self) -> Option<Stands> {
        match &*self.doing() {
            Doing::Something { stands, .. } => stands.clone(),
            Doing::Nothing => None,
        }
    }

    fn doing(&self) -> std::sync::MutexGuard<'_, Doing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Root {
    /// Whether its actor hangs in a file system that doesn't answer.
    pub fn stands_still(&self) -> bool {
        self.standstill.stands().is_some()
    }

    /// What is said instead of doing something, while it stands still.
    pub fn no_answer(&self) -> Option<Failure> {
        let stands = self.standstill.stands()?;
        let Warning { message, hint, .. } = warning(&stands, now());
        Some(convert::fail(FailureKind::Busy, message, hint))
    }

    /// Says in its status that it stands still, if it does.
    pub(super) fn tell_standstill(&self, status: &mut RootStatus) {
        let Some(stands) = self.standstill.stands() else {
            return;
        };
        if !matches!(
            status.state,
            RootState::Missing | RootState::Replaced | RootState::Failed
        ) {
            status.state = RootState::Degraded;
        }
        status.settled = status.settled.map(|_| false);
        status.warnings.insert(0, warning(&stands, now()));
    }

    fn look_whether_it_gets_on(&self) -> Seen {
        let pulse = lock(&self.work).as_ref().map_or(0, |work| work.progress.pulse());
        self.standstill.look(pulse, Instant::now())
    }

    /// Asks its file systems; the one that doesn't answer in time is where it hangs. Blocks for that time.
    fn ask_file_systems(&self, for_so_long: Duration) {
        let asked = Arc::new(Mutex::new(self.path.clone()));
        let (root, asking) = (self.path.clone(), Arc::clone(&asked));
        let look = move || {
            let below = mounts::below(&root).unwrap_or_default();
            let points = below.iter().map(|point| root.join(point.as_path()));
            for point in std::iter::once(root.clone()).chain(points) {
                asking
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone_from(&point);
                // An answer, whatever it is. Listing asks the server, where a stat may be known already.
                let _ = fs::metadata(&point).and_then(|_| fs::read_dir(&point)?.next().transpose());
            }
        };
        let answer = self.looks.take_within(ANSWER, look);
        let at = answer
            .is_none()
            .then(|| asked.lock().unwrap_or_else(PoisonError::into_inner).clone());
        self.standstill.found(at, for_so_long, (Instant::now(), now()));
    }
}

fn warning(stands: &Stands, now: Time) -> Warning {
    let seconds = (now.ms() - stands.since.ms()).max(0) / 1000;
    let at = stands.at.display();
    Warning {
        kind: NO_ANSWER.into(),
        message: format!(
            "the file system at {at} hasn't answered for {seconds} s: nothing is captured meanwhile"
        ),
        hint: format!(
            "it goes on by itself when it answers; `umount -l {}` lets go of a mount whose server is gone",
            for_shell(&stands.at)
        ),
    }
}

/// Looks at the roots of `daemon` while any of them works.
pub async fn watch(daemon: Arc<Daemon>) {
    let shutdown = daemon.shutdown.clone();
    let watch = async {
        loop {
            daemon.work_begins.notified().await;
            while look_at_all(&daemon).await {}
        }
    };
    shutdown.run_until_cancelled(watch).await;
}

/// Waits a while, and looks; whether any root is at work still.
async fn look_at_all(daemon: &Arc<Daemon>) -> bool {
    tokio::time::sleep(EVERY).await;
    let mut any = false;
    for root in daemon.roots() {
        let seen = root.look_whether_it_gets_on();
        any |= seen != Seen::Idle;
        if let Seen::Suspect(long) = seen {
            let asked = Arc::clone(&root);
            let _ = tokio::task::spawn_blocking(move || asked.ask_file_systems(long)).await;
            if let Some(stands) = root.standstill.stands() {
                tracing::warn!(root = %root.id, "the file system at {} doesn't answer", stands.at.display());
                tell(daemon, &root, RootState::Degraded);
            }
        }
        if root.stands_still() {
            for errand in root.mailbox.take_awaited() {
                aside::answer(daemon, &root, errand);
            }
        }
    }
    any
}

/// Tells those who follow.
pub(super) fn tell(daemon: &Daemon, root: &Root, state: RootState) {
    let event = Event::State {
        root: convert::absolute(&root.path),
        state,
    };
    // Nobody may be listening.
    let _ = daemon.events.send(Happening {
        root: root.id.clone(),
        event,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_gets_no_further_is_asked_and_told_of() {
        let root = Root::new("r".into(), "/nowhere/p".into(), "/nowhere/s".into());
        let start = Instant::now();
        let late = start + PATIENCE;
        assert_eq!(root.standstill.look(0, late), Seen::Idle);
        root.standstill.begins(start);
        assert_eq!(root.standstill.look(0, start), Seen::GetsOn);
        assert_eq!(root.standstill.look(1, late), Seen::GetsOn, "it has got on");
        assert_eq!(root.standstill.look(1, late + PATIENCE), Seen::Suspect(PATIENCE));
        // An error is an answer, too.
        root.ask_file_systems(PATIENCE);
        assert!(!root.stands_still());
        root.standstill.begins(start);
        let told = Time(60_000_000_000);
        root.standstill
            .found(Some("/nowhere/p/m".into()), PATIENCE, (late, told));
        assert_eq!(root.standstill.look(0, late + PATIENCE), Seen::StandsStill);
        let status = root.status(Duration::ZERO).status;
        assert_eq!(status.state, RootState::Degraded);
        assert_eq!(status.warnings[0].kind, NO_ANSWER);
        assert!(status.warnings[0].hint.contains("umount -l /nowhere/p/m"));
        assert_eq!(root.standstill.look(2, late), Seen::GetsOn);
        assert!(!root.stands_still());
        assert!(!root.standstill.ends());
    }

    #[test]
    fn how_long_is_said() {
        let stands = Stands {
            since: Time(0),
            at: "/m".into(),
        };
        let said = warning(&stands, Time(7_000_000_000));
        assert!(
            said.message.contains("/m hasn't answered for 7 s"),
            "{}",
            said.message
        );
    }
}
