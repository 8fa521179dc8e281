//! What isn't captured, and what keeps captures from working, is said with a way to mend it.

use std::fs;
use std::time::Duration;

use stepback_tests::{Sandbox, eventually};

use crate::support::{is, paths, repository};

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn a_users_file_with_a_name_like_ours_is_captured_and_ours_is_named() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\\n' > .stepback-tmp-notes; mkdir d");
    project.attach();
    let first = project.save();
    project.sh("printf 'v2\\n' > .stepback-tmp-notes");
    project.settle();
    project.rewind(first);
    is(&project, ".stepback-tmp-notes", crate::support::V1);

    let ours = "d/.stepback-tmp-0123456789abcdef";
    project.write(ours, "KEEP\n");
    project.write("a", "v1\n");
    project.save();
    assert_eq!(paths(&project.json(&["status"])["root"]["not_captured"]), [ours]);
    let report = project.json_code(&["rewind", &first.to_string(), "-y"], 3);
    assert_eq!(paths(&report["kept"]), [ours], "{report:#}");
    is(&project, ours, crate::support::KEEP);
    // It goes from the list as soon as it is gone, though no event tells of it.
    fs::remove_file(project.path.join(ours)).unwrap();
    project.write("a", "v2\n");
    project.settle();
    assert_eq!(paths(&project.json(&["status"])["root"]["not_captured"]), [""; 0]);
}

#[test]
fn what_is_kept_is_counted_first_and_a_long_list_of_it_is_shortened() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\\n' > a");
    project
        .stepback(&["attach", "--here", "--max-file-size", "1K"])
        .exits(0);
    project.sh("for n in $(seq 60); do head -c 2000 /dev/zero > large$n; done");
    project.save();
    let kept = |args: &[&str], code: i32| {
        let said = project.stepback(args).exits(code).text();
        let number = said.lines().filter(|line| line.starts_with("  kept: ")).count();
        (said, number)
    };
    let (said, shown) = kept(&["rewind", "1", "-n"], 0);
    let first = said.lines().next().unwrap();
    assert!(
        first.ends_with(": 0 files changed, 0 removed, 0 created; 60 kept"),
        "{said}"
    );
    assert_eq!(shown, 20, "{said}");
    assert!(
        said.ends_with("  ... and 40 more kept (--all shows them)\n"),
        "{said}"
    );
    assert_eq!(kept(&["rewind", "1", "-n", "--all"], 0).1, 60);
    let preview = project.json(&["rewind", "1", "-n"]);
    assert_eq!(preview["noop"], false);
    assert_eq!(paths(&preview["kept"]).len(), 60);

    let (said, shown) = kept(&["rewind", "1", "-y"], 3);
    assert!(
        said.starts_with("rewound to checkpoint 1: 0 written, 0 removed\n"),
        "{said}"
    );
    assert_eq!(shown, 20, "{said}");
    assert!(
        said.ends_with("  ... and 40 more kept (`stepback rewind 1 -n --all` shows them)\n"),
        "{said}"
    );
    assert_eq!(kept(&["rewind", "1", "-y", "--all"], 3).1, 60);
    let report = project.json_code(&["rewind", "1", "-y"], 3);
    assert_eq!(paths(&report["kept"]).len(), 60);
    // Nothing is asked where nothing would be done.
    assert_eq!(kept(&["rewind", "1"], 3).1, 20);
}

#[test]
fn an_include_pattern_that_can_take_nothing_in_is_an_error() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let refused = project.fails(&["attach", "--here", "--include", "*.[ch"], 2, "usage");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("*.[ch") && message.contains("'['"), "{message}");
    assert!(
        project.json(&["status"])["root"].is_null(),
        "nothing was attached"
    );

    project.attach();
    sandbox.configure("settle_ms = 200\ninclude = [\"good\", \"../bad\"]\n");
    project.stepback(&["daemon", "stop"]).exits(0);
    let refused = project.stepback(&["status"]).exits(1);
    assert!(
        refused.stderr.contains("config.toml:2") && refused.stderr.contains("../bad"),
        "{refused:?}"
    );
}

#[test]
fn without_git_status_says_what_is_not_covered() {
    let sandbox = Sandbox::new().with_env("PATH", "/nonexistent");
    let dir = sandbox.dir().join("work/p");
    for part in [".git/objects", ".git/refs"] {
        fs::create_dir_all(dir.join(part)).unwrap();
    }
    fs::write(dir.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(dir.join("a"), "v1\n").unwrap();
    let stepback = |args: &[&str]| sandbox.stepback(&dir, args).exits(0);
    stepback(&["attach", "--here"]);
    let status = stepback(&["--json", "status"]).json();
    let warnings = status["root"]["warnings"].as_array().unwrap();
    let found = warnings
        .iter()
        .find(|warning| warning["kind"] == "git_missing")
        .unwrap_or_else(|| panic!("no warning in {status:#}"));
    assert!(found["message"].as_str().unwrap().contains("tracked"));
}

/// Each broken thing of the user's git: what must be named, how to break it, how to mend it.
#[test]
fn a_broken_git_setting_is_named_and_captures_go_on_when_it_is_mended() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    repository(&project, "");
    project.attach();
    let cases = [
        (
            ".git/config",
            "cp .git/config ../good; echo '[broken' >> .git/config",
            "cp ../good .git/config",
        ),
        (
            ".git/index",
            "cp .git/index ../good; printf garbage > .git/index",
            "cp ../good .git/index",
        ),
        (
            "core.excludesFile",
            "git config core.excludesFile '~nosuchuser/ignore'",
            "git config --unset core.excludesFile",
        ),
        (
            "/excludes",
            "mkdir ../excludes; git config core.excludesFile \"$PWD/../excludes\"",
            "git config --unset core.excludesFile",
        ),
    ];
    for (named, break_it, mend_it) in cases {
        let known = project.ids();
        project.sh(break_it);
        project.write("a", named);
        let refused = project.fails(&["save"], 1, "config");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains(named), "{named}: {message}");
        assert!(
            refused["hint"]
                .as_str()
                .unwrap()
                .contains("until then nothing is captured"),
            "{refused:#}"
        );
        let status = project.status();
        assert_eq!(status["state"], "failed", "{named}");
        let text = project.stepback(&["status"]).exits(0).text();
        assert!(text.contains(named), "{named}: {text}");
        assert!(!text.contains("every edit so far"), "{text}");
        assert_eq!(
            project.ids(),
            known,
            "a rule that can't be read widens no capture"
        );
        project.sh(mend_it);
        project.save();
        eventually("it is watched again", PATIENCE, || {
            project.status()["state"] == "watching"
        });
    }
}
