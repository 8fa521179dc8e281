use std::fs;
use std::path::Path;

use super::super::{Expected, TreeEntry};
use super::{Sandbox, Store, assert_clean, sandbox, text, writable};
use crate::error::Error;
use crate::oid::{ObjectKind, Oid};

fn damage_of(result: Result<impl std::fmt::Debug, Error>) -> String {
    match result {
        Err(Error::Damaged { what, .. } | Error::DamagedRecord { what, .. }) => what,
        other => panic!("should be damaged: {other:?}"),
    }
}

type Damage = Box<dyn Fn(&Path)>;

/// Every way in which a loose object is damaged here; the name says how.
fn damages() -> Vec<(&'static str, Damage)> {
    vec![
        ("empty", Box::new(|path| fs::write(path, b"").unwrap())),
        (
            "garbage",
            Box::new(|path| fs::write(path, b"not zlib at all").unwrap()),
        ),
        ("cut in half", Box::new(|path| truncate(path, |len| len / 2))),
        ("cut in its header", Box::new(|path| truncate(path, |_| 5))),
        (
            "without its checksum",
            Box::new(|path| truncate(path, |len| len - 4)),
        ),
        ("one byte short", Box::new(|path| truncate(path, |len| len - 1))),
        (
            "with a byte more",
            Box::new(|path| {
                let mut bytes = fs::read(path).unwrap();
                bytes.push(0);
                fs::write(path, bytes).unwrap();
            }),
        ),
        (
            "a flipped bit",
            Box::new(|path| {
                let mut bytes = fs::read(path).unwrap();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 0x10;
                fs::write(path, bytes).unwrap();
            }),
        ),
        (
            "another object",
            Box::new(|path| {
                fs::write(
                    path,
                    super::super::deflate::loose(ObjectKind::Blob, b"other").unwrap(),
                )
                .unwrap();
            }),
        ),
        (
            "a huge size",
            Box::new(|path| {
                let mut out = Vec::new();
                super::super::deflate::deflate(&[b"blob 9999999999999999\0x"], &mut out).unwrap();
                fs::write(path, out).unwrap();
            }),
        ),
        (
            "an unknown kind",
            Box::new(|path| {
                let mut out = Vec::new();
                super::super::deflate::deflate(&[b"blub 1\0x"], &mut out).unwrap();
                fs::write(path, out).unwrap();
            }),
        ),
        (
            "a directory",
            Box::new(|path| {
                fs::remove_file(path).unwrap();
                fs::create_dir(path).unwrap();
            }),
        ),
        (
            "a directory with something in it",
            Box::new(|path| {
                fs::remove_file(path).unwrap();
                fs::create_dir(path).unwrap();
                fs::write(path.join("x"), "x").unwrap();
            }),
        ),
        (
            "a link",
            Box::new(|path| {
                fs::remove_file(path).unwrap();
                std::os::unix::fs::symlink("/dev/zero", path).unwrap();
            }),
        ),
        (
            "a fifo",
            Box::new(|path| {
                fs::remove_file(path).unwrap();
                nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
            }),
        ),
    ]
}

fn truncate(path: &Path, len: impl Fn(u64) -> u64) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(len(file.metadata().unwrap().len())).unwrap();
}

#[test]
fn a_damaged_loose_object_is_named_never_hangs_and_is_replaced_by_a_good_one() {
    for (name, damage) in damages() {
        let store = sandbox();
        let oid = store.blob(&text(90));
        damage(&store.loose_file(oid));
        let what = damage_of(store.read(oid, ObjectKind::Blob));
        assert!(what.contains(&oid.to_string()), "{name}: {what}");
        damage_of(store.copy_blob(oid, &mut std::io::sink()));
        assert!(!store.has(oid).unwrap(), "{name}");
        assert_eq!(store.blob(&text(90)), oid);
        assert_eq!(store.read(oid, ObjectKind::Blob).unwrap(), text(90), "{name}");
        assert_clean(&store);
    }
}

#[test]
fn what_stands_where_objects_go_is_set_aside() {
    let store = sandbox();
    let oid = Oid::of(ObjectKind::Blob, &text(90));
    let dir = store.loose_file(oid).parent().unwrap().to_owned();
    for (number, obstacle) in ["a file", "a link to nowhere"].into_iter().enumerate() {
        let _ = fs::remove_dir_all(&dir);
        match obstacle {
            "a file" => fs::write(&dir, "x").unwrap(),
            _ => std::os::unix::fs::symlink("nowhere", &dir).unwrap(),
        }
        assert_eq!(store.blob(&text(90)), oid);
        assert_eq!(store.read(oid, ObjectKind::Blob).unwrap(), text(90), "{obstacle}");
        let aside = store.path().join(format!("damaged-object-{}", number + 1));
        assert!(aside.symlink_metadata().is_ok(), "{obstacle}");
        assert_clean(&store);
    }
}

#[test]
fn a_missing_object_is_named() {
    let store = sandbox();
    let oid = Oid::of(ObjectKind::Blob, b"nowhere");
    assert_eq!(
        damage_of(store.read(oid, ObjectKind::Blob)),
        format!("object {oid} is missing")
    );
    assert!(!store.has(oid).unwrap());
    fs::remove_file(store.loose_file(Oid::EMPTY_TREE)).unwrap();
    damage_of(store.read(Oid::EMPTY_TREE, ObjectKind::Tree));
}

#[test]
fn an_object_of_another_kind_is_an_error() {
    let store = sandbox();
    let loose = store.blob(b"x");
    let packed = store.packed_blobs(40)[0];
    for oid in [loose, packed] {
        assert!(damage_of(store.read(oid, ObjectKind::Tree)).contains("is a blob, not a tree"));
        assert!(damage_of(store.read_commit(oid)).contains("is a blob, not a commit"));
    }
}

#[test]
fn every_flipped_byte_of_a_pack_is_noticed_and_the_other_objects_stay() {
    let store = sandbox();
    let blobs = store.packed_blobs(40);
    let pack = store.packs()[0].clone();
    super::writable(&pack);
    let good = fs::read(&pack).unwrap();
    // Not the first bytes and the last: with these wrong the whole pack is, which is its own test.
    for at in (12..good.len() - 20).step_by(7) {
        let mut bad = good.clone();
        bad[at] ^= 0x41;
        fs::write(&pack, &bad).unwrap();
        let fresh = super::Store::open(store.path()).unwrap();
        let mut damaged = 0;
        for (i, oid) in (0..).zip(&blobs) {
            match fresh.read(*oid, ObjectKind::Blob) {
                Ok(body) => assert_eq!(body, text(i)),
                Err(Error::Damaged { what, .. }) => {
                    assert!(what.contains(&oid.to_string()), "{what}");
                    damaged += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert!(damaged <= 1, "byte {at}: {damaged} objects");
    }
}

#[test]
fn a_truncated_pack_makes_its_objects_damaged_and_the_store_stays_usable() {
    let store = sandbox();
    let blobs = store.packed_blobs(40);
    let pack = store.packs()[0].clone();
    super::writable(&pack);
    truncate(&pack, |len| len / 2);
    let fresh = super::Store::open(store.path()).unwrap();
    assert!(damage_of(fresh.read(blobs[39], ObjectKind::Blob)).contains(&blobs[39].to_string()));
    assert!(!fresh.has(blobs[39]).unwrap());
    let writer = fresh.writer();
    let oid = writer.put(ObjectKind::Blob, &text(39)).unwrap();
    writer.finish().unwrap();
    assert_eq!(oid, blobs[39]);
    assert_eq!(fresh.read(oid, ObjectKind::Blob).unwrap(), text(39));
}

#[test]
fn verify_names_what_is_damaged_and_where_it_was_met() {
    let store = sandbox();
    let (good, bad, gone) = (store.blob(b"good"), store.blob(&text(80)), store.blob(b"gone"));
    let entry = |name: &str, oid| TreeEntry {
        mode: 0o100_644,
        name: name.into(),
        oid,
    };
    let first = store.commit_of(&[entry("good", good), entry("bad", bad)]);
    let second = store.commit_of(&[entry("gone", gone)]);
    store
        .set_ref("refs/checkpoints/r/s/1", first, Expected::Absent)
        .unwrap();
    store
        .set_ref("refs/checkpoints/r/s/2", second, Expected::Absent)
        .unwrap();
    let third = store.commit_of(&[entry("good", good), entry("also", bad)]);
    for (number, commit) in [(4, first), (10, third), (20, third), (21, first), (22, first)] {
        let name = format!("refs/checkpoints/r/s/{number}");
        store.set_ref(&name, commit, Expected::Absent).unwrap();
    }
    assert_eq!(store.verify("refs/checkpoints/r/").unwrap(), []);
    truncate(&store.loose_file(bad), |len| len / 2);
    fs::remove_file(store.loose_file(gone)).unwrap();
    fs::write(store.file("refs/checkpoints/r/s/3"), "").unwrap();
    let found: Vec<String> = store
        .verify("refs/checkpoints/r/")
        .unwrap()
        .into_iter()
        .map(|f| format!("{} {}", f.what, f.how))
        .collect();
    assert_eq!(
        found,
        [
            format!(
                "blob {bad} (refs/checkpoints/r/s/1:bad; also refs/checkpoints/r/s/4, refs/checkpoints/r/s/10, \
                 refs/checkpoints/r/s/20, refs/checkpoints/r/s/21, refs/checkpoints/r/s/22) is truncated"
            ),
            format!("blob {gone} (refs/checkpoints/r/s/2:gone) is missing"),
            "ref refs/checkpoints/r/s/3 is empty".to_owned(),
        ]
    );
    assert_eq!(store.verify("refs/checkpoints/other/").unwrap(), []);
}

#[test]
fn a_store_that_lost_a_part_is_damaged_not_empty() {
    for part in ["objects", "refs", "config"] {
        let store: Sandbox = sandbox();
        let path = store.path().join(part);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap()
        } else {
            fs::remove_file(path).unwrap()
        }
        assert_eq!(
            damage_of(super::Store::open(store.path())),
            format!("{part} is missing")
        );
    }
}

#[test]
fn packs_are_read_through_when_many_objects_are_asked_for_and_a_damaged_one_is_found() {
    for damaged in [false, true] {
        let store = sandbox();
        let blobs = store.packed_blobs(1_500);
        if damaged {
            let pack = store.packs().pop().unwrap();
            writable(&pack);
            let mut bytes = std::fs::read(&pack).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(&pack, bytes).unwrap();
        }
        let again = Store::open(store.path()).unwrap();
        let writer = again.writer();
        let bad = (0..1_500)
            .filter(|i| writer.put(ObjectKind::Blob, &text(*i)).is_ok())
            .filter(|i| {
                !matches!(
                    again.existing(blobs[*i as usize]),
                    Ok(super::super::read::Existing::Packed)
                )
            })
            .count();
        assert_eq!(bad > 0, damaged, "{bad}");
        // What is damaged is written anew; the rest isn't written twice.
        writer.finish().unwrap();
        for (i, oid) in blobs.iter().enumerate() {
            let body = again.read(*oid, ObjectKind::Blob).unwrap();
            assert_eq!(body, text(u32::try_from(i).unwrap()));
        }
        again.let_go().unwrap();
        assert!(again.has(blobs[7]).unwrap());
    }
}

#[test]
#[cfg(target_os = "linux")]
fn what_was_read_of_a_pack_is_mapped_until_it_is_let_go_of() {
    let store = sandbox();
    let blobs = store.packed_blobs(50);
    let pack = store.packs().pop().unwrap();
    let mapped = || {
        fs::read_to_string("/proc/self/maps")
            .unwrap()
            .contains(pack.to_str().unwrap())
    };
    store.read(blobs[7], ObjectKind::Blob).unwrap();
    assert!(mapped());
    store.let_go().unwrap();
    assert!(!mapped());
    assert_eq!(store.read(blobs[8], ObjectKind::Blob).unwrap(), text(8));
}

#[test]
fn packs_that_cannot_be_opened_anew_are_an_error_and_not_empty() {
    let store = sandbox();
    let blobs = store.packed_blobs(50);
    store.read(blobs[7], ObjectKind::Blob).unwrap();
    let dir = store.path().join("objects/pack");
    let aside = store.path().join("objects/aside");
    fs::rename(&dir, &aside).unwrap();
    // It leads nowhere, and isn't absent.
    std::os::unix::fs::symlink("pack", &dir).unwrap();
    assert!(store.let_go().is_err());
    assert!(store.has(blobs[7]).is_err());
    assert!(store.read(blobs[8], ObjectKind::Blob).is_err());
    fs::remove_file(&dir).unwrap();
    fs::rename(&aside, &dir).unwrap();
    assert_eq!(store.read(blobs[8], ObjectKind::Blob).unwrap(), text(8));
    assert!(store.has(blobs[7]).unwrap());
}
