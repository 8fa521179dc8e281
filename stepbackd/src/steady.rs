//! Whether the clock may be believed when it says how old checkpoints are. One that is far ahead when the machine starts, or
//! is set far ahead later, would make all history old at once. So ages are counted from when the daemon lived last, until it
//! has seen the clock go steadily for a day of its own running. A machine that was off for months loses nothing by that.
//!
//! What is doubted is kept in a small file, so that a restart doesn't make it believed.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stepback_engine::time::Time;
use stepback_proto::Warning;

use crate::registry::write_durably;

/// A clock that is so much further than what is known to have passed is doubted.
const AHEAD_MAX: Duration = Duration::from_secs(36 * 3600);
/// It is believed after so long.
const STEADY: Duration = Duration::from_secs(24 * 3600);
/// People are told when it is so much: a machine that was off over a holiday is nothing to tell of.
const TOLD_FROM: Duration = Duration::from_secs(30 * 24 * 3600);
/// What is doubted is written down this often.
const KEPT_EVERY: Duration = Duration::from_secs(60);

/// Watches the clock.
#[derive(Debug)]
pub struct Steady {
    file: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The moment, by the clock that only goes forward and by the one that people set.
    last: (Instant, Time),
    doubted: Option<Doubted>,
    /// When the file was written last; `written`: it may be there.
    kept: Option<Instant>,
    written: bool,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Doubted {
    /// The last moment that was believed,
    good: Time,
    /// so many seconds of running ago.
    ran_s: u64,
}

impl Doubted {
    /// The moment as it is believed to be.
    fn now(&self) -> Time {
        let ran = i64::try_from(self.ran_s).unwrap_or(i64::MAX);
        Time(self.good.0.saturating_add(ran.saturating_mul(1_000_000_000)))
    }
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

impl Steady {
    /// `alive`: when a daemon lived last, if that is known.
    pub fn begin(file: PathBuf, alive: Option<Time>, now: Time) -> Self {
        let earlier = crate::state_file::read(&file)
            .ok()
            .and_then(|bytes| serde_json::from_slice::<Doubted>(&bytes).ok());
        let doubted = earlier.or_else(|| {
            Some(Doubted {
                good: alive?,
                ran_s: 0,
            })
        });
        let steady = Self {
            file,
            state: Mutex::new(State {
                last: (Instant::now(), now),
                doubted: doubted.filter(|it| is_ahead(now, it.now())),
                kept: None,
                written: true,
            }),
        };
        let mut state = steady.lock();
        if let Some(doubted) = &state.doubted {
            tracing::warn!(
                "the clock is {} hours ahead of when the daemon ran last: checkpoints aren't thinned by it for a day",
                (now.seconds() - doubted.good.seconds()) / 3600
            );
        }
        steady.keep(&mut state, Instant::now());
        drop(state);
        steady
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The moment by which checkpoints have their age; `now` is what the clock says.
    pub fn moment(&self, now: Time) -> Time {
        self.moment_at(Instant::now(), now)
    }

    fn moment_at(&self, at: Instant, now: Time) -> Time {
        let mut state = self.lock();
        let ran = at.saturating_duration_since(state.last.0);
        let believed = state.doubted.map_or(state.last.1, |doubted| doubted.now());
        let expected = |from: Time| Time(from.0.saturating_add(seconds(ran).saturating_mul(1_000_000_000)));
        let jumped = is_ahead(now, expected(state.last.1));
        state.doubted = match state.doubted {
            _ if !is_ahead(now, expected(believed)) => None,
            Some(doubted) if !jumped => Some(Doubted {
                ran_s: doubted.ran_s + ran.as_secs(),
                ..doubted
            })
            .filter(|doubted| doubted.ran_s < STEADY.as_secs()),
            Some(doubted) => Some(doubted),
            None => Some(Doubted {
                good: expected(state.last.1),
                ran_s: 0,
            }),
        };
        // Less than a second isn't lost.
        if ran.as_secs() > 0 || state.doubted.is_none() {
            state.last = (at, now);
        }
        self.keep(&mut state, at);
        state.doubted.map_or(now, |doubted| doubted.now())
    }

    fn keep(&self, state: &mut State, at: Instant) {
        match &state.doubted {
            Some(doubted) => {
                if state
                    .kept
                    .is_some_and(|kept| at.saturating_duration_since(kept) < KEPT_EVERY)
                {
                    return;
                }
                let written = serde_json::to_vec(doubted)
                    .map_err(|e| e.to_string())
                    .and_then(|bytes| write_durably(&self.file, &bytes).map_err(|e| e.to_string()));
                if let Err(e) = written {
                    tracing::warn!("that the clock is doubted is only known until the next start: {e}");
                }
                (state.kept, state.written) = (Some(at), true);
            }
            None if !state.written => {}
            None => {
                if let Err(e) = std::fs::remove_file(&self.file)
                    && e.kind() != std::io::ErrorKind::NotFound
                {
                    tracing::warn!("{}: {e}", self.file.display());
                }
                (state.kept, state.written) = (None, false);
            }
        }
    }

    /// What people should know of it.
    pub fn warning(&self, now: Time) -> Option<Warning> {
        let doubted = self.lock().doubted?;
        let ahead = now.seconds().saturating_sub(doubted.now().seconds());
        (ahead >= seconds(TOLD_FROM)).then(|| Warning {
            kind: "clock".into(),
            message: format!(
                "the clock is {} days ahead of when the daemon ran last: old checkpoints aren't thinned by it before the \
                 daemon has run for a day",
                ahead / (24 * 3600)
            ),
            hint: "if the clock is wrong, set it; if the machine was off for so long, nothing needs to be done".into(),
        })
    }
}

fn is_ahead(now: Time, of: Time) -> bool {
    now.seconds().saturating_sub(of.seconds()) > seconds(AHEAD_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600;
    const NOW: Time = Time(1_700_000_000_000_000_000);

    fn after(hours: u64) -> Time {
        Time(NOW.0 + i64::try_from(hours * HOUR).unwrap() * 1_000_000_000)
    }

    struct At {
        dir: tempfile::TempDir,
        from: Instant,
    }

    impl At {
        fn begin(&self, alive: Option<Time>, now: Time) -> Steady {
            Steady::begin(self.dir.path().join("clock"), alive, now)
        }

        fn then(&self, hours: u64) -> Instant {
            self.from + Duration::from_secs(hours * HOUR)
        }
    }

    fn at() -> At {
        At {
            dir: tempfile::tempdir().unwrap(),
            from: Instant::now(),
        }
    }

    #[test]
    fn a_clock_that_goes_on_is_believed() {
        let at = at();
        let steady = at.begin(Some(NOW), after(20));
        assert_eq!(steady.moment_at(at.then(0), after(20)), after(20));
        assert_eq!(steady.moment_at(at.then(100), after(120)), after(120));
        // Set back.
        assert_eq!(steady.moment_at(at.then(101), after(1)), after(1));
        assert_eq!(at.begin(None, after(9_000)).moment(after(9_000)), after(9_000));
    }

    #[test]
    fn one_that_is_far_ahead_at_the_start_is_believed_after_a_day_of_running_in_all() {
        let at = at();
        let year = 365 * 24;
        let steady = at.begin(Some(NOW), after(year));
        assert!(steady.warning(after(year)).is_some());
        let known = steady.moment_at(at.then(10), after(year + 10));
        assert!((after(9)..=after(10)).contains(&known), "{known:?}");
        drop(steady);
        // The next one was alive a moment ago, by the same clock.
        let steady = at.begin(Some(after(year + 10)), after(year + 10));
        assert!(steady.warning(after(year + 10)).is_some());
        let known = steady.moment_at(at.then(5), after(year + 15));
        assert!(known < after(20), "{known:?}");
        assert_eq!(steady.moment_at(at.then(20), after(year + 30)), after(year + 30));
        assert!(steady.warning(after(year + 30)).is_none());
        drop(steady);
        let steady = at.begin(Some(after(year + 30)), after(year + 30));
        assert_eq!(steady.moment(after(year + 30)), after(year + 30));
    }

    #[test]
    fn one_that_is_set_ahead_and_back_again_is_believed_at_once() {
        let at = at();
        let steady = at.begin(Some(NOW), NOW);
        let known = steady.moment_at(at.then(1), after(9_000));
        assert!(known <= after(1), "{known:?}");
        assert_eq!(steady.moment_at(at.then(2), after(2)), after(2));
        // Over a restart, too.
        steady.moment_at(at.then(3), after(9_000));
        drop(steady);
        let steady = at.begin(Some(after(9_000)), after(4));
        assert_eq!(steady.moment_at(at.then(1), after(5)), after(5));
    }
}
