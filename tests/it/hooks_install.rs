//! `stepback hooks`: the agents' own settings, changed and changed back.

use serde_json::json;
use stepback_tests::{Project, Sandbox};

fn settings_of<'a>(sandbox: &'a Sandbox, text: &str) -> Project<'a> {
    let home = Project::at(sandbox, sandbox.home());
    home.sh("mkdir -p .claude");
    home.write(".claude/settings.json", text);
    home
}

const TEXT: &str = "{\n  // which one\n  \"model\": \"x\",\n  \"hooks\": {\n    \"Stop\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"say done\"}]}]\n  }\n}\n";

#[test]
fn installing_shows_the_change_and_uninstalling_leaves_the_file_as_it_was() {
    let sandbox = Sandbox::new();
    let home = settings_of(&sandbox, TEXT);
    let before = home.tree();
    // Nobody to ask: shown, and nothing changed.
    let asked = home.stepback(&["hooks", "install", "claude-code"]).exits(1);
    assert!(
        asked.stderr.contains("+") && asked.stderr.contains("hook claude-code"),
        "{asked:#?}"
    );
    before.same(&home.tree(), "after a no");
    let done = home.json(&["hooks", "install", "claude-code", "-y"]);
    assert_eq!(done["agents"], json!(["claude-code"]));
    let text = String::from_utf8(home.read(".claude/settings.json")).unwrap();
    assert!(
        text.contains("// which one") && text.contains("say done"),
        "{text}"
    );
    let ours = format!("{} hook claude-code", sandbox.program("stepback").display());
    assert_eq!(text.matches(&ours).count(), 8, "{text}");
    let again = home.json(&["hooks", "install", "claude-code", "-y"]);
    assert_eq!(again["changed"], json!([]));
    home.stepback(&["hooks", "uninstall", "claude-code", "-y"])
        .exits(0);
    before.same(&home.tree(), "after uninstall");
}

#[test]
fn every_agent_in_use_is_meant_when_none_is_named() {
    let sandbox = Sandbox::new();
    let home = settings_of(&sandbox, "{}\n");
    home.sh("mkdir -p .gemini .codex");
    let done = home.json(&["hooks", "install", "-y"]);
    let agents: Vec<&str> = done["agents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a.as_str().unwrap())
        .collect();
    for agent in ["claude-code", "gemini", "codex"] {
        assert!(agents.contains(&agent), "{done:#}");
    }
    assert!(home.read(".codex/config.toml").starts_with(b"notify = "));
    let status = home.json(&["hooks", "status", "claude-code", "aider"]);
    assert_eq!(
        status,
        json!([
            {"agent": "claude-code", "installed": true, "stale": false, "seen": null},
            {"agent": "aider", "installed": false, "stale": false, "seen": null},
        ])
    );
}

#[test]
fn status_tells_of_stale_hooks_and_of_those_heard_of() {
    let sandbox = Sandbox::new();
    let home = settings_of(&sandbox, "{}\n");
    home.stepback(&["hooks", "install", "claude-code", "-y"]).exits(0);
    home.sh("sed -i 's|\"[^\"]*/stepback hook|\"/gone/stepback hook|' .claude/settings.json");
    assert_eq!(home.json(&["hooks", "status", "claude-code"])[0]["stale"], true);
    home.stepback(&["hooks", "install", "claude-code", "-y"]).exits(0);
    assert_eq!(home.json(&["hooks", "status", "claude-code"])[0]["stale"], false);
    assert!(
        !String::from_utf8(home.read(".claude/settings.json"))
            .unwrap()
            .contains("/gone/")
    );
    let project = sandbox.project("p");
    project.attach();
    let payload = json!({"session_id": "s", "cwd": project.path, "hook_event_name": "SessionStart"});
    project.write("payload", payload.to_string());
    project.sh(&format!(
        "{} hook claude-code < payload",
        sandbox.program("stepback").display()
    ));
    assert!(home.json(&["hooks", "status", "claude-code"])[0]["seen"].is_string());
    let text = home.stepback(&["hooks", "status"]).exits(0).text();
    assert!(text.contains("heard of last"), "{text}");
}

#[test]
fn what_is_broken_or_unknown_is_an_error_and_changes_nothing() {
    let sandbox = Sandbox::new();
    let home = settings_of(&sandbox, "{\n  \"a\": \n}\n");
    let before = home.tree();
    let failed = home.fails(&["hooks", "install", "claude-code", "-y"], 1, "config");
    let message = failed["message"].as_str().unwrap();
    assert!(
        message.contains(".claude/settings.json") && message.contains("line"),
        "{message}"
    );
    before.same(&home.tree(), "after an error");
    home.fails(&["hooks", "install", "no-such-agent"], 2, "usage");
    home.fails(&["hooks", "status", "no-such-agent"], 2, "usage");
}
