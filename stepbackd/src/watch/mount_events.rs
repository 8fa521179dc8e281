//! That something was mounted or unmounted: the kernel says so to whoever polls its list of mounts.

use std::fs::File;
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// What the kernel raises at each change, once for each poll that sees it (proc(5)).
const CHANGED: PollFlags = PollFlags::POLLPRI.union(PollFlags::POLLERR);

/// The list, held open; `None` where there is none.
#[derive(Debug)]
pub struct MountEvents(Option<File>);

impl MountEvents {
    /// Changes count from now on.
    pub fn open() -> Self {
        let list = File::open("/proc/self/mountinfo");
        if let Err(e) = &list {
            tracing::info!("mounts aren't told of: {e}");
        }
        Self(list.ok())
    }

    /// What to poll.
    pub fn poll_fd(&self) -> Option<PollFd<'_>> {
        let list = self.0.as_ref()?;
        Some(PollFd::new(list.as_fd(), PollFlags::POLLPRI))
    }

    /// Whether this result of a poll says that mounts have changed. One that can't be polled isn't polled again.
    pub fn has_news(&mut self, told: PollFlags) -> bool {
        if told.intersects(PollFlags::POLLNVAL | PollFlags::POLLHUP) {
            self.0 = None;
        }
        told.intersects(CHANGED)
    }

    /// Whether they have changed since the last poll, at once.
    pub fn have_changed(&mut self) -> bool {
        let Some(list) = self.poll_fd() else {
            return false;
        };
        let mut list = [list];
        // One that fails is repeated at the next events.
        let told = match poll(&mut list, PollTimeout::ZERO) {
            Ok(1..) => list[0].revents(),
            _ => None,
        };
        told.is_some_and(|told| self.has_news(told))
    }
}
