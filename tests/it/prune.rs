//! What `prune` removes, and what never.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use stepback_tests::{Project, Sandbox, eventually, eventually_some, finish, keys, pause, start};

use crate::support::{Mount, bytes_on_disk, long_deadline, paths, random_bytes, rounds};

/// Nothing is kept for its age: the newest so many alone.
fn only_newest(newest: u32) -> String {
    format!(
        "[retention]\nall_hours = 0\nminutely_hours = 0\nhourly_days = 0\ndaily_days = 0\nnewest = {newest}\n"
    )
}

#[test]
fn retention_is_applied_now_and_the_space_is_given_back() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "kept\n");
    project.attach();
    for i in 0..8u64 {
        project.write("big", random_bytes(i, 2 << 20));
        project.write("a", format!("{i}\n"));
        project.save();
    }
    let named = project.json(&["save", "-m", "named"])["id"].as_u64().unwrap();
    project.write("a", "later\n");
    let last = project.save();
    // By the default policy everything is young.
    let answer = project.json(&["prune"]);
    keys(&answer, &["removed", "roots_removed", "freed_bytes"]);
    assert_eq!(answer["removed"], json!([]));

    // A daemon that starts applies its retention before anybody asks; one that reads its settings again doesn't.
    sandbox.configure(&only_newest(1));
    kill(sandbox.daemon_pid().unwrap(), Signal::SIGHUP).unwrap();
    let ids = project.ids();
    let would = eventually_some("the new retention", long_deadline(), || {
        let would = project.json(&["prune", "--dry-run"])["removed"].clone();
        (would != json!([])).then_some(would)
    });
    assert_eq!(project.ids(), ids, "a dry run removes nothing");
    let before = bytes_on_disk(&project.store());
    let answer = project.json(&["prune", "-y"]);
    assert_eq!(answer["removed"], would);
    let freed = answer["freed_bytes"].as_u64().unwrap();
    let after = bytes_on_disk(&project.store());
    assert!(freed > 10 << 20, "{answer}");
    assert!(before - after > 10 << 20, "{before} -> {after}");
    let left = project.ids();
    assert!(left.contains(&named) && left.contains(&last), "{left:?}");
    assert!(left.len() <= 3, "{left:?}");
    project.fsck();
    project.write("a", "the daemon goes on\n");
    project.save();
}

#[test]
fn only_roots_that_are_gone_are_removed_and_only_after_a_yes() {
    let sandbox = Sandbox::new();
    let make = |name: &str| {
        let project = sandbox.project(name);
        project.write("a", "v1\n");
        project.attach();
        project.settle();
        project
    };
    let (gone, moved, alive, detached, detached_gone) = (
        make("gone"),
        make("moved"),
        make("alive"),
        make("detached"),
        make("detached-gone"),
    );
    let stores: Vec<_> = [&gone, &moved, &alive, &detached, &detached_gone]
        .iter()
        .map(|p| p.store())
        .collect();
    for project in [&detached, &detached_gone] {
        project.json(&["detach"]);
    }
    fs::remove_dir_all(&gone.path).unwrap();
    fs::remove_dir_all(&detached_gone.path).unwrap();
    fs::rename(&moved.path, moved.path.with_file_name("elsewhere")).unwrap();
    // One that is there but can't be looked at, and one whose directory isn't the one that was attached.
    let replaced = make("replaced");
    fs::remove_dir_all(&replaced.path).unwrap();
    fs::create_dir(&replaced.path).unwrap();

    let ask = |args: &[&str], code: i32| -> Value {
        let args: Vec<&str> = ["--json", "prune", "--roots"]
            .iter()
            .chain(args)
            .copied()
            .collect();
        sandbox.stepback(&alive.path, &args).exits(code).json()
    };
    let would = ask(&["--dry-run"], 0);
    let named = paths(&would["roots_removed"]);
    assert_eq!(named.len(), 2, "{would:#}");
    for project in [&gone, &detached_gone] {
        assert!(
            named.contains(&project.path.to_str().unwrap().to_owned()),
            "{would:#}"
        );
    }
    assert_eq!(would["freed_bytes"], 0, "a dry run");
    let told = sandbox
        .stepback(&alive.path, &["prune", "--roots", "--dry-run"])
        .exits(0)
        .stderr;
    assert!(
        told.contains("1 checkpoint, the newest of the last 24 hours"),
        "{told}"
    );
    assert!(told.contains("if the directory was moved"), "{told}");
    assert_eq!(ask(&[], 1)["error"]["kind"], "declined");
    assert!(
        stores.iter().all(|store| store.is_dir()),
        "nothing changed without a yes"
    );

    let done = ask(&["-y"], 0);
    assert_eq!(paths(&done["roots_removed"]), named, "{done:#}");
    assert!(done["freed_bytes"].as_u64().unwrap() > 4 << 20, "{done:#}");
    assert_eq!(
        stores.iter().map(|store| store.is_dir()).collect::<Vec<_>>(),
        [false, true, true, true, false]
    );
    let roots = alive.json(&["roots"]);
    assert_eq!(roots.as_array().unwrap().len(), 3, "{roots:#}");
    assert_eq!(ask(&["-y"], 0)["roots_removed"], json!([]));
    // The moved one goes on where it is.
    let elsewhere = sandbox.project("elsewhere");
    let before = elsewhere.json(&["attach", "--here"]);
    assert_eq!(before["created"], false);
    assert_eq!(alive.show(1, "a"), b"v1\n");
}

/// What `prune --roots` would remove, asked from an attached directory.
fn roots_gone(from: &Project<'_>) -> Vec<String> {
    paths(&from.json(&["prune", "--roots", "--dry-run"])["roots_removed"])
}

/// A root that is on a file system of its own, and one that is such a file system.
#[test]
fn an_unmounted_root_is_not_gone() {
    let sandbox = Sandbox::new();
    let alive = sandbox.project("alive");
    alive.write("a", "v1\n");
    alive.attach();
    let (volume, itself) = (sandbox.project("volume"), sandbox.project("itself"));
    let mounts = [&volume, &itself].map(|at| Mount::tmpfs(&sandbox, &at.path, "size=8m,mode=755"));
    if mounts.iter().any(Option::is_none) {
        return;
    }
    let on_it = sandbox.project("volume/p");
    for project in [&on_it, &itself] {
        project.write("a", "v1\n");
        project.json(&["attach", "--here"]);
        project.settle();
    }
    let stores = [on_it.store(), itself.store()];
    sandbox.stepback(&alive.path, &["daemon", "stop"]).exits(0);
    drop(mounts);
    assert!(!on_it.path.exists() && !itself.file("a").exists());
    assert_eq!(roots_gone(&alive), Vec::<String>::new());
    // Nor when it is named: only what is gone is removed.
    let done = alive.json(&["prune", "--roots", "-y"]);
    assert_eq!(done["roots_removed"], json!([]));
    assert!(stores.iter().all(|store| store.is_dir()));
    assert_eq!(alive.json(&["roots"]).as_array().unwrap().len(), 3);
}

#[test]
fn a_root_that_cannot_be_looked_at_is_not_gone() {
    let Some(sandbox) = Sandbox::of_normal_user() else {
        return;
    };
    let alive = sandbox.project("alive");
    let hidden = sandbox.project("closed/p");
    for project in [&alive, &hidden] {
        project.sh("echo v1 > a");
        project.attach();
        project.settle();
    }
    let store = hidden.store();
    let closed = sandbox.dir().join("work/closed");
    for mode in [0o000, 0o600] {
        fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(roots_gone(&alive), Vec::<String>::new(), "{mode:o}");
    }
    alive.json(&["prune", "--roots", "-y"]);
    assert!(store.is_dir());
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(hidden.show(1, "a"), b"v1\n");
    // It is surely gone when the directory around it can be looked at.
    fs::remove_dir_all(&hidden.path).unwrap();
    assert_eq!(roots_gone(&alive).len(), 1);
}

#[test]
fn a_killed_prune_leaves_every_checkpoint_whole() {
    let sandbox = Sandbox::new();
    let mut random = stepback_tests::Random::new("killed prunes");
    sandbox.configure(&only_newest(6));
    let mut daemon = sandbox.daemon();
    let project = sandbox.project("p");
    project.write("n", "0");
    project.attach();
    let mut written = std::collections::BTreeMap::new();
    let mut number = 0u64;
    let mut whole = std::time::Duration::from_millis(400);
    for round in 0..rounds().div_ceil(4) {
        for _ in 0..6 {
            number += 1;
            project.write("n", format!("{number}"));
            project.write("blob", random_bytes(number, 100_000));
            written.insert(project.save(), number);
        }
        let mut prune = sandbox.command(sandbox.program("stepback"), &project.path);
        prune.args(["prune"]).env("STEPBACK_NO_AUTOSTART", "1");
        let started = std::time::Instant::now();
        let client = start(&mut prune);
        if round == 0 {
            // How long one takes that nobody kills.
            finish(client, "stepback prune", long_deadline()).exits(0);
            whole = started.elapsed();
            continue;
        }
        pause(whole.mul_f64(random.below(1_100) as f64 / 1_000.0));
        daemon.kill();
        finish(client, "stepback prune", long_deadline());
        daemon = sandbox.daemon();
        let when = format!("in round {round}");
        eventually("the first look", long_deadline(), || {
            project.status()["settled"] == true
        });
        project.fsck();
        let ids = project.ids();
        assert!(ids.len() >= 6, "{when}: {ids:?}");
        for id in &ids {
            if let Some(number) = written.get(id) {
                assert_eq!(
                    project.show(*id, "n"),
                    number.to_string().into_bytes(),
                    "{when}: {id}"
                );
                assert!(
                    project.show(*id, "blob") == random_bytes(*number, 100_000),
                    "{when}: {id}"
                );
            }
        }
        let verified = project.json(&["status", "--verify"]);
        assert_eq!(verified["root"]["warnings"], json!([]), "{when}");
        // A checkpoint can still be made at once.
        project.write("n", &when);
        project.save();
    }
    project.json(&["prune"]);
    project.fsck();
    let counted = project.store_git("count-objects -v");
    assert!(counted.contains("garbage: 0"), "{counted}");
}

/// A clock that is far ahead when the daemon starts makes no checkpoint old.
#[test]
fn by_a_clock_that_is_far_ahead_nothing_goes() {
    let sandbox = Sandbox::new();
    sandbox.configure(
        "[retention]\nall_hours = 0\nminutely_hours = 0\nhourly_days = 0\ndaily_days = 0\nnewest = 1\n",
    );
    let project = sandbox.project("p");
    project.write("a", "1\n");
    project.attach();
    for i in 2..6 {
        project.write("a", format!("{i}\n"));
        project.save();
    }
    sandbox.stepback(sandbox.dir(), &["daemon", "stop"]).exits(0);
    let alive = std::fs::File::options()
        .write(true)
        .open(sandbox.state().join("alive"))
        .unwrap();
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(400 * 24 * 3600);
    alive.set_modified(long_ago).unwrap();
    // The one after that was alive a moment ago, by the same clock.
    for _ in 0..2 {
        sandbox.stepback(sandbox.dir(), &["daemon", "restart"]).exits(0);
        assert_eq!(project.json(&["prune"])["removed"], serde_json::json!([]));
        assert_eq!(project.ids(), [5, 4, 3, 2, 1]);
        let told = crate::support::warnings(&project, "clock");
        assert!(
            told[0]["message"].as_str().unwrap().contains("400 days ahead"),
            "{told:?}"
        );
        let found = project.stepback(&["doctor"]).exits(1).text();
        assert!(found.contains("400 days ahead"), "{found}");
    }
    // It is set back: what was believed goes on.
    sandbox.stepback(sandbox.dir(), &["daemon", "stop"]).exits(0);
    std::fs::remove_file(sandbox.state().join("clock")).unwrap();
    sandbox.stepback(sandbox.dir(), &["daemon", "start"]).exits(0);
    eventually("what is old by it goes", long_deadline(), || project.ids() == [5]);
}
