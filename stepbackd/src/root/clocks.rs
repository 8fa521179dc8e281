//! Whether the machine slept, or somebody set its clock.

use std::time::{Duration, Instant, SystemTime};

/// The system's clock and the one that only runs while the machine is awake may part by this much.
const CLOCK_JUMP: Duration = Duration::from_secs(60);

/// Whether the two clocks have parted since the last call, and by how much the system's is ahead (zero: behind).
pub(super) fn jumped(clocks: &mut (Instant, SystemTime)) -> Option<Duration> {
    let now = (Instant::now(), SystemTime::now());
    let before = std::mem::replace(clocks, now);
    let awake = now.0.duration_since(before.0);
    match now.1.duration_since(before.1) {
        Ok(passed) => (passed.abs_diff(awake) > CLOCK_JUMP).then(|| passed.saturating_sub(awake)),
        Err(back) => (back.duration() + awake > CLOCK_JUMP).then_some(Duration::ZERO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_part_are_noticed() {
        let now = (Instant::now(), SystemTime::now());
        let hours = Duration::from_secs(3 * 3600);
        assert_eq!(jumped(&mut now.clone()), None);
        let ahead = jumped(&mut (now.0, now.1 - hours)).unwrap();
        assert!(ahead.abs_diff(hours) < Duration::from_secs(60), "{ahead:?}");
        assert_eq!(jumped(&mut (now.0, now.1 + hours)), Some(Duration::ZERO));
        assert_eq!(jumped(&mut (now.0 - hours, now.1 - hours)), None);
    }
}
