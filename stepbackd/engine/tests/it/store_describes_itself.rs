//! Without registry and caches, `attach` finds everything again; and never the history of another directory.

use std::fs;
use std::process::Command;

use stepback_engine::Error;
use stepback_engine::engine::{AttachRequest, Operation};

use crate::support::Sandbox;

fn git(dir: &std::path::Path, arguments: &[&str]) {
    let status = Command::new("git")
        .args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@localhost",
            "-c",
            "init.defaultBranch=main",
        ])
        .args(arguments)
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(
        status.status.success(),
        "git {arguments:?}: {}",
        String::from_utf8_lossy(&status.stderr)
    );
}

#[test]
fn everything_is_found_again() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("a"), "v1\n").unwrap());
    sandbox.write("a", "v2\n");
    sandbox.capture();
    sandbox.rewind(1);
    sandbox.engine().pin(2, true).unwrap();
    let (id, path) = (sandbox.engine().id().to_owned(), sandbox.root());
    sandbox.engine = None;
    let _ = fs::remove_dir_all(sandbox.state().join("cache"));
    let captured = sandbox.attach_at(&path).unwrap();
    assert!(!captured.created);
    let engine = sandbox.engine();
    assert_eq!(
        (engine.id(), engine.checkpoints().len(), engine.redo_stack().len()),
        (id.as_str(), 2, 1)
    );
    assert!(engine.pinned(2));
    sandbox.execute(&Operation::Redo).unwrap();
    assert_eq!(sandbox.read("a").as_deref(), Some("v2\n"));
}

#[test]
fn a_moved_root_goes_on_and_a_replaced_one_asks() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("a"), "v1\n").unwrap());
    let id = sandbox.engine().id().to_owned();
    let (old, new) = (sandbox.root(), sandbox.path().join("moved"));
    fs::rename(&old, &new).unwrap();
    sandbox.attach_at(&new).unwrap();
    assert_eq!(sandbox.engine().id(), id);
    fs::create_dir(&old).unwrap();
    let other = sandbox.attach_at(&old).unwrap();
    assert!(
        other.created,
        "the old path is a new directory with a history of its own"
    );
    assert_ne!(sandbox.engine().id(), id);

    fs::remove_dir_all(&new).unwrap();
    fs::create_dir(&new).unwrap();
    let asked = sandbox.attach_at(&new);
    assert!(matches!(asked, Err(Error::RootReplaced(_))), "{asked:?}");
    let yes = AttachRequest {
        path: new.clone(),
        here: true,
        yes: true,
        ..AttachRequest::default()
    };
    sandbox.attach_with(&yes).unwrap();
    assert_eq!(sandbox.engine().id(), id);
}

#[test]
fn worktrees_share_a_store_and_nothing_else() {
    let mut sandbox = Sandbox::new();
    let main = sandbox.root();
    git(&main, &["init", "-q"]);
    fs::write(main.join("a"), "v1\n").unwrap();
    git(&main, &["add", "a"]);
    git(&main, &["commit", "-qm", "one"]);
    git(&main, &["worktree", "add", "-q", "../wt"]);
    sandbox.attach();
    let store = sandbox.engine().store_path().to_owned();
    let wt = sandbox.path().join("wt");
    sandbox.attach_at(&wt).unwrap();
    assert_eq!(sandbox.engine().store_path(), store);
    fs::write(wt.join("a"), "v2\n").unwrap();
    let in_wt = sandbox.capture().id;
    sandbox.attach();
    assert!(sandbox.engine().checkpoint(in_wt).is_err());
    assert_eq!(sandbox.engine().checkpoints().len(), 1);
}

#[test]
fn forgetting_one_worktree_leaves_the_other() {
    let mut sandbox = Sandbox::new();
    let main = sandbox.root();
    git(&main, &["init", "-q"]);
    git(&main, &["commit", "-q", "--allow-empty", "-m", "one"]);
    git(&main, &["worktree", "add", "-q", "../wt"]);
    fs::write(main.join("a"), "v1\n").unwrap();
    sandbox.attach();
    let wt = sandbox.path().join("wt");
    sandbox.attach_at(&wt).unwrap();
    let store = sandbox.engine().store_path().to_owned();
    fs::write(wt.join("secret"), "only in the worktree\n").unwrap();
    sandbox.capture();
    sandbox.engine.take().unwrap().forget_all().unwrap();
    sandbox.attach();
    let blob =
        stepback_engine::oid::Oid::of(stepback_engine::oid::ObjectKind::Blob, b"only in the worktree\n");
    let found = Command::new("git")
        .arg("--git-dir")
        .arg(&store)
        .args(["cat-file", "-e", &blob.to_string()])
        .output();
    assert!(
        !found.unwrap().status.success(),
        "what only the forgotten one had is gone"
    );
    assert_eq!(sandbox.engine().checkpoints().len(), 1);
    assert!(sandbox.engine().verify().unwrap().is_empty());
    sandbox.engine.take().unwrap().forget_all().unwrap();
    assert!(!store.exists());
}
