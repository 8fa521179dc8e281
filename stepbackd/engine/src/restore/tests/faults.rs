//! Operations in a process of their own: killed or refused at each fault point in turn, or run as another user.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::support::*;
use crate::restore::{Plan, decode_plan, encode_plan};

const BASE: &str = "STEPBACK_TEST_BASE";
const WORK: &str = "STEPBACK_TEST_WORK";

/// Not a test of its own: what the child processes of the others run.
#[test]
fn child() {
    let Some(base) = std::env::var_os(BASE) else {
        return;
    };
    let bench = Bench::reopen(Path::new(&base));
    let worked = match std::env::var(WORK).as_deref() {
        Ok("apply") => {
            let plan = fs::read(Path::new(&base).join("plan.json")).unwrap();
            let plan = decode_plan(serde_json::from_slice(&plan).unwrap()).unwrap();
            bench.apply(&plan).map(|_| ())
        }
        Ok("undo") => bench.recover(true).map(|_| ()),
        _ => bench.recover(false).map(|_| ()),
    };
    if let Err(error) = worked {
        eprintln!("{error}");
        std::process::exit(1);
    }
    std::process::exit(0);
}

fn command(bench: &Bench, work: &str) -> Command {
    // By this name another user can execute it, too, when a directory above it is closed to them.
    let program = if cfg!(target_os = "linux") {
        "/proc/self/exe".into()
    } else {
        std::env::current_exe().unwrap()
    };
    let mut command = Command::new(program);
    command.args([
        "--exact",
        "restore::tests::faults::child",
        "--nocapture",
        "--test-threads=1",
    ]);
    command.env(BASE, bench.root.parent().unwrap()).env(WORK, work);
    command
        .env_remove("STEPBACK_FAULT")
        .env_remove("STEPBACK_FAULT_LOG");
    command
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    command
}

fn save_plan(bench: &Bench, plan: &Plan) {
    let json = serde_json::to_vec(&encode_plan(plan).unwrap()).unwrap();
    fs::write(bench.root.parent().unwrap().join("plan.json"), json).unwrap();
}

/// A user who may not do everything.
pub(super) struct User(u32);

impl User {
    pub fn nobody() -> Self {
        Self(65534)
    }

    /// Gives root and store to the user. `false`: we may not.
    pub fn own(&self, bench: &Bench) -> bool {
        if !is_root() {
            return false;
        }
        let base = bench.root.parent().unwrap();
        let owner = format!("{}:{}", self.0, self.0);
        Command::new("chown")
            .args(["-R", &owner])
            .arg(base)
            .status()
            .is_ok_and(|status| status.success())
    }

    /// Whether it worked; `None` when it can't be tried.
    pub fn apply(&self, bench: &Bench, plan: &Plan) -> Option<bool> {
        self.own(bench).then(|| self.apply_here(bench, plan)).flatten()
    }

    pub fn apply_here(&self, bench: &Bench, plan: &Plan) -> Option<bool> {
        save_plan(bench, plan);
        let status = command(bench, "apply").uid(self.0).gid(self.0).status().ok()?;
        Some(status.success())
    }
}

#[cfg(feature = "fault-points")]
mod injected {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::process::ExitStatus;

    /// A root with a bit of everything, and the way back from its second state to its first.
    struct Scene {
        bench: Bench,
        target: State,
        before: State,
        user: Option<User>,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Kind {
        Usual,
        /// So many files that whole file systems are synced.
        Many,
        /// The root is gone.
        NoRoot,
        /// Directories that their owner, who isn't the superuser, can't write to.
        Closed,
    }

    fn scenes() -> Vec<Kind> {
        let mut kinds = vec![Kind::Usual, Kind::Many, Kind::NoRoot];
        if is_root() {
            kinds.push(Kind::Closed);
        } else {
            eprintln!("skipped: closed directories, which need another user");
        }
        kinds
    }

    fn scene_of(kind: Kind) -> Scene {
        if kind == Kind::Usual {
            return scene();
        }
        let bench = Bench::new();
        for i in 0..if kind == Kind::Many { 40 } else { 2 } {
            bench.write(&format!("d/f{i}"), "v1");
        }
        let target = bench.capture();
        for i in 0..if kind == Kind::Many { 40 } else { 2 } {
            bench.write(&format!("d/f{i}"), "v2");
        }
        match kind {
            Kind::NoRoot => fs::remove_dir_all(&bench.root).unwrap(),
            Kind::Closed => {
                bench.chmod("d", 0o555);
                bench.chmod("", 0o555);
            }
            Kind::Usual | Kind::Many => {}
        }
        let before = bench.capture();
        let plan = bench.plan(&target);
        save_plan(&bench, &plan);
        let user = (kind == Kind::Closed).then(User::nobody);
        if let Some(user) = &user {
            assert!(user.own(&bench));
        }
        Scene {
            bench,
            target,
            before,
            user,
        }
    }

    fn scene() -> Scene {
        let bench = Bench::new();
        for i in 0..3 {
            bench.write(&format!("edited{i}"), "v1");
            bench.write(&format!("d/removed{i}"), "v1");
        }
        bench.write("to-dir", "file");
        bench.write("to-file/x/y", "deep");
        symlink("one", bench.at("link")).unwrap();
        bench.write("mode", "x");
        fs::create_dir(bench.at("empty")).unwrap();
        bench.chmod("d", 0o750);
        fs::create_dir(bench.at("private")).unwrap();
        bench.chmod("private", 0o700);
        let target = bench.capture();
        for i in 0..3 {
            bench.write(&format!("edited{i}"), "v2");
            bench.write(&format!("new/made{i}"), "v2");
        }
        fs::remove_dir_all(bench.at("d")).unwrap();
        fs::remove_file(bench.at("to-dir")).unwrap();
        bench.write("to-dir/a", "a");
        fs::remove_dir_all(bench.at("to-file")).unwrap();
        bench.write("to-file", "file");
        fs::remove_file(bench.at("link")).unwrap();
        symlink("two", bench.at("link")).unwrap();
        nix::unistd::mkfifo(&bench.at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        bench.chmod("mode", 0o700);
        bench.chmod("empty", 0o700);
        bench.chmod("private", 0o777);
        let before = bench.capture();
        save_plan(&bench, &bench.plan(&target));
        Scene {
            bench,
            target,
            before,
            user: None,
        }
    }

    fn as_user(scene: &Scene, work: &str) -> Command {
        let mut command = command(&scene.bench, work);
        if let Some(User(id)) = scene.user {
            command.uid(id).gid(id);
        }
        command
    }

    fn run(scene: &Scene, work: &str, fault: &str) -> ExitStatus {
        as_user(scene, work)
            .env("STEPBACK_FAULT", fault)
            .status()
            .unwrap()
    }

    /// Names of the points that a piece of work passes, in order.
    fn passed(scene: &Scene, work: &str) -> Vec<String> {
        let log = scene.bench.root.parent().unwrap().join("points.log");
        assert!(
            as_user(scene, work)
                .env("STEPBACK_FAULT_LOG", &log)
                .status()
                .unwrap()
                .success()
        );
        let text = fs::read_to_string(&log).unwrap();
        fs::remove_file(&log).unwrap();
        let ours = ["journal.", "stage.", "apply.", "sync.", "clear.", "back."];
        text.lines()
            .filter(|name| ours.iter().any(|own| name.starts_with(own)))
            .map(str::to_owned)
            .collect()
    }

    /// Each point by name with each number of its passing: as many as are asked for, spread evenly.
    fn each(points: &[String], every: usize) -> Vec<String> {
        let mut counts = std::collections::BTreeMap::new();
        let all: Vec<String> = points
            .iter()
            .map(|name| {
                let count = counts.entry(name).and_modify(|count| *count += 1).or_insert(1);
                format!("{name}:{count}")
            })
            .collect();
        all.into_iter().step_by(every).collect()
    }

    fn every() -> usize {
        std::env::var("STEPBACK_FAULT_EVERY")
            .ok()
            .and_then(|every| every.parse().ok())
            .unwrap_or(3)
    }

    /// One of both states, whole; or unfinished, and then both ways lead out.
    fn check(scene: &Scene, undo: bool, what: &str) {
        let Scene {
            bench,
            target,
            before,
            ..
        } = scene;
        if bench.is_unfinished() {
            let recovered = bench.recover(undo).unwrap().unwrap();
            assert_eq!(recovered.kept, [], "{what}");
            assert_eq!(&bench.capture(), if undo { before } else { target }, "{what}");
        } else {
            let now = bench.capture();
            assert!(
                now == *before || now == *target,
                "{what}: {:?}",
                changes(&now, before)
            );
        }
        // A temporary journal that was never one may be left by a kill; the next operation writes over it.
        let _ = fs::remove_file(bench.journal_dir.join("journal.tmp"));
        let there = before.contains_key(&crate::path::TreePath::root());
        if undo || there {
            let _ = bench.rewind(if undo { target } else { before });
        }
        bench.assert_clean();
    }

    /// All points of all scenes that are to be tried.
    fn points() -> Vec<(Kind, String)> {
        let mut known = std::collections::BTreeSet::new();
        let mut all = Vec::new();
        for kind in scenes() {
            let passed = passed(&scene_of(kind), "apply");
            let new: Vec<String> = passed.into_iter().filter(|name| !known.contains(name)).collect();
            all.extend(each(&new, every()).into_iter().map(|point| (kind, point)));
            known.extend(new);
        }
        all
    }

    #[test]
    fn a_kill_at_any_point_leads_to_one_of_both_states() {
        let points = points();
        assert!(points.len() > 20, "{points:?}");
        for (i, (kind, point)) in points.iter().enumerate() {
            let scene = scene_of(*kind);
            let status = run(&scene, "apply", &format!("{point}:kill"));
            assert!(!status.success(), "{kind:?} {point}");
            check(&scene, i % 2 == 0, &format!("{kind:?} {point}"));
        }
        eprintln!("{} kills", points.len());
    }

    #[test]
    fn an_error_at_any_point_leaves_the_tree_as_it_was_or_says_so() {
        let mut runs = 0;
        for (i, (kind, point)) in points().iter().enumerate() {
            let actions = ["eio", "enospc", "eacces"];
            let actions = if every() == 1 {
                &actions[..]
            } else {
                &actions[i % 3..=i % 3]
            };
            for action in actions {
                let scene = scene_of(*kind);
                let what = format!("{kind:?} {point}:{action}");
                let status = run(&scene, "apply", &format!("{point}:{action}"));
                if !scene.bench.is_unfinished() {
                    let now = scene.bench.capture();
                    let expected = if status.success() {
                        &scene.target
                    } else {
                        &scene.before
                    };
                    // Once the changes are durable, an error in clearing up is told, and they stand.
                    let late = point.starts_with("clear.") && now == scene.target;
                    assert!(now == *expected || late, "{what}: {:?}", changes(&now, expected));
                }
                check(&scene, i % 2 == 0, &what);
                runs += 1;
            }
        }
        eprintln!("{runs} errors");
    }

    #[test]
    fn a_recovery_may_be_killed_at_any_point() {
        let points = each(&passed(&scene(), "apply"), 1);
        let (steps, every) = if every() == 1 { (5, 2) } else { (17, 4 * every()) };
        let mut runs = 0;
        for (i, first) in points
            .iter()
            .enumerate()
            .filter(|(_, point)| !point.starts_with("journal."))
            .step_by(steps)
        {
            let undo = i % 2 == 0;
            let work = if undo { "undo" } else { "recover" };
            let there = scene();
            assert!(!run(&there, "apply", &format!("{first}:kill")).success());
            for point in each(&passed(&there, work), every) {
                let scene = scene();
                assert!(!run(&scene, "apply", &format!("{first}:kill")).success());
                let _ = run(&scene, work, &format!("{point}:kill"));
                // The other way round is allowed, too.
                check(&scene, undo ^ (runs % 3 == 0), &format!("{first}, then {point}"));
                runs += 1;
            }
        }
        assert!(runs > 10);
        eprintln!("{runs} killed recoveries");
    }
}
