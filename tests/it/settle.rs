//! When a checkpoint is made, and when none.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use stepback_tests::{Sandbox, eventually, pause};

use crate::support::long_deadline;

#[test]
fn settled_never_lies() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 0 > f; mkdir d");
    project.attach();
    let mut pending = 0;
    for i in 1..=30 {
        let text = format!("value {i}\n");
        project.write(if i % 2 == 0 { "f" } else { "d/g" }, &text);
        if project.status()["settled"] == true {
            let shown = project
                .stepback(&["show", if i % 2 == 0 { "latest:f" } else { "latest:d/g" }])
                .exits(0);
            assert_eq!(shown.text(), text, "settled, but not in the checkpoint");
        } else {
            pending += 1;
        }
    }
    assert!(
        pending > 0,
        "a write right before `status` ought to be pending at least once in 30"
    );
    project.settle();
    assert_eq!(
        project.stepback(&["show", "latest:f"]).exits(0).text(),
        "value 30\n"
    );
    assert_eq!(
        project.stepback(&["show", "latest:d/g"]).exits(0).text(),
        "value 29\n"
    );
}

/// Directories of long names, in all deeper than a path can say to the system; the innermost, open.
fn deeper_than_a_path(from: &Path) -> File {
    let name = "d".repeat(250);
    let mut dir = File::open(from).unwrap();
    for _ in 0..20 {
        let below = in_dir(&dir, &name);
        fs::create_dir(&below).unwrap();
        dir = File::open(&below).unwrap();
    }
    dir
}

fn in_dir(dir: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))
}

#[test]
fn edits_deeper_than_a_path_are_found_by_looking() {
    let sandbox = Sandbox::new();
    sandbox.configure("poll_seconds_min = 1\n");
    for attach_first in [false, true] {
        let project = sandbox.project(if attach_first { "late" } else { "early" });
        project.write("top", "0\n");
        if attach_first {
            project.attach();
            assert_eq!(project.status()["state"], "watching");
        }
        let deep = deeper_than_a_path(&project.path);
        fs::write(in_dir(&deep, "f"), "1\n").unwrap();
        if !attach_first {
            project.attach();
        }
        let deadline = Duration::from_secs(20);
        eventually("the root is polled", deadline, || {
            project.status()["state"] == "polling"
        });
        let status = project.status();
        assert_eq!(status["poll_seconds"], 1, "{status:#}");
        let told = status["warnings"].to_string();
        assert!(told.contains("can't be watched"), "{told}");
        project.save();
        let before = project.ids();
        fs::write(in_dir(&deep, "f"), "a longer one\n").unwrap();
        eventually("the edit is found", deadline, || {
            project.ids().len() > before.len()
        });
        // What can be watched still is.
        assert!(project.status()["watches"].as_u64().unwrap() > 1);
        let files = project.json(&["diff", "latest"])["files"].clone();
        assert!(crate::support::paths(&files)[0].len() > 4096);
        // Without it the root is watched again.
        drop(deep);
        let name = "d".repeat(250);
        fs::remove_dir_all(project.file(&name)).unwrap();
        eventually("the root is watched again", deadline, || {
            project.status()["state"] == "watching"
        });
    }
}

#[test]
fn a_burst_in_new_nested_directories_is_captured_whole() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    project
        .sh("i=0; while [ $i -lt 500 ]; do mkdir -p n$i/b/c && printf \"v$i\" > n$i/b/c/f; i=$((i+1)); done");
    project.settle();
    let latest = project.list()[0].clone();
    let names = project.store_git(&format!(
        "ls-tree -r --name-only {}",
        latest["commit"].as_str().unwrap()
    ));
    assert_eq!(names.lines().count(), 500);
    assert_eq!(
        project.json(&["diff", "latest", "-w"])["files"],
        serde_json::json!([])
    );
    assert_eq!(
        project.stepback(&["show", "latest:n499/b/c/f"]).exits(0).text(),
        "v499"
    );

    project.write("n7/b/c/f", "later");
    project.settle();
    assert_eq!(
        project.stepback(&["show", "latest:n7/b/c/f"]).exits(0).text(),
        "later"
    );
    assert_eq!(project.status()["missed"], 0);
}

#[test]
fn a_directory_moved_in_and_an_archive_unpacked_are_captured_whole() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    project.sh(
        "mkdir -p ../outside/x/y; printf 'moved\n' > ../outside/x/y/f; mkdir ../t; printf 'tar\n' > ../t/g\n\
         tar -C .. -cf ../t.tar t; mv ../outside .; tar xf ../t.tar",
    );
    project.settle();
    assert_eq!(
        project
            .stepback(&["show", "latest:outside/x/y/f"])
            .exits(0)
            .text(),
        "moved\n"
    );
    assert_eq!(project.stepback(&["show", "latest:t/g"]).exits(0).text(), "tar\n");
    project.write("outside/x/y/f", "changed\n");
    project.settle();
    assert_eq!(
        project
            .stepback(&["show", "latest:outside/x/y/f"])
            .exits(0)
            .text(),
        "changed\n"
    );
}

#[test]
fn a_file_that_never_rests_is_captured_every_three_seconds() {
    let sandbox = Sandbox::alone();
    let project = sandbox.project("p");
    project.attach();
    let before = project.ids().len();
    let done = AtomicBool::new(false);
    let gaps = thread::scope(|scope| {
        scope.spawn(|| {
            let start = Instant::now();
            let mut i = 0;
            while start.elapsed() < Duration::from_secs(10) {
                project.write("busy", format!("{i}\n"));
                i += 1;
                pause(Duration::from_millis(100));
            }
            done.store(true, Ordering::Relaxed);
        });
        let (mut gaps, mut seen, mut last) = (Vec::new(), before, Instant::now());
        while !done.load(Ordering::Relaxed) {
            let now = project.ids().len();
            if now > seen {
                gaps.push(last.elapsed());
                (seen, last) = (now, Instant::now());
            }
            pause(Duration::from_millis(20));
        }
        gaps
    });
    assert!(gaps.len() >= 3, "checkpoints in 10 s: {gaps:?}");
    assert!(
        gaps.iter().all(|&g| g < Duration::from_millis(3800)),
        "max_wait_ms is 3,000: {gaps:?}"
    );
    project.settle();
    assert_eq!(
        project.stepback(&["show", "latest:busy"]).exits(0).stdout,
        project.read("busy")
    );
}

#[test]
fn reading_every_file_makes_no_checkpoint() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("for d in 1 2 3 4 5; do mkdir $d; for f in 1 2 3 4 5 6 7 8; do printf $f > $d/$f; done; done");
    project.attach();
    project.save();
    let before = project.ids();
    project.sh("for i in 1 2 3; do find . -type f -exec cat {} + > /dev/null; ls -lR > /dev/null; done");
    project.settle();
    assert_eq!(project.ids(), before);
    project.write("1/1", "written\n");
    project.settle();
    let after = project.ids();
    assert_eq!(
        after.len(),
        before.len() + 1,
        "the write makes one, the reads before it none"
    );
}

#[test]
fn ignored_directories_are_not_watched_and_make_no_checkpoint() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'junk/\n*.log\n' > .gitignore; mkdir -p junk/a/b src; printf 'v1\n' > src/a");
    project.attach();
    let before = project.ids();
    let watches = project.status()["watches"].as_u64().unwrap();
    assert!(watches <= 2, "two captured directories, {watches} watches");
    project.sh("i=0; while [ $i -lt 50 ]; do printf $i > junk/a/b/$i; printf $i > x.log; i=$((i+1)); done");
    project.settle();
    assert_eq!(project.ids(), before);
}

#[test]
fn a_rewind_that_works_ends_the_wait_after_captures_that_failed() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("git init -q .");
    project.write("a", "v1\n");
    let first = project.attach();
    project.sh("rm -f .git/info/exclude; mkdir .git/info/exclude");
    project.write("b", "v1\n");
    // By then the next attempt is 16 s away.
    eventually("five attempts", long_deadline(), || {
        sandbox.log().matches("a capture failed").count() >= 5
    });
    assert_eq!(project.json(&["list"])["current"], Value::Null);
    project.sh("rmdir .git/info/exclude");
    project.json(&["rewind", &first.to_string(), "-y"]);
    project.write("a", "v2\n");
    eventually("a capture", Duration::from_secs(10), || {
        let newest = project.ids()[0];
        newest > first && project.show(newest, "a") == b"v2\n"
    });
}
