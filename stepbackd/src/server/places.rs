//! How many requests are served at once, by what they need: whoever stays for long takes no place from those who come and go,
//! and what tells whether work is protected, saves it or ends the daemon is heard when it is full.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Limits;
use crate::connection::Needs;

/// Places beyond the usual ones for what is asked before work is at stake: a fleet of agents' hooks fits in.
const URGENT_MAX: usize = 32;

/// Places beyond those for requests that are answered at once (who are you, end): a daemon that is full of hooks can still
/// be asked and stopped.
const SHORT_MAX: usize = 8;

/// The places that are left.
#[derive(Debug, Clone)]
pub struct Places {
    usual: Arc<Semaphore>,
    urgent: Arc<Semaphore>,
    short: Arc<Semaphore>,
    followers: Arc<Semaphore>,
}

impl Places {
    pub fn new(limits: Limits) -> Self {
        let of = |max| Arc::new(Semaphore::new(max));
        Self {
            usual: of(limits.connections),
            urgent: of(URGENT_MAX),
            short: of(SHORT_MAX),
            followers: of(limits.followers),
        }
    }

    /// A place, until dropped; `None` when all that such a request may have are taken.
    pub fn take(&self, needs: Needs) -> Option<OwnedSemaphorePermit> {
        let may_have: &[&Arc<Semaphore>] = match needs {
            Needs::Usual => &[&self.usual],
            Needs::Urgent => &[&self.usual, &self.urgent],
            Needs::Short => &[&self.usual, &self.urgent, &self.short],
            Needs::Follower => &[&self.followers],
        };
        may_have
            .iter()
            .find_map(|places| Arc::clone(places).try_acquire_owned().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_leaves_room_for_those_that_matter_more() {
        let places = Places::new(Limits {
            connections: 3,
            followers: 2,
            ..Limits::default()
        });
        let fill = |needs| -> Vec<_> { std::iter::from_fn(|| places.take(needs)).collect() };
        assert_eq!(fill(Needs::Follower).len(), 2);
        let held = [
            fill(Needs::Follower),
            fill(Needs::Usual),
            fill(Needs::Urgent),
            fill(Needs::Short),
        ];
        assert_eq!(held.each_ref().map(Vec::len), [2, 3, URGENT_MAX, SHORT_MAX]);
        drop(held);
        assert_eq!(fill(Needs::Short).len(), 3 + URGENT_MAX + SHORT_MAX);
    }
}
