//! What hooks told of sessions, for all roots: the process of each. It may have been started in another root, and stay
//! there, while it works in this one.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::{SessionId, live};

/// So many sessions are remembered, the latest.
const SESSIONS_MAX: usize = 1024;

/// The processes of sessions, as their hooks told them; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Told(Arc<Mutex<Vec<Process>>>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    of: SessionId,
    pid: u32,
    /// As [`live::start_time`] has it.
    start: u64,
}

impl Told {
    /// A hook of `session` was called by process `pid`, which began at `start`.
    pub fn heard(&self, session: SessionId, pid: u32, start: u64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.of != session);
        let surplus = (all.len() + 1).saturating_sub(SESSIONS_MAX);
        all.drain(..surplus);
        all.push(Process {
            of: session,
            pid,
            start,
        });
    }

    /// A session was left: its process may go on with another one.
    pub fn ended(&self, session: &SessionId) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.of != *session);
    }

    /// The process of a session, if that is still there and runs the agent: hooks may be called by something else.
    pub(super) fn alive(&self, session: &SessionId, processes: &Path) -> Option<u32> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().find(|known| known.of == *session)?.clone();
        drop(all);
        let same = live::start_time(processes, known.pid) == Some(known.start);
        (same && live::is_of(processes, known.pid, session.agent)).then_some(known.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::Agent;

    #[test]
    fn the_latest_are_remembered_and_a_number_that_is_another_process_by_now_is_not_alive() {
        let dir = tempfile::tempdir().unwrap();
        let (proc, own, start) = (dir.path(), 7, 99);
        std::fs::create_dir(proc.join("7")).unwrap();
        let stat = format!("7 (codex) S{} {start} 0", " 0".repeat(18));
        std::fs::write(proc.join("7/stat"), stat).unwrap();
        std::fs::write(proc.join("7/cmdline"), "codex\0resume\0").unwrap();
        let id = |n: usize| SessionId {
            agent: Agent::Codex,
            session: n.to_string(),
        };
        let told = Told::default();
        for n in 0..=SESSIONS_MAX {
            told.clone().heard(id(n), own, start);
        }
        assert_eq!(told.alive(&id(0), proc), None);
        assert_eq!(told.alive(&id(SESSIONS_MAX), proc), Some(own));
        told.heard(id(1), own, start + 1);
        assert_eq!(told.alive(&id(1), proc), None);
        let other = SessionId {
            agent: Agent::Qwen,
            session: "x".into(),
        };
        told.heard(other.clone(), own, start);
        assert_eq!(told.alive(&other, proc), None, "it runs another program");
    }
}
