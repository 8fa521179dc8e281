//! The main job in a repository that is in the middle of everything: save, edit by shell, rewind, redo.

use stepback_tests::Sandbox;

use crate::support::{EDITS, MID_MERGE, repository, round_trip};

#[test]
fn a_repository_in_the_middle_of_a_merge_goes_back_and_forth_exactly() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    repository(&project, "");
    project.sh(MID_MERGE);
    let stages = project.sh("git ls-files -u | wc -l").text();
    assert_eq!(stages.trim(), "3", "the merge ought to have stopped");
    let status = project.sh("git status --porcelain").text();

    round_trip(&project, &[]);

    assert_eq!(project.sh("git status --porcelain").text(), status);
    assert_eq!(project.sh("git ls-files -u | wc -l").text().trim(), "3");
}

#[test]
fn ignored_files_stay_as_they_are() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    repository(&project, "");
    project.sh(MID_MERGE);
    project.attach();
    let first = project.save();
    project.sh("printf 'newer\n' > ignored.txt; printf 'newer\n' > out-dir/o; printf 'x\n' > out-dir/new");
    project.sh(EDITS);
    project.rewind(first);
    assert_eq!(project.read("ignored.txt"), b"newer\n");
    assert_eq!(project.read("out-dir/o"), b"newer\n");
    assert_eq!(project.read("out-dir/new"), b"x\n");
}

#[test]
fn untouched_files_keep_inode_and_time_and_written_ones_get_the_present() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\n' > a; printf 'same\n' > b; touch -d '2001-02-03 04:05:06' a b");
    project.attach();
    let first = project.save();
    let b = project.sh("stat -c '%i %Y' b").text();
    project.sh("printf 'v2\n' > a");
    let started = project.sh("date +%s").text().trim().parse::<u64>().unwrap();
    project.rewind(first);
    assert_eq!(project.sh("stat -c '%i %Y' b").text(), b);
    let written = project.sh("stat -c %Y a").text().trim().parse::<u64>().unwrap();
    assert!(
        written >= started,
        "a build tool must notice the file that was put back"
    );
}

#[test]
fn the_present_state_is_a_noop() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\n' > a");
    project.attach();
    let id = project.save();
    let before = project.ids();
    let preview = project.json(&["rewind", &id.to_string(), "-n"]);
    assert_eq!(preview["noop"], true);
    let report = project.rewind(id);
    assert_eq!(report["saved"], serde_json::Value::Null);
    assert_eq!(
        (&report["written"], &report["removed"], &report["redo"]),
        (&0.into(), &0.into(), &0.into())
    );
    assert_eq!(project.ids(), before);
}

#[test]
fn a_preview_changes_nothing_and_takes_no_number() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\n' > a");
    project.attach();
    let first = project.save();
    project.sh("printf 'v2\n' > a; printf 'n\n' > n");
    let second = project.save();
    project.sh("printf 'v3\n' > a");
    project.settle();
    let (tree, ids) = (project.tree(), project.ids());
    let preview = project.json(&["rewind", &first.to_string(), "-n"]);
    assert_eq!(preview["target"], first);
    assert_eq!(
        crate::support::status_of(&preview["changes"], "a").as_deref(),
        Some("M")
    );
    assert_eq!(
        crate::support::status_of(&preview["changes"], "n").as_deref(),
        Some("D")
    );
    assert_eq!(crate::support::paths(&preview["changes"]), ["a", "n"]);
    tree.same(&project.tree(), "after a preview");
    assert_eq!(project.ids(), ids);
    assert!(second > first);
}
