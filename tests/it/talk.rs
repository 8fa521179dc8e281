//! Conversations of agents go back with the files: what is said, in text and in JSON, and what an agent that runs means.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::Pid;
use serde_json::{Value, json};
use stepback_tests::{Guarded, Project, Sandbox, anonymous_bytes, eventually, pause, start};

use crate::support::{number_from, top};

const LONG: Duration = Duration::from_secs(30);
const ID: &str = "bb015940-e7c6-49f8-9734-6c6705e466d5";

fn fixture(name: &str, root: &Path) -> String {
    let text = fs::read_to_string(top().join("tests/fixtures/agents").join(name)).unwrap();
    text.replace("@ROOT@", root.to_str().unwrap())
}

pub(crate) fn transcript(sandbox: &Sandbox, root: &Path) -> PathBuf {
    let slug: String = root
        .to_str()
        .unwrap()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    sandbox.home().join(format!(".claude/projects/{slug}/{ID}.jsonl"))
}

fn append(path: &Path, text: &str) {
    use std::io::Write;
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut file = fs::File::options().create(true).append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
}

/// Two turns of Claude Code: the checkpoints after each, and the transcript's text then.
pub(crate) fn two_turns(sandbox: &Sandbox, project: &Project<'_>) -> ((u64, String), (u64, String)) {
    let root = project.path.canonicalize().unwrap();
    let file = transcript(sandbox, &root);
    project.attach();
    let one = fixture("claude/turn1.jsonl", &root);
    append(&file, &one);
    project.write("hello.txt", "one\n");
    let n1 = project.save();
    let two = fixture("claude/turn2.jsonl", &root);
    append(&file, &two[one.len()..]);
    project.write("hello.txt", "two\n");
    let n2 = project.save();
    ((n1, one), (n2, two))
}

fn session() -> Value {
    json!({ "agent": "claude-code", "session": ID })
}

#[test]
fn files_and_conversation_go_back_together() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let ((n1, one), (n2, two)) = two_turns(&sandbox, &project);
    let file = transcript(&sandbox, &project.path.canonicalize().unwrap());
    for n in [n1, n2] {
        let shown = project.json(&["show", &n.to_string()]);
        assert_eq!(shown["conversation"], json!([session()]));
    }
    let status = project.status();
    assert_eq!(
        status["agents"],
        json!([{ "agent": "claude-code", "session": ID, "live": false }])
    );
    let preview = project.json(&["rewind", &n1.to_string(), "-n"]);
    assert_eq!(
        preview["conversation"],
        json!([{ "agent": "claude-code", "session": ID, "action": "rewind" }])
    );
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        two,
        "a preview changes nothing"
    );
    let report = project.rewind(n1);
    let resume = format!("claude --resume {ID}");
    assert_eq!(
        report["conversation"],
        json!([{ "agent": "claude-code", "session": ID, "action": "rewind", "resume": resume }])
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), one);
    assert_eq!(project.read("hello.txt"), b"one\n");
    project.redo();
    assert_eq!(fs::read_to_string(&file).unwrap(), two);
    let text = project.stepback(&["rewind", &n1.to_string(), "-y"]).exits(0);
    assert!(text.text().contains(&resume), "{}", text.text());
    assert!(!text.stderr.contains("out of step"), "{}", text.stderr);
    project.fsck();
}

#[test]
fn one_half_alone_changes_alone_and_says_that_it_is_out_of_step() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let ((n1, one), (_, two)) = two_turns(&sandbox, &project);
    let file = transcript(&sandbox, &project.path.canonicalize().unwrap());
    let n1 = n1.to_string();
    let done = project.stepback(&["rewind", &n1, "-y", "--files-only"]).exits(0);
    assert!(done.stderr.contains("out of step"), "{}", done.stderr);
    assert_eq!(
        (project.read("hello.txt"), fs::read_to_string(&file).unwrap()),
        (b"one\n".to_vec(), two.clone())
    );
    project.redo();
    let done = project
        .stepback(&["rewind", &n1, "-y", "--conversation-only"])
        .exits(0);
    assert!(done.stderr.contains("out of step"), "{}", done.stderr);
    assert_eq!(
        (project.read("hello.txt"), fs::read_to_string(&file).unwrap()),
        (b"two\n".to_vec(), one)
    );
    project.redo();
    assert_eq!(fs::read_to_string(&file).unwrap(), two);
    project
        .stepback(&["rewind", &n1, "--files-only", "--fork"])
        .exits(2);
}

#[test]
fn run_ties_the_conversation_to_its_session() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let root = project.path.canonicalize().unwrap();
    let file = transcript(&sandbox, &root);
    let (one, two) = (
        fixture("claude/turn1.jsonl", &root),
        fixture("claude/turn2.jsonl", &root),
    );
    project.attach();
    append(&file, &one);
    project.write("hello.txt", "one\n");
    project.save();
    // Without hooks: that it was at work between start and end is all that is known.
    project.write("../more", &two[one.len()..]);
    let agent = sandbox.dir().join("claude");
    let script = format!(
        "#!/bin/sh\ncat ../more >> '{}'; echo two > hello.txt\n",
        file.display()
    );
    fs::write(&agent, script).unwrap();
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
    project
        .stepback(&["run", "--name", "work", "--", agent.to_str().unwrap()])
        .exits(0);
    let list = project.list();
    let end = list.iter().find(|c| c["trigger"] == "session-end").unwrap();
    assert_eq!(
        (&end["session"], &end["conversation"]),
        (&json!("work"), &json!([session()]))
    );
    let report = project.json(&["rewind", "session:work", "-y"]);
    assert_eq!(report["conversation"][0]["action"], "rewind", "{report:#}");
    assert_eq!(fs::read_to_string(&file).unwrap(), one);
    assert_eq!(project.read("hello.txt"), b"one\n");
    project.redo();
    assert_eq!(fs::read_to_string(&file).unwrap(), two);
}

#[test]
fn a_transcript_that_can_not_be_read_is_named_and_costs_the_files_nothing() {
    let Some(sandbox) = Sandbox::of_normal_user() else {
        return;
    };
    let project = sandbox.project("p");
    project.attach();
    let root = project.path.canonicalize().unwrap();
    let file = transcript(&sandbox, &root);
    let dir = file.parent().unwrap();
    // Made by the user of the sandbox.
    let script = format!(
        "mkdir -p '{0}'; printf '{{}}\\n' > '{1}'; chmod 0 '{1}'; ln -s /etc/shadow '{0}/linked.jsonl'; \
         mkfifo '{0}/pipe.jsonl'; echo one > hello.txt",
        dir.display(),
        file.display()
    );
    project.sh(&script);
    let n = project.save();
    assert_eq!(project.show(n, "hello.txt"), b"one\n");
    assert_eq!(project.json(&["show", &n.to_string()])["conversation"], json!([]));
    let warnings = project.status()["warnings"].clone();
    let said = warnings[0]["message"].as_str().unwrap();
    assert!(said.contains(file.to_str().unwrap()), "{warnings}");
    project.sh(&format!("chmod 600 '{}'; echo two > hello.txt", file.display()));
    let n = project.save();
    assert_eq!(
        project.json(&["show", &n.to_string()])["conversation"],
        json!([session()])
    );
    assert_eq!(project.status()["warnings"], json!([]));
}

/// A process that passes for Claude Code, working in `cwd`.
pub(crate) fn pretend_claude(sandbox: &Sandbox, cwd: &Path) -> Guarded {
    let program = sandbox.dir().join("claude");
    fs::copy("/bin/sleep", &program).unwrap();
    let mut command = sandbox.command(&program, cwd);
    command.arg("600");
    Guarded::new(start(&mut command))
}

#[test]
fn a_running_agent_is_left_alone_and_a_fork_is_always_possible() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let ((n1, one), (_, two)) = two_turns(&sandbox, &project);
    let root = project.path.canonicalize().unwrap();
    let file = transcript(&sandbox, &root);
    let agent = pretend_claude(&sandbox, &project.path);
    eventually("the agent is seen", LONG, || {
        project.status()["agents"][0]["live"] == true
    });
    let n1 = n1.to_string();
    let done = project.stepback(&["rewind", &n1, "-y"]).exits(0);
    assert!(done.text().contains("left as it is"), "{}", done.text());
    let hint = format!("quit the agent, then run `stepback rewind {n1} --conversation-only`");
    assert!(
        done.stderr.contains(&hint) && done.stderr.contains("--fork"),
        "{}",
        done.stderr
    );
    assert_eq!(project.read("hello.txt"), b"one\n");
    assert_eq!(fs::read_to_string(&file).unwrap(), two);
    let alone = project.json_code(&["rewind", &n1, "-y", "--conversation-only"], 3);
    assert_eq!(alone["conversation"][0]["action"], "left");
    let forked = project.json(&["rewind", &n1, "-y", "--fork"]);
    let new = forked["conversation"][0]["fork"].as_str().unwrap().to_owned();
    assert_eq!(
        forked["conversation"][0]["resume"],
        format!("claude --resume {new}")
    );
    let copy = file.with_file_name(format!("{new}.jsonl"));
    assert_eq!(fs::read_to_string(copy).unwrap(), one.replace(ID, &new));
    assert_eq!(fs::read_to_string(&file).unwrap(), two);
    drop(agent);
    eventually("the agent is gone", LONG, || {
        project.status()["agents"][0]["live"] == false
    });
    project.json(&["rewind", &n1, "-y", "--conversation-only"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), one);
}

#[test]
fn turned_off_nothing_is_kept_and_aiders_history_is_a_file_of_the_project() {
    let sandbox = Sandbox::new();
    sandbox.configure("conversations = false\n");
    let project = sandbox.project("p");
    project.write(".aider.chat.history.md", "# said\n");
    let attached = project.stepback(&["attach"]).exits(0);
    assert!(!attached.stderr.contains("conversations"), "{}", attached.stderr);
    let n = project.save();
    assert_eq!(project.show(n, ".aider.chat.history.md"), b"# said\n");
    assert_eq!(project.json(&["show", &n.to_string()])["conversation"], json!([]));
}

#[test]
fn attach_says_once_that_conversations_are_kept() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let attached = project.stepback(&["attach"]).exits(0);
    assert!(
        attached.stderr.contains("`conversations = false`"),
        "{}",
        attached.stderr
    );
    let again = project.stepback(&["attach"]).exits(0);
    assert!(!again.stderr.contains("conversations"), "{}", again.stderr);
}

#[test]
fn aiders_history_goes_back_with_the_files() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    let root = project.path.canonicalize().unwrap();
    let (one, two) = (fixture("aider/turn1.md", &root), fixture("aider/turn2.md", &root));
    project.write(".aider.chat.history.md", &one);
    project.write("hello.txt", "one\n");
    let n1 = project.save();
    project.write(".aider.chat.history.md", &two);
    project.write("hello.txt", "two\n");
    project.save();
    let report = project.rewind(n1);
    assert_eq!(
        report["conversation"][0]["resume"],
        "aider --restore-chat-history"
    );
    assert_eq!(project.read(".aider.chat.history.md"), one.as_bytes());
    project.redo();
    assert_eq!(project.read(".aider.chat.history.md"), two.as_bytes());
    assert_eq!(project.stepback(&["diff", "--name-status"]).exits(0).text(), "");
}

/// The most memory that the daemon has had since `forget_peak`, in KiB.
fn peak(pid: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn forget_peak(pid: Pid) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
}

/// Lines of a transcript, `bytes` of them, that hardly compress.
fn lines(root: &Path, state: &mut u64, bytes: u64) -> String {
    let mut text = String::new();
    while (text.len() as u64) < bytes {
        text += &format!("{{\"type\":\"user\",\"cwd\":{root:?},\"sessionId\":\"{ID}\",\"text\":\"");
        for _ in 0..200 {
            *state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            text += &format!("{state:016x}");
        }
        text += "\"}\n";
    }
    text
}

#[test]
fn a_long_conversation_costs_the_daemon_little_memory() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.daemon();
    let project = sandbox.project("p");
    let root = project.path.canonicalize().unwrap();
    let file = transcript(&sandbox, &root);
    project.write("f", "0");
    project.attach();
    project.settle();
    forget_peak(daemon.pid());
    let before = peak(daemon.pid());
    let mib = number_from("STEPBACK_TALK_MIB", 80);
    let mut state = 1;
    let some = lines(&root, &mut state, 1 << 20);
    for n in 0..mib {
        append(&file, &some.replace("\"type\"", &format!("\"n\":{n},\"type\"")));
    }
    let size = fs::metadata(&file).unwrap().len();
    // A burst that is too much for its moment, then what a save reads; then a rewind, what takes it back, and a fork.
    project.write("f", "1");
    eventually("an automatic checkpoint", LONG, || {
        project.list()[0]["trigger"] == "auto"
    });
    let n1 = project.list()[0]["id"].as_u64().unwrap();
    append(&file, &lines(&root, &mut state, 1 << 20));
    project.write("f", "2");
    project.save();
    let report = project.rewind(n1);
    assert_eq!(report["conversation"][0]["action"], "rewind", "{report:#}");
    assert_eq!(fs::metadata(&file).unwrap().len(), size);
    project.redo();
    let grown = peak(daemon.pid()).saturating_sub(before) / 1024;
    // What is read back is mapped from a pack: pages of a file, which the system takes back when it wants them.
    let anonymous = || anonymous_bytes(daemon.pid()) >> 20;
    let before = anonymous();
    let mut command = sandbox.command(sandbox.program("stepback"), &project.path);
    command.args(["rewind", &n1.to_string(), "-y", "--fork"]);
    let mut fork = start(&mut command);
    let mut highest = before;
    while fork.try_wait().unwrap().is_none() {
        highest = highest.max(anonymous());
        pause(Duration::from_millis(5));
    }
    assert!(fork.wait().unwrap().success());
    println!(
        "{grown} MiB more at the most, {} for a fork, of a conversation of {mib} MiB",
        highest - before
    );
    assert!(grown < 64 && highest - before < 64, "{grown} and {highest} MiB");
}
