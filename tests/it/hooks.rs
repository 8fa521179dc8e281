//! What agents' hooks are for beyond turns: the save before a command that may destroy work, and edits that are counted. They
//! are quiet whatever they get. Payloads are those of the real agents.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stepback_tests::{Project, Sandbox};

const DEADLINE: Duration = Duration::from_secs(30);

#[track_caller]
pub(crate) fn eventually(what: &str, condition: impl FnMut() -> bool) {
    stepback_tests::eventually(what, DEADLINE, condition);
}

#[track_caller]
pub(crate) fn eventually_some<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    stepback_tests::eventually_some(what, DEADLINE, look)
}

/// A payload of `tests/fixtures/hooks`, at home in this project.
pub(crate) fn payload(project: &Project<'_>, agent: &str, event: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/hooks")
        .join(agent);
    let files = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(&format!("-{event}.json")));
    // Their numbers are the order in which they came.
    let file = files
        .min()
        .unwrap_or_else(|| panic!("no {event} in {}", dir.display()));
    std::fs::read_to_string(file)
        .unwrap()
        .replace("@PROJECT@", project.path.to_str().unwrap())
        .replace("@HOME@", project.sandbox.home().to_str().unwrap())
}

/// Begins a hook as an agent does: from its own directory, with the payload on stdin.
pub(crate) fn begin(project: &Project<'_>, args: &[&str], input: &str) -> Child {
    let sandbox = project.sandbox;
    let mut command = sandbox.command(sandbox.program("stepback"), &project.path);
    command.arg("hook").args(args);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    // It may not read what it doesn't need.
    drop(running.stdin.take().unwrap().write_all(input.as_bytes()));
    running
}

/// Runs a hook to its end. It says nothing and exits 0.
#[track_caller]
pub(crate) fn call(project: &Project<'_>, args: &[&str], input: &str) {
    let output = begin(project, args, input).wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert_eq!(
        (output.status.code(), String::from_utf8_lossy(&said).as_ref()),
        (Some(0), ""),
        "an agent would notice: {args:?}"
    );
}

pub(crate) fn triggers(project: &Project<'_>) -> Vec<String> {
    project
        .list()
        .iter()
        .rev()
        .map(|c| c["trigger"].as_str().unwrap().to_owned())
        .collect()
}

/// Waits until a checkpoint of this trigger and turn is listed.
pub(crate) fn turn(project: &Project<'_>, trigger: &str, turn: u64) -> Value {
    eventually_some(&format!("{trigger} of turn {turn}"), || {
        project
            .list()
            .into_iter()
            .find(|c| c["trigger"] == trigger && c["turn"] == turn)
    })
}

#[test]
fn the_present_is_saved_before_a_command_that_may_destroy_it() {
    let sandbox = Sandbox::new();
    // Nothing settles in this test: only the hook can have saved it.
    sandbox.configure("settle_ms = 60000\nmax_wait_ms = 60000\n");
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    let dir = &project.path;
    let event = |name: &str, command: &str| {
        json!({"session_id": "s", "cwd": dir, "hook_event_name": name, "prompt": "clean up", "tool_name": "Bash",
               "tool_input": {"command": command}})
        .to_string()
    };
    call(&project, &["claude-code"], &event("UserPromptSubmit", ""));
    turn(&project, "turn-start", 1);
    project.write("precious", "KEEP\n");
    call(&project, &["claude-code"], &event("PreToolUse", "ls -l"));
    assert_eq!(triggers(&project), ["attach", "turn-start"]);
    call(
        &project,
        &["claude-code"],
        &event(
            "PreToolUse",
            "cd \"$(git rev-parse --show-toplevel)\" && rm -rf ./*",
        ),
    );
    // The hook has waited: no condition to wait for here.
    assert_eq!(triggers(&project), ["attach", "turn-start", "before-command"]);
    project.sh("rm -rf ./*");
    let saved = project.list()[0].clone();
    assert_eq!(
        (&saved["turn"], &saved["prompt"]),
        (&json!(1), &json!("clean up"))
    );
    project.rewind(saved["id"].as_u64().unwrap());
    assert_eq!(project.read("precious"), b"KEEP\n");
    assert_eq!(project.status()["gaps"], json!([]));
}

#[test]
fn what_could_not_be_saved_before_a_command_is_shown_as_unprotected() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    let store = project.store();
    let away = store.with_extension("away");
    std::fs::rename(&store, &away).unwrap();
    project.write("a", "v2\n");
    let input = json!({"session_id": "s", "cwd": project.path, "hook_event_name": "PreToolUse",
        "tool_name": "Bash", "tool_input": {"command": "git reset --hard"}});
    call(&project, &["claude-code"], &input.to_string());
    std::fs::rename(&away, &store).unwrap();
    let gap = eventually_some("a gap", || {
        let status = project.status();
        status["gaps"].as_array().and_then(|gaps| gaps.first().cloned())
    });
    assert!(gap["reason"].as_str().unwrap().contains("claude-code"), "{gap}");
}

#[test]
fn edits_that_no_checkpoint_has_are_counted() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.write(".gitignore", "ignored\n");
    project.attach();
    let edit = |file: &str| {
        json!({"session_id": "s", "cwd": project.path, "hook_event_name": "PostToolUse", "tool_name": "Write",
               "tool_input": {"file_path": project.file(file)}})
        .to_string()
    };
    let event =
        |name: &str| json!({"session_id": "s", "cwd": project.path, "hook_event_name": name}).to_string();
    // An ignored file and one outside are no edits of captured files.
    call(&project, &["claude-code"], &event("UserPromptSubmit"));
    call(&project, &["claude-code"], &edit("ignored"));
    call(&project, &["claude-code"], &edit("../outside"));
    call(&project, &["claude-code"], &event("Stop"));
    turn(&project, "turn-end", 1);
    assert_eq!(project.status()["drift"], Value::Null);
    call(&project, &["claude-code"], &event("UserPromptSubmit"));
    call(&project, &["claude-code"], &edit("a"));
    call(&project, &["claude-code"], &edit("b"));
    call(&project, &["claude-code"], &event("Stop"));
    turn(&project, "turn-end", 2);
    eventually("drift", || {
        project.status()["drift"] == json!({"tool_calls": 2, "captured": 0})
    });
    let text = project.stepback(&["status"]).exits(0).text();
    assert!(
        text.contains("hooks told of 2 edits that no checkpoint has"),
        "{text}"
    );
}

#[test]
fn a_hook_is_quiet_and_quick_whatever_it_gets() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    let stop = payload(&project, "claude-code", "Stop");
    // No daemon: none is started.
    let started = Instant::now();
    call(&project, &["claude-code"], &stop);
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(project.stepback(&["daemon", "status"]).code(), 1);
    project.attach();
    let before = project.ids();
    let deep = "[".repeat(100_000);
    for input in [
        "",
        "{",
        "null",
        "{}",
        "[1,2]",
        "\u{0}",
        "{\"hook_event_name\":\"Stop\"}",
        &deep,
    ] {
        for args in [
            &["claude-code"][..],
            &["copilot", "agentStop"],
            &["codex", "{broken"],
            &["no-such-agent"],
            &["aider"],
        ] {
            call(&project, args, input);
        }
    }
    // Also what clap would complain of, and a place that isn't attached.
    call(&project, &[], "");
    call(&project, &["claude-code", "--no-such-option"], "");
    let elsewhere = json!({"session_id": "s", "cwd": "/", "hook_event_name": "UserPromptSubmit"});
    call(&project, &["claude-code"], &elsewhere.to_string());
    project.save();
    assert_eq!(project.ids(), before);
}
