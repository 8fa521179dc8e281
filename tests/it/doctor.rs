//! `doctor` finds what is wrong, names a remedy, and starts nothing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;
use stepback_tests::{Project, Sandbox, keys};

/// What it finds, after the shape was checked.
#[track_caller]
fn findings(project: &Project<'_>, code: i32) -> Vec<Value> {
    let answer = project.json_code(&["doctor"], code);
    keys(&answer, &["ok", "findings"]);
    assert_eq!(answer["ok"], code == 0, "{answer:#}");
    let findings = answer["findings"].as_array().unwrap().clone();
    for finding in &findings {
        keys(finding, &["check", "severity", "message", "hint"]);
        assert_ne!(finding["hint"], "", "a remedy for each: {finding}");
    }
    findings
}

/// That a finding of this check has this severity, and words in message or hint.
#[track_caller]
fn found(findings: &[Value], check: &str, severity: &str, words: &str) {
    let hit = findings.iter().any(|f| {
        f["check"] == check
            && f["severity"] == severity
            && format!("{} {}", f["message"], f["hint"]).contains(words)
    });
    assert!(hit, "{check}, {severity}, {words:?} in {findings:#?}");
}

#[test]
fn all_is_well_and_nothing_is_started() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let without = findings(&project, 1);
    found(&without, "daemon", "warning", "stepback daemon start");
    assert!(!sandbox.state().exists(), "it starts no daemon");
    let said = project.stepback(&["doctor"]).exits(1).text();
    for check in ["watches", "roots", "stores", "clock"] {
        let line = format!("skipped  {check}: not looked at: no daemon answers\n");
        assert!(said.contains(&line), "{line} in {said}");
    }

    project.attach();
    let with = findings(&project, 0);
    assert!(with.iter().all(|f| f["severity"] == "note"), "{with:#?}");
    // An agent that is used here and has no hooks of ours is told, and is nothing wrong.
    fs::create_dir(sandbox.home().join(".claude")).unwrap();
    fs::write(sandbox.home().join(".claude/history.jsonl"), "").unwrap();
    found(
        &findings(&project, 0),
        "hooks",
        "note",
        "stepback hooks install claude-code",
    );
    fs::remove_dir_all(sandbox.home().join(".claude")).unwrap();
    let said = project.stepback(&["doctor"]).exits(0).text();
    assert!(said.ends_with("all is well\n"), "{said}");
    for check in [
        "programs", "settings", "state", "disk", "socket", "daemon", "watches", "roots", "stores", "clock",
        "hooks",
    ] {
        assert_eq!(
            said.matches(&format!("ok       {check}: ")).count(),
            1,
            "{check} in {said}"
        );
    }
}

#[test]
fn places_that_others_reach_are_found() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    fs::set_permissions(sandbox.state(), Permissions::from_mode(0o755)).unwrap();
    let run = sandbox.dir().join("run/stepback");
    fs::set_permissions(&run, Permissions::from_mode(0o770)).unwrap();
    let found_now = findings(&project, 1);
    found(&found_now, "state", "warning", "chmod go= ");
    found(&found_now, "socket", "warning", run.to_str().unwrap());
    for dir in [sandbox.state(), run] {
        fs::set_permissions(dir, Permissions::from_mode(0o700)).unwrap();
    }
    findings(&project, 0);
}

#[test]
fn broken_settings_and_a_missing_program_are_found() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    sandbox.configure("settle_ms = oops\n");
    found(&findings(&project, 1), "settings", "error", "config.toml:1");
    sandbox.configure("");
    findings(&project, 0);
    let nowhere = [("STEPBACKD", "/nonexistent/stepbackd")];
    let said = project.stepback_env(&["doctor"], &nowhere).exits(1);
    assert!(
        said.text().contains("error    programs: /nonexistent/stepbackd"),
        "{said:#?}"
    );
    let no_git = [("PATH", "/nonexistent")];
    let said = project.stepback_env(&["doctor"], &no_git).exits(1);
    assert!(said.text().contains("warning  git: "), "{said:#?}");
}

#[test]
fn roots_that_need_attention_are_found() {
    let sandbox = Sandbox::new();
    let (gone, damaged) = (sandbox.project("gone"), sandbox.project("damaged"));
    for project in [&gone, &damaged] {
        project.write("a", "v1\n");
        project.attach();
        project.write("a", "v2\n");
        project.save();
    }
    fs::remove_dir_all(&gone.path).unwrap();
    damaged.stepback(&["daemon", "stop"]).exits(0);
    let id = damaged.store().join("refs/checkpoints");
    let root = fs::read_dir(id).unwrap().next().unwrap().unwrap().path();
    fs::write(root.join("watch/1"), "").unwrap();
    damaged.stepback(&["daemon", "start"]).exits(0);
    damaged.settle();
    let now = findings(&damaged, 1);
    found(&now, "roots", "error", gone.path.to_str().unwrap());
    found(&now, "stores", "error", "watch/1");
}

#[test]
fn a_daemon_that_lost_its_socket_is_found_and_mended_by_a_start() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    let pid = sandbox.daemon_pid().unwrap();
    fs::remove_dir_all(sandbox.dir().join("run/stepback")).unwrap();
    found(&findings(&project, 1), "daemon", "error", "stepback daemon start");
    project.stepback(&["daemon", "start"]).exits(0);
    assert_eq!(sandbox.daemon_pid(), Some(pid));
    findings(&project, 0);
}

#[test]
fn what_an_operation_left_behind_is_named_until_it_is_cleared() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf v1 > a; mkdir d");
    project.attach();
    project.settle();
    // As a power cut leaves it whose journal is lost: a copy of what is in the store.
    let left = "d/.stepback-tmp-0123456789abcdef";
    project.sh(&format!("mkdir {left}; cp a {left}/0"));
    // Events of such names are ours, and not heeded: a look at everything finds it, as each start has one.
    project.save();
    let status = project.status();
    let warning = &status["warnings"][0];
    assert_eq!(warning["kind"], "leftover", "{status:#}");
    assert!(
        warning["message"].as_str().unwrap().starts_with(left),
        "{status:#}"
    );
    assert!(
        project.stepback(&["status"]).exits(0).text().contains(left),
        "people are told, too"
    );
    found(&findings(&project, 1), "roots", "warning", "stepback recover");
    project.stepback(&["recover"]).exits(0);
    assert!(!project.file(left).exists());
    project.settle();
    assert_eq!(project.status()["warnings"], serde_json::json!([]));
    findings(&project, 0);
}

#[test]
fn a_runtime_directory_that_no_daemon_would_take_is_found() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let dir = sandbox.dir().join("run/stepback");
    fs::create_dir(sandbox.dir().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(sandbox.dir().join("elsewhere"), &dir).unwrap();
    found(&findings(&project, 1), "socket", "error", "is not a directory");
    fs::remove_file(&dir).unwrap();
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
    let now = findings(&project, 1);
    found(&now, "socket", "error", "no daemon starts");
    found(&now, "daemon", "error", "none can start");
    fs::set_permissions(&dir, Permissions::from_mode(0o711)).unwrap();
    let now = findings(&project, 1);
    found(&now, "socket", "warning", "reached by others");
    found(&now, "daemon", "warning", "stepback daemon start");
}

#[test]
fn what_stands_in_the_way_of_a_start_is_named_with_its_remedy() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let state = sandbox.state();
    fs::create_dir_all(&state).unwrap();
    fs::set_permissions(&state, Permissions::from_mode(0o700)).unwrap();
    for name in ["lock", "daemon.json", "roots.json"] {
        fs::create_dir(state.join(name)).unwrap();
    }
    for name in ["cache", "cookies", "spool", "gaps", "stores"] {
        fs::write(state.join(name), "").unwrap();
    }
    std::os::unix::fs::symlink("nothing", state.join("log")).unwrap();
    fs::create_dir(state.join("hooks.json")).unwrap();
    let now = findings(&project, 1);
    let fatal = [
        "cache",
        "cookies",
        "daemon.json",
        "gaps",
        "lock",
        "log",
        "roots.json",
        "spool",
        "stores",
    ];
    for name in fatal {
        let hint = format!("move {} away", state.join(name).display());
        found(&now, "state", "error", &hint);
    }
    found(&now, "state", "warning", "hooks.json is not a regular file");
    found(&now, "daemon", "error", "none can start");
    for _ in fatal {
        // The start names one of them, which is then moved.
        let said = project.stepback(&["daemon", "start"]).exits(1).stderr;
        let named = fatal
            .iter()
            .map(|name| state.join(name))
            .find(|path| said.contains(&format!("hint: move {} away\n", path.display())))
            .unwrap_or_else(|| panic!("none is named: {said}"));
        fs::rename(&named, sandbox.dir().join("away")).unwrap();
        let away = sandbox.dir().join("away");
        match away.is_dir() {
            true => fs::remove_dir(away).unwrap(),
            false => fs::remove_file(away).unwrap(),
        }
    }
    project.stepback(&["daemon", "start"]).exits(0);
}
