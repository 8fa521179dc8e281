use std::io::Read;
use std::os::unix::fs::PermissionsExt;

use rayon::prelude::*;

use super::super::{LARGE_BYTES, MODE_TREE, TreeEntry};
use super::{Sandbox, assert_clean, git, names_below, sandbox, text};
use crate::error::Error;
use crate::oid::{ObjectKind, Oid};

#[test]
fn a_new_store_is_a_bare_repository_that_git_takes() {
    let store = sandbox();
    assert_clean(&store);
    let Some(bare) = git(store.path(), &["rev-parse", "--is-bare-repository"], b"") else {
        return;
    };
    assert_eq!(bare, b"true\n");
    assert!(
        store
            .path()
            .join("objects/4b/825dc642cb6eb9a060e54bf8d69288fbee4904")
            .exists()
    );
    assert!(!store.path().join("hooks").exists());
    assert_eq!(
        store.path().join("stepback/reserve").metadata().unwrap().len(),
        4 << 20
    );
}

#[test]
fn modes_are_private_whatever_the_umask() {
    // A umask belongs to the process: so a child for each, with this very test.
    if std::env::var_os("STEPBACK_TEST_UMASK").is_none() {
        for umask in ["000", "002", "077", "0277"] {
            let script = format!(
                "umask {umask}; exec \"$0\" --exact store::tests::objects::modes_are_private_whatever_the_umask"
            );
            let mut shell = std::process::Command::new("sh");
            shell
                .args(["-c", &script])
                .arg(std::env::current_exe().unwrap())
                .env("STEPBACK_TEST_UMASK", umask);
            let output = shell.output().unwrap();
            assert!(
                output.status.success(),
                "umask {umask}: {}",
                String::from_utf8_lossy(&output.stdout)
            );
        }
        return;
    }
    let store = sandbox();
    store.packed_blobs(40);
    store.blob(b"x");
    store
        .set_ref("refs/a/b", Oid::EMPTY_TREE, super::super::Expected::Absent)
        .unwrap();
    store.root_dir("x-12345678").unwrap();
    let mut all = Vec::new();
    names_below(store.path(), &mut all);
    all.push(store.path().to_owned());
    for path in all.iter().filter(|path| !path.is_symlink()) {
        let mode = path.metadata().unwrap().permissions().mode() & 0o7777;
        let objects = path.starts_with(store.path().join("objects"));
        let wanted = if path.is_dir() {
            0o700
        } else if objects {
            0o400
        } else {
            0o600
        };
        assert_eq!(mode, wanted, "{}", path.display());
    }
}

#[test]
fn few_objects_are_loose_and_many_are_one_pack() {
    let store = sandbox();
    store.packed_blobs(32);
    assert_eq!(store.packs().len(), 0);
    let all = store.packed_blobs(1000);
    assert_eq!(store.packs().len(), 1);
    assert_clean(&store);
    for (i, oid) in (0..).zip(&all) {
        assert_eq!(store.read(*oid, ObjectKind::Blob).unwrap(), text(i));
        assert_eq!(store.blob_size(*oid).unwrap(), text(i).len() as u64);
        assert!(store.has(*oid).unwrap());
    }
    store.packed_blobs(1000);
    assert_eq!(store.packs().len(), 1, "nothing is written twice");
}

#[test]
fn threads_share_a_writer_and_no_object_is_twice_in_its_pack() {
    let store = sandbox();
    let writer = store.writer();
    (0..4000u32).into_par_iter().for_each(|i| {
        writer.put(ObjectKind::Blob, &text(i % 500)).unwrap();
    });
    writer.finish().unwrap();
    assert_eq!(store.packs().len(), 1);
    let Some(listed) = git(
        store.path(),
        &["verify-pack", "-v", store.packs()[0].to_str().unwrap()],
        b"",
    ) else {
        return;
    };
    let blobs = String::from_utf8(listed)
        .unwrap()
        .lines()
        .filter(|line| line.contains(" blob "))
        .count();
    assert_eq!(blobs, 500);
}

#[test]
fn a_large_batch_has_several_packs_and_every_object_is_in_one() {
    let store = sandbox();
    // 80 kB each and hardly compressible: 28 MB in all, so more than one pack takes.
    let body = |i: u32| -> Vec<u8> {
        (0..4_000)
            .flat_map(|k| Oid::of(ObjectKind::Blob, format!("{i} {k}").as_bytes()).0)
            .collect()
    };
    let writer = store.writer();
    // Twice each, and by whoever comes first.
    let all = (0..700u32).into_par_iter();
    let blobs: Vec<Oid> = all
        .map(|i| writer.put(ObjectKind::Blob, &body(i / 2)).unwrap())
        .collect();
    writer.finish().unwrap();
    let packs = store.packs();
    assert_eq!(packs.len(), rayon::current_num_threads().min(4), "{packs:?}");
    let mut listed = Vec::new();
    for pack in &packs {
        let index =
            super::super::pack_index::Index::open_checked(store.path(), &pack.with_extension("idx")).unwrap();
        listed.extend(index.names().unwrap());
    }
    listed.sort_unstable();
    let mut wanted = blobs.clone();
    wanted.sort_unstable();
    wanted.dedup();
    assert_eq!(listed, wanted, "each once");
    for (i, oid) in blobs.iter().enumerate() {
        assert_eq!(store.read(*oid, ObjectKind::Blob).unwrap(), body(i as u32 / 2));
    }
    assert_no_temporaries(&store);
    assert_clean(&store);
}

#[test]
fn what_is_loose_already_is_not_written_again_by_a_large_batch_unless_it_is_damaged() {
    let store = sandbox();
    let (good, damaged) = (store.blob(&text(1_500)), store.blob(&text(1_501)));
    std::fs::write(store.loose_file(damaged), b"torn").unwrap();
    let anew = super::super::Store::open(store.path()).unwrap();
    let writer = anew.writer();
    for i in 0..2_000 {
        writer.put(ObjectKind::Blob, &text(i)).unwrap();
    }
    writer.finish().unwrap();
    let pack = store.packs().remove(0);
    let index =
        super::super::pack_index::Index::open_checked(store.path(), &pack.with_extension("idx")).unwrap();
    let packed = index.names().unwrap();
    assert_eq!(packed.len(), 1_998);
    assert!(!packed.contains(&good));
    assert_eq!(anew.read(damaged, ObjectKind::Blob).unwrap(), text(1_501));
    assert_clean(&store);
}

#[test]
fn another_store_on_the_same_directory_sees_new_packs() {
    let store = sandbox();
    let other = super::Store::open(store.path()).unwrap();
    let blobs = store.packed_blobs(50);
    assert_eq!(other.read(blobs[7], ObjectKind::Blob).unwrap(), text(7));
    let again = store.packed_blobs(90);
    assert!(other.has(again[80]).unwrap());
}

#[test]
fn a_large_blob_is_streamed_both_ways() {
    let store = sandbox();
    let size = LARGE_BYTES * 2 + 12345;
    let mut body = Vec::new();
    Noise(7).take(size).read_to_end(&mut body).unwrap();
    let writer = store.writer();
    let oid = writer
        .put_stream(size, &mut Noise(7).take(size))
        .unwrap()
        .unwrap();
    assert_eq!(writer.put(ObjectKind::Blob, &body).unwrap(), oid);
    writer.finish().unwrap();
    assert_eq!(oid, Oid::of(ObjectKind::Blob, &body));
    let mut back = Vec::new();
    assert_eq!(store.copy_blob(oid, &mut back).unwrap(), size);
    assert!(back == body);
    assert_eq!(store.blob_size(oid).unwrap(), size);
    assert_clean(&store);
}

#[test]
fn a_stream_of_another_length_is_no_object() {
    let store = sandbox();
    for size in [0, 10, LARGE_BYTES + 1] {
        let writer = store.writer();
        let mut wrong = [size + 1, size.saturating_sub(1)]
            .into_iter()
            .filter(|len| *len != size);
        assert!(wrong.all(|len| {
            writer
                .put_stream(size, &mut Noise(1).take(len))
                .unwrap()
                .is_none()
        }));
        writer.finish().unwrap();
    }
    assert_no_temporaries(&store);
}

#[test]
fn an_error_of_the_reader_comes_back_and_spoils_nothing() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::from_raw_os_error(5))
        }
    }
    let store = sandbox();
    let writer = store.writer();
    for size in [10, LARGE_BYTES + 1] {
        let error = writer.put_stream(size, &mut Broken).unwrap_err();
        assert!(matches!(error, Error::Io { path, .. } if path.as_os_str().is_empty()));
    }
    writer.finish().unwrap();
    assert_no_temporaries(&store);
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let store = sandbox();
    let mut before = Vec::new();
    names_below(store.path(), &mut before);
    let writer = store.writer();
    for i in 0..100 {
        writer.put(ObjectKind::Blob, &text(i)).unwrap();
    }
    writer
        .put_stream(LARGE_BYTES + 1, &mut Noise(3).take(LARGE_BYTES + 1))
        .unwrap()
        .unwrap();
    drop(writer);
    let mut after = Vec::new();
    names_below(store.path(), &mut after);
    assert_eq!(before.len(), after.len());
}

#[test]
fn many_large_blobs_and_small_ones_in_one_batch() {
    let store = sandbox();
    let writer = store.writer();
    let blobs: Vec<Oid> = (0..40u8)
        .map(|i| {
            writer
                .put_stream(LARGE_BYTES + 1, &mut std::io::repeat(i).take(LARGE_BYTES + 1))
                .unwrap()
                .unwrap()
        })
        .collect();
    for i in 0..40 {
        writer.put(ObjectKind::Blob, &text(i)).unwrap();
    }
    writer.finish().unwrap();
    assert_eq!(store.packs().len(), 1);
    assert!(blobs.iter().all(|oid| store.has(*oid).unwrap()));
    assert_clean(&store);
}

#[test]
fn a_commit_goes_both_ways() {
    let store = sandbox();
    let blob = store.blob(b"v1\n");
    let entries = [
        TreeEntry {
            mode: 0o100_644,
            name: b"a".to_vec(),
            oid: blob,
        },
        TreeEntry {
            mode: MODE_TREE,
            name: b"empty".to_vec(),
            oid: Oid::EMPTY_TREE,
        },
    ];
    let oid = store.commit_of(&entries);
    store
        .set_ref(
            "refs/checkpoints/x-1/watch/1",
            oid,
            super::super::Expected::Absent,
        )
        .unwrap();
    let commit = store.read_commit(oid).unwrap();
    assert_eq!(commit.message, "a label\n\n{\"n\":1}\n");
    assert_eq!(store.read_tree(commit.tree).unwrap(), entries);
    assert_clean(&store);
    assert_eq!(store.verify("refs/").unwrap(), []);
    let Some(shown) = git(
        store.path(),
        &[
            "log",
            "--format=%an %ae %at %P|%s",
            "refs/checkpoints/x-1/watch/1",
        ],
        b"",
    ) else {
        return;
    };
    assert_eq!(shown, b"stepback stepback@localhost 1700000000 |a label\n");
}

#[test]
fn stores_of_several_roots_open_and_write_at_once() {
    let store = sandbox();
    let place = store.path();
    std::thread::scope(|scope| {
        for root in 0..4u32 {
            scope.spawn(move || {
                for round in 0..25u32 {
                    let store = super::Store::open(place).unwrap();
                    let writer = store.writer();
                    // Mostly what the others write too, some loose and some in packs.
                    let mut entries = Vec::new();
                    for i in 0..(round * 7 + root) % 60 + 1 {
                        let oid = writer.put(ObjectKind::Blob, &text(round + i)).unwrap();
                        entries.push(TreeEntry {
                            mode: 0o100_644,
                            name: i.to_string().into_bytes(),
                            oid,
                        });
                    }
                    let tree = super::super::write_tree(&writer, &entries).unwrap();
                    let oid = writer
                        .commit(tree, "x\n", crate::time::Time(i64::from(root)))
                        .unwrap();
                    writer.finish().unwrap();
                    let name = format!("refs/c/r{root}/{round}");
                    store.set_ref(&name, oid, super::super::Expected::Absent).unwrap();
                    if round % 8 == 7 {
                        store.pack_refs().unwrap();
                        store.delete_ref(&name).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(store.refs("refs/c/").unwrap().len(), 4 * 22);
    assert_eq!(store.verify("refs/").unwrap(), []);
    assert_no_temporaries(&store);
    assert_clean(&store);
}

#[test]
fn objects_survive_a_repack_by_git() {
    let store = sandbox();
    let blobs = store.packed_blobs(200);
    let entries: Vec<TreeEntry> = (0..)
        .zip(&blobs)
        .map(|(i, oid)| TreeEntry {
            mode: 0o100_644,
            name: format!("f{i}").into_bytes(),
            oid: *oid,
        })
        .collect();
    let oid = store.commit_of(&entries);
    store
        .set_ref("refs/x", oid, super::super::Expected::Absent)
        .unwrap();
    if git(store.path(), &["repack", "-adq"], b"").is_none() {
        return;
    }
    assert!(
        (0..)
            .zip(&blobs)
            .all(|(i, oid)| store.read(*oid, ObjectKind::Blob).unwrap() == text(i))
    );
    let fresh = super::Store::open(store.path()).unwrap();
    assert!(
        (0..)
            .zip(&blobs)
            .all(|(i, oid)| fresh.read(*oid, ObjectKind::Blob).unwrap() == text(i))
    );
    assert_eq!(fresh.verify("refs/").unwrap(), []);
}

fn assert_no_temporaries(store: &Sandbox) {
    let mut all = Vec::new();
    names_below(store.path(), &mut all);
    assert!(
        !all.iter()
            .any(|path| path.file_name().unwrap().as_encoded_bytes().starts_with(b"tmp_"))
    );
}

/// Bytes that don't compress.
struct Noise(u64);

impl Read for Noise {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        // A step for each byte, so that the pieces that are asked for make no difference.
        for byte in into.iter_mut() {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *byte = self.0.to_be_bytes()[0];
        }
        Ok(into.len())
    }
}
