//! The main job where git is absent, elsewhere, or of another format.

use stepback_tests::{Project, Sandbox};

use crate::support::{FILES, MID_MERGE, repository, round_trip};

#[test]
fn a_directory_without_git() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("plain");
    project.sh(FILES);
    round_trip(&project, &[]);
}

#[test]
fn a_linked_worktree() {
    let sandbox = Sandbox::new();
    let main = sandbox.project("main");
    repository(&main, "");
    main.sh("git worktree add -q --detach ../wt");
    let linked = Project::at(&sandbox, main.path.with_file_name("wt"));
    linked.sh(
        "printf 'staged\n' > src/a; git add src/a; printf 'unstaged\n' > src/a; printf 'x\n' > untracked",
    );
    round_trip(&linked, &[&main]);
}

#[test]
fn worktrees_of_one_repository_share_a_store() {
    let sandbox = Sandbox::new();
    let main = sandbox.project("main");
    repository(&main, "");
    main.sh("git worktree add -q --detach ../wt");
    let linked = Project::at(&sandbox, main.path.with_file_name("wt"));
    main.attach();
    linked.attach();
    assert_eq!(main.store(), linked.store());
}

/// Git itself sets the time of a shared index whenever it reads the index: a program that asks git leaves a trace.
#[test]
fn a_repository_with_a_split_index() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    repository(&project, "");
    project.sh(
        "printf 'tracked though ignored\n' > ignored.txt; git add -f ignored.txt; git commit -qm two
         git config core.splitIndex true; git update-index --split-index; ls .git/sharedindex.*
         touch -d '2001-02-03 04:05:06' .git/sharedindex.*; printf 'unstaged\n' > src/a",
    );
    round_trip(&project, &[]);
    assert_eq!(
        project.stepback(&["show", "first:ignored.txt"]).exits(0).text(),
        "tracked though ignored\n"
    );
}

#[test]
fn a_repository_with_reftable() {
    formatted("--ref-format=reftable");
}

#[test]
fn a_repository_with_sha256() {
    formatted("--object-format=sha256");
}

fn formatted(option: &str) {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let mut git = sandbox.command("git", sandbox.dir());
    git.args(["init", "-q", option, "probe"]);
    if !git.output().is_ok_and(|o| o.status.success()) {
        println!("skipped: this git doesn't know {option}");
        return;
    }
    repository(&project, option);
    project.sh(MID_MERGE);
    round_trip(&project, &[]);
}
