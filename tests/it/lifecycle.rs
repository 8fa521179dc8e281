//! A daemon from its start to its end: settings read again, logs that turn, a stop under load, a full disk.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use stepback_tests::{Guarded, Project, Sandbox, eventually, finish, pause, start};

use crate::support::{Mount, paths};

#[test]
fn settings_are_read_again_and_broken_ones_leave_the_old() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let daemon = sandbox.daemon();
    project.attach();
    let warned = |words: &str| {
        let warnings = project.status()["warnings"].clone();
        warnings
            .as_array()
            .unwrap()
            .iter()
            .any(|w| w["message"].as_str().unwrap().contains(words))
    };
    let left_out = |name: &str| {
        let status = project.json(&["status"]);
        paths(&status["root"]["not_captured"]).contains(&name.to_owned())
    };
    sandbox.configure("max_file_size = \"10 KiB\"\n");
    daemon.signal(Signal::SIGHUP);
    eventually("the new settings hold", Duration::from_secs(20), || {
        project.write("big", vec![b'x'; 20_000]);
        project.stepback(&["save"]).exits(0);
        left_out("big")
    });
    sandbox.configure("max_file_size = \"10 KiB\"\nmax_file_sizes = 3\n");
    daemon.signal(Signal::SIGHUP);
    eventually("the status says it", Duration::from_secs(20), || {
        warned("config.toml:2")
    });
    assert!(log_of(&sandbox).contains("the settings stay as they were"));
    project.stepback(&["save"]).exits(0);
    assert!(left_out("big"), "the old ones hold");
    sandbox.configure("");
    daemon.signal(Signal::SIGHUP);
    eventually("good ones take the warning away", Duration::from_secs(20), || {
        project.stepback(&["save"]).exits(0);
        !warned("config.toml") && !left_out("big")
    });
}

#[test]
fn a_log_that_was_moved_away_is_begun_anew_at_a_hang_up() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.daemon();
    let log = sandbox.state().join("log/stepbackd.log");
    fs::rename(&log, log.with_extension("log.moved")).unwrap();
    daemon.signal(Signal::SIGHUP);
    eventually("it is begun anew", Duration::from_secs(20), || {
        log.exists() && log_of(&sandbox).contains("the settings were read again")
    });
}

fn log_of(sandbox: &Sandbox) -> String {
    fs::read_to_string(sandbox.state().join("log/stepbackd.log")).unwrap()
}

#[test]
fn a_stop_under_load_takes_five_seconds_at_most_and_loses_nothing_pending() {
    let sandbox = Sandbox::alone();
    let daemon = sandbox.daemon();
    let projects: Vec<Project<'_>> = ["a", "b", "c"].map(|name| sandbox.project(name)).into();
    for project in &projects {
        project.sh("mkdir d; i=0; while [ $i -lt 500 ]; do echo $i > d/$i; i=$((i+1)); done");
        project.attach();
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for project in &projects {
            for args in [&["list"][..], &["diff", "first", "-w"], &["status"]] {
                let over = &over;
                let never = [("STEPBACK_NO_AUTOSTART", "1")];
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        // Answered, or refused by a daemon that ends: both are fine.
                        project.stepback_env(args, &never);
                    }
                });
            }
        }
        pause(Duration::from_millis(500));
        for project in &projects {
            project.sh("for f in d/1*; do echo pending >> $f; done; echo last > last");
        }
        daemon.signal(Signal::SIGTERM);
        let began = Instant::now();
        let code = daemon.ended(Duration::from_secs(6));
        let took = began.elapsed();
        over.store(true, Ordering::Relaxed);
        assert_eq!(code, Some(0));
        assert!(took < Duration::from_millis(5_500), "{took:?}");
    });
    let _daemon = sandbox.daemon();
    for project in &projects {
        project.settle();
        let latest = project.list()[0].clone();
        assert_eq!(latest["trigger"], "auto", "taken before the end: {latest}");
        assert_eq!(
            project.stepback(&["show", "latest:last"]).exits(0).text(),
            "last\n"
        );
    }
}

#[test]
fn the_second_term_ends_it_at_once() {
    let sandbox = Sandbox::new();
    // Whatever asks git waits for a file to go, so that the first stop takes all its time.
    let bin = sandbox.dir().join("fake");
    fs::create_dir(&bin).unwrap();
    let hold = bin.join("hold");
    let script = format!(
        "#!/bin/sh\necho $$ >> '{0}.pids'\nwhile [ -e '{0}' ]; do sleep 0.05; done\nPATH='{1}' exec git \"$@\"\n",
        hold.display(),
        std::env::var("PATH").unwrap()
    );
    fs::write(bin.join("git"), script).unwrap();
    fs::set_permissions(bin.join("git"), Permissions::from_mode(0o755)).unwrap();
    let mut path = bin.clone().into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    let sandbox = sandbox.with_env("PATH", path);
    let daemon = sandbox.daemon();
    let project = sandbox.project("p");
    project.sh("git init -q .; echo a > a; git add a");
    project.attach();
    File::create(&hold).unwrap();
    fs::remove_file(hold.with_extension("pids")).unwrap();
    project.sh(&format!(
        "echo b > b; PATH='{}' git add b",
        std::env::var("PATH").unwrap()
    ));
    eventually("the daemon asks git", Duration::from_secs(20), || {
        hold.with_extension("pids").exists()
    });
    daemon.signal(Signal::SIGTERM);
    let log = sandbox.state().join("log/stepbackd.log");
    eventually("it is stopping", Duration::from_secs(10), || {
        fs::read_to_string(&log)
            .unwrap()
            .contains("stopping at signal 15")
    });
    let began = Instant::now();
    daemon.signal(Signal::SIGTERM);
    let code = daemon.ended(Duration::from_secs(4));
    assert_eq!(code, Some(128 + 15));
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    fs::remove_file(&hold).unwrap();
    let _daemon = sandbox.daemon();
    project.settle();
    assert_eq!(project.stepback(&["show", "latest:b"]).exits(0).text(), "b\n");
}

#[test]
fn after_a_stop_nothing_of_the_daemon_is_left() {
    let sandbox = Sandbox::new();
    let state = sandbox.state();
    fs::create_dir(&state).unwrap();
    for round in 0..8 {
        let Some(mount) = Mount::tmpfs(&sandbox, &state, "size=64m,mode=700") else {
            return;
        };
        let project = sandbox.project("p");
        project.write("a", format!("{round}\n"));
        project.attach();
        project.write("a", "pending\n");
        project.stepback(&["daemon", "stop"]).exits(0);
        assert_eq!(mount.unmount(), "", "round {round}");
    }
}

#[test]
fn a_daemon_starts_and_answers_on_a_full_disk() {
    let sandbox = Sandbox::new();
    let state = sandbox.state();
    fs::create_dir(&state).unwrap();
    let Some(_mount) = Mount::tmpfs(&sandbox, &state, "size=24m,mode=700") else {
        return;
    };
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    project.write("a", "v2\n");
    project.save();
    project.stepback(&["daemon", "stop"]).exits(0);
    // The reserves are spent, and what is left is filled to the last byte.
    for store in fs::read_dir(state.join("stores")).unwrap() {
        drop(fs::remove_file(store.unwrap().path().join("stepback/reserve")));
    }
    drop(fs::remove_file(state.join("reserve")));
    let filler = "dd if=/dev/zero of=\"$1\" bs=4096 2>/dev/null";
    let mut fill = sandbox.command("sh", &state);
    fill.args(["-c", filler, "sh"]).arg(state.join("filler"));
    drop(fill.output().unwrap());
    project.write("a", "v3\n");

    project.stepback(&["daemon", "start"]).exits(0);
    project.stepback(&["daemon", "status"]).exits(0);
    assert_eq!(
        project.json(&["list"])["checkpoints"].as_array().unwrap().len(),
        2
    );
    assert_eq!(project.show(1, "a"), b"v1\n");
    let said = project.stepback(&["doctor"]).exits(1).text();
    assert!(said.contains("disk: only"), "{said}");
    project.stepback(&["daemon", "stop"]).exits(0);

    fs::remove_file(state.join("filler")).unwrap();
    project.stepback(&["daemon", "start"]).exits(0);
    project.save();
    assert_eq!(project.stepback(&["show", "latest:a"]).exits(0).text(), "v3\n");
    assert!(state.join("reserve").exists(), "and there is a reserve again");
}

#[test]
fn a_daemon_that_was_stopped_for_a_while_goes_on_as_if_nothing_was() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.daemon();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    daemon.signal(Signal::SIGSTOP);
    project.sh("i=0; while [ $i -lt 300 ]; do echo $i > f$i; i=$((i+1)); done; rm a");
    let mut waiting = sandbox.command(sandbox.program("stepback"), &project.path);
    let waiting = start(waiting.args(["--json", "save"]));
    pause(Duration::from_secs(1));
    daemon.signal(Signal::SIGCONT);
    let saved = finish(waiting, "a save that had to wait", Duration::from_secs(60)).exits(0);
    let id = saved.json()["id"].as_u64().unwrap();
    assert_eq!(project.show(id, "f299"), b"299\n");
    project.settle();
    let root = project.status();
    assert_eq!((&root["state"], &root["missed"]), (&"watching".into(), &0.into()));
    let files = project.json(&["diff", "latest", "-w"])["files"].clone();
    assert_eq!(files, serde_json::json!([]));
}

#[test]
fn a_followed_log_goes_on_over_the_turn_of_the_file() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.stepback(&["daemon", "start"]).exits(0);
    let log = sandbox.state().join("log/stepbackd.log");
    let out = sandbox.dir().join("followed");
    let mut command = sandbox.command(sandbox.program("stepback"), &project.path);
    command
        .args(["daemon", "logs", "-f"])
        .stdin(Stdio::null())
        .stdout(File::create(&out).unwrap());
    let _follower = Guarded::new(command.spawn().unwrap());
    let follows = |words: &str| {
        eventually(words, Duration::from_secs(20), || {
            fs::read_to_string(&out).unwrap().contains(words)
        });
    };
    follows("started");
    fs::rename(&log, log.with_extension("log.1")).unwrap();
    fs::write(&log, "the first line of the new file\n").unwrap();
    follows("the first line of the new file");
    let said = project.stepback(&["daemon", "logs"]).exits(0).text();
    assert!(said.ends_with("the first line of the new file\n"), "{said}");
}
