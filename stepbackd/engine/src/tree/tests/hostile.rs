//! Trees that nobody wants, and that must not stop a capture.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use nix::sys::stat::{Mode, mkdirat};

use super::fixture::Fixture;
use crate::node::Reason;
use crate::path::TreePath;
use crate::root::DirHandle;
use crate::tree::{Tree, stored};

#[test]
fn links_are_never_followed() {
    let mut at = Fixture::new();
    symlink("/", at.path("root")).unwrap();
    symlink("..", at.path("up")).unwrap();
    symlink("loop", at.path("loop")).unwrap();
    for i in 0..12 {
        fs::create_dir(at.path(&format!("d{i}"))).unwrap();
        for j in 0..12 {
            symlink(format!("../d{j}"), at.path(&format!("d{i}/to{j}"))).unwrap();
        }
    }
    let snapshot = at.capture_all();
    assert_eq!(at.recorded(snapshot), at.disk());
    assert_eq!(at.watch.0.lock().unwrap().len(), 13);
}

#[test]
fn odd_names_are_names() {
    let mut at = Fixture::new();
    let long = "n".repeat(255);
    let names: [&[u8]; 9] = [
        b"new\nline",
        b"\xff\xfe",
        b"*",
        b":(top)x",
        b"-dash",
        b" space ",
        b"%41",
        long.as_bytes(),
        "日本".as_bytes(),
    ];
    for name in names {
        let path = at.root().join(std::ffi::OsStr::from_bytes(name));
        fs::write(&path, "v1\n").unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }
    let snapshot = at.capture_all();
    assert_eq!(at.recorded(snapshot), at.disk());
    at.fsck(snapshot);
}

#[test]
fn a_very_deep_tree_is_captured() {
    let mut at = Fixture::new();
    let mut dir = DirHandle::open_root(at.root()).unwrap();
    let levels = 1_500;
    for _ in 0..levels {
        mkdirat(dir.as_fd(), c"deep", Mode::S_IRWXU).unwrap();
        dir = dir.open_dir(b"deep").unwrap();
    }
    let file = nix::fcntl::openat(
        dir.as_fd(),
        c"f",
        nix::fcntl::OFlag::O_CREAT | nix::fcntl::OFlag::O_WRONLY,
        Mode::S_IRUSR,
    );
    drop(file.unwrap());
    let snapshot = at.capture_all();
    assert_eq!(at.tree.files(), 1);
    assert!(at.tree.not_captured().is_empty());
    let path = TreePath::new(&["deep"; 1_500].join("/").into_bytes()).unwrap();
    assert!(
        !at.update_paths(&[path.join(b"f"), path.clone()].into())
            .unwrap()
            .changed
    );
    assert!(
        !at.rules
            .as_ref()
            .unwrap()
            .ignores(&path.join(b"f"), false)
            .unwrap()
    );
    let node = stored::lookup(&at.store, snapshot, &at.common, &path)
        .unwrap()
        .unwrap()
        .0;
    let writer = at.store.writer();
    stored::write_paths(&writer, &[(path, node)].into(), &at.common).unwrap();
    drop(writer);
    let file = at.store.path().join("cache");
    at.tree.save(&file, "deep").unwrap();
    at.tree = Tree::load(&file, "deep").unwrap();
    assert!(!at.scan().changed);
    assert_eq!(at.persist(), snapshot);
    remove_deep(at.root());
}

#[test]
fn few_directories_are_open_at_once() {
    let mut at = Fixture::new();
    let mut dir = DirHandle::open_root(at.root()).unwrap();
    for _ in 0..600 {
        for name in [c"a", c"b", c"c"] {
            mkdirat(dir.as_fd(), name, Mode::S_IRWXU).unwrap();
        }
        dir = dir.open_dir(b"b").unwrap();
    }
    let open = || fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let before = open();
    let most = std::sync::atomic::AtomicUsize::new(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                most.fetch_max(open(), Ordering::Relaxed);
            }
        });
        let scanned = at.try_scan();
        done.store(true, Ordering::Relaxed);
        scanned.unwrap();
    });
    // Other tests of this process open some too.
    println!("{before} descriptors before, {most:?} at most");
    let mut dirs = 0;
    at.tree.for_each_dir(&mut |_, _| dirs += 1);
    assert_eq!(dirs, 1_801);
    remove_deep(at.root());
}

#[test]
fn too_deep_a_tree_is_named() {
    let mut at = Fixture::new();
    let mut dir = DirHandle::open_root(at.root()).unwrap();
    for _ in 0..2_100 {
        mkdirat(dir.as_fd(), c"d", Mode::S_IRWXU).unwrap();
        dir = dir.open_dir(b"d").unwrap();
    }
    at.capture_all();
    let left = at.tree.not_captured();
    assert_eq!((left.len(), left[0].reason), (1, Reason::Unreadable));
    drop(std::mem::take(&mut at.tree));
    remove_deep(at.root());
}

/// The standard library would recurse on this test's stack.
fn remove_deep(root: &std::path::Path) {
    assert!(
        std::process::Command::new("rm")
            .arg("-rf")
            .arg(root)
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn what_can_not_be_read_is_named() {
    if nix::unistd::geteuid().is_root() {
        println!("skipped: root can read everything");
        return;
    }
    let mut at = Fixture::new();
    at.write("f", "v1\n");
    at.write("locked", "x");
    at.write("shut/f", "x");
    at.chmod("locked", 0);
    at.chmod("shut", 0);
    at.capture_all();
    let left: Vec<_> = at
        .tree
        .not_captured()
        .into_iter()
        .map(|left| (left.path.to_string(), left.reason))
        .collect();
    assert_eq!(
        left,
        [
            ("locked".into(), Reason::Unreadable),
            ("shut".into(), Reason::Unreadable)
        ]
    );
    at.chmod("shut", 0o700);
    assert_eq!(at.tree.files(), 1);
    assert!(at.update(&["shut"]).changed);
    assert_eq!(at.tree.files(), 2);
}

#[test]
fn files_that_change_and_vanish_meanwhile() {
    let mut at = Fixture::new();
    at.write("still", "x");
    let stop = AtomicBool::new(false);
    let busy = at.path("busy");
    fs::create_dir(&busy).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut i = 0u64;
            while !stop.load(Ordering::Relaxed) {
                i += 1;
                let path = busy.join(format!("f{}", i % 7));
                let _ = match i % 5 {
                    0 => fs::remove_file(&path),
                    1 => fs::create_dir(&path),
                    2 => fs::remove_dir(&path),
                    _ => fs::write(&path, i.to_string().repeat(100)),
                };
            }
        });
        for _ in 0..40 {
            at.scan();
            let snapshot = at.persist();
            assert!(at.recorded(snapshot).contains_key(&b"still"[..]));
            at.fsck(snapshot);
        }
        stop.store(true, Ordering::Relaxed);
    });
    at.scan();
    let snapshot = at.persist();
    assert_eq!(at.recorded(snapshot), at.disk());
}

/// For information: times are printed, not judged.
#[test]
fn many_files() {
    let mut at = Fixture::new();
    let count = 20_000;
    fs::create_dir(at.path("flat")).unwrap();
    for i in 0..count {
        fs::write(at.path(&format!("flat/file{i}")), "").unwrap();
    }
    let timed = |what: &str, start: Instant| {
        println!("{what} of {count} files in one directory: {:?}", start.elapsed())
    };
    let start = Instant::now();
    at.scan();
    timed("first scan", start);
    let start = Instant::now();
    at.persist();
    timed("persist", start);
    at.age(&format!("flat/file{}", count - 1));
    at.scan();
    let start = Instant::now();
    assert!(!at.scan().changed);
    timed("second scan", start);
    let start = Instant::now();
    at.update(&["flat/file7"]);
    timed("update of one", start);
    let file = at.store.path().join("cache");
    at.tree.save(&file, "r").unwrap();
    let start = Instant::now();
    assert_eq!(Tree::load(&file, "r").unwrap().files(), count);
    timed("load", start);
}
