//! Small questions, whole command: what people wait for at a prompt.

use std::path::Path;

use super::Bench;
use crate::ours::{OurEngine, memory, watched};
use crate::peers::{Driven, run};
use crate::report::{Target, Unit};
use crate::samples::{Samples, timed};
use crate::tree::{self, Tree};

const CHECKPOINTS: usize = 10_000;
/// Of Python's: its `list` shows all that there are.
const CHECKPOINTS_PYTHON: usize = 200;

/// `list` and `status` beside `git --version`, with many checkpoints.
pub fn measure(bench: &mut Bench<'_>) {
    let sandbox = bench.sandbox;
    let many = bench.scaled(CHECKPOINTS);
    let tree = Tree::make(sandbox, "many", 100, 0);
    let mut engine = OurEngine::attach(sandbox, &tree.path, &sandbox.state());
    engine.capture(&[]);
    for number in 1..many {
        let file = number % tree.files;
        tree.edit(file, number as u64);
        engine.capture(&[tree.name(file)]);
    }
    drop(engine);
    let (daemon, opened) = timed(|| {
        let daemon = sandbox.daemon();
        sandbox.stepback(&tree.path, &["attach"]).exits(0);
        daemon
    });
    watched(sandbox, &tree.path);
    let python = bench.pythons.stepback.as_ref().map(|bin| {
        let copy = tree.copy(sandbox, "many-python");
        let mut driven = Driven::stepback(sandbox, bin, &copy.path);
        for number in 0..CHECKPOINTS_PYTHON {
            copy.edit(number % copy.files, number as u64);
            driven.checkpoint();
        }
        (bin.join("stepback"), copy)
    });
    for (what, args) in [("list", ["list"].as_slice()), ("status", &["status"])] {
        let [mut ours, mut git, mut by_python] = [const { Samples::of_none() }; 3];
        for round in 0..bench.rounds.max(7) * 5 {
            ours.push(stepback(bench, &tree.path, args));
            git.push(run(sandbox.command("git", &tree.path).arg("--version")));
            if let Some((program, tree)) = &python
                && round % 5 == 0
            {
                by_python.push(run(sandbox.command(program, &tree.path).args(args)));
            }
        }
        let work = match what {
            "list" => format!("list (200 of {many} checkpoints), whole command"),
            _ => "status, whole command".to_owned(),
        };
        let report = &mut bench.report;
        report.row(
            &work,
            Unit::Ms,
            &ours,
            Some(("git --version", &git)),
            Target::AtMost(2.0),
        );
        report.row(
            &work,
            Unit::Ms,
            &ours,
            Some(("Python stepback 0.2.0", &by_python)),
            Target::Faster(25.0),
        );
    }
    let memory = memory(daemon.pid());
    let report = &mut bench.report;
    report.row(
        format!("daemon's memory with {many} checkpoints of 100 files"),
        Unit::MiB,
        &memory,
        None,
        Target::None,
    );
    report.row(
        format!("start of the daemon and a look, {many} checkpoints"),
        Unit::Ms,
        &Samples::of(opened),
        None,
        Target::None,
    );
    drop(daemon);
    tree::remove(&sandbox.state());
    tree::remove(&tree.path);
}

fn stepback(bench: &Bench<'_>, place: &Path, args: &[&str]) -> f64 {
    let sandbox = bench.sandbox;
    run(sandbox.command(sandbox.program("stepback"), place).args(args))
}
