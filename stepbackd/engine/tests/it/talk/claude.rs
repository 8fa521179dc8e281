//! Claude Code, and what holds for every agent that appends records to a file.

use std::fs;
use std::path::{Path, PathBuf};

use stepback_engine::checkpoint::Trigger;
use stepback_engine::conversation::{Agent, Mode, Seen, SessionId, What};
use stepback_engine::engine::{Operation, Select, Why};

use super::support::{BOTH, CONVERSATION, FORK, actions, append, fixture, look, slug, write};
use crate::support::Sandbox;

const ID: &str = "bb015940-e7c6-49f8-9734-6c6705e466d5";

fn projects(sandbox: &Sandbox) -> PathBuf {
    sandbox
        .home()
        .join(".claude/projects")
        .join(slug(&sandbox.root()))
}

fn transcript(sandbox: &Sandbox, id: &str) -> PathBuf {
    projects(sandbox).join(format!("{id}.jsonl"))
}

/// An attached root, and a session of two turns in it: checkpoints and transcripts of both.
fn two_turns(sandbox: &mut Sandbox) -> ((u64, String), (u64, String)) {
    let root = sandbox.root();
    let file = transcript(sandbox, ID);
    let one = fixture("claude/turn1.jsonl", &root);
    let two = fixture("claude/turn2.jsonl", &root);
    let n1 = sandbox.turn("one\n", &file, &one);
    let n2 = sandbox.turn("two\n", &file, &two);
    ((n1, one), (n2, two))
}

#[test]
fn files_and_conversation_go_back_together_and_come_again() {
    let mut sandbox = Sandbox::with(|_| {});
    let ((n1, one), (n2, two)) = two_turns(&mut sandbox);
    let file = transcript(&sandbox, ID);
    let of = |sandbox: &mut Sandbox, n| sandbox.engine().checkpoint(n).unwrap().conversation.clone();
    let id = SessionId {
        agent: Agent::ClaudeCode,
        session: ID.into(),
    };
    for n in [n1, n2] {
        assert_eq!(of(&mut sandbox, n), std::slice::from_ref(&id));
    }
    let before = look(&file);
    let report = sandbox.rewind(n1);
    assert_eq!(sandbox.read("hello.txt").unwrap(), "one\n");
    assert_eq!(actions(&report), [("claude-code", ID, "rewind")]);
    assert_eq!(
        report.conversation[0].resume.as_deref(),
        Some(format!("claude --resume {ID}").as_str())
    );
    let after = look(&file);
    assert_eq!(after.text, one);
    assert_eq!((after.mode, after.ino), (0o600, before.ino));
    let report = sandbox.redo();
    assert_eq!(actions(&report), [("claude-code", ID, "rewind")]);
    assert_eq!(sandbox.read("hello.txt").unwrap(), "two\n");
    let again = look(&file);
    assert_eq!(again.text, two);
    assert_eq!(again, before);
}

#[test]
fn the_time_of_the_transcript_is_that_of_then() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    let file = transcript(&sandbox, ID);
    let n1 = sandbox.turn("one\n", &file, &fixture("claude/turn1.jsonl", &root));
    let then = look(&file).mtime;
    sandbox.turn("two\n", &file, &fixture("claude/turn2.jsonl", &root));
    sandbox.rewind(n1);
    assert_eq!(look(&file).mtime, then);
}

#[test]
fn a_half_line_is_not_put_back_by_a_rewind_and_is_by_redo() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    let file = transcript(&sandbox, ID);
    let one = fixture("claude/turn1.jsonl", &root);
    let n1 = sandbox.turn("one\n", &file, &format!("{one}{{\"type\":\"us"));
    let two = format!("{one}{{\"type\":\"user\"}}\n{{\"hal");
    sandbox.turn("two\n", &file, &two);
    sandbox.rewind(n1);
    assert_eq!(look(&file).text, one);
    sandbox.redo();
    assert_eq!(look(&file).text, two);
}

#[test]
fn of_two_sessions_those_of_the_span_are_put_back() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    let other_id = "11111111-1111-4111-8111-111111111111";
    let (a, b) = (transcript(&sandbox, ID), transcript(&sandbox, other_id));
    let one = fixture("claude/turn1.jsonl", &root);
    let other = one.replace(ID, other_id);
    write(&b, &other);
    let n1 = sandbox.turn("one\n", &a, &one);
    append(&b, "{\"type\":\"later\"}\n");
    let n2 = sandbox.turn("two\n", &a, &fixture("claude/turn2.jsonl", &root));
    // Only one of them goes on.
    let n3 = sandbox.turn(
        "three\n",
        &a,
        &(fixture("claude/turn2.jsonl", &root) + "{\"type\":\"x\"}\n"),
    );
    let n4 = sandbox.turn(
        "four\n",
        &a,
        &(fixture("claude/turn2.jsonl", &root) + "{\"type\":\"x\"}\n{}\n"),
    );
    append(&b, "{\"type\":\"last\"}\n");
    sandbox.capture_as(&Why::plain(Trigger::TurnEnd)).unwrap();
    let report = sandbox.rewind(n3);
    assert_eq!(
        actions(&report),
        [("claude-code", ID, "rewind"), ("claude-code", other_id, "ahead")]
    );
    // What was recorded of it last is in one record with the other's.
    let hint = report.conversation[1].hint.as_deref().unwrap();
    assert!(hint.starts_with("tell that agent"), "{hint}");
    assert!(
        look(&b).text.ends_with("{\"type\":\"last\"}\n"),
        "not of that span"
    );
    let report = sandbox.rewind(n2);
    assert_eq!(report.conversation.len(), 2);
    assert!(look(&b).text.ends_with("{\"type\":\"later\"}\n"));
    sandbox.rewind(n1);
    assert_eq!((look(&a).text, look(&b).text), (one, other));
    let _ = n4;
    for _ in 0..3 {
        sandbox.redo();
    }
    assert!(look(&b).text.ends_with("{\"type\":\"last\"}\n"));
    assert!(look(&a).text.ends_with("{\"type\":\"x\"}\n{}\n"));
}

#[test]
fn one_half_alone_changes_alone() {
    let mut sandbox = Sandbox::with(|_| {});
    let ((n1, one), (_, two)) = two_turns(&mut sandbox);
    let file = transcript(&sandbox, ID);
    let files = Mode {
        what: What::Files,
        fork: false,
    };
    sandbox.rewind_as(n1, files);
    assert_eq!(sandbox.read("hello.txt").unwrap(), "one\n");
    assert_eq!(look(&file).text, two);
    sandbox.redo();
    let report = sandbox.rewind_as(n1, CONVERSATION);
    assert_eq!(sandbox.read("hello.txt").unwrap(), "two\n");
    assert_eq!(look(&file).text, one);
    assert!(report.saved.is_some() && report.redoable);
    let report = sandbox.redo();
    assert_eq!(actions(&report), [("claude-code", ID, "rewind")]);
    assert_eq!(look(&file).text, two);
    assert_eq!(sandbox.read("hello.txt").unwrap(), "two\n");
}

#[test]
fn a_conversation_alone_goes_to_the_nearest_that_differs() {
    let mut sandbox = Sandbox::with(|_| {});
    let ((n1, one), _) = two_turns(&mut sandbox);
    let report = sandbox
        .on(|engine, cx| engine.execute_as(&Operation::Rewind(None), CONVERSATION, None, cx))
        .unwrap();
    assert_eq!(report.target, n1);
    assert_eq!(look(&transcript(&sandbox, ID)).text, one);
}

#[test]
fn a_second_rewind_to_the_same_does_nothing() {
    let mut sandbox = Sandbox::with(|_| {});
    let ((n1, _), _) = two_turns(&mut sandbox);
    sandbox.rewind(n1);
    let count = sandbox.engine().checkpoints().len();
    let operation = Operation::Rewind(Some(Select::Number(n1)));
    assert!(sandbox.preview(&operation).unwrap().noop);
    let report = sandbox.rewind(n1);
    assert_eq!(actions(&report), [("claude-code", ID, "none")]);
    assert_eq!(
        (report.saved, sandbox.engine().checkpoints().len()),
        (None, count)
    );
}

#[test]
fn a_running_agent_is_left_alone_and_can_be_forked() {
    let mut sandbox = Sandbox::with(|_| {});
    let ((n1, one), (_, two)) = two_turns(&mut sandbox);
    let file = transcript(&sandbox, ID);
    let sub = sandbox.root().join("sub");
    fs::create_dir(&sub).unwrap();
    sandbox.pretend_process(77, "/opt/claude/2.1", &["claude"], &sub);
    let report = sandbox.rewind(n1);
    assert_eq!(actions(&report), [("claude-code", ID, "left")]);
    assert!(report.conversation[0].why.as_ref().unwrap().contains("77"));
    assert_eq!(sandbox.read("hello.txt").unwrap(), "one\n");
    assert_eq!(look(&file).text, two);
    let report = sandbox.rewind_as(n1, FORK);
    let new = report.conversation[0].fork.clone().unwrap();
    assert_eq!(
        report.conversation[0].resume.as_deref(),
        Some(format!("claude --resume {new}").as_str())
    );
    assert_eq!(look(&transcript(&sandbox, &new)).text, one.replace(ID, &new));
    assert_eq!(look(&transcript(&sandbox, &new)).mode, 0o600);
    assert_eq!(look(&file).text, two);
}

#[test]
fn a_file_that_is_held_open_is_left_alone() {
    let mut sandbox = Sandbox::with(|_| {});
    let ((n1, _), (_, two)) = two_turns(&mut sandbox);
    let file = transcript(&sandbox, ID);
    sandbox.pretend_process(78, "/usr/bin/tail", &["tail", "-f"], Path::new("/"));
    std::os::unix::fs::symlink(&file, sandbox.path().join("processes/78/fd/3")).unwrap();
    let report = sandbox.rewind(n1);
    assert_eq!(actions(&report), [("claude-code", ID, "left")]);
    assert_eq!(look(&file).text, two);
}

#[test]
fn what_was_said_since_a_rewind_is_saved_by_redo() {
    let mut sandbox = Sandbox::with(|_| {});
    let ((n1, one), (_, two)) = two_turns(&mut sandbox);
    let file = transcript(&sandbox, ID);
    sandbox.rewind(n1);
    append(&file, "{\"type\":\"else\"}\n");
    let report = sandbox.redo();
    assert_eq!(look(&file).text, two);
    sandbox.rewind(report.back.unwrap());
    assert_eq!(look(&file).text, format!("{one}{{\"type\":\"else\"}}\n"));
}

#[test]
fn sub_agents_belong_to_their_session() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    let id = "cccccccc-0000-4000-8000-000000000003";
    let file = transcript(&sandbox, id);
    let below = projects(&sandbox).join(id).join("subagents");
    let (meta, agent) = (below.join("agent-a.meta.json"), below.join("agent-a.jsonl"));
    let history = sandbox.home().join(format!(".claude/file-history/{id}/c1@v2"));
    let all = fixture("claude/with-subagent.jsonl", &root);
    let half: String = all.split_inclusive('\n').take(12).collect();
    let n1 = sandbox.turn("one\n", &file, &half);
    write(&meta, &fixture("claude/agent.meta.json", &root));
    write(&agent, &fixture("claude/agent.jsonl", &root));
    write(&history, "old\n");
    sandbox.turn("two\n", &file, &all);
    let before = [&file, &meta, &agent, &history].map(|path| look(path));
    sandbox.rewind(n1);
    assert_eq!(look(&file).text, half);
    assert!(!agent.exists() && !meta.exists() && !history.exists());
    sandbox.redo();
    let again = [&file, &meta, &agent, &history].map(|path| look(path));
    for (before, again) in before.iter().zip(&again) {
        assert_eq!(
            (&again.text, again.mode, again.mtime),
            (&before.text, before.mode, before.mtime)
        );
    }
    assert_eq!(again[0].ino, before[0].ino);
}

#[test]
fn a_copy_outlives_what_the_agent_deletes() {
    let mut sandbox = Sandbox::with(|_| {});
    let ((n1, one), _) = two_turns(&mut sandbox);
    let file = transcript(&sandbox, ID);
    fs::remove_dir_all(sandbox.home().join(".claude/projects")).unwrap();
    let report = sandbox.rewind(n1);
    assert_eq!(actions(&report), [("claude-code", ID, "rewind")]);
    assert_eq!(look(&file).text, one);
    assert_eq!(look(&file).mode, 0o600);
}

#[test]
fn nothing_is_written_through_a_link() {
    let mut sandbox = Sandbox::with(|_| {});
    let ((n1, _), (_, two)) = two_turns(&mut sandbox);
    let file = transcript(&sandbox, ID);
    let elsewhere = sandbox.path().join("elsewhere.jsonl");
    fs::rename(&file, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &file).unwrap();
    let report = sandbox.rewind(n1);
    assert_eq!(actions(&report), [("claude-code", ID, "left")]);
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), two);
    assert_eq!(sandbox.read("hello.txt").unwrap(), "one\n");
}

#[test]
fn the_agents_directory_itself_may_be_a_link() {
    let mut sandbox = Sandbox::new();
    let real = sandbox.path().join("dotfiles");
    fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, sandbox.home().join(".claude")).unwrap();
    sandbox.attach();
    let ((n1, one), _) = two_turns(&mut sandbox);
    sandbox.rewind(n1);
    assert_eq!(look(&transcript(&sandbox, ID)).text, one);
}

#[test]
fn one_that_is_resumed_in_another_directory_goes_on_in_its_old_place() {
    let mut sandbox = Sandbox::new();
    let real = sandbox.path().join("dotfiles");
    fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, sandbox.home().join(".claude")).unwrap();
    sandbox.attach();
    let elsewhere = sandbox.path().join("elsewhere");
    let dir = sandbox.home().join(".claude/projects").join(slug(&elsewhere));
    let (file, agent) = (
        dir.join(format!("{ID}.jsonl")),
        dir.join(ID).join("subagents/agent-a.jsonl"),
    );
    let one = fixture("claude/turn1.jsonl", &elsewhere);
    write(&file, &one);
    // A hook is all that tells of it, by a name that leads through the link.
    sandbox.engine().note_seen(Seen {
        agent: Agent::ClaudeCode,
        session: ID.into(),
        path: Some(file.clone()),
    });
    let n1 = sandbox.turn("one\n", &agent, "{}\n");
    append(&agent, "{\"more\":1}\n");
    sandbox.turn("two\n", &file, &fixture("claude/turn2.jsonl", &elsewhere));
    let before = [&file, &agent].map(|path| look(path));
    sandbox.rewind(n1);
    assert_eq!((look(&file).text, look(&agent).text.as_str()), (one, "{}\n"));
    sandbox.redo();
    assert_eq!([&file, &agent].map(|path| look(path)), before);
}

#[test]
fn sessions_of_other_directories_are_nothing_to_this_one() {
    let mut sandbox = Sandbox::with(|_| {});
    // The slug of another directory may begin as ours does, or be the same.
    let elsewhere = PathBuf::from(format!("{}-x", sandbox.root().display()));
    let file = sandbox
        .home()
        .join(".claude/projects")
        .join(slug(&elsewhere))
        .join(format!("{ID}.jsonl"));
    let n = sandbox.turn("one\n", &file, &fixture("claude/turn1.jsonl", &elsewhere));
    assert!(sandbox.engine().checkpoint(n).unwrap().conversation.is_empty());
}

#[test]
fn records_that_say_little_are_found_by_where_they_lie() {
    let mut sandbox = Sandbox::with(|_| {});
    let file = transcript(&sandbox, ID);
    let entry = |n: u32| {
        let parent = if n == 0 {
            "null".into()
        } else {
            format!("\"u{}\"", n - 1)
        };
        format!("{{\"uuid\":\"u{n}\",\"parentUuid\":{parent},\"type\":\"user\"}}\n")
    };
    let hundred: String = (0..100).map(entry).collect();
    let all: String = (0..200).map(entry).collect();
    let n = sandbox.turn("one\n", &file, &hundred);
    sandbox.turn("two\n", &file, &all);
    sandbox.rewind(n);
    assert_eq!(look(&file).text, hundred);
    sandbox.redo();
    assert_eq!(look(&file).text, all);
}

#[test]
fn an_idle_session_of_before_is_not_kept_until_it_goes_on() {
    let mut sandbox = Sandbox::new();
    let root = sandbox.root();
    let file = transcript(&sandbox, ID);
    write(&file, &fixture("claude/turn1.jsonl", &root));
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(30 * 24 * 3600);
    fs::File::options()
        .append(true)
        .open(&file)
        .unwrap()
        .set_modified(old)
        .unwrap();
    let n = sandbox.attach().id;
    assert!(sandbox.engine().checkpoint(n).unwrap().conversation.is_empty());
    sandbox.write("a", "a");
    let n = sandbox.capture().id;
    assert!(sandbox.engine().checkpoint(n).unwrap().conversation.is_empty());
    let n = sandbox.turn("two\n", &file, &fixture("claude/turn2.jsonl", &root));
    assert_eq!(sandbox.engine().checkpoint(n).unwrap().conversation.len(), 1);
}

#[test]
fn a_checkpoint_that_changed_nothing_is_of_the_span_before() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    let file = transcript(&sandbox, ID);
    let one = fixture("claude/turn1.jsonl", &root);
    sandbox.turn("one\n", &file, &one);
    let why = Why {
        label: Some("good".into()),
        ..Why::plain(Trigger::Save)
    };
    let n = sandbox.capture_as(&why).unwrap().id;
    sandbox.turn("two\n", &file, &fixture("claude/turn2.jsonl", &root));
    sandbox.rewind(n);
    assert_eq!(look(&file).text, one);
}

#[test]
fn a_save_of_an_unchanged_tree_saves_what_was_said_since() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    let file = transcript(&sandbox, ID);
    let one = fixture("claude/turn1.jsonl", &root);
    let half: String = one.split_inclusive('\n').take(9).collect();
    // The edit is seen in the middle of the turn, the answer comes after it.
    sandbox.write("hello.txt", "one\n");
    write(&file, &half);
    let n = sandbox.capture_as(&Why::plain(Trigger::Auto)).unwrap().id;
    write(&file, &one);
    assert_eq!(
        (sandbox.capture().id, sandbox.engine().checkpoints().len() as u64),
        (n, n)
    );
    // Also of a session that wasn't at work before.
    let other = transcript(&sandbox, "22222222-2222-4222-8222-222222222222");
    write(&other, &one);
    assert_eq!(sandbox.capture().id, n);
    assert_eq!(sandbox.engine().checkpoint(n).unwrap().conversation.len(), 2);
    sandbox.turn("two\n", &file, &fixture("claude/turn2.jsonl", &root));
    sandbox.rewind(n);
    assert_eq!(look(&file).text, one);
    sandbox.reopen(false);
    assert_eq!(sandbox.engine().checkpoint(n).unwrap().conversation.len(), 2);
    assert!(sandbox.engine().verify().unwrap().is_empty());
}

#[test]
fn what_is_known_survives_a_restart_and_a_drop() {
    let mut sandbox = Sandbox::with(|_| {});
    let ((n1, one), (n2, two)) = two_turns(&mut sandbox);
    let file = transcript(&sandbox, ID);
    sandbox.reopen(true);
    sandbox.write("more", "x");
    let n3 = sandbox.capture().id;
    assert!(
        sandbox.engine().checkpoint(n3).unwrap().conversation.is_empty(),
        "it was idle"
    );
    sandbox
        .on(|engine, cx| engine.drop_checkpoints(&[n2], false, cx))
        .unwrap();
    let three = format!("{two}{{\"type\":\"three\"}}\n");
    let n4 = sandbox.turn("four\n", &file, &three);
    sandbox.rewind(n1);
    assert_eq!(look(&file).text, one);
    sandbox.rewind(n4);
    assert_eq!(look(&file).text, three);
    assert!(sandbox.engine().verify().unwrap().is_empty());
}

#[test]
fn turned_off_nothing_is_kept_or_changed() {
    let mut sandbox = Sandbox::with(|_| {});
    let ((n1, _), (_, two)) = two_turns(&mut sandbox);
    let mut settings = Sandbox::settings();
    settings.conversations = false;
    sandbox.engine().set_settings(&settings);
    let report = sandbox.rewind_as(n1, BOTH);
    assert!(report.conversation.is_empty());
    assert_eq!(look(&transcript(&sandbox, ID)).text, two);
    sandbox.write("x", "x");
    append(&transcript(&sandbox, ID), "{}\n");
    let n = sandbox.capture().id;
    assert!(sandbox.engine().checkpoint(n).unwrap().conversation.is_empty());
}

#[test]
fn nothing_of_a_transcript_is_in_the_tree() {
    let mut sandbox = Sandbox::with(|_| {});
    two_turns(&mut sandbox);
    let names: Vec<_> = sandbox.picture().into_keys().collect();
    assert_eq!(names, [b"hello.txt".to_vec()]);
}

#[test]
fn a_project_with_a_long_path_of_any_letters_is_found() {
    let mut sandbox = Sandbox::new();
    let deep = sandbox
        .root()
        .join("é日本 x_y.z")
        .join("d".repeat(120))
        .join("e".repeat(120));
    fs::create_dir_all(&deep).unwrap();
    sandbox.attach_at(&deep).unwrap();
    let mut name = slug(&deep);
    name.truncate(200);
    let file = sandbox
        .home()
        .join(format!(".claude/projects/{name}-abc123/{ID}.jsonl"));
    write(&file, &fixture("claude/turn1.jsonl", &deep));
    fs::write(deep.join("f"), "1").unwrap();
    let n1 = sandbox.capture().id;
    write(&file, &fixture("claude/turn2.jsonl", &deep));
    fs::write(deep.join("f"), "2").unwrap();
    sandbox.capture();
    sandbox.rewind(n1);
    assert_eq!(look(&file).text, fixture("claude/turn1.jsonl", &deep));
}
