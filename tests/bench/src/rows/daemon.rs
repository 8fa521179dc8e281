//! The daemon on trees of several sizes: latency, memory, start-up, storms and bursts.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use notify::{RecursiveMode, Watcher};
use stepback_proto::{Hook, HookEvent, Tool, Verb};
use stepback_tests::{Random, eventually, pause, used};

use super::{Bench, rewind, short};
use crate::ours::{Asked, memory, watched};
use crate::peers::{GitShadow, run};
use crate::report::{Target, Unit};
use crate::samples::{Samples, timed};
use crate::tree::{self, Tree, text};

/// What the daemon is told to wait for quiet, so that many rounds take little time.
const SETTLE_MS: u64 = 30;
/// How long the daemon is watched doing nothing.
const IDLE: Duration = Duration::from_secs(10);

/// All of it, on each size; the long ones on the largest that isn't huge.
pub fn measure(bench: &mut Bench<'_>, sizes: &[usize], ignored_dirs: usize) {
    let long = bench.scaled(100_000);
    for files in sizes {
        let tree = Tree::make(bench.sandbox, &format!("d{files}"), *files, ignored_dirs);
        on(bench, &tree, *files == long);
        tree::remove(&tree.path);
    }
}

fn on(bench: &mut Bench<'_>, tree: &Tree, long: bool) {
    let (sandbox, files, size) = (bench.sandbox, tree.files, short(tree.files));
    sandbox.configure(&format!("settle_ms = {SETTLE_MS}\nreconcile_minutes = 0\n"));
    let daemon = sandbox.daemon();
    let attach: &[&str] = &["attach", "--force"];
    sandbox.stepback(&tree.path, attach).exits(0);
    watched(sandbox, &tree.path);
    let pid = daemon.pid();
    sandbox.wait_until_idle(pid);
    let after_attach = memory(pid);
    let allowed = (files * 100) as f64 / f64::from(1 << 20) + 20.0;
    let report = &mut bench.report;
    report.row(
        format!("daemon's memory at rest, {size} files attached"),
        Unit::MiB,
        &after_attach,
        None,
        Target::Below(allowed),
    );
    let target = if long { Target::P99(10.0) } else { Target::None };
    let latency = latency(bench, tree);
    bench.report.row(
        format!("from quiet to listed, {size} files"),
        Unit::Ms,
        &latency,
        None,
        target,
    );
    bench.report.point("quiet to listed", "stepback", files, &latency);
    let asked = before_a_command(bench, tree);
    let target = if long { Target::Below(5.0) } else { Target::None };
    bench.report.row(
        format!("checkpoint that an agent's hook waits for, {size} files"),
        Unit::Ms,
        &asked,
        None,
        target,
    );
    if long {
        idle(bench, pid, &size);
        rewind::measure(bench, tree);
        storm(bench, tree, pid);
        burst(bench, tree);
        sandbox.wait_until_idle(pid);
        let memory = memory(pid);
        bench.report.row(
            format!("daemon's memory at rest after all of this, {size} files"),
            Unit::MiB,
            &memory,
            None,
            Target::Below(allowed),
        );
    }
    sandbox.stepback(&tree.path, &["daemon", "stop"]).exits(0);
    drop(daemon);
    let (daemon, started) = timed(|| {
        let daemon = sandbox.daemon();
        watched(sandbox, &tree.path);
        daemon
    });
    let memory = memory(daemon.pid());
    let report = &mut bench.report;
    report.row(
        format!("start of the daemon until {size} files are watched"),
        Unit::Ms,
        &Samples::of(started),
        None,
        Target::None,
    );
    report.row(
        format!("daemon's memory after a start, {size} files"),
        Unit::MiB,
        &memory,
        None,
        Target::Below(allowed),
    );
    report.point("start-up", "stepback", files, &Samples::of(started));
    report.point("memory", "stepback", files, &memory);
    sandbox.stepback(&tree.path, &["daemon", "stop"]).exits(0);
    drop(daemon);
    tree::remove(&sandbox.state());
}

/// One edit at a time: from the end of the settle time to the word of the checkpoint.
fn latency(bench: &Bench<'_>, tree: &Tree) -> Samples {
    let mut follow = Asked::send(bench.sandbox, &tree.path, Verb::Watch).expect("the daemon runs");
    let mut samples = Samples::default();
    let rounds = if bench.quick { 20 } else { 200 };
    for round in 0..rounds {
        let edited = Instant::now();
        tree.edit((round * 104_729 + 7) % tree.files, round as u64 + 99);
        let (_, told) = follow.checkpoint();
        samples.push(told.duration_since(edited).as_secs_f64() * 1000.0 - SETTLE_MS as f64);
    }
    samples
}

/// A hook before a command that may destroy work, right after an edit: everything until now is captured, by what events
/// told, and only then answered.
fn before_a_command(bench: &Bench<'_>, tree: &Tree) -> Samples {
    let mut samples = Samples::default();
    let rounds = if bench.quick { 20 } else { 50 };
    for round in 0..rounds {
        watched(bench.sandbox, &tree.path);
        let tool = Tool {
            name: "Bash".into(),
            edits: Vec::new(),
            destructive: true,
            writes: true,
        };
        let hook = Hook {
            agent: "claude-code".into(),
            session: "bench".into(),
            transcript: None,
            pid: None,
            event: HookEvent::ToolStart(tool),
        };
        tree.edit((round * 15_485_863 + 11) % tree.files, round as u64 + 7_777);
        let (_, took) = timed(|| {
            let asked = Asked::send(bench.sandbox, &tree.path, Verb::Hook(Box::new(hook)));
            asked.and_then(Asked::end).expect("the daemon runs")
        });
        samples.push(took);
    }
    samples
}

fn idle(bench: &mut Bench<'_>, pid: Pid, size: &str) {
    // What a first capture leaves to be packed is.
    bench.sandbox.wait_until_idle(pid);
    let before = used(pid);
    pause(IDLE);
    let after = used(pid);
    let work = format!(
        "wake-ups of the idle daemon in {} s, {size} files",
        IDLE.as_secs()
    );
    bench.report.row(
        work,
        Unit::Count,
        &Samples::of(after.wakes_since(&before) as f64),
        None,
        Target::Below(2.0),
    );
}

/// A build that writes into an ignored directory.
fn storm(bench: &mut Bench<'_>, tree: &Tree, pid: Pid) {
    let files = bench.scaled(50_000);
    let before = (used(pid), checkpoints(bench, &tree.path));
    let dir = tree.path.join("build");
    for file in 0..files {
        let dir = dir.join((file / 100).to_string());
        if file % 100 == 0 {
            fs::create_dir_all(&dir).expect("own directory");
        }
        fs::write(dir.join(file.to_string()), b"object").expect("own file");
    }
    watched(bench.sandbox, &tree.path);
    let after = (used(pid), checkpoints(bench, &tree.path));
    assert_eq!(before.1, after.1, "nothing that is captured changed");
    let work = format!(
        "daemon's processor time while {} files are written into ignored directories",
        short(files)
    );
    let took = Samples::of((after.0.ticks - before.0.ticks) as f64 * 10.0);
    bench.report.row(work, Unit::Ms, &took, None, Target::Below(20.0));
    tree::remove(&dir);
}

fn checkpoints(bench: &Bench<'_>, place: &Path) -> u64 {
    let status = watched(bench.sandbox, place);
    status.root.map_or(0, |root| root.checkpoints)
}

/// Many new files at once: until a checkpoint has them all.
fn burst(bench: &mut Bench<'_>, tree: &Tree) {
    let (sandbox, files) = (bench.sandbox, bench.scaled(20_000));
    let [mut ours, mut git, mut made] = [const { Samples::of_none() }; 3];
    let dir = tree.path.join("burst");
    for round in 0..bench.rounds {
        let before = checkpoints(bench, &tree.path);
        let mut random = Random::seeded(round as u64 + 1_000_000);
        for file in 0..files {
            let dir = dir.join((file % 500).to_string());
            fs::create_dir_all(&dir).expect("own directory");
            fs::write(dir.join(file.to_string()), text(&mut random, 2048)).expect("own file");
        }
        let written = Instant::now();
        let count = files as u64 + tree.files as u64 + 1;
        eventually("the burst is captured", Duration::from_secs(120), || {
            let status = crate::ours::status(sandbox, &tree.path);
            status
                .and_then(|status| status.root)
                .is_some_and(|root| root.files == count && root.settled == Some(true))
        });
        ours.push(written.elapsed().as_secs_f64() * 1000.0 - SETTLE_MS as f64);
        made.push((checkpoints(bench, &tree.path) - before) as f64);
        let only = Tree {
            path: dir.clone(),
            files,
        };
        let shadow = GitShadow::make(sandbox, &only, "burst");
        git.push(shadow.add());
        tree::remove(&sandbox.dir().join("tmp/burst.git"));
        tree::remove(&dir);
        eventually("the burst is gone", Duration::from_secs(120), || {
            let status = crate::ours::status(sandbox, &tree.path);
            status
                .and_then(|status| status.root)
                .is_some_and(|root| root.files == tree.files as u64 + 1 && root.settled == Some(true))
        });
    }
    let work = format!(
        "{} new files in 500 new directories, from the last write to the checkpoint",
        short(files)
    );
    bench.report.row(
        work,
        Unit::Ms,
        &ours,
        Some(("git add of them", &git)),
        Target::AtMost(2.0),
    );
    bench.report.row(
        "... checkpoints made of them",
        Unit::Count,
        &made,
        None,
        Target::Below(10.0),
    );
}

/// Watches on many directories, by us and by the crate that we use, left to itself.
pub fn watching(bench: &mut Bench<'_>) {
    let sandbox = bench.sandbox;
    let dirs = bench.scaled(100_000);
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_user_watches")
        .ok()
        .and_then(|text| text.trim().parse::<usize>().ok())
        .unwrap_or(0);
    if limit < dirs + 1_000 {
        bench.report.note(format!(
            "watching {} directories was left out: the limit of watches is {limit}",
            short(dirs)
        ));
        return;
    }
    let path = sandbox.dir().join("work/directories");
    for dir in 0..dirs {
        fs::create_dir_all(path.join(format!("{}/{}/{dir}", dir / 10_000, dir / 100 % 100)))
            .expect("own directory");
    }
    let (mut ours, mut by_notify) = (Samples::default(), Samples::default());
    let mut watches = 0;
    for _ in 0..bench.rounds {
        let daemon = sandbox.daemon();
        let (_, took) = timed(|| sandbox.stepback(&path, &["attach", "--here", "--force"]).exits(0));
        ours.push(took);
        watches = watched(sandbox, &path).root.map_or(0, |root| root.watches);
        sandbox.stepback(&path, &["daemon", "stop"]).exits(0);
        drop(daemon);
        tree::remove(&sandbox.state());
        let (_, took) = timed(|| {
            let mut watcher = notify::recommended_watcher(|_| {}).expect("a watcher");
            watcher
                .watch(&path, RecursiveMode::Recursive)
                .expect("watches enough");
        });
        by_notify.push(took);
    }
    let work = format!(
        "attach of {} directories, scan and checkpoint included ({watches} watches)",
        short(dirs)
    );
    bench.report.row(
        work,
        Unit::Ms,
        &ours,
        Some(("notify's recursive watch and its end", &by_notify)),
        Target::AtMost(0.7),
    );
    tree::remove(&path);
    run(&mut sandbox.command("true", sandbox.dir()));
}
