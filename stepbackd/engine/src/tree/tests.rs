//! The tree against real directories: what is recorded must be what is there.

mod again;
mod fixture;
mod hostile;
mod incremental;
mod rules;

use std::fs;
use std::os::unix::fs::symlink;

use fixture::Fixture;

use super::*;
use crate::node::{Kind, Reason};

#[test]
fn everything_comes_back_as_it_is() {
    let mut at = Fixture::new();
    at.write("a", "v1\n");
    at.write("run.sh", "x");
    at.chmod("run.sh", 0o755);
    at.write("k.pem", "secret");
    at.chmod("k.pem", 0o600);
    at.write("empty", "");
    at.write("d/e/f", "deep");
    fs::create_dir_all(at.path("void/below")).unwrap();
    at.chmod("void", 0o700);
    symlink("/nowhere", at.path("link")).unwrap();
    nix::unistd::mkfifo(&at.path("pipe"), nix::sys::stat::Mode::from_bits_truncate(0o640)).unwrap();
    at.chmod("pipe", 0o640);
    let snapshot = at.capture_all();
    assert_eq!(at.recorded(snapshot), at.disk());
    assert_eq!(at.tree.files(), 7);
    let path = |text: &str| TreePath::new(text.as_bytes()).unwrap();
    for text in ["a", "k.pem", "void", "void/below", "link", "pipe", "d/e/f", "d"] {
        let found = stored::lookup(&at.store, snapshot, &at.common, &path(text)).unwrap();
        assert_eq!(found.map(|(node, _)| node), at.tree.node(&path(text)), "{text}");
    }
    assert_eq!(
        stored::lookup(&at.store, snapshot, &at.common, &path("a/b")).unwrap(),
        None
    );
    assert_eq!(
        stored::lookup(&at.store, snapshot, &at.common, &path("no")).unwrap(),
        None
    );
    at.fsck(snapshot);
}

#[test]
fn plain_trees_are_those_of_git() {
    let mut at = Fixture::new();
    at.write("a", "v1\n");
    at.write("a.b/c", "x");
    at.write("a0/c", "x");
    let ours = at.capture_all();
    assert_eq!(ours.side, crate::oid::Oid::EMPTY_TREE);
    let git = |arguments: &[&str]| {
        let out = std::process::Command::new("git")
            .arg("-C")
            .arg(at.root())
            .args(arguments)
            .output()
            .unwrap();
        assert!(out.status.success(), "{out:?}");
        String::from_utf8(out.stdout).unwrap()
    };
    git(&["init", "-q"]);
    git(&["add", "-A"]);
    assert_eq!(git(&["write-tree"]).trim(), ours.tree.to_string());
}

#[test]
fn attributes_are_captured_where_there_are_any() {
    let mut at = Fixture::new();
    at.write("f", "x");
    fs::create_dir(at.path("d")).unwrap();
    if xattr::set(at.path("f"), "user.note", b"one two").is_err() {
        println!("skipped: no attributes on this file system");
        return;
    }
    xattr::set(at.path("d"), "user.dir", b"\xff\x00").unwrap();
    let first = at.capture_all();
    assert_eq!(at.recorded(first), at.disk());
    xattr::set(at.path("f"), "user.note", b"three").unwrap();
    assert!(at.update(&["f"]).changed);
    let second = at.persist();
    assert_ne!(first.side, second.side);
    assert_eq!(first.tree, second.tree);
    xattr::remove(at.path("f"), "user.note").unwrap();
    xattr::remove(at.path("d"), "user.dir").unwrap();
    assert!(at.update(&["f", "d"]).changed);
    assert_eq!(at.persist().side, crate::oid::Oid::EMPTY_TREE);
}

#[test]
fn an_edit_with_size_and_mtime_put_back_is_seen() {
    let mut at = Fixture::new();
    at.write("u", "before\n");
    at.age("u");
    at.capture_all();
    let before = fs::metadata(at.path("u")).unwrap().modified().unwrap();
    at.write("u", "after!\n");
    fs::File::options()
        .write(true)
        .open(at.path("u"))
        .unwrap()
        .set_modified(before)
        .unwrap();
    assert!(at.scan().changed);
    let snapshot = at.persist();
    assert_eq!(at.recorded(snapshot), at.disk());
}

#[test]
fn a_second_scan_reads_nothing_and_changes_nothing() {
    let mut at = Fixture::new();
    for i in 0..50 {
        at.write(&format!("d{}/f{i}", i % 5), "x");
    }
    let first = at.capture_all();
    assert!(!at.scan().changed);
    assert_eq!(at.persist(), first);
}

#[test]
fn large_files_and_special_ones_are_named() {
    let mut at = Fixture::new();
    at.max_file_size = 10;
    at.write("big", "12345678901");
    at.write("d/small", "1234567890");
    let _socket = std::os::unix::net::UnixListener::bind(at.path("d/s.sock")).unwrap();
    let snapshot = at.capture_all();
    let left: Vec<_> = at
        .tree
        .not_captured()
        .into_iter()
        .map(|left| (left.path.to_string(), left.reason))
        .collect();
    assert_eq!(
        left,
        [
            ("big".into(), Reason::TooLarge),
            ("d/s.sock".into(), Reason::Special)
        ]
    );
    assert_eq!(at.recorded(snapshot).len(), 3);
    at.write("big", "1");
    assert!(at.update(&["big"]).changed);
    assert_eq!(at.tree.not_captured().len(), 1);
    at.write("big", "12345678901");
    assert!(at.update(&["big"]).changed, "it leaves the tree");
    at.write("big", "123456789012");
    assert!(!at.update(&["big"]).changed, "it wasn't in the tree");
}

#[test]
fn objects_of_a_writer_that_did_not_finish_are_written_again() {
    let mut at = Fixture::new();
    at.write("a", "v1\n");
    at.write("d/b", "v1\n");
    at.age("a");
    at.age("d/b");
    {
        let store = std::sync::Arc::clone(&at.store);
        let lost = store.writer();
        at.scan_into(&lost);
        at.tree.persist(&lost, &at.common).unwrap();
    }
    let snapshot = at.capture_all();
    assert_eq!(at.recorded(snapshot), at.disk());
    at.fsck(snapshot);
}

#[test]
fn a_file_takes_about_a_hundred_bytes() {
    // With its name (about 16 bytes with the allocator's share).
    assert!(size_of::<dir::Entry>() <= 88, "{}", size_of::<dir::Entry>());
}

#[test]
fn files_too_large_to_hold_are_streamed() {
    let mut at = Fixture::new();
    at.write("large", &"0123456789abcdef".repeat(5 << 16));
    let snapshot = at.capture_all();
    assert!(at.recorded(snapshot) == at.disk());
    at.fsck(snapshot);
}

#[test]
fn common_modes_are_those_of_most() {
    let mut at = Fixture::new();
    for (name, mode) in [("a", 0o664), ("b", 0o664), ("c", 0o600), ("x", 0o775)] {
        at.write(&format!("d/{name}"), "");
        at.chmod(&format!("d/{name}"), mode);
    }
    at.chmod("d", 0o775);
    at.chmod("", 0o775);
    at.scan();
    let common = at.tree.common_modes();
    assert_eq!(
        (common.file.bits(), common.exec.bits(), common.dir.bits()),
        (0o664, 0o775, 0o775)
    );
    at.common = common;
    let snapshot = at.persist();
    assert_eq!(at.recorded(snapshot), at.disk());
    assert_eq!(snapshot.side, at.store_tree_of(&[("m", "f 0600 c\n")], "d"));
}

#[test]
fn loose_paths_can_be_written() {
    let at = Fixture::new();
    let writer = at.store.writer();
    let oid = writer.put(crate::oid::ObjectKind::Blob, b"x").unwrap();
    let node = |kind, perm| Node::plain(kind, Perm::of_mode(perm));
    let entries: BTreeMap<_, _> = [
        ("a/b/c", node(Kind::File(oid), 0o600)),
        ("a", node(Kind::Dir, 0o700)),
        ("a-b", node(Kind::Fifo, 0o644)),
        ("e", node(Kind::Dir, 0o755)),
    ]
    .into_iter()
    .map(|(path, node)| (TreePath::new(path.as_bytes()).unwrap(), node))
    .collect();
    let snapshot = stored::write_paths(&writer, &entries, &at.common).unwrap();
    writer.finish().unwrap();
    for (path, node) in &entries {
        let found = stored::lookup(&at.store, snapshot, &at.common, path)
            .unwrap()
            .unwrap();
        assert_eq!(found.0, *node, "{path}");
    }
    assert_eq!(at.recorded(snapshot).len(), 6);
}

#[test]
fn the_cache_comes_back_or_is_refused() {
    let mut at = Fixture::new();
    at.write("d/a", "x");
    at.chmod("d/a", 0o600);
    at.age("d/a");
    let snapshot = at.capture_all();
    let file = at.store.path().join("cache");
    at.tree.save(&file, "root-1").unwrap();
    assert!(Tree::load(&file, "root-2").is_none());
    at.tree = Tree::load(&file, "root-1").unwrap();
    assert_eq!(at.tree.files(), 1);
    assert!(!at.update(&["d/a"]).changed, "what is cached is still true");
    assert_eq!(at.persist(), snapshot);
    let bytes = fs::read(&file).unwrap();
    for damage in [bytes.len() - 1, 30, bytes.len() / 2] {
        let mut damaged = bytes.clone();
        damaged[damage] ^= 1;
        fs::write(&file, &damaged).unwrap();
        assert!(Tree::load(&file, "root-1").is_none());
        fs::write(&file, &bytes[..damage]).unwrap();
        assert!(Tree::load(&file, "root-1").is_none());
    }
}

#[test]
fn cancelling_keeps_what_is_known() {
    let mut at = Fixture::new();
    at.write("d/a", "x");
    let first = at.capture_all();
    at.write("d/b", "x");
    at.progress.cancel();
    let store = std::sync::Arc::clone(&at.store);
    let writer = store.writer();
    assert!(matches!(at.try_scan_into(&writer), Err(crate::Error::Cancelled)));
    drop(writer);
    assert_eq!(at.tree.files(), 1);
    at.progress = Progress::default();
    assert!(at.update(&[]).changed, "the next look is at everything");
    let second = at.persist();
    assert_ne!(first, second);
    assert_eq!(at.recorded(second), at.disk());
}
