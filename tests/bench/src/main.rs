//! Measures both programs, the engine and their peers side by side, and writes `BENCHMARKS.md`.
//!
//! `make bench` runs it. Everything is made below a temporary directory, each round does the same by all, one after
//! the other, and ratios are taken round by round: a machine that others use moves both.
//!
//! | variable | what |
//! |---|---|
//! | `QUICK=1` | a tenth of everything; writes nothing |
//! | `BIG=1` | also a tree of 1,000,000 files |
//! | `PYTHON=0` | without the Python peers, which take a minute to install |
//! | `ONLY=sizes,daemon,watching,client` | only these groups; writes nothing |

mod machine;
mod ours;
mod peers;
mod plot;
mod report;
mod rows;
mod samples;
mod tree;

use std::path::{Path, PathBuf};

use stepback_tests::Sandbox;

use crate::peers::Pythons;
use crate::report::Report;
use crate::rows::Bench;

/// The pictures: name, title, unit.
const PICTURES: [(&str, &str, &str); 6] = [
    ("checkpoint", "A checkpoint of one changed file", "ms"),
    (
        "quiet to listed",
        "From quiet to a listed checkpoint, through the daemon",
        "ms",
    ),
    ("scan", "A full scan without a change", "ms"),
    ("first capture", "The first capture", "ms"),
    (
        "start-up",
        "From the daemon's start until everything is watched",
        "ms",
    ),
    ("memory", "Resident memory of the daemon", "MiB"),
];

/// Files of the tree that `BIG=1` adds.
const HUGE: usize = 1_000_000;

/// Rounds of what takes long.
const ROUNDS: usize = 5;

fn main() {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    let quick = is_set("QUICK");
    let only = std::env::var("ONLY").unwrap_or_default();
    let wanted = |group: &str| only.is_empty() || only.split(',').any(|name| name == group);
    let sizes: &[usize] = if quick {
        &[1_000, 10_000]
    } else {
        &[1_000, 10_000, 100_000]
    };
    let ignored_dirs = if quick { 1_000 } else { 20_000 };
    let sandbox = Sandbox::new();
    let mut report = Report::default();
    let pythons = match std::env::var("PYTHON").as_deref() {
        Ok("0") => Pythons::none(&mut report),
        _ => Pythons::install(&sandbox, &mut report),
    };
    let mut bench = Bench {
        sandbox: &sandbox,
        report,
        pythons,
        rounds: ROUNDS,
        quick,
    };
    if wanted("client") {
        rows::client::measure(&mut bench);
        rows::hook::measure(&mut bench);
    }
    let mut medians = Vec::new();
    if wanted("sizes") {
        rows::sizes::measure(&mut bench, sizes, ignored_dirs, &mut medians);
    }
    if wanted("daemon") {
        rows::daemon::measure(&mut bench, sizes, ignored_dirs);
    }
    if wanted("watching") {
        rows::daemon::watching(&mut bench);
    }
    let is_whole = !quick && only.is_empty();
    if is_whole {
        write(&bench.report, &top());
    }
    // Last, as it takes as long as all else; what was measured before is written by then.
    if is_set("BIG") {
        if wanted("sizes") {
            rows::sizes::measure(&mut bench, &[HUGE], ignored_dirs, &mut medians);
        }
        if wanted("daemon") {
            rows::daemon::measure(&mut bench, &[HUGE], ignored_dirs);
        }
        if is_whole {
            write(&bench.report, &top());
        }
    }
    println!("\n{}", bench.report.markdown());
    tree::delete_removed();
}

fn top() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("two levels down").to_owned()
}

/// `BENCHMARKS.md`, and its pictures beside it.
fn write(report: &Report, top: &Path) {
    let pictures = top.join("tests/bench/pictures");
    std::fs::create_dir_all(&pictures).expect("the source tree can be written");
    let mut text = String::from(HEAD);
    for line in machine::lines(top) {
        text.push_str(&format!("- {line}\n"));
    }
    for note in &report.notes {
        text.push_str(&format!("- {note}\n"));
    }
    text.push('\n');
    text.push_str(&report.markdown());
    text.push_str("\n## How the cost grows\n\n");
    for (name, title, unit) in PICTURES {
        let lines: Vec<_> = report.lines.iter().filter(|line| line.picture == name).collect();
        if lines.is_empty() {
            continue;
        }
        let file = format!("{}.svg", name.replace(' ', "-"));
        std::fs::write(pictures.join(&file), plot::svg(title, unit, &lines)).expect("own file");
        text.push_str(&format!("![{title}](tests/bench/pictures/{file})\n\n"));
    }
    text.push_str(include_str!("explained.md"));
    std::fs::write(top.join("BENCHMARKS.md"), text).expect("own file");
}

const HEAD: &str = "# Benchmarks\n\nWritten by `make bench`: don't edit. Each row was measured in one run, ours and the other \
    one after the other in each round; shown are medians with the least and the greatest, and the median of the ratios \
    of the rounds. A checkpoint is durable when it counts; git's objects and working files are not.\n\n";
