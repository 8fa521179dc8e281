//! Was a signal sent to our whole process group, or to us alone?
//!
//! Nothing in a signal tells. So another process of the group is asked: one that does nothing, with the same signals
//! blocked. What was sent to the group is pending there as well; the command has it already then, and must not get it
//! twice.
//!
//! It keeps what it has, so that another has to take its place before the next signal of that number. Until it has, ours
//! is left pending, too: whatever comes meanwhile becomes one with it on both sides.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

/// First and only argument of the process. Not for people.
const WORD: &str = "--witness-signals";

/// The kernel goes through a group one by one: the others may have the signal a moment after us.
const LOOKS: [Duration; 3] = [
    Duration::from_millis(1),
    Duration::from_millis(3),
    Duration::from_millis(6),
];

/// So often at most another takes its place for one signal: a flood of them must not hold us up.
const SUCCESSORS: usize = 3;

/// The process, which ends with us.
pub struct Witness {
    child: Option<Child>,
    /// What the one before it had seen and we haven't heard of yet, one bit for each signal.
    carried: u64,
}

impl Witness {
    /// Starts it, with the signals blocked that this thread has blocked. Without one every signal is taken to be for us
    /// alone.
    pub fn new() -> Self {
        Self {
            child: start().ok(),
            carried: 0,
        }
    }

    /// Whether it has a signal, too, that is pending here.
    pub fn has(&mut self, signal: Signal) -> bool {
        let bit = bit(signal);
        let has = (self.carried | self.pending()) & bit != 0;
        self.let_go(bit);
        has
    }

    /// Whether it gets a signal a moment after us that we have taken already.
    pub fn gets(&mut self, signal: Signal) -> bool {
        let bit = bit(signal);
        let gets = LOOKS.iter().any(|wait| {
            thread::sleep(*wait);
            self.pending() & bit != 0
        });
        // If another is pending here by now, it is that one which it has.
        if !gets || pending_here() & bit != 0 {
            return false;
        }
        self.let_go(bit);
        true
    }

    /// Puts another in its place that doesn't have the signal.
    fn let_go(&mut self, bit: u64) {
        for _ in 0..SUCCESSORS {
            if self.pending() & bit == 0 {
                break;
            }
            // The next must be there before this one goes.
            let next = start().ok();
            self.carried |= self.pending();
            end(std::mem::replace(&mut self.child, next));
        }
        self.carried &= !bit;
    }

    /// The signals that wait for the process as a whole.
    fn pending(&self) -> u64 {
        let Some(child) = &self.child else { return 0 };
        let status = fs::read_to_string(format!("/proc/{}/status", child.id()));
        pending(&status.unwrap_or_default(), "ShdPnd:")
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        end(self.child.take());
    }
}

fn end(child: Option<Child>) {
    if let Some(mut child) = child {
        // It may have been killed with the group; then waiting is all that is left.
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn start() -> io::Result<Child> {
    Command::new("/proc/self/exe")
        .arg0("stepback")
        .arg(WORD)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

/// Becomes the witness, if that is what the arguments say; returns its exit code when we, its parent, have ended.
pub fn become_witness(args: &[OsString]) -> Option<u8> {
    let [_, word] = args else { return None };
    if word != WORD {
        return None;
    }
    // Nothing is ever written; the end of the pipe is the end of us.
    let _ = io::stdin().read(&mut [0]);
    Some(0)
}

/// The one of these signals that is pending here and comes first; `None` too where `/proc` doesn't say.
pub fn first_pending(of: &[Signal]) -> Option<Signal> {
    let pending = pending_here();
    let pending = of.iter().copied().filter(|signal| pending & bit(*signal) != 0);
    pending.min()
}

/// The signals that wait for us, as a process and as a thread.
fn pending_here() -> u64 {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    pending(&status, "ShdPnd:") | pending(&status, "SigPnd:")
}

const fn bit(signal: Signal) -> u64 {
    1 << (signal as u32 - 1)
}

fn pending(status: &str, which: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix(which))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_has_a_bit_for_each_signal() {
        let status = "Name:\tx\nSigPnd:\t0000000000000002\nShdPnd:\t0000000000004002\n";
        assert_eq!(pending(status, "ShdPnd:"), 0x4002);
        assert_eq!(
            pending(status, "ShdPnd:"),
            bit(Signal::SIGTERM) | bit(Signal::SIGINT)
        );
        assert_eq!(pending(status, "SigPnd:"), bit(Signal::SIGINT));
        assert_eq!(pending("", "ShdPnd:"), 0);
        assert_eq!(become_witness(&["stepback".into(), "status".into()]), None);
    }
}
