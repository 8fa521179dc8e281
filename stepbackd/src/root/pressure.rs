//! What came of making room for a root: when it is tried again, and what people are told.

use std::time::{Duration, Instant};

use stepback_engine::time::Time;
use stepback_proto::Warning;

use crate::root::now;

/// When room couldn't be made, it isn't tried again for so long;
const RETRY: Duration = Duration::from_secs(600);
/// where there is nothing to give up, ever longer, up to this: packing a large store anew is much work.
const RETRY_MAX: Duration = Duration::from_secs(24 * 3600);
/// That checkpoints went is told for so long, in milliseconds.
const TOLD_FOR_MS: i64 = 24 * 3_600_000;

/// What came of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pressure {
    /// When it was tried last without enough coming of it, and how often in a row nothing did.
    fruitless: Option<(Instant, u32)>,
    /// How many checkpoints went lately, and when the last of them.
    gone: usize,
    last: Option<Time>,
}

impl Pressure {
    /// Whether it wasn't tried in vain lately.
    pub(super) const fn is_untried(self) -> bool {
        self.fruitless.is_none()
    }

    /// Whether it may be tried now. `has_thinnable`: there is something to give up.
    pub(super) fn is_due(self, has_thinnable: bool) -> bool {
        let Some((at, times)) = self.fruitless else {
            return true;
        };
        at.elapsed() >= if has_thinnable { RETRY } else { pause(times) }
    }

    /// When it is to be tried again, if it was tried in vain.
    pub(super) fn again(self) -> Option<Instant> {
        self.fruitless.map(|(at, times)| at + pause(times))
    }

    /// There is room, after so many checkpoints went.
    pub(super) fn found(&mut self, gone: usize) {
        self.count(gone);
        self.fruitless = None;
    }

    /// There isn't room enough, after so many checkpoints went.
    pub(super) fn tried(&mut self, gone: usize) {
        self.count(gone);
        let times = match self.fruitless {
            Some((_, times)) if gone == 0 => times + 1,
            _ => 0,
        };
        self.fruitless = Some((Instant::now(), times));
    }

    /// There isn't room enough, and nothing was tried.
    pub(super) fn waits(&mut self) {
        if self.again().is_none_or(|at| at <= Instant::now()) {
            self.tried(0);
        }
    }

    fn count(&mut self, gone: usize) {
        if gone > 0 {
            self.gone = gone + if self.is_told(now()) { self.gone } else { 0 };
            self.last = Some(now());
        }
    }

    fn is_told(self, now: Time) -> bool {
        // A clock that was set back doesn't make it be told for ever.
        let since = |last: Time| now.ms().saturating_sub(last.ms());
        self.last
            .is_some_and(|last| (0..TOLD_FOR_MS).contains(&since(last)))
    }

    /// What people should know of it.
    pub(super) fn warning(self, now: Time) -> Option<Warning> {
        let what = match self.gone {
            1 => "1 old checkpoint".to_owned(),
            n => format!("{n} old checkpoints"),
        };
        self.is_told(now).then(|| Warning {
            kind: "quota".into(),
            message: format!("{what} went in the last 24 hours to make room within the limits of [quota]"),
            hint: "pinned and labelled ones never go: `stepback pin ID`; `store` in [quota] allows more"
                .into(),
        })
    }
}

fn pause(times: u32) -> Duration {
    RETRY.saturating_mul(1 << times.min(10)).min(RETRY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_help_is_tried_ever_less_often() {
        let mut pressure = Pressure::default();
        assert!(pressure.is_untried() && pressure.is_due(false) && pressure.again().is_none());
        let wait = |pressure: Pressure| pressure.again().unwrap().duration_since(Instant::now());
        pressure.tried(3);
        assert!(!pressure.is_due(true) && wait(pressure) <= RETRY);
        pressure.tried(0);
        assert!(wait(pressure) > RETRY && wait(pressure) <= RETRY * 2);
        for _ in 0..40 {
            pressure.tried(0);
        }
        assert!(wait(pressure) <= RETRY_MAX);
        let (_, times) = pressure.fruitless.unwrap();
        pressure.waits();
        assert_eq!(pressure.fruitless.unwrap().1, times);
        pressure.tried(1);
        assert!(wait(pressure) <= RETRY);
        pressure.found(0);
        assert!(pressure.is_untried());
    }

    #[test]
    fn what_went_is_told_for_a_day() {
        let mut pressure = Pressure::default();
        assert_eq!(pressure.warning(now()), None);
        pressure.found(2);
        pressure.tried(3);
        let told = pressure.warning(now()).unwrap().message;
        assert!(told.starts_with("5 old checkpoints"), "{told}");
        let later = Time(now().0 + (TOLD_FOR_MS + 60_000) * 1_000_000);
        assert_eq!(pressure.warning(later), None);
        let earlier = Time(now().0 - 3_600 * 1_000_000_000);
        assert_eq!(pressure.warning(earlier), None);
    }
}
