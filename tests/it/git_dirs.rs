//! Git directories that aren't named `.git`: what is in them is git's, whatever names them.

use serde_json::json;
use stepback_tests::{Project, Sandbox};

use crate::support::paths;

/// The commits, refs, stash and state of a repository, and every entry of its directories with inode and time.
fn repository(project: &Project<'_>, at: &str, dirs: &str) -> String {
    project
        .sh(&format!(
            "find {dirs} -printf '%p %y %m %i %T@ %s\\n' | sort
             cd {at}; git for-each-ref; git log --all --format=%H; git stash list; git reflog; git fsck --no-dangling"
        ))
        .exits(0)
        .text()
}

/// Commits and a stash between two checkpoints survive a rewind, and a redo leaves the commits made in between.
#[track_caller]
fn survives(project: &Project<'_>, at: &str, dirs: &str) {
    project.attach();
    let first = project.save();
    let seen = project.json(&["diff", &first.to_string()]);
    let git_files = paths(&seen["files"]);
    assert!(
        !git_files
            .iter()
            .any(|path| path.ends_with("/HEAD") || path.contains("/objects/")),
        "{git_files:?}"
    );
    project.sh(&format!(
        "cd {at}; git gc -q; printf 'v2\n' > b; git add b; git commit -qm two; printf 'v3\n' >> b; git stash -q; printf 'v4\n' > a"
    ));
    project.settle();
    let before = repository(project, at, dirs);
    let report = project.rewind(first);
    assert_eq!(report["kept"], json!([]), "{report:#}");
    assert_eq!(before, repository(project, at, dirs), "after the rewind");
    assert!(!project.file(&format!("{at}/b")).exists());
    project.sh(&format!("cd {at}; git add -A .; git commit -qm three"));
    let after = repository(project, at, dirs);
    project.redo();
    assert_eq!(after, repository(project, at, dirs), "after redo");
    assert_eq!(project.read(&format!("{at}/a")), b"v4\n");
    // All the same after a start with and without what is in memory.
    project.stepback(&["daemon", "restart"]).exits(0);
    project.save();
    project.rewind(first);
    assert_eq!(after, repository(project, at, dirs), "after a restart");
    project.fsck();
}

#[test]
fn a_separate_git_dir_survives() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("git init -q --separate-git-dir=gd .; printf 'v1\n' > a; git add a; git commit -qm one; git branch feature");
    survives(&project, ".", "gd");
}

#[test]
fn a_bare_repository_with_worktrees_survives() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh(
        "git init -q ../src; cd ../src; printf 'v1\n' > a; git add a; git commit -qm one; cd - > /dev/null
         git clone -q --bare ../src .bare; echo 'gitdir: ./.bare' > .git; git worktree add -q main",
    );
    survives(&project, "main", ".bare");
}

#[test]
fn a_linked_git_dir_survives() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("git init -q .; printf 'v1\n' > a; git add a; git commit -qm one; mv .git .gitreal; ln -s .gitreal .git");
    survives(&project, ".", ".gitreal");
}

#[test]
fn projects_whose_git_dirs_are_elsewhere_in_the_root_survive() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh(
        "mkdir -p .repo/projects .repo/project-objects/p.git proj; git init -q proj; cd proj
         printf 'v1\n' > a; git add a; git commit -qm one; mv .git ../.repo/projects/p.git; ln -s ../.repo/projects/p.git .git
         cd ..; mv .repo/projects/p.git/objects .repo/project-objects/p.git/objects
         ln -s ../../project-objects/p.git/objects .repo/projects/p.git/objects; git -C proj status",
    );
    survives(
        &project,
        "proj",
        ".repo/projects .repo/project-objects/p.git/objects",
    );
}

/// Worktrees in a bare repository are the user's files, and the rest of it is git's.
#[test]
fn worktrees_inside_a_bare_repository_are_captured() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh(
        "git init -q ../src; cd ../src; printf 'v1\n' > a; git add a; git commit -qm one; cd - > /dev/null
         git clone -q --bare ../src b.git; git -C b.git worktree add -q main; git -C b.git worktree add -q x/deep",
    );
    survives(
        &project,
        "b.git/main",
        "b.git/objects b.git/refs b.git/worktrees b.git/logs",
    );
    let last = project.save();
    assert_eq!(project.show(last, "b.git/x/deep/a"), b"v1\n");
    project.fails(&["show", &format!("{last}:b.git/HEAD")], 1, "no_such_path");
}

/// What an older checkpoint holds of a directory that turned out to be git's is neither written nor removed; and one that
/// was git's stays so when the file goes that named it. A bare repository that nothing names is files.
#[test]
fn what_was_captured_of_one_before_stays_out_of_it() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("git init -q --bare gd; git init -q --bare fixture.git; printf 'v1\n' > a");
    project.attach();
    let first = project.save();
    project.show(first, "gd/HEAD");
    project.sh(
        "echo 'gitdir: gd' > .git; git config core.bare false; git add a; git commit -qm one; printf 'v2\n' > a
         rm -rf fixture.git",
    );
    project.settle();
    let before = repository(&project, ".", "gd");
    let preview = project.json(&["rewind", &first.to_string(), "-n"]);
    assert_eq!(paths(&preview["kept"]), ["gd"], "{preview:#}");
    let report = project.json_code(&["rewind", &first.to_string(), "-y"], 3);
    assert_eq!(paths(&report["kept"]), ["gd"], "{report:#}");
    assert_eq!(before, repository(&project, ".", "gd"));
    assert_eq!(project.read("a"), b"v1\n");
    assert!(project.file("fixture.git/HEAD").exists());
    project.redo();
    assert_eq!(before, repository(&project, ".", "gd"));

    let named = project.save();
    project.sh("rm .git; printf 'v3\n' > a");
    project.stepback(&["daemon", "restart"]).exits(0);
    let last = project.save();
    project.fails(&["show", &format!("{last}:gd/HEAD")], 1, "no_such_path");
    project.rewind(named);
    project.sh("echo 'gitdir: gd' > .git");
    assert_eq!(before, repository(&project, ".", "gd"));
}

/// A directory that must go stays for the sake of the git directory in it.
#[test]
fn a_directory_with_one_in_it_stays() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\n' > a");
    project.attach();
    let first = project.save();
    project.sh("mkdir -p d/meta w; git init -q --separate-git-dir=d/meta/gd w; printf 'x\n' > w/x; git -C w add x; git -C w commit -qm x");
    project.settle();
    let before = repository(&project, "w", "d/meta/gd");
    let report = project.json_code(&["rewind", &first.to_string(), "-y"], 3);
    assert_eq!(paths(&report["kept"]), ["d/meta", "w"], "{report:#}");
    assert_eq!(before, repository(&project, "w", "d/meta/gd"));
}
