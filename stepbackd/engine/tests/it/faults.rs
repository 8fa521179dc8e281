//! Whole operations of the engine, each in a process of its own that is killed or refused at every fault point in turn.
//! Afterwards: the old state or the new one, every listed checkpoint whole, and the next attempt works.
//!
//! `STEPBACK_FAULT_EVERY=N` tries every N-th point, with one kind of fault each in turn; 1 tries every point with all.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use stepback_engine::checkpoint::Trigger;
use stepback_engine::engine::{Context, Engine, Operation, Scope, Select, Why};
use stepback_engine::path::TreePath;
use stepback_engine::progress::Progress;
use stepback_engine::tree::NoWatch;

use crate::support::{Picture, Sandbox, environment_of};

pub const BASE: &str = "STEPBACK_TEST_BASE";
pub const STORE: &str = "STEPBACK_TEST_STORE";
pub const ROOT: &str = "STEPBACK_TEST_ROOT";
pub const WORK: &str = "STEPBACK_TEST_WORK";
/// Set: after an error the same engine tries again.
const AGAIN: &str = "STEPBACK_TEST_AGAIN";
const ACTIONS: [&str; 4] = ["kill", "eio", "enospc", "eacces"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Capture,
    Rewind,
    Redo,
    Restore,
    Revert,
    Recover,
    Undo,
}

impl Work {
    const ALL: [Self; 7] = [
        Self::Capture,
        Self::Rewind,
        Self::Redo,
        Self::Restore,
        Self::Revert,
        Self::Recover,
        Self::Undo,
    ];

    fn named(name: &str) -> Self {
        Self::ALL
            .into_iter()
            .find(|work| format!("{work:?}") == name)
            .unwrap()
    }

    fn operation(self) -> Option<Operation> {
        match self {
            Self::Rewind => Some(Operation::Rewind(Some(Select::Number(1)))),
            Self::Redo => Some(Operation::Redo),
            Self::Restore => {
                let paths = ["d", "gone"].map(|path| TreePath::new(path.as_bytes()).unwrap());
                Some(Operation::Restore(Select::Number(1), paths.to_vec()))
            }
            Self::Revert => Some(Operation::Revert("s".into())),
            Self::Capture | Self::Recover | Self::Undo => None,
        }
    }

    fn run(self, engine: &mut Engine, cx: &Context<'_>) -> stepback_engine::Result<()> {
        match self {
            Self::Capture => engine
                .capture(Scope::All, &Why::plain(Trigger::Save), cx)
                .map(drop),
            Self::Recover => engine.recover(false, cx).map(drop),
            Self::Undo => engine.recover(true, cx).map(drop),
            Self::Rewind | Self::Redo | Self::Restore | Self::Revert => {
                let operation = self.operation().expect("it is one");
                engine.execute(&operation, None, cx).map(drop)
            }
        }
    }
}

/// Not a test of its own: what the child processes of the others run.
#[test]
fn child() {
    let Some(base) = std::env::var_os(BASE) else {
        return;
    };
    let work = Work::named(&std::env::var(WORK).unwrap());
    let (store, root) = (std::env::var_os(STORE).unwrap(), std::env::var(ROOT).unwrap());
    let env = environment_of(Path::new(&base));
    let progress = Progress::default();
    let cx = Context {
        now: Sandbox::now(),
        watch: &NoWatch,
        progress: &progress,
    };
    let opened = Engine::open(&env, Path::new(&store), &root, &Sandbox::settings());
    let tell = |error: &stepback_engine::Error| eprintln!("ERROR {error}\nHINT {}", error.hint());
    let mut engine = match opened {
        Ok(engine) => engine,
        Err(error) => {
            tell(&error);
            std::process::exit(9);
        }
    };
    let mut code = 0;
    if let Err(error) = work.run(&mut engine, &cx) {
        tell(&error);
        code = 9;
        if std::env::var_os(AGAIN).is_some() {
            let next = if engine.unfinished().unwrap().is_some() {
                Work::Recover
            } else {
                work
            };
            code = 0;
            match next.run(&mut engine, &cx) {
                Ok(()) => {}
                // It was done, and only clearing up failed.
                Err(stepback_engine::Error::NothingToRedo) => {}
                Err(error) => {
                    eprintln!("AGAIN {error}");
                    code = 10;
                }
            }
        }
    }
    std::process::exit(code);
}

/// A root about to be worked on, and what it is before and after.
struct Scene {
    sandbox: Sandbox,
    work: Work,
    old: Picture,
    new: Picture,
}

fn fill(sandbox: &Sandbox, version: u32) {
    let text = format!("v{version}\n");
    for name in ["a", "d/x", "d/y", "ignored-by-v3"] {
        sandbox.write(name, &text);
    }
    let root = sandbox.root();
    let _ = fs::remove_file(root.join("link"));
    std::os::unix::fs::symlink(&text, root.join("link")).unwrap();
    match version {
        1 => {
            sandbox.write("gone", "gone\n");
            sandbox.write("to-dir", "a file\n");
            sandbox.write("to-file/deep/z", "z\n");
            fs::create_dir(root.join("empty")).unwrap();
        }
        2 => {
            fs::remove_file(root.join("gone")).unwrap();
            fs::remove_file(root.join("to-dir")).unwrap();
            fs::remove_dir_all(root.join("to-file")).unwrap();
            fs::remove_dir(root.join("empty")).unwrap();
            sandbox.write("to-dir/in", "in\n");
            sandbox.write("to-file", "a file\n");
            sandbox.write("made/here", "made\n");
        }
        _ => sandbox.write(".gitignore", "ignored-by-v3\n"),
    }
}

impl Scene {
    fn new(work: Work) -> Self {
        let mut sandbox = Sandbox::new();
        fill(&sandbox, 1);
        sandbox.attach();
        let v1 = sandbox.picture();
        sandbox
            .on(|engine, cx| engine.session_start(Some("s"), None, None, cx).map(drop))
            .unwrap();
        fill(&sandbox, 2);
        sandbox.capture();
        // What a rewind has to save first, and an ignored file in its way.
        fill(&sandbox, 3);
        let v3 = sandbox.picture();
        let mut scene = Self {
            sandbox,
            work,
            old: v3.clone(),
            new: v1,
        };
        match work {
            Work::Capture => scene.new = v3,
            Work::Rewind | Work::Revert => {}
            Work::Restore => {
                scene.new = v3;
                for path in [&b"d/x"[..], b"d/y", b"gone"] {
                    let entry = (
                        'f',
                        0o644,
                        if path == b"gone" {
                            b"gone\n".to_vec()
                        } else {
                            b"v1\n".to_vec()
                        },
                    );
                    scene.new.insert(path.to_vec(), entry);
                }
            }
            Work::Redo => {
                scene.sandbox.rewind(1);
                // Saved by nothing yet, and in the way of nothing.
                scene.sandbox.write("later", "later\n");
                scene.old = scene.sandbox.picture();
                scene.new = v3;
                scene
                    .new
                    .insert(b"later".to_vec(), ('f', 0o644, b"later\n".to_vec()));
            }
            Work::Recover | Work::Undo => {
                scene.work = Work::Rewind;
                let killed = scene.child(&[("STEPBACK_FAULT", "apply.exchange:3:kill")]);
                assert_eq!(killed.status.code(), None);
                scene.work = work;
                scene.sandbox.reopen(false);
                assert!(scene.sandbox.engine().unfinished().unwrap().is_some());
            }
        }
        scene
    }

    fn child(&mut self, env: &[(&str, &str)]) -> Output {
        let engine = self.sandbox.engine.take().unwrap();
        let (store, id) = (engine.store_path().to_owned(), engine.id().to_owned());
        drop(engine);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "faults::child", "--nocapture", "--test-threads=1"])
            .env_remove("STEPBACK_FAULT")
            .env_remove("STEPBACK_FAULT_LOG")
            .env(BASE, self.sandbox.path())
            .env(STORE, &store)
            .env(ROOT, &id)
            .env(WORK, format!("{:?}", self.work))
            .envs(env.iter().copied());
        let output = command.output().unwrap();
        let settings = Sandbox::settings();
        let engine = Engine::open(&self.sandbox.environment(), &store, &id, &settings);
        self.sandbox.engine =
            Some(engine.unwrap_or_else(|e| panic!("{env:?}: the root can't be opened: {e}")));
        output
    }

    /// What the work leads to.
    fn result(&self) -> &Picture {
        if self.work == Work::Undo {
            &self.old
        } else {
            &self.new
        }
    }

    fn unfinished(&mut self) -> bool {
        self.sandbox.engine().unfinished().unwrap().is_some()
    }

    /// Every checkpoint that is listed is whole, and git says so, too.
    fn assert_store(&mut self, at_least: u64, what: &str) {
        let engine = self.sandbox.engine();
        let findings = engine.verify().unwrap();
        assert!(findings.is_empty(), "{what}: {findings:?}");
        let all: Vec<u64> = engine.checkpoints().iter().map(|c| c.n).collect();
        assert!(all.iter().max() >= Some(&at_least), "{what}: {all:?}");
        for n in 1..=at_least {
            assert!(all.contains(&n), "{what}: {n} is gone from {all:?}");
        }
        for n in all {
            engine.write_tar(n, &mut std::io::sink()).unwrap();
        }
        let fsck = Command::new("git")
            .arg("--git-dir")
            .arg(self.sandbox.engine().store_path())
            .args(["fsck", "--connectivity-only", "--no-dangling"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&fsck.stderr);
        let bad: Vec<&str> = said
            .lines()
            .filter(|l| l.starts_with("error") || l.starts_with("missing"))
            .collect();
        assert!(fsck.status.success() && bad.is_empty(), "{what}: {said}");
    }

    fn differs(&self, wanted: &Picture) -> Vec<String> {
        let now = self.sandbox.picture();
        let paths = now.keys().chain(wanted.keys());
        let other = paths.filter(|path| now.get(*path) != wanted.get(*path));
        other
            .map(|path| String::from_utf8_lossy(path).into_owned())
            .collect()
    }

    #[track_caller]
    fn assert_is(&self, wanted: &Picture, what: &str) {
        let differs = self.differs(wanted);
        assert!(differs.is_empty(), "{what}: {differs:?}");
    }

    /// Does the work here, where nothing fails.
    fn work_again(&mut self, what: &str) {
        let work = self.work;
        let done = self.sandbox.on(|engine, cx| work.run(engine, cx));
        done.unwrap_or_else(|e| panic!("{what}: the next attempt fails: {e}"));
    }
}

/// The points that the work passes, in order, each with the number of its passing.
fn points(work: Work) -> Vec<String> {
    let mut scene = Scene::new(work);
    let log = scene.sandbox.path().join("points.log");
    let done = scene.child(&[("STEPBACK_FAULT_LOG", log.to_str().unwrap())]);
    assert!(done.status.success(), "{done:?}");
    scene.assert_is(scene.result(), &format!("{work:?} without a fault"));
    numbered(&log)
}

/// The points in a log, each with the number of its passing.
pub fn numbered(log: &Path) -> Vec<String> {
    let mut counts = std::collections::BTreeMap::new();
    let text = fs::read_to_string(log).unwrap();
    text.lines()
        .map(|name| {
            let count = counts.entry(name).and_modify(|count| *count += 1).or_insert(1);
            format!("{name}:{count}")
        })
        .collect()
}

fn one(work: Work, point: &str, action: &str, undo: bool, again: bool) {
    let what = format!("{work:?} {point}:{action}");
    let mut scene = Scene::new(work);
    let before: u64 = scene
        .sandbox
        .engine()
        .checkpoints()
        .iter()
        .map(|c| c.n)
        .max()
        .unwrap();
    let fault = format!("{point}:{action}");
    let mut env = vec![("STEPBACK_FAULT", fault.as_str())];
    // An undo that failed can't be tried again in this way: to recover, there, is to finish.
    let again = again && work != Work::Undo;
    if again {
        env.push((AGAIN, "1"));
    }
    let output = scene.child(&env);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        // Killed. What is left of a killed process may be anything but half a state.
        None => assert_eq!(action, "kill", "{what}"),
        Some(0) => {
            // The point wasn't reached this time, or the work goes on without what failed.
            assert!(!scene.unfinished(), "{what}: success, and unfinished");
            scene.assert_is(scene.result(), &what);
        }
        Some(9) => {
            let error = said.lines().find_map(|line| line.strip_prefix("ERROR ")).unwrap();
            let hint = said.lines().find_map(|line| line.strip_prefix("HINT ")).unwrap();
            let cause = ["os error 5)", "os error 28)", "os error 13)"];
            assert!(
                cause.iter().any(|cause| error.contains(cause)) && error.contains('/'),
                "{what}: neither cause nor path in: {error}"
            );
            assert!(
                !hint.is_empty(),
                "{what}: says what is wrong and not what to do: {error}"
            );
        }
        Some(code) => panic!("{what}: exit code {code}: {output:?}"),
    }
    scene.assert_store(before, &what);
    if scene.unfinished() {
        assert_ne!(work, Work::Capture, "{what}");
        let refused = scene.sandbox.execute(&Operation::Rewind(Some(Select::Number(1))));
        assert!(refused.is_err(), "{what}: an operation over an unfinished one");
        let recovered = scene.sandbox.on(|engine, cx| engine.recover(undo, cx)).unwrap();
        assert!(recovered.kept.is_empty(), "{what}: {:?}", recovered.kept);
        scene.assert_is(if undo { &scene.old } else { &scene.new }, &what);
    } else if matches!(work, Work::Recover | Work::Undo) {
        scene.assert_is(scene.result(), &what);
    }
    let is_new = scene.differs(&scene.new).is_empty();
    if !is_new {
        scene.assert_is(&scene.old, &what);
    }
    match work {
        Work::Recover | Work::Undo if is_new => {}
        Work::Recover | Work::Undo => return,
        Work::Capture => scene.work_again(&what),
        _ if is_new => {}
        _ => scene.work_again(&what),
    }
    scene.assert_is(&scene.new, &format!("{what}, and again"));
    if work == Work::Capture {
        let n = scene.sandbox.engine().current().unwrap();
        assert!(n > before, "{what}: no checkpoint of the present");
    } else if work != Work::Redo {
        scene
            .sandbox
            .execute(&Operation::Redo)
            .unwrap_or_else(|e| panic!("{what}: no redo: {e}"));
        scene.assert_is(&scene.old, &format!("{what}, after redo"));
    }
    scene.assert_store(before, &what);
    let left = scene
        .sandbox
        .picture()
        .into_keys()
        .find(|path| path.windows(10).any(|w| w == b".stepback-"));
    assert_eq!(left, None, "{what}");
}

/// Of the points so many are passed over to the next that is tried: `STEPBACK_FAULT_EVERY`, else this.
pub fn every(otherwise: usize) -> usize {
    let every = std::env::var("STEPBACK_FAULT_EVERY");
    every.ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
}

fn walk(work: Work) {
    let every = every(3);
    let points = points(work);
    assert!(points.len() > 10, "{points:?}");
    let mut runs = 0;
    for (i, point) in points.iter().enumerate().step_by(every) {
        let turn = &ACTIONS[i % 4..=i % 4];
        for action in if every == 1 { &ACTIONS[..] } else { turn } {
            one(work, point, action, runs % 2 == 0, (runs / 2) % 2 == 0);
            runs += 1;
        }
    }
    println!("{work:?}: {} points, {runs} runs", points.len());
}

#[test]
fn capture_is_whole_or_absent_at_any_fault() {
    walk(Work::Capture);
}

#[test]
fn rewind_is_one_of_both_states_at_any_fault() {
    walk(Work::Rewind);
}

#[test]
fn redo_is_one_of_both_states_at_any_fault() {
    walk(Work::Redo);
}

#[test]
fn restore_is_one_of_both_states_at_any_fault() {
    walk(Work::Restore);
}

#[test]
fn session_revert_is_one_of_both_states_at_any_fault() {
    walk(Work::Revert);
}

#[test]
fn recover_may_fail_at_any_point_and_be_called_again() {
    walk(Work::Recover);
}

#[test]
fn recover_undo_may_fail_at_any_point_and_be_called_again() {
    walk(Work::Undo);
}

/// What is below the root that is ours.
fn temporaries(picture: &Picture) -> Vec<String> {
    let names = picture
        .keys()
        .map(|path| String::from_utf8_lossy(path).into_owned());
    names.filter(|name| name.contains(".stepback-tmp-")).collect()
}

#[test]
fn what_a_kill_without_a_journal_leaves_is_cleared_and_only_strange_bytes_stay() {
    for (at, damaged) in [(1, true), (3, false), (3, true), (4, false)] {
        let mut scene = Scene::new(Work::Rewind);
        let killed = scene.child(&[("STEPBACK_FAULT", &format!("apply.exchange:{at}:kill"))]);
        assert_eq!(killed.status.code(), None);
        scene.sandbox.reopen(false);
        let engine = scene.sandbox.engine();
        let journal = engine
            .store_path()
            .join(format!("stepback/{}/journal", engine.id()));
        if damaged {
            fs::write(&journal, "garbage").unwrap();
        } else {
            fs::remove_file(&journal).unwrap();
        }
        let left = temporaries(&scene.sandbox.picture());
        assert!(left.len() > 1, "{left:?}");
        let strange = format!("{}/99", left[0]);
        scene.sandbox.write(&strange, "in no checkpoint\n");
        if !damaged {
            let met = scene.sandbox.rewind(3);
            let words = met.kept.iter().map(|kept| kept.reason.as_str());
            assert!(
                words.clone().any(|it| it.contains("`stepback recover`")),
                "{met:?}"
            );
        }

        let recovered = scene.sandbox.on(|engine, cx| engine.recover(false, cx)).unwrap();
        assert_eq!(recovered.kept.len(), 1, "{recovered:?}");
        assert!(recovered.kept[0].reason.contains("99 in it"), "{recovered:?}");
        assert_eq!(
            temporaries(&scene.sandbox.picture()),
            [left[0].clone(), strange.clone()]
        );

        fs::remove_file(scene.sandbox.root().join(&strange)).unwrap();
        scene.sandbox.capture_as(&Why::plain(Trigger::Attach)).unwrap();
        assert_eq!(temporaries(&scene.sandbox.picture()), [""; 0]);
        assert!(scene.sandbox.engine().not_captured(None).unwrap().is_empty());
        let new = scene.new.clone();
        let report = scene.sandbox.rewind(1);
        assert!(report.kept.is_empty(), "{report:?}");
        scene.assert_is(&new, "rewound");
        // That checkpoint was made while the directory lay there.
        let report = scene.sandbox.rewind(3);
        assert!(report.kept.is_empty(), "{report:?}");
        scene.assert_store(3, "cleared");
    }
}
