//! Purges that are killed, or fail, at each fault point in turn: what is left is whole, also when garbage is collected
//! before anything else, and another purge finishes it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use stepback_engine::engine::{Context, Engine};
use stepback_engine::oid::{ObjectKind, Oid};
use stepback_engine::path::TreePath;
use stepback_engine::progress::Progress;
use stepback_engine::tree::NoWatch;

use crate::faults::every;
use crate::support::{Sandbox, environment_of};

const DIR: &str = "STEPBACK_TEST_DIR";

fn secret() -> TreePath {
    TreePath::new(b"d/.env").unwrap()
}

fn forget(engine: &mut Engine) -> stepback_engine::Result<()> {
    let progress = Progress::default();
    let cx = Context {
        now: Sandbox::now(),
        watch: &NoWatch,
        progress: &progress,
    };
    engine.forget(&[secret()], false, &cx).map(drop)
}

fn finish(engine: &mut Engine) -> stepback_engine::Result<Vec<TreePath>> {
    let progress = Progress::default();
    let cx = Context {
        now: Sandbox::now(),
        watch: &NoWatch,
        progress: &progress,
    };
    Ok(engine
        .finish_forget(&cx)?
        .map_or_else(Vec::new, |done| done.paths))
}

/// Not a test of its own: what the child processes of the other run.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let dir = Path::new(&dir);
    let found = Engine::find(&environment_of(dir), &dir.join("root"), &Sandbox::settings()).unwrap();
    let code = i32::from(forget(&mut found.unwrap()).is_err());
    std::process::exit(code);
}

fn purge(sandbox: &Sandbox, fault: &str, log: &Path) -> std::process::ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "forget_faults::child", "--test-threads=1"])
        .env(DIR, sandbox.path())
        .env("STEPBACK_FAULT_LOG", log)
        .env("STEPBACK_FAULT", fault)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    command.status().unwrap()
}

fn git(store: &Path, arguments: &[&str]) -> bool {
    let mut command = Command::new("git");
    command.arg("--git-dir").arg(store).args(arguments);
    command.output().unwrap().status.success()
}

/// With the secret in four checkpoints and in the redo stack, and bits that side tables name.
fn with_secret() -> (Sandbox, Oid) {
    let text = "TOKEN=correct horse\n";
    let mut sandbox = Sandbox::with(|root| {
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/.env"), text).unwrap();
        fs::set_permissions(root.join("d/.env"), Permissions::from_mode(0o600)).unwrap();
        fs::write(root.join("d/other"), "1\n").unwrap();
        fs::set_permissions(root.join("d/other"), Permissions::from_mode(0o640)).unwrap();
    });
    for i in 0..2 {
        sandbox.write("a", &format!("{i}\n"));
        sandbox.capture();
    }
    sandbox.rewind(1);
    sandbox.on(|engine, _| engine.pin(2, true)).unwrap();
    (sandbox, Oid::of(ObjectKind::Blob, text.as_bytes()))
}

#[test]
fn a_purge_that_is_cut_off_anywhere_is_finished_by_another() {
    let (sandbox, _) = with_secret();
    let log = sandbox.path().join("points");
    assert!(purge(&sandbox, "none:0:kill", &log).success());
    let points = fs::read_to_string(&log).unwrap().lines().count() as u64;
    assert!(points > 40, "{points}");
    let mut tried = 0;
    for action in ["kill", "eio"] {
        for at in (1..=points).step_by(every(17)) {
            let (mut sandbox, oid) = with_secret();
            let before: Vec<_> = sandbox
                .engine()
                .checkpoints()
                .iter()
                .map(|c| (c.n, c.base))
                .collect();
            let done = purge(&sandbox, &format!("*:{at}:{action}"), &log).success();
            let when = format!("{action} at point {at} of {points}");
            let store = sandbox.engine().store_path().to_owned();
            sandbox.reopen(false);
            // Either nothing has happened, or it is known to be unfinished, or it is at its end.
            let reached = git(&store, &["cat-file", "-e", &oid.to_string()]);
            let known = sandbox.engine().interrupted_forget().unwrap().is_some();
            let recorded = !sandbox.engine().forgotten().is_empty();
            assert!(
                known || !recorded || !reached,
                "{when}: nothing says that it isn't finished"
            );
            assert!(
                git(&store, &["prune", "--expire=now"]) && git(&store, &["repack", "-adq"]),
                "{when}"
            );
            sandbox.reopen(false);
            let engine = sandbox.engine();
            let now: Vec<_> = engine.checkpoints().iter().map(|c| (c.n, c.base)).collect();
            assert_eq!(now, before, "{when}");
            assert_eq!(engine.verify().unwrap(), [], "{when}");
            assert!(engine.pinned(2), "{when}");
            for n in 1..=3 {
                engine
                    .not_captured(Some(n))
                    .unwrap_or_else(|e| panic!("{when}: {e}"));
                engine
                    .write_tar(n, &mut std::io::sink())
                    .unwrap_or_else(|e| panic!("{when}: {e}"));
            }
            // By another call, or of the daemon's own accord.
            if at % 2 == 0 || !known {
                forget(engine).unwrap_or_else(|e| panic!("{when}: {e}"));
            } else {
                let paths = finish(engine).unwrap_or_else(|e| panic!("{when}: {e}"));
                assert_eq!(paths, [secret()], "{when}");
            }
            assert!(engine.interrupted_forget().unwrap().is_none(), "{when}");
            let gone = !git(&store, &["cat-file", "-e", &oid.to_string()]);
            assert!(gone, "{when}");
            assert!(git(&store, &["fsck", "--full"]), "{when}");
            assert_eq!(sandbox.read("d/.env").as_deref(), Some("TOKEN=correct horse\n"));
            tried += u64::from(!done);
        }
    }
    println!("{tried} purges were cut off");
    assert!(tried > 0);
}

/// What one purge left undone the next one, of something else, doesn't lose sight of.
#[test]
fn another_purge_finishes_the_one_before_it() {
    for point in ["forget.recorded", "forget.rewritten", "forget.reclaim"] {
        let (mut sandbox, oid) = with_secret();
        let log = sandbox.path().join("points");
        assert!(
            !purge(&sandbox, &format!("{point}:1:kill"), &log).success(),
            "{point}"
        );
        sandbox.reopen(false);
        let store = sandbox.engine().store_path().to_owned();
        assert!(git(&store, &["cat-file", "-e", &oid.to_string()]), "{point}");
        assert_eq!(
            sandbox.engine().interrupted_forget().unwrap(),
            Some(vec![secret()]),
            "{point}"
        );
        let other = [TreePath::new(b"a").unwrap()];
        let done = sandbox.on(|engine, cx| engine.forget(&other, false, cx).unwrap());
        assert_eq!(done.paths, other);
        assert!(
            sandbox.engine().interrupted_forget().unwrap().is_none(),
            "{point}"
        );
        assert!(!git(&store, &["cat-file", "-e", &oid.to_string()]), "{point}");
        assert!(git(&store, &["fsck", "--full"]), "{point}");
        assert_eq!(sandbox.engine().verify().unwrap(), [], "{point}");
    }
}

/// The bytes are still there when the store couldn't be packed: that is known after a restart, too.
#[test]
fn a_purge_whose_bytes_could_not_be_removed_stays_known_until_they_are() {
    let (mut sandbox, oid) = with_secret();
    let store = sandbox.engine().store_path().to_owned();
    let broken = store.join("refs/stepback/broken");
    fs::write(&broken, "no object id\n").unwrap();
    assert!(forget(sandbox.engine()).is_err());
    sandbox.reopen(true);
    assert_eq!(
        sandbox.engine().interrupted_forget().unwrap(),
        Some(vec![secret()])
    );
    assert!(finish(sandbox.engine()).is_err());
    fs::remove_file(&broken).unwrap();
    assert_eq!(finish(sandbox.engine()).unwrap(), [secret()]);
    assert_eq!(sandbox.engine().interrupted_forget().unwrap(), None);
    assert!(!git(&store, &["cat-file", "-e", &oid.to_string()]));
}
