//! Other processes: is one still the one that it was?

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

/// When process `pid` began, in clock ticks since boot; `None` when there is none (or it is a zombie).
pub fn start_time(pid: u32) -> Option<u64> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Whether the process that was `pid` and began at `start` is still there.
pub fn is_alive(pid: u32, start: u64) -> bool {
    start_time(pid) == Some(start)
}

/// Whether the process is there and runs a program of our name: a number alone may be another's by now.
pub fn is_daemon(pid: u32) -> bool {
    pid != std::process::id()
        && start_time(pid).is_some()
        && std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_ascii_end() == b"stepbackd")
}

/// Asks a daemon to read its settings again and to look after its socket.
pub fn hang_up(pid: u32) {
    if let Ok(pid) = i32::try_from(pid) {
        // It may have ended meanwhile.
        let _ = signal::kill(Pid::from_raw(pid), Signal::SIGHUP);
    }
}

fn parse(stat: &str) -> Option<u64> {
    // The command name stands in parentheses and may hold anything, parentheses too.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_the_twenty_second_field() {
        let stat = "7 (a) b) (c) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 2 3";
        assert_eq!(parse(stat), Some(12345));
        assert_eq!(parse(&stat.replace(" S ", " Z ")), None);
        assert_eq!(parse("garbage"), None);
    }

    #[test]
    fn we_are_alive() {
        let me = std::process::id();
        let start = start_time(me).unwrap();
        assert!(is_alive(me, start) && !is_alive(me, start + 1));
        assert_eq!(start_time(u32::MAX), None);
    }
}
