//! What makes a checkpoint of the position goes or rots, while its trees and contents are whole: no save and no operation
//! counts on it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use stepback_engine::checkpoint::Trigger;
use stepback_engine::engine::{Operation, Scope, Why};
use stepback_engine::retention::Policy;
use stepback_engine::store::Store;

use crate::support::{Picture, Sandbox, fsck};

/// Two checkpoints of one file.
fn two() -> Sandbox {
    let mut sandbox = Sandbox::with(|root| {
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/f"), "one\n").unwrap();
    });
    sandbox.write("d/f", "two\n");
    // Side records that are equal are one.
    let perm = fs::Permissions::from_mode(0o600);
    fs::set_permissions(sandbox.root().join("d/f"), perm).unwrap();
    assert_eq!(sandbox.capture().id, 2);
    sandbox
}

fn checkpoint_ref(sandbox: &mut Sandbox, n: u64) -> PathBuf {
    let id = sandbox.engine().id().to_owned();
    let store = sandbox.engine().store_path();
    store.join(format!("refs/checkpoints/{id}/watch/{n}"))
}

fn own_ref(sandbox: &mut Sandbox, name: &str) -> PathBuf {
    let id = sandbox.engine().id().to_owned();
    sandbox
        .engine()
        .store_path()
        .join(format!("refs/stepback/{id}/{name}"))
}

/// The loose object that a ref names.
fn named(sandbox: &mut Sandbox, of: &Path) -> PathBuf {
    let hex = fs::read_to_string(of).unwrap();
    object(sandbox, hex.trim())
}

fn object(sandbox: &mut Sandbox, hex: &str) -> PathBuf {
    let objects = sandbox.engine().store_path().join("objects");
    objects.join(&hex[..2]).join(&hex[2..])
}

fn cut(file: &Path) {
    let bytes = fs::read(file).unwrap();
    fs::remove_file(file).unwrap();
    fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
}

type Loss = fn(&mut Sandbox);

/// What may become of checkpoint 2, and whether memory has to the byte what is gone.
const LOSSES: [(&str, bool, Loss); 9] = [
    ("its commit is gone", true, |sandbox| {
        let name = checkpoint_ref(sandbox, 2);
        fs::remove_file(named(sandbox, &name)).unwrap();
    }),
    ("its commit is cut off", true, |sandbox| {
        let name = checkpoint_ref(sandbox, 2);
        cut(&named(sandbox, &name));
    }),
    ("its ref is gone", true, |sandbox| {
        fs::remove_file(checkpoint_ref(sandbox, 2)).unwrap();
    }),
    ("its ref is broken", true, |sandbox| {
        fs::write(checkpoint_ref(sandbox, 2), "").unwrap();
    }),
    ("its ref names another one", false, |sandbox| {
        fs::copy(checkpoint_ref(sandbox, 1), checkpoint_ref(sandbox, 2)).unwrap();
    }),
    ("its side ref is gone", false, |sandbox| {
        fs::remove_file(own_ref(sandbox, "side/2")).unwrap();
    }),
    ("its side commit is gone", true, |sandbox| {
        let name = own_ref(sandbox, "side/2");
        fs::remove_file(named(sandbox, &name)).unwrap();
    }),
    ("its side record's tree is gone", true, |sandbox| {
        let name = own_ref(sandbox, "side/2");
        let commit = fs::read_to_string(name).unwrap().trim().parse().unwrap();
        let store = Store::open(sandbox.engine().store_path()).unwrap();
        let tree = store.read_commit(commit).unwrap().tree.to_string();
        fs::remove_file(object(sandbox, &tree)).unwrap();
    }),
    ("the root's record is gone", true, |sandbox| {
        let name = own_ref(sandbox, "root");
        fs::remove_file(named(sandbox, &name)).unwrap();
    }),
];

/// After a restart checkpoint `n` is there and gives `before` back.
#[track_caller]
fn holds(sandbox: &mut Sandbox, n: u64, before: &Picture, how: &str) {
    sandbox.write("d/f", "later\n");
    sandbox.reopen(false);
    sandbox.rewind(n);
    assert_eq!(sandbox.picture(), *before, "{how}");
    let found = sandbox.engine().verify().unwrap();
    let of_n = format!("/{n}");
    assert!(
        !found.iter().any(|finding| finding.what.ends_with(&of_n)),
        "{how}: {found:?}"
    );
}

#[test]
fn a_save_answers_with_a_checkpoint_that_is_there() {
    for (how, to_the_byte, lose) in LOSSES {
        for trigger in [Trigger::Save, Trigger::BeforeCommand] {
            let mut sandbox = two();
            let before = sandbox.picture();
            lose(&mut sandbox);
            let saved = sandbox.capture_as(&Why::plain(trigger)).unwrap();
            assert_eq!(saved.created, !to_the_byte, "{how}");
            if to_the_byte {
                assert_eq!(saved.id, 2, "{how}");
                assert_eq!(sandbox.engine().verify().unwrap(), [], "{how}");
                fsck(sandbox.engine().store_path());
            }
            holds(&mut sandbox, saved.id, &before, how);
        }
    }
}

#[test]
fn what_an_operation_replaces_is_in_a_checkpoint_that_is_there() {
    for (how, _, lose) in LOSSES {
        let mut sandbox = two();
        let before = sandbox.picture();
        lose(&mut sandbox);
        let report = sandbox.rewind(1);
        assert_eq!(sandbox.read("d/f").as_deref(), Some("one\n"));
        holds(&mut sandbox, report.saved.unwrap_or(2), &before, how);
    }
}

/// The target's own record is gone; what comes out is that state all the same.
#[test]
fn what_was_rewound_to_is_on_record() {
    let mut sandbox = two();
    let name = checkpoint_ref(&mut sandbox, 1);
    fs::remove_file(named(&mut sandbox, &name)).unwrap();
    sandbox.rewind(1);
    let before = sandbox.picture();
    holds(&mut sandbox, 1, &before, "the commit of the target");
}

#[test]
fn what_verify_finds_of_the_position_is_mended_by_the_next_look() {
    for (how, to_the_byte, lose) in LOSSES {
        let mut sandbox = two();
        let before = sandbox.picture();
        lose(&mut sandbox);
        let found = sandbox.engine().verify().unwrap();
        assert_ne!(found, [], "{how}");
        assert!(sandbox.engine().mend_from_disk(&found).unwrap(), "{how}");
        let seen = sandbox.capture_as(&Why::plain(Trigger::Auto)).unwrap();
        assert_eq!(seen.created, !to_the_byte, "{how}");
        // Once is enough.
        assert!(!sandbox.capture().created, "{how}");
        holds(&mut sandbox, seen.id, &before, how);
    }
}

/// All of it, refs packed as well.
#[test]
fn the_position_outlives_all_packs() {
    for edited in [false, true] {
        for trigger in [Trigger::Save, Trigger::Auto] {
            let mut sandbox = two();
            sandbox
                .on(|engine, cx| engine.prune(&Policy::default(), false, cx))
                .unwrap();
            for entry in fs::read_dir(sandbox.engine().store_path().join("objects/pack")).unwrap() {
                fs::remove_file(entry.unwrap().path()).unwrap();
            }
            if edited {
                sandbox.write("d/f", "three\n");
            }
            let before = sandbox.picture();
            let n = sandbox.capture_as(&Why::plain(trigger)).unwrap().id;
            assert_eq!(n, if edited { 3 } else { 2 });
            holds(&mut sandbox, n, &before, "packs");
        }
    }
}

/// What a redo goes back to is damaged, and the redo entry alone has it still.
#[test]
fn whoever_is_told_to_drop_a_checkpoint_is_told_of_the_redo_that_needs_it() {
    let mut sandbox = two();
    let before = sandbox.picture();
    sandbox.rewind(1);
    let name = checkpoint_ref(&mut sandbox, 2);
    fs::remove_file(named(&mut sandbox, &name)).unwrap();
    let pruned = sandbox
        .on(|engine, cx| engine.prune(&Policy::default(), false, cx))
        .unwrap();
    let why = pruned.unreclaimed.unwrap();
    assert!(
        why.contains("stepback redo") && why.contains("redo entry 1"),
        "{why}"
    );
    sandbox.execute(&Operation::Redo).unwrap();
    assert_eq!(sandbox.picture(), before);
    sandbox.capture();
    holds(&mut sandbox, 2, &before, "redo");
}

/// An automatic look costs no look at records.
#[test]
fn an_automatic_look_relies_on_memory() {
    let mut sandbox = two();
    sandbox.capture();
    let name = checkpoint_ref(&mut sandbox, 2);
    fs::remove_file(&name).unwrap();
    let scope = Scope::Paths(Default::default());
    sandbox
        .on(|engine, cx| engine.capture(scope, &Why::plain(Trigger::Auto), cx))
        .unwrap();
    assert!(!name.exists());
}
