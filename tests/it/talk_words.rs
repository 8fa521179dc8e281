//! What operations say when conversations stay, aren't kept, or go back without the files.

use std::fs;
use std::time::Duration;

use serde_json::Value;
use stepback_tests::{Project, Sandbox, eventually};

use crate::talk::{pretend_claude, transcript, two_turns};

const LONG: Duration = Duration::from_secs(30);

#[test]
fn whoever_wants_a_conversation_back_is_told_that_none_is_kept() {
    let sandbox = Sandbox::new();
    sandbox.configure("conversations = false\n");
    let project = sandbox.project("p");
    let ((n1, _), (_, two)) = two_turns(&sandbox, &project);
    let n1 = n1.to_string();
    let before = project.ids();
    for option in ["--conversation-only", "--fork"] {
        for consent in ["-n", "-y"] {
            let failed = project.fails(&["rewind", &n1, consent, option], 1, "config");
            let message = failed["message"].as_str().unwrap();
            assert!(message.contains("`conversations = false`"), "{message}");
        }
    }
    assert_eq!(
        (project.ids(), project.read("hello.txt")),
        (before, b"two\n".to_vec())
    );
    project.json(&["rewind", &n1, "-y", "--files-only"]);
    assert_eq!(project.read("hello.txt"), b"one\n");
    let file = transcript(&sandbox, &project.path.canonicalize().unwrap());
    assert_eq!(fs::read_to_string(file).unwrap(), two);
}

#[test]
fn a_conversation_that_stays_is_not_nothing_to_do() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let ((n1, _), _) = two_turns(&sandbox, &project);
    let n1 = n1.to_string();
    let _agent = pretend_claude(&sandbox, &project.path);
    eventually("the agent is seen", LONG, || {
        project.status()["agents"][0]["live"] == true
    });
    let first = |args: &[&str], code: i32| {
        let text = project.stepback(args).exits(code).text();
        text.lines().next().unwrap().to_owned()
    };
    let none = format!("no conversation goes back to checkpoint {n1}");
    assert_eq!(first(&["rewind", &n1, "--conversation-only", "-n"], 0), none);
    assert_eq!(first(&["rewind", &n1, "--conversation-only", "-y"], 3), none);
    project.json(&["rewind", &n1, "-y", "--files-only"]);
    let files = format!("files are as in checkpoint {n1} already");
    assert_eq!(first(&["rewind", &n1, "-n"], 0), files);
    assert_eq!(first(&["rewind", &n1, "-y"], 0), files);
}

#[test]
fn what_takes_a_redo_back_takes_no_more_back_than_that() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let ((n1, one), (_, two)) = two_turns(&sandbox, &project);
    let n1 = n1.to_string();
    let file = transcript(&sandbox, &project.path.canonicalize().unwrap());
    let said = || fs::read_to_string(&file).unwrap();
    for (options, files, talk) in [
        (&["--files-only"][..], &b"one\n"[..], &two),
        (&["--conversation-only"], b"two\n", &one),
        (&["--fork"], b"one\n", &two),
        (&[], b"one\n", &one),
    ] {
        project.json(&[&["rewind", &n1, "-y"], options].concat());
        assert_eq!((project.read("hello.txt").as_slice(), &said()), (files, talk));
        let command = way_back(&project);
        assert_eq!(
            (project.read("hello.txt"), said()),
            (b"two\n".to_vec(), two.clone())
        );
        project.sh(&format!("{command} -y"));
        assert_eq!(
            (project.read("hello.txt").as_slice(), &said()),
            (files, talk),
            "{command}"
        );
        project.redo();
        assert_eq!(
            (project.read("hello.txt"), said()),
            (b"two\n".to_vec(), two.clone())
        );
    }
}

/// Redoes, and gives the command that the hint names.
fn way_back(project: &Project<'_>) -> String {
    let stderr = project.stepback(&["redo", "-y"]).exits(0).stderr;
    let hint = stderr.lines().find(|line| line.contains("takes this back"));
    let command = hint
        .and_then(|line| line.split('`').nth(1))
        .unwrap_or_else(|| panic!("no hint: {stderr}"));
    let program = project.sandbox.program("stepback");
    command.replacen("stepback", program.to_str().unwrap(), 1)
}

#[test]
fn run_knows_the_agent_without_hooks() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    project.sh("cp \"$(command -v sh)\" ../codex");
    project
        .stepback(&["run", "--name", "work", "--", "../codex", "-c", "echo v2 > a"])
        .exits(0);
    let list = project.list();
    let ended = list.iter().find(|c| c["trigger"] == "session-end").unwrap();
    assert_eq!(
        (&ended["agent"], &ended["turn"]),
        (&Value::from("codex"), &Value::Null)
    );
    let attached = list.iter().find(|c| c["trigger"] == "attach").unwrap();
    assert_eq!(attached["agent"], Value::Null);
    assert_eq!(project.json(&["session", "show", "work"])["agent"], "codex");
    assert_eq!(project.json(&["session", "list"])[0]["agent"], "codex");
    project
        .stepback(&["run", "--name", "other", "--", "sh", "-c", "echo v3 > a"])
        .exits(0);
    assert_eq!(project.list()[0]["agent"], Value::Null);
}
