//! Roots on, or around, a file system that a program serves (FUSE): it may hang, die, or be another one than before.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stepback_tests::{Project, Sandbox, eventually};

use crate::support::{paths, warnings};

const DEADLINE: Duration = Duration::from_secs(60);

/// What nobody waits for longer, on a machine that is busy with other tests, too.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A file system with one file `f`, read-only. Nothing is kept by the kernel: each question is asked.
const SERVER: &str = r"
import ctypes, os, struct, sys
at, source, text = sys.argv[1], sys.argv[2], sys.argv[3].encode()
fuse = os.open('/dev/fuse', os.O_RDWR)
options = f'fd={fuse},rootmode=40000,user_id=0,group_id=0,allow_other'
if ctypes.CDLL(None).mount(source.encode(), at.encode(), b'fuse.test', 6, options.encode()):
    sys.exit(1)
print('mounted', flush=True)
def attributes(node):
    kind, size = (0o40755, 4096) if node == 1 else (0o100644, len(text))
    return struct.pack('<6Q10I', node, size, 8, 10**9, 10**9, 10**9, 0, 0, 0, kind, 1, 0, 0, 0, 4096, 0)
def answer(to, data=b'', error=0):
    os.write(fuse, struct.pack('<IiQ', 16 + len(data), -error, to) + data)
while True:
    try:
        asked = os.read(fuse, 1 << 20)
    except InterruptedError:
        continue
    _, what, to, node = struct.unpack('<IIQQ', asked[:24])
    body = asked[40:]
    if what == 26:
        answer(to, struct.pack('<4I2H2I2H8I', 7, 31, 65536, 0, 12, 10, 65536, 1, 0, 0, *[0] * 8))
    elif what == 1 and body == b'f\0':
        answer(to, struct.pack('<4Q2I', 2, 0, 0, 0, 0, 0) + attributes(2))
    elif what == 1:
        answer(to, error=2)
    elif what == 3:
        answer(to, struct.pack('<Q2I', 0, 0, 0) + attributes(node))
    elif what in (14, 27):
        answer(to, struct.pack('<Q2I', 1, 0, 0))
    elif what == 28:
        first = struct.unpack('<QQ', body[:16])[1] == 0
        answer(to, struct.pack('<2Q2I', 2, 1, 1, 8) + b'f' + bytes(7) if first else b'')
    elif what == 15:
        _, begin, size = struct.unpack('<QQI', body[:20])
        answer(to, text[begin:begin + size])
    elif what == 17:
        answer(to, struct.pack('<5Q4I', 1000, 500, 500, 100, 100, 4096, 255, 4096, 0) + bytes(24))
    elif what in (18, 25, 29):
        answer(to)
    elif what not in (2, 42):
        answer(to, error=38)
";

struct Served {
    at: PathBuf,
    server: Child,
}

impl Served {
    /// `None`, with a printed reason, where that can't be had.
    fn new(at: &Path, source: &str, text: &str) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        if !Path::new("/dev/fuse").exists() {
            println!("skipped: there is no /dev/fuse");
            return None;
        }
        let server = Command::new("python3")
            .args(["-c", SERVER])
            .arg(at)
            .args([source, text])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut server) = server else {
            println!("skipped: python3 isn't installed");
            return None;
        };
        let mut said = String::new();
        let stdout = server.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut said).unwrap();
        if said.trim() == "mounted" {
            return Some(Self {
                at: at.to_owned(),
                server,
            });
        }
        println!("skipped: file systems of a program can't be mounted here");
        server.wait().unwrap();
        None
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.server.id()).unwrap());
        kill(pid, signal).unwrap();
    }

    fn umount(&self) {
        let _ = Command::new("umount")
            .arg("-l")
            .arg(&self.at)
            .stderr(Stdio::null())
            .status();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.umount();
        // What still asks it gets an error.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Runs it, which takes no long time.
#[track_caller]
fn at_once(project: &Project<'_>, args: &[&str]) -> stepback_tests::Finished {
    let began = Instant::now();
    let done = project.stepback(args);
    let took = began.elapsed();
    assert!(took < AT_ONCE, "`stepback {}` took {took:?}", args.join(" "));
    done
}

/// A root with a file system in it that doesn't tell of changes is never settled.
#[track_caller]
fn captured(project: &Project<'_>, a: &[u8]) {
    eventually("captured", DEADLINE, || project.show(project.ids()[0], "a") == a);
}

fn hangs(project: &Project<'_>) -> bool {
    project.status()["state"] == "degraded" && !warnings(project, "no_answer").is_empty()
}

#[test]
fn a_mount_that_hangs_is_told_of_and_stops_nothing_else() {
    let sandbox = Sandbox::new();
    let outer = sandbox.project("p");
    let Some(mount) = Served::new(&outer.path.join("m"), "a", "text\n") else {
        return;
    };
    let inner = sandbox.project("p/in");
    let other = sandbox.project("q");
    for project in [&outer, &inner, &other] {
        project.write("a", "v1\n");
        project.json(&["attach", "--here", "."]);
    }
    mount.signal(Signal::SIGSTOP);
    outer.write("a", "v2\n");
    eventually("it is told of", DEADLINE, || hangs(&outer));
    let said = at_once(&outer, &["status"]).exits(0);
    assert!(said.text().starts_with("not protected, "), "{}", said.text());
    let at = mount.at.display().to_string();
    assert!(said.text().contains(&format!("the file system at {at} ")));
    at_once(&outer, &["list"]).exits(0);
    at_once(&outer, &["show", "1:a"]).exits(0);
    at_once(&other, &["roots"]).exits(0);
    at_once(&other, &["save"]).exits(0);
    inner.write("a", "v2\n");
    captured(&inner, b"v2\n");
    let began = Instant::now();
    inner.rewind(1);
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!(inner.read("a"), b"v1\n");
    let new = sandbox.project("new");
    at_once(&new, &["attach", "--here", "."]).exits(0);
    let began = Instant::now();
    let done = outer.stepback(&["run", "--", "echo", "it runs"]).exits(0);
    assert_eq!(done.text(), "it runs\n");
    // The daemon is well, and protects all others.
    let why = format!("the command runs without checkpoints of its own: the file system at {at} ");
    assert!(
        done.stderr.contains(&why) && !done.stderr.contains("daemon"),
        "{}",
        done.stderr
    );
    let doctor = outer.stepback(&["doctor"]);
    assert!(doctor.text().contains("doesn't answer"), "{}", doctor.text());
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    mount.signal(Signal::SIGCONT);
    captured(&outer, b"v2\n");
    eventually("nothing is wrong", DEADLINE, || {
        warnings(&outer, "no_answer").is_empty()
    });
}

#[test]
fn while_it_hangs_the_store_answers_and_the_rest_is_refused_at_once() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let Some(mount) = Served::new(&project.path.join("m"), "a", "text\n") else {
        return;
    };
    project.write("a", "v1\n");
    project.json(&["attach", "--here", "."]);
    project.stepback(&["session", "start", "over"]).exits(0);
    project.write("a", "v2\n");
    captured(&project, b"v2\n");
    project.stepback(&["session", "end", "over"]).exits(0);
    project.stepback(&["session", "start", "open"]).exits(0);
    let newest = project.ids()[0].to_string();
    mount.signal(Signal::SIGSTOP);
    let mut save = sandbox
        .command(sandbox.program("stepback"), &project.path)
        .arg("save")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("it is at work", DEADLINE, || {
        !project.status()["progress"].is_null()
    });
    // It waits behind that, and is told as soon as it is known.
    let refused = project.stepback(&["--json", "pin", "1"]).exits(1).json();
    assert_eq!(refused["error"]["kind"], "busy", "{refused:#}");
    assert!(hangs(&project));
    let refused: [&[&str]; 8] = [
        &["save"],
        &["pin", "1"],
        &["session", "start", "x"],
        &["session", "show", "open"],
        &["attach", "--here", "."],
        &["rewind", "1", "-y"],
        &["diff"],
        &["detach", "--forget", "-y"],
    ];
    for command in refused {
        let began = Instant::now();
        let error = project.fails(command, 1, "busy");
        assert!(began.elapsed() < AT_ONCE, "{command:?}: {:?}", began.elapsed());
        let (message, hint) = (
            error["message"].as_str().unwrap(),
            error["hint"].as_str().unwrap(),
        );
        assert!(message.contains("hasn't answered for"), "{command:?}: {error:#}");
        assert!(hint.contains("umount -l"), "{command:?}: {error:#}");
    }
    let told: [(&[&str], &str); 4] = [
        (&["export", &newest, "--tar", "-"], "v2\n"),
        (&["export", "2", "--patch", "-"], ""),
        (&["session", "show", "over"], "a"),
        (&["diff", "1", &newest], "+v2"),
    ];
    for (command, part) in told {
        let text = at_once(&project, command).exits(0).text();
        assert!(text.contains(part), "{command:?}: {text}");
    }
    let attached = |expected: usize| {
        let roots = at_once(&project, &["--json", "roots"]).exits(0).json();
        assert_eq!(roots.as_array().unwrap().len(), expected, "{roots:#}");
    };
    attached(1);
    let detached = at_once(&project, &["detach"]).exits(0);
    assert!(
        detached.stderr.contains("hasn't answered for"),
        "{}",
        detached.stderr
    );
    attached(0);
    mount.signal(Signal::SIGCONT);
    save.wait().unwrap();
    project.write("a", "v3\n");
    let back = project.attach();
    assert_eq!(project.show(back, "a"), b"v3\n");
    assert_eq!(project.show(1, "a"), b"v1\n", "its history goes on");
}

#[test]
fn a_directory_whose_file_system_hangs_is_not_waited_for() {
    let sandbox = Sandbox::new();
    let _daemon = sandbox.daemon();
    let at = sandbox.dir().join("hangs");
    let Some(mount) = Served::new(&at, "a", "text\n") else {
        return;
    };
    mount.signal(Signal::SIGSTOP);
    let mut attach = sandbox
        .command(sandbox.program("stepback"), sandbox.dir())
        .args(["attach", "--here"])
        .arg(&at)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("it gives up", DEADLINE, || attach.try_wait().unwrap().is_some());
    let done = attach.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(said.contains("its file system doesn't answer"), "{said}");
}

#[test]
fn a_rewind_whose_client_has_gone_is_not_carried_out_later() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let Some(mount) = Served::new(&project.path.join("m"), "a", "text\n") else {
        return;
    };
    project.write("a", "v1\n");
    let first = project.attach();
    project.write("a", "v2\n");
    captured(&project, b"v2\n");
    mount.signal(Signal::SIGSTOP);
    project.write("a", "v3\n");
    eventually("it hangs", DEADLINE, || hangs(&project));
    let mut rewind = sandbox
        .command(sandbox.program("stepback"), &project.path)
        .args(["rewind", &first.to_string(), "-y"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    stepback_tests::pause(Duration::from_millis(300));
    rewind.kill().unwrap();
    rewind.wait().unwrap();
    mount.signal(Signal::SIGCONT);
    captured(&project, b"v3\n");
    project.save();
    assert_eq!(project.read("a"), b"v3\n");
}

#[test]
fn one_whose_server_died_is_left_out_with_a_name() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let Some(mut mount) = Served::new(&project.path.join("m"), "a", "text\n") else {
        return;
    };
    project.write("a", "v1\n");
    let first = project.attach();
    assert_eq!(project.show(first, "m/f"), b"text\n");
    mount.server.kill().unwrap();
    mount.server.wait().unwrap();
    project.write("a", "v2\n");
    let saved = project.save();
    assert_eq!(project.show(saved, "a"), b"v2\n");
    let left_out = &project.status()["not_captured"];
    assert_eq!(paths(left_out), ["m"]);
    assert_eq!(left_out[0]["reason"], "unreadable");
    // What is in the mount isn't put back, and said so.
    project.json_code(&["rewind", &first.to_string(), "-y"], 3);
    assert_eq!(project.read("a"), b"v1\n");
}

#[test]
fn another_one_in_its_place_or_elsewhere_is_another_root() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let Some(mount) = Served::new(&project.path, "a", "of a\n") else {
        return;
    };
    let here = sandbox.dir().to_owned();
    let p = project.path.to_str().unwrap();
    let attach = |path: &str| sandbox.stepback(&here, &["--json", "attach", "--here", path]);
    let id = attach(p).exits(0).json()["id"].clone();
    mount.umount();
    drop(mount);
    eventually("it is missed", DEADLINE, || {
        project.status()["state"] == "missing"
    });
    let elsewhere = sandbox.dir().join("elsewhere");
    let Some(_unrelated) = Served::new(&elsewhere, "b", "of b\n") else {
        return;
    };
    let new = attach(elsewhere.to_str().unwrap()).exits(0).json();
    assert_ne!(new["id"], id, "it isn't the one that has moved");
    assert_eq!(new["created"], true);
    let stores = std::fs::read_dir(sandbox.state().join("stores")).unwrap();
    assert_eq!(stores.count(), 2);
    let Some(_another) = Served::new(&project.path, "c", "of c\n") else {
        return;
    };
    eventually("it is another one", DEADLINE, || {
        project.status()["state"] == "replaced"
    });
}

#[test]
fn a_root_whose_turn_has_not_come_is_looked_at_before_the_daemon_ends() {
    let sandbox = Sandbox::new();
    let hanging = ["m", "n"].map(|name| sandbox.project(name));
    let mut mounts = Vec::new();
    for project in &hanging {
        let Some(mount) = Served::new(&project.path, "a", "text\n") else {
            return;
        };
        mounts.push(mount);
        sandbox
            .stepback(
                sandbox.dir(),
                &["attach", "--here", project.path.to_str().unwrap()],
            )
            .exits(0);
    }
    let project = sandbox.project("p");
    for file in 0..50 {
        project.write(&format!("f{file}"), "more, and so looked at last\n");
    }
    project.attach();
    let store = project.store();
    sandbox.stepback(sandbox.dir(), &["daemon", "stop"]).exits(0);
    for mount in &mounts {
        mount.signal(Signal::SIGSTOP);
    }
    sandbox.stepback(sandbox.dir(), &["daemon", "start"]).exits(0);
    project.write("f0", "v2\n");
    sandbox.stepback(sandbox.dir(), &["daemon", "stop"]).exits(0);
    let refs = format!("git --git-dir {} for-each-ref refs/checkpoints", store.display());
    let refs = sandbox.sh(sandbox.dir(), &refs).text();
    assert_eq!(refs.lines().count(), 2, "{refs}");
}
