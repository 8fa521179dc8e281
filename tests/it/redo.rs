//! Taking an operation back.

use serde_json::Value;
use stepback_tests::{Project, Sandbox};

fn three(project: &Project<'_>) -> [u64; 3] {
    let mut ids = [0; 3];
    project.write("a", "v1\n");
    ids[0] = project.attach();
    project.sh("printf 'v2\n' > a; mkdir d; printf 'two\n' > d/x");
    ids[1] = project.save();
    project.sh("printf 'v3\n' > a; rm -r d; printf 'three\n' > y");
    ids[2] = project.save();
    ids
}

#[test]
fn twice_back_without_an_id_and_twice_forth() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let ids = three(&project);
    let start = project.tree();
    assert_eq!(project.json(&["rewind", "-y"])["target"], ids[1]);
    let middle = project.tree();
    assert_eq!(project.read("a"), b"v2\n");
    let back = project.json(&["rewind", "-y"]);
    assert_eq!((&back["target"], &back["redo"]), (&ids[0].into(), &2.into()));
    assert_eq!(project.read("a"), b"v1\n");
    assert_eq!(project.redo()["redo"], 1);
    middle.same(&project.tree(), "after one redo");
    assert_eq!(project.redo()["redo"], 0);
    start.same(&project.tree(), "after two");
    project.fails(&["redo", "-y"], 1, "nothing_to_redo");
}

#[test]
fn unsaved_changes_go_first() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let ids = three(&project);
    let saved = project.tree();
    project.write("a", "unsaved\n");
    assert_eq!(
        project.json(&["rewind", "-y"])["target"],
        ids[2],
        "the position, not the one before it"
    );
    saved.same(&project.tree(), "after rewind without an ID");
    project.redo();
    assert_eq!(project.read("a"), b"unsaved\n");
}

#[test]
fn later_edits_elsewhere_stay_and_edited_paths_are_marked() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let ids = three(&project);
    project.rewind(ids[0]);
    project.sh("printf 'later\n' > elsewhere; printf 'edited since\n' > a");
    let preview = project.json(&["redo", "-n"]);
    let of = |path: &str| {
        let changes = preview["changes"].as_array().unwrap();
        changes
            .iter()
            .find(|c| c["path"] == path)
            .unwrap_or_else(|| panic!("{path} in {preview:#}"))
            .clone()
    };
    assert_eq!(of("a")["edited_since"], true);
    assert_eq!(of("y")["edited_since"], false);
    assert!(!crate::support::paths(&preview["changes"]).contains(&"elsewhere".to_owned()));

    let report = project.redo();
    assert_eq!(project.read("a"), b"v3\n");
    assert_eq!(project.read("y"), b"three\n");
    assert_eq!(project.read("elsewhere"), b"later\n");
    let saved = report["saved"].as_u64().expect("the present was saved first");
    assert_eq!(project.show(saved, "a"), b"edited since\n");
}

#[test]
fn a_redo_is_taken_back_by_the_rewind_that_it_names() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let ids = three(&project);
    project.rewind(ids[0]);
    project.write("a", "between\n");
    let between = project.tree();
    let said = project.stepback(&["redo", "-y"]).exits(0);
    let all = format!("{}{}", said.text(), said.stderr);
    let number = all.split("rewind ").nth(1).and_then(|t| {
        t.split(|c: char| !c.is_ascii_digit())
            .next()
            .and_then(|n| n.parse::<u64>().ok())
    });
    project.rewind(number.unwrap_or_else(|| panic!("no `rewind N` in {all}")));
    between.same(&project.tree(), "after the rewind that takes the redo back");
}

#[test]
fn new_edits_and_reads_leave_the_stack_alone() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let ids = three(&project);
    project.rewind(ids[0]);
    project.sh("cat a > /dev/null; printf 'new\n' > b");
    project.save();
    for args in [&["list"][..], &["status"], &["diff"], &["show", "latest"]] {
        project.stepback(args).exits(0);
    }
    let redo = project.json(&["list"])["redo"].clone();
    assert_eq!(redo.as_array().unwrap().len(), 1);
    assert_eq!(
        (&redo[0]["operation"], &redo[0]["target"]),
        (&Value::from("rewind"), &Value::from(ids[0]))
    );
    assert_eq!(project.redo()["redo"], 0);
    assert_eq!(project.read("a"), b"v3\n");
    assert_eq!(project.read("b"), b"new\n");
}
