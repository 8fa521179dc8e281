//! Updates must end where a scan of everything would.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::*;

use super::fixture::Fixture;
use crate::path::TreePath;

#[derive(Debug, Clone)]
enum Edit {
    Write(String, u8),
    Remove(String),
    Rename(String, String),
    Link(String),
    Fifo(String),
    Mode(String, bool),
    MakeDir(String),
    Ignore(String, String),
}

fn any_path() -> impl Strategy<Value = String> {
    "[abt](/[abt]){0,3}"
}

fn any_edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        4 => (any_path(), any::<u8>()).prop_map(|(path, byte)| Edit::Write(path, byte)),
        2 => any_path().prop_map(Edit::Remove),
        2 => (any_path(), any_path()).prop_map(|(from, to)| Edit::Rename(from, to)),
        1 => any_path().prop_map(Edit::Link),
        1 => any_path().prop_map(Edit::Fifo),
        1 => (any_path(), any::<bool>()).prop_map(|(path, tight)| Edit::Mode(path, tight)),
        1 => any_path().prop_map(Edit::MakeDir),
        1 => ("(|[ab]/)\\.(git|stepback)ignore", "(!?/?[abt]\n){0,2}").prop_map(|(file, text)| Edit::Ignore(file, text)),
    ]
}

fn remove(path: &Path) {
    let Ok(stat) = fs::symlink_metadata(path) else {
        return;
    };
    let _ = if stat.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
}

/// Removes what is there. The kernel's watch on a directory goes with it: another one of the same inode isn't watched.
fn remove_watched(at: &Fixture, path: &str) {
    remove(&at.path(path));
    let below = format!("{path}/");
    let goes =
        |dir: &TreePath| dir.as_bytes() == path.as_bytes() || dir.as_bytes().starts_with(below.as_bytes());
    at.watch.0.lock().unwrap().retain(|dir, _| !goes(dir));
}

/// Makes an edit and returns what events would tell of it: the topmost entry that came or went.
fn make(at: &Fixture, edit: &Edit) -> Vec<String> {
    let parents = |path: &str| {
        let mut told = path.to_owned();
        let slashes: Vec<usize> = path.match_indices('/').map(|(slash, _)| slash).collect();
        for slash in slashes {
            let dir = at.path(&path[..slash]);
            match fs::symlink_metadata(&dir) {
                Ok(stat) if stat.is_dir() => continue,
                Ok(_) => fs::remove_file(&dir).unwrap(),
                Err(_) => {}
            }
            told.truncate(told.len().min(slash));
            fs::create_dir(&dir).unwrap();
        }
        told
    };
    let fresh = |path: &str| {
        let told = parents(path);
        remove_watched(at, path);
        told
    };
    // What is done through a link happens elsewhere, and events tell of it there.
    let through_a_link = |path: &str| {
        path.match_indices('/')
            .any(|(slash, _)| at.path(&path[..slash]).is_symlink())
    };
    match edit {
        Edit::Remove(path) | Edit::Rename(path, _) | Edit::Mode(path, _) if through_a_link(path) => {
            Vec::new()
        }
        Edit::Write(path, byte) => {
            let is_there = at.path(path).is_file() && !at.path(path).is_symlink();
            let told = if is_there && !through_a_link(path) {
                path.clone()
            } else {
                fresh(path)
            };
            fs::write(at.path(path), [*byte]).unwrap();
            vec![told]
        }
        Edit::Link(path) => {
            let told = fresh(path);
            symlink("a/b", at.path(path)).unwrap();
            vec![told]
        }
        Edit::Fifo(path) => {
            let told = fresh(path);
            nix::unistd::mkfifo(&at.path(path), nix::sys::stat::Mode::S_IRWXU).unwrap();
            vec![told]
        }
        Edit::MakeDir(path) => {
            let told = fresh(path);
            fs::create_dir(at.path(path)).unwrap();
            vec![told]
        }
        Edit::Remove(path) => {
            remove_watched(at, path);
            vec![path.clone()]
        }
        Edit::Rename(from, to) => {
            let source = at.path(from);
            if fs::symlink_metadata(&source).is_err() || format!("{to}/").starts_with(&format!("{from}/")) {
                return Vec::new();
            }
            if format!("{from}/").starts_with(&format!("{to}/")) {
                return Vec::new();
            }
            let told = fresh(to);
            if fs::symlink_metadata(&source).is_ok() {
                fs::rename(source, at.path(to)).unwrap();
            }
            vec![from.clone(), told]
        }
        Edit::Mode(path, tight) => {
            let is_plain =
                fs::symlink_metadata(at.path(path)).is_ok_and(|stat| stat.is_dir() || stat.is_file());
            if is_plain {
                at.chmod(path, if *tight { 0o700 } else { 0o775 });
            }
            vec![path.clone()]
        }
        Edit::Ignore(path, text) => {
            let told = fresh(path);
            if !text.is_empty() {
                fs::write(at.path(path), text).unwrap();
            }
            vec![told, path.clone()]
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    // Directories aren't listed again when their times say that no name came or went: nothing may hide behind that.
    #[test]
    fn a_scan_finds_what_no_event_told_of(
        rounds in prop::collection::vec((prop::collection::vec(any_edit(), 1..6), any::<bool>()), 1..6),
    ) {
        let mut at = Fixture::new();
        at.ahead_ns = 3_000_000_000;
        at.tick();
        at.scan();
        for (edits, half_told) in rounds {
            at.tick();
            let told: Vec<String> = edits.iter().flat_map(|edit| make(&at, edit)).collect();
            if half_told {
                at.tick();
                let dirty = told.iter().step_by(2).map(|path| TreePath::new(path.as_bytes()).unwrap()).collect();
                at.update_paths(&dirty).unwrap();
            }
            at.tick();
            at.scan();
            let scanned = at.persist();
            let fresh = at.fresh_snapshot();
            prop_assert_eq!(at.recorded(scanned), at.recorded(fresh));
            prop_assert_eq!(scanned, fresh);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn updates_end_where_a_scan_does(rounds in prop::collection::vec(prop::collection::vec(any_edit(), 1..8), 1..6)) {
        let mut at = Fixture::new();
        at.scan();
        let mut before = at.persist();
        for edits in rounds {
            let told: Vec<String> = edits.iter().flat_map(|edit| make(&at, edit)).collect();
            let dirty: BTreeSet<_> = told.iter().map(|path| TreePath::new(path.as_bytes()).unwrap()).collect();
            let outcome = at.update_paths(&dirty).unwrap();
            let updated = at.persist();
            let fresh = at.fresh_snapshot();
            prop_assert_eq!(at.recorded(updated), at.recorded(fresh));
            prop_assert_eq!(updated, fresh);
            prop_assert_eq!(outcome.changed, updated != before, "{:?}", &told);
            before = updated;
            let mut known = at.watch.0.lock().unwrap().clone();
            at.tree.for_each_dir(&mut |path, ino| assert_eq!(known.remove(path), Some(ino), "{path} is watched"));
            prop_assert!(known.is_empty(), "no watch is left behind: {:?}", known);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_look_in_parts_finds_what_no_event_told(
        rounds in prop::collection::vec(prop::collection::vec(any_edit(), 1..8), 1..5),
        entries in 1usize..5,
    ) {
        let mut at = Fixture::new();
        at.scan();
        at.persist();
        for edits in rounds {
            for edit in &edits {
                make(&at, edit);
            }
            let (mut after, mut parts) = (None, 0);
            loop {
                let part = at.tree.dirs_after(after.as_ref(), entries);
                let Some(last) = part.last().cloned() else { break };
                prop_assert!(after.as_ref().is_none_or(|after| after < &last) && parts < 1000);
                at.update_paths(&part.into_iter().collect()).unwrap();
                (after, parts) = (Some(last), parts + 1);
            }
            let updated = at.persist();
            let fresh = at.fresh_snapshot();
            prop_assert_eq!(at.recorded(updated), at.recorded(fresh));
        }
    }
}

#[test]
fn parts_are_bounded_and_make_up_the_whole() {
    let mut at = Fixture::new();
    for i in 0..40 {
        at.write(&format!("d{}/e{}/f{i}", i % 4, i % 3), "x");
    }
    at.write("a.b/f", "x");
    at.write("a/f", "x");
    at.capture_all();
    let mut all = Vec::new();
    at.tree.for_each_dir(&mut |path, _| all.push(path.clone()));
    for entries in [1, 3, 10, 10_000] {
        let (mut seen, mut sizes): (Vec<TreePath>, Vec<usize>) = Default::default();
        loop {
            let part = at.tree.dirs_after(seen.last(), entries);
            if part.is_empty() {
                break;
            }
            sizes.push(part.len());
            seen.extend(part);
        }
        let sorted: BTreeSet<_> = seen.iter().cloned().collect();
        assert_eq!((seen.len(), sorted), (all.len(), all.iter().cloned().collect()));
        assert_eq!(sizes.len() == 1, entries == 10_000, "{sizes:?}");
    }
    // One that went meanwhile is passed over, one that came is found.
    let after = TreePath::new(b"d1/e0/gone").unwrap();
    assert_eq!(
        at.tree.dirs_after(Some(&after), 1),
        [TreePath::new(b"d1/e1").unwrap()]
    );
}

#[test]
fn one_edit_writes_one_blob_and_the_trees_above() {
    let mut at = Fixture::new();
    for i in 0..200 {
        at.write(&format!("d{}/e{}/f{i}", i % 5, i % 7), "x");
    }
    at.capture_all();
    at.write("d1/e1/f1", "new");
    at.update(&["d1/e1/f1"]);
    let store = crate::store::Store::open(at.store.path()).unwrap();
    let count = |dir: &Path| -> usize {
        let fan_outs = fs::read_dir(dir.join("objects"))
            .unwrap()
            .map(|entry| entry.unwrap().path());
        fan_outs
            .filter(|dir| dir.file_name().is_some_and(|name| name.len() == 2))
            .map(|dir| fs::read_dir(dir).unwrap().count())
            .sum()
    };
    let before = count(store.path());
    at.persist();
    assert_eq!(count(store.path()) - before, 3);
}

#[test]
fn a_directory_that_was_not_watched_is_looked_at_whole() {
    let mut at = Fixture::new();
    at.write("d/e/f", "1");
    at.capture_all();
    at.watch.0.lock().unwrap().clear();
    at.write("d/e/f", "22");
    assert!(at.update(&["d"]).changed);
}

#[test]
fn paths_below_nothing_known_are_found() {
    let mut at = Fixture::new();
    at.capture_all();
    at.write("n/1/2/3/f", "v1");
    assert!(at.update(&["n/1/2/3/f"]).changed);
    assert_eq!(at.tree.files(), 1);
    at.write("n/1/2/3/f", "v2!");
    assert!(at.update(&["n/1/2/3/f"]).changed);
    fs::remove_dir_all(at.path("n")).unwrap();
    assert!(at.update(&["n/1/2/3/f"]).changed);
    assert_eq!(at.tree.files(), 0);
}

#[test]
fn a_write_through_one_name_is_one_through_all() {
    let mut at = Fixture::new();
    at.write("a/x", "one");
    fs::create_dir(at.path("b")).unwrap();
    fs::hard_link(at.path("a/x"), at.path("b/y")).unwrap();
    at.write("alone", "one");
    at.capture_all();
    fs::write(at.path("a/x"), "two, and longer").unwrap();
    assert!(at.update(&["a/x"]).changed);
    let of = |at: &Fixture, path: &str| at.tree.node(&TreePath::new(path.as_bytes()).unwrap()).unwrap();
    let two = of(&at, "b/y");
    assert_eq!(two, of(&at, "a/x"));
    // Also when no event told of either: it was written through a name elsewhere.
    fs::write(at.path("b/y"), "three, which is longer still").unwrap();
    at.update(&["alone"]);
    let now = (of(&at, "a/x"), of(&at, "b/y"));
    assert!(now.0 == now.1 && now.0 != two);
    at.scan();
    assert_eq!(now, (of(&at, "a/x"), of(&at, "b/y")));
}
