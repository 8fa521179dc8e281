//! How many watches we may have: not the last ones, which other programs of the user may need.

use std::time::{Duration, Instant};

/// This part of the user's limit is left to others.
const LEFT_TO_OTHERS: u64 = 8;

/// How long a limit that was met is believed; then it is tried again.
const BELIEVED: Duration = Duration::from_secs(600);

/// Where the kernel says it: for the system, and for this user namespace.
const LIMITS: [&str; 2] = [
    "/proc/sys/fs/inotify/max_user_watches",
    "/proc/sys/user/max_inotify_watches",
];

/// The room for watches.
#[derive(Debug)]
pub struct Room {
    limit: Option<u64>,
    /// So many we had when the system gave no more, and when that was.
    met: Option<(u64, Instant)>,
}

impl Room {
    /// As the system says now.
    pub fn new() -> Self {
        Self {
            limit: limit(),
            met: None,
        }
    }

    /// Asks the system again; a limit that was met may be met anew.
    pub fn look_again(&mut self, forget: bool, now: Instant) {
        let limit = limit();
        let old = self.met.is_some_and(|(_, at)| now.duration_since(at) >= BELIEVED);
        if forget || old || limit != self.limit {
            self.met = None;
        }
        self.limit = limit;
    }

    /// The system gave no more than `count`: others have the rest.
    pub fn met(&mut self, count: usize, now: Instant) {
        self.met = Some((count as u64, now));
    }

    /// So many we may have.
    pub fn allowed(&self) -> usize {
        let limit = self.limit.unwrap_or(u64::MAX);
        let left = limit / LEFT_TO_OTHERS;
        let met = self.met.map_or(u64::MAX, |(count, _)| count.saturating_sub(left));
        usize::try_from(met.min(limit - left)).unwrap_or(usize::MAX)
    }
}

fn limit() -> Option<u64> {
    let number = |file| std::fs::read_to_string(file).ok()?.trim().parse().ok();
    LIMITS.into_iter().filter_map(number).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_left_to_others() {
        let now = Instant::now();
        let mut room = Room {
            limit: Some(8000),
            met: None,
        };
        assert_eq!(room.allowed(), 7000);
        room.met(3000, now);
        assert_eq!(room.allowed(), 2000, "others have 5,000");
        room.limit = limit();
        room.look_again(false, now + BELIEVED / 2);
        assert!(room.met.is_some());
        room.look_again(false, now + BELIEVED);
        assert!(room.met.is_none(), "it is tried again");
        room.met(3000, now);
        room.look_again(true, now);
        assert!(room.met.is_none());
        room.met(3000, now);
        room.limit = Some(1);
        room.look_again(false, now);
        assert!(room.met.is_none() || limit() == Some(1), "the limit was raised");
        assert!(
            Room {
                limit: None,
                met: None
            }
            .allowed()
                > 1 << 40
        );
    }
}
