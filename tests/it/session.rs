//! Spans of checkpoints, opened by hand.

use serde_json::{Value, json};
use stepback_tests::Sandbox;

use crate::support::entry;

#[test]
fn a_session_holds_its_checkpoints_and_sums_up_what_happened() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\n' > a; printf 'gone\n' > gone; printf 'same\n' > same");
    project.attach();
    let started = project.json(&["session", "start", "work"]);
    assert_eq!(started["session"], "work");
    assert_eq!(project.status()["session"], "work");
    project.sh("printf 'v2\n' > a; rm gone; mkdir -p n/deep; printf 'new\n' > n/deep/f");
    let inside = project.save();
    let shown = project.json(&["session", "show", "work"]);
    assert_eq!(shown["created"], json!(["n/deep/f"]));
    assert_eq!(shown["modified"], json!(["a"]));
    assert_eq!(shown["deleted"], json!(["gone"]));
    assert_eq!(shown["dirs_created"], json!(["n", "n/deep"]));
    assert_eq!(shown["files_tracked"], 3);
    assert_eq!(shown["ended"], Value::Null);
    let ended = project.json(&["session", "end"]);
    assert_eq!(
        (&ended["session"], &ended["reverted"]),
        (&json!("work"), &Value::Null)
    );

    let made = entry(&project, inside);
    assert_eq!(
        (&made["session"], &made["sessions"]),
        (&json!("work"), &json!(["work"]))
    );
    assert_eq!(
        entry(&project, started["checkpoint"].as_u64().unwrap())["trigger"],
        "session-start"
    );
    assert_eq!(
        entry(&project, ended["checkpoint"].as_u64().unwrap())["trigger"],
        "session-end"
    );
    assert_eq!(project.status()["session"], "watch");
    let of_session = project.json(&["list", "--session", "work"]);
    let ids = crate::support::numbers(of_session["checkpoints"].as_array().unwrap(), "id");
    assert!(ids.contains(&inside) && !ids.contains(&1), "{ids:?}");
    project.write("a", "v3\n");
    let after = project.save();
    assert_eq!(entry(&project, after)["session"], "watch");
}

#[test]
fn revert_puts_back_the_start_and_redo_takes_that_back() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\n' > a");
    project.attach();
    project.sh("printf 'unsaved before\n' > b");
    let before = project.tree();
    project.json(&["session", "start", "work"]);
    project.sh("printf 'v2\n' > a; rm b; mkdir d; printf x > d/x");
    let edited = project.tree();
    let preview = project.json(&["session", "end", "work", "--revert", "-n"]);
    assert_eq!(preview["noop"], false);
    edited.same(&project.tree(), "after a preview");
    assert_eq!(project.status()["session"], "work", "a preview ends nothing");
    let ended = project.json(&["session", "end", "work", "--revert", "-y"]);
    assert_eq!(ended["reverted"]["redo"], 1, "{ended:#}");
    before.same(&project.tree(), "after revert");
    project.redo();
    edited.same(&project.tree(), "after redo");
}

#[test]
fn several_may_be_open_and_survive_a_restart() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    project.json(&["session", "start", "outer"]);
    project.json(&["session", "start", "inner"]);
    project.stepback(&["daemon", "restart"]).exits(0);
    let status = project.status();
    assert_eq!(status["session"], "inner");
    project.write("a", "v2\n");
    let made = entry(&project, project.save());
    assert_eq!(made["session"], "inner");
    let mut open: Vec<_> = made["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s.as_str().unwrap())
        .collect();
    open.sort_unstable();
    assert_eq!(open, ["inner", "outer"]);
    assert_eq!(project.json(&["session", "end"])["session"], "inner");
    assert_eq!(project.json(&["session", "end", "outer"])["session"], "outer");
    let error = project.fails(&["session", "end"], 1, "no_such_session");
    assert_eq!(
        (&error["message"], &error["hint"]),
        (
            &json!("no session is open"),
            &json!("`stepback session start` opens one")
        )
    );
    let error = project.fails(&["session", "end", "outer"], 1, "no_such_session");
    assert_eq!(error["message"], "session outer has ended already");
    project.fails(&["session", "end", "nowhere"], 1, "no_such_session");
    project.fails(&["session", "show", "nowhere"], 1, "no_such_session");
}

#[test]
fn names_are_checked_and_made_unique() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    let error = project.fails(&["session", "show"], 1, "no_such_session");
    assert_eq!(error["message"], "no session was opened here yet");
    for name in [
        "-x",
        "a b",
        "a/b",
        "",
        ".hidden",
        "with.dot",
        "x123456789012345678901234567890123",
    ] {
        let error = project.fails(&["session", "start", "--", name], 2, "usage");
        assert!(
            error["hint"].as_str().unwrap().contains("letters"),
            "{name}: {error}"
        );
        let said = project.stepback(&["run", &format!("--name={name}"), "--", "sh", "-c", "exit 4"]);
        let said = said.exits(4);
        assert!(said.stderr.contains("warning: no session"), "{name}: {said:#?}");
    }
    assert_eq!(project.json(&["session", "list"]), json!([]));
    assert_eq!(project.json(&["session", "start", "work"])["session"], "work");
    assert_eq!(project.json(&["session", "start", "work"])["session"], "work-2");
    let unnamed = project.json(&["session", "start"]);
    assert!(!unnamed["session"].as_str().unwrap().is_empty());
}
