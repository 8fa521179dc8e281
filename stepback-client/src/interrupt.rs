//! Ctrl-C while the daemon works on something that goes on without us.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::signal::{SigSet, Signal};

use crate::render::Printer;

/// The exit code of what SIGINT ended, as shells have it.
const INTERRUPTED: i32 = 128 + Signal::SIGINT as i32;

/// While this lives, a SIGINT says why it doesn't stop the work, and ends the process with exit code 130.
pub struct Explained {
    over: Arc<AtomicBool>,
    set: SigSet,
}

impl Explained {
    /// Begins. `None` where SIGINT is ignored or held back already, and where no thread can be had: it does then what
    /// it did before.
    pub fn begin(printer: Printer, message: String) -> Option<Self> {
        let blocked = SigSet::thread_get_mask().ok()?;
        if is_ignored(Signal::SIGINT) || blocked.contains(Signal::SIGINT) {
            return None;
        }
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        // Before the thread is made, so that none is left that the signal could end.
        set.thread_block().ok()?;
        let over = Arc::new(AtomicBool::new(false));
        let explained = Self {
            over: Arc::clone(&over),
            set,
        };
        thread::Builder::new()
            .name("interrupt".into())
            .spawn(move || {
                if set.wait().is_ok() {
                    if !over.load(Ordering::SeqCst) {
                        printer.interrupted(&message);
                    }
                    std::process::exit(INTERRUPTED);
                }
            })
            .ok()?;
        Some(explained)
    }
}

impl Drop for Explained {
    /// From here on the signal ends the process at once, in silence.
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Only a wrong argument can fail here.
        let _ = self.set.thread_unblock();
    }
}

/// Whether the signal is ignored, as some parents leave it. Not known where there is no `/proc`.
pub fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    mask & (1 << (signal as i32 - 1)) != 0
}
