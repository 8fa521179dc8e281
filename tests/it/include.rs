//! Ignored files that are captured because somebody asked for them.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use stepback_tests::{Project, Sandbox, eventually, pause};

/// X22: an agent removes the ignore file, then everything that isn't tracked.
const WIPE: &str = "rm -rf .gitignore; git clean -qfd";

fn with_notes(project: &Project<'_>) {
    project.sh(
        "git init -q .; printf 'notes/\\n.env\\n' > .gitignore; echo 1 > a; git add a; git commit -qm 1; mkdir notes
         echo SECRET=1 > .env; i=0; while [ $i -lt 39 ]; do echo note $i > notes/n$i; i=$((i+1)); done",
    );
}

#[test]
fn included_files_come_back_and_the_preview_marks_them() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    with_notes(&project);
    project.json(&["attach", "--here", "--include", "notes/**", "--include", ".env*"]);
    let tree = project.tree();
    project.sh(WIPE);
    let preview = project.json(&["rewind", "1", "-n"]);
    let changes = preview["changes"].as_array().unwrap();
    let included: Vec<&str> = changes
        .iter()
        .filter(|change| change["included"] == true)
        .map(|change| change["path"].as_str().unwrap())
        .collect();
    assert_eq!(included.len(), 40, "{included:?}");
    assert!(included.contains(&".env") && !included.contains(&".gitignore"));
    let shown = project.stepback(&["rewind", "1", "-n", "--all"]).exits(0).text();
    assert!(shown.contains("notes/n0  (included)"), "{shown}");
    project.rewind(1);
    tree.same(&project.tree(), "39 notes and .env are back");
}

/// A pattern that is gone leaves what it took in as an ignored file, which going back replaces: the preview marks it.
#[test]
fn what_was_included_then_is_marked_too() {
    let sandbox = Sandbox::new();
    sandbox.configure("include = [\".env*\"]\n");
    let project = sandbox.project("p");
    with_notes(&project);
    project.json(&["attach", "--here"]);
    sandbox.configure("include = []\n");
    sandbox.stepback(sandbox.dir(), &["daemon", "restart"]).exits(0);
    project.save();
    project.sh("echo SECRET=2 > .env; echo 2 > a");
    let preview = project.json(&["rewind", "1", "-n"]);
    let marked = |path: &str| {
        let changes = preview["changes"].as_array().unwrap();
        let of_path = changes.iter().find(|change| change["path"] == path).unwrap();
        of_path["included"] == true
    };
    assert!(marked(".env") && !marked("a"), "{preview:#}");
}

/// What can never be captured isn't taken for included.
#[test]
fn a_pattern_below_git_is_refused() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    with_notes(&project);
    let refused = project.json_code(&["attach", "--here", "--include", ".git/config"], 2);
    assert!(
        refused["error"]["message"].as_str().unwrap().contains(".git"),
        "{refused}"
    );
}

/// Also of what was captured with a higher one.
#[test]
fn a_lower_cap_leaves_out_what_is_above_it_from_then_on() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("large", vec![7; 3 << 20]);
    project.attach();
    project.json(&["attach", "--here", "--max-file-size", "1 MiB"]);
    let left_out = project.status()["not_captured"].clone();
    assert_eq!(left_out[0]["path"], "large", "{left_out}");
    assert_eq!(left_out[0]["reason"], "too-large", "{left_out}");
    project.json(&["attach", "--here", "--max-file-size", "10 MiB"]);
    assert_eq!(project.status()["not_captured"], serde_json::json!([]));
}

#[test]
fn without_a_pattern_people_are_told_that_ignored_files_are_not_covered() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    with_notes(&project);
    project.attach();
    let status = project.stepback(&["status"]).exits(0).text();
    assert!(
        status.contains("ignored files") && status.contains("--include"),
        "{status}"
    );
    let list = project.stepback(&["list"]).exits(0);
    assert!(
        list.stderr.contains("ignored files are in no checkpoint"),
        "{list:?}"
    );
    project.sh(WIPE);
    project.rewind(1);
    assert!(!project.file("notes").exists());
}

/// Opens a database in a directory of its own; the sum of what it holds, which each transaction leaves at zero.
fn check(database: &Path) -> i64 {
    let connection = Connection::open(database).unwrap();
    let sound: String = connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(sound, "ok");
    let rows: i64 = connection
        .query_row("SELECT count(*) FROM t", [], |row| row.get(0))
        .unwrap();
    let sum: i64 = connection
        .query_row("SELECT coalesce(sum(x), 0) FROM t", [], |row| row.get(0))
        .unwrap();
    assert_eq!(sum, 0, "no transaction is there in part");
    rows
}

#[test]
fn a_database_that_is_written_to_is_captured_whole() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf '*.sqlite*\\n' > .gitignore; echo 1 > a");
    project.json(&["attach", "--here", "--include", "*.sqlite"]);
    let database = project.file("app.sqlite");
    let connection = Connection::open(&database).unwrap();
    connection
        .execute_batch(
            "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=8; CREATE TABLE t(x INTEGER, y TEXT);",
        )
        .unwrap();
    let stop = AtomicBool::new(false);
    let stop_it = &stop;
    let mut saved = Vec::new();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut i: i64 = 0;
            while !stop_it.load(Ordering::Relaxed) {
                let insert = "INSERT INTO t VALUES (?1, hex(randomblob(900))), (-?1, hex(randomblob(900)))";
                connection.execute(insert, [i]).unwrap();
                if i % 7 == 6 {
                    connection
                        .execute("DELETE FROM t WHERE abs(x) < ?1", [i - 40])
                        .unwrap();
                }
                i += 1;
                pause(Duration::from_millis(3));
            }
            // Left as a crash would leave it: with a log.
            std::mem::forget(connection);
        });
        for round in 0..12 {
            project.sh(&format!("echo {round} > a"));
            saved.push(project.save());
        }
        stop.store(true, Ordering::Relaxed);
    });
    let mut whole = 0;
    for id in saved {
        let show = project.json(&["show", &id.to_string()]);
        let left_out = show["not_captured"].as_array().unwrap();
        if left_out.iter().any(|entry| entry["path"] == "app.sqlite") {
            assert!(
                left_out.iter().all(|entry| entry["reason"] == "changing"),
                "{show:#}"
            );
            continue;
        }
        let copy = sandbox.dir().join(format!("copy-{id}"));
        fs::create_dir(&copy).unwrap();
        for name in ["app.sqlite", "app.sqlite-wal"] {
            fs::write(copy.join(name), project.show(id, name)).unwrap();
        }
        check(&copy.join("app.sqlite"));
        whole += 1;
    }
    println!("{whole} of 12 checkpoints have the database, all of them whole");
    // At rest it is captured in any case.
    eventually("captured", Duration::from_secs(30), || {
        let id = project.save();
        let show = project.json(&["show", &id.to_string()]);
        show["not_captured"].as_array().unwrap().is_empty()
    });
    let last = project.save();
    let rows = check(&database);
    project.sh("rm app.sqlite*");
    project.rewind(last);
    assert_eq!(check(&database), rows);
}
