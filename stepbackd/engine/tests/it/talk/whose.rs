//! Whose a session is, how far it was, and which others are out of step with the files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use stepback_engine::checkpoint::Trigger;
use stepback_engine::conversation::{Agent, Seen, SessionId, Until};
use stepback_engine::engine::{Operation, Select, TurnLabel, Why};

use super::support::{BEGAN, CONVERSATION, FORK, actions, append, fixture, look, slug, write};
use crate::support::Sandbox;

const ID: &str = "bb015940-e7c6-49f8-9734-6c6705e466d5";
const OTHER: &str = "11111111-1111-4111-8111-111111111111";

fn session(id: &str) -> SessionId {
    SessionId {
        agent: Agent::ClaudeCode,
        session: id.into(),
    }
}

/// Of a session that began in `cwd`.
fn transcript(home: &Path, cwd: &Path, id: &str) -> PathBuf {
    home.join("projects").join(slug(cwd)).join(format!("{id}.jsonl"))
}

fn in_root(sandbox: &Sandbox, id: &str) -> PathBuf {
    transcript(&sandbox.home().join(".claude"), &sandbox.root(), id)
}

fn turn_of(n: u32, cwd: &Path, id: &str) -> String {
    fixture(&format!("claude/turn{n}.jsonl"), cwd).replace(ID, id)
}

fn told(sandbox: &mut Sandbox, id: &str, path: &Path) {
    sandbox.engine().note_seen(Seen {
        agent: Agent::ClaudeCode,
        session: id.into(),
        path: Some(path.to_owned()),
    });
}

#[test]
fn a_session_whose_process_a_hook_told_of_is_left_wherever_that_stands() {
    let mut sandbox = Sandbox::with(|_| {});
    let told = sandbox.told.clone();
    let (root, file) = (sandbox.root(), in_root(&sandbox, ID));
    let n1 = sandbox.turn("one\n", &file, &turn_of(1, &root, ID));
    sandbox.turn("two\n", &file, &turn_of(2, &root, ID));
    sandbox.pretend_process(66, "/opt/claude/2.1", &["claude"], Path::new("/"));
    told.heard(session(ID), 66, BEGAN);
    let report = sandbox.rewind(n1);
    assert_eq!(actions(&report), [("claude-code", ID, "left")]);
    let left = &report.conversation[0];
    assert!(left.why.as_ref().unwrap().contains("66"), "{left:?}");
    let command = format!("quit the agent, then run `stepback rewind {n1} --conversation-only`");
    assert!(left.hint.as_ref().unwrap().starts_with(&command), "{left:?}");
    assert_eq!(look(&file).text, turn_of(2, &root, ID));
    // The number is another process's by now.
    told.heard(session(ID), 66, BEGAN + 1);
    let report = sandbox.rewind_as(n1, CONVERSATION);
    assert_eq!(actions(&report), [("claude-code", ID, "rewind")]);
    assert_eq!(look(&file).text, turn_of(1, &root, ID));
}

#[test]
fn a_session_that_began_in_another_directory_is_kept_here_and_never_put_back() {
    let mut sandbox = Sandbox::with(|_| {});
    let elsewhere = sandbox.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let file = transcript(&sandbox.home().join(".claude"), &elsewhere, ID);
    write(&file, &turn_of(1, &elsewhere, ID));
    told(&mut sandbox, ID, &file);
    // Its later records are of the directory that it went to.
    let root = sandbox.root();
    let n1 = sandbox.turn("one\n", &file, &turn_of(1, &elsewhere, ID));
    let later = turn_of(2, &root, ID);
    append(&file, &later);
    sandbox.write("hello.txt", "two\n");
    sandbox.capture();
    let present = look(&file);
    let report = sandbox.rewind(n1);
    assert_eq!(actions(&report), [("claude-code", ID, "left")]);
    let why = report.conversation[0].why.as_deref().unwrap();
    assert!(why.contains(elsewhere.to_str().unwrap()), "{why}");
    assert_eq!(look(&file), present);
    let report = sandbox.rewind_as(n1, FORK);
    let new = report.conversation[0].fork.clone().unwrap();
    let copy = transcript(&sandbox.home().join(".claude"), &elsewhere, &new);
    assert_eq!(look(&copy).text, turn_of(1, &elsewhere, &new));
    assert_eq!(look(&file), present);
}

#[test]
fn the_record_at_the_start_of_a_turn_ends_where_the_transcript_did_then() {
    let mut sandbox = Sandbox::with(|_| {});
    let (root, file) = (sandbox.root(), in_root(&sandbox, ID));
    let one = turn_of(1, &root, ID);
    sandbox.turn("one\n", &file, &one);
    let until = |bytes: usize, id: &str, path: &Path| Why {
        until: Some(Until {
            session: session(id),
            path: path.to_owned(),
            bytes: bytes as u64,
        }),
        ..Why::plain(Trigger::TurnStart)
    };
    // The prompt came before the checkpoint was made, and was even captured with a burst.
    let two = turn_of(2, &root, ID);
    write(&file, &two);
    sandbox.capture_as(&Why::plain(Trigger::Auto)).unwrap();
    let start = sandbox.capture_as(&until(one.len(), ID, &file)).unwrap().id;
    sandbox.write("hello.txt", "two\n");
    sandbox.capture_as(&Why::plain(Trigger::TurnEnd)).unwrap();
    sandbox.rewind(start);
    assert_eq!(look(&file).text, one);
    sandbox.redo();
    assert_eq!(look(&file).text, two, "the end of the turn has all of it");
    // Of a session that was just beginning nothing belongs to the start of its first turn.
    let other = in_root(&sandbox, OTHER);
    write(&other, &turn_of(1, &root, OTHER));
    // A burst was faster.
    sandbox.write("hello.txt", "by hand\n");
    sandbox.capture_as(&Why::plain(Trigger::Auto)).unwrap();
    let mut why = until(0, OTHER, &other);
    why.turn = Some(TurnLabel {
        agent: "claude-code".into(),
        session: OTHER.into(),
        turn: 1,
        prompt: None,
        tools: Vec::new(),
    });
    let start = sandbox.capture_as(&why).unwrap().id;
    let listed = &sandbox.engine().checkpoint(start).unwrap().conversation;
    assert!(!listed.contains(&session(OTHER)), "{listed:?}");
    sandbox.write("hello.txt", "three\n");
    append(&other, "{}\n");
    sandbox.capture_as(&Why::plain(Trigger::TurnEnd)).unwrap();
    let report = sandbox.rewind(start);
    let ahead = report.conversation.iter().find(|o| o.session == OTHER).unwrap();
    assert_eq!(ahead.action, "ahead");
    assert!(
        ahead.why.as_ref().unwrap().starts_with("it began after"),
        "{ahead:?}"
    );
    assert!(look(&other).text.ends_with("{}\n"));
}

#[test]
fn a_transcript_in_another_directory_of_the_agent_is_kept_and_put_back() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    let home = sandbox.home().join(".claude-work");
    let file = transcript(&home, &root, ID);
    told(&mut sandbox, ID, &file);
    let one = turn_of(1, &root, ID);
    let n1 = sandbox.turn("one\n", &file, &one);
    let sub = file.with_extension("").join("subagents/agent-a.jsonl");
    write(&sub, "{}\n");
    sandbox.turn("two\n", &file, &turn_of(2, &root, ID));
    let present = look(&file);
    // What is recorded tells of the directory after a restart.
    sandbox.reopen(true);
    let report = sandbox.rewind(n1);
    assert_eq!(actions(&report), [("claude-code", ID, "rewind")]);
    let resume = format!("CLAUDE_CONFIG_DIR={} claude --resume {ID}", home.display());
    assert_eq!(report.conversation[0].resume.as_deref(), Some(resume.as_str()));
    assert_eq!((look(&file).text, sub.exists()), (one.clone(), false));
    sandbox.redo();
    assert_eq!((look(&file), look(&sub).text.as_str()), (present, "{}\n"));
    let report = sandbox.rewind_as(n1, FORK);
    let new = report.conversation[0].fork.clone().unwrap();
    let copy = look(&transcript(&home, &root, &new)).text;
    assert_eq!(copy, one.replace(ID, &new));
    // One that lies as no agent's do isn't kept, and that is said.
    let odd = sandbox.path().join("odd.jsonl");
    write(&odd, "{}\n");
    told(&mut sandbox, OTHER, &odd);
    sandbox.turn("three\n", &file, &(turn_of(2, &root, ID) + "{}\n"));
    let notes = sandbox.engine().conversation_notes();
    assert!(notes[0].1.contains("odd.jsonl"), "{notes:?}");
}

#[test]
fn sessions_that_a_rewind_leaves_ahead_of_the_files_are_named() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    let (a, b) = (in_root(&sandbox, ID), in_root(&sandbox, OTHER));
    let of_b = sandbox.turn("b\n", &b, &turn_of(1, &root, OTHER));
    let n = sandbox.turn("one\n", &a, &turn_of(1, &root, ID));
    sandbox.turn("by b\n", &b, &turn_of(2, &root, OTHER));
    let present = look(&b);
    let preview = sandbox.preview(&Operation::Rewind(Some(Select::Number(n))));
    assert_eq!(preview.unwrap().conversation[1].action, "ahead");
    let report = sandbox.rewind(n);
    assert_eq!(
        actions(&report),
        [("claude-code", ID, "none"), ("claude-code", OTHER, "ahead")]
    );
    let hint = report.conversation[1].hint.as_deref().unwrap();
    assert_eq!(
        hint,
        format!("`stepback rewind {of_b} --conversation-only` puts it back, too")
    );
    assert_eq!(look(&b), present);
    sandbox.rewind_as(of_b, CONVERSATION);
    assert_eq!(look(&b).text, turn_of(1, &root, OTHER));
    assert_eq!(sandbox.read("hello.txt").unwrap(), "one\n");
    // Now all is in step.
    sandbox.write("hello.txt", "by hand\n");
    sandbox.capture();
    let report = sandbox.rewind(n);
    assert_eq!(actions(&report), [("claude-code", ID, "none")]);
}

#[test]
fn the_conversation_goes_back_with_an_edit_by_hand_as_it_was_then() {
    let mut sandbox = Sandbox::with(|_| {});
    let (root, file) = (sandbox.root(), in_root(&sandbox, ID));
    let one = turn_of(1, &root, ID);
    sandbox.turn("one\n", &file, &one);
    sandbox.write("hello.txt", "by hand\n");
    let hand = sandbox.capture().id;
    assert!(sandbox.engine().checkpoint(hand).unwrap().conversation.is_empty());
    sandbox
        .on(|engine, cx| engine.session_start(Some("work"), None, None, cx))
        .unwrap();
    sandbox.turn("two\n", &file, &turn_of(2, &root, ID));
    let report = sandbox.rewind(hand);
    assert_eq!(actions(&report), [("claude-code", ID, "rewind")]);
    assert_eq!(look(&file).text, one);
    sandbox.redo();
    assert_eq!(look(&file).text, turn_of(2, &root, ID));
    let report = sandbox.execute(&Operation::Revert("work".into())).unwrap();
    assert_eq!(actions(&report), [("claude-code", ID, "rewind")]);
    assert_eq!(look(&file).text, one);
    sandbox.redo();
    // Where a checkpoint in between is gone, or on another way, nobody can be sure: it is named instead.
    let gone = sandbox.turn("three\n", &file, &(turn_of(2, &root, ID) + "{\"three\":1}\n"));
    sandbox.write("hello.txt", "again by hand\n");
    let hand = sandbox.capture().id;
    sandbox.turn(
        "four\n",
        &file,
        &(turn_of(2, &root, ID) + "{\"three\":1}\n{\"four\":1}\n"),
    );
    sandbox
        .on(|engine, cx| engine.drop_checkpoints(&[gone], false, cx))
        .unwrap();
    let present = look(&file);
    let report = sandbox.rewind(hand);
    assert_eq!(actions(&report), [("claude-code", ID, "ahead")]);
    assert_eq!(look(&file), present);
}

#[test]
fn twice_goes_two_back_for_conversations_alone_too() {
    let mut sandbox = Sandbox::with(|_| {});
    let (root, file) = (sandbox.root(), in_root(&sandbox, ID));
    let text = |turns: usize| turn_of(1, &root, ID) + &"{\"more\":1}\n".repeat(turns);
    for turn in 0..5 {
        sandbox.turn(&turn.to_string(), &file, &text(turn));
    }
    let back = |sandbox: &mut Sandbox| {
        sandbox
            .on(|engine, cx| engine.execute_as(&Operation::Rewind(None), CONVERSATION, None, cx))
            .unwrap();
        look(&file).text.matches("{\"more\":1}").count()
    };
    for turn in [3, 2, 1] {
        assert_eq!(back(&mut sandbox), turn);
    }
    // What was said since goes first.
    append(&file, "{\"else\":1}\n");
    assert_eq!(back(&mut sandbox), 1);
    assert!(!look(&file).text.contains("else"));
    assert_eq!(sandbox.read("hello.txt").unwrap(), "4");
}

#[test]
fn what_redo_had_to_leave_is_put_back_by_the_rewind_that_it_names() {
    let mut sandbox = Sandbox::with(|_| {});
    let (root, file) = (sandbox.root(), in_root(&sandbox, ID));
    let n1 = sandbox.turn("one\n", &file, &turn_of(1, &root, ID));
    sandbox.turn("two\n", &file, &turn_of(2, &root, ID));
    let before = sandbox.rewind(n1).saved.unwrap();
    sandbox.pretend_process(77, "/opt/claude/2.1", &["claude"], &root);
    let report = sandbox.redo();
    assert_eq!(actions(&report), [("claude-code", ID, "left")]);
    assert_eq!(sandbox.read("hello.txt").unwrap(), "two\n");
    let hint = report.conversation[0].hint.clone().unwrap();
    let command = format!("`stepback rewind {before} --conversation-only`");
    assert!(hint.contains(&command), "{hint}");
    sandbox.end_process(77);
    sandbox.rewind_as(before, CONVERSATION);
    assert_eq!(look(&file).text, turn_of(2, &root, ID));
}

#[test]
fn a_session_in_two_directories_of_the_root_is_one() {
    let mut sandbox = Sandbox::with(|_| {});
    let sub = sandbox.root().join("sub");
    fs::create_dir(&sub).unwrap();
    let home = sandbox.home().join(".claude");
    let (a, b) = (in_root(&sandbox, ID), transcript(&home, &sub, ID));
    let (one, one_b) = (turn_of(1, &sandbox.root(), ID), turn_of(1, &sub, ID));
    write(&b, &one_b);
    let n1 = sandbox.turn("one\n", &a, &one);
    append(&b, "{}\n");
    sandbox.turn("two\n", &a, &turn_of(2, &sandbox.root(), ID));
    let present = [&a, &b].map(|path| look(path));
    assert_eq!(actions(&sandbox.rewind(n1)), [("claude-code", ID, "rewind")]);
    assert_eq!((look(&a).text, look(&b).text), (one, one_b));
    sandbox.redo();
    assert_eq!([&a, &b].map(|path| look(path)), present);
}

#[test]
fn a_transcript_that_was_closed_to_others_since_stays_so() {
    let mut sandbox = Sandbox::with(|_| {});
    let (root, file) = (sandbox.root(), in_root(&sandbox, ID));
    let set = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    write(&file, &turn_of(1, &root, ID));
    set(0o644);
    sandbox.write("hello.txt", "one\n");
    let n1 = sandbox.capture().id;
    append(&file, "{}\n");
    set(0o600);
    sandbox.write("hello.txt", "two\n");
    sandbox.capture();
    sandbox.rewind(n1);
    assert_eq!(look(&file).mode, 0o600);
}
