//! Ways in which tools of this kind have left the tree wrong, or didn't cover what they ought to.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use stepback_tests::{Project, Sandbox};

use crate::support::{KEEP, V1, V2, V3, is, paths, status_of};

/// Changes made through the shell weren't in the checkpoint.
#[test]
fn b16_what_a_shell_did_is_undone() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh(
        "git init -q .; printf 'v1\n' > a; printf 'g\n' > gone; printf 'x\n' > x; printf '#!/bin/sh\n' > r.sh
         printf 'z\n' > z; git add -A; git commit -qm one; printf 'dirty\n' > z",
    );
    project.attach();
    let first = project.save();
    let tree = project.tree();
    project.sh(
        "sed -i s/v1/v2/ a\ncat > new <<EOF\nnew\nEOF\nrm gone; mv x y; chmod +x r.sh; git checkout -q -- z",
    );
    let edited = project.tree();
    project.save();
    project.rewind(first);
    tree.same(&project.tree(), "after rewind");
    project.redo();
    edited.same(&project.tree(), "after redo");
}

/// Repositories inside the project weren't covered, or stopped everything.
#[test]
fn b18_nested_repositories_are_files_like_any() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh(
        "for r in r1 r2; do git init -q $r; printf 'f\n' > $r/f; git -C $r add f; git -C $r commit -qm one; done
         printf 'beside\n' > beside",
    );
    project.attach();
    check_b18(&project, "r1/n", "r2/f");
}

/// The same with a nested repository, a submodule and a linked worktree in a repository.
#[test]
fn b18_submodules_and_inner_worktrees_are_files_like_any() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh(
        "git init -q ../sub; printf 's\n' > ../sub/s; git -C ../sub add s; git -C ../sub commit -qm one
         git init -q .; printf 'f\n' > boop; git add boop; git commit -qm one
         git -c protocol.file.allow=always submodule --quiet add ../sub sub; git commit -qm sub
         git worktree add -q wrk; git init -q nested; printf 'n\n' > nested/n",
    );
    project.attach();
    check_b18(&project, "sub/new", "wrk/boop");
    check_b18(&project, "nested/deep/er", "nested/n");
}

fn check_b18(project: &Project<'_>, new: &str, edited: &str) {
    let first = project.save();
    let (tree, git) = (project.tree(), project.git());
    project.sh(&format!(
        "mkdir -p $(dirname {new}); printf 'new\n' > {new}; printf 'edited\n' > {edited}"
    ));
    project.save();
    project.rewind(first);
    tree.same(&project.tree(), "after rewind");
    git.same(&project.git(), "after rewind");
}

/// File names outside ASCII were skipped or deleted.
#[test]
fn b20_any_name_that_the_kernel_takes() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let names = [
        "日本.txt",
        "nai\\314\\210ve.txt",
        "na\\303\\257ve.txt",
        "🙂",
        "new\\nline",
        "quote\"s",
        "-dash",
        " leading space",
        "*",
        ":(top)x",
        "byte\\377",
        "back\\134slash",
        "trailing ",
        "#7",
        "%s",
    ];
    let each = |script: &str| -> String {
        names
            .iter()
            .map(|n| {
                format!(
                    "f=$(printf -- '{}'; printf x); f=./${{f%x}}; {script}\n",
                    n.replace('%', "%%")
                )
            })
            .collect()
    };
    project.sh(&each("printf 'v1\n' > \"$f\""));
    assert_eq!(project.tree().files(), names.len());
    project.attach();
    let first = project.save();
    let tree = project.tree();
    project.sh(&each("printf 'v2\n' > \"$f\""));
    project.sh(&each("i=$((${i:-0}+1)); [ $((i%2)) -eq 0 ] || rm \"$f\""));
    let edited = project.tree();
    tree.differs(&edited, "after the edits");
    project.save();
    for args in [
        &["list", "--all"][..],
        &["diff", "first", "-w"],
        &["rewind", "first", "-n"],
        &["status"],
    ] {
        project.json(args);
    }
    project.rewind(first);
    tree.same(&project.tree(), "after rewind");
    project.redo();
    edited.same(&project.tree(), "after redo");
}

/// Binary files were damaged when the checkpoint was made.
#[test]
fn b21_bytes_are_bytes() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh(
        "printf '\\377\\376\\000\\200PNG\\n' > b.bin; printf '\\377\\376a\\000\\n\\000' > utf16; printf 'no end' > bare; : > empty",
    );
    project.attach();
    let first = project.save();
    let tree = project.tree();
    project.sh(
        "printf 'over\n' > b.bin; printf 'over\n' > utf16; printf 'over\n' > bare; printf 'over\n' > empty",
    );
    project.save();
    project.rewind(first);
    assert_eq!(
        project.sha256("b.bin"),
        "03c0d02f06cdccba90548cfd5a5ca22c53594da7d64d114e8e69d16547aac669"
    );
    tree.same(&project.tree(), "after rewind");
}

/// A restore turned mode 0600 into 0644, and for a moment even a moved-in file was wide open.
#[test]
fn b22_modes_come_back_and_are_never_wider() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh(
        "printf 'k1\n' > k.pem; chmod 600 k.pem; printf 'x1\n' > x.sh; chmod 750 x.sh; printf 'w1\n' > w; chmod 664 w
         mkdir d; chmod 2775 d; mkdir e; chmod 700 e; printf 'e\n' > e/e; chmod 4755 x.sh",
    );
    project.attach();
    let first = project.save();
    let tree = project.tree();
    project.sh("for f in k.pem x.sh w e/e; do printf 'over\n' > $f; done");
    let second = project.save();
    let key = project.file("k.pem");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut widest = 0;
            while !done.load(Ordering::Relaxed) {
                widest |= fs::symlink_metadata(&key).map_or(0, |m| m.mode() & 0o7777);
            }
            widest
        });
        project.rewind(first);
        done.store(true, Ordering::Relaxed);
        assert_eq!(
            watcher.join().unwrap() & !0o600,
            0,
            "k.pem was wider than 600 for a moment"
        );
    });
    tree.same(&project.tree(), "after rewind");
    project.rewind(second);
    let third = {
        project.sh("chmod -x x.sh");
        let files = project.json(&["diff"])["files"].clone();
        assert_eq!(status_of(&files, "x.sh").as_deref(), Some("M"), "{files}");
        project.save()
    };
    assert_ne!(third, second, "a mode alone makes a checkpoint");
    project.rewind(second);
    assert_eq!(fs::metadata(project.file("x.sh")).unwrap().mode() & 0o777, 0o755);
}

/// A directory was replaced by a link to the outside, and the rewind wrote the outside file.
#[test]
fn s01_nothing_is_written_through_a_link() {
    for ignored in [false, true] {
        let sandbox = Sandbox::new();
        let project = sandbox.project("p");
        let outside = sandbox.project("outside");
        outside.sh("printf 'KEEP\n' > f; printf 'KEEP\n' > other");
        project.sh(
            "git init -q .; mkdir -p d/deep; printf 'v1\n' > d/f; printf 'v1\n' > d/deep/g; : > .gitignore",
        );
        project.attach();
        let first = project.save();
        let (tree, far) = (project.tree(), outside.tree());
        project.sh("rm -r d");
        symlink(&outside.path, project.file("d")).unwrap();
        if ignored {
            project.sh("printf 'd\n' > .gitignore");
        }
        let edited = project.tree();
        project.save();
        project.rewind(first);
        tree.same(&project.tree(), "after rewind");
        far.same(&outside.tree(), "outside, after rewind");
        project.redo();
        edited.same(&project.tree(), "after redo");
        far.same(&outside.tree(), "outside, after redo");
    }
}

/// A repository cloned into the tree was deleted whole by the rewind, its `.git` too.
#[test]
fn s02_a_clone_made_since_keeps_its_git_and_comes_back() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let far = sandbox.project("far");
    far.sh(
        "git init -q .; mkdir d; printf 'f\n' > d/f; printf 'top\n' > top; git add -A; git commit -qm one",
    );
    project.sh("printf 'v1\n' > a");
    project.attach();
    let first = project.save();
    project.sh("git clone -q ../far clone; printf 'v2\n' > a");
    let (edited, git) = (project.tree(), project.git());
    project.save();
    let report = project.json_code(&["rewind", &first.to_string(), "-y"], 3);
    assert!(
        paths(&report["kept"])
            .iter()
            .any(|p| p == "clone" || p.starts_with("clone/")),
        "{report:#}"
    );
    git.same(&project.git(), "after rewind");
    is(&project, "a", V1);
    assert!(!project.file("clone/d").exists() && !project.file("clone/top").exists());
    project.redo();
    edited.same(&project.tree(), "after redo");
    git.same(&project.git(), "after redo");
}

/// Edits between a rewind and the redo were overwritten for good; a mere read wiped the redo stack.
#[test]
fn s04_every_settled_state_is_still_there() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\n' > a");
    project.attach();
    let first = project.save();
    project.sh("printf 'v2\n' > a");
    project.save();
    project.rewind(first);
    project.sh("cat a > /dev/null");
    let ids = project.ids();
    project.settle();
    assert_eq!(project.ids(), ids, "a read makes no checkpoint");
    project.sh("printf 'v3\n' > a");
    let report = project.redo();
    is(&project, "a", V2);
    let saved = report["saved"]
        .as_u64()
        .expect("the present was saved before the redo");
    assert_eq!(project.show(saved, "a"), b"v3\n");
    let all: Vec<_> = project.ids().iter().map(|&id| project.show(id, "a")).collect();
    for state in [&b"v1\n"[..], b"v2\n", b"v3\n"] {
        assert!(
            all.iter().any(|bytes| bytes == state),
            "{:?} is in no checkpoint",
            String::from_utf8_lossy(state)
        );
    }
    project.rewind(saved);
    is(&project, "a", V3);
}

/// Captured, then ignored and modified, then rewound: the present bytes were lost.
#[test]
fn s05_present_bytes_of_an_ignored_file_are_saved_before_it_is_replaced() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\n' > f; : > .gitignore");
    project.attach();
    let first = project.save();
    project.sh("printf 'f\n' > .gitignore");
    project.save();
    project.sh("printf 'v2\n' > f");
    project.rewind(first);
    is(&project, "f", V1);
    project.redo();
    is(&project, "f", V2);
    assert_eq!(project.read(".gitignore"), b"f\n");
}

/// Un-ignoring `.env` made the rewind delete it.
#[test]
fn s05_a_file_that_the_target_ignored_is_not_removed() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf '.env\n' > .gitignore; printf 'KEEP\n' > .env; printf 'v1\n' > a");
    project.attach();
    let first = project.save();
    project.sh(": > .gitignore; printf 'v2\n' > a");
    let second = project.save();
    assert_eq!(project.show(second, ".env"), b"KEEP\n");
    project.rewind(first);
    is(&project, ".env", KEEP);
    is(&project, "a", V1);
    assert_eq!(project.read(".gitignore"), b".env\n");
}

const NOTES: &str = "git init -q .; printf 'notes/\n' > .gitignore; printf 'v1\n' > a; git add -A; git commit -qm one
                     mkdir notes; i=0; while [ $i -lt 39 ]; do printf \"note $i\" > notes/$i; i=$((i+1)); done";
const WIPE: &str = "rm -f .gitignore; git clean -fdq";

/// The agent itself wiped ignored files: with an `include` pattern they come back.
#[test]
fn x22_included_files_come_back() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh(NOTES);
    project.json(&["attach", "--here", "--include", "notes/**"]);
    let first = project.save();
    let tree = project.tree();
    assert_eq!(project.show(first, "notes/38"), b"note 38");
    project.sh(WIPE);
    assert!(!project.file("notes").exists());
    project.save();
    project.rewind(first);
    tree.same(&project.tree(), "after rewind");
}

/// Without one, it is said plainly that ignored files aren't covered.
#[test]
fn x22_without_a_pattern_it_is_said_that_ignored_files_are_not_covered() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh(NOTES);
    project.attach();
    let first = project.save();
    let status = project.stepback(&["status"]).exits(0).text();
    assert!(status.contains("left out     ignored files"), "{status}");
    let list = project.stepback(&["list"]).exits(0);
    assert!(
        list.stderr.contains("ignored files are in no checkpoint"),
        "{list:?}"
    );
    project.sh(WIPE);
    project.rewind(first);
    assert_eq!(project.read(".gitignore"), b"notes/\n");
}

/// A checkpoint by stash: the pop failed, untracked files were gone. Here the tree isn't touched at all.
#[test]
fn x23_a_checkpoint_changes_nothing_in_the_tree() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("git init -q .; printf 'v1\n' > a; git add a; git commit -qm one; printf 'v2\n' > a; mkdir d; printf 'u\n' > d/u");
    let times = |dir: &Path| {
        let script = "find . -printf '%p %i %m %T@ %C@\n' | LC_ALL=C sort";
        sandbox.sh(dir, script).text()
    };
    let before = times(&project.path);
    project.attach();
    for i in 0..5 {
        project.json(&["save", "-m", &format!("label {i}")]);
    }
    assert_eq!(
        times(&project.path),
        before,
        "not an inode, mode or time may differ"
    );
    assert_eq!(project.json(&["save"])["created"], Value::Bool(false));
}
