//! What came of making room for a root: when it is tried again.

use std::time::{Duration, Instant};

/// When room couldn't be made, it isn't tried again for so long;
const RETRY: Duration = Duration::from_secs(600);
/// where there is nothing to give up, or nothing came of it, ever longer, up to this: packing a large store anew is much work.
const RETRY_MAX: Duration = Duration::from_secs(24 * 3600);
/// At once when the store has grown by one part of so many since, as long as there is something to give up
const GROWN_SHARE: u64 = 33;
/// and by so many bytes.
const GROWN_BYTES_MIN: u64 = 1 << 20;

/// What came of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pressure {
    in_vain: Option<InVain>,
}

/// It was tried last without enough coming of it.
#[derive(Debug, Clone, Copy)]
struct InVain {
    at: Instant,
    /// So often in a row nothing at all did.
    times: u32,
    /// Of what the store used then, in bytes, so much more is reason enough to try again; none when nothing came of it.
    again_from: Option<u64>,
}

impl Pressure {
    /// Whether it may be tried at once, with a store of so many bytes.
    pub(super) fn may_hurry(self, store: u64) -> bool {
        self.in_vain.is_none_or(|it| it.has_grown(store))
    }

    /// Whether it may be tried now, with a store of so many bytes. `has_thinnable`: there is something to give up.
    pub(super) fn is_due(self, has_thinnable: bool, store: u64) -> bool {
        let Some(it) = self.in_vain else {
            return true;
        };
        let pause = match it.again_from {
            Some(_) if has_thinnable => RETRY,
            _ => pause(it.times),
        };
        it.at.elapsed() >= pause || (has_thinnable && it.has_grown(store))
    }

    /// When it is to be tried again, if it was tried in vain.
    pub(super) fn again(self) -> Option<Instant> {
        self.in_vain.map(|it| it.at + pause(it.times))
    }

    /// There is room.
    pub(super) fn found(&mut self) {
        self.in_vain = None;
    }

    /// There isn't room enough, after so many bytes were given back and `store` are in use.
    pub(super) fn tried(&mut self, freed: u64, store: u64) {
        let times = match self.in_vain {
            Some(it) if freed == 0 => it.times + 1,
            _ => 0,
        };
        let more = (store / GROWN_SHARE).max(GROWN_BYTES_MIN);
        self.in_vain = Some(InVain {
            at: Instant::now(),
            times,
            again_from: (freed > 0).then(|| store.saturating_add(more)),
        });
    }

    /// There isn't room enough in a store of so many bytes, and nothing was tried.
    pub(super) fn waits(&mut self, store: u64) {
        if self.again().is_none_or(|at| at <= Instant::now()) {
            self.tried(0, store);
        }
    }
}

impl InVain {
    fn has_grown(self, store: u64) -> bool {
        self.again_from.is_some_and(|from| store >= from)
    }
}

fn pause(times: u32) -> Duration {
    RETRY.saturating_mul(1 << times.min(10)).min(RETRY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_does_not_help_is_tried_ever_less_often() {
        let mut pressure = Pressure::default();
        assert!(pressure.may_hurry(0) && pressure.is_due(false, 0) && pressure.again().is_none());
        let wait = |pressure: Pressure| pressure.again().unwrap().duration_since(Instant::now());
        pressure.tried(3, 0);
        assert!(!pressure.is_due(true, 0) && wait(pressure) <= RETRY);
        pressure.tried(0, 0);
        assert!(wait(pressure) > RETRY && wait(pressure) <= RETRY * 2);
        for _ in 0..40 {
            pressure.tried(0, 0);
        }
        assert!(wait(pressure) <= RETRY_MAX);
        let times = pressure.in_vain.unwrap().times;
        pressure.waits(0);
        assert_eq!(pressure.in_vain.unwrap().times, times);
        pressure.tried(1, 0);
        assert!(wait(pressure) <= RETRY);
        pressure.found();
        assert!(pressure.may_hurry(0));
    }

    #[test]
    fn a_store_that_has_grown_is_reason_to_try_again_if_something_came_of_it() {
        let mut pressure = Pressure::default();
        pressure.tried(5, 1_000 * MIB);
        assert!(!pressure.may_hurry(1_020 * MIB) && !pressure.is_due(true, 1_020 * MIB));
        assert!(pressure.may_hurry(1_040 * MIB) && pressure.is_due(true, 1_040 * MIB));
        assert!(!pressure.is_due(false, 1_040 * MIB));
        pressure.tried(0, 1_000 * MIB);
        assert!(!pressure.may_hurry(2_000 * MIB) && !pressure.is_due(true, 2_000 * MIB));
    }
}
