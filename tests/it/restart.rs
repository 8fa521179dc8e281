//! The daemon goes and comes back.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use stepback_tests::{Sandbox, eventually};

use crate::support::entry;

#[test]
fn records_that_cannot_be_read_are_told_and_the_others_are_usable() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "0\n");
    project.attach();
    for i in 1..=6 {
        project.write("a", format!("{i}\n"));
        project.save();
    }
    let of_kind = |status: &Value, kind: &str| -> Vec<Value> {
        let warnings = status["warnings"].as_array().unwrap();
        warnings.iter().filter(|w| w["kind"] == kind).cloned().collect()
    };
    assert_eq!(of_kind(&project.status(), "damaged"), Vec::<Value>::new());
    let id = project.status()["id"].as_str().unwrap().to_owned();
    let refs = project.store().join(format!("refs/checkpoints/{id}/watch"));
    project.stepback(&["daemon", "stop"]).exits(0);
    for n in 2..=5 {
        // As a power cut leaves it.
        fs::write(refs.join(n.to_string()), "").unwrap();
    }
    project.stepback(&["daemon", "start"]).exits(0);
    project.settle();
    let told = of_kind(&project.status(), "damaged");
    assert_eq!(told.len(), 1, "{told:?}");
    let message = told[0]["message"].as_str().unwrap();
    assert!(
        message.contains("watch/2") && message.contains("and 1 more"),
        "{message}"
    );
    assert!(
        told[0]["hint"].as_str().unwrap().contains("status --verify"),
        "{told:?}"
    );
    let verified = project.json(&["status", "--verify"])["root"].clone();
    let listed = of_kind(&verified, "store_damaged");
    for n in 2..=5 {
        assert!(
            listed
                .iter()
                .any(|w| w["message"].as_str().unwrap().contains(&format!("watch/{n}"))),
            "{n} in {listed:#?}"
        );
    }
    assert_eq!(project.show(1, "a"), b"0\n");
    project.rewind(6);
}

#[test]
fn a_restart_that_cannot_start_stops_nothing() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    let pid = sandbox.daemon_pid().unwrap();
    let registry = sandbox.state().join("roots.json");
    let good = fs::read(&registry).unwrap();

    sandbox.configure("settle_ms = oops\n");
    let error = project.fails(&["daemon", "restart"], 1, "config");
    assert!(
        error["message"].as_str().unwrap().contains("config.toml"),
        "{error}"
    );
    sandbox.configure("log = \"info\"\n");
    fs::write(&registry, "{").unwrap();
    let error = project.fails(&["daemon", "restart"], 1, "config");
    assert!(
        error["message"].as_str().unwrap().contains("roots.json"),
        "{error}"
    );
    fs::write(&registry, good).unwrap();
    let nowhere = [("STEPBACKD", "/nonexistent/stepbackd")];
    project.stepback_env(&["daemon", "restart"], &nowhere).exits(1);
    project.stepback(&["daemon", "status"]).exits(0);
    assert_eq!(sandbox.daemon_pid(), Some(pid), "the same one all the time");

    project.stepback(&["daemon", "restart"]).exits(0);
    assert_ne!(sandbox.daemon_pid(), Some(pid));
    project.settle();
}

#[test]
fn edits_made_meanwhile_become_one_reconcile_checkpoint_and_all_roots_resume() {
    let sandbox = Sandbox::new();
    let (one, two, three) = (
        sandbox.project("one"),
        sandbox.project("two"),
        sandbox.project("three"),
    );
    for project in [&one, &two, &three] {
        project.sh("printf 'v1\n' > a; mkdir d; printf 'v1\n' > d/b");
        project.attach();
        project.save();
    }
    let before = [one.ids(), two.ids(), three.ids()];
    one.stepback(&["daemon", "stop"]).exits(0);
    assert_eq!(one.stepback(&["daemon", "status"]).code(), 1);
    one.sh("printf 'v2\n' > a; rm d/b; mkdir e; printf 'new\n' > e/c");
    two.sh("printf 'v2\n' > d/b");
    one.stepback(&["daemon", "start"]).exits(0);

    for (project, ids) in [(&one, &before[0]), (&two, &before[1])] {
        eventually("the reconcile checkpoint", Duration::from_secs(30), || {
            project.ids().len() > ids.len()
        });
        project.settle();
        let now = project.ids();
        assert_eq!(now.len(), ids.len() + 1, "one for all that happened");
        let made = entry(project, now[0]);
        assert_eq!(made["trigger"], "reconcile");
        assert_eq!(made["base"], ids[0]);
        assert_eq!(
            project.json(&["diff", "latest", "-w"])["files"],
            serde_json::json!([])
        );
    }
    three.settle();
    assert_eq!(three.ids(), before[2], "nothing happened there");

    let roots = one.json(&["roots"]);
    assert_eq!(roots.as_array().unwrap().len(), 3);
    for root in roots.as_array().unwrap() {
        assert!(
            ["watching", "polling"].contains(&root["state"].as_str().unwrap()),
            "{root}"
        );
    }
    for project in [&one, &two, &three] {
        project.write("a", "v3\n");
        project.settle();
        assert_eq!(project.stepback(&["show", "latest:a"]).exits(0).text(), "v3\n");
    }
}

#[test]
fn the_store_describes_itself_when_registry_and_caches_are_gone() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\n' > a");
    project.attach();
    let first = project.save();
    project.json(&["session", "start", "work"]);
    project.sh("printf 'v2\n' > a; printf 'n\n' > n");
    let second = project.save();
    project.json(&["session", "end"]);
    project.json(&["session", "start", "open"]);
    project.json(&["pin", &second.to_string()]);
    project.sh("printf 'v3\n' > a");
    project.rewind(first);
    let highest = project.ids()[0];

    let story = || {
        let list = project.json(&["list", "--all"]);
        let root = project.status();
        let sessions = project.json(&["session", "list"]);
        let pick = |keys: &[&str], of: &Value| keys.iter().map(|k| of[*k].clone()).collect::<Vec<_>>();
        (
            list["checkpoints"].clone(),
            list["redo"].clone(),
            list["current"].clone(),
            pick(
                &[
                    "path",
                    "id",
                    "session",
                    "sessions",
                    "checkpoints",
                    "redo",
                    "store",
                ],
                &root,
            )
            .into_iter()
            .map(|mut v| {
                // Its size moves with what maintenance did.
                if let Some(store) = v.as_object_mut() {
                    store.remove("bytes");
                }
                v
            })
            .collect::<Vec<_>>(),
            sessions,
        )
    };
    let before = story();
    project.stepback(&["daemon", "stop"]).exits(0);
    fs::remove_file(sandbox.state().join("roots.json")).unwrap();
    drop(fs::remove_dir_all(sandbox.state().join("cache")));
    project.fails(&["list"], 1, "not_attached");
    let attached = project.json(&["attach", "--here"]);
    assert_eq!(attached["created"], false, "{attached}");
    assert_eq!(story(), before);

    project.redo();
    assert_eq!(project.read("a"), b"v3\n");
    assert_eq!(project.read("n"), b"n\n");
    project.write("a", "v4\n");
    assert!(project.save() > highest, "a number is never given twice");
}

#[test]
fn a_store_that_is_gone_at_the_start_harms_no_other_root_and_attach_begins_anew() {
    let sandbox = Sandbox::new();
    let (bad, good) = (sandbox.project("bad"), sandbox.project("good"));
    bad.write("a", "v1\n");
    for project in [&bad, &good] {
        project.attach();
    }
    let store = bad.store();
    bad.stepback(&["daemon", "stop"]).exits(0);
    fs::remove_dir_all(&store).unwrap();
    bad.stepback(&["daemon", "start"]).exits(0);
    let root = bad.status();
    assert_eq!(root["state"], "failed", "{root:#}");
    let warning = &root["warnings"][0];
    let message = warning["message"].as_str().unwrap();
    assert!(
        message.contains(store.to_str().unwrap()) && message.contains("is gone"),
        "{root:#}"
    );
    assert!(
        warning["hint"].as_str().unwrap().contains("stepback attach"),
        "{root:#}"
    );
    let error = bad.fails(&["save"], 1, "store_damaged");
    assert!(
        error["hint"].as_str().unwrap().contains("stepback attach"),
        "{error:#}"
    );
    good.write("a", "v1\n");
    good.save();

    assert_eq!(bad.attach(), 1);
    assert_eq!(bad.status()["state"], "watching");
    assert_eq!(bad.show(1, "a"), b"v1\n");
    assert_eq!(bad.json(&["roots"]).as_array().unwrap().len(), 2);
    bad.stepback(&["daemon", "restart"]).exits(0);
    bad.settle();
    assert_eq!(bad.ids(), [1]);
}

#[test]
fn the_time_without_a_daemon_is_a_gap_that_outlives_it() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    assert_eq!(project.status()["gaps"], serde_json::json!([]));
    project.stepback(&["daemon", "stop"]).exits(0);
    let alive = sandbox.state().join("alive");
    sandbox.sh(
        sandbox.dir(),
        &format!("touch -d 2024-05-06T07:08:09Z '{}'", alive.display()),
    );
    project.stepback(&["daemon", "start"]).exits(0);
    project.settle();
    let gaps = project.status()["gaps"].clone();
    let [gap] = &gaps.as_array().unwrap()[..] else {
        panic!("{gaps:#}")
    };
    assert_eq!(gap["reason"], "the daemon wasn't running");
    assert!(
        gap["from"].as_str().unwrap().starts_with("2024-05-06T07:08:09"),
        "{gap:#}"
    );
    project.stepback(&["daemon", "restart"]).exits(0);
    project.settle();
    let again = project.status()["gaps"].clone();
    assert_eq!(again[0], *gap, "{again:#}");
}

#[test]
fn numbers_are_not_reused_after_drop_and_restart() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\n' > a");
    let first = project.attach();
    project.write("a", "v2\n");
    let second = project.save();
    project.rewind(first);
    project.json(&["redo", "-y"]);
    project.rewind(first);
    project.stepback(&["drop", &second.to_string(), "-y"]).exits(0);
    project.stepback(&["daemon", "restart"]).exits(0);
    project.write("a", "v3\n");
    assert!(project.save() > second);
    project.fails(&["show", &second.to_string()], 1, "no_such_checkpoint");
}

#[test]
fn a_term_takes_the_pending_checkpoint_and_ends_within_five_seconds() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.daemon();
    let project = sandbox.project("p");
    project.attach();
    project.write("a", "just written\n");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.ended(Duration::from_secs(6)), Some(0));
    let _daemon = sandbox.daemon();
    project.settle();
    let latest = project.list()[0].clone();
    assert_eq!(
        project.stepback(&["show", "latest:a"]).exits(0).text(),
        "just written\n"
    );
    assert_eq!(
        latest["trigger"], "auto",
        "taken before the end, not found after it: {latest}"
    );
}

#[test]
fn a_kill_loses_no_checkpoint() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.daemon();
    let project = sandbox.project("p");
    project.attach();
    for i in 0..5 {
        project.write("a", format!("{i}\n"));
        project.save();
    }
    let before = project.list();
    daemon.kill();
    let _daemon = sandbox.daemon();
    assert_eq!(project.list(), before);
    project.fsck();
}

#[test]
fn a_second_daemon_says_who_serves_already() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.daemon();
    let project = sandbox.project("p");
    let mut second = sandbox.command(sandbox.program("stepbackd"), sandbox.dir());
    second.arg("--foreground");
    let second = stepback_tests::finish(
        stepback_tests::start(&mut second),
        "the second daemon",
        Duration::from_secs(20),
    )
    .exits(0);
    assert!(
        format!("{}{}", second.text(), second.stderr).contains(&daemon.pid().to_string()),
        "it names the pid: {second:#?}"
    );
    project.attach();
}

#[test]
fn a_daemon_at_an_odd_socket_is_found_by_its_note() {
    let sandbox = Sandbox::alone();
    let dir = sandbox.dir().join("100%25");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let socket = dir.join("s");
    let at_socket = [("STEPBACK_SOCKET", socket.to_str().unwrap())];
    sandbox
        .stepback_env(sandbox.dir(), &["daemon", "start"], &at_socket)
        .exits(0);
    let nothing_else = [("STEPBACK_NO_AUTOSTART", "1")];
    sandbox
        .stepback_env(sandbox.dir(), &["roots"], &nothing_else)
        .exits(0);
}

#[test]
fn roots_that_are_not_there_hold_up_no_first_look() {
    let sandbox = Sandbox::new();
    let [x, y, a, b, there] = ["x", "y", "a", "b", "there"].map(|name| sandbox.project(name));
    // The more files, the later it is looked at: the first two, then those that will be gone.
    for (files, project) in [&x, &y, &a, &b, &there].into_iter().enumerate() {
        for file in 0..=files * 10 {
            project.write(&format!("f{file}"), "v1\n");
        }
        project.attach();
    }
    for project in [&a, &b] {
        sandbox.sh(sandbox.dir(), &format!("mv {0} {0}.away", project.path.display()));
    }
    eventually("they are missed", Duration::from_secs(60), || {
        sandbox.log().matches("the directory is Missing").count() == 2
    });
    sandbox.stepback(sandbox.dir(), &["daemon", "stop"]).exits(0);
    there.write("f0", "v2\n");
    sandbox.stepback(sandbox.dir(), &["daemon", "start"]).exits(0);
    // Nobody waits for the turn of another for so long.
    eventually("it is watched", Duration::from_secs(8), || {
        there.status()["state"] == "watching"
    });
    assert_eq!(there.show(there.ids()[0], "f0"), b"v2\n");
}
