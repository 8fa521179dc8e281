//! What makes a checkpoint, and what is in it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use stepback_engine::checkpoint::{Counts, Trigger};
use stepback_engine::diff::patch::Purpose;
use stepback_engine::engine::{Scope, Select, Sides, Why};
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
    let far = Sandbox::now();
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

fn drop_them(sandbox: &mut Sandbox, ns: &[u64]) -> stepback_engine::Result<()> {
    sandbox
        .on(|engine, cx| engine.drop_checkpoints(ns, false, cx))
        .map(drop)
}

#[test]
fn drop_hands_the_base_on_and_never_reuses_a_number() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("f"), "1").unwrap());
    for i in 2..=4 {
        sandbox.write("f", &i.to_string());
        sandbox.capture();
    }
    sandbox.engine().pin(2, true).unwrap();
    assert!(
        drop_them(&mut sandbox, &[2, 3]).is_err(),
        "2 is pinned: none goes"
    );
    assert_eq!(sandbox.engine().checkpoints().len(), 4);
    drop_them(&mut sandbox, &[3, 4]).unwrap();
    // The tree was the state of 4: it must be in a checkpoint again at once.
    sandbox.reopen(false);
    let next = sandbox.capture();
    assert_eq!((next.id, next.created), (5, false));
    assert_eq!(sandbox.engine().checkpoint(5).unwrap().base, Some(2));
}

#[test]
fn the_heir_of_a_dropped_base_is_counted_anew() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("f"), "1").unwrap());
    sandbox.write("n", "v1\n");
    sandbox.capture();
    sandbox.write("n", "v2\n");
    let heir = sandbox.capture().id;
    sandbox.engine().pin(heir, true).unwrap();
    drop_them(&mut sandbox, &[2]).unwrap();
    for _ in 0..2 {
        let heir = sandbox.engine().checkpoint(heir).unwrap();
        assert_eq!(
            heir.counts,
            Counts {
                added: 1,
                modified: 0,
                deleted: 0
            }
        );
        assert_eq!(heir.base, Some(1));
        sandbox.reopen(false);
    }
    assert!(sandbox.engine().pinned(heir) && sandbox.engine().verify().unwrap().is_empty());
}

#[test]
fn a_file_that_outgrows_the_cap_is_not_called_deleted() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("big"), vec![0; 10 << 20]).unwrap());
    fs::write(sandbox.root().join("big"), vec![0; (10 << 20) + 1]).unwrap();
    sandbox.write("a", "x");
    let id = sandbox.capture().id;
    assert_eq!(
        sandbox.engine().checkpoint(id).unwrap().counts,
        Counts {
            added: 1,
            modified: 0,
            deleted: 0
        }
    );
    let diff = sandbox
        .on(|engine, cx| engine.diff(&Sides::BaseTo(Select::Number(id)), &[], cx))
        .unwrap();
    let paths: Vec<String> = diff.changes.iter().map(|c| c.path.to_string()).collect();
    assert_eq!(paths, ["a"]);
}

/// What git's format has no words for is said in lines that `git apply` passes over.
#[test]
fn a_patch_with_other_modes_and_directories_is_taken_by_git() {
    let mut sandbox = Sandbox::with(|root| {
        fs::write(root.join("a"), "v1\n").unwrap();
        fs::write(root.join("k"), "key\n").unwrap();
    });
    sandbox.write("a", "v2\n");
    fs::set_permissions(sandbox.root().join("k"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(sandbox.root().join("empty")).unwrap();
    let id = sandbox.capture().id;
    let diff = sandbox
        .on(|engine, cx| engine.diff(&Sides::BaseTo(Select::Number(id)), &[], cx))
        .unwrap();
    let mut patch = Vec::new();
    sandbox
        .engine()
        .write_patch(&diff, Purpose::Reading, &mut patch)
        .unwrap();
    let text = String::from_utf8(patch).unwrap();
    assert!(
        text.contains("# mode 0644 -> 0600 k\n") && text.contains("# new directory empty\n"),
        "{text}"
    );
    let work = sandbox.path().join("work");
    fs::create_dir(&work).unwrap();
    fs::write(work.join("a"), "v1\n").unwrap();
    fs::write(work.join("p"), &text).unwrap();
    let out = Command::new("git")
        .args(["apply", "p"])
        .current_dir(&work)
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{text}\n{}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert_eq!(fs::read(work.join("a")).unwrap(), b"v2\n");
}

/// An event has told of a database's log alone, while the database changed with it.
#[test]
fn a_database_and_its_log_are_of_one_moment() {
    let mut sandbox = Sandbox::with(|root| {
        fs::write(root.join("app.db"), "pages 1\n").unwrap();
        fs::write(root.join("app.db-wal"), "frames 1\n").unwrap();
        fs::write(root.join("other"), "1\n").unwrap();
    });
    for name in ["app.db", "app.db-wal", "other"] {
        sandbox.write(name, "pages and frames 2\n");
    }
    let dirty = [path("app.db-wal")].into();
    let captured = sandbox
        .on(|engine, cx| engine.capture(Scope::Paths(dirty), &Why::plain(Trigger::Auto), cx))
        .unwrap();
    let held = |sandbox: &mut Sandbox, name: &str| {
        let mut bytes = Vec::new();
        sandbox
            .engine()
            .cat(captured.id, &path(name), &mut bytes)
            .unwrap();
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!(held(&mut sandbox, "app.db-wal"), "pages and frames 2\n");
    assert_eq!(held(&mut sandbox, "app.db"), "pages and frames 2\n");
    assert_eq!(held(&mut sandbox, "other"), "1\n", "only what belongs together");
}
