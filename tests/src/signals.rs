//! Signals that the tests themselves were started to ignore.

use std::fs;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Once};

use nix::sys::signal::Signal;

/// Those that `nohup`, or a shell that puts the tests into the background, has them ignore, and others that end programs.
const PASSED_ON: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// A signal that a process ignores is ignored by all that it starts, and no shell can trap it. One that has a handler is not:
/// so this process, which goes on ignoring it, does so by one.
pub fn are_not_passed_on_ignored() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.map_or(0, |mask| {
            u64::from_str_radix(mask.trim(), 16).expect("hexadecimal")
        });
        for signal in PASSED_ON.map(|signal| signal as i32) {
            if ignored >> (signal - 1) & 1 == 1 {
                let nothing = Arc::new(AtomicBool::new(false));
                signal_hook::flag::register(signal, nothing).expect("a signal that can be handled");
            }
        }
    });
}
