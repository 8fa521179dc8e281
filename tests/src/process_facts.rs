//! What the kernel says of a process: what it holds, what it used.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;

use nix::unistd::Pid;

/// Bytes of memory that are resident and not of a file.
#[must_use]
pub fn anonymous_bytes(pid: Pid) -> u64 {
    kib(pid, "RssAnon:") * 1024
}

/// Bytes of memory that are resident.
#[must_use]
pub fn resident_bytes(pid: Pid) -> u64 {
    kib(pid, "VmRSS:") * 1024
}

/// The most bytes of memory that were resident at once since [`forget_peak`].
#[must_use]
pub fn peak_bytes(pid: Pid) -> u64 {
    kib(pid, "VmHWM:") * 1024
}

/// Begins to look for a new peak.
///
/// # Panics
/// When the process doesn't run.
pub fn forget_peak(pid: Pid) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("the process runs");
}

/// So many bytes it has asked files, sockets and pipes for, whether or not a disk was needed.
#[must_use]
pub fn read_bytes(pid: Pid) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).expect("the process runs");
    let rchar = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    rchar.and_then(|n| n.parse().ok()).expect("a number")
}

fn kib(pid: Pid, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
    number.unwrap_or_else(|| panic!("no {field} in {status}"))
}

/// What its open descriptors are of.
#[must_use]
pub fn descriptors(pid: Pid) -> Vec<String> {
    let dir = fs::read_dir(format!("/proc/{pid}/fd")).expect("the process runs");
    // One that is closed meanwhile is none.
    dir.flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .map(|of| of.to_string_lossy().into_owned())
        .collect()
}

/// Number of its inotify watches.
#[must_use]
pub fn watches(pid: Pid) -> usize {
    let dir = fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("the process runs");
    let infos = dir
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path()).ok());
    infos
        .map(|info| info.lines().filter(|line| line.starts_with("inotify ")).count())
        .sum()
}

/// What a process has used until now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Used {
    /// Processor time, in hundredths of a second.
    pub ticks: u64,
    /// For each thread, how often it has gone to sleep.
    sleeps: BTreeMap<OsString, u64>,
}

impl Used {
    /// How often threads that still run have gone to sleep since `before`: as often as they woke up.
    #[must_use]
    pub fn wakes_since(&self, before: &Self) -> u64 {
        let since = |(thread, sleeps): (&OsString, &u64)| {
            sleeps.saturating_sub(before.sleeps.get(thread).copied().unwrap_or(0))
        };
        self.sleeps.iter().map(since).sum()
    }
}

/// What a process has used until now.
#[must_use]
pub fn used(pid: Pid) -> Used {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |at: usize| fields[at].parse::<u64>().expect("a number");
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    let sleeps = tasks.flatten().filter_map(|task| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some((task.file_name(), line.trim().parse::<u64>().ok()?))
    });
    Used {
        // Behind the name, in which anything may be: state, then 10 fields, then utime and stime.
        ticks: ticks(11) + ticks(12),
        sleeps: sleeps.collect(),
    }
}
