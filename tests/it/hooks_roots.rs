//! Agents that go from one root to another, and that are faster than a busy daemon.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stepback_tests::{Guarded, Project, Sandbox, eventually_some, start};

const DEADLINE: Duration = Duration::from_secs(30);
const ID: &str = "c0ffee00-0000-4000-8000-000000000001";

/// Claude Code as its hooks and its transcript show it; it began in `root`.
struct Claude<'a> {
    sandbox: &'a Sandbox,
    root: PathBuf,
    transcript: PathBuf,
}

impl<'a> Claude<'a> {
    fn new(project: &Project<'a>, home: &str) -> Self {
        let root = project.path.canonicalize().unwrap();
        let slug: String = root
            .to_str()
            .unwrap()
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let dir = project.sandbox.home().join(home).join("projects").join(slug);
        fs::create_dir_all(&dir).unwrap();
        Self {
            sandbox: project.sandbox,
            root,
            transcript: dir.join(format!("{ID}.jsonl")),
        }
    }

    /// It tells that it stands in `cwd`.
    fn tells(&self, cwd: &Path, event: &str, more: &Value) {
        let mut payload = json!({"session_id": ID, "transcript_path": self.transcript, "cwd": cwd,
            "hook_event_name": event});
        let more = more.as_object().unwrap().clone();
        payload.as_object_mut().unwrap().extend(more);
        let mut command = self.sandbox.command(self.sandbox.program("stepback"), cwd);
        command.args(["hook", "claude-code"]).stdin(Stdio::piped());
        let mut running = command.spawn().unwrap();
        let mut input = running.stdin.take().unwrap();
        input.write_all(payload.to_string().as_bytes()).unwrap();
        drop(input);
        assert!(running.wait().unwrap().success());
    }

    /// Its process, this one, goes on without the session.
    fn leaves(&self, project: &Project<'_>) {
        self.tells(&project.path, "SessionEnd", &json!({}));
    }

    fn writes(&self, text: &str) {
        let line = json!({"type": "user", "cwd": self.root, "sessionId": ID, "message": text});
        let mut file = fs::File::options()
            .create(true)
            .append(true)
            .open(&self.transcript)
            .unwrap();
        writeln!(file, "{line}").unwrap();
    }

    fn said(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.transcript).unwrap();
        let records = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        records
            .map(|r| r["message"].as_str().unwrap().to_owned())
            .collect()
    }
}

fn bash(command: &str) -> Value {
    json!({"tool_name": "Bash", "tool_input": {"command": command}})
}

fn turn(project: &Project<'_>, trigger: &str, turn: u64) -> Value {
    eventually_some(&format!("{trigger} of turn {turn}"), DEADLINE, || {
        let list = project.list();
        list.into_iter()
            .find(|c| c["trigger"] == trigger && c["turn"] == turn)
    })
}

#[test]
fn the_turns_of_an_agent_that_goes_into_another_root_are_those_of_its_own() {
    let sandbox = Sandbox::new();
    let (p, q) = (sandbox.project("p"), sandbox.project("q"));
    for project in [&p, &q] {
        project.write("a", "v1\n");
        project.attach();
    }
    let claude = Claude::new(&p, ".claude");
    claude.tells(&p.path, "SessionStart", &json!({}));
    claude.tells(&p.path, "UserPromptSubmit", &json!({"prompt": "one"}));
    turn(&p, "turn-start", 1);
    claude.writes("one");
    // From here on it stands in the other one.
    claude.tells(&q.path, "PreToolUse", &bash("make"));
    q.write("a", "by the agent\n");
    claude.tells(&q.path, "PostToolUse", &bash("make"));
    claude.writes("done");
    let there = eventually_some("a checkpoint in the other root", DEADLINE, || {
        q.list().into_iter().find(|c| c["trigger"] == "auto")
    });
    assert_eq!(
        (&there["turn"], &there["conversation"]),
        (&Value::Null, &json!([]))
    );
    claude.tells(&q.path, "Stop", &json!({}));
    let end = turn(&p, "turn-end", 1);
    assert_eq!(end["conversation"][0]["session"], ID);
    assert_eq!(end["tools"], json!(["Bash"]));
    let said = claude.said();
    let report = q.json(&["rewind", "-y"]);
    assert_eq!(
        (&report["conversation"], q.read("a")),
        (&json!([]), b"v1\n".to_vec())
    );
    assert_eq!(claude.said(), said);
    assert!(q.list().iter().all(|c| c["agent"] == Value::Null));
}

#[test]
fn whose_a_session_is_is_known_after_a_restart_of_the_daemon() {
    let sandbox = Sandbox::new();
    let (p, q) = (sandbox.project("p"), sandbox.project("q"));
    for project in [&p, &q] {
        project.write("a", "v1\n");
        project.attach();
    }
    let claude = Claude::new(&p, ".claude");
    claude.writes("before");
    claude.tells(&p.path, "UserPromptSubmit", &json!({"prompt": "one"}));
    turn(&p, "turn-start", 1);
    p.stepback(&["daemon", "restart"]).exits(0);
    p.settle();
    claude.tells(&q.path, "PreToolUse", &bash("make"));
    claude.tells(&q.path, "Stop", &json!({}));
    turn(&p, "turn-end", 1);
    assert_eq!(q.list().len(), 1);
}

#[test]
fn a_conversation_is_left_while_its_process_lives_wherever_that_stands() {
    let sandbox = Sandbox::new();
    let p = sandbox.project("p");
    p.attach();
    let claude = Claude::new(&p, ".claude");
    claude.writes("one");
    p.write("a", "one\n");
    let n1 = p.save().to_string();
    claude.writes("two");
    p.write("a", "two\n");
    p.save();
    // An agent of this name runs the hook, from another directory, and stays.
    fs::copy("/bin/bash", sandbox.dir().join("claude")).unwrap();
    let payload = json!({"session_id": ID, "transcript_path": claude.transcript, "cwd": p.path,
        "hook_event_name": "PreToolUse", "tool_name": "Read", "tool_input": {}});
    fs::write(sandbox.dir().join("payload"), payload.to_string()).unwrap();
    let mut command = sandbox.command(sandbox.dir().join("claude"), Path::new("/"));
    let script = format!(
        "'{}' hook claude-code < '{}'; kill -STOP $$; :",
        sandbox.program("stepback").display(),
        sandbox.dir().join("payload").display()
    );
    command.args(["-c", &script]);
    let agent = Guarded::new(start(&mut command));
    eventually_some("the agent is heard of", DEADLINE, || {
        (p.status()["agents"][0]["live"] == true).then_some(())
    });
    let report = p.json_code(&["rewind", &n1, "-y", "--conversation-only"], 3);
    assert_eq!(report["conversation"][0]["action"], "left", "{report:#}");
    assert_eq!(claude.said(), ["one", "two"]);
    drop(agent);
    let report = p.json(&["rewind", &n1, "-y", "--conversation-only"]);
    assert_eq!(report["conversation"][0]["action"], "rewind", "{report:#}");
    assert_eq!(claude.said(), ["one"]);
}

#[test]
fn the_first_tool_of_a_turn_waits_for_the_checkpoint_at_its_start() {
    let sandbox = Sandbox::new();
    sandbox.configure("settle_ms = 60000\nmax_wait_ms = 60000\n");
    let p = sandbox.project("p");
    p.attach();
    let claude = Claude::new(&p, ".claude");
    claude.writes("before");
    // It takes the daemon a while to save what is there.
    let mut state = 1_u64;
    let noise: Vec<u8> = (0..24 << 20)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    p.write("noise", &noise);
    claude.tells(&p.path, "UserPromptSubmit", &json!({"prompt": "one"}));
    claude.writes("the prompt");
    let edit = json!({"tool_name": "Write", "tool_input": {"file_path": p.file("a")}});
    claude.tells(&p.path, "PreToolUse", &edit);
    let start = p.list()[0].clone();
    assert_eq!(
        (&start["trigger"], &start["turn"]),
        (&json!("turn-start"), &json!(1))
    );
    p.write("a", "by the agent\n");
    claude.tells(&p.path, "PostToolUse", &edit);
    claude.writes("done");
    claude.tells(&p.path, "Stop", &json!({}));
    turn(&p, "turn-end", 1);
    claude.leaves(&p);
    p.json(&["rewind", "turn:1", "-y"]);
    assert_eq!(claude.said(), ["before"], "nothing of the turn is left");
    assert!(!p.file("a").exists() && p.file("noise").exists());
    assert_eq!(p.status()["gaps"], json!([]));
}

#[test]
fn what_is_pending_in_any_root_is_saved_before_a_command_that_may_destroy_it() {
    let sandbox = Sandbox::new();
    sandbox.configure("settle_ms = 60000\nmax_wait_ms = 60000\n");
    let (p, q) = (sandbox.project("p"), sandbox.project("q"));
    for project in [&p, &q] {
        project.write("a", "v1\n");
        project.attach();
    }
    q.write("precious", "KEEP\n");
    let claude = Claude::new(&p, ".claude");
    claude.tells(&p.path, "PreToolUse", &bash("cd ../q && rm -rf precious"));
    fs::remove_file(q.file("precious")).unwrap();
    let saved = q.list()[0].clone();
    assert_eq!(saved["trigger"], "before-command");
    assert_eq!(q.show(saved["id"].as_u64().unwrap(), "precious"), b"KEEP\n");
    // Nothing is pending in the agent's own root, nor, now, from where no root is.
    assert_eq!(p.list().len(), 1);
    q.write("other", "KEEP\n");
    let started = Instant::now();
    let elsewhere = Claude {
        sandbox: &sandbox,
        root: "/".into(),
        transcript: sandbox.home().join("none.jsonl"),
    };
    let payload =
        json!({"session_id": "elsewhere", "tool_name": "Bash", "tool_input": {"command": "rm -rf q/other"}});
    elsewhere.tells(sandbox.dir(), "PreToolUse", &payload);
    assert_eq!(q.show(q.list()[0]["id"].as_u64().unwrap(), "other"), b"KEEP\n");
    assert!(started.elapsed() < DEADLINE);
}

#[test]
fn a_call_that_failed_is_no_edit_that_nobody_captured() {
    let sandbox = Sandbox::new();
    let p = sandbox.project("p");
    p.write("a", "v1\n");
    p.attach();
    let claude = Claude::new(&p, ".claude");
    let edit = json!({"tool_name": "Edit", "tool_input": {"file_path": p.file("a")}});
    claude.tells(&p.path, "UserPromptSubmit", &json!({}));
    claude.tells(&p.path, "PreToolUse", &edit);
    claude.tells(&p.path, "PostToolUseFailure", &edit);
    claude.tells(&p.path, "Stop", &json!({}));
    turn(&p, "turn-end", 1);
    assert_eq!(p.status()["drift"], Value::Null);
}

#[test]
fn what_an_agent_did_while_no_daemon_heard_it_is_no_drift() {
    let sandbox = Sandbox::new();
    let p = sandbox.project("p");
    p.write("a", "v1\n");
    let daemon = sandbox.daemon();
    p.attach();
    let claude = Claude::new(&p, ".claude");
    claude.tells(&p.path, "UserPromptSubmit", &json!({"prompt": "one"}));
    turn(&p, "turn-start", 1);
    daemon.kill();
    p.write("a", "v2\n");
    let _daemon = sandbox.daemon();
    p.settle();
    claude.tells(&p.path, "UserPromptSubmit", &json!({"prompt": "two"}));
    turn(&p, "turn-start", 2);
    assert_eq!(p.status()["drift"], Value::Null);
}

#[test]
fn the_transcript_of_another_account_goes_back_too() {
    let sandbox = Sandbox::new();
    let p = sandbox.project("p");
    p.attach();
    let claude = Claude::new(&p, ".claude-work");
    for n in 1..=2 {
        claude.tells(&p.path, "UserPromptSubmit", &json!({"prompt": n.to_string()}));
        turn(&p, "turn-start", n);
        claude.writes(&format!("prompt {n}"));
        p.write("a", format!("{n}\n"));
        claude.tells(&p.path, "Stop", &json!({}));
        turn(&p, "turn-end", n);
    }
    claude.leaves(&p);
    let report = p.json(&["rewind", "turn:2", "-y"]);
    let home = sandbox.home().join(".claude-work");
    let resume = format!("CLAUDE_CONFIG_DIR={} claude --resume {ID}", home.display());
    assert_eq!(report["conversation"][0]["resume"], resume, "{report:#}");
    assert_eq!(claude.said(), ["prompt 1"]);
    // One that lies where no agent has any is named.
    let odd = Claude {
        sandbox: &sandbox,
        root: claude.root.clone(),
        transcript: sandbox.home().join("odd.jsonl"),
    };
    odd.writes("odd");
    odd.tells(&p.path, "Stop", &json!({"session_id": "odd"}));
    p.write("a", "3\n");
    p.save();
    let warnings = p.status()["warnings"].to_string();
    assert!(warnings.contains("odd.jsonl"), "{warnings}");
}
