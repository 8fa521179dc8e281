//! Taking an operation back where something else stands by now, and what is told after one that failed.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use stepback_engine::Error;
use stepback_engine::engine::{Operation, Preview, Report, Select};

use crate::support::Sandbox;

fn kept(report: &Report) -> Vec<(String, &str)> {
    let kept = report.kept.iter();
    kept.map(|kept| (kept.path.to_string(), kept.reason.as_str()))
        .collect()
}

fn reasons(preview: &Preview) -> Vec<String> {
    let kept = preview.kept.iter();
    kept.map(|kept| format!("{}: {}", kept.path, kept.reason))
        .collect()
}

/// A rewind made `f` again.
fn f_was_made_again() -> Sandbox {
    let mut sandbox = Sandbox::with(|root| {
        fs::write(root.join("f"), "one\n").unwrap();
        fs::write(root.join("k"), "k\n").unwrap();
    });
    fs::remove_file(sandbox.root().join("f")).unwrap();
    sandbox.capture();
    sandbox.rewind(1);
    fs::remove_file(sandbox.root().join("f")).unwrap();
    sandbox
}

#[test]
fn a_directory_in_the_place_of_a_file_that_a_rewind_made_goes_with_all_that_is_in_it() {
    let mut sandbox = f_was_made_again();
    sandbox.write("f/d/q", "q\n");
    let before = sandbox.picture();
    let report = sandbox.execute(&Operation::Redo).unwrap();
    assert_eq!((report.removed, kept(&report).len()), (1, 0), "{report:?}");
    assert!(!sandbox.root().join("f").exists());
    sandbox.rewind(report.back.unwrap());
    assert_eq!(sandbox.picture(), before);
}

#[test]
fn a_directory_that_a_rewind_made_stays_where_something_was_made_in_it_since() {
    let mut sandbox = Sandbox::with(|root| {
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/f"), "one\n").unwrap();
    });
    fs::remove_dir_all(sandbox.root().join("d")).unwrap();
    sandbox.capture();
    sandbox.rewind(1);
    fs::remove_file(sandbox.root().join("d/f")).unwrap();
    sandbox.write("d/f/q", "in the way\n");
    sandbox.write("d/new", "new\n");
    let report = sandbox.execute(&Operation::Redo).unwrap();
    assert_eq!(kept(&report).len(), 0, "{report:?}");
    assert_eq!(sandbox.read("d/new").as_deref(), Some("new\n"));
    assert!(!sandbox.root().join("d/f").exists());
}

#[test]
fn a_repository_in_the_way_of_a_redo_is_named_and_the_entry_waits() {
    let mut sandbox = f_was_made_again();
    fs::create_dir_all(sandbox.root().join("f/.git")).unwrap();
    let report = sandbox.execute(&Operation::Redo).unwrap();
    assert_eq!(kept(&report), [("f".to_owned(), ".git inside")]);
    assert_eq!((report.written, report.removed, report.redo), (0, 0, 1));
    fs::remove_dir_all(sandbox.root().join("f")).unwrap();
    let report = sandbox.execute(&Operation::Redo).unwrap();
    assert_eq!((kept(&report).len(), report.redo), (0, 0));
}

/// Where others may write, set-id bits aren't put back: what the rewind left is then not what the checkpoint has.
#[test]
fn what_a_rewind_left_goes_though_set_id_bits_were_refused_and_it_is_ignored_by_now() {
    let mode = |path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let mut sandbox = Sandbox::with(|root| {
        fs::create_dir(root.join("d")).unwrap();
        mode(root.join("d"), 0o777);
        fs::write(root.join("d/c.log"), "a\n").unwrap();
        mode(root.join("d/c.log"), 0o4755);
    });
    fs::remove_file(sandbox.root().join("d/c.log")).unwrap();
    sandbox.write(".gitignore", "*.log\n");
    sandbox.capture();
    let report = sandbox.rewind(1);
    assert!(
        report.notes.iter().any(|note| note.contains("set-user-id")),
        "{report:?}"
    );
    let report = sandbox.execute(&Operation::Redo).unwrap();
    assert_eq!((report.written, report.removed), (1, 1), "{report:?}");
    assert!(!sandbox.root().join("d/c.log").exists());
}

#[test]
fn what_is_kept_is_no_noop_and_a_repository_is_said_to_be_why() {
    let mut sandbox = Sandbox::with(|root| {
        fs::write(root.join("x"), "f\n").unwrap();
        fs::write(root.join(".gitignore"), "x/\n").unwrap();
    });
    fs::remove_file(sandbox.root().join("x")).unwrap();
    fs::create_dir_all(sandbox.root().join("x/n/.git")).unwrap();
    sandbox.write("x/n/k", "K\n");
    sandbox.capture();
    let preview = sandbox
        .preview(&Operation::Rewind(Some(Select::Number(1))))
        .unwrap();
    assert_eq!(
        reasons(&preview),
        ["x: it holds what isn't in the checkpoint: x/n (.git inside)"]
    );
    assert!(preview.changes.is_empty() && !preview.noop);
    let report = sandbox.rewind(1);
    assert_eq!((report.written, report.saved, report.redo), (0, None, 0));
    assert_eq!(sandbox.read("x/n/k").as_deref(), Some("K\n"));
}

#[test]
fn an_operation_that_failed_changes_nothing_of_what_is_told() {
    let mut sandbox = Sandbox::with(|root| {
        fs::write(root.join("a"), "v1\n").unwrap();
        fs::write(root.join("b"), "b\n").unwrap();
    });
    sandbox.write("a", "v2\n");
    let newest = sandbox.capture().id;
    sandbox.lose("v1\n");
    let failed = sandbox.execute(&Operation::Rewind(Some(Select::Number(1))));
    assert!(matches!(failed, Err(Error::Damaged { .. })), "{failed:?}");
    assert_eq!(sandbox.read("a").as_deref(), Some("v2\n"));
    let engine = sandbox.engine();
    assert_eq!((engine.files(), engine.current()), (2, Some(newest)));
    assert!(!engine.holds_tree(), "the next look is at everything");
    assert!(!sandbox.capture().created);
    assert!(sandbox.engine().holds_tree());
}
