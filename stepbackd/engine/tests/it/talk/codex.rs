//! Codex CLI: rollouts by date, the history that the agent makes of them, forks by reference.

use std::fs;
use std::path::PathBuf;

use rusqlite::Connection;
use stepback_engine::checkpoint::Trigger;
use stepback_engine::conversation::running;
use stepback_engine::engine::Why;

use super::support::{CONVERSATION, FORK, actions, fixture, look, schema, write};
use crate::support::{Sandbox, homes_of};

const ID: &str = "01a227d8-4fea-73e1-8693-382af8fb8a7b";

/// Today's directory, as far as the look at recent ones goes.
fn rollout(sandbox: &Sandbox, id: &str) -> PathBuf {
    let today = jiff::Timestamp::now().strftime("%Y/%m/%d").to_string();
    sandbox
        .home()
        .join(".codex/sessions")
        .join(today)
        .join(format!("rollout-2026-11-29T15-06-57-{id}.jsonl"))
}

fn history(sandbox: &Sandbox) -> Connection {
    let database = Connection::open(sandbox.home().join(".codex/thread_history_1.sqlite")).unwrap();
    database.pragma_update(None, "journal_mode", "wal").unwrap();
    database
}

fn rows(sandbox: &Sandbox) -> Vec<(String, i64)> {
    let database = history(sandbox);
    let mut query = database
        .prepare("SELECT thread_id || turn_id, rollout_ordinal FROM thread_turns ORDER BY 1, 2")
        .unwrap();
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

fn project(sandbox: &Sandbox, thread: &str, turn: &str, ordinal: i64) {
    let database = history(sandbox);
    database
        .execute(
            "INSERT INTO thread_turns (thread_id, turn_id, rollout_ordinal, status) VALUES (?1, ?2, ?3, 'done')",
            (thread, turn, ordinal),
        )
        .unwrap();
    database
        .execute(
            "INSERT OR REPLACE INTO thread_history_projection_state VALUES (?1, ?2, ?3)",
            (thread, ordinal * 100, ordinal),
        )
        .unwrap();
}

#[test]
fn a_rollout_is_cut_and_what_was_made_of_it_goes() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    let file = rollout(&sandbox, ID);
    let (one, two) = (
        fixture("codex/turn1.jsonl", &root),
        fixture("codex/turn2.jsonl", &root),
    );
    fs::create_dir_all(sandbox.home().join(".codex")).unwrap();
    history(&sandbox)
        .execute_batch(&schema("codex/thread_history.sql"))
        .unwrap();
    project(&sandbox, ID, "t1", 2);
    project(&sandbox, "another", "t1", 2);
    let n1 = sandbox.turn("one\n", &file, &one);
    project(&sandbox, ID, "t2", 20);
    sandbox.turn("two\n", &file, &two);
    let (before, recorded) = (look(&file), rows(&sandbox));
    let report = sandbox.rewind(n1);
    assert_eq!(actions(&report), [("codex", ID, "rewind")], "{report:?}");
    assert_eq!(
        report.conversation[0].resume.as_deref(),
        Some(format!("codex resume {ID}").as_str())
    );
    assert_eq!((look(&file).text, look(&file).ino), (one, before.ino));
    assert_eq!(rows(&sandbox), [("anothert1".to_owned(), 2)]);
    sandbox.redo();
    assert_eq!(look(&file), before);
    assert_eq!(rows(&sandbox), recorded);
}

#[test]
fn a_session_of_long_ago_that_goes_on_is_found_on_request() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    let file = sandbox.home().join(format!(
        ".codex/sessions/2024/01/02/rollout-2024-01-02T15-06-57-{ID}.jsonl"
    ));
    let n1 = sandbox.turn("one\n", &file, &fixture("codex/turn1.jsonl", &root));
    sandbox.turn("two\n", &file, &fixture("codex/turn2.jsonl", &root));
    sandbox.rewind(n1);
    assert_eq!(look(&file).text, fixture("codex/turn1.jsonl", &root));
}

#[test]
fn one_that_the_agent_lists_as_changed_is_found_after_a_burst() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    let old = |id: &str| {
        let name = format!("rollout-2024-01-02T15-06-57-{id}.jsonl");
        sandbox.home().join(".codex/sessions/2024/01/02").join(name)
    };
    let other = ID.replace("01a227d8", "01a227d9");
    let (file, unlisted) = (old(ID), old(&other));
    let one = fixture("codex/turn1.jsonl", &root);
    write(&unlisted, &one.replace(ID, &other));
    write(&file, &one);
    // An older list, which isn't asked, and the one that is.
    fs::write(sandbox.home().join(".codex/state_9.sqlite"), "no database").unwrap();
    let list = Connection::open(sandbox.home().join(".codex/state_10.sqlite")).unwrap();
    list.execute_batch("CREATE TABLE threads (id TEXT, rollout_path TEXT, cwd TEXT, updated_at_ms INTEGER)")
        .unwrap();
    list.execute(
        "INSERT INTO threads VALUES (?1, ?2, ?3, ?4)",
        (
            ID,
            file.to_str().unwrap(),
            root.to_str().unwrap(),
            jiff::Timestamp::now().as_millisecond(),
        ),
    )
    .unwrap();
    let auto = |sandbox: &mut Sandbox| {
        let n = sandbox.capture_as(&Why::plain(Trigger::Auto)).unwrap().id;
        let kept = sandbox.engine().checkpoint(n).unwrap().conversation.clone();
        (n, kept.into_iter().map(|id| id.session).collect::<Vec<_>>())
    };
    sandbox.write("hello.txt", "one\n");
    let (n1, kept) = auto(&mut sandbox);
    assert_eq!(kept, [ID]);
    write(&file, &fixture("codex/turn2.jsonl", &root));
    sandbox.write("hello.txt", "two\n");
    assert_eq!(auto(&mut sandbox).1, [ID]);
    sandbox.rewind(n1);
    assert_eq!(look(&file).text, one);
    // One that can't be read is no list at all.
    drop(list);
    fs::write(sandbox.home().join(".codex/state_10.sqlite"), "no database").unwrap();
    write(&file, &fixture("codex/turn2.jsonl", &root));
    sandbox.write("hello.txt", "three\n");
    assert_eq!(auto(&mut sandbox).1, [ID]);
}

/// The first record of a rollout that begins in another one.
fn based_on(id: &str, base: &str, offset: usize, root: &std::path::Path) -> String {
    format!(
        "{{\"type\":\"session_meta\",\"payload\":{{\"id\":\"{id}\",\"cwd\":\"{}\",\"history_base\":{{\"thread_id\":\
         \"{base}\",\"end_ordinal_exclusive\":19,\"end_byte_offset\":{offset}}}}}}}\n",
        root.display()
    )
}

#[test]
fn what_a_fork_needs_stays() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    let file = rollout(&sandbox, ID);
    let (one, two) = (
        fixture("codex/turn1.jsonl", &root),
        fixture("codex/turn2.jsonl", &root),
    );
    let n1 = sandbox.turn("one\n", &file, &one);
    sandbox.turn("two\n", &file, &two);
    let other = "01a227ee-ef57-77d0-8587-ecccbf66e63f";
    let fork = rollout(&sandbox, other);
    write(&fork, &based_on(other, ID, two.len(), &root));
    let report = sandbox.rewind(n1);
    assert_eq!(actions(&report), [("codex", ID, "left")]);
    assert!(report.conversation[0].why.as_ref().unwrap().contains(other));
    assert_eq!(look(&file).text, two);
    sandbox.redo();
    // One that begins before the cut does no harm.
    fs::write(&fork, based_on(other, ID, one.len(), &root)).unwrap();
    let report = sandbox.rewind(n1);
    assert_eq!(actions(&report), [("codex", ID, "rewind")]);
    assert_eq!(look(&file).text, one);
}

#[test]
fn a_rollout_that_the_agent_added_by_a_revert_goes_and_comes_again() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    let file = rollout(&sandbox, ID);
    let one = fixture("codex/turn1.jsonl", &root);
    let n1 = sandbox.turn("one\n", &file, &one);
    let added = rollout(&sandbox, &format!("{ID}_01a227ee-e1ba-73e3-919f-3632ab5fa9c7"));
    sandbox.turn("two\n", &added, &based_on(ID, ID, one.len(), &root));
    let before = look(&added);
    let report = sandbox.rewind(n1);
    assert_eq!(actions(&report), [("codex", ID, "rewind")], "{report:?}");
    assert!(!added.exists());
    sandbox.redo();
    assert_eq!(
        (look(&added).text, look(&added).mtime),
        (before.text, before.mtime)
    );
}

#[test]
fn a_fork_has_its_id_wherever_the_old_one_was() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    let file = rollout(&sandbox, ID);
    let one = fixture("codex/turn1.jsonl", &root);
    let n1 = sandbox.turn("one\n", &file, &one);
    sandbox.turn("two\n", &file, &fixture("codex/turn2.jsonl", &root));
    let report = sandbox.rewind_as(n1, FORK);
    let new = report.conversation[0].fork.clone().unwrap();
    assert_eq!((new.len(), &new[14..15]), (36, "7"));
    assert_eq!(look(&rollout(&sandbox, &new)).text, one.replace(ID, &new));
}

/// As the interactive program starts them: a service that outlives it and keeps rollouts open, and what updates that.
#[test]
fn a_service_in_the_background_counts_by_what_it_holds_open() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    let file = rollout(&sandbox, ID);
    let n1 = sandbox.turn("one\n", &file, &fixture("codex/turn1.jsonl", &root));
    sandbox.turn("two\n", &file, &fixture("codex/turn2.jsonl", &root));
    let exe = "/home/u/.codex/app-server-daemon/releases/0.171.0/bin/codex";
    let updater = [exe, "app-server", "daemon", "pid-update-loop"];
    sandbox.pretend_process(80, exe, &updater, &root);
    let service = [exe, "app-server", "--listen", "unix://", "--managed-daemon"];
    sandbox.pretend_process(81, exe, &service, &root);
    assert!(running(&homes_of(&sandbox.path()), &root).unwrap().is_empty());
    let held = sandbox.path().join("processes/81/fd/63");
    std::os::unix::fs::symlink(&file, &held).unwrap();
    let report = sandbox.rewind(n1);
    assert_eq!(actions(&report), [("codex", ID, "left")]);
    let left = &report.conversation[0];
    assert!(left.why.as_ref().unwrap().contains("service"), "{left:?}");
    let hint = left.hint.as_ref().unwrap();
    assert!(
        hint.contains("codex app-server daemon stop") && hint.contains("--fork"),
        "{hint}"
    );
    std::fs::remove_file(&held).unwrap();
    let report = sandbox.rewind_as(n1, CONVERSATION);
    assert_eq!(actions(&report), [("codex", ID, "rewind")]);
}
