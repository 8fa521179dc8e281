//! Roots may nest: no two operations write at once below roots that share files, and while one writes, the others don't
//! capture what is half done. The latter only for a while: an operation whose file system doesn't answer mustn't hold up
//! the roots around it and in it for good, and all that it costs is a checkpoint more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// For so long work on a root holds up what could as well go on beside it; and so long an operation waits for another.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often somebody who waits is asked whether it still wants to.
const ASKED_EVERY: Duration = Duration::from_millis(100);

/// The roots that are being worked on, process-wide.
#[derive(Debug, Default)]
pub struct Locks {
    held: Mutex<BTreeMap<PathBuf, Work>>,
    released: Condvar,
}

#[derive(Debug, Clone, Copy)]
struct Work {
    reach: Reach,
    since: Instant,
}

/// How far work on a root reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// It handles the root's records alone, and looks at no file below the root.
    Records,
    /// It reads below the root, and changes only the root's own records.
    Own,
    /// It may write below the root.
    Overlapping,
}

/// Held while the work goes on.
#[derive(Debug)]
pub struct Held {
    locks: Arc<Locks>,
    path: PathBuf,
}

/// Why work may not begin.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody wants it any more.
    Unwanted,
    /// The root at this path, which shares files with it, is being worked on for long.
    Busy(PathBuf),
}

/// What one piece of work is to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hindrance {
    None,
    /// It is waited for, but not for ever.
    Courtesy,
    /// The two write below the same directory.
    Operation,
    /// It is on the same root.
    Same,
}

impl Locks {
    /// Waits until the work on the root at `path` may begin. Not for operations.
    pub fn hold(self: &Arc<Self>, path: &Path, reach: Reach) -> Held {
        match self.try_hold(path, reach, || true) {
            Ok(held) => held,
            Err(refusal) => unreachable!("it is wanted, and no operation: {refusal:?}"),
        }
    }

    /// Likewise, as long as it is `wanted`; for another operation it waits 10 s.
    ///
    /// # Errors
    /// Why it may not begin.
    pub fn try_hold(
        self: &Arc<Self>,
        path: &Path,
        reach: Reach,
        wanted: impl Fn() -> bool,
    ) -> Result<Held, Refusal> {
        self.hold_within(PATIENCE, path, reach, wanted)
    }

    fn hold_within(
        self: &Arc<Self>,
        patience: Duration,
        path: &Path,
        reach: Reach,
        wanted: impl Fn() -> bool,
    ) -> Result<Held, Refusal> {
        let began = Instant::now();
        let mut held = self.lock();
        loop {
            let now = Instant::now();
            let hindering = held
                .iter()
                .map(|(other, work)| (hindrance(path, reach, other, work.reach), other, work))
                .filter(|(hindrance, _, work)| match hindrance {
                    Hindrance::None => false,
                    Hindrance::Courtesy => now.duration_since(work.since) < patience,
                    Hindrance::Operation | Hindrance::Same => true,
                })
                .max_by_key(|(hindrance, ..)| *hindrance);
            match hindering {
                None => break,
                Some((Hindrance::Operation, other, _)) if now.duration_since(began) >= patience => {
                    return Err(Refusal::Busy(other.clone()));
                }
                Some(_) => {}
            }
            if !wanted() {
                return Err(Refusal::Unwanted);
            }
            held = self
                .released
                .wait_timeout(held, ASKED_EVERY.min(patience))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        let since = Instant::now();
        held.insert(path.to_owned(), Work { reach, since });
        Ok(Held {
            locks: Arc::clone(self),
            path: path.to_owned(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Work>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.locks.lock().remove(&self.path);
        self.locks.released.notify_all();
    }
}

fn hindrance(a: &Path, reach_a: Reach, b: &Path, reach_b: Reach) -> Hindrance {
    use Reach::{Overlapping, Own, Records};
    if a == b {
        return Hindrance::Same;
    }
    if !a.starts_with(b) && !b.starts_with(a) {
        return Hindrance::None;
    }
    match (reach_a, reach_b) {
        (Overlapping, Overlapping) => Hindrance::Operation,
        (Overlapping, Own) | (Own, Overlapping) => Hindrance::Courtesy,
        (Records, _) | (_, Records) | (Own, Own) => Hindrance::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_whom() {
        use Reach::{Overlapping, Own, Records};
        for (a, reach_a, b, reach_b, expected) in [
            ("/p", Own, "/p", Own, Hindrance::Same),
            ("/p", Records, "/p", Overlapping, Hindrance::Same),
            ("/p", Own, "/p/q", Own, Hindrance::None),
            ("/p", Overlapping, "/p/q", Records, Hindrance::None),
            ("/p", Overlapping, "/p/q", Own, Hindrance::Courtesy),
            ("/p/q", Overlapping, "/p", Overlapping, Hindrance::Operation),
            ("/p", Overlapping, "/pq", Overlapping, Hindrance::None),
            ("/p/a", Overlapping, "/p/b", Overlapping, Hindrance::None),
        ] {
            let there = hindrance(Path::new(a), reach_a, Path::new(b), reach_b);
            let back = hindrance(Path::new(b), reach_b, Path::new(a), reach_a);
            assert_eq!((there, back), (expected, expected), "{a} {b}");
        }
    }

    #[test]
    fn the_next_goes_on_when_the_first_is_done() {
        let locks = Arc::new(Locks::default());
        let first = locks.try_hold(Path::new("/p/q"), Reach::Overlapping, || true);
        let waiting = Arc::clone(&locks);
        let (sender, done) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let _held = waiting.hold(Path::new("/p"), Reach::Own);
            sender.send(()).unwrap();
        });
        drop(locks.hold(Path::new("/other"), Reach::Own));
        assert!(done.try_recv().is_err());
        drop(first.unwrap());
        done.recv().unwrap();
        thread.join().unwrap();
    }

    #[test]
    fn what_hangs_on_an_outer_root_stops_no_inner_one() {
        let soon = Duration::from_millis(20);
        let locks = Arc::new(Locks::default());
        let (outer, inner) = (Path::new("/p"), Path::new("/p/q"));
        let scan = locks.hold(outer, Reach::Own);
        let operation = locks.hold_within(soon, inner, Reach::Overlapping, || true);
        drop((operation.unwrap(), scan));
        let _operation = locks.try_hold(outer, Reach::Overlapping, || true).unwrap();
        drop(locks.hold_within(soon, inner, Reach::Own, || true).unwrap());
        assert_eq!(
            locks
                .hold_within(soon, inner, Reach::Overlapping, || true)
                .unwrap_err(),
            Refusal::Busy(outer.to_owned())
        );
        assert_eq!(
            locks.try_hold(outer, Reach::Records, || false).unwrap_err(),
            Refusal::Unwanted,
            "whose client has gone away waits no longer"
        );
    }
}
