//! The spans in which nothing was watched: the newest few, in memory and in a small file. Losing the file loses no
//! checkpoint.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stepback_engine::time::Time;
use stepback_proto::Gap;

use crate::registry::write_durably;

/// So many are kept, the newest.
const GAPS_MAX: usize = 20;

/// Of one kind, those that are so near are one: many in a row would push all others out. In milliseconds.
const NEAR_MS: i64 = 60_000;

/// The gaps of one root.
#[derive(Debug)]
pub struct Gaps {
    file: PathBuf,
    spans: Vec<Span>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Span {
    from: Time,
    to: Time,
    reason: String,
}

impl Gaps {
    /// Reads the file. One that can't be read is as good as none, and the log says so.
    pub fn read(file: PathBuf) -> Self {
        let spans = match crate::state_file::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|e| {
                tracing::warn!("{}: {e}; earlier gaps are forgotten", file.display());
                Vec::new()
            }),
            Err(e) => {
                if e.kind() != std::io::ErrorKind::NotFound {
                    tracing::warn!("{}: {e}", file.display());
                }
                Vec::new()
            }
        };
        Self { file, spans }
    }

    /// Adds one. A span that ends before it begins (the clock was set) is none.
    pub fn add(&mut self, from: Time, to: Time, reason: &str) {
        if to <= from {
            return;
        }
        self.spans.push(Span {
            from,
            to,
            reason: reason.to_owned(),
        });
        self.write();
    }

    /// Adds one, or makes the last one longer if it is of the same kind and about the same time.
    pub fn add_or_extend(&mut self, from: Time, to: Time, reason: &str) {
        let near = |span: &&mut Span| {
            span.reason == reason
                && from.ms() - span.to.ms() <= NEAR_MS
                && span.from.ms() - to.ms() <= NEAR_MS
                && from < to
        };
        match self.spans.last_mut().filter(near) {
            Some(last) => {
                last.from = last.from.min(from);
                last.to = last.to.max(to);
                self.write();
            }
            None => self.add(from, to, reason),
        }
    }

    /// Writes down the newest.
    fn write(&mut self) {
        let surplus = self.spans.len().saturating_sub(GAPS_MAX);
        self.spans.drain(..surplus);
        let written = serde_json::to_vec(&self.spans)
            .map_err(|e| e.to_string())
            .and_then(|bytes| write_durably(&self.file, &bytes).map_err(|e| e.to_string()));
        if let Err(e) = written {
            tracing::warn!("a gap is only known until the next start: {e}");
        }
    }

    /// All of them, the newest last.
    pub fn list(&self) -> Vec<Gap> {
        let gap = |span: &Span| Gap {
            from_ms: span.from.ms(),
            to_ms: span.to.ms(),
            reason: span.reason.clone(),
        };
        self.spans.iter().map(gap).collect()
    }

    /// The root is forgotten.
    pub fn remove(&self) {
        remove(&self.file);
    }
}

/// A root without an actor is forgotten: its `file` goes.
pub fn remove(file: &Path) {
    if let Err(e) = std::fs::remove_file(file)
        && e.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!("{}: {e}", file.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_one_kind_at_about_one_time_are_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut gaps = Gaps::read(dir.path().join("p-1.json"));
        let of = |gaps: &Gaps| {
            let all = gaps.list().into_iter();
            all.map(|gap| (gap.from_ms, gap.to_ms)).collect::<Vec<_>>()
        };
        for (from, to) in [(5_000, 9_000), (1_000, 6_000), (20_000, 20_001)] {
            gaps.add_or_extend(Time::from_ms(from), Time::from_ms(to), "x");
        }
        assert_eq!(of(&gaps), [(1_000, 20_001)]);
        gaps.add_or_extend(Time::from_ms(21_000), Time::from_ms(22_000), "y");
        gaps.add_or_extend(Time::from_ms(90_000), Time::from_ms(91_000), "y");
        gaps.add_or_extend(Time::from_ms(92_000), Time::from_ms(92_000), "y");
        assert_eq!(of(&gaps), [(1_000, 20_001), (21_000, 22_000), (90_000, 91_000)]);
    }

    #[test]
    fn the_newest_are_kept_over_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p-1.json");
        let mut gaps = Gaps::read(file.clone());
        for n in 0..30 {
            gaps.add(Time::from_ms(n * 10), Time::from_ms(n * 10 + 5), "x");
        }
        gaps.add(Time::from_ms(7), Time::from_ms(7), "x");
        let list = Gaps::read(file.clone()).list();
        assert_eq!(list, gaps.list());
        assert_eq!((list.len(), list[0].from_ms, list[19].to_ms), (20, 100, 295));
        std::fs::write(&file, "oops").unwrap();
        assert_eq!(Gaps::read(file.clone()).list(), []);
        gaps.remove();
        gaps.remove();
        assert!(!file.exists());
    }
}
