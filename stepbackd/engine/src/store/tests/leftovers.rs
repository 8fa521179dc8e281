use std::fs;

use super::super::Expected::Absent;
use super::{Store, assert_clean, names_below, sandbox};
use crate::error::Error;
use crate::oid::{ObjectKind, Oid};

const LEFT: [&str; 7] = [
    "objects/tmp_obj_1_2",
    "objects/pack/tmp_pack_1_2",
    "objects/pack/tmp_idx_1_3",
    "tmp_file_1_2",
    "stepback/tmp_reserve_1_2",
    "packed-refs.lock",
    "refs/heads/1.lock",
];

#[test]
fn what_killed_writers_leave_goes_at_the_next_opening() {
    let store = sandbox();
    for name in LEFT {
        fs::write(store.path().join(name), b"x").unwrap();
    }
    Store::open(store.path()).unwrap();
    assert!(!LEFT.iter().any(|name| store.path().join(name).exists()));
}

#[test]
fn nothing_goes_while_somebody_writes() {
    let store = sandbox();
    let writer = store.writer();
    writer.put(ObjectKind::Blob, b"x").unwrap();
    for name in LEFT {
        fs::write(store.path().join(name), b"x").unwrap();
    }
    Store::open(store.path()).unwrap();
    assert!(LEFT.iter().all(|name| store.path().join(name).exists()));
    writer.finish().unwrap();
    Store::open(store.path()).unwrap();
    assert!(!LEFT.iter().any(|name| store.path().join(name).exists()));
}

#[test]
fn a_stale_lock_of_a_ref_stops_nobody() {
    let store = sandbox();
    let oid = store.commit_of(&[]);
    fs::create_dir_all(store.path().join("refs/x")).unwrap();
    fs::write(store.path().join("refs/x/1.lock"), b"").unwrap();
    fs::write(store.path().join("packed-refs.lock"), b"").unwrap();
    assert_eq!(store.refs("refs/").unwrap(), []);
    store.set_ref("refs/x/1", oid, Absent).unwrap();
    store.pack_refs().unwrap();
    store.delete_ref("refs/x/1").unwrap();
    assert_clean(&store);
}

#[test]
fn an_interrupted_creation_is_completed() {
    let whole = sandbox();
    let mut parts = Vec::new();
    names_below(whole.path(), &mut parts);
    // Stop the creation before each part in turn: everything that comes after it is missing.
    let order = [
        "stepback",
        "stepback/lock",
        "objects",
        "objects/info",
        "objects/pack",
        "refs",
        "refs/heads",
        "HEAD",
        "config",
    ];
    for stop in 0..=order.len() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("s.git");
        fs::create_dir(&path).unwrap();
        for part in &order[..stop] {
            if whole.path().join(part).is_dir() {
                fs::create_dir(path.join(part)).unwrap();
            } else {
                fs::copy(whole.path().join(part), path.join(part)).unwrap();
            }
        }
        let store = Store::create(&path).unwrap();
        let mut made = Vec::new();
        names_below(store.path(), &mut made);
        assert_eq!(made.len(), parts.len(), "stopped after {stop}");
        assert_clean(&store);
        Store::create(&path).unwrap();
    }
}

#[test]
fn something_else_in_the_place_of_a_store_is_left_alone() {
    let dir = tempfile::TempDir::new().unwrap();
    fs::write(dir.path().join("mine"), b"x").unwrap();
    assert!(matches!(Store::create(dir.path()), Err(Error::Refused { .. })));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    assert!(matches!(
        Store::open(&dir.path().join("absent")),
        Err(Error::Io { .. })
    ));
}

#[test]
fn maintenance_and_writers_keep_each_other_out() {
    let store = sandbox();
    let other = Store::open(store.path()).unwrap();
    let shared = other.lock().unwrap();
    assert!(store.try_lock_exclusive().unwrap().is_none());
    drop(shared);
    let exclusive = store.try_lock_exclusive().unwrap().unwrap();
    assert!(other.try_lock_exclusive().unwrap().is_none());
    let oid = store.blob(b"written by maintenance itself");
    assert!(store.has(oid).unwrap());
    drop(exclusive);
    other.lock().unwrap();
}

#[test]
fn the_reserve_is_given_up_and_made_again() {
    let store = sandbox();
    let with = store.disk_bytes().unwrap();
    store.release_reserve().unwrap();
    store.release_reserve().unwrap();
    assert!(with - store.disk_bytes().unwrap() >= 4 << 20);
    store.restore_reserve().unwrap();
    store.restore_reserve().unwrap();
    assert_eq!(store.disk_bytes().unwrap(), with);
}

#[test]
fn the_users_git_configuration_and_a_path_that_isnt_utf8_make_no_difference() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::TempDir::new().unwrap();
    let store = Store::create(&dir.path().join(std::ffi::OsStr::from_bytes(b"st\xffate/x.git"))).unwrap();
    let writer = store.writer();
    let blobs: Vec<Oid> = (0..50)
        .map(|i| writer.put(ObjectKind::Blob, &super::text(i)).unwrap())
        .collect();
    writer.finish().unwrap();
    assert_eq!(store.read(blobs[49], ObjectKind::Blob).unwrap(), super::text(49));
}
