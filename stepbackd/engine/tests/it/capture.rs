//! What makes a checkpoint, and what is in it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::process::Command;

use stepback_engine::checkpoint::{Counts, Trigger};
use stepback_engine::engine::{Scope, Select, Why};
use stepback_engine::path::TreePath;

use crate::support::Sandbox;

fn path(text: &str) -> TreePath {
    TreePath::new(text.as_bytes()).unwrap()
}

#[test]
fn nothing_changed_makes_none() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("f"), "v1\n").unwrap());
    let again = sandbox.capture();
    assert_eq!((again.id, again.created), (1, false));
    let labelled = Why {
        label: Some("here".into()),
        ..Why::plain(Trigger::Save)
    };
    assert!(sandbox.capture_as(&labelled).unwrap().created);
}

#[test]
fn counts_are_against_the_base() {
    let mut sandbox = Sandbox::with(|root| {
        for name in ["a", "b", "c"] {
            fs::write(root.join(name), "v1\n").unwrap();
        }
    });
    sandbox.write("a", "v2\n");
    sandbox.write("new/d", "v1\n");
    fs::remove_file(sandbox.root().join("b")).unwrap();
    let id = sandbox.capture().id;
    assert_eq!(
        sandbox.engine().checkpoint(id).unwrap().counts,
        Counts {
            added: 1,
            modified: 1,
            deleted: 1
        }
    );
    assert_eq!(sandbox.engine().checkpoint(id).unwrap().base, Some(1));
}

#[test]
fn a_file_that_a_new_rule_ignores_is_not_counted_as_deleted() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("log"), "x").unwrap());
    sandbox.write(".gitignore", "log\n");
    let id = sandbox.capture().id;
    assert_eq!(sandbox.engine().checkpoint(id).unwrap().counts.deleted, 0);
}

#[test]
fn only_the_dirty_paths_are_looked_at() {
    let mut sandbox = Sandbox::with(|root| {
        fs::write(root.join("told"), "v1\n").unwrap();
        fs::write(root.join("untold"), "v1\n").unwrap();
    });
    sandbox.write("told", "v2\n");
    sandbox.write("untold", "v2\n");
    let dirty = Scope::Paths(BTreeSet::from([path("told")]));
    let id = sandbox
        .on(|engine, cx| engine.capture(dirty, &Why::plain(Trigger::Auto), cx))
        .unwrap()
        .id;
    let mut bytes = (Vec::new(), Vec::new());
    sandbox.engine().cat(id, &path("told"), &mut bytes.0).unwrap();
    sandbox.engine().cat(id, &path("untold"), &mut bytes.1).unwrap();
    assert_eq!(bytes, (b"v2\n".to_vec(), b"v1\n".to_vec()));
    let whole = sandbox.capture();
    assert!(whole.created && whole.changed, "the full scan finds the other");
}

#[test]
fn a_same_size_edit_with_the_old_times_is_seen() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("u"), "before\n").unwrap());
    let file = sandbox.root().join("u");
    let times = fs::metadata(&file).unwrap().modified().unwrap();
    fs::write(&file, "after!\n").unwrap();
    File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_modified(times)
        .unwrap();
    let id = sandbox.capture().id;
    let mut bytes = Vec::new();
    sandbox.engine().cat(id, &path("u"), &mut bytes).unwrap();
    assert_eq!(bytes, b"after!\n");
}

#[test]
fn the_store_is_clean_for_git() {
    let mut sandbox = Sandbox::with(|root| {
        fs::create_dir_all(root.join("empty/deep")).unwrap();
        for i in 0..100 {
            fs::write(root.join(format!("f{i}")), format!("{i}")).unwrap();
        }
    });
    sandbox.write("f1", "changed");
    sandbox.capture();
    sandbox.rewind(1);
    for arguments in [
        &["fsck", "--connectivity-only"][..],
        &["fsck", "--full", "--strict"],
    ] {
        let store = sandbox.engine().store_path().to_owned();
        let out = Command::new("git")
            .arg("--git-dir")
            .arg(&store)
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        let bad: Vec<&str> = said
            .lines()
            .filter(|line| {
                !line.starts_with("notice:") && !line.starts_with("dangling") && !line.contains("Checking")
            })
            .collect();
        assert!(out.status.success() && bad.is_empty(), "{arguments:?}: {said}");
    }
}

#[test]
fn ids_in_every_form() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("f"), "1").unwrap());
    for i in 2..=4 {
        sandbox.write("f", &i.to_string());
        sandbox.capture();
    }
    let far = sandbox.now();
    let engine = sandbox.engine();
    let resolve = |select| engine.resolve(&select).ok();
    assert_eq!(resolve(Select::Number(3)), Some(3));
    assert_eq!(resolve(Select::Number(5)), None);
    assert_eq!(resolve(Select::Latest), Some(4));
    assert_eq!(resolve(Select::First), Some(1));
    assert_eq!(resolve(Select::Back(2)), Some(2));
    assert_eq!(resolve(Select::Back(9)), None);
    assert_eq!(resolve(Select::At(far)), Some(4));
    assert_eq!(resolve(Select::At(stepback_engine::time::Time(1))), None);
    assert_eq!(resolve(Select::Session("none".into())), None);
    assert_eq!(resolve(Select::Turn(1)), None);
}

#[test]
fn drop_hands_the_base_on_and_never_reuses_a_number() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("f"), "1").unwrap());
    for i in 2..=4 {
        sandbox.write("f", &i.to_string());
        sandbox.capture();
    }
    let now = sandbox.now();
    sandbox.engine().pin(2, true).unwrap();
    assert!(
        sandbox.engine().drop_checkpoints(&[2, 3], false, now).is_err(),
        "2 is pinned: none goes"
    );
    assert_eq!(sandbox.engine().checkpoints().len(), 4);
    sandbox.engine().drop_checkpoints(&[3, 4], false, now).unwrap();
    assert_eq!(sandbox.engine().position(), Some(2));
    sandbox.reopen(false);
    let next = sandbox.capture();
    assert_eq!((next.id, next.created), (5, true));
    assert_eq!(sandbox.engine().checkpoint(5).unwrap().base, Some(2));
}
