use std::time::Instant;

use rayon::prelude::*;

use super::super::{Expected, MODE_TREE, TreeEntry, write_tree};
use super::{git, sandbox, text};
use crate::oid::ObjectKind;
use crate::time::Time;

/// Prints the ratio; run with `--ignored --nocapture`, best in a release build. The margin is wide on purpose.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::disallowed_methods, reason = "a measurement needs a clock")]
fn twenty_thousand_small_files_are_much_faster_than_git_add() {
    let tree = tempfile::TempDir::new().unwrap();
    let body = |i: u32| [text(i), format!("{i:x}").repeat(400).into_bytes()].concat();
    for i in 0..20_000u32 {
        let dir = tree.path().join(format!("d{}", i % 200));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(format!("f{i}")), body(i)).unwrap();
    }
    let store = sandbox();
    let start = Instant::now();
    let writer = store.writer();
    (0..20_000u32).into_par_iter().for_each(|i| {
        let path = tree.path().join(format!("d{}/f{i}", i % 200));
        writer
            .put(ObjectKind::Blob, &std::fs::read(path).unwrap())
            .unwrap();
    });
    writer.finish().unwrap();
    let ours = start.elapsed();
    if git(tree.path(), &["init", "-q"], b"").is_none() {
        return;
    }
    let start = Instant::now();
    git(tree.path(), &["add", "-A"], b"");
    let theirs = start.elapsed();
    println!(
        "ours {ours:?}, git add {theirs:?}: {:.1}x",
        theirs.as_secs_f64() / ours.as_secs_f64()
    );
    assert!(ours < theirs);
}

/// One edit three directories deep, and the refs of its checkpoint; ten thousand refs listed.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::disallowed_methods, reason = "a measurement needs a clock")]
fn one_edit_and_many_refs() {
    let store = sandbox();
    let entry = |oid, mode| {
        [TreeEntry {
            mode,
            name: b"n".to_vec(),
            oid,
        }]
    };
    let mut took = (Vec::new(), Vec::new());
    for i in 0..200u32 {
        let start = Instant::now();
        let writer = store.writer();
        let mut oid = writer
            .put(ObjectKind::Blob, &[&i.to_be_bytes(), &*text(i)].concat())
            .unwrap();
        let mut mode = 0o100_644;
        for _ in 0..4 {
            oid = write_tree(&writer, &entry(oid, mode)).unwrap();
            mode = MODE_TREE;
        }
        let oid = writer.commit(oid, "label", Time(0)).unwrap();
        writer.finish().unwrap();
        took.0.push(start.elapsed());
        let start = Instant::now();
        store
            .set_ref(&format!("refs/c/x/watch/{i}"), oid, Expected::Absent)
            .unwrap();
        took.1.push(start.elapsed());
    }
    took.0.sort();
    took.1.sort();
    println!("six objects {:?}, a ref {:?} (medians)", took.0[100], took.1[100]);
    let oid = store.refs("refs/").unwrap()[0].1;
    for i in 0..10_000 {
        std::fs::write(
            store.path().join(format!("refs/c/x/watch/{i}")),
            format!("{oid}\n"),
        )
        .unwrap();
    }
    let start = Instant::now();
    assert_eq!(store.refs("refs/").unwrap().len(), 10_000);
    println!("10,000 loose refs listed in {:?}", start.elapsed());
    store.pack_refs().unwrap();
    let start = Instant::now();
    assert_eq!(store.refs("refs/").unwrap().len(), 10_000);
    println!("packed: {:?}", start.elapsed());
}
