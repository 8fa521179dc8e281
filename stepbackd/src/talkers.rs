//! Which root an agent's session belongs to. An agent goes where its user lets it, into other roots, too; its hooks then tell
//! of where it stands, but its turns, and its conversation, stay those of one root.

use std::sync::{Mutex, PoisonError};

/// So many sessions are known, heard of last.
const SESSIONS_MAX: usize = 1024;

/// A process: pid, and when it began.
pub type Process = (u32, u64);

/// The sessions that hooks told of since the daemon's start.
#[derive(Debug, Default)]
pub struct Talkers(Mutex<Vec<Talker>>);

/// One session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Talker {
    pub agent: String,
    pub session: String,
    pub process: Option<Process>,
    /// The id of its root.
    pub root: String,
}

impl Talkers {
    /// What is known of a session.
    pub fn get(&self, agent: &str, session: &str) -> Option<Talker> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|t| t.is(agent, session)).cloned()
    }

    /// This is known of it from now on.
    pub fn put(&self, talker: Talker) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|t| !t.is(&talker.agent, &talker.session));
        let surplus = (all.len() + 1).saturating_sub(SESSIONS_MAX);
        all.drain(..surplus);
        all.push(talker);
    }

    /// It was left.
    pub fn forget(&self, agent: &str, session: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|t| !t.is(agent, session));
    }
}

impl Talker {
    fn is(&self, agent: &str, session: &str) -> bool {
        self.agent == agent && self.session == session
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_heard_of_last_are_known() {
        let talkers = Talkers::default();
        let talker = |n: usize| Talker {
            agent: "codex".into(),
            session: n.to_string(),
            process: None,
            root: "p".into(),
        };
        for n in 0..=SESSIONS_MAX {
            talkers.put(talker(n));
        }
        assert_eq!(talkers.get("codex", "0"), None);
        talkers.put(Talker {
            root: "q".into(),
            ..talker(1)
        });
        assert_eq!(talkers.get("codex", "1").map(|t| t.root), Some("q".into()));
        talkers.forget("codex", "1");
        assert_eq!(talkers.get("codex", "1"), None);
        assert_eq!(talkers.get("qwen", "2"), None);
    }
}
