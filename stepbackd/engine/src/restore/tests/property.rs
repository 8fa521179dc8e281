//! Random trees and edits.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use proptest::prelude::*;

use super::support::*;
use crate::node::{Kind, Node};
use crate::path::TreePath;

#[derive(Debug, Clone)]
enum Edit {
    Write(TreePath, u8, u8),
    Dir(TreePath, u8),
    Link(TreePath, u8),
    Fifo(TreePath),
    Remove(TreePath),
    Chmod(TreePath, u8),
    Exchange(TreePath, TreePath),
}

const MODES: [u32; 8] = [0o644, 0o755, 0o600, 0o664, 0o400, 0o777, 0o4755, 0o2770];

fn paths() -> impl Strategy<Value = TreePath> {
    let name = prop_oneof![
        Just(b"a".to_vec()),
        Just(b"b".to_vec()),
        Just(b"a!".to_vec()),
        Just(b"\xff".to_vec()),
        Just("n".repeat(255).into_bytes()),
    ];
    prop::collection::vec(name, 1..4).prop_map(|parts| TreePath::new(&parts.join(&b'/')).unwrap())
}

fn edits(max: usize) -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        6 => (paths(), any::<u8>(), any::<u8>()).prop_map(|(path, bytes, mode)| Edit::Write(path, bytes, mode)),
        2 => (paths(), any::<u8>()).prop_map(|(path, mode)| Edit::Dir(path, mode)),
        1 => (paths(), any::<u8>()).prop_map(|(path, to)| Edit::Link(path, to)),
        1 => paths().prop_map(Edit::Fifo),
        3 => paths().prop_map(Edit::Remove),
        2 => (paths(), any::<u8>()).prop_map(|(path, mode)| Edit::Chmod(path, mode)),
        1 => (paths(), paths()).prop_map(|(a, b)| Edit::Exchange(a, b)),
    ];
    prop::collection::vec(edit, 0..max)
}

fn full(bench: &Bench, path: &TreePath) -> PathBuf {
    bench.root.join(std::ffi::OsStr::from_bytes(path.as_bytes()))
}

fn remove(file: &std::path::Path) {
    let Ok(stat) = fs::symlink_metadata(file) else {
        return;
    };
    if stat.is_dir() {
        fs::remove_dir_all(file).unwrap();
    } else {
        fs::remove_file(file).unwrap();
    }
}

/// Makes room: whatever is in the way of the path's directories goes.
fn make_parent(bench: &Bench, path: &TreePath) {
    let mut at = bench.root.clone();
    let Some((parent, _)) = path.split_last() else {
        return;
    };
    for part in parent.parts() {
        at.push(std::ffi::OsStr::from_bytes(part));
        if !fs::symlink_metadata(&at).is_ok_and(|stat| stat.is_dir()) {
            remove(&at);
            fs::create_dir(&at).unwrap();
        }
    }
}

fn chmod(file: &std::path::Path, mode: u8) {
    let Ok(stat) = fs::symlink_metadata(file) else {
        return;
    };
    if stat.is_symlink() {
        return;
    }
    let mode = MODES[usize::from(mode) % MODES.len()] | if stat.is_dir() { 0o700 } else { 0 };
    fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
}

fn carry_out(bench: &Bench, edit: &Edit) {
    match edit {
        Edit::Write(path, bytes, mode) => {
            make_parent(bench, path);
            let file = full(bench, path);
            if !fs::symlink_metadata(&file).is_ok_and(|stat| stat.is_file()) {
                remove(&file);
            }
            fs::write(&file, vec![*bytes % 4; usize::from(*bytes % 5) * 1000]).unwrap();
            chmod(&file, *mode);
        }
        Edit::Dir(path, mode) => {
            make_parent(bench, path);
            let file = full(bench, path);
            if !fs::symlink_metadata(&file).is_ok_and(|stat| stat.is_dir()) {
                remove(&file);
                fs::create_dir(&file).unwrap();
            }
            chmod(&file, *mode);
        }
        Edit::Link(path, to) => {
            make_parent(bench, path);
            remove(&full(bench, path));
            let targets = ["a", "/", "..", "nowhere", "../../outside"];
            symlink(targets[usize::from(*to) % targets.len()], full(bench, path)).unwrap();
        }
        Edit::Fifo(path) => {
            make_parent(bench, path);
            remove(&full(bench, path));
            nix::unistd::mkfifo(&full(bench, path), nix::sys::stat::Mode::S_IRWXU).unwrap();
        }
        Edit::Remove(path) => {
            // Through a link in the middle nothing may be removed.
            if reached(bench, path) {
                remove(&full(bench, path));
            }
        }
        Edit::Chmod(path, mode) => {
            if reached(bench, path) {
                chmod(&full(bench, path), *mode);
            }
        }
        Edit::Exchange(a, b) => {
            if reached(bench, a) && reached(bench, b) {
                let flags = nix::fcntl::RenameFlags::RENAME_EXCHANGE;
                let here = nix::fcntl::AT_FDCWD;
                let _ = nix::fcntl::renameat2(here, &full(bench, a), here, &full(bench, b), flags);
            }
        }
    }
}

fn reached(bench: &Bench, path: &TreePath) -> bool {
    let mut at = bench.root.clone();
    let Some((parent, _)) = path.split_last() else {
        return true;
    };
    parent.parts().all(|part| {
        at.push(std::ffi::OsStr::from_bytes(part));
        fs::symlink_metadata(&at).is_ok_and(|stat| stat.is_dir())
    })
}

fn cases() -> u32 {
    std::env::var("STEPBACK_SOAK_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(64)
}

fn is_recorded(bench: &Bench, node: &Node) -> bool {
    match node.kind {
        Kind::File(oid) | Kind::Link(oid) => bench.store.has(oid).unwrap(),
        Kind::Dir | Kind::Fifo => true,
    }
}

/// A file that came back without its set-id bits, which is told: made again in a directory that others could write to then.
fn lost_set_id_alone(change: &crate::diff::Change) -> bool {
    let (Some(now), Some(wanted)) = (&change.old, &change.new) else {
        return false;
    };
    let plain = |node: &Node| Node {
        perm: crate::node::Perm::of_mode(node.perm.bits() & !0o6000),
        ..node.clone()
    };
    now.perm.bits() & 0o6000 == 0 && plain(now) == plain(wanted)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_is_put_back_and_the_other_too(first in edits(30), second in edits(30)) {
        let bench = Bench::new();
        first.iter().for_each(|edit| carry_out(&bench, edit));
        let target = bench.capture();
        second.iter().for_each(|edit| carry_out(&bench, edit));
        let before = bench.capture();
        for goal in [&target, &before] {
            let applied = bench.rewind(goal);
            prop_assert_eq!(applied.kept, vec![]);
            let now = bench.capture();
            let mut differs = changes(&now, goal);
            differs.retain(|change| !lost_set_id_alone(change));
            prop_assert_eq!(differs, vec![]);
            bench.assert_clean();
        }
    }

    #[test]
    fn whatever_is_ignored_no_bytes_are_lost(
        first in edits(20),
        second in edits(20),
        ignored in prop::collection::btree_set(paths(), 0..3),
        ignored_then in prop::collection::btree_set(paths(), 0..3),
    ) {
        let bench = Bench::new();
        first.iter().for_each(|edit| carry_out(&bench, edit));
        *bench.ignored.borrow_mut() = ignored_then.clone();
        let target = bench.capture();
        second.iter().for_each(|edit| carry_out(&bench, edit));
        bench.ignored.borrow_mut().clear();
        // Everything that is on disk, in a store that doesn't count.
        let all = {
            let other = Bench::new();
            let there = Bench { root: bench.root.clone(), ..other };
            there.capture()
        };
        *bench.ignored.borrow_mut() = ignored;
        *bench.ignored_then.borrow_mut() = ignored_then;
        let plan = bench.plan(&target);
        let applied = bench.apply(&plan).unwrap();
        prop_assert_eq!(applied.kept, plan.kept.clone());
        bench.assert_clean();
        bench.ignored.borrow_mut().clear();
        let now = {
            let other = Bench::new();
            let there = Bench { root: bench.root.clone(), ..other };
            there.capture()
        };
        for (path, node) in &all {
            let still = now.get(path) == Some(node);
            prop_assert!(still || is_recorded(&bench, node), "{:?} is lost", path);
        }
        if plan.kept.is_empty() {
            let of_target = |path: &TreePath| target.contains_key(path);
            let mut differs = changes(&now, &target);
            differs.retain(|change| of_target(&change.path) && !lost_set_id_alone(change));
            prop_assert_eq!(differs, vec![]);
        }
    }
}
