//! The look at everything that proves that no event was missed.

use std::fs;
use std::time::{Duration, Instant};

use stepback_tests::{Project, Sandbox, eventually};

use crate::support::number_from;

const PATIENCE: Duration = Duration::from_secs(60);

/// Changes the first four bytes of a file through a mapping, of which no event tells; `false`, and a printed reason, where
/// that can't be done.
pub fn changed_unseen(project: &Project<'_>, file: &str, bytes: &str) -> bool {
    assert_eq!(bytes.len(), 4);
    let script = "import mmap, sys; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 4); \
                  m[:] = sys.argv[2].encode(); m.flush(); m.close()";
    let mut map = project.sandbox.command("python3", &project.path);
    map.args(["-c", script, file, bytes]);
    let done = map.output().is_ok_and(|done| done.status.success());
    if !done {
        println!("skipped: python3 is missing");
    }
    done
}

#[test]
fn what_no_event_told_of_is_found_and_counted() {
    let sandbox = Sandbox::new();
    sandbox.configure("reconcile_minutes = 0.01\n");
    let project = sandbox.project("p");
    // More than one part, and some below others.
    project.sh("for d in $(seq 60); do mkdir -p d$d/in; seq 50 | split -l 1 -a 2 - d$d/in/f; done; printf AAAA > d7/in/x");
    project.attach();
    project.settle();
    assert_eq!(project.status()["missed"], 0);
    for (round, bytes) in ["BBBB", "CCCC"].into_iter().enumerate() {
        if !changed_unseen(&project, "d7/in/x", bytes) {
            return;
        }
        eventually("it is found", PATIENCE, || {
            project.show(project.ids()[0], "d7/in/x") == bytes.as_bytes()
        });
        assert_eq!(project.list()[0]["trigger"], "reconcile");
        eventually("it is counted", PATIENCE, || {
            project.status()["missed"] == round as u64 + 1
        });
    }
    // Looks go on all the time: what events tell of is none of it.
    for round in 0..20 {
        project.write(&format!("d{}/in/faa", round % 5 + 1), format!("{round}\n"));
        fs::create_dir_all(project.file(&format!("new{round}/below"))).unwrap();
        project.write(&format!("new{round}/below/f"), format!("{round}\n"));
        project.settle();
    }
    assert_eq!(project.status()["missed"], 2);
    assert_eq!(
        project.json(&["diff", "latest", "-w"])["files"],
        serde_json::json!([])
    );
    assert_eq!(project.status()["gaps"], serde_json::json!([]));
}

#[test]
fn it_holds_up_nobody_not_even_in_its_own_root() {
    let sandbox = Sandbox::alone();
    sandbox.configure("reconcile_minutes = 0.0001\n");
    let project = sandbox.project("p");
    let files = number_from("STEPBACK_FILES", 20_000);
    let script = "n=$1; i=0; while [ $((i * 100)) -lt $n ]; do mkdir d$i; seq 100 | split -l 1 -a 3 - d$i/f; i=$((i+1)); done";
    let mut make = sandbox.command("sh", &project.path);
    make.args(["-euc", script, "sh", &files.to_string()]);
    assert!(make.status().unwrap().success());
    project.attach();
    project.settle();
    let mut slowest = Duration::ZERO;
    for round in 0..10 {
        project.write("d1/faaa", format!("{round}\n"));
        // What looks at everything itself takes what that takes.
        for args in [&["status"][..], &["list"], &["show", "latest"]] {
            let began = Instant::now();
            project.stepback(args).exits(0);
            slowest = slowest.max(began.elapsed());
        }
        project.settle();
        assert_eq!(
            project.show(project.ids()[0], "d1/faaa"),
            format!("{round}\n").as_bytes()
        );
    }
    println!("{files} files, looked at all the time: answers within {slowest:?}");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    assert_eq!(project.status()["missed"], 0);
}
