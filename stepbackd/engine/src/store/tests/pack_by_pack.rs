//! Packs written anew one by one, where there isn't room for more.

use std::fs;

use super::super::Expected::Any;
use super::super::{Interrupt, RESERVE_BYTES, TreeEntry};
use super::{Sandbox, Store, assert_clean, git, sandbox};
use crate::error::{Error, Result};
use crate::oid::{ObjectKind, Oid};

/// Bytes that don't compress.
fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..count).map(|_| next()).collect()
}

const BLOB: usize = 10_000;
const MIB: u64 = 1 << 20;

/// A pack of 60 blobs, of which a ref reaches so many; those and the others.
pub(super) fn mixed(store: &Sandbox, seed: u64, kept: usize) -> (Vec<Oid>, Vec<Oid>) {
    let before = store.packs().len();
    let writer = store.writer();
    let mut blobs: Vec<Oid> = (0..60)
        .map(|i| {
            writer
                .put(ObjectKind::Blob, &noise(1_000 * seed + i, BLOB))
                .unwrap()
        })
        .collect();
    writer.finish().unwrap();
    assert_eq!(store.packs().len(), before + 1);
    let gone = blobs.split_off(kept);
    if kept > 0 {
        hold(store, &format!("refs/x/{seed}"), &blobs);
    }
    (blobs, gone)
}

fn hold(store: &Sandbox, name: &str, blobs: &[Oid]) {
    let entry = |(i, oid): (usize, &Oid)| TreeEntry {
        mode: 0o100_644,
        name: format!("f{i:03}").into_bytes(),
        oid: *oid,
    };
    let entries: Vec<_> = blobs.iter().enumerate().map(entry).collect();
    store.set_ref(name, store.commit_of(&entries), Any).unwrap();
}

/// As on a disk of which so many bytes are free now.
pub(super) fn give_back(store: &Store, free: u64) -> Result<bool> {
    let _alone = store.lock_exclusive()?;
    let before = store.disk_bytes()?;
    store.give_back_by_pack(
        &|| Ok((before + free).saturating_sub(store.disk_bytes()?)),
        &Interrupt::default(),
    )
}

fn bytes_of_packs(store: &Sandbox) -> u64 {
    let size = |path: &std::path::PathBuf| path.metadata().unwrap().len();
    store.packs().iter().map(size).sum()
}

pub(super) fn assert_kept(store: &Store, kept: &[Oid]) {
    for store in [store, &Store::open(store.path()).unwrap()] {
        for oid in kept {
            store.read(*oid, ObjectKind::Blob).unwrap();
        }
        assert_eq!(store.verify("refs/").unwrap(), []);
    }
    assert_clean(store);
}

pub(super) fn assert_gone(store: &Store, gone: &[Oid]) {
    for oid in gone {
        assert!(!store.has(*oid).unwrap(), "{oid}");
    }
}

#[test]
fn a_pack_that_nothing_needs_goes_without_any_room() {
    let store = sandbox();
    let (kept, _) = mixed(&store, 1, 60);
    let (_, gone) = mixed(&store, 2, 0);
    store.release_reserve().unwrap();
    assert!(give_back(&store, 0).unwrap());
    assert_eq!(store.packs().len(), 1);
    assert_gone(&store, &gone);
    assert_kept(&store, &kept);
}

#[test]
fn each_pack_makes_room_for_the_next() {
    let store = sandbox();
    store.release_reserve().unwrap();
    let (mut kept, mut gone) = (Vec::new(), Vec::new());
    for (seed, some) in [(1, 40), (2, 8), (3, 25)] {
        let (stays, goes) = mixed(&store, seed, some);
        kept.extend(stays);
        gone.extend(goes);
    }
    // For none of them there is room.
    assert!(!give_back(&store, 100_000).unwrap());
    assert!(gone.iter().all(|oid| store.has(*oid).unwrap()));
    assert_kept(&store, &kept);
    // For the smallest: what goes of it is enough for the next one, and so on.
    assert!(give_back(&store, 200_000).unwrap());
    assert_gone(&store, &gone);
    assert_kept(&store, &kept);
    let bytes = bytes_of_packs(&store);
    assert!(bytes < 80 * BLOB as u64, "{bytes}");
    assert!(give_back(&store, 0).unwrap(), "there is nothing left to do");
}

/// A pack of 6 MiB of which all but the first blob is held; all.
fn large(store: &Sandbox) -> Vec<Oid> {
    let large = noise(7, usize::try_from(RESERVE_BYTES + 2 * MIB).unwrap());
    let writer = store.writer();
    let blobs: Vec<Oid> = large
        .chunks(100_000)
        .map(|piece| writer.put(ObjectKind::Blob, piece).unwrap())
        .collect();
    writer.finish().unwrap();
    hold(store, "refs/x/large", &blobs[1..]);
    blobs
}

#[test]
fn what_has_no_room_stays_and_the_others_go() {
    let store = sandbox();
    store.release_reserve().unwrap();
    let all = large(&store);
    let (few, gone) = mixed(&store, 2, 5);
    assert!(!give_back(&store, 130_000).unwrap());
    assert_gone(&store, &gone);
    assert_kept(&store, &[all, few].concat());
}

#[test]
fn the_reserve_is_given_up_when_nothing_else_helps() {
    let store = sandbox();
    let (kept, gone) = mixed(&store, 1, 40);
    assert!(store.path().join("stepback/reserve").exists());
    assert!(give_back(&store, 0).unwrap());
    assert!(!store.path().join("stepback/reserve").exists());
    assert_gone(&store, &gone);
    assert_kept(&store, &kept);
    // Not for what it doesn't help with.
    store.restore_reserve().unwrap();
    let blobs = large(&store);
    assert!(!give_back(&store, 0).unwrap());
    assert!(store.path().join("stepback/reserve").exists());
    assert_kept(&store, &blobs);
}

/// Texts that differ little, in one pack that git made.
fn deltas(store: &Sandbox) -> Option<Vec<Oid>> {
    let mut text: Vec<String> = (0..4_000)
        .map(|i| format!("line {i}: {}", i * 7_919 % 10_007))
        .collect();
    let writer = store.writer();
    let mut blobs = Vec::new();
    for i in 0..60 {
        text[i * 53] = format!("edited {i}");
        blobs.push(writer.put(ObjectKind::Blob, text.join("\n").as_bytes()).unwrap());
    }
    writer.finish().unwrap();
    hold(store, "refs/x/all", &blobs);
    git(
        store.path(),
        &["repack", "-a", "-d", "-f", "-q", "--depth=50", "--window=50"],
        b"",
    )?;
    store.delete_ref("refs/x/all").unwrap();
    Some(blobs)
}

#[test]
fn deltas_stay_deltas_unless_their_base_goes() {
    let store = sandbox();
    store.release_reserve().unwrap();
    let Some(blobs) = deltas(&store) else {
        return;
    };
    let before = bytes_of_packs(&store);
    // Some in the middle go, with what they are the base of.
    let (gone, kept): (Vec<_>, Vec<_>) = (0..60).partition(|i| *i == 20 || *i == 41);
    let named = |which: Vec<usize>| which.into_iter().map(|i| blobs[i]).collect::<Vec<_>>();
    let (gone, kept) = (named(gone), named(kept));
    hold(&store, "refs/x/most", &kept);
    let texts: Vec<_> = kept
        .iter()
        .map(|oid| store.read(*oid, ObjectKind::Blob).unwrap())
        .collect();
    let done = give_back(&store, 100 * MIB).unwrap();
    let after = bytes_of_packs(&store);
    println!("{before} bytes became {after}");
    assert!(done);
    assert_gone(&store, &gone);
    assert!(after <= before, "{before} bytes became {after}");
    assert_kept(&store, &kept);
    for (oid, text) in kept.iter().zip(texts) {
        assert!(
            Store::open(store.path())
                .unwrap()
                .read(*oid, ObjectKind::Blob)
                .unwrap()
                == text
        );
    }
}

#[test]
fn a_damaged_object_stops_nothing_but_its_own_pack() {
    let store = sandbox();
    store.release_reserve().unwrap();
    let (kept, gone) = mixed(&store, 1, 30);
    let pack = store.packs()[0].clone();
    let (few, more) = mixed(&store, 2, 5);
    super::writable(&pack);
    let mut bytes = fs::read(&pack).unwrap();
    // All objects of the pack are alike: this is in the middle of one of them.
    let middle = bytes.len() / 2;
    bytes[middle - 20_000..middle]
        .iter_mut()
        .for_each(|byte| *byte ^= 0x55);
    fs::write(&pack, &bytes).unwrap();
    assert!(!give_back(&store, 100 * MIB).unwrap());
    assert!(pack.exists() && gone.iter().any(|oid| store.has(*oid).unwrap()));
    assert_gone(&store, &more);
    few.iter()
        .for_each(|oid| drop(store.read(*oid, ObjectKind::Blob).unwrap()));
    let readable = kept
        .iter()
        .filter(|oid| store.read(**oid, ObjectKind::Blob).is_ok());
    assert!(readable.count() > 20);
}

#[test]
fn with_a_broken_ref_nothing_goes() {
    let store = sandbox();
    let (kept, gone) = mixed(&store, 1, 30);
    fs::write(store.path().join("refs/x/broken"), "no object id\n").unwrap();
    assert!(give_back(&store, 100 * MIB).is_err());
    assert!(kept.iter().chain(&gone).all(|oid| store.has(*oid).unwrap()));
}

#[test]
fn halves_of_packs_go_when_nobody_needs_them() {
    let store = sandbox();
    let (kept, _) = mixed(&store, 1, 60);
    mixed(&store, 2, 0);
    let torn = store
        .packs()
        .into_iter()
        .max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    let torn = torn.unwrap();
    fs::remove_file(torn.with_extension("idx")).unwrap();
    assert!(give_back(&store, 0).unwrap());
    assert!(!torn.exists());
    assert_kept(&store, &kept);
    // This one's index may be put back.
    let pack = store.packs()[0].clone();
    let index = pack.with_extension("idx");
    fs::rename(&index, store.path().join("kept.idx")).unwrap();
    let _ = give_back(&Store::open(store.path()).unwrap(), 0);
    assert!(pack.exists());
    fs::rename(store.path().join("kept.idx"), &index).unwrap();
    assert_kept(&store, &kept);
}

#[test]
fn it_ends_when_somebody_wants_the_store() {
    let store = sandbox();
    let (kept, _) = mixed(&store, 1, 30);
    let alone = store.lock_exclusive().unwrap();
    let interrupt = Interrupt::default();
    interrupt.ask();
    let ended = store.give_back_by_pack(&|| Ok(u64::MAX), &interrupt);
    assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
    drop(alone);
    assert_kept(&store, &kept);
}
