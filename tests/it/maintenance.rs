//! Stores stay packed and clean by themselves, whatever happens to the daemon and around it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stepback_tests::{Project, Random, Sandbox, eventually, finish, pause, start};

use crate::support::{KEEP, bytes_on_disk, is, long_deadline, random_bytes, rounds, scale, warnings};

/// Refs that have a file of their own.
fn loose_refs(dir: &Path) -> usize {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.path() {
            path if path.is_dir() => loose_refs(&path),
            _ => 1,
        })
        .sum()
}

/// Enough checkpoints for an idle store to be packed.
fn many_checkpoints(project: &Project<'_>, count: u32) -> u64 {
    let mut last = 0;
    for i in 0..count {
        project.write("n", format!("{i}\n"));
        last = project.save();
    }
    last
}

#[test]
fn an_idle_store_is_packed_and_goes_on() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("n", "v1\n");
    project.attach();
    let last = many_checkpoints(&project, 260);
    let store = project.store();
    let before = bytes_on_disk(&store);
    eventually("the store is packed", long_deadline(), || {
        loose_refs(&store.join("refs")) < 20
    });
    eventually("and smaller", long_deadline(), || {
        bytes_on_disk(&store) < before / 2
    });
    project.fsck();
    assert_eq!(project.show(last, "n"), b"259\n");
    assert_eq!(project.show(last - 200, "n"), b"59\n");
    project.write("n", "more\n");
    let more = project.save();
    assert_eq!(more, last + 1);
    project.rewind(last - 100);
    assert_eq!(project.read("n"), b"159\n");
    project.redo();
    assert_eq!(project.read("n"), b"more\n");
    assert_eq!(warnings(&project, "maintenance"), Vec::<Value>::new());
    let told = project.status()["store"]["bytes"].as_u64().unwrap();
    let real = bytes_on_disk(&store);
    assert!(told.abs_diff(real) < 300_000, "{told} told, {real} measured");
}

#[test]
fn killed_captures_leave_no_garbage() {
    let sandbox = Sandbox::new();
    let mut random = Random::new("killed captures");
    let mut daemon = sandbox.daemon();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    for round in 0..rounds().div_ceil(5) {
        for i in 0..4u64 {
            project.write(&format!("r{i}"), random_bytes(round * 10 + i, 6 << 20));
        }
        let mut save = sandbox.command(sandbox.program("stepback"), &project.path);
        save.args(["save"]).env("STEPBACK_NO_AUTOSTART", "1");
        let client = start(&mut save);
        pause(Duration::from_millis(100 + random.below(700)));
        daemon.kill();
        finish(client, "stepback save", long_deadline());
        daemon = sandbox.daemon();
    }
    let started = Instant::now();
    let last = project.save();
    println!(
        "the first checkpoint after the kills took {} ms",
        started.elapsed().as_millis()
    );
    let counted = project.store_git("count-objects -v");
    assert!(counted.contains("garbage: 0"), "{counted}");
    let temporary = sandbox.sh(
        &project.store(),
        "find . -name 'tmp_*' -o -name '.tmp-*' -o -name '*.lock'",
    );
    assert_eq!(temporary.text(), "");
    // What a kill left between objects and refs goes with the next prune.
    project.json(&["prune"]);
    let reachable: u64 = project
        .store_git("rev-list --objects --all --disk-usage")
        .trim()
        .parse()
        .unwrap();
    let used = bytes_on_disk(&project.store()) - (4 << 20);
    assert!(
        used as f64 <= reachable as f64 * 1.1 + 500_000.0,
        "{used} for {reachable}"
    );
    assert!(project.show(last, "r3") == project.read("r3"));
}

#[test]
fn the_users_own_gc_costs_no_checkpoint() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("git init -q . && echo 1 > a && git add a && git commit -qm one; printf 'KEEP\\n' > b");
    project.attach();
    let one = project.save();
    project.sh(
        "rm b; git reflog expire --expire=now --all; git gc -q --prune=now; git repack -adq
         git maintenance run --task=gc 2>/dev/null || true
         git commit -q --amend --allow-empty -m other; git reflog expire --expire=now --all; git gc -q --prune=now",
    );
    project.rewind(one);
    is(&project, "b", KEEP);
    project.fsck();
}

#[test]
fn a_clean_up_that_fails_says_so_and_does_not_grow_the_store() {
    let sandbox = Sandbox::new();
    sandbox.configure(
        "[retention]\nall_hours = 0\nminutely_hours = 0\nhourly_days = 0\ndaily_days = 0\nnewest = 2\n",
    );
    let project = sandbox.project("p");
    project.write("n", "v1\n");
    project.attach();
    many_checkpoints(&project, 5);
    let store = project.store();
    fs::write(store.join("refs/checkpoints/broken"), "no object id\n").unwrap();
    let before = bytes_on_disk(&store);
    let said = project.stepback(&["prune"]).exits(0);
    assert!(said.stderr.contains("isn't free yet"), "{said:#?}");
    for _ in 0..3 {
        project.json(&["prune"]);
    }
    assert!(bytes_on_disk(&store) <= before + 100_000);
    eventually("the status says so", long_deadline(), || {
        !warnings(&project, "maintenance").is_empty()
    });
    project.write("n", "captures go on\n");
    project.save();
    fs::remove_file(store.join("refs/checkpoints/broken")).unwrap();
    project.json(&["prune"]);
    eventually("and no longer once it went well", long_deadline(), || {
        warnings(&project, "maintenance").is_empty()
    });
    project.fsck();
}

/// Nothing can be removed meanwhile, but the rest of the work goes on, and people are told the way out.
#[test]
fn an_unreadable_ref_is_named_with_its_remedy_and_the_store_is_folded_all_the_same() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("n", "v1\n");
    project.attach();
    many_checkpoints(&project, 8);
    let store = project.store();
    let id = project.status()["id"].as_str().unwrap().to_owned();
    let damage = |name: &str, text: &str| {
        let file = store.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    let packed = || {
        let said = project.stepback(&["prune"]).exits(0);
        said.stderr.clone()
    };
    let loose = || {
        let said = project.store_git("count-objects");
        said.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let before = loose();
    assert!(before > 8, "{before}");
    damage("refs/checkpoints/broken", "no object id\n");
    let said = packed();
    assert!(
        said.contains("refs/checkpoints/broken") && said.contains("`stepback recover`"),
        "{said}"
    );
    assert!(loose() < before, "folded all the same");
    project.json(&["recover"]);
    assert!(!packed().contains("isn't free yet"));
    damage("refs/checkpoints/dangling", &format!("{}\n", "1".repeat(40)));
    assert!(packed().contains("`stepback recover`"));
    project.json(&["recover"]);
    assert!(!packed().contains("isn't free yet"));
    // One of the root's own.
    damage(&format!("refs/stepback/{id}/pin/3"), "no object id\n");
    let said = packed();
    assert!(
        said.contains("pin/3") && said.contains("`stepback recover`"),
        "{said}"
    );
    project.json(&["recover"]);
    assert!(!packed().contains("isn't free yet"));
    // A checkpoint whose commit is gone.
    damage(
        &format!("refs/checkpoints/{id}/watch/4"),
        &format!("{}\n", "1".repeat(40)),
    );
    project.stepback(&["daemon", "restart"]).exits(0);
    let said = packed();
    assert!(said.contains("`stepback drop 4`"), "{said}");
    project.json(&["drop", "4", "-y"]);
    assert!(!packed().contains("isn't free yet"));
    assert!(warnings(&project, "maintenance").is_empty());
    project.fsck();
}

#[test]
fn what_a_killed_daemon_left_locked_stops_nothing() {
    let sandbox = Sandbox::new();
    let mut daemon = sandbox.daemon();
    let project = sandbox.project("p");
    let dirs = scale(40, 400);
    project.sh(&format!("i=0; while [ $i -lt {dirs} ]; do mkdir d$i; j=0; while [ $j -lt 50 ]; do echo $i $j > d$i/f$j; j=$((j+1)); done; i=$((i+1)); done"));
    project.attach();
    project.sh("for f in d*/f*; do echo more >> $f; done");
    let mut save = sandbox.command(sandbox.program("stepback"), &project.path);
    save.args(["save"]).env("STEPBACK_NO_AUTOSTART", "1");
    let client = start(&mut save);
    pause(Duration::from_millis(60));
    daemon.kill();
    finish(client, "stepback save", long_deadline());
    let store = fs::read_dir(sandbox.state().join("stores"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let refs = fs::read_dir(store.join("refs/checkpoints"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    // Locks in the namespace of refs, as a crash leaves them, and the numbers of others in what the daemon wrote of itself.
    for lock in [
        store.join("packed-refs.lock"),
        refs.join("watch/99.lock"),
        store.join("HEAD.lock"),
    ] {
        fs::write(lock, "").unwrap();
    }
    let note = sandbox.state().join("daemon.json");
    if let Ok(text) = fs::read_to_string(&note) {
        let mut json: Value = serde_json::from_str(&text).unwrap();
        json["pid"] = json!(std::process::id());
        fs::write(&note, json.to_string()).unwrap();
    }
    daemon = sandbox.daemon();
    let started = Instant::now();
    let id = project.save();
    let took = started.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    println!(
        "the first checkpoint of {} files after a kill took {} ms",
        dirs * 50,
        took.as_millis()
    );
    assert!(project.show(id, "d3/f7").ends_with(b"more\n"));
    let bytes = project.json(&["status"])["daemon"]["rss_bytes"].as_u64().unwrap();
    assert!(bytes < 200 << 20, "{bytes} bytes of memory");
    project.json(&["prune"]);
    project.fsck();
    drop(daemon);
}

#[test]
fn a_daemon_that_is_killed_while_it_packs_loses_nothing() {
    let sandbox = Sandbox::new();
    let mut random = Random::new("killed maintenance");
    let mut daemon = sandbox.daemon();
    let project = sandbox.project("p");
    project.write("n", "v1\n");
    project.attach();
    let mut last = many_checkpoints(&project, 255);
    // `make soak`: 50.
    let rounds = match rounds() {
        few @ 0..=20 => few.div_ceil(10),
        many => many / 4,
    };
    for round in 0..rounds {
        let when = format!("in round {round}");
        let store = project.store();
        let before = project.ids();
        // It begins after five idle seconds; the packed refs are its first work.
        let began = Instant::now();
        while loose_refs(&store.join("refs")) > 500 && began.elapsed() < long_deadline() {
            pause(Duration::from_millis(1));
        }
        pause(Duration::from_millis(random.below(250)));
        daemon.kill();
        daemon = sandbox.daemon();
        eventually("the first look", long_deadline(), || {
            project.status()["settled"] == true
        });
        project.fsck();
        assert_eq!(project.ids(), before, "{when}");
        assert_eq!(
            project.json(&["status", "--verify"])["root"]["warnings"],
            json!([]),
            "{when}"
        );
        project.write("n", &when);
        assert_eq!(project.save(), last + 1, "{when}");
        last = many_checkpoints(&project, 255);
    }
}
