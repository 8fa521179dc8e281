//! When all events had been taken: the beginning of a gap.

use std::sync::{Mutex, MutexGuard, PoisonError};

use stepback_engine::time::Time;

/// Marks are so far apart, in nanoseconds.
const APART: i64 = 1_000_000_000;

/// The last time, and two marks before it.
#[derive(Debug)]
pub struct Taken(Mutex<Times>);

#[derive(Debug)]
struct Times {
    last: Time,
    marks: [Time; 2],
}

impl Taken {
    /// None is missing at `now`.
    pub const fn new(now: Time) -> Self {
        Self(Mutex::new(Times {
            last: now,
            marks: [now; 2],
        }))
    }

    /// All have been taken at `now`.
    pub fn all(&self, now: Time) {
        let mut times = self.lock();
        times.last = now;
        if now.0.saturating_sub(times.marks[1].0) >= APART {
            times.marks = [times.marks[1], now];
        }
    }

    /// When that was last.
    pub fn last(&self) -> Time {
        self.lock().last
    }

    /// When that was last before this process stood still and went on a moment before `now`. What was taken since it went
    /// on may be known already.
    pub fn before_a_stop(&self, now: Time) -> Time {
        let times = self.lock();
        let latest_first = [times.last, times.marks[1], times.marks[0]];
        let before = latest_first
            .into_iter()
            .find(|at| now.0.saturating_sub(at.0) >= APART);
        before.unwrap_or(times.marks[0])
    }

    fn lock(&self) -> MutexGuard<'_, Times> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_began_after_the_last_mark_before_it() {
        let at = |ms: i64| Time::from_ms(ms);
        let taken = Taken::new(at(0));
        for ms in [400, 1200, 1500, 1900] {
            taken.all(at(ms));
        }
        assert_eq!(
            (taken.last(), taken.before_a_stop(at(60_000))),
            (at(1900), at(1900))
        );
        // What was pending is taken right after the stop, before anybody asks.
        taken.all(at(60_000));
        assert_eq!(taken.last(), at(60_000));
        assert_eq!(taken.before_a_stop(at(60_010)), at(1200));
    }
}
