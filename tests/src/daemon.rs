//! A daemon as a child of the test, to be killed and started again.

use std::process::Child;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::eventually;

/// `stepbackd --foreground`, started by the test. Dropping it kills it.
#[derive(Debug)]
pub struct Daemon {
    child: Option<Child>,
}

impl Daemon {
    pub(crate) const fn new(child: Child) -> Self {
        Self { child: Some(child) }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        let id = self.child.as_ref().expect("not ended yet").id();
        Pid::from_raw(i32::try_from(id).expect("a process id is an i32"))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("the daemon is our child and not yet waited for");
    }

    /// Whether it still runs.
    #[must_use]
    pub fn runs(&mut self) -> bool {
        matches!(self.child.as_mut().map(Child::try_wait), Some(Ok(None)))
    }

    /// Kills it as a power cut would, and waits until it is gone.
    pub fn kill(mut self) {
        self.end();
    }

    /// Waits until it has ended by itself, and gives its exit code (`None` when a signal ended it).
    pub fn ended(mut self, deadline: Duration) -> Option<i32> {
        let mut child = self.child.take().expect("not ended yet");
        let mut code = None;
        eventually("the daemon ends", deadline, || match child.try_wait() {
            Ok(Some(status)) => {
                code = status.code();
                true
            }
            _ => false,
        });
        code
    }

    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself: then there is nothing to kill, and the wait says so at once.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}
