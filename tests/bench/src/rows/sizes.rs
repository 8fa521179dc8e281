//! What is measured on trees of several sizes: a checkpoint of one changed file, a scan, a first capture.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use super::{Bench, short};
use crate::ours::OurEngine;
use crate::peers::{Driven, GitShadow, run};
use crate::report::{Target, Unit};
use crate::samples::{Samples, timed};
use crate::tree::{self, Tree};

/// Above so many files the Python peers and the repeated first captures take too long.
const LARGE: usize = 200_000;

/// All of it, from the smallest tree to the largest. `medians` has those of the checkpoints so far, by size.
pub fn measure(bench: &mut Bench<'_>, sizes: &[usize], ignored_dirs: usize, medians: &mut Vec<(usize, f64)>) {
    let first = sizes.iter().copied().filter(|n| *n <= LARGE).max();
    for files in sizes {
        let tree = Tree::make(bench.sandbox, &format!("t{files}"), *files, ignored_dirs);
        medians.push((*files, checkpoint(bench, &tree)));
        if first == Some(*files) {
            first_capture(bench, &tree);
        }
        tree::remove(&tree.path);
    }
    let took = || medians.iter().map(|(_, median)| *median);
    let spread = took().fold(f64::MIN, f64::max) / took().fold(f64::MAX, f64::min);
    let sizes: Vec<String> = medians.iter().map(|(files, _)| short(*files)).collect();
    bench.report.row(
        format!(
            "slowest of the checkpoints at {} files against the fastest, times",
            sizes.join(", ")
        ),
        Unit::Count,
        &Samples::of(spread),
        None,
        Target::Below(2.0),
    );
}

/// One changed file, by the engine when it knows the path, and by the peers; then a scan without a change.
fn checkpoint(bench: &mut Bench<'_>, tree: &Tree) -> f64 {
    let (sandbox, files, size) = (bench.sandbox, tree.files, short(tree.files));
    let state = sandbox.dir().join("tmp/state");
    let mut engine = OurEngine::attach(sandbox, &tree.path, &state);
    let (_, first) = timed(|| engine.capture(&[]));
    bench
        .report
        .point("first capture", "stepback", files, &Samples::of(first));
    let git = GitShadow::make(sandbox, tree, "shadow");
    bench
        .report
        .point("first capture", "git add", files, &Samples::of(git.checkpoint()));
    let stores = sandbox.dir().join("tmp/fabricatio");
    let peers = files <= LARGE;
    let mut python = bench.pythons.stepback.as_ref().filter(|_| peers).and_then(|bin| {
        let mut driven = Driven::stepback(sandbox, bin, &tree.path);
        driven.checkpoint().map(|_| driven)
    });
    let mut fabricatio = bench
        .pythons
        .fabricatio
        .as_ref()
        .filter(|_| peers)
        .and_then(|bin| {
            let mut driven = Driven::fabricatio(sandbox, bin, &tree.path, &stores);
            let works = driven.checkpoint().is_some();
            if !works {
                let why = driven.why();
                let note = format!("fabricatio-checkpoint was left out at {size} files, as it failed: {why}");
                bench.report.note(note);
            }
            works.then_some(driven)
        });
    let [mut ours, mut floor, mut by_git, mut by_python, mut by_fabricatio] = [const { Vec::new() }; 5];
    for round in 0..bench.rounds.max(7) {
        let file = (round * 7919 + 13) % files;
        tree.edit(file, round as u64);
        ours.push(timed(|| engine.capture(&[tree.name(file)])).1);
        floor.push(eight_files(engine.store()));
        by_git.push(git.checkpoint());
        by_python.extend(python.as_mut().and_then(Driven::checkpoint).map(|(took, _)| took));
        by_fabricatio.extend(
            fabricatio
                .as_mut()
                .and_then(Driven::checkpoint)
                .map(|(took, _)| took),
        );
    }
    let samples = |values: Vec<f64>| {
        let mut samples = Samples::default();
        values.into_iter().for_each(|value| samples.push(value));
        samples
    };
    let (ours, floor, by_git) = (samples(ours), samples(floor), samples(by_git));
    let (by_python, by_fabricatio) = (samples(by_python), samples(by_fabricatio));
    let is_target = files == bench.scaled(100_000);
    let target = |times| {
        if is_target {
            Target::Faster(times)
        } else {
            Target::None
        }
    };
    let work = format!("durable checkpoint of one changed file in {size}, path known");
    let report = &mut bench.report;
    report.row(
        &work,
        Unit::Ms,
        &ours,
        Some(("git add -A + write-tree", &by_git)),
        target(200.0),
    );
    report.row(
        &work,
        Unit::Ms,
        &ours,
        Some(("Python stepback 0.2.0", &by_python)),
        target(1000.0),
    );
    report.row(
        &work,
        Unit::Ms,
        &ours,
        Some(("fabricatio-checkpoint", &by_fabricatio)),
        Target::None,
    );
    let target = if is_target {
        Target::AtMost(2.0)
    } else {
        Target::None
    };
    report.row(
        &work,
        Unit::Ms,
        &ours,
        Some(("8 files and syncfs", &floor)),
        target,
    );
    for (name, samples) in [
        ("stepback", &ours),
        ("git", &by_git),
        ("Python stepback", &by_python),
        ("fabricatio", &by_fabricatio),
    ] {
        report.point("checkpoint", name, files, samples);
    }
    drop((python, fabricatio));
    let median = ours.median();
    if is_target {
        busy(bench, tree, &mut engine);
    }
    scan(bench, tree, &mut engine);
    for path in ["tmp/state", "tmp/shadow.git", "tmp/fabricatio"] {
        tree::remove(&sandbox.dir().join(path));
    }
    median
}

/// As many files as a checkpoint makes, made durable at once.
fn eight_files(store: &Path) -> f64 {
    let dir = store.join("stepback/bench");
    std::fs::create_dir_all(&dir).expect("own directory");
    let (result, took) = timed(|| -> std::io::Result<()> {
        for number in 0..8 {
            File::create(dir.join(number.to_string()))?.write_all(&[b'x'; 400])?;
        }
        nix::unistd::syncfs(File::open(&dir)?).map_err(Into::into)
    });
    result.expect("own files");
    tree::remove(&dir);
    took
}

/// The same while somebody writes a lot to the same disk.
fn busy(bench: &mut Bench<'_>, tree: &Tree, engine: &mut OurEngine) {
    let path = bench.sandbox.dir().join("tmp/busy");
    let megabytes = bench.scaled(400);
    let (mut ours, mut floor) = (Samples::default(), Samples::default());
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let piece = vec![b'x'; 1 << 20];
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let mut file = File::create(&path).expect("own file");
                for _ in 0..megabytes {
                    file.write_all(&piece).expect("own file");
                }
            }
        });
        for round in 0..bench.rounds.max(7) {
            let file = (round * 6353 + 29) % tree.files;
            tree.edit(file, round as u64 + 500);
            ours.push(timed(|| engine.capture(&[tree.name(file)])).1);
            floor.push(eight_files(engine.store()));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    std::fs::remove_file(&path).expect("own file");
    let work = format!("the same while {megabytes} MiB are written to the same disk, again and again",);
    let peer = Some(("8 files and syncfs", &floor));
    bench.report.row(work, Unit::Ms, &ours, peer, Target::AtMost(2.0));
}

fn scan(bench: &mut Bench<'_>, tree: &Tree, engine: &mut OurEngine) {
    let (mut ours, mut git) = (Samples::default(), Samples::default());
    let status = || {
        let mut git = bench.sandbox.command("git", &tree.path);
        git.args(["status", "--porcelain"]).env("GIT_OPTIONAL_LOCKS", "0");
        git
    };
    // What was edited just now can't be trusted by its times: the first look reads it again.
    run(bench.sandbox.command("git", &tree.path).args(["add", "-A"]));
    engine.capture(&[]);
    for _ in 0..bench.rounds.max(7) {
        ours.push(timed(|| engine.capture(&[])).1);
        git.push(run(&mut status()));
    }
    let target = if tree.files == bench.scaled(100_000) {
        Target::AtMost(0.6)
    } else {
        Target::None
    };
    let work = format!("full scan of {} files without a change", short(tree.files));
    bench
        .report
        .row(work, Unit::Ms, &ours, Some(("git status", &git)), target);
    bench.report.point("scan", "stepback", tree.files, &ours);
    bench.report.point("scan", "git status", tree.files, &git);
}

/// Everything for the first time, by us, by git, and as an archive.
fn first_capture(bench: &mut Bench<'_>, tree: &Tree) {
    let sandbox = bench.sandbox;
    let state = sandbox.dir().join("tmp/first");
    let archive = sandbox.dir().join("tmp/first.tar.zst");
    let [mut ours, mut git, mut tar] = [const { Samples::of_none() }; 3];
    for _ in 0..bench.rounds {
        let mut engine = OurEngine::attach(sandbox, &tree.path, &state);
        ours.push(timed(|| engine.capture(&[])).1);
        drop(engine);
        tree::remove(&state);
        let shadow = GitShadow::make(sandbox, tree, "first");
        git.push(shadow.add());
        tree::remove(&sandbox.dir().join("tmp/first.git"));
        let mut command = sandbox.command("sh", &tree.path);
        command.args([
            "-c",
            "tar -cf - --exclude=.git --exclude=node_modules . | zstd -q -1 -f -o \"$0\"",
        ]);
        command.arg(&archive).stderr(Stdio::null());
        tar.push(run(&mut command));
    }
    let work = format!("first capture of {} files", short(tree.files));
    let report = &mut bench.report;
    report.row(
        &work,
        Unit::Ms,
        &ours,
        Some(("git add -A, fresh repository", &git)),
        Target::Faster(8.0),
    );
    report.row(
        &work,
        Unit::Ms,
        &ours,
        Some(("tar and zstd -1", &tar)),
        Target::AtMost(1.5),
    );
    beside_attached(bench, tree);
}

/// A second worktree of a repository that is attached already: everything is read, nothing stored twice.
fn beside_attached(bench: &mut Bench<'_>, tree: &Tree) {
    let sandbox = bench.sandbox;
    let state = sandbox.dir().join("tmp/first");
    let beside = sandbox.dir().join("work/beside");
    sandbox.sh(
        &tree.path,
        &format!("git worktree add -q --detach '{}'", beside.display()),
    );
    let mut engine = OurEngine::attach(sandbox, &tree.path, &state);
    engine.capture(&[]);
    let (mut ours, mut scan) = (Samples::default(), Samples::default());
    for _ in 0..bench.rounds {
        scan.push(timed(|| engine.capture(&[])).1);
        let mut second = OurEngine::attach(sandbox, &beside, &state);
        ours.push(timed(|| second.capture(&[])).1);
        second.forget();
    }
    let work = format!(
        "first capture of {} files beside an attached worktree",
        short(tree.files)
    );
    bench.report.row(
        work,
        Unit::Ms,
        &ours,
        Some(("scan of the first one", &scan)),
        Target::AtMost(8.0),
    );
    sandbox.sh(&tree.path, "git worktree remove --force ../beside");
    tree::remove(&state);
}
