//! Clients that don't read, or go away in the middle.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use stepback_tests::{Guarded, Project, Sandbox, anonymous_bytes, eventually, pause};

use crate::support::number_from;

const PATIENCE: Duration = Duration::from_secs(120);

/// What the daemon may take for one that doesn't read, bytes.
const ROOM: u64 = 32 << 20;

fn unread(project: &Project<'_>, args: &[&str]) -> Guarded {
    let mut command: Command = project
        .sandbox
        .command(project.sandbox.program("stepback"), &project.path);
    command.args(args).stdin(Stdio::null());
    let child: Child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Guarded::new(child)
}

#[test]
fn a_client_that_does_not_read_costs_no_memory_and_holds_up_nobody() {
    let sandbox = Sandbox::new();
    sandbox.configure("max_file_size = \"2 GiB\"\n");
    let daemon = sandbox.daemon();
    let pid = daemon.pid();
    let project = sandbox.project("p");
    let mib = number_from("STEPBACK_MIB", 64);
    // Half of it text that compresses well, half noise.
    project.sh(&format!(
        "head -c {half}M /dev/urandom > noise; yes 'a line of some text' | head -c {half}M > text; cat noise text > big\n\
         mkdir t; base64 noise | split -C 1M -a 3 - t/",
        half = mib / 2
    ));
    project.attach();
    project.settle();
    project.sh("printf x >> text; printf y >> big; sed -i s/A/B/ t/*");
    // Writing so much takes longer than a burst may be put off: there may be one more in between.
    let second = project.save().to_string();
    let before = anonymous_bytes(pid);
    let mut highest = before;
    for args in [
        &["show", "1:big"][..],
        &["diff", "1", &second],
        &["diff", "first"],
        &["export", "1", "--tar", "-"],
    ] {
        let mut client = unread(&project, args);
        let mut some = [0; 1000];
        let read = client.child().stdout.as_mut().unwrap().read(&mut some).unwrap();
        assert!(read > 0, "{args:?}");
        for _ in 0..20 {
            highest = highest.max(anonymous_bytes(pid));
            pause(Duration::from_millis(50));
        }
        // The root isn't held up by it.
        project.stepback(&["list"]).exits(0);
        highest = highest.max(anonymous_bytes(pid));
        // One that goes away ends the work for it.
        drop(client);
    }
    println!(
        "{mib} MiB, not read: {} MiB more than before",
        highest.saturating_sub(before) >> 20
    );
    assert!(highest < before + ROOM, "{before} {highest}");
    let calm = stepback_tests::descriptors(pid).len();
    project.stepback(&["list"]).exits(0);
    eventually("nothing stays open", PATIENCE, || {
        stepback_tests::descriptors(pid).len() <= calm.min(100)
    });
}

#[test]
fn whoever_goes_away_in_the_middle_leaves_a_consistent_tree() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("mkdir a b; seq 1500 | split -l 1 -a 3 - a/f; seq 1500 | split -l 1 -a 3 - b/f");
    project.attach();
    project.settle();
    let old = project.tree();
    project.sh("for f in a/*; do printf x >> $f; done; rm -r b; mkdir c; seq 1500 | split -l 1 -a 3 - c/f");
    let second = project.save();
    let new = project.tree();
    let mut random = stepback_tests::Random::new("goes away");
    for round in 0..crate::support::rounds().min(12) {
        let args: &[&str] = match round % 4 {
            0 | 1 => &["rewind", "1", "-y"],
            2 => &["diff", "1", "2"],
            _ => &["save"],
        };
        let mut client = unread(&project, args);
        pause(Duration::from_millis(random.below(150)));
        let id = Pid::from_raw(i32::try_from(client.child().id()).unwrap());
        // It may have ended already: it isn't waited for yet, so the number is still its own.
        nix::sys::signal::kill(id, Signal::SIGKILL).unwrap();
        drop(client);
        eventually("no work is under way", PATIENCE, || {
            let status = project.status();
            status["progress"].is_null() && status["settled"] == true
        });
        let status = project.status();
        assert!(status["unfinished"].is_null(), "{status:#}");
        let tree = project.tree();
        assert!(
            tree == old || tree == new,
            "round {round}: neither the one nor the other"
        );
        project.rewind(second);
        new.same(&project.tree(), "put back");
    }
    project.fsck();
}
