//! Roots may nest: while an operation writes below one, no other root that shares files with it scans.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The roots that are being worked on, process-wide.
#[derive(Debug, Default)]
pub struct Locks {
    held: Mutex<BTreeMap<PathBuf, Reach>>,
    released: Condvar,
}

/// How far work on a root reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// It reads below the root, and changes only the root's own records.
    Own,
    /// It may write below the root, or handle the records of roots above or below.
    Overlapping,
}

/// Held while the work goes on.
#[derive(Debug)]
pub struct Held {
    locks: Arc<Locks>,
    path: PathBuf,
}

impl Locks {
    /// Waits until the work on the root at `path` may begin.
    pub fn hold(self: &Arc<Self>, path: &Path, reach: Reach) -> Held {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        while held
            .iter()
            .any(|(other, theirs)| excludes(path, reach, other, *theirs))
        {
            held = self.released.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        held.insert(path.to_owned(), reach);
        Held {
            locks: Arc::clone(self),
            path: path.to_owned(),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.locks
            .held
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.path);
        self.locks.released.notify_all();
    }
}

fn excludes(a: &Path, reach_a: Reach, b: &Path, reach_b: Reach) -> bool {
    if a == b {
        return true;
    }
    let overlap = a.starts_with(b) || b.starts_with(a);
    overlap && (reach_a == Reach::Overlapping || reach_b == Reach::Overlapping)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_whom() {
        use Reach::{Overlapping, Own};
        for (a, reach_a, b, reach_b, waits) in [
            ("/p", Own, "/p", Own, true),
            ("/p", Own, "/p/q", Own, false),
            ("/p", Overlapping, "/p/q", Own, true),
            ("/p/q", Overlapping, "/p", Own, true),
            ("/p", Overlapping, "/pq", Overlapping, false),
            ("/p/a", Overlapping, "/p/b", Overlapping, false),
        ] {
            assert_eq!(
                excludes(Path::new(a), reach_a, Path::new(b), reach_b),
                waits,
                "{a} {b}"
            );
            assert_eq!(
                excludes(Path::new(b), reach_b, Path::new(a), reach_a),
                waits,
                "{b} {a}"
            );
        }
    }

    #[test]
    fn the_next_goes_on_when_the_first_is_done() {
        let locks = Arc::new(Locks::default());
        let first = locks.hold(Path::new("/p/q"), Reach::Overlapping);
        let waiting = Arc::clone(&locks);
        let (sender, done) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let _held = waiting.hold(Path::new("/p"), Reach::Own);
            sender.send(()).unwrap();
        });
        drop(locks.hold(Path::new("/other"), Reach::Overlapping));
        assert!(done.try_recv().is_err());
        drop(first);
        done.recv().unwrap();
        thread.join().unwrap();
    }
}
