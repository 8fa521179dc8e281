//! Other processes, by their ids: whether one still is there, and whether it is a daemon of ours.

use std::fs;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use crate::error::{Error, Result};

/// What the daemon's program is called.
const DAEMON: &[u8] = b"stepbackd";

/// Whether the process has not let go of everything yet. One that has ended, but that its parent hasn't asked after, has;
/// one whose first thread has ended while others still close files hasn't.
pub fn is_there(pid: u32) -> bool {
    if signal::kill(id(pid), None) == Err(Errno::ESRCH) {
        return false;
    }
    let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else {
        // Without /proc the signal alone tells.
        return !Path::new("/proc/self").exists();
    };
    let state = stat
        .iter()
        .rposition(|b| *b == b')')
        .and_then(|end| stat.get(end + 2));
    if !matches!(state, Some(b'Z' | b'X')) {
        return true;
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    threads > 1
}

/// Whether the process is there and runs the daemon's program: a number alone may be another's by now.
pub fn is_daemon(pid: u32) -> bool {
    if !is_there(pid) {
        return false;
    }
    match fs::read(format!("/proc/{pid}/comm")) {
        Ok(name) => name.trim_ascii_end() == DAEMON,
        Err(_) => !Path::new("/proc/self").exists(),
    }
}

/// Asks the process to end. One that is gone already is fine.
///
/// # Errors
/// When it is another user's.
pub fn terminate(pid: u32) -> Result<()> {
    send(pid, Signal::SIGTERM)
}

/// Ends the process at once, also one that is stopped. One that is gone already is fine.
///
/// # Errors
/// When it is another user's.
pub fn kill(pid: u32) -> Result<()> {
    send(pid, Signal::SIGKILL)
}

fn send(pid: u32, what: Signal) -> Result<()> {
    match signal::kill(id(pid), what) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(e) => Err(Error::Io {
            path: format!("process {pid}").into(),
            source: e.into(),
        }),
    }
}

/// The process of this id and no group: 0 and numbers that are none are nobody.
fn id(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).ok().filter(|p| *p > 0).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_there_and_are_no_daemon() {
        let me = std::process::id();
        assert!(is_there(me) && !is_daemon(me));
        assert!(!is_there(0) && !is_there(u32::MAX) && !is_daemon(0));
    }

    #[test]
    fn a_child_that_has_ended_is_gone_before_it_is_waited_for() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        while is_there(pid) {
            std::thread::yield_now();
        }
        assert!(child.wait().unwrap().success());
    }
}
