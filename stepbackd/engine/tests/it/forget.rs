//! Purging paths out of everything that is recorded.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use stepback_engine::Error;
use stepback_engine::checkpoint::{Checkpoint, Trigger};
use stepback_engine::engine::{Engine, Forgotten, Operation, Select, Sides, Why};
use stepback_engine::node::{NotCaptured, Reason};
use stepback_engine::oid::{ObjectKind, Oid};
use stepback_engine::path::TreePath;

use crate::support::Sandbox;

const SECRET: &str = "TOKEN=correct horse battery staple\n";

fn path(text: &str) -> TreePath {
    TreePath::new(text.as_bytes()).unwrap()
}

fn forget(sandbox: &mut Sandbox, of: &str) -> Forgotten {
    sandbox
        .on(|engine, cx| engine.forget(&[path(of)], false, cx))
        .unwrap()
}

fn blob(text: &str) -> Oid {
    Oid::of(ObjectKind::Blob, text.as_bytes())
}

fn git(store: &Path, arguments: &[&str]) -> std::process::Output {
    Command::new("git")
        .arg("--git-dir")
        .arg(store)
        .args(arguments)
        .output()
        .unwrap()
}

fn is_stored(sandbox: &mut Sandbox, oid: Oid) -> bool {
    let store = sandbox.engine().store_path().to_owned();
    git(&store, &["cat-file", "-e", &oid.to_string()])
        .status
        .success()
}

fn is_sound(sandbox: &mut Sandbox) {
    let store = sandbox.engine().store_path().to_owned();
    let fsck = git(&store, &["fsck", "--full", "--no-dangling"]);
    let said = String::from_utf8_lossy(&fsck.stderr).into_owned();
    assert!(fsck.status.success(), "{said}");
    assert!(sandbox.engine().verify().unwrap().is_empty());
}

fn left_out(sandbox: &mut Sandbox, n: u64) -> Vec<NotCaptured> {
    sandbox.engine().not_captured(Some(n)).unwrap()
}

/// A secret in checkpoints 1 and 2, another version in 3; a rewind with a redo entry over it.
fn with_secret() -> Sandbox {
    let mut sandbox = Sandbox::with(|root| {
        fs::write(root.join("a"), "1\n").unwrap();
        fs::write(root.join(".env"), SECRET).unwrap();
        fs::create_dir(root.join("src")).unwrap();
        fs::write(root.join("src/b"), "b\n").unwrap();
    });
    sandbox.write("a", "2\n");
    sandbox.capture();
    sandbox.write(".env", "TOKEN=another\n");
    sandbox.capture();
    sandbox.rewind(2);
    sandbox.on(|engine, _| engine.pin(2, true)).unwrap();
    sandbox
}

#[test]
fn a_secret_is_purged_from_every_record_and_nothing_else_changes() {
    let mut sandbox = with_secret();
    let before = sandbox.engine().checkpoints().to_vec();
    let picture = sandbox.picture();
    assert!(is_stored(&mut sandbox, blob(SECRET)));

    let forgotten = forget(&mut sandbox, ".env");
    assert_eq!(forgotten.checkpoints, 3);
    assert!(forgotten.freed_bytes > 0);
    assert_eq!(
        (&forgotten.still_held[..], &forgotten.notes[..]),
        (&[][..], &[][..])
    );

    for text in [SECRET, "TOKEN=another\n"] {
        assert!(!is_stored(&mut sandbox, blob(text)), "{text}");
    }
    assert_eq!(sandbox.picture(), picture, "the project is as it was");
    is_sound(&mut sandbox);
    for reopened in [false, true] {
        if reopened {
            sandbox.reopen(true);
        }
        let after = sandbox.engine().checkpoints().to_vec();
        let told = |c: &Checkpoint| {
            (
                c.n,
                c.base,
                c.trigger,
                c.time.ms(),
                c.label.clone(),
                c.session.clone(),
            )
        };
        assert_eq!(
            after.iter().map(told).collect::<Vec<_>>(),
            before.iter().map(told).collect::<Vec<_>>()
        );
        for (old, new) in before.iter().zip(&after) {
            assert_ne!(old.snapshot.tree, new.snapshot.tree);
            assert_eq!(new.not_captured, 1);
        }
        // What it changed was the secret alone.
        assert_eq!(after[2].counts.modified, 0);
        assert_eq!((after[0].counts.added, after[1].counts.modified), (2, 1));
        assert_eq!(sandbox.engine().position(), Some(2));
        assert!(sandbox.engine().pinned(2));
        assert!(sandbox.engine().interrupted_forget().unwrap().is_none());
    }
    for n in 1..=3 {
        let list = left_out(&mut sandbox, n);
        assert_eq!(
            (list[0].path.clone(), list[0].reason),
            (path(".env"), Reason::Forgotten)
        );
    }
}

#[test]
fn rewinds_go_on_and_leave_the_forgotten_file_alone() {
    let mut sandbox = with_secret();
    forget(&mut sandbox, ".env");
    // What a checkpoint held is what is there: nothing is known to differ.
    let report = sandbox.rewind(1);
    assert_eq!((report.kept.len(), report.not_covered.len()), (0, 1));
    assert_eq!(sandbox.read("a").as_deref(), Some("1\n"));
    assert_eq!(sandbox.read(".env").as_deref(), Some(SECRET));
    // Checkpoint 3 held another version, which is gone.
    let report = sandbox.rewind(3);
    assert_eq!(report.kept.len(), 1);
    assert_eq!(sandbox.read(".env").as_deref(), Some(SECRET));
    // The redo entry of the rewind before it was purged, too.
    for _ in 0..3 {
        sandbox.execute(&Operation::Redo).unwrap();
        assert_eq!(sandbox.read(".env").as_deref(), Some(SECRET));
    }
    sandbox.write(".env", "TOKEN=third\n");
    let captured = sandbox.capture();
    assert!(!captured.changed);
    assert!(!is_stored(&mut sandbox, blob("TOKEN=third\n")));
    is_sound(&mut sandbox);
}

#[test]
fn undone_it_is_captured_from_then_on_and_older_checkpoints_never_touch_it() {
    let mut sandbox = with_secret();
    forget(&mut sandbox, ".env");
    sandbox
        .on(|engine, cx| engine.unforget(&[path(".env")], cx))
        .unwrap();
    let newest = sandbox.engine().checkpoints().last().unwrap().n;
    assert_eq!(newest, 4);
    assert!(left_out(&mut sandbox, 4).is_empty());
    assert!(
        is_stored(&mut sandbox, blob(SECRET)),
        "the same bytes, written anew"
    );
    is_sound(&mut sandbox);
    sandbox.rewind(1);
    assert_eq!(sandbox.read(".env").as_deref(), Some(SECRET));
    let again = sandbox.on(|engine, cx| engine.unforget(&[path(".env")], cx));
    assert!(matches!(again, Err(Error::NoSuchPath { .. })));
}

#[test]
fn a_directory_is_forgotten_with_all_that_is_and_will_be_in_it() {
    let mut sandbox = Sandbox::with(|root| {
        fs::create_dir_all(root.join("keys/deep")).unwrap();
        fs::write(root.join("keys/deep/k"), SECRET).unwrap();
        fs::write(root.join("a"), "1\n").unwrap();
    });
    sandbox.write("keys/l", "later\n");
    sandbox.capture();
    let forgotten = sandbox
        .on(|engine, cx| engine.forget(&[path("keys/deep"), path("keys")], false, cx))
        .unwrap();
    assert_eq!((forgotten.paths, forgotten.checkpoints), (vec![path("keys")], 2));
    sandbox.write("keys/new", "new\n");
    sandbox.write("a", "2\n");
    sandbox.capture();
    for text in [SECRET, "later\n", "new\n"] {
        assert!(!is_stored(&mut sandbox, blob(text)), "{text}");
    }
    let inner = sandbox.on(|engine, cx| engine.unforget(&[path("keys/deep")], cx));
    assert!(matches!(inner, Err(Error::Refused { .. })));
    sandbox.rewind(1);
    assert_eq!(sandbox.read("keys/new").as_deref(), Some("new\n"));
    is_sound(&mut sandbox);
}

#[test]
fn what_else_holds_the_bytes_is_named() {
    let mut sandbox = Sandbox::with(|root| {
        fs::write(root.join(".env"), SECRET).unwrap();
        fs::create_dir(root.join("old")).unwrap();
        fs::write(root.join("old/env.bak"), SECRET).unwrap();
    });
    let forgotten = forget(&mut sandbox, ".env");
    let named: Vec<String> = forgotten.still_held.iter().map(|h| h.path.to_string()).collect();
    assert_eq!(named, ["old/env.bak"]);
    let again = forget(&mut sandbox, ".env");
    assert_eq!(
        again.still_held, forgotten.still_held,
        "also when it is asked for again"
    );
    assert!(is_stored(&mut sandbox, blob(SECRET)));
    assert!(forget(&mut sandbox, "old/env.bak").still_held.is_empty());
    assert!(!is_stored(&mut sandbox, blob(SECRET)));
}

#[test]
fn a_path_that_nobody_knows_is_an_error_and_one_that_is_only_on_disk_is_none() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("a"), "1\n").unwrap());
    let of = |sandbox: &mut Sandbox, of: &str, preview| {
        sandbox.on(|engine, cx| engine.forget(&[path(of)], preview, cx))
    };
    assert!(matches!(
        of(&mut sandbox, "no", false),
        Err(Error::NoSuchPath { .. })
    ));
    assert!(matches!(of(&mut sandbox, "", false), Err(Error::Refused { .. })));
    sandbox.write("fresh", SECRET);
    assert_eq!(of(&mut sandbox, "fresh", false).unwrap().checkpoints, 0);
    assert!(!sandbox.capture().changed);
    // Shown only: nothing happens.
    assert_eq!(of(&mut sandbox, "a", true).unwrap().checkpoints, 1);
    assert!(is_stored(&mut sandbox, blob("1\n")));
    assert_eq!(sandbox.engine().forgotten(), [path("fresh")]);
}

#[test]
fn ignored_files_that_an_operation_replaced_are_purged_too() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("out"), "file\n").unwrap());
    fs::remove_file(sandbox.root().join("out")).unwrap();
    sandbox.write(".gitignore", "out\n");
    sandbox.capture();
    sandbox.write("out", SECRET);
    sandbox
        .execute(&Operation::Restore(Select::Number(1), vec![path("out")]))
        .unwrap();
    assert!(
        is_stored(&mut sandbox, blob(SECRET)),
        "it went into the state before"
    );
    forget(&mut sandbox, "out");
    assert!(!is_stored(&mut sandbox, blob(SECRET)));
    is_sound(&mut sandbox);
}

#[test]
fn a_forgotten_file_in_the_way_is_kept_and_not_saved_even_when_ignored() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("d"), "a file\n").unwrap());
    fs::remove_file(sandbox.root().join("d")).unwrap();
    sandbox.write("d/.env", SECRET);
    sandbox.capture();
    forget(&mut sandbox, "d/.env");
    sandbox.write(".gitignore", ".env\n");
    sandbox.capture();
    let report = sandbox.rewind(1);
    assert!(!report.kept.is_empty());
    assert_eq!(sandbox.read("d/.env").as_deref(), Some(SECRET));
    assert!(!is_stored(&mut sandbox, blob(SECRET)));
}

/// Many checkpoints cost what they don't share.
#[test]
fn many_checkpoints_are_rewritten_in_one_go() {
    let mut sandbox = Sandbox::with(|root| {
        for dir in 0..40 {
            fs::create_dir(root.join(format!("d{dir}"))).unwrap();
            for file in 0..10 {
                fs::write(root.join(format!("d{dir}/f{file}")), format!("{dir} {file}\n")).unwrap();
            }
        }
        fs::write(root.join(".env"), SECRET).unwrap();
    });
    for i in 0..120 {
        sandbox.write(&format!("d{}/f0", i % 40), &format!("edit {i}\n"));
        sandbox.capture_as(&Why::plain(Trigger::Auto)).unwrap();
    }
    let started = std::time::Instant::now();
    let forgotten = forget(&mut sandbox, ".env");
    println!("{} checkpoints in {:?}", forgotten.checkpoints, started.elapsed());
    assert_eq!(forgotten.checkpoints, 121);
    assert!(!is_stored(&mut sandbox, blob(SECRET)));
    is_sound(&mut sandbox);
    sandbox.reopen(false);
    assert_eq!(sandbox.engine().checkpoints().len(), 121);
    assert!(sandbox.engine().damaged().is_empty());
}

/// Where every side table says something, nothing refers to the empty tree.
#[test]
fn a_first_checkpoint_can_be_compared_after_garbage_was_collected() {
    let mut sandbox = Sandbox::with(|root| {
        fs::write(root.join("a"), "1\n").unwrap();
        fs::write(root.join("b"), "1\n").unwrap();
        fs::write(root.join("secret"), SECRET).unwrap();
        fs::set_permissions(root.join("a"), fs::Permissions::from_mode(0o600)).unwrap();
    });
    forget(&mut sandbox, "secret");
    let diff = sandbox.on(|engine, cx| engine.diff(&Sides::BaseTo(Select::First), &[], cx));
    assert_eq!(diff.unwrap().changes.len(), 2);
}

#[test]
fn without_git_the_bytes_are_gone_all_the_same() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join(".env"), SECRET).unwrap());
    let engine = sandbox.engine.take().unwrap();
    let (store, id) = (engine.store_path().to_owned(), engine.id().to_owned());
    drop(engine);
    let mut environment = sandbox.environment();
    environment.git.program = None;
    sandbox.engine = Some(Engine::open(&environment, &store, &id, &Sandbox::settings()).unwrap());
    let forgotten = forget(&mut sandbox, ".env");
    assert!(forgotten.notes.is_empty(), "{:?}", forgotten.notes);
    assert!(!is_stored(&mut sandbox, blob(SECRET)));
}
