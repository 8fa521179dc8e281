//! One daemon, whatever happened to the one before it, and whoever wants one at once.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::{geteuid, mkfifo};
use stepback_proto::{Hello, PROTOCOL, Welcome, frame};
use stepback_tests::{Guarded, Project, Random, Sandbox, eventually, finish, pause, start};

/// Tells [`acts_as_a_daemon_of_another_protocol`] its number and its socket.
const ORDER: &str = "STEPBACK_TEST_SERVE";

fn socket(sandbox: &Sandbox) -> PathBuf {
    sandbox.dir().join("run/stepback/stepbackd.sock")
}

/// Starts a process that has nothing to do with us.
fn foreign(sandbox: &Sandbox) -> Guarded {
    let mut command = sandbox.command("sleep", sandbox.dir());
    Guarded::new(command.arg("600").spawn().unwrap())
}

fn private_dir(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    fs::set_permissions(dir, Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn what_a_dead_daemon_left_holds_up_nobody() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("mkdir d; i=0; while [ $i -lt 3000 ]; do echo $i > d/$i; i=$((i+1)); done");
    let daemon = sandbox.daemon();
    project.attach();
    project.sh("for f in d/*; do echo more >> $f; done");
    // In the middle of a checkpoint, as likely as not.
    let mut saving = sandbox.command(sandbox.program("stepback"), &project.path);
    let saving = start(saving.arg("save"));
    pause(Duration::from_millis(40));
    daemon.kill();
    drop(finish(
        saving,
        "a save whose daemon is killed",
        Duration::from_secs(60),
    ));

    // A socket that nobody listens at, a note with the number of a living process, locks in the store.
    assert!(socket(&sandbox).exists());
    let mut other = foreign(&sandbox);
    let note = format!(
        r#"{{"pid":{},"socket":"{}","version":"0.0.1"}}"#,
        other.child().id(),
        socket(&sandbox).display()
    );
    fs::write(sandbox.state().join("daemon.json"), note).unwrap();
    for store in fs::read_dir(sandbox.state().join("stores")).unwrap() {
        let store = store.unwrap().path();
        File::create(store.join("packed-refs.lock")).unwrap();
        let refs = fs::read_dir(store.join("refs/checkpoints")).unwrap().next();
        let refs = refs.unwrap().unwrap().path().join("watch");
        for n in 1..5 {
            File::create(refs.join(format!("{n}.lock"))).unwrap();
        }
    }
    assert_eq!(project.stepback(&["daemon", "status"]).code(), 1);
    let began = Instant::now();
    project.stepback(&["daemon", "stop"]).exits(0);
    let id = project.save();
    // Nothing was waited for that doesn't come; the rest is for a machine that has other work.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert!(other.child().try_wait().unwrap().is_none(), "the stranger lives");
    assert_eq!(project.show(id, "d/7"), b"7\nmore\n");
    project.fsck();
}

#[test]
fn a_daemon_whose_socket_is_gone_is_found_again() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    let pid = sandbox.daemon_pid().unwrap();
    let dir = sandbox.dir().join("run/stepback");
    // As when the runtime directory goes with the user's last session, and comes back with the next.
    fs::remove_dir_all(&dir).unwrap();
    assert_eq!(project.ids(), [1]);
    assert_eq!(sandbox.daemon_pid(), Some(pid), "the same daemon");
    assert!(socket(&sandbox).exists());
    // Where there is no place for it any more, it is below STATE.
    fs::remove_dir_all(&dir).unwrap();
    fs::write(&dir, "in the way\n").unwrap();
    assert_eq!(project.ids(), [1]);
    let status = project.json(&["daemon", "status"]);
    assert_eq!(status["pid"].as_i64(), Some(pid.as_raw().into()));
    assert!(sandbox.state().join("stepbackd.sock").exists());
    project.stepback(&["daemon", "stop"]).exits(0);
    assert!(!sandbox.state().join("stepbackd.sock").exists());
    fs::remove_file(&dir).unwrap();
    assert_eq!(project.ids(), [1]);
}

#[test]
fn a_daemon_that_hangs_is_named_with_its_process() {
    let sandbox = Sandbox::alone();
    let daemon = sandbox.daemon();
    daemon.signal(Signal::SIGSTOP);
    let mut second = sandbox.command(sandbox.program("stepbackd"), sandbox.dir());
    second.arg("--foreground");
    let said = finish(start(&mut second), "the second daemon", Duration::from_secs(60)).exits(1);
    assert!(
        said.stderr.contains(&format!("pid {}", daemon.pid())) && said.stderr.contains("kill -9"),
        "{said:#?}"
    );
    daemon.signal(Signal::SIGCONT);
    sandbox.stepback(sandbox.dir(), &["daemon", "status"]).exits(0);
}

#[test]
fn a_frozen_daemon_is_named_soon_and_can_be_replaced() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.daemon();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    daemon.signal(Signal::SIGSTOP);
    let who = format!("(pid {})", daemon.pid());
    let began = Instant::now();
    let said = project.stepback(&["status"]).exits(1);
    assert_eq!(
        said.text(),
        format!("not protected: the daemon {who} doesn't answer\n")
    );
    let told = project.stepback(&["daemon", "status"]).exits(1).stderr;
    assert!(
        told.contains(&who) && told.contains("stepback daemon restart"),
        "{told}"
    );
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    let told = project.stepback(&["doctor"]).exits(1).text();
    assert!(told.contains(&who), "{told}");
    assert!(!project.stepback(&["daemon", "logs"]).exits(0).text().is_empty());
    project.stepback(&["daemon", "restart"]).exits(0);
    assert_ne!(sandbox.daemon_pid(), Some(daemon.pid()));
    assert_eq!(daemon.ended(Duration::from_secs(5)), None, "killed");
    assert_eq!(project.ids(), [1]);
}

#[test]
fn who_only_looks_like_a_frozen_daemon_is_not_killed() {
    let sandbox = Sandbox::alone();
    let dir = sandbox.dir().join("run/stepback");
    private_dir(&dir);
    // It listens and says nothing; the note names a process that is no daemon, and nobody holds the lock.
    let _listener = UnixListener::bind(socket(&sandbox)).unwrap();
    let mut other = foreign(&sandbox);
    let note = format!(
        r#"{{"pid":{},"socket":"{}","version":"0.0.1"}}"#,
        other.child().id(),
        socket(&sandbox).display()
    );
    private_dir(&sandbox.state());
    File::create(sandbox.state().join("lock")).unwrap();
    fs::write(sandbox.state().join("daemon.json"), note).unwrap();
    let said = sandbox.stepback(sandbox.dir(), &["daemon", "restart"]).exits(1);
    assert!(said.stderr.contains("doesn't answer"), "{said:#?}");
    let hint = "hint: see `stepback daemon logs`\n";
    assert!(said.stderr.ends_with(hint), "nobody is told to end it: {said:#?}");
    assert!(other.child().try_wait().unwrap().is_none(), "it lives");
    fs::remove_file(sandbox.state().join("daemon.json")).unwrap();
}

#[test]
fn what_stands_in_the_place_of_a_small_file_is_named_and_waited_for_by_nobody() {
    let sandbox = Sandbox::new();
    let state = sandbox.state();
    private_dir(&state);
    let here = sandbox.dir();
    for name in ["roots.json", "daemon.json", "lock", "alive"] {
        let file = state.join(name);
        mkfifo(&file, Mode::S_IRWXU).unwrap();
        for args in [&["daemon", "start"][..], &["roots"]] {
            let said = sandbox.stepback(here, args).exits(1).stderr;
            assert!(
                said.contains(&format!("{} is not a regular file", file.display())),
                "{said}"
            );
            assert!(said.contains(&format!("move {} away", file.display())), "{said}");
        }
        sandbox.stepback(here, &["daemon", "stop"]).exits(0);
        let said = sandbox.stepback(here, &["daemon", "restart"]).exits(1).stderr;
        assert!(said.contains("is not a regular file"), "{said}");
        fs::remove_file(&file).unwrap();
    }
    // What it can start without is no reason not to.
    for name in ["hooks.json", "clock", "reserve"] {
        mkfifo(&state.join(name), Mode::S_IRWXU).unwrap();
    }
    sandbox.stepback(here, &["daemon", "start"]).exits(0);
}

#[test]
fn fifty_shells_at_once_have_one_daemon() {
    let sandbox = Sandbox::alone();
    let project = sandbox.project("p");
    let began: Vec<_> = (0..50)
        .map(|_| {
            let mut command = sandbox.command(sandbox.program("stepback"), &project.path);
            start(command.args(["--json", "daemon", "start"]))
        })
        .collect();
    let mut pids: Vec<_> = began
        .into_iter()
        .map(|child| {
            finish(child, "stepback daemon start", Duration::from_secs(120))
                .exits(0)
                .json()["pid"]
                .as_u64()
                .unwrap()
        })
        .collect();
    pids.sort_unstable();
    pids.dedup();
    let [pid] = pids[..] else { panic!("{pids:?}") };
    assert_eq!(sandbox.daemon_pid().unwrap().as_raw() as u64, pid);
    // No other is left behind, not even one that waits.
    eventually("all others have ended", Duration::from_secs(20), || {
        daemons_of(&sandbox) == [pid]
    });
}

/// Processes that run this sandbox's daemon.
fn daemons_of(sandbox: &Sandbox) -> Vec<u64> {
    let home = [b"HOME=", sandbox.home().as_os_str().as_encoded_bytes()].concat();
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| {
            let entry = entry.unwrap();
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            let environ = fs::read(entry.path().join("environ")).ok()?;
            let ours = name == "stepbackd\n" && environ.split(|b| *b == 0).any(|v| v == home);
            ours.then_some(pid)
        })
        .collect()
}

#[test]
fn a_daemon_that_is_killed_while_it_starts_harms_no_start() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    project.stepback(&["daemon", "stop"]).exits(0);
    let mut random = Random::new("kills during the start");
    for _ in 0..15 {
        let mut command = sandbox.command(sandbox.program("stepbackd"), Path::new("/"));
        command.arg("--foreground").stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = Guarded::new(command.spawn().unwrap());
        pause(Duration::from_micros(random.below(60_000)));
        child.child().kill().unwrap();
        child.child().wait().unwrap();
    }
    let began = Instant::now();
    assert_eq!(project.ids(), [1]);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    project.settle();
    let left: Vec<_> = fs::read_dir(sandbox.dir().join("run/stepback"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(left.contains(&"stepbackd.sock".to_owned()), "{left:?}");
}

#[test]
fn a_second_daemon_at_another_socket_says_who_serves_and_fails() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.daemon();
    let dir = sandbox.dir().join("elsewhere");
    private_dir(&dir);
    for background in [true, false] {
        let mut second = sandbox.command(sandbox.program("stepbackd"), sandbox.dir());
        second.env("STEPBACK_SOCKET", dir.join("s")).arg(if background {
            "--daemonize"
        } else {
            "--foreground"
        });
        let said = finish(start(&mut second), "the second daemon", Duration::from_secs(30)).exits(1);
        assert!(
            said.stderr.contains(&format!("pid {}", daemon.pid()))
                && said.stderr.contains(socket(&sandbox).to_str().unwrap())
                && said.stderr.contains("hint: "),
            "{said:#?}"
        );
    }
    assert!(!dir.join("s").exists());
    sandbox.stepback(sandbox.dir(), &["daemon", "status"]).exits(0);
}

/// Not a test: a daemon that speaks another protocol, which is this program again, under the daemon's name.
#[test]
fn acts_as_a_daemon_of_another_protocol() {
    let Ok(order) = std::env::var(ORDER) else { return };
    let (protocol, path) = order.split_once(' ').unwrap();
    let listener = UnixListener::bind(path).unwrap();
    while let Ok((mut stream, _)) = listener.accept() {
        if let Ok(Some(Hello { .. })) = frame::read(&mut stream) {
            let welcome = Welcome {
                protocol: protocol.parse().unwrap(),
                version: "9.9.9".into(),
                pid: std::process::id(),
            };
            drop(frame::write(&mut stream, &welcome));
        }
    }
}

#[test]
fn a_daemon_of_another_protocol_is_named_and_restart_replaces_it() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    for (protocol, older) in [
        (0, "the running daemon is older"),
        (PROTOCOL + 1, "this stepback is older"),
    ] {
        project.stepback(&["daemon", "stop"]).exits(0);
        let program = sandbox.dir().join("stepbackd");
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let mut command = sandbox.command(&program, sandbox.dir());
        command
            .args(["--exact", "lifecycle::acts_as_a_daemon_of_another_protocol"])
            .env(ORDER, format!("{protocol} {}", socket(&sandbox).display()))
            .stdout(Stdio::null());
        let mut old = Guarded::new(command.spawn().unwrap());
        eventually("the other daemon listens", Duration::from_secs(20), || {
            socket(&sandbox).exists()
        });
        let said = project.stepback(&["list"]).exits(1);
        assert!(
            said.stderr.contains(older) && said.stderr.contains("stepback daemon restart"),
            "{said:#?}"
        );
        project.stepback(&["daemon", "restart"]).exits(0);
        eventually("the old one has ended", Duration::from_secs(10), || {
            old.child().try_wait().unwrap().is_some()
        });
        assert_eq!(project.ids(), [1], "nothing is lost");
    }
}

#[test]
fn restart_ends_no_process_that_is_no_daemon() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    private_dir(socket(&sandbox).parent().unwrap());
    let mut other = foreign(&sandbox);
    let pid = other.child().id();
    let listener = UnixListener::bind(socket(&sandbox)).unwrap();
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let hello = frame::read::<Hello>(&mut stream);
            let version = "9.9.9".into();
            if hello.is_ok_and(|hello| hello.is_some()) {
                drop(frame::write(
                    &mut stream,
                    &Welcome {
                        protocol: 0,
                        version,
                        pid,
                    },
                ));
            }
        }
    });
    let said = project.stepback(&["daemon", "restart"]).exits(1);
    assert!(
        said.stderr.contains(&pid.to_string()) && said.stderr.contains("hint: "),
        "{said:#?}"
    );
    assert!(other.child().try_wait().unwrap().is_none(), "it lives");
}

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
        crate::support::paths(&status["root"]["not_captured"]).contains(&name.to_owned())
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

/// A small file system of its own at `dir`, unmounted in the end.
struct Mount(PathBuf);

impl Mount {
    fn tmpfs(dir: &Path, size: &str) -> Option<Self> {
        if !geteuid().is_root() {
            println!("skipped: only root can mount");
            return None;
        }
        let mut command = Command::new("mount");
        command
            .args(["-t", "tmpfs", "-o", &format!("size={size},mode=700"), "none"])
            .arg(dir);
        if !command.output().is_ok_and(|o| o.status.success()) {
            println!("skipped: nothing can be mounted here");
            return None;
        }
        Some(Self(dir.to_owned()))
    }

    fn unmount(&self) -> String {
        let output = Command::new("umount").arg(&self.0).output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // It may be gone already; else whoever holds it is about to end.
        drop(Command::new("umount").arg("-l").arg(&self.0).output());
    }
}

#[test]
fn after_a_stop_nothing_of_the_daemon_is_left() {
    let sandbox = Sandbox::new();
    let state = sandbox.state();
    fs::create_dir(&state).unwrap();
    for round in 0..8 {
        let Some(mount) = Mount::tmpfs(&state, "64m") else {
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
    let Some(_mount) = Mount::tmpfs(&state, "24m") else {
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
    // Before its state is unmounted: nobody would find it then.
    project.stepback(&["daemon", "stop"]).exits(0);
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
