//! Repositories of unusual shape: nested ones, submodules, sparse checkouts, tracked files that rules ignore, repositories
//! of other users.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use serde_json::json;
use stepback_tests::{Project, Sandbox};

use crate::support::{KEEP, is, paths};

/// A commit made inside a nested repository, or a moved HEAD of a submodule, stopped a rewind half-way.
#[test]
fn s03_commits_inside_nested_repositories_are_files_and_nothing_else() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh(
        "git init -q ../sub; cd ../sub; for i in 1 2; do printf \"$i\n\" > s; git add s; git commit -qm $i; done; cd - > /dev/null
         git init -q .; printf 'v1\n' > a; git add a; git commit -qm one
         git -c protocol.file.allow=always submodule --quiet add ../sub sub; git commit -qm sub
         git init -q nested; printf 'n1\n' > nested/n; git -C nested add n; git -C nested commit -qm one",
    );
    project.attach();
    let first = project.save();
    let tree = project.tree();
    project.sh(
        "printf 'n2\n' > nested/n; git -C nested commit -qam two; git -C nested checkout -q -b other
         git -C sub checkout -q HEAD~1; printf 'x\n' > sub/x; git -C sub add x; git -C sub commit -qm three
         printf 'v2\n' > a; git add sub",
    );
    let (edited, git) = (project.tree(), project.git());
    project.save();
    let report = project.rewind(first);
    assert_eq!(report["kept"], json!([]));
    tree.same(&project.tree(), "after rewind");
    git.same(&project.git(), "after rewind");
    assert_eq!(
        project.sh("git -C nested branch --show-current").text(),
        "other\n"
    );
    project.redo();
    edited.same(&project.tree(), "after redo");
    git.same(&project.git(), "after redo");
}

/// Neighbours: the submodule goes and comes, and its place becomes a file.
#[test]
fn a_submodule_that_is_added_or_removed_keeps_its_git() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh(
        "git init -q ../sub; printf 's\n' > ../sub/s; git -C ../sub add s; git -C ../sub commit -qm one
                git init -q .; printf 'v1\n' > a; git add a; git commit -qm one",
    );
    project.attach();
    let without = project.save();
    project.sh("git -c protocol.file.allow=always submodule --quiet add ../sub sub; git commit -qm sub");
    let with = project.save();
    let (tree, git) = (project.tree(), project.git());
    let report = project.json_code(&["rewind", &without.to_string(), "-y"], 3);
    assert_eq!(
        paths(&report["kept"]),
        ["sub"],
        "the directory of a .git stays, and is named"
    );
    assert!(!project.file("sub/s").exists() && !project.file(".gitmodules").exists());
    git.same(&project.git(), "without the submodule");
    project.redo();
    tree.same(&project.tree(), "after redo");
    project.sh("git submodule --quiet deinit -f sub; rm -rf sub; printf 'a file\n' > sub");
    let edited = project.tree();
    project.save();
    project.rewind(with);
    tree.same(&project.tree(), "a file became a submodule's directory again");
    project.redo();
    edited.same(&project.tree(), "after the second redo");
}

/// Ignored, and tracked all the same: in any directory, also one that is ignored as a whole.
#[test]
fn tracked_files_that_rules_ignore_are_captured_and_their_neighbours_stay() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh(
        "git init -q .; printf 'out/\n*.log\n' > .gitignore; mkdir -p out/deep; printf 'v1\n' > out/deep/tracked
         printf 'v1\n' > t.log; git add -f out/deep/tracked t.log .gitignore; git commit -qm one
         printf 'KEEP\n' > out/deep/other; printf 'KEEP\n' > other.log; printf 'v1\n' > a",
    );
    project.attach();
    let first = project.save();
    project.fails(&["show", &format!("{first}:out/deep/other")], 1, "no_such_path");
    let tree = project.tree();
    project.sh("printf 'v2\n' > out/deep/tracked; rm t.log; printf 'v2\n' > a");
    let edited = project.tree();
    project.save();
    project.rewind(first);
    tree.same(&project.tree(), "after rewind");
    project.redo();
    edited.same(&project.tree(), "after redo");

    // Taken out of the index the file is ignored: it stands in the way, so its bytes are saved first.
    project.sh("git rm -q --cached out/deep/tracked; printf 'v3\n' > out/deep/tracked");
    let third = project.save();
    project.fails(&["show", &format!("{third}:out/deep/tracked")], 1, "no_such_path");
    let now = project.tree();
    project.rewind(first);
    assert_eq!(project.read("out/deep/tracked"), b"v1\n");
    is(&project, "out/deep/other", KEEP);
    project.redo();
    now.same(&project.tree(), "after the redo of an ignored file");
    is(&project, "other.log", KEEP);
}

#[test]
fn files_that_a_sparse_checkout_leaves_out_are_nobodys() {
    for cone in ["--cone", "--no-cone", "--cone --sparse-index"] {
        let sandbox = Sandbox::new();
        let project = sandbox.project("p");
        project.sh(&format!(
            "git init -q .; mkdir in out; printf 'v1\n' > in/a; printf 'v1\n' > out/b; printf 'v1\n' > top; git add -A; git commit -qm one
             git sparse-checkout set {cone} in; [ ! -e out ]"
        ));
        let status = project.sh("GIT_OPTIONAL_LOCKS=0 git status --porcelain").text();
        project.attach();
        let first = project.save();
        let (tree, git) = (project.tree(), project.git());
        project.sh("printf 'v2\n' > in/a; mkdir out; printf 'made by hand\n' > out/b; printf 'n\n' > in/n");
        let edited = project.tree();
        project.save();
        project.rewind(first);
        tree.same(&project.tree(), cone);
        git.same(&project.git(), cone);
        assert_eq!(
            project.sh("GIT_OPTIONAL_LOCKS=0 git status --porcelain").text(),
            status,
            "{cone}"
        );
        project.redo();
        edited.same(&project.tree(), cone);
    }
}

/// A worktree inside the root, in an ignored directory: the root leaves it alone, and it can be a root of its own.
#[test]
fn an_ignored_worktree_inside_is_left_alone_and_can_be_attached() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("git init -q .; printf '/.worktrees/\n' > .gitignore; printf 'v1\n' > a; git add -A; git commit -qm one
                git worktree add -q .worktrees/w");
    let inner = Project::at(&sandbox, project.file(".worktrees/w"));
    project.attach();
    inner.attach();
    let (first, theirs) = (project.save(), inner.save());
    let tree = inner.tree();
    inner.sh("printf 'v2\n' > a; printf 'n\n' > n");
    let edited = inner.tree();
    project.sh("printf 'v2\n' > a; git update-ref HEAD $(git commit-tree -m other HEAD^{tree})");
    project.save();
    project.rewind(first);
    edited.same(&inner.tree(), "the outer rewind");
    let ids = project.ids();
    inner.rewind(theirs);
    tree.same(&inner.tree(), "the inner rewind");
    assert_eq!(project.read("a"), b"v1\n");
    project.settle();
    assert_eq!(
        project.ids(),
        ids,
        "what happens in an ignored directory is no checkpoint of the root around it"
    );
    inner.redo();
    edited.same(&inner.tree(), "the inner redo");
}

/// git refuses a repository of another user; its files are captured, and what it tracks is known, all the same.
#[test]
fn a_repository_of_another_user_is_captured_by_its_own_rules() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can make a repository of another user");
        return;
    }
    let Some(sandbox) = Sandbox::of_normal_user() else {
        return;
    };
    let project = sandbox.project("p");
    let made = Command::new("sh")
        .args(["-euc", "git init -q .; printf '*.log\n' > .gitignore; printf 'v1\n' > t.log; printf 'KEEP\n' > o.log; printf 'v1\n' > a
                git add -f t.log .gitignore a; git -c user.name=R -c user.email=r@example.org commit -qm one; chown -R 0:0 .; chmod -R a+rwX ."])
        .current_dir(&project.path)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*")
        .status()
        .unwrap();
    assert!(made.success());
    let refused = project.sh("git status 2>&1 || true").text();
    assert!(refused.contains("dubious ownership"), "{refused}");
    let git = project.git();
    project.attach();
    let first = project.save();
    assert_eq!(project.show(first, "t.log"), b"v1\n");
    project.fails(&["show", &format!("{first}:o.log")], 1, "no_such_path");
    project.sh("printf 'v2\n' > a; printf 'v2\n' > t.log");
    project.save();
    // Another user's file can't be replaced with its owner kept; its bytes are what counts.
    project.stepback(&["rewind", &first.to_string(), "-y"]).exits(0);
    assert_eq!(
        (project.read("a"), project.read("t.log")),
        (b"v1\n".to_vec(), b"v1\n".to_vec())
    );
    is(&project, "o.log", KEEP);
    git.same(&project.git(), "of another user");
    assert_ne!(std::fs::metadata(project.file(".git")).unwrap().uid(), 65534);
}

/// File modes, empty directories and what `.gitattributes` would convert weren't restored, unsaid.
#[test]
fn s09_attributes_convert_nothing_and_empty_directories_come_back() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh(
        "git init -q .; mkdir -p empty/deeper full
         printf '*.txt text eol=crlf\n*.id ident\n*.u16 text working-tree-encoding=UTF-16\n*.bin -text diff=x\n*.f filter=up\n*.e export-ignore\n' > .gitattributes
         git config filter.up.clean 'tr a-z A-Z'; git config filter.up.smudge 'tr A-Z a-z'
         printf 'lf\nonly\n' > a.txt; printf 'mixed\\r\\nends\n' > b.txt; printf '$Id$ $Id: 123 $\n' > c.id; printf '\\377\\376h\\000\\n\\000' > d.u16
         printf '\\000\\r\\n' > e.bin; printf 'MixedCase\n' > g.f; printf 'x\n' > h.e; chmod 640 a.txt; chmod 700 full; printf 'x\n' > full/x
         git add -A 2>/dev/null; git commit -qm one",
    );
    project.attach();
    let first = project.save();
    let (tree, git) = (project.tree(), project.git());
    project.sh("for f in *.*; do printf 'over\n' > $f; chmod 600 $f; done; rm -r empty; chmod 755 full; rm .gitattributes");
    let edited = project.tree();
    project.save();
    project.rewind(first);
    tree.same(&project.tree(), "after rewind");
    git.same(&project.git(), "after rewind");
    project.redo();
    edited.same(&project.tree(), "after redo");
}

/// `.git` renamed during a checkpoint and left so after a crash: fifty kills in the middle of one change no name or inode.
#[test]
fn b28_kills_during_saves_leave_every_git_directory_alone() {
    let sandbox = Sandbox::new();
    let mut random = stepback_tests::Random::new("kills beside nested repositories");
    let project = sandbox.project("p");
    project.sh(
        "git init -q ../sub; printf 's\n' > ../sub/s; git -C ../sub add s; git -C ../sub commit -qm one
         git init -q .; printf 'f\n' > f; git add f; git commit -qm one
         git -c protocol.file.allow=always submodule --quiet add ../sub sub; git commit -qm sub
         git init -q nested; printf 'n\n' > nested/n; git -C nested add n; git -C nested commit -qm one",
    );
    let git = project.git();
    let mut daemon = sandbox.daemon();
    project.attach();
    for round in 0..50_u64.min(crate::support::rounds()) {
        project.sh(&format!(
            "i=0; while [ $i -lt 60 ]; do echo {round} > sub/f$i; echo {round} > nested/f$i; i=$((i+1)); done"
        ));
        let mut save = sandbox.command(sandbox.program("stepback"), &project.path);
        save.arg("save").env("STEPBACK_NO_AUTOSTART", "1");
        let client = stepback_tests::start(&mut save);
        stepback_tests::pause(std::time::Duration::from_millis(random.below(200)));
        daemon.kill();
        stepback_tests::finish(client, "stepback save", std::time::Duration::from_secs(60));
        git.same(&project.git(), &format!("in round {round}"));
        daemon = sandbox.daemon();
    }
    project.sh("for d in . sub nested; do git -C $d status > /dev/null; done");
    let id = project.save();
    assert_eq!(project.show(id, "nested/n"), b"n\n");
    drop(daemon);
}
