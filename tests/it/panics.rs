//! A fault of ours in one root. Needs a daemon with fault points: `cargo build -p stepbackd --features fault-points`.

use std::fs;
use std::time::{Duration, Instant};

use stepback_tests::{Sandbox, eventually};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_root_that_panics_says_so_delays_nobody_and_is_mended_by_one_command() {
    let log = tempfile::NamedTempFile::new().unwrap();
    // The third job: the first after two attaches.
    let sandbox = Sandbox::new()
        .with_env("STEPBACK_FAULT", "actor.job:3:panic")
        .with_env("STEPBACK_FAULT_LOG", log.path());
    let (bad, good) = (sandbox.project("bad"), sandbox.project("good"));
    for project in [&bad, &good] {
        project.sh("printf 1 > f");
        project.attach();
        project.settle();
    }
    if !fs::read_to_string(log.path()).unwrap().contains("actor.job") {
        println!("skipped: the daemon was built without fault points");
        return;
    }
    let pid = sandbox.daemon_pid();
    bad.write("f", "22");
    let failed = bad.json_code(&["save"], 1);
    assert_eq!(failed["error"]["kind"], "internal", "{failed}");
    assert!(!failed["error"]["hint"].as_str().unwrap().is_empty(), "{failed}");
    let status = bad.status();
    assert_eq!(status["state"], "failed", "{status:#}");
    assert_eq!(status["warnings"][0]["kind"], "internal", "{status:#}");
    // The others are served as if nothing were.
    for args in [
        &["status"][..],
        &["roots"],
        &["list"],
        &["save", "-m", "x"],
        &["rewind", "1", "-y"],
    ] {
        let began = Instant::now();
        good.stepback(args).exits(0);
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "{args:?} took {:?}",
            began.elapsed()
        );
    }
    // One command; it would come back by itself, too.
    bad.stepback(&["attach", "--here"]).exits(0);
    let status = bad.status();
    assert_eq!(
        (&status["state"], &status["warnings"]),
        (&"watching".into(), &serde_json::json!([])),
        "{status:#}"
    );
    bad.settle();
    assert_eq!(bad.show(bad.ids()[0], "f"), b"22");
    bad.write("f", "333");
    eventually("it is captured as ever", PATIENCE, || {
        bad.show(bad.ids()[0], "f") == b"333"
    });
    assert_eq!(sandbox.daemon_pid(), pid, "the same daemon");
    bad.fsck();
    good.fsck();
}
