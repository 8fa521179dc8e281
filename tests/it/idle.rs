//! Nobody types: what the daemon costs then.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;
use std::time::Duration;

use stepback_tests::{Sandbox, descriptors, eventually, pause, resident_bytes, used, watches};

use crate::support::{number_from, seconds};

const ROOTS: usize = 10;

fn may_unshare() -> bool {
    let done = Command::new("unshare").args(["-m", "true"]).output();
    done.is_ok_and(|done| done.status.success())
}

#[test]
fn an_idle_daemon_sleeps() {
    let sandbox = Sandbox::new();
    // Each mount of another test would wake it, where it can hear of them.
    let unshare: &[&OsStr] = if may_unshare() {
        &["unshare", "-m"].map(OsStr::new)
    } else {
        &[]
    };
    let daemon = sandbox.daemon_under(unshare);
    let files = number_from("STEPBACK_FILES", 500);
    for root in 0..ROOTS {
        let project = sandbox.project(&format!("p{root}"));
        let script = format!(
            "for d in 1 2 3 4 5; do mkdir d$d; seq {} | split -l 1 -a 4 - d$d/f; done",
            files / 5
        );
        project.sh(&script);
        project.attach();
        project.settle();
    }
    let pid = daemon.pid();
    sandbox.wait_until_idle(pid);
    let before = used(pid);
    let seconds = seconds(5);
    pause(Duration::from_secs(seconds));
    let after = used(pid);
    let (ticks, wakes) = (after.ticks - before.ticks, after.wakes_since(&before));
    println!(
        "{ROOTS} roots of {files} files, {seconds} s: {ticks} ticks of 10 ms, {wakes} wake-ups, {} MiB resident, {} watches",
        resident_bytes(pid) >> 20,
        watches(pid),
    );
    // A thousandth of a core.
    assert!(ticks * 10 <= seconds.max(10), "{ticks} ticks in {seconds} s");
    assert!(wakes <= 2 + seconds / 60, "{wakes} wake-ups in {seconds} s");
    assert!(descriptors(pid).len() < 200);
    // In all; a program that isn't optimised takes more of it for itself.
    let mebibytes = resident_bytes(pid) >> 20;
    let most = if cfg!(debug_assertions) { 80 } else { 60 };
    assert!(mebibytes < most, "{mebibytes} MiB resident");
}

#[test]
fn what_was_read_of_the_store_goes_when_nobody_needs_it() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.daemon();
    let project = sandbox.project("p");
    // So many are packed at once.
    project.sh("seq 3000 | split -l 1 -a 4 - f");
    project.attach();
    project.settle();
    let mapped = || {
        let maps = fs::read_to_string(format!("/proc/{}/maps", daemon.pid())).expect("it runs");
        maps.lines().filter(|line| line.contains("/pack/pack-")).count()
    };
    project.write("faaaa", "changed");
    project.settle();
    // The whole of an index may be in memory by now: 30 bytes for each object that there is.
    eventually("the packs are let go of", Duration::from_secs(20), || {
        mapped() == 0
    });
    let pid = daemon.pid();
    sandbox.wait_until_idle(pid);
    assert_eq!(mapped(), 0);
}
