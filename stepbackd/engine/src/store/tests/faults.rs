//! Every step that can fail, failing: run as children of the test, each with one fault.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;

use super::super::Expected::{Any, Is};
use super::super::{LARGE_BYTES, TreeEntry, write_tree};
use super::{Store, assert_clean, names_below, text};
use crate::error::Result;
use crate::oid::ObjectKind;
use crate::time::Time;

const PLACE: &str = "STEPBACK_TEST_STORE";

/// What a child does: all kinds of writing.
fn work(place: &Path) -> Result<()> {
    let store = Store::create(place)?;
    let mut last = None;
    for round in 0..2u32 {
        let writer = store.writer();
        let mut entries = Vec::new();
        // The first round makes loose objects, the second a pack.
        for i in 0..3 + round * 40 {
            let oid = writer.put(ObjectKind::Blob, &text(i))?;
            entries.push(TreeEntry {
                mode: 0o100_644,
                name: format!("f{i}").into_bytes(),
                oid,
            });
        }
        let large = writer.put_stream(LARGE_BYTES + 1, &mut std::io::repeat(7).take(LARGE_BYTES + 1))?;
        entries.push(TreeEntry {
            mode: 0o100_644,
            name: b"large".to_vec(),
            oid: large.expect("its size is right"),
        });
        let tree = write_tree(&writer, &entries)?;
        let oid = writer.commit(tree, "label\n", Time(i64::from(round)))?;
        writer.finish()?;
        store.set_ref("refs/root", oid, last.map_or(Any, Is))?;
        last = Some(oid);
        store.set_ref(&format!("refs/c/s/{round}"), oid, Any)?;
    }
    store.pack_refs()?;
    store.delete_ref("refs/c/s/0")
}

#[test]
#[ignore = "run by every_step_may_fail"]
fn child() {
    let place = std::env::var_os(PLACE).unwrap();
    if let Err(error) = work(Path::new(&place)) {
        println!("{error}");
        std::process::exit(9);
    }
}

fn run(place: &Path, extra: &[(&str, &str)]) -> Option<i32> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "store::tests::faults::child", "--ignored"])
        .env(PLACE, place);
    command
        .envs(extra.iter().copied())
        .output()
        .unwrap()
        .status
        .code()
}

#[test]
fn every_step_may_fail() {
    let dir = tempfile::TempDir::new().unwrap();
    let log = dir.path().join("log");
    assert_eq!(
        run(
            &dir.path().join("whole"),
            &[("STEPBACK_FAULT_LOG", log.to_str().unwrap())]
        ),
        Some(0)
    );
    let points = fs::read_to_string(&log).unwrap().lines().count();
    assert!(points > 60, "{points} points");
    for at in 1..=points {
        // The errors take turns: to the store they are one, but for the room of the reserve.
        for action in ["kill", ["eio", "enospc", "eacces"][at % 3]] {
            let place = dir.path().join(format!("{at}-{action}"));
            let code = run(&place, &[("STEPBACK_FAULT", &format!("*:{at}:{action}"))]);
            // Where the reserve finds no room, the work goes on.
            assert!(
                code == if action == "kill" { None } else { Some(9) }
                    || code == Some(0) && action == "enospc"
            );
            if let Ok(store) = Store::open(&place) {
                assert_eq!(store.verify("refs/").unwrap(), [], "{at} {action}");
                assert_clean(&store);
            }
            assert_eq!(
                run(&place, &[]),
                Some(0),
                "{at} {action}: works once the cause is gone"
            );
            let store = Store::open(&place).unwrap();
            assert_clean(&store);
            assert_eq!(store.refs("refs/").unwrap().len(), 2);
            let mut all = Vec::new();
            names_below(&place, &mut all);
            let left = |path: &&std::path::PathBuf| {
                let name = path.file_name().unwrap().as_encoded_bytes();
                name.starts_with(b"tmp_") || name.ends_with(b".lock")
            };
            assert_eq!(all.iter().find(left), None, "{at} {action}");
            fs::remove_dir_all(&place).unwrap();
        }
    }
    println!("{points} points, {} runs", points * 2);
}
