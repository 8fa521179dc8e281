//! Who gets in: nobody but the user. What the daemon keeps is nobody else's to read.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::unistd::geteuid;
use stepback_proto::{Hello, MAGIC, PROTOCOL, frame};
use stepback_tests::{Finished, Sandbox, eventually, finish, start};

/// Uid and gid of `nobody`.
const NOBODY: u32 = 65534;

/// Tells [`acts_as_another_user`] what to do: `connect PATH` or `listen PATH`.
const ORDER: &str = "STEPBACK_TEST_ORDER";

/// Not a test: what a process of another user does, which is this program again.
#[test]
fn acts_as_another_user() {
    let Ok(order) = std::env::var(ORDER) else { return };
    match order.split_once(' ').unwrap() {
        ("connect", path) => {
            let mut stream = UnixStream::connect(path).unwrap();
            let hello = Hello {
                magic: MAGIC,
                protocol: PROTOCOL,
            };
            drop(frame::write(&mut stream, &hello));
            let mut bytes = Vec::new();
            drop(stream.read_to_end(&mut bytes));
            println!("got {} bytes", bytes.len());
        }
        (_, path) => {
            let listener = UnixListener::bind(path).unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = Vec::new();
            drop(stream.read_to_end(&mut bytes));
            println!("got {} bytes", bytes.len());
        }
    }
}

/// A command that does `order` as nobody. `None`, and a printed reason, without root.
fn as_nobody(sandbox: &Sandbox, order: &str) -> Option<Command> {
    if !geteuid().is_root() {
        println!("skipped: only root can be another user as well");
        return None;
    }
    let program = sandbox.dir().join("another");
    if !program.exists() {
        fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    }
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(sandbox.dir(), Permissions::from_mode(0o711)).unwrap();
    let mut command = Command::new(program);
    command
        .args(["--exact", "security::acts_as_another_user", "--nocapture"])
        .env(ORDER, order)
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY);
    Some(command)
}

/// Opens to everybody what the daemon had closed.
fn open_up(sandbox: &Sandbox) {
    for dir in ["run", "run/stepback"] {
        fs::set_permissions(sandbox.dir().join(dir), Permissions::from_mode(0o711)).unwrap();
    }
    fs::set_permissions(sandbox.socket(), Permissions::from_mode(0o666)).unwrap();
}

#[test]
fn another_user_gets_no_byte() {
    let sandbox = Sandbox::new();
    let order = format!("connect {}", sandbox.socket().display());
    let Some(mut command) = as_nobody(&sandbox, &order) else {
        return;
    };
    let _daemon = sandbox.daemon();
    let said = finish(start(&mut command), "the other user", Duration::from_secs(30));
    assert_ne!(said.code(), 0, "the directory keeps him out: {said:#?}");
    open_up(&sandbox);
    let said = finish(start(&mut command), "the other user", Duration::from_secs(30)).exits(0);
    assert!(said.text().contains("got 0 bytes"), "{said:#?}");
    sandbox.stepback(sandbox.dir(), &["roots"]).exits(0);
}

/// What becomes of each accepted connection in a trace, by its descriptor's number.
#[derive(Default)]
struct Accepted {
    open: std::collections::HashMap<String, bool>,
    checked: usize,
    strangers: usize,
}

impl Accepted {
    /// Follows the trace; panics where something is read before the peer was asked for.
    fn follow(&mut self, trace: &str) {
        for line in trace.lines() {
            let result = line.rsplit(" = ").next().unwrap_or_default();
            if line.contains("accept4") && result.parse::<u32>().is_ok() {
                self.open.insert(result.to_owned(), false);
                continue;
            }
            let Some((name, rest)) = line.split_once('(') else {
                continue;
            };
            let name = name.rsplit(' ').next().unwrap_or_default();
            let fd = rest.split([',', ')', ' ']).next().unwrap_or_default();
            let Some(known) = self.open.get_mut(fd) else {
                continue;
            };
            match name {
                "getsockopt" if rest.contains("SO_PEERCRED") => {
                    *known = true;
                    self.checked += 1;
                    if rest.contains(&format!("uid={NOBODY}")) {
                        self.strangers += 1;
                        // Whatever is read from him now is one read too many.
                        *known = false;
                    }
                }
                "close" => drop(self.open.remove(fd)),
                "read" | "readv" | "recvfrom" | "recvmsg" => {
                    assert!(
                        *known,
                        "read before the peer was known, or from another user: {line}"
                    );
                }
                _ => {}
            }
        }
    }
}

#[test]
fn the_judge_of_traces_sees_a_read_that_comes_too_early() {
    let good = "7 accept4(9, NULL, NULL, SOCK_CLOEXEC) = 12\n\
                7 getsockopt(12, SOL_SOCKET, SO_PEERCRED, {pid=1, uid=0, gid=0}, [12]) = 0\n\
                8 recvfrom(12, \"x\", 1, 0, NULL, NULL) = 1\n8 close(12) = 0\n8 read(12, \"file\", 4) = 4\n";
    let mut accepted = Accepted::default();
    accepted.follow(good);
    assert_eq!((accepted.checked, accepted.strangers), (1, 0));
    let early = "7 <... accept4 resumed>NULL, NULL, SOCK_CLOEXEC) = 12\n7 read(12, \"x\", 1) = 1\n";
    let caught = std::panic::catch_unwind(|| Accepted::default().follow(early));
    assert!(caught.is_err());
}

#[test]
fn the_peer_is_checked_before_a_byte_is_read() {
    let sandbox = Sandbox::new();
    let works = sandbox
        .command("strace", sandbox.dir())
        .args(["-o", "/dev/null", "true"])
        .output();
    if !works.is_ok_and(|o| o.status.success()) {
        println!("skipped: strace is not installed, or may not trace here");
        return;
    }
    let trace = sandbox.dir().join("trace");
    let calls = "trace=accept4,getsockopt,read,readv,recvfrom,recvmsg,close";
    let prefix = ["strace", "-f", "-e", calls, "-o", trace.to_str().unwrap()].map(OsStr::new);
    let daemon = sandbox.daemon_under(&prefix);
    let project = sandbox.project("p");
    project.attach();
    project.stepback(&["list"]).exits(0);
    let order = format!("connect {}", sandbox.socket().display());
    let stranger = as_nobody(&sandbox, &order);
    let strangers = usize::from(stranger.is_some());
    if let Some(mut command) = stranger {
        open_up(&sandbox);
        finish(start(&mut command), "the other user", Duration::from_secs(30)).exits(0);
    }
    project.stepback(&["daemon", "stop"]).exits(0);
    daemon.ended(Duration::from_secs(30));
    let mut accepted = Accepted::default();
    accepted.follow(&fs::read_to_string(&trace).unwrap());
    assert!(
        accepted.checked >= 5,
        "only {} connections seen",
        accepted.checked
    );
    assert_eq!(accepted.strangers, strangers);
}

#[test]
fn the_client_believes_nobody_but_its_own_user() {
    let sandbox = Sandbox::new();
    let dir = sandbox.dir().join("theirs");
    let path = dir.join("s");
    let Some(mut command) = as_nobody(&sandbox, &format!("listen {}", path.display())) else {
        return;
    };
    fs::create_dir(&dir).unwrap();
    chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
    let listener = start(&mut command);
    eventually("he listens", Duration::from_secs(20), || {
        fs::metadata(&path).is_ok_and(|m| m.mode() & 0o777 == 0o666)
    });
    let there = [("STEPBACK_SOCKET", path.to_str().unwrap())];
    let said = sandbox
        .stepback_env(sandbox.dir(), &["--json", "list"], &there)
        .exits(1);
    assert_eq!(said.json()["error"]["kind"], "permission", "{said:#?}");
    let heard = finish(listener, "the other user", Duration::from_secs(30)).exits(0);
    assert!(heard.text().contains("got 0 bytes"), "{heard:#?}");
}

/// Tries to start a daemon that has to refuse.
#[track_caller]
fn refused(sandbox: &Sandbox, words: &str) -> Finished {
    let mut command = sandbox.command(sandbox.program("stepbackd"), sandbox.dir());
    command.arg("--foreground");
    let said = finish(start(&mut command), "stepbackd", Duration::from_secs(30)).exits(1);
    assert!(
        said.stderr.contains(words) && said.stderr.contains("hint: "),
        "{words:?} in {said:#?}"
    );
    said
}

#[test]
fn a_place_that_is_not_ours_alone_is_refused_by_name() {
    let sandbox = Sandbox::new();
    let dir = sandbox.dir().join("run/stepback");
    fs::create_dir(&dir).unwrap();
    for mode in [0o770, 0o702, 0o777, 0o1777] {
        fs::set_permissions(&dir, Permissions::from_mode(mode)).unwrap();
        refused(&sandbox, dir.to_str().unwrap());
        assert_eq!(
            fs::metadata(&dir).unwrap().mode() & 0o7777,
            mode,
            "nor is it changed"
        );
    }
    fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
    if geteuid().is_root() {
        chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
        refused(&sandbox, "belongs to another user");
        chown(&dir, Some(0), Some(0)).unwrap();
    } else {
        println!("skipped: only root can give a directory away");
    }
    let path = sandbox.socket();
    fs::write(&path, "mine\n").unwrap();
    refused(&sandbox, "is not a socket");
    assert_eq!(fs::read(&path).unwrap(), b"mine\n");
    fs::remove_file(&path).unwrap();
    let target = sandbox.dir().join("elsewhere");
    symlink(&target, &path).unwrap();
    refused(&sandbox, "is not a socket");
    assert!(fs::symlink_metadata(&path).unwrap().is_symlink() && !target.exists());
    fs::remove_file(&path).unwrap();
    {
        let _stranger = UnixListener::bind(&path).unwrap();
        refused(&sandbox, "another program listens");
        assert!(path.exists());
    }
    if geteuid().is_root() {
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        refused(&sandbox, "belongs to another user");
        assert!(path.exists());
    }
    fs::remove_dir_all(&dir).unwrap();
    let real = sandbox.dir().join("real");
    fs::create_dir(&real).unwrap();
    fs::set_permissions(&real, Permissions::from_mode(0o700)).unwrap();
    symlink(&real, &dir).unwrap();
    refused(&sandbox, "not a directory");
    assert_eq!(fs::read_dir(&real).unwrap().count(), 0);
    fs::remove_file(&dir).unwrap();
    // After all that a start is as ever.
    sandbox.stepback(sandbox.dir(), &["daemon", "start"]).exits(0);
}

#[test]
fn a_state_of_another_user_is_refused() {
    if !geteuid().is_root() {
        println!("skipped: only root can give a directory away");
        return;
    }
    let sandbox = Sandbox::new();
    let state = sandbox.state();
    fs::create_dir(&state).unwrap();
    chown(&state, Some(NOBODY), Some(NOBODY)).unwrap();
    refused(&sandbox, "belongs to user 65534");
    assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
}

/// Everything below `dir` that somebody else may reach.
fn reachable(dir: &Path) -> Vec<String> {
    let mut todo = vec![dir.to_path_buf()];
    let mut found = Vec::new();
    while let Some(path) = todo.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        if !metadata.is_symlink() && metadata.mode() & 0o077 != 0 {
            found.push(format!("{:o} {}", metadata.mode(), path.display()));
        }
        if metadata.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
    }
    found
}

#[test]
fn what_the_daemon_keeps_is_private_whatever_the_umask() {
    for umask in ["000", "077"] {
        let sandbox = Sandbox::new();
        let mut command = sandbox.command("sh", sandbox.dir());
        let line = format!("umask {umask}; exec \"$STEPBACKD\" --daemonize");
        command.args(["-c", &line]);
        let daemonized = finish(start(&mut command), "stepbackd", Duration::from_secs(60));
        daemonized.exits(0);
        let project = sandbox.project("p");
        project.write("a", "v1\n");
        project.attach();
        project.write("a", "v2\n");
        project.write("big", vec![b'x'; 300_000]);
        project.save();
        project.rewind(1);
        project.redo();
        project.json(&["session", "start", "s"]);
        project.json(&["session", "end"]);
        project.stepback(&["list"]).exits(0);
        assert_eq!(reachable(&sandbox.state()), Vec::<String>::new(), "umask {umask}");
        assert_eq!(
            reachable(&sandbox.dir().join("run/stepback")),
            Vec::<String>::new(),
            "umask {umask}"
        );
        project.stepback(&["daemon", "stop"]).exits(0);
        assert_eq!(
            reachable(&sandbox.state()),
            Vec::<String>::new(),
            "umask {umask}, afterwards"
        );
    }
}

#[test]
fn the_log_holds_no_contents_and_no_words_of_the_user() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.daemon();
    let project = sandbox.project("p");
    project.write("a", "CONTENTMARK one\n");
    project.attach();
    project.write("a", "CONTENTMARK two\n");
    project.stepback(&["save", "-m", "LABELMARK"]).exits(0);
    project
        .stepback(&[
            "run",
            "--",
            "sh",
            "-c",
            "echo CONTENTMARK three > a; : PROMPTMARK",
        ])
        .exits(0);
    project.stepback(&["diff", "1", "2"]).exits(0);
    project.rewind(1);
    project.redo();
    project.fails(&["show", "1:nothing"], 1, "no_such_path");
    project.stepback(&["daemon", "stop"]).exits(0);
    daemon.ended(Duration::from_secs(30));
    let mut log = fs::read_to_string(sandbox.dir().join("daemon.log")).unwrap();
    for entry in fs::read_dir(sandbox.state().join("log")).unwrap() {
        log.push_str(&fs::read_to_string(entry.unwrap().path()).unwrap());
    }
    assert!(log.contains("started") && log.contains("session-end"), "{log}");
    for mark in ["CONTENTMARK", "LABELMARK", "PROMPTMARK"] {
        assert!(!log.contains(mark), "{mark} in {log}");
    }
}
