use std::fs;

use super::super::{Expected, RefChange, Store, Thoroughness};
use super::{Sandbox, assert_clean, sandbox, text, writable};
use crate::oid::{ObjectKind, Oid};
use crate::store::git::Interrupt;
use crate::time::Time;

/// A commit of a tree with one new blob, and a ref to it, made durable together.
fn checkpoint(store: &Store, name: &str, number: u32) -> [Oid; 3] {
    let writer = store.writer();
    let blob = writer.put(ObjectKind::Blob, &text(number)).unwrap();
    let tree = [super::super::TreeEntry {
        mode: super::super::MODE_BLOB,
        name: b"file".to_vec(),
        oid: blob,
    }];
    let tree = super::super::write_tree(&writer, &tree).unwrap();
    let commit = writer.commit(tree, &format!("{number}"), Time(0)).unwrap();
    let change = RefChange {
        name,
        new: commit,
        expected: Expected::Any,
    };
    let mut refs = writer.finish_with(&[change]).unwrap();
    refs.publish().unwrap();
    [blob, tree, commit]
}

/// What may be left when the power goes before the system has written anything out: files without contents or none at all,
/// old refs or none. And the next boot.
fn lose_power(store: &Sandbox, objects: &[Oid], refs: &[&str]) {
    for (i, oid) in objects.iter().enumerate() {
        let file = store.loose_file(*oid);
        match i % 4 {
            0 => fs::remove_file(file).unwrap(),
            1 => fs::write(file, b"").unwrap(),
            // Not by a power loss; but a store that can't be opened for it helps nobody.
            2 => {
                fs::remove_file(&file).unwrap();
                fs::create_dir(file).unwrap();
            }
            _ => fs::write(file, [0; 100]).unwrap(),
        }
    }
    for (i, name) in refs.iter().enumerate() {
        let file = store.path().join(name);
        match i % 2 {
            0 => fs::remove_file(file).unwrap(),
            _ => fs::write(file, b"").unwrap(),
        }
    }
    store.ahead.age();
}

#[test]
fn what_was_announced_is_there_after_a_power_loss() {
    let store = sandbox();
    let mut objects = Vec::new();
    let names: Vec<String> = (0..20).map(|n| format!("refs/x/{n}")).collect();
    let mut last = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let made = checkpoint(&store, name, u32::try_from(number).unwrap());
        objects.extend(made);
        last.push(made[2]);
    }
    // One that changes again, by itself.
    store.set_ref("refs/x/3", last[4], Expected::Is(last[3])).unwrap();
    last[3] = last[4];
    let refs: Vec<&str> = names.iter().map(String::as_str).collect();
    lose_power(&store, &objects, &refs);
    assert!(store.read_ref("refs/x/0").unwrap().is_none());
    let again = Store::open(store.path()).unwrap();
    for (name, commit) in names.iter().zip(last) {
        assert_eq!(again.read_ref(name).unwrap(), Some(commit));
    }
    for oid in objects {
        assert!(again.has(oid).unwrap(), "{oid}");
    }
    assert!(again.ahead.is_empty().unwrap());
    assert_clean(&again);
}

#[test]
fn a_ref_that_was_deleted_stays_so() {
    let store = sandbox();
    checkpoint(&store, "refs/x/packed", 1);
    checkpoint(&store, "refs/x/both", 2);
    store.pack_refs().unwrap();
    let [.., commit] = checkpoint(&store, "refs/x/both", 3);
    checkpoint(&store, "refs/x/loose", 4);
    let packed = fs::read(store.path().join("packed-refs")).unwrap();
    store
        .delete_refs(&["refs/x/packed", "refs/x/both", "refs/x/loose"])
        .unwrap();
    fs::write(store.path().join("packed-refs"), packed).unwrap();
    fs::create_dir_all(store.path().join("refs/x")).unwrap();
    fs::write(store.path().join("refs/x/both"), format!("{commit}\n")).unwrap();
    store.ahead.age();
    let again = Store::open(store.path()).unwrap();
    assert_eq!(again.refs("refs/").unwrap(), []);
}

#[test]
fn a_torn_record_counts_as_never_made() {
    for torn in [0, 30, 100, 200] {
        let store = sandbox();
        let [.., first] = checkpoint(&store, "refs/x/1", 1);
        let before = fs::read(store.path().join("stepback/ahead")).unwrap();
        let second = checkpoint(&store, "refs/x/2", 2);
        store.ahead.age();
        let file = store.file("stepback/ahead");
        let after = fs::read(&file).unwrap();
        let start = before.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        let mut bytes = after.clone();
        bytes[start + torn] ^= 1;
        fs::write(&file, bytes).unwrap();
        lose(&store, &second, "refs/x/2");
        let again = Store::open(store.path()).unwrap();
        assert_eq!(again.refs("refs/").unwrap(), [("refs/x/1".to_owned(), first)]);
    }
}

fn lose(store: &Sandbox, objects: &[Oid], name: &str) {
    for oid in objects {
        fs::remove_file(store.loose_file(*oid)).unwrap();
    }
    fs::remove_file(store.path().join(name)).unwrap();
}

#[test]
fn what_got_no_names_does_not_come_back() {
    let store = sandbox();
    checkpoint(&store, "refs/x/1", 1);
    let writer = store.writer();
    let commit = writer.commit(Oid::EMPTY_TREE, "unpublished", Time(0)).unwrap();
    let change = RefChange {
        name: "refs/x/2",
        new: commit,
        expected: Expected::Absent,
    };
    drop(writer.finish_with(&[change]).unwrap());
    assert!(store.ahead.is_empty().unwrap());
    checkpoint(&store, "refs/x/3", 3);
    store.ahead.age();
    let names: Vec<String> = Store::open(store.path())
        .unwrap()
        .refs("refs/")
        .unwrap()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["refs/x/1", "refs/x/3"]);
}

#[test]
fn in_the_same_boot_nothing_is_brought_back() {
    let store = sandbox();
    checkpoint(&store, "refs/x/1", 1);
    fs::remove_file(store.path().join("refs/x/1")).unwrap();
    let again = Store::open(store.path()).unwrap();
    assert_eq!(again.refs("refs/").unwrap(), []);
    assert!(again.ahead.is_empty().unwrap());
}

#[test]
fn a_deletion_that_was_cut_off_is_ended_at_the_next_opening() {
    let store = sandbox();
    for (number, name) in ["refs/x/1", "refs/y/1", "refs/x/2"].into_iter().enumerate() {
        checkpoint(&store, name, u32::try_from(number).unwrap());
    }
    // Killed after the first of two.
    let mut batch = super::super::ahead::Batch::default();
    batch.gone("refs/x/1");
    batch.gone("refs/y/1");
    assert!(store.ahead.append(&batch).unwrap());
    fs::remove_file(store.path().join("refs/x/1")).unwrap();
    let again = Store::open(store.path()).unwrap();
    let names: Vec<String> = again
        .refs("refs/")
        .unwrap()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["refs/x/2"]);
}

#[test]
fn an_earlier_round_does_not_come_back() {
    let store = sandbox();
    // The same first record each time, and in the first round two behind it.
    let [.., commit] = checkpoint(&store, "refs/x/1", 1);
    store.settle().unwrap();
    let set = |name, expected| store.set_ref(name, commit, expected).unwrap();
    set("refs/x/1", Expected::Any);
    set("refs/x/2", Expected::Absent);
    store.settle().unwrap();
    fs::remove_file(store.path().join("refs/x/2")).unwrap();
    set("refs/x/1", Expected::Any);
    store.ahead.age();
    let again = Store::open(store.path()).unwrap();
    assert_eq!(again.refs("refs/").unwrap(), [("refs/x/1".to_owned(), commit)]);
}

#[test]
fn it_begins_anew_when_it_is_full_and_two_share_it() {
    let store = sandbox();
    let other = Store::open(store.path()).unwrap();
    let mut random = 1_u32;
    let mut noise = |bytes: usize| -> Vec<u8> {
        (0..bytes)
            .map(|_| {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                random.to_be_bytes()[0]
            })
            .collect()
    };
    let mut rounds = 0;
    let mut all = Vec::new();
    for number in 0..120 {
        let store = if number % 3 == 0 { &other } else { &store.store };
        let writer = store.writer();
        // Now and then one that goes the long way.
        let size = if number % 10 == 9 { 200_000 } else { 10_000 };
        let blob = writer.put(ObjectKind::Blob, &noise(size)).unwrap();
        let tree = [super::super::TreeEntry {
            mode: super::super::MODE_BLOB,
            name: b"file".to_vec(),
            oid: blob,
        }];
        let tree = super::super::write_tree(&writer, &tree).unwrap();
        let commit = writer.commit(tree, &number.to_string(), Time(0)).unwrap();
        let name = format!("refs/x/{number}");
        let change = RefChange {
            name: &name,
            new: commit,
            expected: Expected::Absent,
        };
        let before = fs::read(store.path().join("stepback/ahead")).unwrap_or_default();
        let mut refs = writer.finish_with(&[change]).unwrap();
        refs.publish().unwrap();
        let after = fs::read(store.path().join("stepback/ahead")).unwrap();
        rounds += u32::from(before.get(..100) != after.get(..100));
        all.push((name, commit));
    }
    assert!(rounds > 2, "{rounds}");
    // Of the last round everything may be lost.
    let entries = {
        store.ahead.age();
        store.ahead.left().unwrap()
    };
    for entry in entries {
        match entry {
            super::super::ahead::Entry::Object(oid, _) => fs::remove_file(store.loose_file(oid)).unwrap(),
            super::super::ahead::Entry::Ref(name, _) => fs::remove_file(store.path().join(name)).unwrap(),
        }
    }
    let again = Store::open(store.path()).unwrap();
    for (name, commit) in all {
        assert_eq!(again.read_ref(&name).unwrap(), Some(commit), "{name}");
    }
    assert_clean(&again);
}

#[test]
fn maintenance_leaves_nothing_to_be_read_in_it() {
    let store = sandbox();
    checkpoint(&store, "refs/x/1", 1);
    store
        .maintain(None, None, Thoroughness::Fold, &Interrupt::default())
        .unwrap();
    let bytes = fs::read(store.path().join("stepback/ahead")).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
    checkpoint(&store, "refs/x/2", 2);
    assert!(!store.ahead.is_empty().unwrap());
}

#[test]
fn a_file_that_is_none_of_ours_is_no_record() {
    for bytes in [&b""[..], b"x", b"SBa1", &[b'S'; 5000]] {
        let store = sandbox();
        fs::write(store.path().join("stepback/ahead"), bytes).unwrap();
        writable(&store.path().join("stepback/ahead"));
        let again = Store::open(store.path()).unwrap();
        let made = checkpoint(&again, "refs/x/1", 1);
        lose_power(&store, &made, &["refs/x/1"]);
        let again = Store::open(store.path()).unwrap();
        assert_eq!(again.read_ref("refs/x/1").unwrap(), Some(made[2]));
    }
}

/// Checkpoints until somebody should empty the file.
fn fill(store: &Store, from: u32) -> (super::super::Settling, Vec<[Oid; 3]>) {
    let mut made = Vec::new();
    for number in from..from + 2_000 {
        if let Some(settling) = store.begin_settling().unwrap() {
            return (settling, made);
        }
        made.push(checkpoint(store, &format!("refs/x/{number}"), number));
    }
    panic!("it never wants to be emptied");
}

#[test]
fn what_is_added_while_it_is_emptied_stays() {
    let store = sandbox();
    let (settling, _) = fill(&store, 0);
    // Nothing of what comes now waits for it, and nothing is lost by it.
    let made = checkpoint(&store, "refs/y/1", 70_001);
    assert!(!settling.finish().unwrap());
    lose_power(&store, &made, &["refs/y/1"]);
    let again = Store::open(store.path()).unwrap();
    assert_eq!(again.read_ref("refs/y/1").unwrap(), Some(made[2]));
    assert!(made.iter().all(|oid| again.has(*oid).unwrap()));
    assert_clean(&again);
}

#[test]
fn it_is_emptied_when_nothing_was_added() {
    let store = sandbox();
    let (settling, _) = fill(&store, 0);
    assert!(settling.finish().unwrap());
    assert!(store.ahead.is_empty().unwrap());
    assert!(store.begin_settling().unwrap().is_none());
    // The next round is as good as the first.
    let made = checkpoint(&store, "refs/y/1", 70_001);
    lose_power(&store, &made, &["refs/y/1"]);
    let again = Store::open(store.path()).unwrap();
    assert_eq!(again.read_ref("refs/y/1").unwrap(), Some(made[2]));
    assert_clean(&again);
}

#[test]
fn what_another_process_adds_while_it_is_emptied_stays() {
    let store = sandbox();
    let other = Store::open(store.path()).unwrap();
    // It was emptied and begun anew by somebody else.
    let (settling, _) = fill(&store, 0);
    other.settle().unwrap();
    let made = checkpoint(&other, "refs/y/1", 70_001);
    assert!(!settling.finish().unwrap());
    lose_power(&store, &made, &["refs/y/1"]);
    let again = Store::open(store.path()).unwrap();
    assert_eq!(again.read_ref("refs/y/1").unwrap(), Some(made[2]));
    // The store is gone.
    let (settling, _) = fill(&again, 1_000);
    fs::remove_dir_all(store.path()).unwrap();
    assert!(settling.finish().is_ok_and(|emptied| !emptied));
    assert!(!store.path().exists());
}
