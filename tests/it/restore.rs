//! Selected paths.

use serde_json::{Value, json};
use stepback_tests::{Project, Sandbox};

use crate::support::{entry, paths, status_of};

fn two_directories(project: &Project<'_>) -> u64 {
    project.sh(
        "mkdir -p one/deep two; printf 'v1\n' > one/a; printf 'v1\n' > one/deep/b; printf 'v1\n' > two/c; printf 'v1\n' > top
         ln -s a one/l; chmod 640 one/a",
    );
    project.attach();
    let first = project.save();
    project.sh(
        "printf 'v2\n' > one/a; chmod 755 one/a; rm -r one/deep; printf 'extra\n' > one/extra; rm one/l; ln -s b one/l
         printf 'v2\n' > two/c; printf 'v2\n' > top; mkdir one/more; printf 'x\n' > one/more/x",
    );
    first
}

#[test]
fn a_directory_becomes_as_it_was_and_the_rest_stays() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("mkdir one");
    let first = two_directories_from_here(&project);
    let edited = project.tree();
    let id = first.to_string();

    let preview = project.json(&["restore", &id, "-p", "one", "-n"]);
    assert_eq!(status_of(&preview["changes"], "one/a").as_deref(), Some("M"));
    assert_eq!(status_of(&preview["changes"], "one/extra").as_deref(), Some("D"));
    assert_eq!(status_of(&preview["changes"], "one/deep/b").as_deref(), Some("A"));
    assert!(
        paths(&preview["changes"]).iter().all(|p| p.starts_with("one")),
        "{preview:#}"
    );
    edited.same(&project.tree(), "after a preview");

    let report = project.json(&["restore", &id, "-p", "one", "-y"]);
    assert_eq!(report["target"], first);
    assert_eq!(project.read("one/a"), b"v1\n");
    assert_eq!(project.sh("stat -c %a one/a").text(), "640\n");
    assert_eq!(project.read("one/deep/b"), b"v1\n");
    assert_eq!(project.sh("readlink one/l").text(), "a\n");
    assert!(!project.file("one/extra").exists() && !project.file("one/more").exists());
    assert_eq!(
        (project.read("two/c"), project.read("top")),
        (b"v2\n".to_vec(), b"v2\n".to_vec())
    );

    // The result equals no checkpoint: it is captured at once.
    let newest = entry(&project, project.ids()[0]);
    assert_eq!(newest["trigger"], "after-operation");
    assert_eq!(project.json(&["diff", "latest", "-w"])["files"], json!([]));

    project.redo();
    edited.same(&project.tree(), "after redo");
}

fn two_directories_from_here(project: &Project<'_>) -> u64 {
    let first = two_directories(project);
    project.save();
    first
}

#[test]
fn several_paths_from_a_subdirectory_are_literal_and_relative_to_it() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("mkdir -p d; printf 'v1\n' > 'd/*'; printf 'v1\n' > d/x; printf 'v1\n' > top");
    let first = project.attach().to_string();
    project.sh("printf 'v2\n' > 'd/*'; printf 'v2\n' > d/x; printf 'v2\n' > top");
    sandbox
        .stepback(
            &project.file("d"),
            &["restore", &first, "-p", "*", "-p", "../top", "-y"],
        )
        .exits(0);
    assert_eq!(project.read("d/*"), b"v1\n");
    assert_eq!(project.read("top"), b"v1\n");
    assert_eq!(project.read("d/x"), b"v2\n", "a pattern would have taken it, too");
    let absolute = project.file("d/x");
    project
        .stepback(&["restore", &first, "-p", absolute.to_str().unwrap(), "-y"])
        .exits(0);
    assert_eq!(project.read("d/x"), b"v1\n");
}

#[test]
fn a_path_in_neither_is_an_error_and_nothing_is_changed() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let first = two_directories(&project).to_string();
    project.settle();
    let (tree, ids) = (project.tree(), project.ids());
    project.fails(&["restore", &first, "-p", "nowhere", "-y"], 1, "no_such_path");
    project.fails(
        &["restore", &first, "-p", "top", "-p", "nowhere", "-y"],
        1,
        "no_such_path",
    );
    project.stepback(&["restore", &first, "-p", "../elsewhere", "-y"]);
    tree.same(&project.tree(), "after errors");
    assert_eq!(project.ids(), ids);
}

#[test]
fn edits_that_no_checkpoint_has_are_saved_first() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    let first = project.attach().to_string();
    project.write("a", "v2 that nobody saved\n");
    let report = project.json(&["restore", &first, "-p", "a", "-y"]);
    assert_ne!(report["saved"], Value::Null);
    let saved = report["saved"].as_u64().unwrap();
    assert_eq!(project.show(saved, "a"), b"v2 that nobody saved\n");
}
