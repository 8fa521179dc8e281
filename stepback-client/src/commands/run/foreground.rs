//! Being the parent of a foreground job that must not notice us.
//!
//! The command stays in our process group, so that the terminal's signals reach it as they would without us. We block
//! them, wait for them beside the command's own state changes, and
//! - leave alone what the terminal sent, since the command has it already;
//! - pass on what was sent to our process alone, and not what was sent to our group, which the command is in;
//! - stop when the command stops, by the same signal, so that the shell sees a stopped job;
//! - wake the command when we are woken, if it still sleeps.

use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::AsFd;
use std::process::Child;

use nix::errno::Errno;
#[cfg(target_os = "linux")]
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{self, SigSet, SigmaskHow, Signal};
#[cfg(target_os = "linux")]
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::witness::{Witness, first_pending};
use crate::interrupt::is_ignored;

/// What we take part in: the command's end or stop, and every signal that people or their shells send to a job.
const TAKEN: [Signal; 11] = [
    Signal::SIGCHLD,
    Signal::SIGCONT,
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// The signals, blocked. They stay so until the process ends: the last checkpoint is taken whatever comes.
pub struct Signals {
    taken: SigSet,
    source: Source,
    witness: Witness,
}

impl Signals {
    /// Blocks them in this thread, the only one there is. After a failure nothing is blocked.
    ///
    /// # Errors
    /// When the kernel refuses, or when we were started with SIGCHLD ignored: nothing would tell of the command's end.
    pub fn take() -> io::Result<Self> {
        if is_ignored(Signal::SIGCHLD) {
            return Err(io::Error::other("SIGCHLD is ignored here"));
        }
        let set: SigSet = TAKEN.into_iter().collect();
        let source = Source::new(set)?;
        let before = set.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let taken = set.iter().filter(|signal| !before.contains(*signal)).collect();
        // It has to have them blocked as well.
        let witness = Witness::new();
        Ok(Self {
            taken,
            source,
            witness,
        })
    }

    /// Those that weren't blocked before: the command has to let them through again.
    pub fn taken(&self) -> &SigSet {
        &self.taken
    }

    /// Waits until the command ends; its exit code, or 128 and the number of the signal that killed it.
    ///
    /// # Errors
    /// When the command can't be waited for.
    pub fn accompany(&mut self, child: &Child) -> io::Result<u8> {
        let child = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
        let mut job = Job {
            child,
            stopped: false,
            resuming: false,
        };
        loop {
            if let Some(code) = job.follow()? {
                return Ok(code);
            }
            let came = self.next()?;
            if came.signal == Signal::SIGCONT {
                if let Some(code) = job.wake()? {
                    return Ok(code);
                }
            } else if passes(came.signal, came.from_kernel)
                && (came.from_kernel || !came.to_group && !self.witness.gets(came.signal))
            {
                job.send(came.signal)?;
            }
        }
    }

    /// Waits for the next signal and takes it.
    fn next(&mut self) -> io::Result<Came> {
        loop {
            self.source.wait()?;
            let first = first_pending(&TAKEN);
            let to_group = first
                .filter(|signal| !matches!(signal, Signal::SIGCHLD | Signal::SIGCONT))
                .is_some_and(|signal| self.witness.has(signal));
            if let Some((signal, from_kernel)) = self.source.take(first)? {
                return Ok(Came {
                    signal,
                    from_kernel,
                    to_group,
                });
            }
            // It is gone: a SIGCONT takes back what would stop us.
        }
    }
}

/// A signal that was taken.
struct Came {
    signal: Signal,
    from_kernel: bool,
    /// The command has it, too. If not, it may still get it.
    to_group: bool,
}

/// Whether a signal that came to us has to be passed on. What the kernel sends for a terminal goes to the whole
/// foreground group; only a hang-up goes to the session's leader alone.
fn passes(signal: Signal, from_kernel: bool) -> bool {
    match signal {
        Signal::SIGCHLD => false,
        Signal::SIGHUP if from_kernel => nix::unistd::getsid(None) == Ok(nix::unistd::getpid()),
        _ => !from_kernel,
    }
}

struct Job {
    child: Pid,
    /// The command sleeps, as far as we know.
    stopped: bool,
    /// We slept with it: the next SIGCONT is the one that woke us.
    resuming: bool,
}

impl Job {
    /// Takes in what has happened to the command, and sleeps when it does; its exit code if it has ended.
    fn follow(&mut self) -> io::Result<Option<u8>> {
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED | WaitPidFlag::WCONTINUED;
        loop {
            match waitpid(self.child, Some(flags)) {
                Ok(WaitStatus::Exited(_, code)) => {
                    return Ok(Some(u8::try_from(code & 0xff).unwrap_or(u8::MAX)));
                }
                Ok(WaitStatus::Signaled(_, signal, _)) => {
                    return Ok(Some(128 + u8::try_from(signal as i32).unwrap_or(0)));
                }
                Ok(WaitStatus::Stopped(_, signal)) => {
                    self.stopped = true;
                    self.sleep(signal)?;
                }
                Ok(WaitStatus::Continued(_)) => self.stopped = false,
                Ok(_) => return Ok(None),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Stops us as the command was stopped, until somebody continues us.
    fn sleep(&mut self, by: Signal) -> io::Result<()> {
        let mut set = SigSet::empty();
        if by != Signal::SIGSTOP {
            set.add(by);
        }
        // Raised while it is blocked and let through: nothing can come between.
        signal::raise(by)?;
        set.thread_unblock()?;
        // Here we slept, unless our group is one that the kernel doesn't stop.
        set.thread_block()?;
        self.resuming = true;
        Ok(())
    }

    /// A SIGCONT came: wakes the command if it still sleeps; passes the signal on if it wasn't about sleeping at all.
    fn wake(&mut self) -> io::Result<Option<u8>> {
        if let Some(code) = self.follow()? {
            return Ok(Some(code));
        }
        let woken_with_us = std::mem::take(&mut self.resuming) && !self.stopped;
        if !woken_with_us {
            self.send(Signal::SIGCONT)?;
        }
        Ok(None)
    }

    fn send(&self, signal: Signal) -> io::Result<()> {
        match signal::kill(self.child, signal) {
            // It ended meanwhile; or has become another user's, as set-id programs do.
            Ok(()) | Err(Errno::ESRCH | Errno::EPERM) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

/// Where blocked signals are waited for: with who sent them, where the system tells.
#[cfg(target_os = "linux")]
struct Source {
    descriptor: SignalFd,
    set: SigSet,
}

#[cfg(target_os = "linux")]
impl Source {
    fn new(set: SigSet) -> io::Result<Self> {
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let descriptor = SignalFd::with_flags(&set, flags)?;
        Ok(Self { descriptor, set })
    }

    /// Until there is a signal to take.
    fn wait(&self) -> io::Result<()> {
        loop {
            let mut waited = [PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)];
            match poll(&mut waited, PollTimeout::NONE) {
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Takes this signal, or else the next; it, and whether the kernel sent it. `None` when there is none.
    fn take(&self, which: Option<Signal>) -> io::Result<Option<(Signal, bool)>> {
        let Some(which) = which else {
            return self.read();
        };
        self.descriptor.set_mask(&which.into())?;
        let taken = self.read();
        self.descriptor.set_mask(&self.set)?;
        taken
    }

    fn read(&self) -> io::Result<Option<(Signal, bool)>> {
        loop {
            match self.descriptor.read_signal() {
                Ok(Some(info)) => {
                    let number = i32::try_from(info.ssi_signo).map_err(io::Error::other)?;
                    let from_kernel = info.ssi_code == nix::libc::SI_KERNEL;
                    return Ok(Some((Signal::try_from(number)?, from_kernel)));
                }
                Ok(None) => return Ok(None),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
struct Source(SigSet);

#[cfg(not(target_os = "linux"))]
impl Source {
    fn new(set: SigSet) -> io::Result<Self> {
        Ok(Self(set))
    }

    #[allow(clippy::unnecessary_wraps, reason = "it may fail elsewhere")]
    fn wait(&self) -> io::Result<()> {
        Ok(())
    }

    /// The next signal; those that terminals send are taken to come from one.
    fn take(&self, _which: Option<Signal>) -> io::Result<Option<(Signal, bool)>> {
        let signal = self.0.wait()?;
        let terminal = matches!(
            signal,
            Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU
        );
        Ok(Some((signal, terminal)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_terminal_sends_isnt_passed_on_and_the_rest_is() {
        assert!(!passes(Signal::SIGINT, true));
        assert!(passes(Signal::SIGINT, false));
        assert!(!passes(Signal::SIGTSTP, true));
        assert!(passes(Signal::SIGTERM, false));
        assert!(!passes(Signal::SIGCHLD, false));
    }
}
