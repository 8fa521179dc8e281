//! A history of 10,000 checkpoints (`STEPBACK_SCALE=full`; with `STEPBACK_BIN_DIR` the programs of a release): every command
//! stays quick, and a secret that is in all of them is purged.

use std::fs;
use std::time::{Duration, Instant};

use stepback_tests::{Project, Sandbox, eventually};

use crate::support::{bytes_on_disk, scale, warnings};

const SECRET: &str = "TOKEN=correct horse battery staple\n";

/// Prints how long it took, and holds it to `seconds`: many times what it takes on a machine that does nothing else.
fn timed<T>(count: u64, what: &str, seconds: u64, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let done = work();
    let took = started.elapsed();
    println!("{count} checkpoints: {what} {} ms", took.as_millis());
    assert!(took < Duration::from_secs(seconds), "{what} took {took:?}");
    done
}

/// Refs are in one file, and objects in few packs.
fn is_packed(project: &Project<'_>) -> bool {
    let counted = project.store_git("count-objects -v");
    let number = |name: &str| -> u64 {
        let line = counted.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().parse().unwrap()
    };
    let packed = fs::read_to_string(project.store().join("packed-refs")).unwrap_or_default();
    number("count: ") < 300 && number("packs: ") < 12 && packed.lines().count() > 300
}

#[test]
fn a_long_history_stays_quick_and_a_secret_in_all_of_it_goes() {
    let count = scale(260, 10_000);
    let sandbox = Sandbox::new();
    sandbox.configure("[retention]\nall_hours = 1000\n");
    let project = sandbox.project("p");
    project.sh(
        "for d in 1 2 3 4 5; do mkdir d$d; for f in 1 2 3 4 5 6 7 8; do echo $d $f > d$d/f$f; done; done",
    );
    project.write("d3/.env", SECRET);
    project.attach();
    let begun = Instant::now();
    for i in 1..count {
        project.write(&format!("d{}/f{}", 1 + i % 5, 1 + i % 8), format!("{i}\n"));
        project.save();
    }
    let each = begun.elapsed() / u32::try_from(count).unwrap();
    println!(
        "{count} checkpoints: {} ms for each `save`, with its process",
        each.as_millis()
    );
    let written = bytes_on_disk(&project.store());
    eventually("the store is packed", Duration::from_secs(120), || {
        is_packed(&project)
    });
    let packed = bytes_on_disk(&project.store());
    println!(
        "{count} checkpoints: {} KiB as written, {} KiB packed",
        written >> 10,
        packed >> 10
    );

    timed(count, "list -n 50", 5, || project.json(&["list", "-n", "50"]));
    let all = timed(count, "list --all", 20, || project.json(&["list", "--all"]));
    let ids = |all: &serde_json::Value| -> Vec<u64> {
        let all = all["checkpoints"].as_array().unwrap();
        all.iter().map(|c| c["id"].as_u64().unwrap()).collect()
    };
    let all = ids(&all);
    assert_eq!(all.len() as u64, count);
    timed(count, "list --path d1/f1 --all", 60, || {
        project.json(&["list", "--all", "--path", "d1/f1"])
    });
    timed(count, "status", 5, || project.status());
    project.write("d1/f1", "one more\n");
    timed(count, "save", 5, || project.save());
    timed(count, "rewind 1", 20, || project.rewind(1));
    timed(count, "redo", 20, || project.redo());
    timed(count, "prune, of which nothing goes", 120, || {
        assert_eq!(project.json(&["prune"])["removed"], serde_json::json!([]));
    });
    project.stepback(&["daemon", "stop"]).exits(0);
    timed(count, "the daemon's start, and the first list", 20, || {
        project.json(&["list", "-n", "1"])
    });
    project.settle();
    timed(count, "git fsck --connectivity-only", 120, || project.fsck());

    let oid = project.sh("git hash-object d3/.env").text().trim().to_owned();
    let is_there = || {
        let git = format!("git --git-dir='{}'", project.store().display());
        let script = format!("if {git} cat-file -e {oid} 2> /dev/null; then echo yes; fi");
        project.sh(&script).text() == "yes\n"
    };
    assert!(is_there());
    let done = timed(count, "forget", 300, || {
        project.json(&["forget", "-p", "d3/.env", "-y"])
    });
    assert!(done["checkpoints"].as_u64().unwrap() > count, "{done}");
    assert_eq!(done["still_held"], serde_json::json!([]));
    assert!(!is_there());
    let after = ids(&project.json(&["list", "--all"]));
    assert!(all.iter().all(|id| after.contains(id)), "no checkpoint is lost");
    let middle = count / 2;
    let file = format!("d{}/f{}", 1 + middle % 5, 1 + middle % 8);
    assert_eq!(project.show(middle + 1, &file), format!("{middle}\n").as_bytes());
    let verified = timed(count, "status --verify", 120, || {
        project.json(&["status", "--verify"])
    });
    assert_eq!(
        verified["root"]["warnings"],
        serde_json::json!([]),
        "{verified:#}"
    );
    assert!(warnings(&project, "maintenance").is_empty());
    project.fsck();
    let left = bytes_on_disk(&project.store());
    println!("{count} checkpoints: {} KiB after forget", left >> 10);
    assert!(left < packed + packed / 2 + (1 << 20), "{packed} -> {left}");
}
