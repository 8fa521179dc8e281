//! One daemon, whatever happened to the one before it, and whoever wants one at once.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use stepback_proto::{Hello, PROTOCOL, Welcome, frame};
use stepback_tests::{Guarded, Random, Sandbox, eventually, finish, pause, start};

/// Tells [`acts_as_a_daemon_of_another_protocol`] its number and its socket.
const ORDER: &str = "STEPBACK_TEST_SERVE";

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
    assert!(sandbox.socket().exists());
    let mut other = foreign(&sandbox);
    let note = format!(
        r#"{{"pid":{},"socket":"{}","version":"0.0.1"}}"#,
        other.child().id(),
        sandbox.socket().display()
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
    assert!(sandbox.socket().exists());
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
    let _listener = UnixListener::bind(sandbox.socket()).unwrap();
    let mut other = foreign(&sandbox);
    let note = format!(
        r#"{{"pid":{},"socket":"{}","version":"0.0.1"}}"#,
        other.child().id(),
        sandbox.socket().display()
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
                && said.stderr.contains(sandbox.socket().to_str().unwrap())
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
            .args(["--exact", "one_daemon::acts_as_a_daemon_of_another_protocol"])
            .env(ORDER, format!("{protocol} {}", sandbox.socket().display()))
            .stdout(Stdio::null());
        let mut old = Guarded::new(command.spawn().unwrap());
        eventually("the other daemon listens", Duration::from_secs(20), || {
            sandbox.socket().exists()
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
    private_dir(sandbox.socket().parent().unwrap());
    let mut other = foreign(&sandbox);
    let pid = other.child().id();
    let listener = UnixListener::bind(sandbox.socket()).unwrap();
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
