//! Turns, as the hooks of agents tell of them: where they begin and end, and whose they are.

use serde_json::{Value, json};
use stepback_tests::{Project, Sandbox};

use crate::hooks::{call, eventually, eventually_some, payload, triggers, turn};
use crate::support::entry;

fn hook(project: &Project<'_>, agent: &str, event: &str) {
    let input = payload(project, agent, event);
    let words: &[&str] = if agent == "copilot" {
        &[agent, event]
    } else {
        &[agent]
    };
    call(project, words, &input);
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
