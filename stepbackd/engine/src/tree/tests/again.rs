//! Scans of what is known: which directories are listed again, and what is seen without that.

use std::fs;

use super::fixture::Fixture;
use crate::path::TreePath;
use crate::tree::dir::{Dir, Slot};

/// A root of which all is old enough to be trusted, scanned.
fn scanned(files: &[&str]) -> Fixture {
    let mut at = Fixture::new();
    at.ahead_ns = 3_000_000_000;
    for file in files {
        at.write(file, "1");
    }
    at.tick();
    at.scan();
    at.tick();
    at
}

fn dir<'a>(at: &'a Fixture, path: &str) -> &'a Dir {
    match at
        .tree
        .root
        .as_deref()
        .unwrap()
        .find(&TreePath::new(path.as_bytes()).unwrap())
    {
        Some(Slot::Dir(dir)) => dir,
        other => panic!("{path} is {other:?}"),
    }
}

#[test]
fn names_are_trusted_only_from_a_list_that_is_old_enough() {
    let mut at = Fixture::new();
    at.write("d/a", "1");
    at.scan();
    assert!(!dir(&at, "d").listed, "what comes now may leave the same time");
    at.ahead_ns = 3_000_000_000;
    at.tick();
    at.scan();
    assert!(dir(&at, "d").listed);
    at.tick();
    at.write("d/a", "2");
    at.update(&["d/a"]);
    assert!(dir(&at, "d").listed, "no name came or went");
    at.tick();
    at.write("d/b", "1");
    at.write("d/c", "1");
    at.update(&["d/b"]);
    assert!(!dir(&at, "d").listed);
    assert!(at.scan().changed);
    assert!(at.captured().contains("d/c"), "no event told of it");
    assert!(dir(&at, "d").listed);
}

#[test]
fn what_is_in_a_directory_that_is_not_listed_is_looked_at() {
    let mut at = scanned(&["d/a", "d/b", "d/e/f"]);
    at.write("d/a", "2");
    at.chmod("d/b", 0o600);
    at.write("d/e/f", "22");
    at.write("d/e/g", "1");
    assert!(at.scan().changed);
    let snapshot = at.persist();
    assert_eq!(at.recorded(snapshot), at.disk());
    at.tick();
    fs::remove_file(at.path("d/e/g")).unwrap();
    assert!(at.scan().changed);
    assert!(!at.scan().changed);
    let snapshot = at.persist();
    assert_eq!(at.recorded(snapshot), at.disk());
}

#[test]
fn rules_that_change_have_everything_below_listed() {
    let mut at = scanned(&[".gitignore", "d/e/a", "d/e/b", "d/x"]);
    // Its directory shows nothing of it, nor do those below.
    at.write(".gitignore", "b\n");
    at.scan();
    assert!(!at.captured().contains("d/e/b"));
    at.tick();
    at.write(".gitignore", "c\n");
    assert!(at.scan().changed);
    assert!(at.captured().contains("d/e/b"));
}

#[test]
fn built_in_patterns_that_left_something_out_stay_known() {
    let mut at = scanned(&["d/node_modules/x", "d/a", "e/.DS_Store", "e/a"]);
    let hits = |at: &Fixture| at.rules.as_ref().unwrap().builtin_hits();
    assert_eq!(hits(&at), ["node_modules/", ".DS_Store"]);
    at.scan();
    assert_eq!(hits(&at), ["node_modules/", ".DS_Store"]);
    at.tick();
    fs::remove_dir_all(at.path("d/node_modules")).unwrap();
    at.scan();
    assert_eq!(hits(&at), [".DS_Store"]);
}

#[test]
fn below_a_directory_that_was_replaced_everything_is_listed() {
    // The rules that its list was made by went with the directory above, of which the new one says nothing.
    let mut at = scanned(&["d/s/deep/x.log", "d/s/deep/k", "d/k"]);
    at.write("d/.gitignore", "*.log\n");
    at.scan();
    at.tick();
    at.scan();
    assert!(!at.captured().contains("d/s/deep/x.log") && dir(&at, "d/s/deep").listed);
    fs::create_dir(at.path("new")).unwrap();
    fs::rename(at.path("d/s"), at.path("new/s")).unwrap();
    fs::rename(at.path("d"), at.path("old")).unwrap();
    fs::rename(at.path("new"), at.path("d")).unwrap();
    fs::remove_dir_all(at.path("old")).unwrap();
    assert!(at.scan().changed);
    assert!(at.captured().contains("d/s/deep/x.log"));
}
