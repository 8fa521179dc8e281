//! Ways in which restores of tools of this kind have lost people's work.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde_json::json;
use stepback_tests::{Project, Sandbox};

use crate::support::{KEEP, V1, V2, V3, entry, is, paths, status_of};

fn tree_id(project: &Project<'_>, id: u64) -> String {
    entry(project, id)["tree"].as_str().unwrap().to_owned()
}

/// Redo from a subdirectory put weeks-old files into the sibling directory.
#[test]
fn b01_the_whole_root_whatever_directory_one_stands_in() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("git init -q .; mkdir fe be; printf 'fe1\n' > fe/app; printf 'be OLD\n' > be/srv; git add -A; git commit -qm one");
    let (fe, be) = (project.file("fe"), project.file("be"));
    let attached = sandbox.stepback(&be, &["--json", "attach"]).exits(0).json();
    assert_eq!(
        attached["path"],
        project.path.to_str().unwrap(),
        "the top level of the work tree"
    );
    sandbox.stepback(&be, &["save"]).exits(0);
    project.sh("printf 'be NEW\n' > be/srv; git commit -qam two");
    let first = sandbox.stepback(&fe, &["--json", "save"]).exits(0).json()["id"].to_string();
    sandbox.sh(&fe, "printf 'fe2\n' > app");
    sandbox.stepback(&fe, &["save"]).exits(0);
    is(&project, "be/srv", "c88a2813");
    sandbox.stepback(&fe, &["rewind", &first, "-y"]).exits(0);
    is(&project, "be/srv", "c88a2813");
    assert_eq!(project.read("fe/app"), b"fe1\n");
    assert_eq!(project.sh("git status --porcelain").text(), "");
    sandbox.stepback(&fe, &["redo", "-y"]).exits(0);
    is(&project, "be/srv", "c88a2813");
    assert_eq!(project.read("fe/app"), b"fe2\n");
}

/// Restore ran a clean and removed every untracked file.
#[test]
fn b02_untracked_files_are_named_before_they_go_and_come_back() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("git init -q .; mkdir src out; printf 'a\n' > src/a; git add -A; git commit -qm one; printf 'v1\n' > out/old.jsonl");
    project.attach();
    let first = project.save();
    project.sh("printf 'v2\n' > out/new.jsonl; printf 'agent\n' > src/a");
    project.save();
    let old = fs::metadata(project.file("out/old.jsonl")).unwrap();
    let preview = project.json(&["rewind", &first.to_string(), "-n"]);
    assert_eq!(
        status_of(&preview["changes"], "out/new.jsonl").as_deref(),
        Some("D")
    );
    let text = project
        .stepback(&["rewind", &first.to_string(), "-n"])
        .exits(0)
        .text();
    assert!(text.contains("out/new.jsonl"), "{text}");
    assert!(project.file("out/new.jsonl").exists(), "a preview writes nothing");
    project.rewind(first);
    assert!(!project.file("out/new.jsonl").exists());
    is(&project, "out/old.jsonl", V1);
    project.redo();
    is(&project, "out/new.jsonl", V2);
    is(&project, "out/old.jsonl", V1);
    assert_eq!(
        fs::metadata(project.file("out/old.jsonl")).unwrap().ino(),
        old.ino()
    );
}

/// An uncommitted ignore rule went first, then the files it protected.
#[test]
fn b03_what_the_present_rules_ignore_is_not_removed() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("git init -q .; : > .gitignore; printf 'v1\n' > a; git add -A; git commit -qm one");
    project.attach();
    let first = project.save();
    project.sh("printf '/cache/\n' > .gitignore; mkdir cache; printf 'KEEP\n' > cache/k; printf 'v2\n' > a");
    project.save();
    project.rewind(first);
    assert_eq!(project.read(".gitignore"), b"");
    is(&project, "a", V1);
    is(&project, "cache/k", KEEP);
    project.redo();
    assert_eq!(project.read(".gitignore"), b"/cache/\n");
    is(&project, "a", V2);
    is(&project, "cache/k", KEEP);
}

/// Files over the size cap were deleted by the "safe" restore, and reported as restored.
#[test]
fn b04_files_over_the_cap_are_kept_and_named() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\n' > a; head -c 65535 /dev/urandom > big.bin");
    project.json(&["attach", "--here", "--max-file-size", "64 KiB"]);
    let first = project.save();
    project.sh("printf 'xx' >> big.bin; printf 'v2\n' > a; head -c 70000 /dev/urandom > big2.bin");
    project.save();
    let (one, two) = (project.sha256("big.bin"), project.sha256("big2.bin"));
    let report = project.json_code(&["rewind", &first.to_string(), "-y"], 3);
    let mut kept = paths(&report["kept"]);
    kept.sort();
    assert_eq!(kept, ["big.bin", "big2.bin"]);
    is(&project, "a", V1);
    assert_eq!(
        (project.sha256("big.bin"), project.sha256("big2.bin")),
        (one.clone(), two.clone())
    );
    project.redo();
    is(&project, "a", V2);
    assert_eq!(
        (project.sha256("big.bin"), project.sha256("big2.bin")),
        (one, two)
    );
    let said = project.stepback(&["rewind", &first.to_string(), "-y"]).exits(3);
    let all = format!("{}{}", said.text(), said.stderr);
    assert!(
        all.contains("kept") && all.contains("big.bin") && all.contains("big2.bin"),
        "{said:#?}"
    );
}

/// A failed add was ignored and the old tree written again.
#[test]
fn b06_a_nested_repository_without_a_commit_stops_nothing() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("git init -q .; printf 'one\n' > f");
    project.attach();
    let first = project.save();
    project.sh("printf 'two\n' > f; git init -q vend");
    let second = project.save();
    project.sh("printf 'three\n' > f");
    let third = project.save();
    let trees = [first, second, third].map(|id| tree_id(&project, id));
    assert!(
        trees[0] != trees[1] && trees[1] != trees[2] && trees[0] != trees[2],
        "{trees:?}"
    );
    assert_eq!(project.store_git(&format!("cat-file -p {}:f", trees[1])), "two\n");
    let git = project.git();
    project.rewind(second);
    assert_eq!(project.read("f"), b"two\n");
    is(&project, "f", "27dd8ed4");
    git.same(&project.git(), "after rewind");
}

/// Undo deleted a file that the person put there during the agent's turn.
#[test]
fn b07_a_persons_file_is_named_and_comes_back() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\n' > a; printf 'KEEP\n' > ../notes.csv");
    project.attach();
    let first = project.save();
    project.sh("cat notes.csv 2>/dev/null || true; mv ../notes.csv .");
    project.save();
    let preview = project.json(&["rewind", &first.to_string(), "-n"]);
    assert_eq!(status_of(&preview["changes"], "notes.csv").as_deref(), Some("D"));
    project.rewind(first);
    project.redo();
    is(&project, "notes.csv", KEEP);
}

/// Undo in one session took back the work of others, and could not be redone.
#[test]
fn b08_sessions_in_one_tree_are_named_and_come_back() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\n' > a; printf 'v1\n' > b");
    project.attach();
    project.json(&["session", "start", "X"]);
    let first = project.save();
    project.sh("printf 'v2\n' > a");
    project.save();
    project.json(&["session", "start", "Y"]);
    project.sh("printf 'v2\n' > b");
    project.save();
    let preview = project.json(&["rewind", &first.to_string(), "-n"]);
    assert_eq!(paths(&preview["changes"]), ["a", "b"]);
    project.rewind(first);
    is(&project, "a", V1);
    is(&project, "b", V1);
    project.redo();
    is(&project, "a", V2);
    is(&project, "b", V2);
}

/// Edits made by hand after the agent's last write vanished at rewind.
#[test]
fn b09_edits_of_the_last_moment_come_back() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\n' > a");
    project.attach();
    let first = project.save();
    project.sh("printf 'v2\n' > a");
    project.save();
    let id = first.to_string();
    let program = sandbox.program("stepback");
    project.sh(&format!(
        "printf 'v3\n' > a; '{}' rewind {id} -y",
        program.display()
    ));
    is(&project, "a", V1);
    project.redo();
    is(&project, "a", V3);
}

/// One baseline tree pinned for 25 days.
#[test]
fn b10_every_round_is_a_tree_of_its_own_over_restarts() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    let mut trees = Vec::new();
    for i in 1..=30 {
        project.sh(&format!("printf '{i}' > f"));
        trees.push(project.json(&["save"])["tree"].as_str().unwrap().to_owned());
        if i == 10 || i == 20 {
            project.stepback(&["daemon", "restart"]).exits(0);
        }
    }
    for (i, tree) in trees.iter().enumerate() {
        assert_eq!(
            project.store_git(&format!("cat-file -p {tree}:f")),
            (i + 1).to_string()
        );
    }
    let mut different = trees.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), 30);
}

/// A rewind of more than 500 paths says so in its first line.
#[test]
fn b10_a_large_rewind_says_so_first() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    let first = project.save();
    project.sh("mkdir d; i=0; while [ $i -lt 600 ]; do printf $i > d/$i; i=$((i+1)); done");
    project.save();
    let text = project
        .stepback(&["rewind", &first.to_string(), "-n"])
        .exits(0)
        .text();
    let line = text.lines().next().unwrap_or_default();
    let numbers = line.replace([',', '.'], "");
    let count = numbers
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|n| n.parse::<u64>().ok())
        .max();
    assert!(count >= Some(600), "first line of the preview: {line}");
}

/// A snapshot of one worktree was restored over another.
#[test]
fn b11_checkpoints_of_another_worktree_or_clone_are_unknown() {
    let sandbox = Sandbox::new();
    let main = sandbox.project("main");
    main.sh("git init -q .; printf 'v1\n' > a; git add a; git commit -qm one; git worktree add -q ../wt; git clone -q . ../clone");
    main.attach();
    main.save();
    let most = main.ids()[0];
    for name in ["wt", "clone"] {
        let other = Project::at(&sandbox, main.path.with_file_name(name));
        other.attach();
        let mut theirs = 0;
        while theirs <= most + 1 {
            other.sh("echo v2 >> a");
            theirs = other.save();
        }
        main.fails(&["rewind", &theirs.to_string(), "-y"], 1, "no_such_checkpoint");
        main.fails(&["show", &theirs.to_string()], 1, "no_such_checkpoint");
        assert!(main.ids().iter().all(|&id| id <= most), "{:?}", main.ids());
        is(&main, "a", V1);
    }
}

/// The same for a project that was moved, with another put in its place.
#[test]
fn b11_a_directory_in_the_place_of_another_is_not_it() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\n' > a");
    let id = project.json(&["attach", "--here"])["id"].clone();
    project.sh("printf 'v2\n' > a");
    project.save();
    sandbox.sh(
        &sandbox.dir().join("work"),
        "mv p moved; mkdir p; printf 'KEEP\n' > p/a",
    );
    project.fails(&["rewind", "first", "-y"], 1, "root_replaced");
    is(&project, "a", KEEP);
    let moved = Project::at(&sandbox, project.path.with_file_name("moved"));
    let attached = moved.json(&["attach", "--here"]);
    assert_eq!(
        (&attached["id"], &attached["created"]),
        (&id, &json!(false)),
        "the history moved along"
    );
    moved.json(&["rewind", "first", "-y"]);
    is(&moved, "a", V1);
    is(&project, "a", KEEP);
}

/// Files that became ignored after a checkpoint were deleted by undo.
#[test]
fn b14_what_became_ignored_is_not_removed() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("git init -q .; printf 'v1\n' > a; : > .gitignore; git add -A; git commit -qm one");
    project.attach();
    let first = project.save();
    project.sh("printf 'KEEP\n' > s.txt");
    project.save();
    project.sh("printf 's.txt\n' > .gitignore");
    project.save();
    project.rewind(first);
    is(&project, "s.txt", KEEP);
}

/// A failing ignore rule fails the checkpoint, it doesn't widen it.
#[test]
fn b14_a_rule_that_cannot_be_read_fails_the_capture() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("git init -q .; printf 'secret\n' > ../excludes; git config core.excludesFile \"$PWD/../excludes\"; printf 's\n' > secret; printf 'v1\n' > a");
    project.attach();
    let before = project.ids();
    project.sh("mkdir ../broken; git config core.excludesFile \"$PWD/../broken\"; printf 'v2\n' > a");
    let said = project.stepback(&["save"]).exits(1);
    assert!(
        said.stderr.starts_with("stepback: ") && said.stderr.contains("broken"),
        "{said:#?}"
    );
    assert_eq!(project.ids(), before);
    project.sh("git config core.excludesFile \"$PWD/../excludes\"");
    let id = project.save();
    assert_eq!(project.show(id, "a"), b"v2\n");
    project.fails(&["show", &format!("{id}:secret")], 1, "no_such_path");
}

/// A restore that failed half-way had already deleted files, and looked like "nothing done".
#[test]
fn b15_a_directory_that_cannot_be_written_is_no_half_done_rewind() {
    let Some(sandbox) = Sandbox::of_normal_user() else {
        return;
    };
    let project = sandbox.project("p");
    project.sh("mkdir d; printf 'v1\n' > d/x");
    project.attach();
    let first = project.save();
    let target = project.tree();
    project.sh("printf 'v2\n' > d/x; mkdir e; printf 'v2\n' > e/y");
    project.save();
    project.sh("chmod 555 d");
    let before = project.tree();
    let said = project.stepback(&["rewind", &first.to_string(), "-y"]);
    if said.code() == 0 {
        target.same(&project.tree(), "the directory's own mode is part of the target");
        project.redo();
        before.same(&project.tree(), "after redo");
    } else {
        assert!(
            format!("{}{}", said.text(), said.stderr).contains("d/x"),
            "{said:#?}"
        );
        before.same(&project.tree(), "a refused rewind changes nothing");
    }
}

/// Neighbours: the root itself, and every directory on the way, may forbid writing now, in the target, or in both. The bits
/// of a directory are part of the target, so each rewind and redo is exact, and no temporary directory stays.
#[test]
fn b15_roots_and_directories_without_write_permission() {
    let Some(sandbox) = Sandbox::of_normal_user() else {
        return;
    };
    for (name, then, now) in [("both", 555, 555), ("then", 555, 755), ("now", 755, 555)] {
        let project = sandbox.project(name);
        project.sh(&format!(
            "mkdir -p d/e; printf '1\n' > a; printf '1\n' > d/e/x; chmod {then} d/e d ."
        ));
        project.attach();
        let first = project.save();
        let target = project.tree();
        project.sh(&format!(
            "printf '2\n' > a; printf '2\n' > d/e/x; chmod {now} d/e d ."
        ));
        project.save();
        let before = project.tree();
        project.rewind(first);
        target.same(&project.tree(), name);
        project.redo();
        before.same(&project.tree(), name);
        project.json(&["restore", &first.to_string(), "-p", "d/e/x", "-y"]);
        assert_eq!(project.read("d/e/x"), b"1\n", "{name}");
        assert_eq!(project.tree().leftovers(), Vec::<String>::new(), "{name}");
        assert_eq!(
            project.status()["root"]["unfinished"],
            serde_json::Value::Null,
            "{name}"
        );
        project.sh("chmod -R u+w .");
    }
}
