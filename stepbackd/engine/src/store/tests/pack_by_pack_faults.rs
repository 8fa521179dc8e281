//! Packs written anew one by one, ended at every step: run as children of the test.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::pack_by_pack::{assert_gone, assert_kept, give_back, mixed};
use super::{Store, names_below, sandbox};

const PLACE: &str = "STEPBACK_TEST_STORE";

#[test]
#[ignore = "run by every_step_of_giving_back_may_fail"]
fn child() {
    let store = Store::open(Path::new(&std::env::var_os(PLACE).unwrap())).unwrap();
    if !give_back(&store, 100 << 20).unwrap_or(false) {
        std::process::exit(9);
    }
}

fn run(place: &Path, extra: (&str, &str)) -> Option<i32> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "store::tests::pack_by_pack_faults::child", "--ignored"])
        .env(PLACE, place)
        .envs([extra]);
    command.output().unwrap().status.code()
}

#[test]
fn every_step_of_giving_back_may_fail() {
    let store = sandbox();
    store.release_reserve().unwrap();
    let (mut kept, mut gone) = (Vec::new(), Vec::new());
    for (seed, some) in [(1, 40), (2, 0), (3, 25)] {
        let (stays, goes) = mixed(&store, seed, some);
        kept.extend(stays);
        gone.extend(goes);
    }
    let dir = tempfile::TempDir::new().unwrap();
    let copy = |name: &str| {
        let place = dir.path().join(name);
        let copied = Command::new("cp")
            .arg("-a")
            .arg(store.path())
            .arg(&place)
            .status();
        assert!(copied.unwrap().success());
        place
    };
    let log = dir.path().join("log");
    assert_eq!(
        run(&copy("whole"), ("STEPBACK_FAULT_LOG", log.to_str().unwrap())),
        Some(0)
    );
    let log = fs::read_to_string(&log).unwrap();
    assert!(
        log.contains("store.remove_pack") && log.contains("store.rename"),
        "{log}"
    );
    let points = log.lines().count();
    for at in 1..=points {
        for action in ["kill", ["eio", "enospc"][at % 2]] {
            let place = copy(&format!("{at}-{action}"));
            let code = run(&place, ("STEPBACK_FAULT", &format!("*:{at}:{action}")));
            assert_ne!(code, Some(0), "{at} {action}");
            let store = Store::open(&place).unwrap();
            assert_kept(&store, &kept);
            assert!(give_back(&store, 100 << 20).unwrap(), "{at} {action}");
            assert_kept(&store, &kept);
            assert_gone(&store, &gone);
            let mut all = Vec::new();
            names_below(&place, &mut all);
            let left = |path: &&std::path::PathBuf| {
                let torn =
                    path.extension().is_some_and(|it| it == "pack") && !path.with_extension("idx").exists();
                torn || path.file_name().unwrap().as_encoded_bytes().starts_with(b"tmp_")
            };
            assert_eq!(
                all.iter().filter(|path| path.is_file()).find(left),
                None,
                "{at} {action}"
            );
            fs::remove_dir_all(&place).unwrap();
        }
    }
    println!("{points} points");
}
