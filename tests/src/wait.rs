//! Waiting for conditions.

use std::time::{Duration, Instant};

/// How long between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Waits until `condition` holds.
///
/// # Panics
/// When it doesn't hold within `deadline`; the message names `what`.
#[track_caller]
pub fn eventually(what: &str, deadline: Duration, mut condition: impl FnMut() -> bool) {
    eventually_some(what, deadline, || condition().then_some(()));
}

/// Waits until `look` gives something, and returns it.
///
/// # Panics
/// When it gives nothing within `deadline`; the message names `what`.
#[track_caller]
pub fn eventually_some<T>(what: &str, deadline: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < deadline, "not within {deadline:?}: {what}");
        pause(LOOK_EVERY);
    }
}

/// Lets time pass where time itself is what is tested: the rhythm of a writer, the random moment of a kill. Never to
/// wait for something: that is [`eventually`].
#[allow(clippy::disallowed_methods, reason = "the one place")]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}
