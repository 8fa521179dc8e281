//! Parts of a store go or rot: what is damaged is named, everything else goes on, and no present bytes are lost.

use std::fs;
use std::path::{Path, PathBuf};

use stepback_engine::Error;
use stepback_engine::checkpoint::Trigger;
use stepback_engine::engine::{Operation, Scope, Select, Why};
use stepback_engine::oid::{ObjectKind, Oid};
use stepback_engine::path::TreePath;

use crate::support::{Sandbox, fsck};

/// Enough files for a first capture to go into a pack.
fn many() -> Sandbox {
    Sandbox::with(|root| {
        for i in 0..60 {
            fs::create_dir_all(root.join(format!("d{}", i % 7))).unwrap();
            fs::write(root.join(format!("d{}/f{i}", i % 7)), format!("v1 {i}\n")).unwrap();
        }
    })
}

fn edit_all(sandbox: &Sandbox, version: u32) {
    for i in 0..60 {
        sandbox.write(&format!("d{}/f{i}", i % 7), &format!("v{version} {i}\n"));
    }
}

fn newest_packs(sandbox: &mut Sandbox) -> Vec<PathBuf> {
    let dir = sandbox.engine().store_path().join("objects/pack");
    let mut packs: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    packs.sort_by_key(|p| fs::metadata(p).unwrap().modified().unwrap());
    packs
}

/// Each kind of broken ref of one checkpoint: empty (what a power cut leaves), garbage, an object that isn't there.
#[test]
fn a_broken_checkpoint_is_named_and_the_others_stay_usable() {
    for text in ["", "garbage\n", "0123456789012345678901234567890123456789\n"] {
        let mut sandbox = many();
        for version in 2..=4 {
            edit_all(&sandbox, version);
            sandbox.capture();
        }
        let id = sandbox.engine().id().to_owned();
        fs::write(
            sandbox
                .engine()
                .store_path()
                .join(format!("refs/checkpoints/{id}/watch/3")),
            text,
        )
        .unwrap();
        sandbox.reopen(true);
        assert_eq!(sandbox.engine().damaged().len(), 1, "{text:?}");
        let named = sandbox.execute(&Operation::Rewind(Some(Select::Number(3))));
        assert!(
            matches!(&named, Err(Error::Damaged { what, .. }) if what.contains("checkpoint 3")),
            "{named:?}"
        );
        assert!(
            sandbox
                .engine()
                .verify()
                .unwrap()
                .iter()
                .any(|f| f.what.ends_with("watch/3"))
        );
        sandbox.rewind(2);
        assert_eq!(sandbox.read("d0/f0").as_deref(), Some("v2 0\n"));
        edit_all(&sandbox, 5);
        assert_eq!(sandbox.capture().id, 5, "its number is not given again");
    }
}

#[test]
fn a_bad_store_of_another_directory_holds_up_no_attach() {
    let mut sandbox = many();
    let bad = sandbox.state().join("stores/x-00000000.git");
    fs::create_dir_all(bad.join("stepback")).unwrap();
    let other = sandbox.path().join("other");
    fs::create_dir(&other).unwrap();
    sandbox.attach_at(&other).unwrap();
    sandbox.attach();
    assert_eq!(sandbox.engine().checkpoints().len(), 1);
}

/// A store that can't be read, but may hold the history that is looked for: no new one may hide it.
#[test]
fn a_bad_store_of_this_directory_is_an_error() {
    let mut sandbox = many();
    let store = sandbox.engine().store_path().to_owned();
    sandbox.engine = None;
    fs::remove_file(store.join("config")).unwrap();
    let root = sandbox.root();
    let refused = sandbox.attach_at(&root);
    assert!(matches!(refused, Err(Error::DamagedRecord { .. })), "{refused:?}");
}

/// What is on disk was captured, but somebody deleted that part of the store: it is read again before it is replaced.
#[test]
fn the_present_is_read_again_when_the_store_has_lost_it() {
    let mut sandbox = many();
    edit_all(&sandbox, 2);
    sandbox.capture();
    sandbox.engine().save_cache().unwrap();
    for pack in newest_packs(&mut sandbox).split_off(2) {
        fs::remove_file(pack).unwrap();
    }
    sandbox.reopen(true);
    let before = sandbox.picture();
    sandbox.rewind(1);
    assert_eq!(sandbox.read("d0/f0").as_deref(), Some("v1 0\n"));
    sandbox.execute(&Operation::Redo).unwrap();
    assert_eq!(sandbox.picture(), before);
}

#[test]
fn a_save_after_the_loss_of_everything_records_the_present_anew() {
    let mut sandbox = many();
    sandbox.engine().save_cache().unwrap();
    for pack in newest_packs(&mut sandbox) {
        fs::remove_file(pack).unwrap();
    }
    sandbox.reopen(true);
    let before = sandbox.picture();
    let why = Why {
        label: Some("again".into()),
        ..Why::plain(Trigger::Save)
    };
    let id = sandbox.capture_as(&why).unwrap().id;
    edit_all(&sandbox, 2);
    sandbox.rewind(id);
    assert_eq!(sandbox.picture(), before);
}

/// As above, while the store is open: a pack that libgit2 still has open doesn't count as stored.
#[test]
fn packs_that_go_while_the_store_is_open_are_missed() {
    let mut sandbox = many();
    edit_all(&sandbox, 2);
    sandbox.capture();
    sandbox.rewind(1);
    for pack in newest_packs(&mut sandbox) {
        fs::remove_file(pack).unwrap();
    }
    let before = sandbox.picture();
    // What it would bring back is gone; what is there must not go, too.
    assert!(sandbox.execute(&Operation::Redo).is_err());
    assert_eq!(sandbox.picture(), before);
    let id = sandbox
        .capture_as(&Why {
            label: Some("x".into()),
            ..Why::plain(Trigger::Save)
        })
        .unwrap()
        .id;
    edit_all(&sandbox, 3);
    sandbox.rewind(id);
    assert_eq!(sandbox.picture(), before);
    sandbox.reopen(false);
    edit_all(&sandbox, 4);
    sandbox.rewind(id);
    assert_eq!(sandbox.picture(), before);
}

#[test]
fn a_damaged_checkpoint_can_be_dropped() {
    let mut sandbox = many();
    for version in 2..=3 {
        edit_all(&sandbox, version);
        sandbox.capture();
    }
    let id = sandbox.engine().id().to_owned();
    fs::write(
        sandbox
            .engine()
            .store_path()
            .join(format!("refs/checkpoints/{id}/watch/2")),
        "",
    )
    .unwrap();
    sandbox.reopen(true);
    let dropped = sandbox
        .on(|engine, cx| engine.drop_checkpoints(&[2], false, cx))
        .unwrap();
    assert_eq!((dropped.checkpoints, dropped.unreclaimed), (vec![2], None));
    sandbox.reopen(true);
    assert!(sandbox.engine().damaged().is_empty() && sandbox.engine().verify().unwrap().is_empty());
    sandbox.execute(&Operation::Rewind(None)).unwrap();
    assert_eq!(sandbox.read("d0/f0").as_deref(), Some("v1 0\n"));
}

/// The loose object of these bytes.
fn loose(sandbox: &mut Sandbox, bytes: &[u8]) -> PathBuf {
    let hex = Oid::of(ObjectKind::Blob, bytes).to_string();
    let objects = sandbox.engine().store_path().join("objects");
    objects.join(&hex[..2]).join(&hex[2..])
}

/// What may become of an object's file.
const DAMAGES: [fn(&Path); 4] = [
    |file| fs::remove_file(file).unwrap(),
    |file| overwrite(file, b""),
    |file| overwrite(file, b"garbage"),
    |file| {
        let bytes = fs::read(file).unwrap();
        overwrite(file, &bytes[..bytes.len() / 2]);
    },
];

fn overwrite(file: &Path, bytes: &[u8]) {
    fs::remove_file(file).unwrap();
    fs::write(file, bytes).unwrap();
}

#[test]
fn what_an_operation_replaces_is_written_again_if_its_object_is_damaged() {
    let huge = "0123456789abcdef".repeat(300_000);
    for precious in ["precious\n", &huge] {
        for (damage, with_restart) in DAMAGES.into_iter().zip([false, true, false, true]) {
            for replaced in [true, false] {
                let mut sandbox = Sandbox::with(|root| {
                    fs::write(root.join("a"), "old a\n").unwrap();
                    if replaced {
                        fs::write(root.join("f"), "old\n").unwrap();
                    }
                });
                sandbox.write("f", precious);
                sandbox.capture();
                let object = loose(&mut sandbox, precious.as_bytes());
                damage(&object);
                if with_restart {
                    sandbox.reopen(true);
                }
                let before = sandbox.picture();
                sandbox.rewind(1);
                assert_eq!(sandbox.read("f").as_deref(), replaced.then_some("old\n"));
                sandbox.execute(&Operation::Redo).unwrap();
                assert_eq!(sandbox.picture(), before);
                fsck(sandbox.engine().store_path());
            }
        }
    }
}

#[test]
fn a_restored_path_is_written_again_if_its_object_is_damaged() {
    for damage in DAMAGES {
        let mut sandbox = Sandbox::with(|root| fs::write(root.join("f"), "old\n").unwrap());
        sandbox.write("f", "precious\n");
        sandbox.capture();
        damage(&loose(&mut sandbox, b"precious\n"));
        let path = TreePath::new(b"f").unwrap();
        sandbox
            .execute(&Operation::Restore(Select::Number(1), vec![path]))
            .unwrap();
        assert_eq!(sandbox.read("f").as_deref(), Some("old\n"));
        sandbox.execute(&Operation::Redo).unwrap();
        assert_eq!(sandbox.read("f").as_deref(), Some("precious\n"));
    }
}

/// A checkpoint of one edit relies on all that didn't change.
#[test]
fn an_edit_after_packs_went_has_everything_written_again() {
    for with_restart in [false, true] {
        let mut sandbox = many();
        sandbox.engine().save_cache().unwrap();
        for pack in newest_packs(&mut sandbox) {
            fs::remove_file(pack).unwrap();
        }
        if with_restart {
            sandbox.reopen(true);
        }
        sandbox.write("d0/f0", "edited\n");
        let scope = Scope::Paths([TreePath::new(b"d0/f0").unwrap()].into());
        let n = sandbox
            .on(|engine, cx| engine.capture(scope, &Why::plain(Trigger::Auto), cx))
            .unwrap()
            .id;
        let before = sandbox.picture();
        edit_all(&sandbox, 7);
        sandbox.rewind(n);
        assert_eq!(sandbox.picture(), before);
    }
}

#[test]
fn a_lost_object_of_an_unchanged_file_is_written_again_after_a_restart() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("f"), "kept\n").unwrap());
    fs::remove_file(loose(&mut sandbox, b"kept\n")).unwrap();
    sandbox.reopen(true);
    sandbox.capture();
    assert_eq!(sandbox.engine().verify().unwrap(), []);
}

#[test]
fn what_verify_finds_damaged_is_written_again_by_the_next_look() {
    for damage in DAMAGES {
        let mut sandbox = Sandbox::with(|root| fs::write(root.join("f"), "kept\n").unwrap());
        sandbox.engine().save_cache().unwrap();
        damage(&loose(&mut sandbox, b"kept\n"));
        let findings = sandbox.engine().verify().unwrap();
        assert_ne!(findings, []);
        assert!(sandbox.engine().mend_from_disk(&findings).unwrap());
        assert_eq!(sandbox.engine().current(), Some(1));
        assert!(!sandbox.capture().created);
        assert_eq!(sandbox.engine().verify().unwrap(), []);
    }
}

#[test]
fn what_only_an_earlier_checkpoint_has_is_not_looked_for_on_disk() {
    for damage in DAMAGES {
        let mut sandbox = Sandbox::with(|root| fs::write(root.join("f"), "earlier\n").unwrap());
        fs::write(sandbox.root().join("f"), "now\n").unwrap();
        sandbox.capture();
        damage(&loose(&mut sandbox, b"earlier\n"));
        for rests in [false, true] {
            if rests {
                sandbox.engine().rest().unwrap();
            }
            let findings = sandbox.engine().verify().unwrap();
            assert_ne!(findings, []);
            assert!(!sandbox.engine().mend_from_disk(&findings).unwrap());
        }
        // Back on the disk, it is written like anything new.
        fs::write(sandbox.root().join("f"), "earlier\n").unwrap();
        sandbox.capture();
        assert_eq!(sandbox.engine().verify().unwrap(), []);
    }
}

#[test]
fn what_one_look_could_not_mend_is_not_tried_again() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("f"), "kept\n").unwrap());
    fs::remove_file(loose(&mut sandbox, b"kept\n")).unwrap();
    // Nobody has looked since.
    fs::write(sandbox.root().join("f"), "other\n").unwrap();
    let mut tried = Vec::new();
    for _ in 0..3 {
        let findings = sandbox.engine().verify().unwrap();
        assert_ne!(findings, []);
        tried.push(sandbox.engine().mend_from_disk(&findings).unwrap());
        sandbox.capture();
    }
    assert_eq!(tried, [true, false, false]);
}

/// Nothing of it changed since, so nobody would read it.
#[test]
fn a_save_misses_what_is_gone_of_unchanged_files() {
    for named in [true, false] {
        let mut sandbox = Sandbox::with(|root| fs::write(root.join("f"), "kept\n").unwrap());
        sandbox.write("g", "two\n");
        sandbox.capture();
        fs::remove_file(loose(&mut sandbox, b"kept\n")).unwrap();
        sandbox.write("g", "three\n");
        let n = if named {
            sandbox.engine().doubt_names();
            sandbox.capture_as(&Why::plain(Trigger::Auto)).unwrap().id
        } else {
            sandbox.capture().id
        };
        let before = sandbox.picture();
        assert_eq!(sandbox.engine().verify().unwrap(), []);
        sandbox.write("f", "later\n");
        sandbox.rewind(n);
        assert_eq!(sandbox.picture(), before);
    }
}
