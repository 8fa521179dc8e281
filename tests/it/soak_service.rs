//! Months of service in minutes: many roots, people who edit and ask at random, a daemon that is killed, ended and stopped
//! at random. At the end every root's checkpoint is what is on disk, and nothing has leaked.
//!
//! `STEPBACK_SECONDS`, `STEPBACK_ROOTS` and `STEPBACK_CLIENTS` make it longer and larger: `make soak-service`.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use stepback_tests::{
    Project, Random, Sandbox, anonymous_bytes, descriptors, eventually, pause, resident_bytes, watches,
};

use crate::support::{number_from, seconds};

const PATIENCE: Duration = Duration::from_secs(120);

/// What happened.
#[derive(Default)]
struct Figures {
    edits: AtomicU64,
    answers: AtomicU64,
    refusals: Mutex<BTreeMap<String, u64>>,
    wrong: Mutex<Vec<String>>,
    slowest_ms: AtomicU64,
    ends: Mutex<BTreeMap<&'static str, u64>>,
}

impl Figures {
    fn wrong(&self, what: String) {
        eprintln!("WRONG: {what}");
        self.wrong
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(what);
    }
}

/// Errors that are true while the daemon is killed and started.
const TRUE_ERRORS: [&str; 3] = ["daemon_unavailable", "busy", "unfinished"];

struct Tree<'a> {
    project: Project<'a>,
    /// Writers and rewinds take turns, so that both know what is on disk.
    turn: Mutex<u64>,
}

impl Tree<'_> {
    /// A few edits of every kind.
    fn edit(&self, random: &mut Random, figures: &Figures) {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..=random.below(8) {
            *turn += 1;
            let (dir, file) = (random.below(6), random.below(12));
            let dir = self.project.file(&format!("d{dir}"));
            let path = dir.join(format!("f{file}"));
            // What isn't there can't be removed; what is made is made with its directory.
            match random.below(10) {
                0 => drop(fs::remove_file(&path)),
                1 => drop(fs::remove_dir_all(&dir)),
                2 => drop(fs::rename(
                    &dir,
                    self.project.file(&format!("d{}", random.below(6))),
                )),
                3 => {
                    fs::create_dir_all(&dir).unwrap();
                    drop(fs::rename(&path, dir.join(format!("f{}", random.below(12)))));
                }
                _ => {
                    fs::create_dir_all(&dir).unwrap();
                    let text = format!("{} {}\n", *turn, "x".repeat(random.below(3000) as usize));
                    fs::write(&path, text).unwrap();
                }
            }
            figures.edits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Something that a client asks, and what is certain of the answer.
    fn ask(&self, random: &mut Random, figures: &Figures) {
        let began = Instant::now();
        let kind = random.below(20);
        let args: &[&str] = match kind {
            0..5 => &["status"],
            5..9 => &["list"],
            9..11 => &["roots"],
            11..13 => &["diff", "latest", "--name-status"],
            13..15 => &["show", "latest"],
            15..18 => &["save"],
            18 => &["rewind", "~2", "-y"],
            _ => &["redo", "-y"],
        };
        let writes = kind >= 15;
        let turn = writes.then(|| self.turn.lock().unwrap_or_else(PoisonError::into_inner));
        let done = self.project.stepback(&[&["--json"], args].concat());
        let (code, text) = (done.code(), done.text());
        let answer: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let what = format!(
            "{} `{}`: {code} {answer} {}",
            self.project.path.display(),
            args.join(" "),
            done.stderr
        );
        match code {
            0 | 3 if args[0] == "save" => {
                // Nobody else writes: the checkpoint is the tree.
                let n = answer["id"].as_u64().unwrap_or(0).to_string();
                let diff = self.project.stepback(&["--json", "diff", &n, "-w"]);
                let files =
                    serde_json::from_str::<serde_json::Value>(&diff.text()).unwrap_or_default()["files"]
                        .clone();
                if diff.code() == 0 && files.as_array().is_none_or(|files| !files.is_empty()) {
                    figures.wrong(format!("{what}: differs at once: {files}"));
                }
            }
            0 => {}
            3 => figures.wrong(format!("{what}: kept, though nobody else writes")),
            _ => {
                let kind = answer["error"]["kind"].as_str().unwrap_or("none").to_owned();
                let expected = TRUE_ERRORS.contains(&kind.as_str())
                    || (["redo", "rewind", "show", "diff"].contains(&args[0])
                        && ["nothing_to_redo", "no_such_checkpoint"].contains(&kind.as_str()));
                if !expected {
                    figures.wrong(what);
                }
                let mut refusals = figures.refusals.lock().unwrap_or_else(PoisonError::into_inner);
                *refusals.entry(kind).or_default() += 1;
            }
        }
        drop(turn);
        figures.answers.fetch_add(1, Ordering::Relaxed);
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        figures.slowest_ms.fetch_max(took, Ordering::Relaxed);
    }

    /// An operation that a kill interrupted is finished, as people are told to.
    fn recover(&self, figures: &Figures) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let done = self.project.stepback(&["--json", "recover"]);
        // What was edited since the kill is kept; one that is killed in turn says so.
        let expected =
            [0, 3].contains(&done.code()) || TRUE_ERRORS.iter().any(|kind| done.text().contains(kind));
        if !expected {
            figures.wrong(format!("recover: {} {}", done.text(), done.stderr));
        }
    }
}

/// Ends the daemon in one of the ways in which daemons end, and sees that there is one again.
fn disturb(sandbox: &Sandbox, random: &mut Random, figures: &Figures) {
    let Some(pid) = sandbox.daemon_pid() else { return };
    let way = match random.below(10) {
        0..4 => "kill -9",
        4..7 => "TERM",
        7..9 => "STOP for a while",
        _ => "restart",
    };
    // It may be ending already.
    match way {
        "kill -9" => {
            let _ = kill(pid, Signal::SIGKILL);
        }
        "TERM" => {
            let _ = kill(pid, Signal::SIGTERM);
        }
        "restart" => drop(sandbox.stepback(sandbox.dir(), &["daemon", "restart"])),
        _ => {
            let _ = kill(pid, Signal::SIGSTOP);
            pause(Duration::from_millis(random.below(3000)));
            let _ = kill(pid, Signal::SIGCONT);
        }
    }
    let mut ends = figures.ends.lock().unwrap_or_else(PoisonError::into_inner);
    *ends.entry(way).or_default() += 1;
}

#[test]
fn nothing_is_lost_nothing_leaks_and_no_answer_is_wrong() {
    let sandbox = Sandbox::alone();
    sandbox.configure("reconcile_minutes = 1\ncache_roots = 20\n");
    let (roots, clients) = (
        number_from("STEPBACK_ROOTS", 6),
        number_from("STEPBACK_CLIENTS", 4),
    );
    let length = Duration::from_secs(seconds(12));
    let trees: Vec<Tree<'_>> = (0..roots)
        .map(|n| {
            let project = sandbox.project(&format!("p{n}"));
            project.sh(
                "for d in 0 1 2 3; do mkdir d$d; for f in 0 1 2 3 4 5; do echo $d $f > d$d/f$f; done; done",
            );
            project.attach();
            Tree {
                project,
                turn: Mutex::new(0),
            }
        })
        .collect();
    let figures = Figures::default();
    let over = AtomicBool::new(false);
    let mut random = Random::new("soak");
    let seeds: Vec<u64> = (0..roots + clients).map(|_| random.next()).collect();
    let mut memory = Vec::new();
    thread::scope(|scope| {
        for (tree, seed) in trees.iter().zip(&seeds) {
            let (figures, over) = (&figures, &over);
            scope.spawn(move || {
                let mut random = Random::seeded(*seed);
                while !over.load(Ordering::Relaxed) {
                    tree.edit(&mut random, figures);
                    // Some type fast, all rest now and then.
                    let rest = if random.below(5) == 0 { 3000 } else { 400 };
                    pause(Duration::from_millis(random.below(rest)));
                }
            });
        }
        for seed in &seeds[trees.len()..] {
            let (figures, over, trees) = (&figures, &over, &trees);
            scope.spawn(move || {
                let mut random = Random::seeded(*seed);
                while !over.load(Ordering::Relaxed) {
                    let tree = &trees[random.below(trees.len() as u64) as usize];
                    tree.ask(&mut random, figures);
                    if random.below(40) == 0 {
                        tree.recover(figures);
                    }
                    pause(Duration::from_millis(random.below(200)));
                }
            });
        }
        let end = Instant::now() + length;
        let mut disturb_at = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            if Instant::now() >= disturb_at {
                disturb(&sandbox, &mut random, &figures);
                disturb_at = Instant::now() + Duration::from_millis(3000 + random.below(12_000));
            }
            if let Some(pid) = sandbox.daemon_pid()
                && fs::metadata(format!("/proc/{pid}/fd")).is_ok()
            {
                memory.push(trees[0].project.stepback(&["--json", "status"]));
            }
            pause(Duration::from_millis(900));
        }
        over.store(true, Ordering::Relaxed);
    });
    let highest = memory
        .iter()
        .filter_map(|done| serde_json::from_str::<serde_json::Value>(&done.text()).ok())
        .filter_map(|status| status["daemon"]["rss_bytes"].as_u64())
        .max()
        .unwrap_or(0);

    // All quiet: each root's newest checkpoint is its disk, by a reader that isn't ours, too.
    let mut missed = 0;
    let mut checkpoints = 0;
    for tree in &trees {
        tree.recover(&figures);
        tree.project.settle();
        let saved = tree.project.save();
        let before = tree.project.tree();
        let diff = tree.project.json(&["diff", &saved.to_string(), "-w"])["files"].clone();
        assert_eq!(diff, serde_json::json!([]), "{}", tree.project.path.display());
        let tree_id = tree.project.json(&["show", &saved.to_string()])["tree"].clone();
        let out = sandbox.dir().join("out");
        let script = format!(
            "rm -rf '{out}' && mkdir '{out}' && GIT_INDEX_FILE='{out}.index' git --git-dir='{store}' --work-tree='{out}' read-tree {tree} \
             && GIT_INDEX_FILE='{out}.index' git --git-dir='{store}' --work-tree='{out}' checkout-index -a \
             && files() {{ cd \"$1\" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum; }} \
             && files '{out}' > '{out}.one' && files '{here}' > '{out}.two' && cmp '{out}.one' '{out}.two'",
            out = out.display(),
            store = tree.project.store().display(),
            tree = tree_id.as_str().unwrap(),
            here = tree.project.path.display(),
        );
        sandbox.sh(sandbox.dir(), &script);
        let status = tree.project.status();
        assert!(
            status["unfinished"].is_null() && status["state"] == "watching",
            "{status:#}"
        );
        missed += status["missed"].as_u64().unwrap();
        checkpoints += status["checkpoints"].as_u64().unwrap();
        // The oldest state still comes back, and the newest after it.
        tree.project.rewind(1);
        tree.project.redo();
        before.same(&tree.project.tree(), "there and back");
        tree.project.fsck();
    }
    let pid = sandbox.daemon_pid().unwrap();
    let dirs: u64 = trees
        .iter()
        .map(|tree| tree.project.status()["watches"].as_u64().unwrap())
        .sum();
    println!(
        "{} s, {roots} roots, {clients} clients: {} edits, {} answers (slowest {} ms), {checkpoints} checkpoints, {missed} missed; \
         refused {:?}; ended {:?}; at most {} MiB resident, {} now, {} descriptors, {} watches",
        length.as_secs(),
        figures.edits.load(Ordering::Relaxed),
        figures.answers.load(Ordering::Relaxed),
        figures.slowest_ms.load(Ordering::Relaxed),
        figures.refusals.lock().unwrap(),
        figures.ends.lock().unwrap(),
        highest >> 20,
        resident_bytes(pid) >> 20,
        descriptors(pid).len(),
        watches(pid),
    );
    assert_eq!(*figures.wrong.lock().unwrap(), Vec::<String>::new());
    assert_eq!(missed, 0);
    assert_eq!(watches(pid) as u64, dirs + 1, "no watch is left over");
    let calm = |pid| descriptors(pid).len() as u64 <= 40 + 4 * roots;
    eventually("nothing stays open", PATIENCE, || calm(pid));
    assert!(anonymous_bytes(pid) < (200 << 20));
}
