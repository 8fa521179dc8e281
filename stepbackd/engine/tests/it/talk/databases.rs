//! opencode and goose: the rows of one session in a database of many.

use std::fs;
use std::path::PathBuf;

use rusqlite::Connection;

use stepback_engine::checkpoint::Trigger;
use stepback_engine::engine::{Scope, Why};
use stepback_engine::time::Time;

use super::support::{FORK, actions, schema};
use crate::support::{Sandbox, at_time};

fn open(path: &PathBuf, fixture: &str) -> Connection {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let new = !path.exists();
    let database = Connection::open(path).unwrap();
    database.pragma_update(None, "journal_mode", "wal").unwrap();
    // Rows that these refer to are no matter here.
    database.pragma_update(None, "foreign_keys", false).unwrap();
    if new {
        database.execute_batch(&schema(fixture)).unwrap();
    }
    database
}

/// All rows of a table as text.
fn dump(database: &Connection, table: &str) -> Vec<String> {
    let mut query = database
        .prepare(&format!("SELECT * FROM {table} ORDER BY 1"))
        .unwrap();
    let columns = query.column_count();
    let rows = query.query_map([], |row| {
        let values = (0..columns).map(|at| row.get::<_, rusqlite::types::Value>(at));
        Ok(format!("{:?}", values.map(Result::unwrap).collect::<Vec<_>>()))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

fn all(database: &Connection, tables: &[&str]) -> Vec<Vec<String>> {
    tables.iter().map(|table| dump(database, table)).collect()
}

const OPENCODE: [&str; 4] = ["session", "message", "part", "todo"];

fn opencode(sandbox: &Sandbox) -> Connection {
    let path = sandbox.home().join(".local/share/opencode/opencode.db");
    open(&path, "opencode/schema.sql")
}

fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

fn opencode_session(database: &Connection, id: &str, parent: Option<&str>, directory: &str) {
    database
        .execute(
            "INSERT INTO session (id, project_id, parent_id, slug, directory, title, version, cost, time_created, time_updated)
             VALUES (?1, 'p', ?2, 's', ?3, 't', '1', 0.5, ?4, ?4)",
            (id, parent, directory, now_ms()),
        )
        .unwrap();
}

fn opencode_turn(database: &Connection, session: &str, n: u32) {
    let message = format!("msg_{n:04}{session}");
    database
        .execute(
            "INSERT INTO message VALUES (?1, ?2, ?3, ?3, ?4)",
            (&message, session, now_ms(), format!("{{\"id\":\"{message}\"}}")),
        )
        .unwrap();
    database
        .execute(
            "INSERT INTO part VALUES (?1, ?2, ?3, ?4, ?4, ?5)",
            (
                format!("prt_{n:04}{session}"),
                &message,
                session,
                now_ms(),
                format!("{{\"text\":\"TURN-{n} é\"}}"),
            ),
        )
        .unwrap();
    database
        .execute(
            "UPDATE session SET time_updated = ?2, title = ?3 WHERE id = ?1",
            (session, now_ms(), format!("turn {n}")),
        )
        .unwrap();
}

#[test]
fn rows_of_opencode_go_back_and_come_again_and_others_stay() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root().to_str().unwrap().to_owned();
    // The agent of another project holds the database open all the while.
    let database = opencode(&sandbox);
    opencode_session(&database, "ses_a", None, &root);
    opencode_session(&database, "ses_else", None, "/elsewhere");
    opencode_turn(&database, "ses_a", 1);
    opencode_turn(&database, "ses_else", 1);
    sandbox.write("hello.txt", "one\n");
    let n1 = sandbox.capture().id;
    let one = all(&database, &OPENCODE);
    opencode_turn(&database, "ses_a", 2);
    opencode_session(&database, "ses_child", Some("ses_a"), &root);
    opencode_turn(&database, "ses_child", 1);
    database
        .execute(
            "INSERT INTO todo VALUES ('ses_a', 'c', 'open', 'high', 0, 1, 1)",
            [],
        )
        .unwrap();
    sandbox.write("hello.txt", "two\n");
    sandbox.capture();
    let two = all(&database, &OPENCODE);
    let report = sandbox.rewind(n1);
    assert_eq!(actions(&report), [("opencode", "ses_a", "rewind")], "{report:?}");
    assert_eq!(
        report.conversation[0].resume.as_deref(),
        Some("opencode --session ses_a")
    );
    assert_eq!(all(&database, &OPENCODE), one);
    // What another session gets meanwhile stays.
    opencode_turn(&database, "ses_else", 2);
    let elsewhere: Vec<_> = dump(&database, "message")
        .into_iter()
        .filter(|m| m.contains("ses_else"))
        .collect();
    sandbox.redo();
    let again = all(&database, &OPENCODE);
    let ours = |tables: Vec<Vec<String>>| -> Vec<Vec<String>> {
        tables
            .into_iter()
            .map(|rows| rows.into_iter().filter(|row| !row.contains("ses_else")).collect())
            .collect()
    };
    assert_eq!(ours(again.clone()), ours(two));
    assert_eq!(
        again[1].iter().filter(|m| m.contains("ses_else")).count(),
        elsewhere.len()
    );
}

#[test]
fn a_session_whose_directory_is_named_through_a_link_is_ours() {
    let mut sandbox = Sandbox::with(|_| {});
    let link = sandbox.path().join("link");
    std::os::unix::fs::symlink(sandbox.root(), &link).unwrap();
    let database = opencode(&sandbox);
    opencode_session(&database, "ses_a", None, link.to_str().unwrap());
    opencode_session(&database, "ses_b", None, &format!("{}2", link.display()));
    opencode_turn(&database, "ses_a", 1);
    opencode_turn(&database, "ses_b", 1);
    sandbox.write("hello.txt", "one\n");
    let n = sandbox.capture().id;
    let kept = sandbox.engine().checkpoint(n).unwrap().conversation.clone();
    assert_eq!(
        kept.iter().map(|id| id.session.as_str()).collect::<Vec<_>>(),
        ["ses_a"]
    );
}

#[test]
fn a_fork_of_opencode_has_ids_of_its_own() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root().to_str().unwrap().to_owned();
    let database = opencode(&sandbox);
    opencode_session(&database, "ses_0123456789abcdef", None, &root);
    opencode_turn(&database, "ses_0123456789abcdef", 1);
    sandbox.write("hello.txt", "one\n");
    let n1 = sandbox.capture().id;
    opencode_turn(&database, "ses_0123456789abcdef", 2);
    let before = dump(&database, "message");
    let report = sandbox.rewind_as(n1, FORK);
    let new = report.conversation[0]
        .fork
        .clone()
        .unwrap_or_else(|| panic!("{report:?}"));
    let after = dump(&database, "message");
    assert!(before.iter().all(|row| after.contains(row)));
    let added: Vec<_> = after.iter().filter(|row| !before.contains(row)).collect();
    assert_eq!(added.len(), 1);
    assert!(
        added[0].contains(&new) && !added[0].contains("ses_0123456789abcdef"),
        "{added:?}"
    );
}

const GOOSE: [&str; 2] = ["sessions", "messages"];

fn goose(sandbox: &Sandbox) -> Connection {
    let path = sandbox.home().join(".local/share/goose/sessions/sessions.db");
    open(&path, "goose/schema.sql")
}

fn goose_turn(database: &Connection, session: &str, n: u32) {
    database
        .execute(
            "INSERT INTO messages (message_id, session_id, role, content_json, created_timestamp, tokens)
             VALUES (?1, ?2, 'user', ?3, ?4, NULL)",
            (
                format!("msg_{session}_{n}"),
                session,
                format!("[\"TURN-{n}\"]"),
                now_ms() / 1000,
            ),
        )
        .unwrap();
    database
        .execute(
            "UPDATE sessions SET updated_at = CURRENT_TIMESTAMP, accumulated_cost = ?2 WHERE id = ?1",
            (session, f64::from(n) / 3.0),
        )
        .unwrap();
}

#[test]
fn rows_of_goose_go_back_and_come_again() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root().to_str().unwrap().to_owned();
    let database = goose(&sandbox);
    for (id, dir) in [("20261129_1", root.as_str()), ("20261129_2", "/elsewhere")] {
        database
            .execute(
                "INSERT INTO sessions (id, name, working_dir) VALUES (?1, 'demo', ?2)",
                (id, dir),
            )
            .unwrap();
        goose_turn(&database, id, 1);
    }
    sandbox.write("hello.txt", "one\n");
    let n1 = sandbox.capture().id;
    let one = all(&database, &GOOSE);
    goose_turn(&database, "20261129_1", 2);
    sandbox.write("hello.txt", "two\n");
    sandbox.capture();
    let two = all(&database, &GOOSE);
    let report = sandbox.rewind(n1);
    assert_eq!(
        actions(&report),
        [("goose", "20261129_1", "rewind")],
        "{report:?}"
    );
    assert_eq!(all(&database, &GOOSE), one);
    sandbox.redo();
    assert_eq!(all(&database, &GOOSE), two);
    let report = sandbox.rewind_as(n1, FORK);
    let new = report.conversation[0]
        .fork
        .clone()
        .unwrap_or_else(|| panic!("{report:?}"));
    let messages = dump(&database, "messages");
    assert_eq!(messages.iter().filter(|row| row.contains(&new)).count(), 1);
    assert_eq!(messages.len(), two[1].len() + 1);
}

#[test]
fn two_sessions_of_a_day_are_forked_at_once() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root().to_str().unwrap().to_owned();
    let database = goose(&sandbox);
    for id in ["20261129_1", "20261129_2"] {
        let insert = "INSERT INTO sessions (id, name, working_dir) VALUES (?1, 'demo', ?2)";
        database.execute(insert, (id, &root)).unwrap();
        goose_turn(&database, id, 1);
    }
    sandbox.write("hello.txt", "one\n");
    let n1 = sandbox.capture().id;
    let report = sandbox.rewind_as(n1, FORK);
    let forks: Vec<_> = report.conversation.iter().map(|o| o.fork.clone()).collect();
    assert!(
        forks.iter().all(Option::is_some) && forks[0] != forks[1],
        "{report:?}"
    );
    assert_eq!(dump(&database, "sessions").len(), 4);
}

#[test]
fn a_database_in_use_is_left_alone() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root().to_str().unwrap().to_owned();
    let database = opencode(&sandbox);
    opencode_session(&database, "ses_a", None, &root);
    opencode_turn(&database, "ses_a", 1);
    sandbox.write("hello.txt", "one\n");
    let n1 = sandbox.capture().id;
    opencode_turn(&database, "ses_a", 2);
    sandbox.write("hello.txt", "two\n");
    sandbox.capture();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    let report = sandbox.rewind(n1);
    assert_eq!(actions(&report), [("opencode", "ses_a", "left")], "{report:?}");
    assert_eq!(sandbox.read("hello.txt").unwrap(), "one\n");
    database.execute_batch("COMMIT").unwrap();
    assert_eq!(dump(&database, "message").len(), 2);
}

#[test]
fn a_session_that_could_not_be_read_is_kept_at_the_next_checkpoint() {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root().to_str().unwrap().to_owned();
    let database = opencode(&sandbox);
    opencode_session(&database, "ses_a", None, &root);
    opencode_turn(&database, "ses_a", 1);
    // Without a log of its own a writer keeps readers out.
    database.pragma_update(None, "journal_mode", "delete").unwrap();
    let began = Sandbox::now();
    let mut capture = |seconds: i64| {
        sandbox.write("hello.txt", &format!("{seconds}\n"));
        let now = Time(began.0 + seconds * 1_000_000_000);
        let why = Why::plain(Trigger::Auto);
        let n = at_time(&mut sandbox, now, |engine, cx| {
            engine.capture(Scope::All, &why, cx).unwrap().id
        });
        let engine = sandbox.engine();
        let kept = engine.checkpoint(n).unwrap().conversation.len();
        (kept, engine.conversation_notes().len())
    };
    database.execute_batch("BEGIN EXCLUSIVE").unwrap();
    assert_eq!(capture(5), (0, 1), "it can't be read, and that is said");
    database.execute_batch("COMMIT").unwrap();
    assert_eq!(capture(10), (1, 0));
    assert_eq!(capture(15), (0, 0), "nothing was said since");
}
