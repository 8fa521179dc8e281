//! How long it takes, beside git: `cargo test --release -p stepback-engine speed -- --ignored --nocapture`.

use std::process::Command;
use std::time::Instant;

use super::support::*;

#[test]
#[ignore = "measures"]
fn ten_thousand_files_against_git_checkout() {
    let bench = Bench::new();
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        git.arg("-C")
            .arg(&bench.root)
            .args(["-c", "user.name=n", "-c", "user.email=e"])
            .args(arguments);
        assert!(git.output().unwrap().status.success());
    };
    let write = |version: u32| {
        for i in 0..10_000u32 {
            let text = format!("{version} {i} ").repeat(400);
            bench.write(&format!("d{}/e{}/f{i}", i % 10, i % 110), text);
        }
    };
    git(&["init", "-q"]);
    write(1);
    git(&["add", "-A"]);
    git(&["commit", "-qm", "one"]);
    let one = bench.capture();
    write(2);
    let two = bench.capture();
    for _ in 0..3 {
        let start = Instant::now();
        git(&["checkout", "-q", "-f", "."]);
        let checkout = start.elapsed();
        bench.rewind(&two);
        let plan = bench.plan(&one);
        let start = Instant::now();
        bench.apply(&plan).unwrap();
        let apply = start.elapsed();
        write(2);
        println!(
            "checkout {checkout:?}, apply {apply:?}: {:.2}",
            apply.as_secs_f64() / checkout.as_secs_f64()
        );
    }
}

#[test]
#[ignore = "measures"]
fn parts_of_ten_thousand_files() {
    use crate::restore::{
        apply::works_of,
        change::{Changer, Outcome},
        journal,
        place::Ground,
        staging,
        survey::survey,
        unstaging,
    };
    let bench = Bench::new();
    let write = |version: u32| {
        for i in 0..10_000u32 {
            let text = format!("{version} {i} ").repeat(400);
            bench.write(&format!("d{}/e{}/f{i}", i % 10, i % 110), text);
        }
    };
    write(1);
    let one = bench.capture();
    write(2);
    let plan = bench.plan(&one);
    let mut start = Instant::now();
    let mut lap = |what: &str| {
        println!("part {what}: {:?}", start.elapsed());
        start = Instant::now();
    };
    let root = crate::root::DirHandle::open_root(&bench.root).unwrap();
    let works = works_of(&plan);
    let survey = survey(&bench.root, &root, &works).unwrap();
    lap("survey");
    for work in &works {
        if let Some(crate::node::Kind::File(oid)) = work.to.as_ref().map(|to| to.kind) {
            bench.store.copy_blob(oid, &mut std::io::sink()).unwrap();
        }
    }
    lap("reading all blobs on one thread");
    let journal = journal::Journal::new(header(plan.operation), plan.clone(), survey.generation.clone());
    journal::begin(&bench.journal_dir, &journal).unwrap();
    lap("journal");
    let mut ground = Ground {
        root_path: &bench.root,
        root,
        stagings: Vec::new(),
        staging_of: survey.staging_of,
    };
    staging::make_dirs(&mut ground, &survey.generation.stagings).unwrap();
    let _ = crate::restore::owners::Owners::of(&ground, &works);
    lap("owners");
    staging::stage(
        &ground,
        &bench.store,
        &works,
        &crate::progress::Progress::default(),
    )
    .unwrap();
    lap("stage");
    let mut outcome = Outcome::default();
    let changer = Changer {
        ground: &ground,
        works: &works,
        opened: &[],
    };
    changer.run(&mut outcome).unwrap();
    lap("run");
    changer.settle(&mut outcome).unwrap();
    lap("settle");
    let all = 0..ground.stagings.len();
    unstaging::remove(&mut ground, all, works.len(), &|_, _| false).unwrap();
    lap("remove");
}
