//! Which paths of a root have to be looked at, and when. Pure: time is an argument.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use stepback_engine::engine::Scope;
use stepback_engine::path::TreePath;

/// More dirty paths than this are the same as everything.
pub const PENDING_PATHS_MAX: usize = 4096;

/// A coalescing set of dirty paths of one root.
#[derive(Debug, Default)]
pub struct Pending {
    paths: BTreeSet<TreePath>,
    everything: bool,
    since: Option<Span>,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    first: Instant,
    last: Instant,
}

/// What was taken out of a [`Pending`], with the time of its first event.
#[derive(Debug, Clone)]
pub struct Burst {
    /// What to look at.
    pub scope: Scope,
    first: Instant,
}

impl Pending {
    /// An event told of `path`.
    pub fn add(&mut self, path: TreePath, now: Instant) {
        self.touch(now);
        if self.everything {
            return;
        }
        self.paths.insert(path);
        if self.paths.len() > PENDING_PATHS_MAX {
            self.forget_paths();
        }
    }

    /// Events were lost, or may have been.
    pub fn add_everything(&mut self, now: Instant) {
        self.touch(now);
        self.forget_paths();
    }

    /// Nothing to look at.
    pub fn is_empty(&self) -> bool {
        self.since.is_none()
    }

    /// When the burst is to be captured: after `settle` without an event, and at the latest `max_wait` after its first
    /// one. `None` when there is nothing.
    pub fn due(&self, settle: Duration, max_wait: Duration) -> Option<Instant> {
        self.since
            .map(|span| (span.last + settle).min(span.first + max_wait))
    }

    /// When it is to be captured though something speaks for waiting (a lock of git's).
    pub fn overdue(&self, max_wait: Duration) -> Option<Instant> {
        self.since.map(|span| span.first + max_wait)
    }

    /// Takes all out; `None` when there is nothing.
    pub fn take(&mut self) -> Option<Burst> {
        let span = self.since.take()?;
        let paths = std::mem::take(&mut self.paths);
        let scope = if std::mem::take(&mut self.everything) {
            Scope::All
        } else {
            Scope::Paths(paths)
        };
        Some(Burst {
            scope,
            first: span.first,
        })
    }

    /// Puts back what couldn't be captured. It is due as its first event says.
    pub fn put_back(&mut self, burst: Burst) {
        let last = self.since.map_or(burst.first, |span| span.last.max(burst.first));
        self.since = Some(Span {
            first: burst.first.min(self.since.map_or(burst.first, |span| span.first)),
            last,
        });
        match burst.scope {
            Scope::All => self.forget_paths(),
            Scope::Paths(paths) if !self.everything => {
                self.paths.extend(paths);
                if self.paths.len() > PENDING_PATHS_MAX {
                    self.forget_paths();
                }
            }
            Scope::Paths(_) => {}
        }
    }

    fn touch(&mut self, now: Instant) {
        let first = self.since.map_or(now, |span| span.first);
        self.since = Some(Span { first, last: now });
    }

    fn forget_paths(&mut self) {
        self.paths = BTreeSet::new();
        self.everything = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_millis(300);
    const MAX_WAIT: Duration = Duration::from_millis(3000);

    fn path(text: &str) -> TreePath {
        TreePath::new(text.as_bytes()).unwrap()
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_burst_is_due_when_it_is_quiet_and_at_the_latest_after_max_wait() {
        // Times of events, and when the burst is due.
        for (events, due) in [
            (vec![0], 300),
            (vec![0, 100, 250], 550),
            (vec![0, 0, 0], 300),
            ((0..=29).map(|n| n * 100).collect(), 3000),
            ((0..=100).map(|n| n * 100).collect(), 3000),
        ] {
            let start = Instant::now();
            let mut pending = Pending::default();
            assert_eq!(pending.due(SETTLE, MAX_WAIT), None);
            for event in &events {
                pending.add(path("a"), start + ms(*event));
            }
            assert_eq!(pending.due(SETTLE, MAX_WAIT), Some(start + ms(due)), "{events:?}");
            assert_eq!(pending.overdue(MAX_WAIT), Some(start + MAX_WAIT));
        }
    }

    #[test]
    fn paths_coalesce_and_are_taken_once() {
        let start = Instant::now();
        let mut pending = Pending::default();
        for name in ["b", "a", "b"] {
            pending.add(path(name), start);
        }
        let Some(Burst {
            scope: Scope::Paths(paths),
            ..
        }) = pending.take()
        else {
            panic!("not paths")
        };
        assert_eq!(paths.into_iter().collect::<Vec<_>>(), [path("a"), path("b")]);
        assert!(pending.is_empty() && pending.take().is_none());
    }

    #[test]
    fn too_many_paths_are_everything() {
        let start = Instant::now();
        let mut pending = Pending::default();
        for n in 0..PENDING_PATHS_MAX {
            pending.add(path(&n.to_string()), start);
        }
        assert!(!pending.everything);
        pending.add(path("one more"), start);
        assert!(pending.everything && pending.paths.is_empty());
        pending.add(path("another"), start);
        assert!(matches!(pending.take().unwrap().scope, Scope::All));
        pending.add(path("afterwards"), start);
        assert!(matches!(pending.take().unwrap().scope, Scope::Paths(_)));
    }

    #[test]
    fn what_is_put_back_joins_what_came_meanwhile() {
        let start = Instant::now();
        let mut pending = Pending::default();
        pending.add(path("a"), start);
        let burst = pending.take().unwrap();
        pending.add(path("b"), start + ms(1000));
        pending.put_back(burst);
        assert_eq!(pending.due(SETTLE, MAX_WAIT), Some(start + ms(1300)));
        assert_eq!(pending.overdue(MAX_WAIT), Some(start + ms(3000)));
        assert_eq!(pending.paths.len(), 2);
        let burst = pending.take().unwrap();
        pending.add_everything(start + ms(1000));
        pending.put_back(burst);
        assert!(pending.everything && pending.paths.is_empty());
        let burst = pending.take().unwrap();
        pending.add(path("c"), start);
        pending.put_back(burst);
        assert!(matches!(pending.take().unwrap().scope, Scope::All));
    }
}
