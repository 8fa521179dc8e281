//! Large blobs, loose and in packs: never whole in memory, never relied on unchecked.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::pack::{PackWriter, Packed};
use super::super::{Expected, Interrupt, Maintained, Thoroughness, TreeEntry, deflate, packed_blob};
use super::{LARGE_BYTES, Sandbox, Store, assert_clean, git, sandbox, text, writable};
use crate::error::{Error, Result};
use crate::oid::{ObjectKind, Oid};

fn large() -> Vec<u8> {
    let size = usize::try_from(LARGE_BYTES).unwrap() + 300_000;
    let mut word = 1u64;
    let bytes = std::iter::repeat_with(|| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        word.to_be_bytes()[0]
    });
    bytes.take(size).collect()
}

/// A sink that is told how large the pieces are.
#[derive(Default)]
struct Pieces {
    bytes: Vec<u8>,
    largest: usize,
}

impl std::io::Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        self.largest = self.largest.max(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Puts these into one pack, as git may have done; the pack.
fn pack(store: &Store, objects: &[(Oid, &[u8])]) -> PathBuf {
    let dir = store.path().join("objects/pack");
    let mut pack = PackWriter::new(&dir).unwrap();
    for (oid, body) in objects {
        pack.append(&Packed::new(*oid, ObjectKind::Blob, body).unwrap())
            .unwrap();
    }
    let sealed = pack.seal(&dir, false).unwrap();
    let path = dir.join(sealed.name()).with_extension("pack");
    sealed.publish(&dir).unwrap();
    for file in [path.clone(), path.with_extension("idx")] {
        writable(&file);
    }
    path
}

fn blob(body: &[u8]) -> Oid {
    Oid::of(ObjectKind::Blob, body)
}

/// A store of which a pack holds some small blobs and this large one.
fn packed(body: &[u8]) -> (Sandbox, PathBuf) {
    let store = sandbox();
    let small: Vec<Vec<u8>> = (0..300).map(text).collect();
    let mut objects: Vec<_> = small.iter().map(|body| (blob(body), body.as_slice())).collect();
    objects.sort();
    objects.dedup();
    objects.insert(objects.len() / 2, (blob(body), body));
    let pack = pack(&store, &objects);
    (store, pack)
}

fn copy(store: &Store, oid: Oid) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let size = store.copy_blob(oid, &mut bytes)?;
    assert_eq!(size, bytes.len() as u64);
    Ok(bytes)
}

#[test]
fn a_large_packed_blob_is_handed_on_in_pieces() {
    let body = large();
    let oid = blob(&body);
    let (store, _) = packed(&body);
    let mut pieces = Pieces::default();
    assert_eq!(store.copy_blob(oid, &mut pieces).unwrap(), body.len() as u64);
    assert!(pieces.bytes == body);
    assert!(pieces.largest <= 64 << 10, "{} at once", pieces.largest);
    assert!(store.has(oid).unwrap());
    assert_eq!(store.blob_size(oid).unwrap(), body.len() as u64);
    assert!(store.read(oid, ObjectKind::Blob).unwrap() == body);
    assert_eq!(copy(&store, blob(&text(40))).unwrap(), text(40));
    // The caller's error is the caller's.
    let full = store.copy_blob(oid, &mut &mut [0; 100][..]);
    assert!(
        matches!(&full, Err(Error::Io { path, .. }) if path == Path::new("")),
        "{full:?}"
    );
}

#[test]
fn a_damaged_pack_of_a_large_blob_is_an_error_wherever_it_is_damaged() {
    let body = large();
    let oid = blob(&body);
    let (store, pack) = packed(&body);
    let index = pack.with_extension("idx");
    let (good, good_index) = (fs::read(&pack).unwrap(), fs::read(&index).unwrap());
    let all = u32::from_be_bytes(good_index[1028..1032].try_into().unwrap()) as usize;
    let at = good_index[1032..]
        .chunks(20)
        .position(|name| name == oid.0)
        .unwrap();
    let offsets = 1032 + all * 24;
    let entry = &good_index[offsets + at * 4..][..4];
    let entry = u32::from_be_bytes(entry.try_into().unwrap()) as usize;
    let check = |what: &str| {
        let fresh = Store::open(store.path()).unwrap();
        match copy(&fresh, oid) {
            Err(Error::Damaged { what: said, .. }) => println!("{what}: {said}"),
            other => panic!("{what}: {:?}", other.map(|bytes| bytes.len())),
        }
        let there = fresh.has(oid);
        assert!(matches!(there, Ok(false)), "{what}: {there:?}");
    };
    let in_pack = |what: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bad = good.clone();
        change(&mut bad);
        fs::write(&pack, bad).unwrap();
        check(what);
        fs::write(&pack, &good).unwrap();
    };
    let size = body.len();
    // Four bytes of kind and size, two of zlib, the contents as they are.
    for at in [4, 5, 20, size / 2, size - 1] {
        in_pack("a flipped bit", &|bytes| bytes[entry + at] ^= 0x10);
    }
    for bit in 0..8 {
        in_pack("its kind and size", &|bytes| bytes[entry] ^= 1 << bit);
        in_pack("its size, or how long that is", &|bytes| {
            bytes[entry + 3] ^= 1 << bit;
        });
    }
    in_pack("a size without an end", &|bytes| {
        bytes[entry..entry + 100].fill(0xbf)
    });
    for kept in [entry, entry + 2, entry + 5, entry + 100_000, entry + size] {
        in_pack("truncated", &|bytes| bytes.truncate(kept));
    }
    let in_index = |what: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bad = good_index.clone();
        change(&mut bad);
        fs::write(&index, bad).unwrap();
        check(what);
        fs::write(&index, &good_index).unwrap();
    };
    for (what, offset) in [
        ("another place", 12u32),
        ("a place in the middle", u32::try_from(entry + 5000).unwrap()),
        ("behind the end", 0x7fff_0000),
        ("in the checksum", u32::try_from(good.len() - 10).unwrap()),
        ("in the header", 3),
        ("a long one that isn't there", 0x8000_0000),
        ("a far long one that isn't there", 0xffff_ffff),
    ] {
        in_index(what, &|bytes| {
            bytes[offsets + at * 4..][..4].copy_from_slice(&offset.to_be_bytes());
        });
    }
    in_index("truncated", &|bytes| bytes.truncate(1032 + all * 20));
    in_index("another name", &|bytes| bytes[1032 + at * 20 + 19] ^= 1);
    in_index("too many", &|bytes| bytes[1028] = 0x7f);
    fs::remove_file(&pack).unwrap();
    check("no pack");
    fs::write(&pack, &good).unwrap();
    let fresh = Store::open(store.path()).unwrap();
    assert!(copy(&fresh, oid).unwrap() == body);
}

#[test]
fn an_index_with_wrong_counts_is_not_believed() {
    let body = large();
    let oid = blob(&body);
    let (store, pack) = packed(&body);
    let index = pack.with_extension("idx");
    let good = fs::read(&index).unwrap();
    assert!(packed_blob::open(store.path(), oid).is_ok());
    for (at, bytes) in [
        (8 + 4 * usize::from(oid.0[0]), [0xff; 4]),
        (8 + 4 * usize::from(oid.0[0]), [0; 4]),
        (8 + 4 * usize::from(oid.0[0] - 1), [0xff; 4]),
        (1028, [0xff; 4]),
        (0, [0; 4]),
    ] {
        let mut bad = good.clone();
        bad[at..at + 4].copy_from_slice(&bytes);
        fs::write(&index, bad).unwrap();
        assert!(packed_blob::open(store.path(), oid).is_err(), "{at}");
    }
}

#[test]
fn a_long_offset_is_followed() {
    let body = large();
    let oid = blob(&body);
    let (store, pack) = packed(&body);
    let index = pack.with_extension("idx");
    let mut bytes = fs::read(&index).unwrap();
    let all = u32::from_be_bytes(bytes[1028..1032].try_into().unwrap()) as usize;
    let at = bytes[1032..].chunks(20).position(|name| name == oid.0).unwrap();
    let place = 1032 + all * 24 + at * 4;
    let offset = u64::from(u32::from_be_bytes(bytes[place..place + 4].try_into().unwrap()));
    bytes[place..place + 4].copy_from_slice(&0x8000_0000u32.to_be_bytes());
    bytes.splice(1032 + all * 28..1032 + all * 28, offset.to_be_bytes());
    fs::write(&index, bytes).unwrap();
    let fresh = Store::open(store.path()).unwrap();
    assert!(copy(&fresh, oid).unwrap() == body);
}

#[test]
fn a_pack_that_came_and_went_since_the_store_was_opened_holds_nothing() {
    let sandbox = sandbox();
    let (first, second) = (text(1), text(2));
    pack(&sandbox, &[(blob(&first), &first)]);
    let store = Store::open(sandbox.path()).unwrap();
    let late = pack(&sandbox, &[(blob(&second), &second)]);
    assert_eq!(store.read(blob(&second), ObjectKind::Blob).unwrap(), second);
    for file in [late.with_extension("idx"), late] {
        fs::remove_file(file).unwrap();
    }
    let writer = store.writer();
    writer.put(ObjectKind::Blob, &second).unwrap();
    writer.finish().unwrap();
    let fresh = Store::open(sandbox.path()).unwrap();
    assert_eq!(fresh.read(blob(&second), ObjectKind::Blob).unwrap(), second);
}

#[test]
fn where_the_loose_form_is_damaged_the_packed_one_is_handed_on() {
    for body in [large(), text(90)] {
        let store = sandbox();
        let oid = store.blob(&body);
        let file = store.loose_file(oid);
        pack(&store, &[(oid, &body)]);
        let good = fs::read(&file).unwrap();
        let mut bad = good.clone();
        let middle = bad.len() / 2;
        bad[middle] ^= 0x10;
        for bad in [
            bad,
            good[..good.len() - 3].to_vec(),
            deflate::loose(ObjectKind::Blob, b"other").unwrap(),
        ] {
            fs::write(&file, bad).unwrap();
            let fresh = Store::open(store.path()).unwrap();
            assert!(copy(&fresh, oid).unwrap() == body);
        }
    }
}

/// Commits, under `refs/x`, a large blob and a small one; the large one.
fn commit_large(store: &Sandbox, body: &[u8]) -> Oid {
    let large = store.blob(body);
    let entries = [
        TreeEntry::blob("large", large),
        TreeEntry::blob("small", store.blob(b"small\n")),
    ];
    let commit = store.commit_of(&entries);
    store.set_ref("refs/x", commit, Expected::Absent).unwrap();
    large
}

fn maintain(store: &Store, by_git: bool, how: Thoroughness) {
    let path = std::env::var_os("PATH");
    let git = std::env::split_paths(path.as_deref().unwrap_or_default()).map(|dir| dir.join("git"));
    let git = git.filter(|_| by_git).find(|git| git.is_file());
    let done = store.maintain(git.as_deref(), path.as_deref(), how, &Interrupt::default());
    assert!(matches!(done, Ok(Maintained::Done { .. })), "{done:?}");
}

#[test]
fn maintenance_leaves_large_blobs_loose_and_removes_those_that_nothing_needs() {
    // Zeros, whose file is small: what counts is the size of the contents.
    let zeros = vec![0; usize::try_from(LARGE_BYTES).unwrap() + 1];
    for (by_git, body) in [(true, large()), (true, zeros.clone()), (false, zeros)] {
        for how in [Thoroughness::Fold, Thoroughness::Full] {
            let store = sandbox();
            let oid = commit_large(&store, &body);
            let unneeded = store.blob(&[&body[..], b"!"].concat());
            maintain(&store, by_git, how);
            assert!(store.loose_file(oid).exists(), "{how:?}, by git: {by_git}");
            assert!(!store.loose_file(unneeded).exists());
            assert_eq!(store.packs().len(), 1, "the others are packed");
            assert!(!store.packs.lists(oid));
            assert!(!store.path().join("stepback/large").exists());
            assert_eq!(store.verify("refs/").unwrap(), []);
            assert_clean(&store);
            // Once more, with nothing to do.
            maintain(&store, by_git, how);
            assert!(copy(&store, oid).unwrap() == body);
            assert_clean(&store);
        }
    }
}

#[test]
fn a_large_blob_that_is_packed_already_stays_packed_when_it_is_needed() {
    let body = large();
    for by_git in [true, false] {
        let store = sandbox();
        let oid = commit_large(&store, &body);
        fs::remove_file(store.loose_file(oid)).unwrap();
        let unneeded = [&body[..], b"!"].concat();
        pack(&store, &[(oid, &body), (blob(&unneeded), &unneeded)]);
        // What a crash may have left.
        fs::create_dir_all(store.path().join("stepback/large/ab")).unwrap();
        maintain(&store, by_git, Thoroughness::Full);
        assert!(store.packs.lists(oid));
        assert!(!store.has(blob(&unneeded)).unwrap(), "by git: {by_git}");
        assert!(copy(&store, oid).unwrap() == body);
        assert_eq!(store.verify("refs/").unwrap(), []);
        assert_clean(&store);
    }
}

#[test]
fn git_makes_no_differences_of_large_blobs() {
    let body = large();
    let store = sandbox();
    let oids = [body.clone(), [&body[..], b"more"].concat()].map(|body| store.blob(&body));
    let entries = oids.map(|oid| TreeEntry::blob(&oid.to_string(), oid));
    let commit = store.commit_of(&entries);
    store.set_ref("refs/x", commit, Expected::Absent).unwrap();
    // By the store's own settings.
    if git(store.path(), &["repack", "-adfq"], b"").is_none() {
        return;
    }
    let fresh = Store::open(store.path()).unwrap();
    for oid in oids {
        let mut pieces = Pieces::default();
        fresh.copy_blob(oid, &mut pieces).unwrap();
        assert!(pieces.largest <= 64 << 10, "{} at once", pieces.largest);
    }
}
