//! Looks at a file system that may not answer, for those who can't wait: one dead mount mustn't hold up what is said of
//! all other roots.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// How long one may take. A file system that answers does it in a fraction of this, also on a busy machine.
const PATIENCE: Duration = Duration::from_millis(50);

/// So many may be under way at once for one root; each holds a thread until the file system answers.
const LOOKS_MAX: usize = 32;

/// The looks at one root that are under way.
#[derive(Debug, Default)]
pub struct Looks(Arc<UnderWay>);

#[derive(Debug, Default)]
struct UnderWay {
    number: AtomicUsize,
    /// So many of them took too long: nobody waits again until the file system has answered.
    late: AtomicUsize,
}

/// Counts one look while it lives.
struct Counted {
    all: Arc<UnderWay>,
    is_late: Arc<AtomicBool>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.all.number.fetch_sub(1, Ordering::Relaxed);
        if self.is_late.swap(true, Ordering::Relaxed) {
            self.all.late.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Looks {
    /// What `look` saw; `None` when it takes too long, or when too many hang already.
    pub(super) fn take<T: Send + 'static>(&self, look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        self.take_within(PATIENCE, look)
    }

    /// As [`Self::take`], for so long.
    pub fn take_within<T: Send + 'static>(
        &self,
        patience: Duration,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if self.0.late.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let counted = Counted {
            all: Arc::clone(&self.0),
            is_late: Arc::default(),
        };
        let is_late = Arc::clone(&counted.is_late);
        if self.0.number.fetch_add(1, Ordering::Relaxed) >= LOOKS_MAX {
            return None;
        }
        let (sender, seen) = sync_channel(1);
        let thread = std::thread::Builder::new().name("look".into()).spawn(move || {
            let _counted = counted;
            // Nobody may be waiting any more.
            let _ = sender.send(look());
        });
        thread.ok()?;
        if let Ok(seen) = seen.recv_timeout(patience) {
            return Some(seen);
        }
        self.0.late.fetch_add(1, Ordering::Relaxed);
        if is_late.swap(true, Ordering::Relaxed) {
            // It has ended in this very moment.
            self.0.late.fetch_sub(1, Ordering::Relaxed);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_is_not_waited_for_and_bounded() {
        let looks = Looks::default();
        assert_eq!(looks.take(|| 1), Some(1));
        let (answer, hangs) = std::sync::mpsc::channel::<()>();
        let hangs = Arc::new(std::sync::Mutex::new(hangs));
        let hang = move || hangs.lock().is_ok_and(|hangs| hangs.recv().is_ok());
        assert_eq!(looks.take_within(Duration::from_millis(1), hang), None);
        let started = std::time::Instant::now();
        for _ in 0..100 {
            assert_eq!(looks.take(|| 1), None, "nobody waits again");
        }
        assert!(started.elapsed() < PATIENCE);
        assert_eq!(looks.0.number.load(Ordering::Relaxed), 1, "no further thread");
        drop(answer);
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while looks.0.late.load(Ordering::Relaxed) > 0 {
            assert!(std::time::Instant::now() < deadline, "never: they have ended");
            std::thread::yield_now();
        }
        assert_eq!(looks.take(|| 1), Some(1));
    }
}
