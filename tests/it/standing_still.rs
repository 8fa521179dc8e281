//! A daemon that stood still, and clocks that jump: what changed meanwhile is found, and the time is one of the gaps.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use stepback_tests::{Daemon, Sandbox, eventually};

use crate::reconcile::changed_unseen;

const PATIENCE: Duration = Duration::from_secs(60);

fn gaps(status: &Value) -> Vec<Value> {
    status["gaps"].as_array().unwrap().clone()
}

#[test]
fn what_happened_while_the_daemon_was_stopped_is_found_and_is_a_gap() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.daemon();
    let (project, quiet) = (sandbox.project("p"), sandbox.project("quiet"));
    for project in [&project, &quiet] {
        project.sh("mkdir d; printf 0 > d/f; printf AAAA > d/unseen");
        project.attach();
        project.settle();
    }
    daemon.signal(Signal::SIGSTOP);
    // Few enough that the queue holds them all.
    project.sh("printf 1 > d/f; printf 22 > d/f; mkdir -p new/below; printf x > new/below/g; rm -r new; mkdir kept; printf y > kept/h");
    let unseen = changed_unseen(&project, "d/unseen", "BBBB");
    daemon.signal(Signal::SIGCONT);
    eventually("the time is a gap", PATIENCE, || {
        !gaps(&project.status()).is_empty()
    });
    project.settle();
    assert_eq!(project.json(&["diff", "latest", "-w"])["files"], json!([]));
    let now = project.ids()[0];
    assert_eq!(project.show(now, "d/f"), b"22");
    assert_eq!(project.show(now, "kept/h"), b"y");
    if unseen {
        assert_eq!(project.show(now, "d/unseen"), b"BBBB");
    }
    let status = project.status();
    let [gap] = &gaps(&status)[..] else {
        panic!("{status:#}")
    };
    assert!(gap["reason"].as_str().unwrap().contains("stopped"), "{gap}");
    assert!(
        gap["from"].as_str().unwrap() < gap["to"].as_str().unwrap(),
        "{gap}"
    );
    assert_eq!(status["missed"], 0, "{status:#}");
    quiet.settle();
    assert_eq!(
        (gaps(&quiet.status()), quiet.ids().len()),
        (Vec::new(), 1),
        "nothing changed there"
    );
    project.write("d/f", "333");
    project.settle();
    assert_eq!(project.show(project.ids()[0], "d/f"), b"333");
}

/// Has a program's clock of the day run ahead by the seconds that a file holds. The one that only runs while the machine is
/// awake goes on as it does: that is what a program sees of a machine that slept.
const AHEAD: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *at)
{
    int result = syscall(SYS_clock_gettime, id, at);
    if (result == 0 && id == CLOCK_REALTIME) {
        char text[32] = "";
        int file = open(FILE_WITH_SECONDS, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            if (read(file, text, sizeof text - 1) > 0)
                at->tv_sec += atol(text);
            close(file);
        }
    }
    return result;
}
"#;

/// A daemon whose clock can be set by the function; `None`, and a printed reason, where that can't be had.
fn with_a_clock(sandbox: &Sandbox) -> Option<(Daemon, impl Fn(i64))> {
    let dir = sandbox.dir().to_owned();
    let (source, library, seconds) = (dir.join("ahead.c"), dir.join("ahead.so"), dir.join("ahead"));
    fs::write(&source, AHEAD).unwrap();
    let set = move |ahead: i64| {
        let new = dir.join("ahead.new");
        fs::write(&new, ahead.to_string()).unwrap();
        fs::rename(new, dir.join("ahead")).unwrap();
    };
    set(0);
    let mut cc = sandbox.command("cc", Path::new("/"));
    cc.arg(format!("-DFILE_WITH_SECONDS=\"{}\"", seconds.display()));
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    if !cc.output().is_ok_and(|done| done.status.success()) {
        println!("skipped: no C compiler that makes a library is installed");
        return None;
    }
    // By the loader, as the daemon throws away what steers it in the environment and starts anew.
    let loaders = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
    let Some(loader) = loaders.into_iter().find(|loader| Path::new(loader).exists()) else {
        println!("skipped: the loader of this system isn't known");
        return None;
    };
    let prefix = ["env", "-u", "GIT_CONFIG_NOSYSTEM", loader, "--preload"].map(OsStr::new);
    let daemon = sandbox.daemon_under(&[&prefix[..], &[library.as_os_str()]].concat());
    let maps = fs::read_to_string(format!("/proc/{}/maps", daemon.pid())).unwrap_or_default();
    if !maps.contains("ahead.so") {
        println!("skipped: the daemon doesn't take the library");
        return None;
    }
    Some((daemon, set))
}

#[test]
fn a_clock_that_jumps_ahead_and_back_is_noticed() {
    const HOURS: i64 = 3 * 3600;
    let sandbox = Sandbox::new();
    let Some((_daemon, ahead)) = with_a_clock(&sandbox) else {
        return;
    };
    let project = sandbox.project("p");
    project.sh("mkdir d; printf 0 > d/f; printf AAAA > d/unseen");
    project.attach();
    project.settle();
    assert_eq!(gaps(&project.status()), Vec::<Value>::new());

    // The machine sleeps for three hours. What changed on its disk meanwhile no event told of; the next one wakes the root.
    let unseen = changed_unseen(&project, "d/unseen", "BBBB");
    ahead(HOURS);
    project.write("d/f", "22");
    eventually("it is noticed", PATIENCE, || !gaps(&project.status()).is_empty());
    project.settle();
    let status = project.status();
    let [gap] = &gaps(&status)[..] else {
        panic!("{status:#}")
    };
    let at = |of: &Value| of.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let length = at(&gap["to"]).duration_since(at(&gap["from"])).as_secs();
    assert!((HOURS - 60..HOURS + 60).contains(&length), "{gap}");
    assert!(gap["reason"].as_str().unwrap().contains("slept"), "{gap}");
    let now = project.ids()[0];
    assert_eq!(project.show(now, "d/f"), b"22");
    if unseen {
        assert_eq!(project.show(now, "d/unseen"), b"BBBB");
    }

    // ... and back: everything is looked at again, and nothing is taken for older than it is.
    let unseen = changed_unseen(&project, "d/unseen", "CCCC");
    ahead(0);
    project.write("d/f", "333");
    eventually("the edit is captured", PATIENCE, || {
        project.show(project.ids()[0], "d/f") == b"333"
    });
    project.settle();
    let ids = project.ids();
    assert!(ids[0] > now);
    if unseen {
        eventually("all of it is", PATIENCE, || {
            project.show(project.ids()[0], "d/unseen") == b"CCCC"
        });
    }
    assert_eq!(project.json(&["diff", "latest", "-w"])["files"], json!([]));
    let status = project.status();
    assert_eq!(
        (gaps(&status).len(), &status["state"]),
        (1, &json!("watching")),
        "{status:#}"
    );
    assert_eq!(status["missed"], 0);
    // Numbers say which is newer, whatever the clock said.
    project.rewind(now);
    assert_eq!(project.read("d/f"), b"22");
    project.redo();
    assert_eq!(project.read("d/f"), b"333");
    project.fsck();
}
