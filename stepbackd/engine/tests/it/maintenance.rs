//! Folding and packing of a store, with git as the judge.

use std::fs;
use std::path::Path;

use stepback_engine::Error;
use stepback_engine::checkpoint::Trigger;
use stepback_engine::engine::{Engine, Scope, Why};
use stepback_engine::path::TreePath;
use stepback_engine::store::{Interrupt, Maintained, Store, Thoroughness};

use crate::support::{Sandbox, fsck, random_bytes, scale};

/// The same without git.
fn maintain_alone(sandbox: &Sandbox, how: Thoroughness) -> (u64, u64) {
    let store = Store::open(sandbox.engine.as_ref().unwrap().store_path()).unwrap();
    match store.maintain(None, None, how, &Interrupt::default()) {
        Ok(Maintained::Done { before, after }) => (before, after),
        other => panic!("{other:?}"),
    }
}

fn maintain(sandbox: &Sandbox, how: Thoroughness) -> Option<(u64, u64)> {
    let git = sandbox.environment().git;
    let Some(program) = &git.program else {
        println!("skipped: git is not installed");
        return None;
    };
    let store = Store::open(sandbox.engine.as_ref().unwrap().store_path()).unwrap();
    match store.maintain(Some(program), git.path.as_deref(), how, &Interrupt::default()) {
        Ok(Maintained::Done { before, after }) => Some((before, after)),
        other => panic!("{other:?}"),
    }
}

/// A text of about 1 MB whose lines are all different.
fn source(lines: usize) -> Vec<String> {
    (0..lines)
        .map(|i| {
            format!(
                "    let value_{i} = compute({}, \"{}\");",
                i * 7919 % 10_007,
                i * 31 % 977
            )
        })
        .collect()
}

#[test]
fn edits_of_a_large_source_file_cost_little_once_packed() {
    let edits = scale(60, 1_000);
    let mut lines = source(22_000);
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("big.rs"), lines.join("\n")).unwrap());
    assert!(lines.join("\n").len() > 900_000);
    if maintain(&sandbox, Thoroughness::Fold).is_none() {
        return;
    }
    let before = sandbox.engine().store_bytes().unwrap();
    let mut texts = Vec::new();
    for i in 0..edits {
        let at = i * 6_151 % lines.len();
        lines[at] = format!("    let edited_{i} = {};", i * i);
        let text = lines.join("\n");
        sandbox.write("big.rs", &text);
        let id = sandbox.capture().id;
        if i % 17 == 0 {
            texts.push((id, text));
        }
        // As the daemon does it: each time enough has gathered.
        if i % 300 == 299 {
            maintain(&sandbox, Thoroughness::Fold);
        }
    }
    let loose = sandbox.engine().store_bytes().unwrap();
    maintain(&sandbox, Thoroughness::Fold);
    let folded = sandbox.engine().store_bytes().unwrap() - before;
    println!(
        "{edits} edits of 1 MB: {} KiB before, {} KiB after, {} bytes each",
        (loose - before) >> 10,
        folded >> 10,
        folded / edits as u64
    );
    // Of 1,000, less than 3 MB.
    assert!(folded < 500_000 + 2_400 * edits as u64, "{folded} bytes");
    let path = TreePath::new(b"big.rs").unwrap();
    for (id, text) in texts {
        let mut bytes = Vec::new();
        sandbox.engine().cat(id, &path, &mut bytes).unwrap();
        assert!(bytes == text.as_bytes(), "checkpoint {id}");
    }
    fsck(sandbox.engine().store_path());
}

#[test]
fn an_open_engine_goes_on_with_new_packs() {
    let mut sandbox = Sandbox::with(|root| {
        for i in 0..60 {
            fs::write(root.join(format!("f{i}")), format!("file {i}\n").repeat(50)).unwrap();
        }
    });
    let first = sandbox.picture();
    for i in 0..5 {
        sandbox.write("f1", &format!("edit {i}"));
        sandbox.capture();
        let how = if i % 2 == 0 {
            Thoroughness::Full
        } else {
            Thoroughness::Fold
        };
        if maintain(&sandbox, how).is_none() {
            return;
        }
    }
    sandbox.rewind(1);
    assert_eq!(sandbox.picture(), first);
    assert!(sandbox.engine().verify().unwrap().is_empty());
    fsck(sandbox.engine().store_path());
}

#[test]
fn an_interrupted_one_changes_nothing_that_counts() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("a"), "first").unwrap());
    let git = sandbox.environment().git;
    let Some(program) = &git.program else {
        println!("skipped: git is not installed");
        return;
    };
    let store = Store::open(sandbox.engine().store_path()).unwrap();
    let interrupt = Interrupt::default();
    interrupt.ask();
    let result = store.maintain(Some(program), git.path.as_deref(), Thoroughness::Full, &interrupt);
    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
    // Somebody writes: it isn't begun.
    let lock = sandbox
        .engine
        .as_ref()
        .map(|engine| Store::open(engine.store_path()).unwrap());
    let held = lock.as_ref().unwrap().lock().unwrap();
    let result = store.maintain(
        Some(program),
        git.path.as_deref(),
        Thoroughness::Full,
        &Interrupt::default(),
    );
    assert!(matches!(result, Ok(Maintained::Busy)), "{result:?}");
    drop(held);
    sandbox.write("a", "second");
    sandbox.capture();
    assert!(sandbox.engine().verify().unwrap().is_empty());
}

#[test]
fn packing_that_was_asked_for_ends_with_the_process() {
    for without_git in [false, true] {
        let mut sandbox = Sandbox::with(|root| fs::write(root.join("a"), "first").unwrap());
        for i in 0..5 {
            sandbox.write("a", &format!("edit {i}"));
            sandbox.capture();
        }
        let engine = sandbox.engine.take().unwrap();
        let (store, id) = (engine.store_path().to_owned(), engine.id().to_owned());
        drop(engine);
        let mut env = sandbox.environment();
        if without_git {
            env.git.program = None;
        }
        sandbox.engine = Some(Engine::open(&env, &store, &id, &Sandbox::settings()).unwrap());
        sandbox.capture();
        env.git.children.end();
        let dropped = sandbox.on(|engine, cx| engine.drop_checkpoints(&[2, 3], false, cx).unwrap());
        let why = dropped.unreclaimed.unwrap();
        assert!(why.contains(&Error::Cancelled.to_string()), "{why}");
        assert!(sandbox.engine().verify().unwrap().is_empty());
        fsck(&store);
    }
}

#[test]
fn a_failure_leaves_no_more_than_there_was() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("a"), "first").unwrap());
    let git = sandbox.environment().git;
    let Some(program) = &git.program else {
        println!("skipped: git is not installed");
        return;
    };
    let path = sandbox.engine().store_path().to_owned();
    fs::write(path.join("refs/checkpoints/broken"), "not an object id\n").unwrap();
    for name in [
        "objects/pack/tmp_pack_x",
        "objects/tmp_obj_x",
        "objects/pack/.tmp-1-pack-x.pack",
    ] {
        fs::write(path.join(name), vec![1; 100_000]).unwrap();
    }
    let store = Store::open(&path).unwrap();
    let before = store.disk_bytes().unwrap();
    for _ in 0..3 {
        let failed = store.maintain(
            Some(program),
            git.path.as_deref(),
            Thoroughness::Full,
            &Interrupt::default(),
        );
        assert!(failed.is_err(), "{failed:?}");
        assert!(store.disk_bytes().unwrap() <= before);
    }
    fs::remove_file(path.join("refs/checkpoints/broken")).unwrap();
    let garbage = garbage_of(&path);
    assert_eq!(garbage.as_deref().unwrap_or("garbage: 0"), "garbage: 0");
    maintain(&sandbox, Thoroughness::Full);
}

/// What `git count-objects -v` says of garbage.
fn garbage_of(store: &Path) -> Option<String> {
    let output = std::process::Command::new("git")
        .arg("--git-dir")
        .arg(store)
        .args(["count-objects", "-v"])
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.lines()
        .find(|line| line.starts_with("garbage:"))
        .map(str::to_owned)
}

#[test]
fn ten_thousand_checkpoints_stay_quick() {
    let count = scale(400, 10_000);
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("a"), "first").unwrap());
    for i in 0..count {
        sandbox.write("a", &format!("{i} {}", "x".repeat(i % 13)));
        sandbox.on(|engine, cx| {
            engine
                .capture(Scope::All, &Why::plain(Trigger::Auto), cx)
                .unwrap()
        });
    }
    if maintain(&sandbox, Thoroughness::Fold).is_none() {
        return;
    }
    let time = |what: &str, work: &mut dyn FnMut()| {
        let started = std::time::Instant::now();
        work();
        let took = started.elapsed();
        println!("{count} checkpoints: {what} {} ms", took.as_millis());
        took
    };
    let mut opened = time("open", &mut || sandbox.reopen(true));
    sandbox.write("a", "one more");
    opened += time("save", &mut || drop(sandbox.capture()));
    time("another save", &mut || {
        sandbox.write("a", "and one more");
        sandbox.capture();
    });
    time("fsck", &mut || fsck(sandbox.engine().store_path()));
    // About 40 µs each; ten times that on a loaded machine.
    assert!(opened.as_millis() < 2_000 + count as u128 / 2, "{opened:?}");
}

#[test]
fn without_git_the_space_is_given_back_all_the_same() {
    let mut sandbox = Sandbox::with(|root| {
        for i in 0..60 {
            fs::write(root.join(format!("f{i}")), random_bytes(i, 20_000)).unwrap();
        }
    });
    let mut pictures = vec![(1, sandbox.picture())];
    for i in 0..6u64 {
        for f in 0..40 {
            fs::write(
                sandbox.root().join(format!("f{f}")),
                random_bytes(100 * (i + 1) + f, 20_000),
            )
            .unwrap();
        }
        let id = sandbox.capture().id;
        pictures.push((id, sandbox.picture()));
        maintain_alone(&sandbox, Thoroughness::Fold);
    }
    let engine = sandbox.engine.take().unwrap();
    let (store, id) = (engine.store_path().to_owned(), engine.id().to_owned());
    drop(engine);
    let mut env = sandbox.environment();
    env.git.program = None;
    sandbox.engine = Some(Engine::open(&env, &store, &id, &Sandbox::settings()).unwrap());
    let dropped = sandbox.on(|engine, cx| engine.drop_checkpoints(&[2, 3, 4, 5], false, cx).unwrap());
    assert_eq!(dropped.unreclaimed, None);
    assert!(dropped.freed_bytes > 2 << 20, "{dropped:?}");
    let bytes = sandbox.engine().store_bytes().unwrap();
    // The reserve, and three states of which most differs.
    assert!(bytes < (4 << 20) + 3_500_000, "{bytes}");
    assert!(sandbox.engine().verify().unwrap().is_empty());
    fsck(sandbox.engine().store_path());
    for (id, picture) in pictures {
        if !(2..=5).contains(&id) {
            sandbox.rewind(id);
            assert_eq!(sandbox.picture(), picture, "checkpoint {id}");
        }
    }
    // With a broken ref nothing is removed.
    let path = sandbox.engine().store_path().to_owned();
    fs::create_dir_all(path.join("refs/checkpoints")).unwrap();
    fs::write(path.join("refs/checkpoints/broken"), "no object id\n").unwrap();
    let store = Store::open(&path).unwrap();
    let failed = store.maintain(None, None, Thoroughness::Full, &Interrupt::default());
    assert!(failed.is_err(), "{failed:?}");
    fs::remove_file(path.join("refs/checkpoints/broken")).unwrap();
    assert!(sandbox.engine().verify().unwrap().is_empty());
}

#[test]
fn without_git_many_packs_become_few() {
    let mut sandbox = Sandbox::new();
    sandbox.attach();
    let mut pictures = Vec::new();
    for round in 0..14 {
        for i in 0..40 {
            sandbox.write(&format!("f{i}"), &format!("{i} in round {round}"));
        }
        let id = sandbox.capture().id;
        pictures.push((id, sandbox.picture()));
    }
    let store = Store::open(sandbox.engine().store_path()).unwrap();
    assert!(store.wants_folding().unwrap());
    let interrupt = Interrupt::default();
    interrupt.ask();
    let result = store.maintain(None, None, Thoroughness::Fold, &interrupt);
    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
    assert!(store.wants_folding().unwrap(), "it was ended before it began");
    maintain_alone(&sandbox, Thoroughness::Fold);
    assert!(!store.wants_folding().unwrap());
    assert!(sandbox.engine().verify().unwrap().is_empty());
    fsck(sandbox.engine().store_path());
    for (id, picture) in pictures {
        sandbox.rewind(id);
        assert_eq!(sandbox.picture(), picture, "checkpoint {id}");
    }
}
