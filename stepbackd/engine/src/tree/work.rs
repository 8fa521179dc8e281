//! Runs tasks that make more tasks. The caller works too; helpers join only once there is a queue, so that looking at one
//! file costs no thread. No task waits for another, so that neither the stack nor the number of threads limits depth.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;

/// So many tasks must wait before a helper joins.
const QUEUE_FOR_HELPER: usize = 4;

/// The tasks that wait; taken from the end, so that a walk goes deep first and few directories are open at once.
pub(super) struct Work<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    queue: Vec<T>,
    running: usize,
    /// Threads that have nothing to do.
    waiting: usize,
    helpers: usize,
    panicked: bool,
}

impl<T: Send> Work<T> {
    /// Runs `first` and all that is added meanwhile by `run`, on at most `threads` threads. Returns when all is done.
    pub fn run(first: T, threads: usize, run: impl Fn(&Self, T) + Sync) {
        let state = State {
            queue: vec![first],
            running: 0,
            waiting: 0,
            helpers: 0,
            panicked: false,
        };
        let work = Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        };
        std::thread::scope(|scope| work.serve(scope, threads.saturating_sub(1), &run));
    }

    /// Adds tasks.
    pub fn add(&self, tasks: impl IntoIterator<Item = T>) {
        let mut state = self.lock();
        state.queue.extend(tasks);
        let waiting = state.waiting > 0;
        drop(state);
        if waiting {
            self.changed.notify_all();
        }
    }

    fn serve<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        helpers_max: usize,
        run: &'env (impl Fn(&Self, T) + Sync),
    ) {
        let mut state = self.lock();
        loop {
            if state.panicked {
                return;
            }
            let Some(task) = state.queue.pop() else {
                if state.running == 0 {
                    return;
                }
                state.waiting += 1;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.waiting -= 1;
                continue;
            };
            state.running += 1;
            if state.queue.len() >= QUEUE_FOR_HELPER && state.helpers < helpers_max {
                state.helpers += 1;
                scope.spawn(move || self.serve(scope, 0, run));
            }
            drop(state);
            let running = Running(self);
            run(self, task);
            drop(running);
            state = self.lock();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the others from waiting for ever for a task that panicked.
struct Running<'a, T: Send>(&'a Work<T>);

impl<T: Send> Drop for Running<'_, T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.running -= 1;
        state.panicked |= std::thread::panicking();
        if state.panicked || (state.running == 0 && state.queue.is_empty()) {
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn all_tasks_run() {
        let sum = AtomicU64::new(0);
        Work::run(12u64, 4, |work, task| {
            sum.fetch_add(1, Ordering::Relaxed);
            if task > 0 {
                work.add([task - 1, task - 1]);
            }
        });
        assert_eq!(sum.into_inner(), (1 << 13) - 1);
    }

    #[test]
    #[should_panic]
    fn a_panic_ends_the_work() {
        Work::run(0u64, 4, |work, task| {
            work.add((task == 0).then_some(1..100).into_iter().flatten());
            assert!(task != 50);
        });
    }
}
