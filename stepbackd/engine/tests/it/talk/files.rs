//! Gemini CLI, Qwen Code, Copilot CLI and aider: where each has its files, and that they go back and come again.

use std::fs;
use std::path::PathBuf;

use stepback_engine::conversation::{Agent, Seen};

use super::support::{BOTH, FORK, Look, actions, append, fixture, look, slug, write};
use crate::support::Sandbox;

/// Two turns of an agent with one file that grows: to turn 1, redo, and every byte is where it was.
fn there_and_back(
    agent: &str,
    id: &str,
    file: &dyn Fn(&Sandbox) -> PathBuf,
    fill: &dyn Fn(&Sandbox),
    resume: &str,
) {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    fill(&sandbox);
    let file = file(&sandbox);
    let ending = if agent == "aider" { "md" } else { "jsonl" };
    let one = fixture(&format!("{agent}/turn1.{ending}"), &root);
    let two = fixture(&format!("{agent}/turn2.{ending}"), &root);
    let n1 = sandbox.turn("one\n", &file, &one);
    let then = look(&file);
    sandbox.turn("two\n", &file, &two);
    let before = look(&file);
    let report = sandbox.rewind_as(n1, BOTH);
    assert_eq!(actions(&report), [(agent, id, "rewind")], "{report:?}");
    assert_eq!(report.conversation[0].resume.as_deref(), Some(resume));
    assert_eq!(look(&file), Look { text: one, ..then });
    assert_eq!(sandbox.read("hello.txt").unwrap(), "one\n");
    sandbox.redo();
    assert_eq!(look(&file), before);
    assert_eq!(look(&file).text, two);
}

const GEMINI: &str = "1cf90817-5b92-4309-a16c-ede6642a8702";

fn gemini_chat(sandbox: &Sandbox, id: &str) -> PathBuf {
    let name = format!("session-2026-11-29T15-09-{}.jsonl", &id[..8]);
    sandbox.home().join(".gemini/tmp/proj/chats").join(name)
}

fn gemini_project(sandbox: &Sandbox) {
    let projects = format!("{{\"projects\": {{\"{}\": \"proj\"}}}}", sandbox.root().display());
    write(&sandbox.home().join(".gemini/projects.json"), &projects);
}

#[test]
fn gemini() {
    let file = |sandbox: &Sandbox| gemini_chat(sandbox, GEMINI);
    there_and_back(
        "gemini",
        GEMINI,
        &file,
        &gemini_project,
        &format!("gemini --resume {GEMINI}"),
    );
}

#[test]
fn a_chat_that_gemini_deleted_comes_back_and_its_fork_has_another_short_id() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    gemini_project(&sandbox);
    let file = gemini_chat(&sandbox, GEMINI);
    let one = fixture("gemini/turn1.jsonl", &root);
    let n1 = sandbox.turn("one\n", &file, &one);
    sandbox.turn("two\n", &file, &fixture("gemini/turn2.jsonl", &root));
    fs::remove_file(&file).unwrap();
    sandbox.rewind(n1);
    assert_eq!(look(&file).text, one);
    let report = sandbox.rewind_as(n1, FORK);
    let new = report.conversation[0].fork.clone().unwrap();
    assert_eq!(look(&gemini_chat(&sandbox, &new)).text, one.replace(GEMINI, &new));
}

const QWEN: &str = "17a2908a-e617-44de-b2c5-c910c1b0ca98";

fn qwen_chat(sandbox: &Sandbox, id: &str) -> PathBuf {
    let projects = sandbox.home().join(".qwen/projects");
    projects
        .join(slug(&sandbox.root()))
        .join(format!("chats/{id}.jsonl"))
}

#[test]
fn qwen() {
    let file = |sandbox: &Sandbox| qwen_chat(sandbox, QWEN);
    there_and_back("qwen", QWEN, &file, &|_| {}, &format!("qwen --resume {QWEN}"));
}

#[test]
fn a_fork_mends_a_broken_chain() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    let broken = fixture("qwen/broken-chain.jsonl", &root);
    let first: serde_json::Value = serde_json::from_str(broken.lines().next().unwrap()).unwrap();
    let id = first["sessionId"].as_str().unwrap().to_owned();
    let file = qwen_chat(&sandbox, &id);
    let n = sandbox.turn("one\n", &file, &broken);
    let report = sandbox.rewind_as(n, FORK);
    let new = report.conversation[0].fork.clone().unwrap();
    let mended = look(&qwen_chat(&sandbox, &new)).text;
    assert_eq!(dangling(&broken), 1);
    assert_eq!(dangling(&mended), 0);
    assert_eq!(mended.lines().count(), broken.lines().count());
    assert!(!mended.contains(&id));
}

/// Records that name a record before them that isn't there.
fn dangling(text: &str) -> usize {
    let mut seen = std::collections::HashSet::new();
    let mut count = 0;
    for line in text.lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        if let Some(parent) = record["parentUuid"].as_str() {
            count += usize::from(!seen.contains(parent));
        }
        seen.extend(record["uuid"].as_str().map(str::to_owned));
    }
    count
}

const COPILOT: &str = "5f08fea8-9455-409a-8435-097c6b17a7d1";

fn copilot_dir(sandbox: &Sandbox, id: &str) -> PathBuf {
    sandbox.home().join(".copilot/session-state").join(id)
}

fn copilot_session(sandbox: &Sandbox) {
    let dir = copilot_dir(sandbox, COPILOT);
    write(
        &dir.join("workspace.yaml"),
        &fixture("copilot/workspace.yaml", &sandbox.root()),
    );
    write(
        &dir.join("rewind-file-snapshots/index.json"),
        &fixture("copilot/index.json", &sandbox.root()),
    );
    write(&dir.join("inuse.1.lock"), "");
}

#[test]
fn copilot() {
    let file = |sandbox: &Sandbox| copilot_dir(sandbox, COPILOT).join("events.jsonl");
    let resume = format!("copilot --resume={COPILOT}");
    there_and_back("copilot", COPILOT, &file, &copilot_session, &resume);
}

#[test]
fn the_side_files_of_copilot_go_with_it_but_for_locks() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    copilot_session(&sandbox);
    let dir = copilot_dir(&sandbox, COPILOT);
    let events = dir.join("events.jsonl");
    let n1 = sandbox.turn("one\n", &events, &fixture("copilot/turn1.jsonl", &root));
    let index = look(&dir.join("rewind-file-snapshots/index.json"));
    fs::write(
        dir.join("rewind-file-snapshots/index.json"),
        "{\"other\": true, \"longer\": \"than before\"}",
    )
    .unwrap();
    write(&dir.join("rewind-file-snapshots/backups/b2"), "one\n");
    sandbox.turn("two\n", &events, &fixture("copilot/turn2.jsonl", &root));
    sandbox.rewind(n1);
    assert_eq!(look(&dir.join("rewind-file-snapshots/index.json")), index);
    assert!(!dir.join("rewind-file-snapshots/backups/b2").exists());
    assert!(dir.join("inuse.1.lock").exists());
    sandbox.redo();
    assert_eq!(look(&dir.join("rewind-file-snapshots/backups/b2")).text, "one\n");
    let report = sandbox.rewind_as(n1, FORK);
    let new = copilot_dir(&sandbox, report.conversation[0].fork.as_ref().unwrap());
    let workspace = look(&new.join("workspace.yaml")).text;
    assert!(
        workspace.contains(report.conversation[0].fork.as_ref().unwrap()) && !workspace.contains(COPILOT)
    );
    assert!(!new.join("inuse.1.lock").exists());
}

#[test]
fn aider() {
    let file = |sandbox: &Sandbox| sandbox.root().join(".aider.chat.history.md");
    there_and_back("aider", "history", &file, &|_| {}, "aider --restore-chat-history");
}

#[test]
fn several_agents_at_once_go_back_together() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    gemini_project(&sandbox);
    let (gemini, qwen) = (gemini_chat(&sandbox, GEMINI), qwen_chat(&sandbox, QWEN));
    write(&gemini, &fixture("gemini/turn1.jsonl", &root));
    let n1 = sandbox.turn("one\n", &qwen, &fixture("qwen/turn1.jsonl", &root));
    write(&gemini, &fixture("gemini/turn2.jsonl", &root));
    sandbox.turn("two\n", &qwen, &fixture("qwen/turn2.jsonl", &root));
    // One of them is running: the other goes back all the same.
    sandbox.pretend_process(9, "/usr/bin/node", &["node", "/usr/bin/gemini"], &root);
    let report = sandbox.rewind(n1);
    assert_eq!(
        actions(&report),
        [("gemini", GEMINI, "left"), ("qwen", QWEN, "rewind")]
    );
    assert_eq!(look(&gemini).text, fixture("gemini/turn2.jsonl", &root));
    assert_eq!(look(&qwen).text, fixture("qwen/turn1.jsonl", &root));
}

#[test]
fn a_transcript_that_a_hook_named_is_kept_wherever_it_runs() {
    let mut sandbox = Sandbox::with(|_| {});
    let elsewhere = sandbox.path().join("elsewhere");
    let file = sandbox
        .home()
        .join(".qwen/projects/-elsewhere/chats")
        .join(format!("{QWEN}.jsonl"));
    write(&file, &fixture("qwen/turn1.jsonl", &elsewhere));
    sandbox.engine().note_seen(Seen {
        agent: Agent::Qwen,
        session: QWEN.into(),
        path: Some(file.clone()),
    });
    append(&file, "{}\n");
    sandbox.write("a", "1");
    let n = sandbox.capture().id;
    assert_eq!(sandbox.engine().checkpoint(n).unwrap().conversation.len(), 1);
    // Not what lies outside of the agent's own directory.
    let secret = sandbox.path().join("secret.jsonl");
    write(&secret, "{}\n");
    sandbox.engine().note_seen(Seen {
        agent: Agent::Qwen,
        session: "other".into(),
        path: Some(secret),
    });
    sandbox.write("a", "2");
    let n = sandbox.capture().id;
    assert!(sandbox.engine().checkpoint(n).unwrap().conversation.is_empty());
}

#[test]
fn an_unknown_format_costs_the_files_nothing() {
    let mut sandbox = Sandbox::with(|_| {});
    write(&sandbox.home().join(".gemini/projects.json"), "not json");
    write(
        &sandbox.home().join(".local/share/goose/sessions/sessions.db"),
        "no database",
    );
    write(&sandbox.home().join(".local/share/opencode/opencode.db"), "");
    sandbox.write("a", "1");
    let n = sandbox.capture().id;
    assert!(sandbox.engine().checkpoint(n).unwrap().conversation.is_empty());
    let noted: Vec<_> = sandbox
        .engine()
        .conversation_notes()
        .into_iter()
        .map(|(a, _)| a)
        .collect();
    assert_eq!(noted, [Agent::Gemini, Agent::Opencode, Agent::Goose]);
}
