//! The order in which the roots are looked at after the start: small ones first, and a few at a time, so that a huge one
//! doesn't hold up the rest. Requests don't wait for this.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::root::mailbox::Mailbox;

/// So many look at once.
const AT_ONCE: usize = 2;

/// A root whose turn doesn't come for so long looks all the same: those before it may hang on a dead file system.
const PATIENCE: Duration = Duration::from_secs(10);

type Queue = Arc<Mutex<VecDeque<(usize, Arc<Mailbox>)>>>;

/// A root's place in the queue. Dropping it, after the look or without one, lets the next one look.
#[derive(Debug)]
pub struct Ticket {
    number: usize,
    at_the_latest: Instant,
    waiting: Queue,
}

/// A ticket for each root, in the order given. `roots`: how large each is, in any measure, and whom to wake.
pub fn tickets(roots: &[(u64, Arc<Mailbox>)], now: Instant) -> Vec<Ticket> {
    let mut order: Vec<usize> = (0..roots.len()).collect();
    order.sort_by_key(|number| roots[*number].0);
    let waiting = order.into_iter().skip(AT_ONCE);
    let waiting = waiting.map(|number| (number, Arc::clone(&roots[number].1)));
    let waiting: Queue = Arc::new(Mutex::new(waiting.collect()));
    let ticket = |number| Ticket {
        number,
        at_the_latest: now + PATIENCE,
        waiting: Arc::clone(&waiting),
    };
    (0..roots.len()).map(ticket).collect()
}

impl Ticket {
    /// From when on the root may look: now, or when its patience ends. It is woken when its turn comes.
    pub fn from(&self, now: Instant) -> Instant {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.iter().any(|(number, _)| *number == self.number) {
            self.at_the_latest
        } else {
            now
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let before = waiting.len();
        waiting.retain(|(number, _)| *number != self.number);
        if waiting.len() == before
            && let Some((_, next)) = waiting.pop_front()
        {
            next.look();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_look_first_and_each_end_lets_one_more() {
        let now = Instant::now();
        let sizes = [9, 1, u64::MAX, 5, 3];
        let roots = sizes.map(|size| (size, Arc::default()));
        let mut tickets: Vec<Option<Ticket>> = tickets(&roots, now).into_iter().map(Some).collect();
        let may = |tickets: &[Option<Ticket>]| -> Vec<u64> {
            let with_sizes = tickets.iter().zip(sizes);
            with_sizes
                .filter(|(ticket, _)| ticket.as_ref().is_some_and(|ticket| ticket.from(now) == now))
                .map(|(_, size)| size)
                .collect()
        };
        assert_eq!(may(&tickets), [1, 3]);
        tickets[1] = None;
        assert_eq!(may(&tickets), [5, 3]);
        // One that goes before its turn comes makes no room.
        tickets[0] = None;
        assert_eq!(may(&tickets), [5, 3]);
        tickets[3] = None;
        assert_eq!(may(&tickets), [u64::MAX, 3]);
        tickets[2] = None;
        tickets[4] = None;
    }

    #[test]
    fn nobody_waits_for_ever() {
        let now = Instant::now();
        let roots = [1, 2, 3].map(|size| (size, Arc::default()));
        assert_eq!(tickets(&roots, now)[2].from(now), now + PATIENCE);
    }
}
