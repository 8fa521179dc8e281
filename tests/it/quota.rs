//! How much disk is used, and what is said of it.

use std::fs;
use std::time::Duration;

use stepback_tests::{Project, Sandbox, eventually};

use crate::support::{Mount, bytes_on_disk, long_deadline, paths, random_bytes, scale, warnings};

/// A file that is rewritten with bytes that don't compress: its bytes, how often, and the quota in MiB. Eight fit.
fn rewritten() -> (usize, u64, u64) {
    match scale(0, 1) {
        0 => (3 << 20, 10, 24),
        _ => (64 << 20, 50, 512),
    }
}

/// X01, where all are protected.
#[test]
fn a_large_file_rewritten_again_and_again_stays_within_the_quota() {
    let sandbox = Sandbox::new();
    let (size, times, quota) = rewritten();
    // All of the newest 50 are protected: what doesn't fit is left out and named.
    sandbox.configure(&format!("[quota]\nstore = \"{quota} MiB\"\n"));
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    let (mut left_out, mut largest) = (0, 0);
    for i in 0..times {
        project.write("db", random_bytes(i, size));
        project.write("a", format!("{i}\n"));
        let id = project.save();
        largest = largest.max(bytes_on_disk(&project.store()));
        assert!(largest <= (quota + 1) << 20, "{largest}");
        assert_eq!(
            project.show(id, "a"),
            format!("{i}\n").into_bytes(),
            "small changes always"
        );
        left_out += project.list()[0]["not_captured"].as_u64().unwrap();
    }
    println!(
        "{times} times {} MiB: {left_out} left out, at most {} MiB of {quota}",
        size >> 20,
        largest >> 20
    );
    assert!(left_out > 0);
    // The list says in which, and why.
    let listed = project.stepback(&["list"]).exits(0).text();
    assert!(listed.contains("not captured"), "{listed}");
    let status = project.status();
    assert_eq!(paths(&status["not_captured"]), ["db"]);
    assert_eq!(status["not_captured"][0]["reason"], "quota");
    let told = warnings(&project, "quota");
    assert!(
        !told.is_empty() && told[0]["hint"].as_str().unwrap().contains("[quota]"),
        "{status:#}"
    );
    // A rewind saves it all the same before it goes anywhere.
    let report = project.rewind(2);
    let saved = report["saved"].as_u64().unwrap();
    assert_eq!(
        project.json(&["show", &saved.to_string()])["not_captured"],
        serde_json::json!([])
    );
    project.redo();
    assert!(project.read("db") == random_bytes(times - 1, size));
    project.fsck();
}

/// X01, where the older ones may go.
#[test]
fn the_oldest_go_first_and_the_space_is_really_returned() {
    let sandbox = Sandbox::new();
    let (size, times, quota) = rewritten();
    sandbox.configure(&format!(
        "[quota]\nstore = \"{quota} MiB\"\n[retention]\nnewest = 2\n"
    ));
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    for i in 0..times {
        project.write("db", random_bytes(i, size));
        let id = project.save();
        // Whatever didn't fit at once fits after room was made.
        let deadline = Duration::from_secs(scale(60, 600));
        eventually("it is captured", deadline, || {
            project.settle();
            let newest = project.ids()[0];
            newest >= id && project.list()[0]["not_captured"] == 0
        });
        let used = bytes_on_disk(&project.store());
        assert!(used <= (quota + 1) << 20, "{used}");
    }
    assert!(project.read("db") == project.show(project.ids()[0], "db"));
    let ids = project.ids();
    println!("{} of {times} are left", ids.len());
    let told = warnings(&project, "quota");
    let went = |w: &serde_json::Value| {
        w["message"]
            .as_str()
            .unwrap()
            .contains("went in the last 24 hours")
    };
    assert!(told.iter().any(went), "nothing goes without a word: {told:?}");
    // A few fit; at full size they are a fifth.
    assert!(
        ids.len() < usize::try_from(times).unwrap() - 1 && ids.len() < 12,
        "{ids:?}"
    );
    project.fsck();
    assert_eq!(
        project.json(&["status", "--verify"])["root"]["not_captured"],
        serde_json::json!([])
    );
}

#[test]
fn attach_asks_for_force_when_a_directory_is_larger_than_a_store_may_be() {
    let sandbox = Sandbox::new();
    sandbox.configure("[quota]\nstore = \"8 MiB\"\n");
    let project = sandbox.project("p");
    for i in 0..5u64 {
        project.write(&format!("f{i}"), random_bytes(i, 2 << 20));
    }
    let refused = project.fails(&["attach", "--here"], 1, "refused_root");
    assert!(refused["hint"].as_str().unwrap().contains("--force"), "{refused}");
    let stores = std::fs::read_dir(sandbox.state().join("stores")).unwrap().count();
    assert_eq!(stores, 0, "nothing is left of it");
    assert_eq!(project.json(&["roots"]), serde_json::json!([]));
    let attached = project.json(&["attach", "--here", "--force"]);
    assert_eq!(attached["files"], 5);
    assert_eq!(project.status()["not_captured"], serde_json::json!([]));
    assert!(!warnings(&project, "quota").is_empty());
}

/// X02.
#[test]
fn worktrees_share_what_they_have_in_common() {
    let sandbox = Sandbox::new();
    let main = sandbox.project("main");
    for i in 0..scale(20, 420) {
        main.write(&format!("f{i}"), random_bytes(i, 500_000));
    }
    main.sh("git init -q . && git add -A && git commit -qm one");
    main.attach();
    main.settle();
    let one = bytes_on_disk(&main.store());
    let mut trees = vec![main.clone()];
    for i in 1..5 {
        main.sh(&format!("git worktree add -q ../wt{i}"));
        let tree = sandbox.project(&format!("wt{i}"));
        tree.attach();
        trees.push(tree);
    }
    for (i, tree) in trees.iter().enumerate() {
        for session in 0..2 {
            tree.json(&["session", "start", &format!("s{session}")]);
            tree.write("notes", format!("{i} {session}\n"));
            tree.json(&["session", "end", &format!("s{session}"), "--keep"]);
        }
        assert_eq!(tree.store(), main.store());
    }
    let roots = main.json(&["roots"]);
    let shared = |root: &serde_json::Value| root["store_shared_with"] == 4;
    assert!(roots.as_array().unwrap().iter().all(shared), "{roots:#}");
    let five = bytes_on_disk(&main.store());
    println!("one tree {} KiB, five {} KiB", one >> 10, five >> 10);
    assert!(five as f64 <= one as f64 * 1.2, "{one} became {five}");
    main.fsck();

    // What only old checkpoints of one of them hold goes with a prune.
    sandbox.configure(
        "[retention]\nall_hours = 0\nminutely_hours = 0\nhourly_days = 0\ndaily_days = 0\nnewest = 1\n",
    );
    sandbox.stepback(sandbox.dir(), &["daemon", "restart"]).exits(0);
    for i in 0..4u64 {
        main.write("f0", random_bytes(100 + i, 2 << 20));
        main.save();
    }
    let before = bytes_on_disk(&main.store());
    main.json(&["prune"]);
    let after = bytes_on_disk(&main.store());
    assert!(before - after > 4 << 20, "{before} -> {after}");
    for tree in &trees {
        let verified = tree.json(&["status", "--verify"]);
        assert!(
            verified["root"]["warnings"]
                .as_array()
                .unwrap()
                .iter()
                .all(|w| w["kind"] != "store_damaged"),
            "{verified:#}"
        );
    }
}

#[test]
fn the_size_of_a_store_is_known_right_after_a_save() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    project.settle();
    let before = project.status()["store"]["bytes"].as_u64().unwrap();
    project.write("big", random_bytes(1, 3 << 20));
    project.save();
    let told = project.status()["store"]["bytes"].as_u64().unwrap();
    assert!(told > before + (3 << 20), "{before} -> {told}");
    let real = bytes_on_disk(&project.store());
    assert!(told.abs_diff(real) < 200_000, "{told} told, {real} measured");
    eventually("`roots` says it too", Duration::from_secs(10), || {
        project.json(&["roots"])[0]["store_bytes"] == told
    });
}

/// Attached, with a store that uses a little more than 80 % of the 20 MiB that it may.
fn nearly_full(sandbox: &Sandbox) -> Project<'_> {
    sandbox.configure("[quota]\nstore = \"20 MiB\"\n");
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    assert!(warnings(&project, "quota").is_empty());
    project.write("large", random_bytes(1, 13 << 20));
    project.save();
    project
}

#[test]
fn from_80_percent_on_status_and_doctor_say_so() {
    let sandbox = Sandbox::new();
    let project = nearly_full(&sandbox);
    assert_eq!(project.status()["not_captured"], serde_json::json!([]));
    let told = warnings(&project, "quota");
    assert_eq!(told.len(), 1, "{told:?}");
    let message = told[0]["message"].as_str().unwrap();
    assert!(message.contains("of the 20 MiB"), "{message}");
    let hint = told[0]["hint"].as_str().unwrap();
    assert!(hint.contains("stepback prune"), "{hint}");
    let shown = project.stepback(&["status"]).exits(0).text();
    assert!(shown.contains(message), "{shown}");
    let found = project.stepback(&["doctor"]).exits(1).text();
    assert!(found.contains(message) && found.contains(hint), "{found}");
}

/// So much of the file system stays free, whatever the store may still use.
#[test]
fn the_floor_of_free_space_holds_and_nothing_is_lost() {
    let sandbox = Sandbox::new();
    let state = sandbox.dir().join("state");
    let Some(_mount) = Mount::tmpfs(&sandbox, &state, "size=160m,mode=700") else {
        return;
    };
    let free = || {
        let stats = nix::sys::statvfs::statvfs(&state).unwrap();
        stats.blocks_available() * stats.fragment_size()
    };
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    // Somebody else fills the disk: 16 MiB are left, and 5 % of 160 MiB are 8.
    let others = state.join("others");
    fs::write(&others, vec![1; usize::try_from(free()).unwrap() - (16 << 20)]).unwrap();
    for i in 0..6u64 {
        project.write("large", random_bytes(i, 4 << 20));
        project.write("a", format!("{i}\n"));
        let id = project.save();
        assert_eq!(project.show(id, "a"), format!("{i}\n").into_bytes());
        assert!(free() >= (8 << 20) - (1 << 20), "{} are free", free());
    }
    let status = project.status();
    assert_eq!(status["not_captured"][0]["path"], "large", "{status:#}");
    assert_eq!(status["not_captured"][0]["reason"], "quota", "{status:#}");
    assert!(!warnings(&project, "quota").is_empty());
    // What is left out is unknown: a rewind keeps it, or saves it with the room that the floor holds back.
    let before = project.tree();
    project.rewind(2);
    project.redo();
    before.same(
        &project.tree(),
        "there and back on a disk with nothing but the floor",
    );
    fs::remove_file(&others).unwrap();
    let id = project.save();
    assert!(project.show(id, "large") == random_bytes(5, 4 << 20));
    assert_eq!(project.status()["not_captured"], serde_json::json!([]));
    assert!(warnings(&project, "quota").is_empty());
    project.fsck();
}

#[test]
fn a_file_larger_than_the_whole_quota_is_left_out_and_the_rest_goes_on() {
    let sandbox = Sandbox::new();
    sandbox.configure("[quota]\nstore = \"8 MiB\"\n[retention]\nnewest = 1\n");
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    let first = project.attach();
    let mut last = first;
    for i in 0..3u64 {
        project.write("huge", random_bytes(i, 20 << 20));
        project.write("a", format!("{i}\n"));
        last = project.save();
    }
    assert_eq!(paths(&project.status()["not_captured"]), ["huge"]);
    assert!(bytes_on_disk(&project.store()) <= 9 << 20);
    assert_eq!(project.show(last, "a"), b"2\n");
    // It doesn't cost the others their place: no room that could be made would do.
    assert!(project.ids().contains(&first), "{:?}", project.ids());
}

/// All stores together are at their limit because of one that is left alone: it gives its share, and the one at work isn't
/// emptied for it.
#[test]
fn at_the_limit_of_all_stores_each_gives_its_share() {
    let sandbox = Sandbox::new();
    sandbox.configure("[quota]\ntotal = \"60 MiB\"\n[retention]\nnewest = 1\n");
    let (idle, busy) = (sandbox.project("idle"), sandbox.project("busy"));
    for project in [&idle, &busy] {
        project.write("a", "v1\n");
        project.attach();
    }
    for i in 0..12u64 {
        idle.write("large", random_bytes(i, 3 << 20));
        idle.save();
    }
    for i in 0..6u64 {
        busy.write("large", random_bytes(100 + i, 2 << 20));
        busy.save();
    }
    let before = [idle.ids().len(), busy.ids().len()];
    assert_eq!(before, [13, 7]);
    busy.write("large", random_bytes(200, 8 << 20));
    busy.save();
    eventually("the other one gives, too", long_deadline(), || {
        idle.ids().len() < 13
    });
    let used = || bytes_on_disk(&idle.store()) + bytes_on_disk(&busy.store());
    assert!(used() <= 61 << 20, "{}", used());
    assert!(busy.ids().len() > 4, "{:?}", busy.ids());
    eventually("what was left out has room", long_deadline(), || {
        busy.save();
        busy.list()[0]["not_captured"] == 0
    });
    assert!(busy.show(busy.ids()[0], "large") == random_bytes(200, 8 << 20));
    for project in [&idle, &busy] {
        project.fsck();
    }
}

/// Files that each are small, rewritten again and again: together they are as dear as a large one.
#[test]
fn small_files_rewritten_again_and_again_stay_within_the_quota() {
    let sandbox = Sandbox::new();
    let state = sandbox.dir().join("state");
    let Some(_mount) = Mount::tmpfs(&sandbox, &state, "size=64m,mode=700") else {
        return;
    };
    sandbox.configure("settle_ms = 20\n[quota]\nstore = \"16 MiB\"\n");
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    for i in 0..30u64 {
        project.write("out.bin", random_bytes(i, 900_000));
        project.write("a", format!("{i}\n"));
        let id = project.save();
        assert_eq!(project.show(id, "a"), format!("{i}\n").into_bytes());
        let used = bytes_on_disk(&project.store());
        assert!(used <= 21 << 20, "{used}");
    }
    let status = project.status();
    assert_eq!(paths(&status["not_captured"]), ["out.bin"]);
    assert_eq!(status["not_captured"][0]["reason"], "quota");
    assert_ne!(status["state"], "failed", "{status:#}");
    assert!(!warnings(&project, "quota").is_empty(), "{status:#}");
    project.fsck();
}

/// A store of which most is to go can't be packed anew beside itself: what goes is given back all the same.
#[test]
fn the_oldest_go_also_where_the_store_is_larger_than_what_is_free() {
    let sandbox = Sandbox::new();
    let state = sandbox.dir().join("state");
    let Some(_mount) = Mount::tmpfs(&sandbox, &state, "size=96m,mode=700") else {
        return;
    };
    sandbox.configure("settle_ms = 20\n[quota]\nstore = \"40 MiB\"\n[retention]\nnewest = 2\n");
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    let stats = nix::sys::statvfs::statvfs(&state).unwrap();
    let free = stats.blocks_available() * stats.fragment_size();
    fs::write(
        state.join("others"),
        vec![1; usize::try_from(free).unwrap() - (46 << 20)],
    )
    .unwrap();
    for i in 0..16u64 {
        project.write("db", random_bytes(i, 3 << 20));
        project.save();
        eventually("it is captured", long_deadline(), || {
            project.settle();
            project.list()[0]["not_captured"] == 0
        });
        let used = bytes_on_disk(&project.store());
        assert!(used <= 41 << 20, "{used}");
    }
    let told = warnings(&project, "quota");
    let went = |w: &serde_json::Value| {
        w["message"]
            .as_str()
            .unwrap()
            .contains("went in the last 24 hours")
    };
    assert!(told.iter().any(went), "{told:?}");
    // And it is still told of after a restart.
    sandbox.stepback(sandbox.dir(), &["daemon", "restart"]).exits(0);
    let told = warnings(&project, "quota");
    assert!(told.iter().any(went), "{told:?}");
    project.fsck();
}

/// What no attached root can give back doesn't cost the attached ones their history, and is named with its remedy.
#[test]
fn what_a_detached_root_holds_is_named_and_costs_no_other_its_history() {
    let sandbox = Sandbox::new();
    let old = sandbox.project("old");
    for i in 0..10u64 {
        old.write(&format!("f{i}"), random_bytes(i, 3 << 20));
    }
    old.attach();
    old.json(&["detach"]);
    sandbox.configure("settle_ms = 20\n[quota]\ntotal = \"32 MiB\"\n[retention]\nnewest = 2\n");
    sandbox.stepback(sandbox.dir(), &["daemon", "restart"]).exits(0);
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    for i in 0..12 {
        project.write("a", format!("{i}\n"));
        project.save();
    }
    let named = || {
        let told = warnings(&project, "quota");
        let all: Vec<_> = told.iter().map(ToString::to_string).collect();
        all.iter().find(|text| text.contains("detach --forget")).cloned()
    };
    eventually("the store is named", long_deadline(), || named().is_some());
    let named = named().unwrap();
    assert!(named.contains(&old.path.display().to_string()), "{named}");
    project.settle();
    assert_eq!(project.ids().len(), 13, "none of the small ones had to go");
}

/// On a full disk no store can be packed anew beside itself: packs of which nothing is needed go at once, and the others are
/// written anew one by one.
#[test]
fn on_a_full_disk_what_is_dropped_is_given_back() {
    let sandbox = Sandbox::new();
    let state = sandbox.dir().join("state");
    let Some(_mount) = Mount::tmpfs(&sandbox, &state, "size=40m,mode=700") else {
        return;
    };
    sandbox.configure("settle_ms = 20\n[quota]\nfree = \"0\"\n");
    let project = sandbox.project("p");
    let write = |round: u64| {
        for i in 0..200 {
            project.write(&format!("f{i}"), random_bytes(1_000 * round + i, 20_000));
        }
    };
    write(0);
    project.attach();
    let mut round = 0;
    loop {
        round += 1;
        assert!(round < 20, "the disk never became full");
        write(round);
        if project.stepback(&["save"]).code() != 0 {
            break;
        }
    }
    let used = bytes_on_disk(&project.store());
    let dropped = project.json(&["drop", "2", "3", "4", "-y"]);
    let freed = dropped["freed_bytes"].as_u64().unwrap();
    assert!(freed > 11 << 20, "{dropped}");
    assert!(used - bytes_on_disk(&project.store()) > 11 << 20);
    project.fsck();
    // It goes on.
    let saved = project.save();
    assert!(project.show(saved, "f7") == random_bytes(1_000 * round + 7, 20_000));
    assert!(project.show(1, "f7") == random_bytes(7, 20_000));
    assert_eq!(
        project.json(&["status", "--verify"])["root"]["warnings"],
        serde_json::json!([])
    );
}
