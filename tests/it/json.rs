//! The shapes of `--json`, which other programs rely on: exact key sets and types.

use std::io::{BufRead, BufReader};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};
use stepback_tests::{Project, Sandbox, keys};

const ENTRY: [&str; 18] = [
    "id",
    "base",
    "session",
    "sessions",
    "time",
    "trigger",
    "label",
    "agent",
    "agent_session",
    "turn",
    "prompt",
    "tools",
    "files",
    "tree",
    "commit",
    "conversation",
    "pinned",
    "not_captured",
];
const DONE: [&str; 8] = [
    "target",
    "saved",
    "written",
    "removed",
    "kept",
    "not_covered",
    "conversation",
    "redo",
];
const PREVIEW: [&str; 6] = ["target", "changes", "kept", "not_covered", "conversation", "noop"];

#[track_caller]
fn is_time(value: &Value) {
    let text = value.as_str().unwrap_or_else(|| panic!("not a time: {value}"));
    let bytes = text.as_bytes();
    assert!(
        text.len() >= 20 && bytes[4] == b'-' && bytes[10] == b'T' && text.ends_with('Z'),
        "{text}"
    );
}

#[track_caller]
fn is_hex40(value: &Value) {
    let text = value
        .as_str()
        .unwrap_or_else(|| panic!("not an object id: {value}"));
    assert!(
        text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "{text}"
    );
}

#[track_caller]
fn is_entry(value: &Value) {
    keys(value, &ENTRY);
    is_time(&value["time"]);
    is_hex40(&value["tree"]);
    is_hex40(&value["commit"]);
    keys(&value["files"], &["added", "modified", "deleted"]);
    assert!(value["sessions"].is_array() && value["tools"].is_array() && value["conversation"].is_array());
    assert!(value["pinned"].is_boolean());
}

fn attached(sandbox: &Sandbox) -> Project<'_> {
    let project = sandbox.project("p");
    project.sh("printf 'v1\n' > a; mkfifo unused; rm unused");
    project
}

#[test]
fn attach_roots_status_detach() {
    let sandbox = Sandbox::new();
    let project = attached(&sandbox);
    let answer = project.json(&["attach", "--here"]);
    keys(&answer, &["path", "id", "checkpoint", "files", "created"]);
    assert_eq!(answer["path"], project.path.to_str().unwrap());
    assert_eq!(
        (&answer["checkpoint"], &answer["files"], &answer["created"]),
        (&json!(1), &json!(1), &json!(true))
    );
    let id = answer["id"].as_str().unwrap();
    let (name, hex) = id.rsplit_once('-').unwrap();
    assert!(
        name == "p" && hex.len() == 8 && hex.bytes().all(|b| b.is_ascii_hexdigit()),
        "{id}"
    );
    assert_eq!(project.json(&["attach", "--here"])["created"], false);

    let roots = project.json(&["roots"]);
    keys(
        &roots[0],
        &["path", "id", "state", "checkpoints", "last", "store_bytes"],
    );
    keys(&roots[0]["last"], &["id", "time"]);

    project.settle();
    let status = project.json(&["status"]);
    keys(&status, &["daemon", "root"]);
    keys(&status["daemon"], &["version", "pid", "uptime_s", "rss_bytes"]);
    let root = &status["root"];
    keys(
        root,
        &[
            "path",
            "id",
            "state",
            "backend",
            "watches",
            "files",
            "settled",
            "session",
            "sessions",
            "checkpoints",
            "redo",
            "last",
            "store",
            "not_captured",
            "unfinished",
            "progress",
            "poll_seconds",
            "missed",
            "gaps",
            "drift",
            "agents",
            "warnings",
        ],
    );
    keys(&root["last"], &["id", "time"]);
    is_time(&root["last"]["time"]);
    keys(&root["store"], &["path", "bytes"]);
    assert_eq!(
        (&root["state"], &root["settled"]),
        (&json!("watching"), &json!(true))
    );
    assert_eq!(
        (&root["session"], &root["sessions"]),
        (&json!("watch"), &json!([]))
    );
    assert_eq!(
        (&root["files"], &root["checkpoints"], &root["redo"]),
        (&json!(1), &json!(1), &json!(0))
    );
    assert_eq!(
        (&root["unfinished"], &root["progress"], &root["drift"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    assert_eq!((&root["missed"], &root["agents"]), (&json!(0), &json!([])));

    let answer = project.json(&["detach", "-y"]);
    keys(&answer, &["path", "id", "forgotten"]);
    assert_eq!((&answer["id"], &answer["forgotten"]), (&json!(id), &json!(false)));
    assert_eq!(project.json(&["roots"]), json!([]));
    assert_eq!(
        project.json(&["attach", "--here"])["id"],
        id,
        "the history goes on"
    );
    assert_eq!(project.json(&["detach", "--forget", "-y"])["forgotten"], true);
    assert_ne!(
        project.json(&["attach", "--here"])["id"],
        id,
        "nothing was left to go on with"
    );
}

#[test]
fn save_list_show_pin_drop() {
    let sandbox = Sandbox::new();
    let project = attached(&sandbox);
    project.attach();
    project.sh("printf 'v2\n' > a; printf 'n\n' > n; mkfifo pipe");
    let saved = project.json(&["save", "-m", "my label"]);
    keys(&saved, &["id", "created", "tree"]);
    is_hex40(&saved["tree"]);
    assert_eq!(saved["created"], true);
    let again = project.json(&["save"]);
    assert_eq!((&again["id"], &again["created"]), (&saved["id"], &json!(false)));

    let list = project.json(&["list"]);
    keys(&list, &["root", "current", "checkpoints", "redo"]);
    assert_eq!((&list["current"], &list["redo"]), (&saved["id"], &json!([])));
    let newest = &list["checkpoints"][0];
    is_entry(newest);
    assert_eq!(
        (&newest["label"], &newest["trigger"]),
        (&json!("my label"), &json!("save"))
    );
    assert_eq!(newest["tree"], saved["tree"]);
    let oldest = list["checkpoints"].as_array().unwrap().last().unwrap().clone();
    is_entry(&oldest);
    assert_eq!(
        (&oldest["id"], &oldest["base"], &oldest["trigger"]),
        (&json!(1), &Value::Null, &json!("attach"))
    );
    assert_eq!(project.json(&["log"]), list);
    assert_eq!(
        project.json(&["list", "-n", "1"])["checkpoints"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let of_n = project.json(&["list", "--path", "n"])["checkpoints"].clone();
    assert!(
        !crate::support::numbers(of_n.as_array().unwrap(), "id").contains(&1),
        "{of_n}"
    );

    let shown = project.json(&["show", "latest"]);
    // The entry of `list`, but with the paths in place of their count.
    keys(&shown, &ENTRY);
    assert!(shown["not_captured"].is_array(), "{shown}");

    let first = "1";
    let pinned = project.json(&["pin", first]);
    assert_eq!(pinned, json!({"id": 1, "pinned": true}));
    assert_eq!(crate::support::entry(&project, 1)["pinned"], true);
    project.stepback(&["drop", first, "-y"]).exits(1);
    assert_eq!(project.json(&["unpin", first]), json!({"id": 1, "pinned": false}));
    let dropped = project.json(&["drop", first, "-y"]);
    keys(&dropped, &["dropped", "freed_bytes"]);
    assert_eq!(dropped["dropped"], json!([1]));
    assert!(!project.ids().contains(&1));
}

#[test]
fn what_is_not_captured_is_named_with_its_reason() {
    let sandbox = Sandbox::new();
    let project = attached(&sandbox);
    project.sh("head -c 70000 /dev/zero > big");
    let attached = project
        .stepback(&["attach", "--here", "--max-file-size", "64 KiB"])
        .exits(0);
    assert!(attached.stderr.contains("big"), "named on stderr: {attached:#?}");
    let wanted = json!([{"path": "big", "reason": "too-large"}]);
    assert_eq!(project.status()["not_captured"], wanted);
    assert_eq!(project.json(&["show", "latest"])["not_captured"], wanted);
    assert_eq!(project.list()[0]["not_captured"], 1);
}

#[test]
fn rewind_restore_redo_recover() {
    let sandbox = Sandbox::new();
    let project = attached(&sandbox);
    let first = project.attach().to_string();
    project.sh("printf 'v2\n' > a; printf 'n\n' > n");
    for args in [
        &["rewind", &first, "-n"][..],
        &["restore", &first, "-p", "a", "-n"],
    ] {
        let preview = project.json(args);
        keys(&preview, &PREVIEW);
        keys(&preview["changes"][0], &["path", "status", "edited_since"]);
        assert_eq!((&preview["target"], &preview["noop"]), (&json!(1), &json!(false)));
        assert_eq!(
            (&preview["kept"], &preview["not_covered"]),
            (&json!([]), &json!([]))
        );
        assert_eq!(preview["conversation"], json!([]));
    }
    let done = project.json(&["rewind", &first, "-y"]);
    keys(&done, &DONE);
    assert_eq!(
        (&done["written"], &done["removed"], &done["redo"]),
        (&json!(1), &json!(1), &json!(1))
    );
    assert!(done["saved"].is_u64(), "{done}");
    let list = project.json(&["list"]);
    keys(&list["redo"][0], &["id", "operation", "target", "time"]);
    is_time(&list["redo"][0]["time"]);
    assert_eq!(list["current"], 1);
    keys(&project.json(&["redo", "-n"]), &PREVIEW);
    keys(&project.json(&["redo", "-y"]), &DONE);
    keys(&project.json(&["restore", &first, "-p", "a", "-y"]), &DONE);
    let recovered = project.json(&["recover"]);
    keys(&recovered, &["operation", "target", "outcome", "kept"]);
    assert_eq!(
        (&recovered["outcome"], &recovered["kept"]),
        (&json!("nothing"), &json!([]))
    );
}

#[test]
fn diff_and_export() {
    let sandbox = Sandbox::new();
    let project = attached(&sandbox);
    let first = project.attach();
    project.sh("printf 'n\n' > n");
    let diff = project.json(&["diff"]);
    keys(&diff, &["from", "to", "files"]);
    keys(
        &diff["files"][0],
        &[
            "path",
            "status",
            "old_mode",
            "new_mode",
            "insertions",
            "deletions",
            "binary",
        ],
    );
    let file = &diff["files"][0];
    assert_eq!(
        (&file["old_mode"], &file["new_mode"]),
        (&Value::Null, &json!("100644"))
    );
    let out = sandbox.dir().join("out.tar");
    let exported = project.json(&["export", "1", "--tar", out.to_str().unwrap()]);
    assert_eq!(exported, json!({"id": first, "file": out.to_str().unwrap()}));
}

#[test]
fn sessions() {
    let sandbox = Sandbox::new();
    let project = attached(&sandbox);
    project.attach();
    keys(
        &project.json(&["session", "start", "s"]),
        &["session", "checkpoint"],
    );
    project.sh("printf 'v2\n' > a");
    let list = project.json(&["session", "list"]);
    let line = list
        .as_array()
        .unwrap()
        .iter()
        .find(|l| l["session"] == "s")
        .unwrap()
        .clone();
    keys(
        &line,
        &["session", "command", "started", "ended", "checkpoints", "agent"],
    );
    is_time(&line["started"]);
    assert_eq!((&line["ended"], &line["command"]), (&Value::Null, &Value::Null));
    keys(
        &project.json(&["session", "show", "s"]),
        &[
            "session",
            "agent",
            "command",
            "started",
            "ended",
            "files_tracked",
            "created",
            "modified",
            "deleted",
            "dirs_created",
            "turns",
        ],
    );
    keys(
        &project.json(&["session", "end", "s", "--revert", "-n"]),
        &PREVIEW,
    );
    let ended = project.json(&["session", "end", "s", "--revert", "-y"]);
    keys(&ended, &["session", "checkpoint", "reverted"]);
    keys(&ended["reverted"], &DONE);
}

#[test]
fn daemon_status_running_and_not() {
    let sandbox = Sandbox::new();
    let project = attached(&sandbox);
    let none = project.json_code(&["daemon", "status"], 1);
    keys(&none, &["running", "pid", "version", "socket"]);
    assert_eq!((&none["running"], &none["pid"]), (&json!(false), &Value::Null));
    project.stepback(&["daemon", "start"]).exits(0);
    let some = project.json(&["daemon", "status"]);
    keys(&some, &["running", "pid", "version", "socket"]);
    assert_eq!(some["running"], true);
    assert_eq!(some["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(
        some["pid"].as_i64(),
        sandbox.daemon_pid().map(|p| i64::from(p.as_raw()))
    );
}

#[test]
fn paths_that_are_not_utf8_have_their_bytes_beside() {
    let sandbox = Sandbox::new();
    let project = attached(&sandbox);
    project.attach();
    project.sh("printf x > \"$(printf 'bad-\\377')\"");
    let diff = project.json(&["diff"]);
    assert_eq!(diff["files"][0]["path"], "bad-\u{fffd}");
    assert_eq!(diff["files"][0]["path_b64"], "YmFkLf8=");
}

#[test]
fn watch_tells_one_object_a_line() {
    let sandbox = Sandbox::new();
    let project = attached(&sandbox);
    project.attach();
    let mut command = sandbox.command(sandbox.program("stepback"), &project.path);
    command.args(["--json", "watch"]);
    let mut child = stepback_tests::Guarded::new(stepback_tests::start(&mut command));
    let lines = BufReader::new(child.child().stdout.take().unwrap()).lines();
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    // The subscription stands at some moment after the start: write until something is told.
    let mut told = None;
    for i in 0..60 {
        project.write("a", format!("{i} seen\n"));
        let wanted = receive.recv_timeout(Duration::from_secs(1)).ok();
        let event: Option<Value> = wanted.map(|line| serde_json::from_str(&line).unwrap());
        if event.as_ref().is_some_and(|e| e["event"] == "checkpoint") {
            told = event;
            break;
        }
    }
    drop(child);
    let told = told.expect("a checkpoint within a minute");
    keys(&told, &["event", "root", "checkpoint"]);
    is_entry(&told["checkpoint"]);
}

#[test]
fn errors_have_a_kind_a_message_and_a_hint() {
    let sandbox = Sandbox::new();
    let project = attached(&sandbox);
    project.attach();
    // `fails` checks the shape, in both forms.
    project.fails(&["show", "77"], 1, "no_such_checkpoint");
    let before = project.stepback(&["--json", "show", "77"]);
    let after = project.stepback(&["show", "77", "--json"]);
    assert_eq!(
        before.stdout, after.stdout,
        "global options go before and after the command"
    );
    let usage = project.json_code(&["show", "no-such-form"], 2);
    assert_eq!(usage["error"]["kind"], "usage");
}
