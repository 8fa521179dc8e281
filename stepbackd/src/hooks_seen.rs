//! When a hook of each agent was heard of last: says whether installed hooks still work. Losing the file loses nothing else.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use stepback_engine::time::Time;
use stepback_proto::HookSeen;

use crate::registry::write_durably;

/// The file is written at most so often, in milliseconds.
const WRITE_MS_MIN: i64 = 60_000;

/// So many agents are remembered: names come from outside.
const AGENTS_MAX: usize = 32;

/// The agents whose hooks were heard of.
#[derive(Debug)]
pub struct HooksSeen {
    file: PathBuf,
    /// Milliseconds since 1970 UTC.
    seen: Mutex<BTreeMap<String, i64>>,
}

impl HooksSeen {
    /// Reads the file. One that can't be read is as good as none.
    pub fn read(file: PathBuf) -> Self {
        let seen = crate::state_file::read(&file)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        Self {
            file,
            seen: Mutex::new(seen),
        }
    }

    /// A hook of `agent` was heard of.
    pub fn heard(&self, agent: &str, now: Time) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= AGENTS_MAX && !seen.contains_key(agent) {
            return;
        }
        let before = seen.insert(agent.to_owned(), now.ms());
        if before.is_none_or(|before| now.ms() - before >= WRITE_MS_MIN || now.ms() < before) {
            let bytes = serde_json::to_vec(&*seen).unwrap_or_default();
            if let Err(e) = write_durably(&self.file, &bytes) {
                tracing::warn!("when hooks were heard of is only known until the next start: {e}");
            }
        }
    }

    /// All of them.
    pub fn list(&self) -> Vec<HookSeen> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter()
            .map(|(agent, time_ms)| HookSeen {
                agent: agent.clone(),
                time_ms: *time_ms,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_heard_is_known_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hooks.json");
        let seen = HooksSeen::read(file.clone());
        seen.heard("codex", Time::from_ms(1000));
        seen.heard("codex", Time::from_ms(2000));
        assert_eq!(seen.list()[0].time_ms, 2000);
        // Written at the first, and not again so soon.
        assert_eq!(HooksSeen::read(file.clone()).list()[0].time_ms, 1000);
        seen.heard("codex", Time::from_ms(100_000));
        assert_eq!(HooksSeen::read(file.clone()).list()[0].time_ms, 100_000);
        std::fs::write(&file, "oops").unwrap();
        assert_eq!(HooksSeen::read(file).list(), []);
        for n in 0..100 {
            seen.heard(&n.to_string(), Time::from_ms(0));
        }
        assert_eq!(seen.list().len(), AGENTS_MAX);
    }
}
