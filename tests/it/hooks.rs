//! What agents' hooks tell: turns, labels, and the save before a command that may destroy work. Payloads are those of the
//! real agents.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stepback_tests::{Project, Sandbox};

use crate::support::entry;

const DEADLINE: Duration = Duration::from_secs(30);

#[track_caller]
fn eventually(what: &str, condition: impl FnMut() -> bool) {
    stepback_tests::eventually(what, DEADLINE, condition);
}

#[track_caller]
fn eventually_some<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    stepback_tests::eventually_some(what, DEADLINE, look)
}

/// A payload of `tests/fixtures/hooks`, at home in this project.
fn payload(project: &Project<'_>, agent: &str, event: &str) -> String {
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

fn hook(project: &Project<'_>, agent: &str, event: &str) {
    let input = payload(project, agent, event);
    let words: &[&str] = if agent == "copilot" {
        &[agent, event]
    } else {
        &[agent]
    };
    call(project, words, &input);
}

fn triggers(project: &Project<'_>) -> Vec<String> {
    project
        .list()
        .iter()
        .rev()
        .map(|c| c["trigger"].as_str().unwrap().to_owned())
        .collect()
}

/// Waits until a checkpoint of this trigger and turn is listed.
fn turn(project: &Project<'_>, trigger: &str, turn: u64) -> Value {
    eventually_some(&format!("{trigger} of turn {turn}"), || {
        project
            .list()
            .into_iter()
            .find(|c| c["trigger"] == trigger && c["turn"] == turn)
    })
}

/// One turn in each agent's words: what it calls its start, a tool before and after, the end, and the id of the session.
const AGENTS: [(&str, [&str; 5], &str, &str); 6] = [
    (
        "claude-code",
        [
            "SessionStart",
            "UserPromptSubmit",
            "PreToolUse",
            "PostToolUse",
            "Stop",
        ],
        "c7971fcb-4c89-4b2a-b719-64a8301b7b5a",
        "Write",
    ),
    (
        "codex",
        [
            "SessionStart",
            "UserPromptSubmit",
            "PreToolUse",
            "PostToolUse",
            "Stop",
        ],
        "01a227da-867f-7763-ba05-d1934f575247",
        "Bash",
    ),
    (
        "gemini",
        [
            "SessionStart",
            "BeforeAgent",
            "BeforeTool",
            "AfterTool",
            "AfterAgent",
        ],
        "1cf90817-5b92-4309-a16c-ede6642a8702",
        "write_file",
    ),
    (
        "qwen",
        [
            "SessionStart",
            "UserPromptSubmit",
            "PreToolUse",
            "PostToolUse",
            "Stop",
        ],
        "17a2908a-e617-44de-b2c5-c910c1b0ca98",
        "write_file",
    ),
    (
        "copilot",
        [
            "sessionStart",
            "userPromptSubmitted",
            "preToolUse",
            "postToolUse",
            "agentStop",
        ],
        "5f08fea8-9455-409a-8435-097c6b17a7d1",
        "create",
    ),
    (
        "goose",
        [
            "SessionStart",
            "UserPromptSubmit",
            "PreToolUse",
            "PostToolUse",
            "SessionEnd",
        ],
        "20261129_2",
        "write",
    ),
];

#[test]
fn a_turn_of_each_agent_is_two_checkpoints_that_say_whose_it_was() {
    for (agent, events, session, tool) in AGENTS {
        let sandbox = Sandbox::new();
        let project = sandbox.project("claude proj_v1.2 é");
        project.write("a", "mine\n");
        project.attach();
        project.write("a", "mine, just before\n");
        hook(&project, agent, events[0]);
        hook(&project, agent, events[1]);
        let start = turn(&project, "turn-start", 1);
        hook(&project, agent, events[2]);
        project.write("hello.txt", "one\n");
        hook(&project, agent, events[3]);
        hook(&project, agent, events[4]);
        let end = turn(&project, "turn-end", 1);
        for checkpoint in [&start, &end] {
            assert_eq!(checkpoint["agent"], agent);
            assert_eq!(checkpoint["agent_session"], session, "{agent}");
            assert!(
                checkpoint["prompt"].as_str().unwrap().starts_with("TURN-1"),
                "{checkpoint:#}"
            );
        }
        assert_eq!(end["tools"], json!([tool]), "{agent}");
        assert_eq!(
            project.show(start["id"].as_u64().unwrap(), "a"),
            b"mine, just before\n"
        );
        assert_eq!(project.show(end["id"].as_u64().unwrap(), "hello.txt"), b"one\n");
        assert_eq!(project.status()["drift"], Value::Null, "{agent}");
        assert_eq!(project.status()["agents"][0]["session"], session);
        let preview = project.json(&["rewind", "turn:1", "-n"]);
        assert_eq!(preview["target"], start["id"], "{agent}");
        assert_eq!(preview["changes"][0]["path"], "hello.txt");
    }
}

#[test]
fn a_turn_without_an_edit_has_its_checkpoints_too() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    for _ in 0..2 {
        hook(&project, "gemini", "BeforeAgent");
        hook(&project, "gemini", "AfterAgent");
    }
    turn(&project, "turn-end", 2);
    assert_eq!(
        triggers(&project),
        ["attach", "turn-start", "turn-end", "turn-start", "turn-end"]
    );
    let first = turn(&project, "turn-start", 1)["id"].clone();
    let second = turn(&project, "turn-start", 2)["id"].clone();
    for (id, wanted) in [
        ("turn:1", &first),
        ("turn:2", &second),
        ("turn:~0", &second),
        ("turn:~1", &first),
    ] {
        assert_eq!(&project.json(&["show", id])["id"], wanted, "{id}");
    }
    project.fails(&["show", "turn:3"], 1, "no_such_checkpoint");
}

#[test]
fn a_turn_that_is_interrupted_ends_when_the_next_begins_or_the_agent_goes() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    hook(&project, "gemini", "BeforeAgent");
    turn(&project, "turn-start", 1);
    project.write("a", "v2\n");
    hook(&project, "gemini", "BeforeAgent");
    let end = turn(&project, "turn-end", 1);
    let next = turn(&project, "turn-start", 2);
    assert_eq!(project.show(end["id"].as_u64().unwrap(), "a"), b"v2\n");
    assert!(end["id"].as_u64() < next["id"].as_u64());
    hook(&project, "gemini", "SessionEnd");
    turn(&project, "turn-end", 2);

    // An agent that is gone in the middle of a turn: no shell, so that it is what called the hook.
    let input = payload(&project, "codex", "UserPromptSubmit");
    project.write("../prompt.json", input);
    project.sh("cp \"$(command -v sh)\" ../agent");
    let stepback = sandbox.program("stepback");
    let script = format!(
        "../agent -c '{} hook codex < ../prompt.json; printf v3 > a; : ' ",
        stepback.display()
    );
    project.sh(&script);
    let end = eventually_some("the end of the turn of a process that is gone", || {
        let list = project.list();
        list.into_iter()
            .find(|c| c["trigger"] == "turn-end" && c["agent"] == "codex")
    });
    assert_eq!(project.show(end["id"].as_u64().unwrap(), "a"), b"v3");
    let agents = project.status()["agents"].clone();
    assert_eq!(
        (&agents[0]["agent"], &agents[0]["live"]),
        (&json!("codex"), &json!(false))
    );
}

#[test]
fn the_same_prompt_told_again_is_no_new_turn() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    for _ in 0..3 {
        hook(&project, "qwen", "UserPromptSubmit");
    }
    hook(&project, "qwen", "Stop");
    turn(&project, "turn-end", 1);
    assert_eq!(triggers(&project), ["attach", "turn-start", "turn-end"]);
}

#[test]
fn an_agent_that_tells_of_ends_alone_has_turns() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    let before = project.attach();
    let notify = payload(&project, "codex", "notify");
    project.write("a", "v2\n");
    // As Codex does it: the payload is the last argument, and nothing is on stdin.
    call(&project, &["codex", notify.trim()], "");
    let end = turn(&project, "turn-end", 1);
    assert_eq!(
        (&end["agent"], &end["prompt"]),
        (&json!("codex"), &json!("TURN-1 make"))
    );
    assert_eq!(project.json(&["show", "turn:1"])["id"], before);

    // With hooks installed as well it is told twice, and is one.
    hook(&project, "codex", "UserPromptSubmit");
    hook(&project, "codex", "Stop");
    call(&project, &["codex", notify.trim()], "");
    turn(&project, "turn-end", 2);
    project.save();
    let ends = triggers(&project).iter().filter(|t| *t == "turn-end").count();
    assert_eq!(ends, 2, "{:?}", triggers(&project));
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
fn two_agents_side_by_side_have_their_own_turns() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    hook(&project, "claude-code", "UserPromptSubmit");
    hook(&project, "codex", "UserPromptSubmit");
    eventually("both starts", || {
        triggers(&project).iter().filter(|t| *t == "turn-start").count() == 2
    });
    project.write("a", "v2\n");
    let unclear = eventually_some("an automatic checkpoint", || {
        project.list().into_iter().find(|c| c["trigger"] == "auto")
    });
    assert_eq!(unclear["agent"], Value::Null, "nobody can say whose work it is");
    hook(&project, "claude-code", "Stop");
    eventually("the first one's end", || {
        triggers(&project).contains(&"turn-end".to_owned())
    });
    project.write("a", "v3\n");
    let clear = eventually_some("an automatic checkpoint of the other's turn", || {
        project
            .list()
            .into_iter()
            .find(|c| c["trigger"] == "auto" && c["agent"] == "codex")
    });
    assert_eq!(clear["turn"], 1);
    hook(&project, "codex", "Stop");
    eventually("both ends", || {
        triggers(&project).iter().filter(|t| *t == "turn-end").count() == 2
    });
}

#[test]
fn a_turn_goes_on_over_a_restart_of_the_daemon() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    hook(&project, "claude-code", "UserPromptSubmit");
    turn(&project, "turn-start", 1);
    project.stepback(&["daemon", "restart"]).exits(0);
    project.write("a", "v2\n");
    hook(&project, "claude-code", "Stop");
    let end = turn(&project, "turn-end", 1);
    assert_eq!(end["prompt"], "TURN-1 make");
    // Its end told again is still the same turn's.
    hook(&project, "claude-code", "SessionEnd");
    project.save();
    assert_eq!(triggers(&project).iter().filter(|t| *t == "turn-end").count(), 1);
}

#[test]
fn a_turn_goes_on_after_the_daemon_was_killed() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    let daemon = sandbox.daemon();
    project.attach();
    hook(&project, "claude-code", "UserPromptSubmit");
    turn(&project, "turn-start", 1);
    daemon.kill();
    let daemon = sandbox.daemon();
    project.settle();
    hook(&project, "claude-code", "PreToolUse");
    project.write("hello.txt", "one\n");
    let auto = eventually_some("what is captured in the turn", || {
        project.list().into_iter().find(|c| c["trigger"] == "auto")
    });
    assert_eq!(
        (&auto["turn"], &auto["prompt"]),
        (&json!(1), &json!("TURN-1 make"))
    );
    hook(&project, "claude-code", "PostToolUse");
    hook(&project, "claude-code", "Stop");
    let end = turn(&project, "turn-end", 1);
    assert_eq!(end["tools"], json!(["Write"]));
    assert_eq!(project.status()["drift"], Value::Null);

    // Interrupted, and then killed: it ends where the next one begins.
    hook(&project, "claude-code", "UserPromptSubmit");
    turn(&project, "turn-start", 2);
    daemon.kill();
    project.write("a", "v2\n");
    let _daemon = sandbox.daemon();
    project.settle();
    hook(&project, "claude-code", "UserPromptSubmit");
    let next = turn(&project, "turn-start", 3);
    let end = turn(&project, "turn-end", 2);
    assert!(end["id"].as_u64() < next["id"].as_u64());
    assert_eq!(project.show(end["id"].as_u64().unwrap(), "a"), b"v2\n");
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

#[test]
fn session_show_names_its_turns() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    project.json(&["session", "start", "work"]);
    hook(&project, "claude-code", "UserPromptSubmit");
    hook(&project, "claude-code", "Stop");
    turn(&project, "turn-end", 1);
    let start = turn(&project, "turn-start", 1);
    let shown = project.json(&["session", "show", "work"]);
    assert_eq!(
        shown["turns"],
        json!([{"turn": 1, "prompt": "TURN-1 make", "checkpoint": start["id"]}])
    );
    assert_eq!(entry(&project, start["id"].as_u64().unwrap())["session"], "work");
}
