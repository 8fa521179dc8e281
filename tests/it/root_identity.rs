//! What a root is when its git repository, or its directory, isn't the one that was attached.

use std::time::Duration;

use serde_json::Value;
use stepback_tests::{Project, Sandbox, eventually};

use crate::support::{repository, warnings};

const PATIENCE: Duration = Duration::from_secs(30);

/// The message and hint of the warning of this kind, if `status` has one.
fn warning(project: &Project<'_>, kind: &str) -> Option<(String, String)> {
    let found = warnings(project, kind).into_iter().next()?;
    let text = |key: &str| found[key].as_str().unwrap().to_owned();
    Some((text("message"), text("hint")))
}

#[test]
fn s11_after_rm_rf_git_everything_is_there_and_status_says_so() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    repository(&project, "");
    project.attach();
    let first = project.save();
    let tree = project.tree();
    assert_eq!(warning(&project, "git_changed"), None);

    project.sh("rm -rf .git src; printf 'v2\\n' > run.sh");
    project.settle();
    let (message, hint) = warning(&project, "git_changed").expect("a warning");
    assert!(message.contains("git repository is gone"), "{message}");
    assert!(hint.contains("stepback attach --here"), "{hint}");
    let text = project.stepback(&["status"]).exits(0).text();
    assert!(text.contains("its git repository is gone"), "{text}");
    assert!(project.ids().contains(&first));
    project.rewind(first);
    tree.same(&project.tree(), "after the rewind");
    assert!(project.git().is_empty(), "what is below .git is not ours to make");
    assert!(warning(&project, "git_changed").is_some(), "it stays gone");

    // Another one in its place; over a restart, too.
    project.sh("git init -q .");
    let (message, _) = warning(&project, "git_changed").expect("a warning");
    assert!(message.contains("another git repository"), "{message}");
    project.stepback(&["daemon", "restart"]).exits(0);
    eventually("it is said after a restart", PATIENCE, || {
        warning(&project, "git_changed").is_some()
    });
    // A save says nothing of the repository; an attach takes it as it is.
    project.save();
    assert!(warning(&project, "git_changed").is_some());
    project.attach();
    assert_eq!(warning(&project, "git_changed"), None);
    assert_eq!(project.ids().last(), Some(&1));
}

#[test]
fn a_git_file_that_turns_directory_and_a_new_repository_are_said() {
    let sandbox = Sandbox::new();
    let main = sandbox.project("main");
    repository(&main, "");
    main.sh("git worktree add -q ../wt");
    let wt = Project::at(&sandbox, sandbox.dir().join("work/wt"));
    wt.attach();
    wt.sh("git commit -q --allow-empty -m two; git gc -q");
    assert_eq!(warning(&wt, "git_changed"), None, "git at work changes nothing");
    wt.sh("rm .git; git init -q .");
    let (message, _) = warning(&wt, "git_changed").expect("a warning");
    assert!(message.contains("another git repository"), "{message}");

    let plain = sandbox.project("plain");
    plain.sh("printf 'v1\\n' > a");
    plain.attach();
    plain.sh("git init -q .");
    let (message, hint) = warning(&plain, "git_changed").expect("a warning");
    assert!(message.contains("it has a git repository now"), "{message}");
    assert!(!hint.contains("put `.git` back"), "{hint}");
}

#[test]
fn an_inner_root_goes_on_in_the_directory_that_an_outer_rewind_has_made() {
    let sandbox = Sandbox::new();
    let outer = sandbox.project("p");
    outer.sh("mkdir -p lib/inner; printf 'v1\\n' > lib/inner/f; printf 'v1\\n' > a");
    outer.attach();
    let first = outer.save();
    let inner = Project::at(&sandbox, outer.path.join("lib/inner"));
    inner.attach();
    let id = inner.status()["id"].clone();

    outer.sh("rm -rf lib");
    outer.settle();
    let report = outer.rewind(first);
    assert_eq!(report["kept"], Value::Array(Vec::new()));
    eventually("the inner root is watched again", PATIENCE, || {
        let status = inner.status();
        status["id"] == id && status["state"] == "watching"
    });
    inner.write("f", "v2\n");
    inner.settle();
    assert_eq!(inner.show(inner.ids()[0], "f"), b"v2\n");
    assert_eq!(inner.show(inner.ids()[1], "f"), b"v1\n");

    // A directory that somebody else made is still another one.
    outer.sh("rm -rf lib; mkdir -p lib/inner; printf 'x\\n' > lib/inner/f");
    eventually("the inner root is replaced", PATIENCE, || {
        inner.status()["state"] == "replaced"
    });
    outer.rewind(first);
    assert_eq!(inner.status()["state"], "replaced");
    inner.json(&["attach", "--here", "-y"]);
    eventually("attach settles it", PATIENCE, || {
        inner.status()["state"] == "watching"
    });
}

#[test]
fn what_a_root_went_through_on_its_way_elsewhere_is_a_gap() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    let id = project.status()["id"].clone();
    project.sh("mv ../p ../moved");
    eventually("it is missed", PATIENCE, || {
        let found = sandbox.stepback(sandbox.dir(), &["--json", "roots"]).json();
        found[0]["state"] == "missing"
    });
    // Told by whom it was seen; the actor looks after it.
    eventually("its actor knows", PATIENCE, || {
        sandbox.log().contains("the directory is Missing")
    });
    let moved = Project::at(&sandbox, sandbox.dir().join("work/moved"));
    moved.write("a", "v2\n");
    moved.attach();
    let status = moved.status();
    assert_eq!(status["id"], id);
    let gaps = status["gaps"].as_array().unwrap();
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert_eq!(gaps[0]["reason"], "the directory had moved");
}
