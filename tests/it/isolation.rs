//! A root in trouble holds up no other one, nor what is said of all.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stepback_tests::{Guarded, Project, Sandbox, eventually};

use crate::support::number_from;

const PATIENCE: Duration = Duration::from_secs(120);

/// What nobody waits for longer, on a machine that is busy with other tests, too.
const AT_ONCE: Duration = Duration::from_secs(2);

fn pid_of(guarded: &mut Guarded) -> Pid {
    Pid::from_raw(i32::try_from(guarded.child().id()).unwrap())
}

/// How long the slowest of `rounds` requests takes that have nothing to do with the root in trouble.
#[track_caller]
fn others_are_served(good: &Project<'_>, rounds: usize) -> Duration {
    let mut slowest = Duration::ZERO;
    for round in 0..rounds {
        let text = format!("{:?} {round}\n", Instant::now());
        good.write("a", &text);
        for args in [
            &["status"][..],
            &["roots"],
            &["list"],
            &["save"],
            &["rewind", "1", "-y"],
            &["redo", "-y"],
            &["show", "latest:a"],
        ] {
            let began = Instant::now();
            good.stepback(args).exits(0);
            let took = began.elapsed();
            assert!(took < AT_ONCE, "`stepback {}` took {took:?}", args.join(" "));
            slowest = slowest.max(took);
        }
        assert_eq!(good.read("a"), text.as_bytes());
    }
    slowest
}

fn good(sandbox: &Sandbox) -> Project<'_> {
    let good = sandbox.project("good");
    good.sh("printf 'v1\n' > a; mkdir d; printf 1 > d/f");
    good.attach();
    good.settle();
    good
}

#[test]
fn a_huge_first_scan_holds_up_nobody() {
    let sandbox = Sandbox::alone();
    let daemon = sandbox.daemon();
    let good = good(&sandbox);
    let huge = sandbox.project("huge");
    let files = number_from("STEPBACK_FILES", 40_000);
    let script = "n=$1; i=0; while [ $((i * 1000)) -lt $n ]; do mkdir d$i; seq 1000 | split -l 1 -a 3 - d$i/f; i=$((i+1)); done";
    let mut make = sandbox.command("sh", &huge.path);
    make.args(["-euc", script, "sh", &files.to_string()]);
    assert!(make.status().unwrap().success());

    // An attach that is given up leaves nothing.
    let attach = || {
        let mut command = sandbox.command(sandbox.program("stepback"), &huge.path);
        command.args(["attach", "--here"]).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Guarded::new(command.spawn().unwrap())
    };
    let indexing = || {
        let status = huge.status();
        status["state"] == "indexing" && status["progress"]["done"].as_u64().is_some_and(|done| done > 0)
    };
    let mut first = attach();
    eventually("it is indexed", PATIENCE, indexing);
    kill(pid_of(&mut first), Signal::SIGINT).unwrap();
    let mut code = None;
    eventually("the client ends", PATIENCE, || {
        code = first.child().try_wait().unwrap();
        code.is_some()
    });
    if code.is_some_and(|code| code.success()) {
        println!("too fast to be called off: more STEPBACK_FILES are needed");
        huge.stepback(&["detach", "--forget", "-y"]).exits(0);
    }
    eventually("it is attached no more", PATIENCE, || huge.status().is_null());

    let mut second = attach();
    eventually("it is indexed", PATIENCE, indexing);
    let began = Instant::now();
    let text = huge.stepback(&["status"]).exits(0).text();
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
    assert!(text.contains("first scan"), "{text}");
    let during = others_are_served(&good, 3);
    let still = huge.status()["state"] == "indexing";
    eventually("the attach ends", PATIENCE * 5, || {
        second.child().try_wait().unwrap().is_some()
    });
    assert_eq!(huge.status()["files"], files);
    println!("{files} files: others were served within {during:?}; indexed all the time: {still}");

    // After a kill, with nothing known of the huge one, the small one comes first, and the look can be called off.
    daemon.kill();
    drop(fs::remove_dir_all(sandbox.state().join("cache")));
    let _daemon = sandbox.daemon();
    let began = Instant::now();
    good.status();
    assert!(began.elapsed() < AT_ONCE);
    eventually("the small one is watched", Duration::from_secs(5), || {
        good.status()["state"] == "watching"
    });
    println!("the huge one is {} then", huge.status()["state"]);
    others_are_served(&good, 1);
    let began = Instant::now();
    huge.stepback(&["detach"]).exits(0);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(huge.status().is_null());
}

/// Makes calls of `daemon` that concern `path` wait: a tracer that is ended when it is dropped. `None`, and a printed
/// reason, where that can't be done.
fn delayed(sandbox: &Sandbox, daemon: Pid, paths: &[&Path], calls: &str, delay: Duration) -> Option<Guarded> {
    let mut strace = sandbox.command("strace", sandbox.dir());
    strace.args(["-f", "-qq", "-o", "/dev/null", "-p", &daemon.to_string()]);
    for path in paths {
        strace.arg("-P").arg(path);
    }
    let inject = format!("inject={calls}:delay_enter={}", delay.as_micros());
    strace.args(["-e", &format!("trace={calls}"), "-e", &inject]);
    strace
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let Ok(child) = strace.spawn() else {
        println!("skipped: strace is not installed");
        return None;
    };
    let mut guarded = Guarded::new(child);
    let traced = |pid: Pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status
            .lines()
            .any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
    };
    let mut ended = false;
    eventually("the daemon is traced", PATIENCE, || {
        ended = guarded.child().try_wait().unwrap().is_some();
        ended || traced(daemon)
    });
    if ended {
        println!("skipped: strace may not trace here");
        return None;
    }
    Some(guarded)
}

const LOOKS: &str = "newfstatat,statx,openat,openat2,getdents64,readlinkat,inotify_add_watch,statfs";

#[test]
fn a_slow_root_holds_up_nobody() {
    let sandbox = Sandbox::alone();
    let daemon = sandbox.daemon();
    let good = good(&sandbox);
    let slow = sandbox.project("slow");
    slow.sh("seq 600 | split -l 1 -a 3 - f");
    slow.attach();
    let Some(_delay) = delayed(
        &sandbox,
        daemon.pid(),
        &[&slow.path],
        "newfstatat",
        Duration::from_millis(5),
    ) else {
        return;
    };
    let began = Instant::now();
    let mut save = sandbox.command(sandbox.program("stepback"), &slow.path);
    save.args(["save", "-m", "slow"])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let mut save = Guarded::new(save.spawn().unwrap());
    let during = others_are_served(&good, 2);
    eventually("the slow one ends, too", PATIENCE, || {
        save.child().try_wait().unwrap().is_some()
    });
    let took = began.elapsed();
    println!("5 ms for each stat of 600 files: a save took {took:?}, others within {during:?}");
    assert!(took > Duration::from_secs(1), "it ought to be slow: {took:?}");
    let before = slow.ids().len();
    slow.write("faaa", "edited\n");
    eventually("an edit there is captured", PATIENCE, || {
        slow.ids().len() > before
    });
}

#[test]
fn a_file_system_that_does_not_answer_holds_up_nobody() {
    let sandbox = Sandbox::alone();
    let daemon = sandbox.daemon();
    let good = good(&sandbox);
    let dead = sandbox.project("dead");
    dead.sh("printf 1 > f");
    dead.attach();
    dead.settle();
    let hour = Duration::from_secs(3600);
    let Some(delay) = delayed(&sandbox, daemon.pid(), &[&dead.path], LOOKS, hour) else {
        return;
    };
    dead.write("f", "22");
    let during = others_are_served(&good, 3);
    println!("a dead file system: others were served within {during:?}");
    // What is said of the dead one itself doesn't wait for it either.
    let began = Instant::now();
    let status = dead.status();
    assert!(began.elapsed() < AT_ONCE, "{status:#}");
    assert_eq!(status["settled"], false, "{status:#}");
    drop(delay);
    eventually("it is captured once it answers", PATIENCE, || {
        dead.ids().len() == 2
    });
    assert_eq!(dead.show(2, "f"), b"22");
}

#[test]
fn a_store_without_space_is_named_and_holds_up_nobody() {
    let sandbox = Sandbox::new();
    // Nothing is left out before the disk is full: no space stays free, and each file is small enough to be recorded always.
    sandbox.configure("[quota]\nfree = \"0\"\n");
    let good = good(&sandbox);
    let full = sandbox.project("full");
    full.sh("printf 1 > f");
    full.attach();
    let store = full.store();
    full.stepback(&["daemon", "stop"]).exits(0);
    let moved = sandbox.dir().join("moved");
    fs::rename(&store, &moved).unwrap();
    fs::create_dir(&store).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=12m", "none"]).arg(&store);
    if !mount.output().is_ok_and(|done| done.status.success()) {
        println!("skipped: nothing can be mounted here");
        return;
    }
    let _guard = Unmounted(&store);
    let script = format!("cp -a '{}/.' '{}'", moved.display(), store.display());
    sandbox.sh(sandbox.dir(), &script);
    full.stepback(&["daemon", "start"]).exits(0);
    full.settle();
    full.sh("head -c 20000000 /dev/urandom | split -b 1000000 - big.");
    eventually("it has failed", PATIENCE, || full.status()["state"] == "failed");
    let status = full.status();
    assert_eq!(status["warnings"][0]["kind"], "no_space", "{status:#}");
    others_are_served(&good, 1);
    full.fails(&["save"], 1, "no_space");
    full.fsck();
    // What doesn't fit is taken away: the root comes back by itself.
    full.sh("rm big.*; printf 2 > f");
    eventually("it is back", PATIENCE, || full.status()["state"] == "watching");
    full.settle();
    assert_eq!(full.show(full.ids()[0], "f"), b"2");
    full.fsck();
    full.stepback(&["daemon", "stop"]).exits(0);
}

struct Unmounted<'a>(&'a Path);

impl Drop for Unmounted<'_> {
    fn drop(&mut self) {
        let done = Command::new("umount")
            .args([OsStr::new("-l"), self.0.as_os_str()])
            .output();
        if !done.is_ok_and(|done| done.status.success()) {
            eprintln!("{} stays mounted", self.0.display());
        }
    }
}

#[test]
fn a_store_that_is_damaged_is_named_and_holds_up_nobody() {
    let sandbox = Sandbox::new();
    let good = good(&sandbox);
    let bad = sandbox.project("bad");
    bad.sh("printf 1 > f");
    bad.attach();
    let store = bad.store();
    bad.stepback(&["daemon", "stop"]).exits(0);
    sandbox.sh(
        &store,
        "find refs -path '*/root' -type f | while read -r f; do printf garbage > \"$f\"; done; rm -f packed-refs",
    );
    bad.stepback(&["daemon", "start"]).exits(0);
    others_are_served(&good, 1);
    let status = bad.status();
    assert_eq!(status["state"], "failed", "{status:#}");
    assert!(
        !status["warnings"][0]["hint"].as_str().unwrap().is_empty(),
        "{status:#}"
    );
    bad.stepback(&["save"]).exits(1);
    others_are_served(&good, 1);
}
