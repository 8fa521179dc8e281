//! Whoever reads our output, while we have nothing to say.

use std::io;
use std::os::fd::AsFd;
use std::thread;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;

use crate::error::Error;

/// From now on the process ends, as after a write that nobody reads, when the reader of stdout goes away. Without this a
/// command that waits would notice at its next line only, and `stepback watch | head` would hang until then. Where no
/// thread can be had, it is so.
pub fn end_when_gone() {
    let _ = thread::Builder::new().name("reader".into()).spawn(|| {
        // Signals are for the thread that waits. Blocking can't fail.
        let _ = SigSet::all().thread_block();
        let stdout = io::stdout();
        // Nothing is asked for: an error and a hang-up are told all the same.
        let mut watched = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
        while let Err(Errno::EINTR) = poll(&mut watched, PollTimeout::NONE) {}
        let told = watched[0].revents().unwrap_or(PollFlags::empty());
        if told.intersects(PollFlags::POLLERR | PollFlags::POLLHUP) {
            std::process::exit(Error::OutputClosed.exit_code().into());
        }
    });
}
