//! The others: git's plumbing, and two Python tools with the same purpose.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use stepback_tests::Sandbox;

use crate::report::Report;
use crate::samples::timed;
use crate::tree::Tree;

/// Runs a command to its end, quietly; milliseconds.
pub fn run(command: &mut Command) -> f64 {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let (status, took) = timed(|| command.status());
    let status = status.unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
    assert!(status.success(), "{command:?}: {status}");
    took
}

/// A private repository and index beside a tree, as tools on top of git use them.
pub struct GitShadow<'a> {
    sandbox: &'a Sandbox,
    tree: &'a Tree,
    dir: PathBuf,
}

impl<'a> GitShadow<'a> {
    /// Makes the repository; nothing is in it yet.
    pub fn make(sandbox: &'a Sandbox, tree: &'a Tree, name: &str) -> Self {
        let dir = sandbox.dir().join("tmp").join(format!("{name}.git"));
        run(sandbox
            .command("git", sandbox.dir())
            .args(["init", "-q", "--bare"])
            .arg(&dir));
        Self { sandbox, tree, dir }
    }

    fn git(&self) -> Command {
        let mut git = self.sandbox.command("git", &self.tree.path);
        git.env("GIT_DIR", &self.dir)
            .env("GIT_WORK_TREE", &self.tree.path);
        git
    }

    /// `add -A` and `write-tree`.
    pub fn checkpoint(&self) -> f64 {
        self.add() + run(self.git().args(["write-tree"]))
    }

    /// `add -A`.
    pub fn add(&self) -> f64 {
        run(self.git().args(["add", "-A"]))
    }
}

/// The Python peers, each in an environment of its own, where they can be had.
pub struct Pythons {
    pub stepback: Option<PathBuf>,
    pub fabricatio: Option<PathBuf>,
}

impl Pythons {
    /// Without them.
    pub fn none(report: &mut Report) -> Self {
        report.note("the Python peers were left out: PYTHON=0");
        Self {
            stepback: None,
            fabricatio: None,
        }
    }

    /// Installs them below the sandbox, from the package registry.
    pub fn install(sandbox: &Sandbox, report: &mut Report) -> Self {
        let candidates = pythons();
        let mut get = |name: &str, package: &str| {
            let dir = sandbox.dir().join("tmp").join(name);
            for program in &candidates {
                crate::tree::remove(&dir);
                let mut venv = sandbox.command(program, sandbox.dir());
                venv.args(["-m", "venv"]).arg(&dir);
                if !succeeds(&mut venv) {
                    continue;
                }
                let mut pip = sandbox.command(dir.join("bin/python"), sandbox.dir());
                pip.args([
                    "-m",
                    "pip",
                    "install",
                    "-q",
                    "--disable-pip-version-check",
                    package,
                ]);
                // A registry that isn't the public one is named by these.
                for name in [
                    "PIP_INDEX_URL",
                    "PIP_EXTRA_INDEX_URL",
                    "PIP_TRUSTED_HOST",
                    "PIP_CERT",
                    "PIP_CONFIG_FILE",
                ] {
                    if let Some(value) = std::env::var_os(name) {
                        pip.env(name, value);
                    }
                }
                if succeeds(&mut pip) {
                    return Some(dir.join("bin"));
                }
            }
            report.note(format!(
                "{package} was left out: it couldn't be installed (no Python that it runs on, or no package registry)"
            ));
            None
        };
        Self {
            stepback: get("py-stepback", "stepback==0.2.0"),
            fabricatio: get("py-fabricatio", "fabricatio-checkpoint==0.3.6"),
        }
    }
}

/// The usual one first, then those of versions that the peers are known to run on, pyenv's among them.
fn pythons() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = ["python3", "python3.12", "python3.13"]
        .map(PathBuf::from)
        .to_vec();
    let pyenv = std::env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    let versions = pyenv.and_then(|dir| std::fs::read_dir(dir.join("versions")).ok());
    for version in versions.into_iter().flatten().flatten() {
        let name = version.file_name();
        if ["3.12", "3.13"]
            .iter()
            .any(|known| name.to_string_lossy().starts_with(known))
        {
            found.push(version.path().join("bin/python3"));
        }
    }
    found
}

fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

const STEPBACK: &str = "
import sys, time
from pathlib import Path
from stepback import Engine
engine = Engine(Path(sys.argv[1]))
for line in sys.stdin:
    start = time.perf_counter()
    made = engine.checkpoint()
    took = time.perf_counter() - start
    print(took * 1000, made.id if made else 0, flush=True)
";

const FABRICATIO: &str = "
import sys, time
from fabricatio_checkpoint.rust import CheckpointService
store = CheckpointService(sys.argv[2]).get_store(sys.argv[1])
for line in sys.stdin:
    start = time.perf_counter()
    store.save('x')
    took = time.perf_counter() - start
    print(took * 1000, 0, flush=True)
";

/// A peer that stays running, told by a line each to make a checkpoint.
pub struct Driven {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    /// What it has to say of a failure.
    errors: PathBuf,
}

impl Driven {
    /// Python's stepback on `tree`.
    pub fn stepback(sandbox: &Sandbox, bin: &Path, tree: &Path) -> Self {
        let mut command = sandbox.command(bin.join("python"), tree);
        command.args(["-c", STEPBACK]).arg(tree);
        Self::start(sandbox, command)
    }

    /// fabricatio-checkpoint on `tree`, its stores in `stores`.
    pub fn fabricatio(sandbox: &Sandbox, bin: &Path, tree: &Path, stores: &Path) -> Self {
        let mut command = sandbox.command(bin.join("python"), tree);
        command.args(["-c", FABRICATIO]).arg(tree).arg(stores);
        // It fails in a new store when git's settings name another first branch than `master`.
        command.env("HOME", sandbox.dir().join("tmp"));
        Self::start(sandbox, command)
    }

    fn start(sandbox: &Sandbox, mut command: Command) -> Self {
        let errors = sandbox.dir().join("tmp/peer-errors");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors).expect("own directory"));
        let mut child = command.spawn().expect("installed just now");
        let to = child.stdin.take().expect("piped");
        let from = BufReader::new(child.stdout.take().expect("piped"));
        Self {
            child,
            to,
            from,
            errors,
        }
    }

    /// The last line that it wrote to its standard error.
    pub fn why(&self) -> String {
        let errors = std::fs::read_to_string(&self.errors).unwrap_or_default();
        errors.lines().last().unwrap_or("without a word").to_owned()
    }

    /// Makes a checkpoint: milliseconds as it measured them itself, and its number. `None` when it failed.
    pub fn checkpoint(&mut self) -> Option<(f64, u64)> {
        writeln!(self.to, "go").ok()?;
        let mut line = String::new();
        self.from.read_line(&mut line).ok()?;
        let (took, id) = line.trim().split_once(' ')?;
        Some((took.parse().ok()?, id.parse().ok()?))
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        // It is ours and may wait for a line for ever.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
