//! Rewind, restore, redo and what they report.

use std::fs;

use stepback_engine::Error;
use stepback_engine::checkpoint::Trigger;
use stepback_engine::engine::{Operation, Select, Why};
use stepback_engine::path::TreePath;

use crate::support::Sandbox;

fn path(text: &str) -> TreePath {
    TreePath::new(text.as_bytes()).unwrap()
}

fn three_states() -> Sandbox {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("a"), "v1\n").unwrap());
    for text in ["v2\n", "v3\n"] {
        sandbox.write("a", text);
        sandbox.capture();
    }
    sandbox
}

#[test]
fn rewind_without_an_id_drops_what_is_unsaved_and_then_goes_back_one_by_one() {
    let mut sandbox = three_states();
    sandbox.write("a", "unsaved\n");
    for (wanted, target) in [("v3\n", 3), ("v2\n", 2), ("v1\n", 1)] {
        let report = sandbox.execute(&Operation::Rewind(None)).unwrap();
        assert_eq!(
            (report.target, sandbox.read("a").as_deref()),
            (target, Some(wanted))
        );
    }
    let at_the_start = sandbox.execute(&Operation::Rewind(None)).unwrap();
    assert_eq!((at_the_start.written, at_the_start.saved), (0, None));
}

#[test]
fn redo_goes_back_the_way_that_rewinds_came() {
    let mut sandbox = three_states();
    sandbox.rewind(2);
    sandbox.rewind(1);
    for wanted in ["v2\n", "v3\n"] {
        sandbox.execute(&Operation::Redo).unwrap();
        assert_eq!(sandbox.read("a").as_deref(), Some(wanted));
    }
    assert!(matches!(
        sandbox.execute(&Operation::Redo),
        Err(Error::NothingToRedo)
    ));
}

#[test]
fn redo_leaves_later_edits_elsewhere_alone_and_marks_paths_edited_since() {
    let mut sandbox = three_states();
    sandbox.rewind(1);
    sandbox.write("a", "by hand\n");
    sandbox.write("elsewhere", "later\n");
    let preview = sandbox.preview(&Operation::Redo).unwrap();
    let changes: Vec<(String, bool)> = preview
        .changes
        .iter()
        .map(|c| (c.path.to_string(), c.edited_since))
        .collect();
    assert_eq!(changes, [("a".to_owned(), true)]);
    let report = sandbox.execute(&Operation::Redo).unwrap();
    assert_eq!(sandbox.read("a").as_deref(), Some("v3\n"));
    assert_eq!(sandbox.read("elsewhere").as_deref(), Some("later\n"));
    let back = report.back.unwrap();
    sandbox.rewind(back);
    assert_eq!(
        sandbox.read("a").as_deref(),
        Some("by hand\n"),
        "what the report named takes the redo back"
    );
}

#[test]
fn a_preview_and_a_noop_leave_no_trace() {
    let mut sandbox = three_states();
    let count = sandbox.engine().checkpoints().len();
    let preview = sandbox
        .preview(&Operation::Rewind(Some(Select::Number(1))))
        .unwrap();
    assert!(!preview.noop);
    let noop = sandbox.rewind(3);
    assert_eq!(
        (noop.written, noop.removed, noop.saved, noop.redo),
        (0, 0, None, 0)
    );
    assert_eq!(sandbox.engine().checkpoints().len(), count);
    assert_eq!(sandbox.read("a").as_deref(), Some("v3\n"));
}

#[test]
fn a_yes_is_bound_to_the_paths_of_the_plan() {
    let mut sandbox = three_states();
    let operation = Operation::Rewind(Some(Select::Number(1)));
    let plan = sandbox.preview(&operation).unwrap().plan;
    sandbox.write("a", "changed meanwhile\n");
    let stale = sandbox.on(|engine, cx| engine.execute(&operation, Some(&plan), cx));
    assert!(matches!(stale, Err(Error::StalePlan)), "{stale:?}");
    assert_eq!(sandbox.read("a").as_deref(), Some("changed meanwhile\n"));
    let plan = sandbox.preview(&operation).unwrap().plan;
    sandbox
        .on(|engine, cx| engine.execute(&operation, Some(&plan), cx))
        .unwrap();
    assert_eq!(sandbox.read("a").as_deref(), Some("v1\n"));
}

#[test]
fn restore_puts_back_only_its_paths_and_makes_the_directories_that_they_need() {
    let mut sandbox = Sandbox::with(|root| {
        fs::create_dir_all(root.join("d/e")).unwrap();
        fs::write(root.join("d/e/x"), "v1\n").unwrap();
        fs::write(root.join("y"), "v1\n").unwrap();
    });
    fs::remove_dir_all(sandbox.root().join("d")).unwrap();
    sandbox.write("y", "v2\n");
    let wanted = vec![path("d/e/x")];
    sandbox
        .execute(&Operation::Restore(Select::Number(1), wanted))
        .unwrap();
    assert_eq!(sandbox.read("d/e/x").as_deref(), Some("v1\n"));
    assert_eq!(sandbox.read("y").as_deref(), Some("v2\n"));
    let nowhere = sandbox.execute(&Operation::Restore(Select::Number(1), vec![path("nowhere")]));
    assert!(matches!(nowhere, Err(Error::NoSuchPath { .. })), "{nowhere:?}");
    sandbox.execute(&Operation::Redo).unwrap();
    assert!(!sandbox.root().join("d").exists());
}

#[test]
fn a_root_that_is_gone_is_made_again() {
    let mut sandbox = three_states();
    let before = sandbox.picture();
    fs::remove_dir_all(sandbox.root()).unwrap();
    let operation = Operation::Rewind(Some(Select::Latest));
    let preview = sandbox.preview(&operation).unwrap();
    assert!(!sandbox.root().exists(), "a preview makes nothing");
    sandbox
        .on(|engine, cx| engine.execute(&operation, Some(&preview.plan), cx))
        .unwrap();
    assert_eq!(sandbox.picture(), before);
    sandbox.reopen(true);
    assert!(!sandbox.capture().created, "the new directory is the root now");
    // A root that wasn't there is no state to save, or to come back to: the same words help again.
    assert_eq!(
        (
            sandbox.engine().checkpoints().len(),
            sandbox.engine().redo_stack().len()
        ),
        (3, 0)
    );
    fs::remove_dir_all(sandbox.root()).unwrap();
    sandbox.execute(&operation).unwrap();
    assert_eq!(sandbox.picture(), before);
}

#[test]
fn an_ignored_file_in_the_way_is_captured_first() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("out"), "then\n").unwrap());
    sandbox.write(".gitignore", "out\n");
    sandbox.capture();
    sandbox.write("out", "precious\n");
    let report = sandbox.rewind(1);
    assert_eq!(report.kept, []);
    assert_eq!(sandbox.read("out").as_deref(), Some("then\n"));
    sandbox.execute(&Operation::Redo).unwrap();
    assert_eq!(sandbox.read("out").as_deref(), Some("precious\n"));
}

#[test]
fn an_ignored_file_that_the_target_does_not_have_stays() {
    let mut sandbox = Sandbox::with(|root| {
        fs::write(root.join(".gitignore"), "").unwrap();
        fs::write(root.join("a"), "v1\n").unwrap();
    });
    sandbox.write(".gitignore", "/cache/\n");
    sandbox.write("cache/k", "KEEP\n");
    sandbox.write("a", "v2\n");
    sandbox.capture();
    let report = sandbox.rewind(1);
    assert_eq!(report.kept, []);
    assert_eq!(sandbox.read(".gitignore").as_deref(), Some(""));
    assert_eq!(sandbox.read("cache/k").as_deref(), Some("KEEP\n"));
    sandbox.execute(&Operation::Redo).unwrap();
    assert_eq!(sandbox.read(".gitignore").as_deref(), Some("/cache/\n"));
    assert_eq!(sandbox.read("cache/k").as_deref(), Some("KEEP\n"));
}

#[test]
fn redo_takes_back_what_has_become_ignored_since() {
    let mut sandbox = Sandbox::with(|root| {
        fs::create_dir(root.join("logs")).unwrap();
        fs::write(root.join("logs/l"), "v1\n").unwrap();
        fs::write(root.join("a"), "v1\n").unwrap();
    });
    fs::remove_dir_all(sandbox.root().join("logs")).unwrap();
    sandbox.write("a", "v2\n");
    sandbox.capture();
    sandbox.rewind(1);
    assert_eq!(sandbox.read("logs/l").as_deref(), Some("v1\n"));
    sandbox.write(".gitignore", "/logs/\n");
    let report = sandbox.execute(&Operation::Redo).unwrap();
    assert_eq!(report.kept, []);
    assert_eq!(sandbox.read("a").as_deref(), Some("v2\n"));
    assert_eq!(sandbox.read("logs/l"), None);
    assert!(!sandbox.root().join("logs").exists());
}

#[test]
fn a_session_is_reverted_to_its_start() {
    let mut sandbox = three_states();
    let (name, start) = sandbox
        .on(|engine, cx| engine.session_start(Some("fix"), None, None, cx))
        .unwrap();
    assert_eq!((name.as_str(), start), ("fix", 4));
    sandbox.write("a", "agent\n");
    sandbox.write("new", "agent\n");
    sandbox.capture();
    sandbox.execute(&Operation::Revert("fix".into())).unwrap();
    assert_eq!(
        (sandbox.read("a").as_deref(), sandbox.read("new")),
        (Some("v3\n"), None)
    );
    sandbox.on(|engine, cx| engine.session_end(None, cx)).unwrap();
    assert!(
        sandbox.on(|engine, cx| engine.session_end(None, cx)).is_err(),
        "none is open any more"
    );
    let entry = sandbox
        .engine()
        .checkpoints()
        .iter()
        .find(|c| c.trigger == Trigger::SessionStart)
        .unwrap();
    assert_eq!(entry.session, "fix");
    sandbox.execute(&Operation::Redo).unwrap();
    assert_eq!(sandbox.read("new").as_deref(), Some("agent\n"));
}

#[test]
fn labels_and_pins_survive_a_restart() {
    let mut sandbox = three_states();
    let why = Why {
        trigger: Trigger::Save,
        label: Some("good".into()),
        pin: true,
        ..Why::plain(Trigger::Save)
    };
    let id = sandbox.capture_as(&why).unwrap().id;
    sandbox.reopen(false);
    assert!(sandbox.engine().pinned(id));
    assert_eq!(
        sandbox.engine().checkpoint(id).unwrap().label.as_deref(),
        Some("good")
    );
}

/// What is kept makes the tree differ from every target: going back without an ID must get past it all the same.
#[test]
fn rewind_without_an_id_gets_past_what_is_kept() {
    let mut sandbox = Sandbox::with(|root| {
        fs::write(root.join("a"), "1").unwrap();
        fs::write(root.join("log"), "small").unwrap();
    });
    for text in ["2", "3"] {
        sandbox.write("a", text);
        sandbox.capture();
    }
    fs::write(sandbox.root().join("log"), vec![0; (10 << 20) + 1]).unwrap();
    sandbox.write("a", "4");
    sandbox.capture();
    for wanted in ["3", "2", "1"] {
        let report = sandbox.execute(&Operation::Rewind(None)).unwrap();
        assert_eq!(sandbox.read("a").as_deref(), Some(wanted), "to {}", report.target);
        let kept: Vec<String> = report.kept.iter().map(|k| k.path.to_string()).collect();
        assert_eq!(kept, ["log"]);
    }
    let first = sandbox.execute(&Operation::Rewind(None)).unwrap();
    assert_eq!((first.written, sandbox.read("a").as_deref()), (0, Some("1")));
}

/// The same where a repository was made inside the tree.
#[test]
fn rewind_without_an_id_gets_past_a_new_repository() {
    let mut sandbox = three_states();
    fs::create_dir_all(sandbox.root().join("sub/.git/objects")).unwrap();
    fs::create_dir(sandbox.root().join("sub/.git/refs")).unwrap();
    sandbox.write("sub/.git/HEAD", "ref: refs/heads/main\n");
    sandbox.write("sub/s", "s");
    sandbox.capture();
    for wanted in ["v3\n", "v2\n", "v1\n"] {
        sandbox.execute(&Operation::Rewind(None)).unwrap();
        assert_eq!(sandbox.read("a").as_deref(), Some(wanted));
    }
    assert!(sandbox.root().join("sub/.git/HEAD").exists());
}

/// What a rewind made, and the state before it ignores, goes by the redo: the directories, too.
#[test]
fn redo_removes_directories_that_the_state_before_ignores() {
    let mut sandbox = Sandbox::with(|root| {
        fs::create_dir_all(root.join("a/a")).unwrap();
        std::os::unix::fs::symlink("a", root.join("a/a/a")).unwrap();
    });
    fs::remove_dir_all(sandbox.root().join("a")).unwrap();
    sandbox.write(".gitignore", "a\n");
    let before = sandbox.picture();
    sandbox.rewind(1);
    assert!(sandbox.root().join("a/a").is_dir());
    sandbox.execute(&Operation::Redo).unwrap();
    assert_eq!(sandbox.picture(), before);
}
