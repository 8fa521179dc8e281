//! Checkpoints that went to make room, which is told for a day, also over a restart. Losing the file loses no checkpoint.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stepback_engine::time::Time;
use stepback_proto::Warning;

use crate::registry::write_durably;
use crate::root::gaps::remove;

/// It is told for so long, in milliseconds.
const TOLD_FOR_MS: i64 = 24 * 3_600_000;

/// What went of one root.
#[derive(Debug)]
pub(super) struct Went {
    file: PathBuf,
    told: Told,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Told {
    /// So many checkpoints,
    gone: usize,
    /// the last of them then.
    last: Option<Time>,
}

impl Went {
    /// Reads the file. One that can't be read is as good as none.
    pub(super) fn read(file: PathBuf) -> Self {
        let told = crate::state_file::read(&file)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        Self { file, told }
    }

    /// So many more went.
    pub(super) fn add(&mut self, gone: usize, now: Time) {
        if gone == 0 {
            return;
        }
        let before = if self.is_told(now) { self.told.gone } else { 0 };
        self.told = Told {
            gone: gone + before,
            last: Some(now),
        };
        let written = serde_json::to_vec(&self.told)
            .map_err(|e| e.to_string())
            .and_then(|bytes| write_durably(&self.file, &bytes).map_err(|e| e.to_string()));
        if let Err(e) = written {
            tracing::warn!("that checkpoints went is only told until the next start: {e}");
        }
    }

    /// The root is forgotten.
    pub(super) fn remove(&self) {
        remove(&self.file);
    }

    fn is_told(&self, now: Time) -> bool {
        // A clock that was set back doesn't make it be told for ever.
        let since = |last: Time| now.ms().saturating_sub(last.ms());
        self.told
            .last
            .is_some_and(|last| (0..TOLD_FOR_MS).contains(&since(last)))
    }

    /// What people should know of it.
    pub(super) fn warning(&self, now: Time) -> Option<Warning> {
        let what = match self.told.gone {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::now;

    #[test]
    fn what_went_is_told_for_a_day_and_over_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p-1.went");
        let mut went = Went::read(file.clone());
        went.add(0, now());
        assert_eq!(went.warning(now()), None);
        went.add(2, now());
        went.add(3, now());
        let went = Went::read(file);
        let told = went.warning(now()).unwrap().message;
        assert!(told.starts_with("5 old checkpoints"), "{told}");
        let later = Time(now().0 + (TOLD_FOR_MS + 60_000) * 1_000_000);
        assert_eq!(went.warning(later), None);
        let earlier = Time(now().0 - 3_600 * 1_000_000_000);
        assert_eq!(went.warning(earlier), None);
    }
}
