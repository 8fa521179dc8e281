//! Starts of turns that agents told of and whose checkpoints aren't made yet: what an agent does first in such a turn waits.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Agents and sessions, once for each start.
#[derive(Debug, Default)]
pub struct TurnStarts(Mutex<Vec<(String, String)>>);

impl TurnStarts {
    /// One was told, and is about to wait for the actor.
    pub fn told(&self, agent: &str, session: &str) {
        self.lock().push((agent.to_owned(), session.to_owned()));
    }

    /// The actor has done with it, or never got it.
    pub fn over(&self, agent: &str, session: &str) {
        let mut all = self.lock();
        let is_it = |(a, s): &(String, String)| a == agent && s == session;
        if let Some(at) = all.iter().position(is_it) {
            all.remove(at);
        }
    }

    /// Whether one waits.
    pub fn waits(&self, agent: &str, session: &str) -> bool {
        self.lock().iter().any(|(a, s)| a == agent && s == session)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
