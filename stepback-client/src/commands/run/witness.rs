//! Was a signal sent to our whole process group, or to us alone?
//!
//! Nothing in a signal tells. So another process of the group is asked: one that does nothing, with the same signals
//! blocked. What was sent to the group is pending there as well; the command has it already then, and must not get it
//! twice.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

/// First and only argument of the process. Not for people.
const WORD: &str = "--witness-signals";

/// The kernel goes through a group one by one: the others may have the signal a moment after us.
const LOOKS: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(1),
    Duration::from_millis(3),
    Duration::from_millis(6),
];

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

    /// Whether it has the signal, too.
    pub fn saw(&mut self, signal: Signal) -> bool {
        let bit = 1 << (signal as u32 - 1);
        let carried = self.carried & bit != 0;
        let seen = LOOKS.iter().any(|wait| {
            if !carried {
                thread::sleep(*wait);
            }
            carried || self.pending() & bit != 0
        });
        self.carried &= !bit;
        if self.pending() & bit != 0 {
            // It keeps what it saw: the next signal needs another, which must be there before this one goes.
            let next = start().ok();
            self.carried |= self.pending() & !bit;
            end(std::mem::replace(&mut self.child, next));
        }
        seen
    }

    /// The signals that wait for the process as a whole.
    fn pending(&self) -> u64 {
        let Some(child) = &self.child else { return 0 };
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
        pending(&status.unwrap_or_default())
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

fn pending(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("ShdPnd:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_has_a_bit_for_each_signal() {
        let status = "Name:\tx\nSigPnd:\t0000000000000002\nShdPnd:\t0000000000004002\n";
        assert_eq!(pending(status), 0x4002);
        assert_eq!(pending(status) >> (Signal::SIGTERM as u32 - 1) & 1, 1);
        assert_eq!(pending(""), 0);
        assert_eq!(become_witness(&["stepback".into(), "status".into()]), None);
    }
}
