//! Rewinds, whole command, through the daemon; each peer in a copy of its own.

use std::process::Command;

use super::{Bench, short};
use crate::ours::watched;
use crate::peers::{Driven, run};
use crate::report::{Target, Unit};
use crate::samples::Samples;
use crate::tree::Tree;

/// With the tree attached and the daemon running.
pub fn measure(bench: &mut Bench<'_>, tree: &Tree) {
    let sandbox = bench.sandbox;
    let for_git = tree.copy(sandbox, "for-git");
    let for_python = bench
        .pythons
        .stepback
        .clone()
        .map(|bin| (bin, tree.copy(sandbox, "for-python")));
    for (changed, at_most) in [(bench.scaled(1_000), 0.8), (bench.scaled(10_000), 1.6)] {
        let target = if bench.quick {
            Target::None
        } else {
            Target::AtMost(at_most)
        };
        // Two states; each round goes to the one and back to the other.
        let step = tree.files / changed;
        let saved = |sandbox: &stepback_tests::Sandbox| {
            watched(sandbox, &tree.path);
            let saved = sandbox.stepback(&tree.path, &["save", "--json"]);
            saved.json()["id"].to_string()
        };
        let edit = |tree: &Tree| (0..changed).for_each(|n| tree.edit(n * step, (n + changed) as u64));
        let before = saved(sandbox);
        edit(tree);
        let after = saved(sandbox);
        sandbox.sh(
            &for_git.path,
            "git add -A && git commit -q --allow-empty -m before && git tag -f before",
        );
        edit(&for_git);
        sandbox.sh(
            &for_git.path,
            "git add -A && git commit -q -m after && git tag -f after",
        );
        let python = for_python.as_ref().and_then(|(bin, tree)| {
            let mut driven = Driven::stepback(sandbox, bin, &tree.path);
            let (_, before) = driven.checkpoint()?;
            // The first number is 1; where nothing differed from the last time, that one stands.
            let before = if before == 0 { 1 } else { before };
            edit(tree);
            let (_, after) = driven.checkpoint()?;
            (after != 0).then(|| (bin.join("stepback"), tree, [before, after]))
        });
        let [mut ours, mut git, mut by_python] = [const { Samples::of_none() }; 3];
        for round in 0..bench.rounds + 1 {
            let back = round % 2 == 0;
            // What was saved just now can't be trusted by its times: such a round isn't like the others.
            let counts = round > 0;
            let took = [
                run(stepback(bench, tree).args(["rewind", if back { &before } else { &after }, "-y"])),
                run(sandbox.command("git", &for_git.path).args([
                    "checkout",
                    "-q",
                    if back { "before" } else { "after" },
                ])),
            ];
            if counts {
                ours.push(took[0]);
                git.push(took[1]);
            }
            if let Some((program, tree, states)) = &python
                && changed <= 1_000
            {
                let id = states[usize::from(!back)].to_string();
                let took = run(sandbox.command(program, &tree.path).args(["rewind", &id, "-y"]));
                if counts {
                    by_python.push(took);
                }
            }
        }
        let work = format!(
            "rewind of {} files in {}, whole command",
            short(changed),
            short(tree.files)
        );
        let report = &mut bench.report;
        report.row(&work, Unit::Ms, &ours, Some(("git checkout", &git)), target);
        report.row(
            &work,
            Unit::Ms,
            &ours,
            Some(("Python stepback 0.2.0", &by_python)),
            Target::Faster(20.0),
        );
    }
}

fn stepback(bench: &Bench<'_>, tree: &Tree) -> Command {
    bench
        .sandbox
        .command(bench.sandbox.program("stepback"), &tree.path)
}
