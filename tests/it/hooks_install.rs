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
    home.sh("mkdir -p .gemini .codex; touch .gemini/history .codex/auth.json");
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

#[test]
fn one_broken_file_leaves_the_other_agents_alone() {
    let sandbox = Sandbox::new();
    let home = settings_of(&sandbox, "{\n  \"a\": \n}\n");
    home.stepback(&["hooks", "install", "gemini", "-y"]).exits(0);
    let text = home.stepback(&["hooks", "status"]).exits(1).text();
    let line = |agent: &str| {
        text.lines()
            .find(|line| line.starts_with(agent))
            .unwrap()
            .to_owned()
    };
    assert_eq!(text.lines().count(), 8, "{text}");
    assert!(line("claude-code").contains(".claude/settings.json"), "{text}");
    assert!(line("gemini").ends_with(" installed"), "{text}");
    let json = home.stepback(&["hooks", "status", "--json"]).exits(1).text();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json[0]["error"].as_str().unwrap().contains("line"), "{json:#}");
    assert_eq!(json[2]["installed"], true, "{json:#}");
    let said = home.stepback(&["hooks", "uninstall", "-y"]).exits(1);
    assert!(said.stderr.contains(".claude/settings.json"), "{said:#?}");
    home.sh("test ! -e .gemini");
}

#[test]
fn only_what_is_true_of_codex_is_told() {
    let sandbox = Sandbox::new();
    let home = settings_of(&sandbox, "{}\n");
    let told = || {
        home.stepback(&["hooks", "install", "codex", "-y"])
            .exits(0)
            .stderr
    };
    assert!(told().contains("the ends of its turns are told, by `notify`"));
    home.stepback(&["hooks", "uninstall", "codex", "-y"]).exits(0);
    home.sh("mkdir .codex");
    home.write(".codex/config.toml", "notify = [\"say\", \"done\"]\n");
    let told = told();
    assert!(
        told.contains("none of its turns is told") && !told.contains("by `notify`"),
        "{told}"
    );
}

#[test]
fn what_is_not_ours_to_change_is_left_and_said() {
    let sandbox = Sandbox::new();
    let home = settings_of(&sandbox, "{}\n");
    for (script, said) in [
        ("chmod 444 .claude/settings.json", "read-only"),
        // As those who keep their settings elsewhere have it, before that is there.
        (
            "rm -f .claude/settings.json; ln -s ../dotfiles/x .claude/settings.json",
            "link",
        ),
        (
            "rm .claude/settings.json; mkfifo .claude/settings.json",
            "plain file",
        ),
        (
            "rm .claude/settings.json; mkdir .claude/settings.json",
            "plain file",
        ),
    ] {
        home.sh(script);
        let before = home.tree();
        let failed = home.fails(&["hooks", "install", "claude-code", "-y"], 1, "config");
        assert!(failed["message"].as_str().unwrap().contains(said), "{failed}");
        before.same(&home.tree(), said);
    }
}

#[test]
fn hooks_that_somebody_made_by_hand_are_counted_and_left() {
    let sandbox = Sandbox::new();
    let command = "timeout 5 /usr/local/bin/stepback hook claude-code && notify-send done";
    let text = format!(
        "{{\"hooks\": {{\"Stop\": [{{\"hooks\": [{{\"type\": \"command\", \"command\": \"{command}\"}}]}}]}}}}\n"
    );
    let home = settings_of(&sandbox, &text);
    let before = home.tree();
    home.stepback(&["hooks", "install", "claude-code", "-y"]).exits(0);
    let installed = String::from_utf8(home.read(".claude/settings.json")).unwrap();
    assert_eq!(installed.matches("hook claude-code").count(), 8, "{installed}");
    assert!(installed.contains(command), "{installed}");
    let status = home.json(&["hooks", "status", "claude-code"]);
    assert_eq!(
        (&status[0]["installed"], &status[0]["by_hand"]),
        (&json!(true), &json!(1))
    );
    let told = home.stepback(&["hooks", "status", "claude-code"]).exits(0).text();
    assert!(told.contains("installed, 1 hook by hand"), "{told}");
    home.stepback(&["hooks", "uninstall", "claude-code", "-y"])
        .exits(0);
    before.same(&home.tree(), "after uninstall");
}
