//! What a user's git runs by itself, or sends away: hooks, pushes, fetches, promised objects. stepback sets off none of it,
//! and works from inside a hook.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use stepback_tests::{Project, Sandbox};

use crate::support::committed;

/// Every name that git runs, and some that only clients of git run.
const HOOKS: [&str; 29] = [
    "applypatch-msg",
    "pre-applypatch",
    "post-applypatch",
    "pre-commit",
    "pre-merge-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "pre-rebase",
    "post-checkout",
    "post-merge",
    "pre-push",
    "pre-receive",
    "update",
    "proc-receive",
    "post-receive",
    "post-update",
    "reference-transaction",
    "push-to-checkout",
    "pre-auto-gc",
    "post-rewrite",
    "sendemail-validate",
    "fsmonitor-watchman",
    "post-index-change",
    "p4-changelist",
    "p4-prepare-changelist",
    "p4-post-changelist",
    "p4-pre-submit",
    "pre-commit-msg",
];

fn executable(path: &Path, script: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

/// Everything that stepback does with a root.
fn all_verbs(project: &Project<'_>) {
    project.attach();
    let first = project.save();
    project.sh("printf 'v2\n' > a; printf 'new\n' > new");
    let second = project.save();
    project.json(&["diff", "first", "-w"]);
    project.rewind(first);
    project.redo();
    project.json(&["restore", &first.to_string(), "-p", "a", "-y"]);
    project.json(&["session", "start", "s"]);
    project.sh("printf 'v3\n' > a");
    project.json(&["session", "end", "s", "--revert", "-y"]);
    project.json(&["pin", &first.to_string()]);
    project.json(&["drop", &second.to_string(), "-y"]);
    project.stepback(&["daemon", "restart"]).exits(0);
    project.save();
    project.json(&["status", "--verify"]);
    project.json(&["detach", "--forget", "-y"]);
}

/// One hook call for each ref made big updates slow. Here no hook is called at all: those of the repository, those of
/// `core.hooksPath`, and those that a template would put into every new repository, our stores included.
#[test]
fn x06_no_hook_is_ever_run() {
    for place in ["repository", "hooksPath", "template"] {
        let sandbox = Sandbox::new();
        let project = sandbox.project("p");
        committed(&project);
        project.sh(
            "printf 'ign\n' > .gitignore; printf 'x\n' > ign; git add -f ign .gitignore; git commit -qm two",
        );
        let marker = sandbox.dir().join("marker");
        let dir = match place {
            "repository" => project.file(".git/hooks"),
            "hooksPath" => sandbox.dir().join("hooks"),
            _ => sandbox.dir().join("template/hooks"),
        };
        for hook in HOOKS {
            executable(&dir.join(hook), &format!("echo {hook} >> '{}'", marker.display()));
        }
        match place {
            "hooksPath" => {
                drop(sandbox.sh(sandbox.dir(), "git config --global core.hooksPath \"$PWD/hooks\""))
            }
            "template" => drop(sandbox.sh(
                sandbox.dir(),
                "git config --global init.templateDir \"$PWD/template\"",
            )),
            _ => {}
        }
        let git = project.git();
        all_verbs(&project);
        let ran = fs::read_to_string(&marker).unwrap_or_default();
        assert_eq!(ran, "", "hooks of {place} were run");
        git.same(&project.git(), place);
        // The judge: the same hooks do run when it is git that is asked.
        if place == "repository" {
            project.sh("git commit -q --allow-empty -m three");
            assert!(fs::read_to_string(&marker).unwrap().contains("post-commit"));
        }
    }
}

/// A hook that saves: git has set `GIT_DIR` and `GIT_INDEX_FILE`, and may hold the lock of the index.
#[test]
fn saving_from_inside_a_hook_works_and_leaves_the_commit_alone() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    committed(&project);
    project.sh("printf 'out\n' > .gitignore; printf 'x\n' > out; git add .gitignore; git commit -qm two");
    project.attach();
    let program = sandbox.program("stepback");
    for hook in [
        "pre-commit",
        "post-commit",
        "post-index-change",
        "reference-transaction",
    ] {
        // Each writes a line of its own: something to save.
        let script = format!(
            "echo {hook} >> log-{hook}\n'{}' save -m {hook} > /dev/null || exit 1",
            program.display()
        );
        executable(&project.file(&format!(".git/hooks/{hook}")), &script);
    }
    project.sh("printf 'v2\n' > a; git add a; git commit -qm three");
    let labels: Vec<_> = project.list().iter().map(|c| c["label"].clone()).collect();
    for hook in ["pre-commit", "post-commit", "reference-transaction"] {
        assert!(
            labels.iter().any(|l| l == hook),
            "{hook} saved nothing: {labels:?}"
        );
    }
    assert_eq!(project.sh("git log --format=%s").text(), "three\ntwo\none\n");
    assert_eq!(project.sh("git show HEAD:a").text(), "v2\n");
    project.sh("git fsck --strict 2>&1; [ ! -e .git/index.lock ]");
    let latest = project.list()[0]["id"].to_string();
    project.fails(&["show", &format!("{latest}:out")], 1, "no_such_path");

    // And a rewind from inside one: the files go back, the commit stands.
    project.sh("rm .git/hooks/*");
    executable(
        &project.file(".git/hooks/post-commit"),
        &format!("'{}' rewind first -y > /dev/null", program.display()),
    );
    project.sh("printf 'v3\n' > a; git commit -qam four");
    assert_eq!(project.read("a"), b"v1\n");
    assert_eq!(project.sh("git show HEAD:a").text(), "v3\n");
    assert_eq!(project.sh("git status --porcelain -uno").text(), " M a\n");
}

fn heads_of_the_user(name: &str) -> bool {
    ["refs/heads/main", "refs/tags/t1", "refs/remotes/origin/main"].contains(&name)
}

/// A checkpoint branch with whole transcripts was pushed with the code.
#[test]
fn x04_nothing_of_ours_leaves_with_a_push_or_a_bundle() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    committed(&project);
    project.sh("git tag -a -m t t1; git init -q --bare ../far.git; git init -q --bare ../mirror.git; git remote add origin ../far.git");
    project.attach();
    project.sh("printf 'secret\n' > untracked");
    project.json(&["save", "-m", "with a secret", "--pin"]);
    project.json(&["session", "start", "s"]);
    project.rewind(1);
    project.redo();
    project.sh(
        "git push -q origin main; git push -q --all; git push -q --tags; git push -q --mirror ../mirror.git
                git bundle create -q ../x.bundle --all",
    );
    let newest = &project.list()[0];
    let ours = [&newest["commit"], &newest["tree"]].map(|oid| oid.as_str().unwrap().to_owned());
    let secret = sandbox
        .sh(sandbox.dir(), "printf 'secret\n' | git hash-object --stdin")
        .text();
    for far in ["far.git", "mirror.git"] {
        let refs = project
            .sh(&format!("git -C ../{far} for-each-ref --format='%(refname)'"))
            .text();
        assert!(refs.lines().all(heads_of_the_user), "{far}: {refs}");
        for oid in ours.iter().map(String::as_str).chain([secret.trim()]) {
            project.sh(&format!("! git -C ../{far} cat-file -e {oid} 2>/dev/null"));
        }
    }
    let heads = project
        .sh("git bundle list-heads ../x.bundle | cut -d' ' -f2")
        .text();
    assert!(
        heads
            .lines()
            .all(|name| name == "HEAD" || heads_of_the_user(name)),
        "{heads}"
    );
}

/// Tens of thousands of refs of a tool made every fetch slow. Ours are in no repository that fetches.
#[test]
fn b35_a_fetch_says_the_same_with_two_hundred_checkpoints() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    committed(&project);
    // The judge is a clone that stepback knows nothing of.
    project.sh(
        "git init -q --bare ../far.git; git remote add origin ../far.git; git push -qu origin main
                git clone -q ../far.git ../other; git clone -q ../far.git ../judge",
    );
    project.attach();
    for i in 0..200 {
        project.write("a", format!("{i}\n"));
        project.save();
    }
    project.sh("cd ../other; git commit -q --allow-empty -m two; git push -q");
    let haves = |dir: &str| {
        let script =
            "GIT_TRACE_PACKET=1 git fetch 2>&1 | grep -E 'fetch(-pack)?> .*have' | sed 's/.*have/have/'";
        project.sh(&format!("cd {dir}; {script}")).text()
    };
    let ours = haves(".");
    assert!(ours.contains("have"), "{ours}");
    assert_eq!(ours, haves("../judge"));
}

/// Partial clone: asking for an object downloaded it, one by one, or failed offline.
#[test]
fn x08_a_partial_clone_is_captured_offline() {
    let sandbox = Sandbox::new();
    let far = sandbox.project("far");
    far.sh("git init -q .; git config uploadpack.allowFilter true; mkdir d
            for i in 1 2 3; do printf \"$i\n\" > d/$i; printf \"a $i\n\" > a; git add -A; git commit -qm $i; done");
    let project = Project::at(&sandbox, far.path.with_file_name("p"));
    let (from, to) = (far.path.display(), project.path.display());
    sandbox.sh(
        &sandbox.dir().join("work"),
        &format!("git clone -q --filter=blob:none --no-checkout 'file://{from}' '{to}'; cd '{to}'; git checkout -q main
                  printf 'log\n' > .git/info/exclude; printf 'x\n' > log; git add -f log"),
    );
    let missing = project
        .sh("git rev-list --objects --all --missing=print | grep -c '^?' || true")
        .text();
    assert_ne!(missing.trim(), "0", "the clone isn't partial");
    let marker = sandbox.dir().join("marker");
    let transport = sandbox.dir().join("transport");
    executable(&transport, &format!("echo ran >> '{}'; exit 1", marker.display()));
    project.sh(&format!(
        "git config remote.origin.uploadpack '{}'",
        transport.display()
    ));
    sandbox.sh(&far.path.clone(), "cd ..; mv far gone");
    let git = project.git();
    let before = project.tree();
    project.attach();
    let first = project.save();
    project.sh("printf 'edited\n' > a; rm -r d; printf 'y\n' > log");
    let edited = project.tree();
    project.json(&["diff", "first", "-w"]);
    project.save();
    project.rewind(first);
    before.same(&project.tree(), "after rewind");
    project.redo();
    edited.same(&project.tree(), "after redo");
    git.same(&project.git(), "of the partial clone");
    assert!(!marker.exists(), "an object was asked for over the wire");
}
