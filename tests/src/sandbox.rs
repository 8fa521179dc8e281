//! A directory, an environment and a daemon of a test's own.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use tempfile::TempDir;

use crate::{Daemon, Finished, Project, eventually, finish, pause, signals, start, used};

/// No command of a test takes longer, unless something hangs.
const COMMAND_DEADLINE: Duration = Duration::from_secs(120);
/// A daemon has nothing to do any more within this.
const IDLE_DEADLINE: Duration = Duration::from_secs(180);
/// A store is packed when it has rested for 5 s.
const STORE_REST: Duration = Duration::from_secs(6);
/// Uid and gid of `nobody`, which owns no file of the system.
const NOBODY: u32 = 65534;

/// Held for reading by every sandbox, for writing by one that wants the machine for itself.
static MACHINE: RwLock<()> = RwLock::new(());

#[derive(Debug)]
#[allow(dead_code, reason = "guards are held, not read")]
enum Share {
    With(RwLockReadGuard<'static, ()>),
    Alone(RwLockWriteGuard<'static, ()>),
}

/// Where one test's programs live: own home, configuration, state, socket, temporary files; environment cleared.
#[derive(Debug)]
pub struct Sandbox {
    dir: TempDir,
    bin: PathBuf,
    as_nobody: bool,
    extra: Vec<(OsString, OsString)>,
    /// Last, so that it is dropped last.
    _share: Share,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Sandbox {
    /// A sandbox of the user who runs the tests. A test has one at a time: a second one would wait for a third test that
    /// waits to be [`Sandbox::alone`].
    #[must_use]
    pub fn new() -> Self {
        Self::build(Share::With(
            MACHINE.read().unwrap_or_else(PoisonError::into_inner),
        ))
    }

    /// The same, while no other sandbox exists: for what is measured in seconds.
    #[must_use]
    pub fn alone() -> Self {
        Self::build(Share::Alone(
            MACHINE.write().unwrap_or_else(PoisonError::into_inner),
        ))
    }

    fn build(share: Share) -> Self {
        signals::are_not_passed_on_ignored();
        let dir = tempfile::Builder::new()
            .prefix("sb-")
            .tempdir()
            .expect("a temporary directory");
        let sandbox = Self {
            dir,
            bin: binaries(),
            as_nobody: false,
            extra: Vec::new(),
            _share: share,
        };
        sandbox.furnish();
        sandbox
    }

    /// A sandbox of a user whom permissions hold back: oneself, or `nobody` for root. `None`, and a printed reason,
    /// where that can't be had.
    #[must_use]
    pub fn of_normal_user() -> Option<Self> {
        let mut sandbox = Self::new();
        if !geteuid().is_root() {
            return Some(sandbox);
        }
        if Command::new("setpriv").arg("--version").output().is_err() {
            println!("skipped: needs a normal user, and setpriv (util-linux) is not installed");
            return None;
        }
        // The target directory may be below a directory that only root may enter.
        let bin = sandbox.dir().join("bin");
        fs::create_dir(&bin).expect("fresh directory");
        for program in ["stepback", "stepbackd"] {
            fs::copy(sandbox.bin.join(program), bin.join(program)).expect("copy of a program");
        }
        sandbox.bin = bin;
        sandbox.as_nobody = true;
        for path in [
            "",
            "home",
            "home/.config",
            "home/.config/git",
            "state",
            "run",
            "tmp",
            "work",
            "home/.gitconfig",
        ] {
            let path = sandbox.dir().join(path);
            if path.exists() {
                chown(path, Some(NOBODY), Some(NOBODY)).expect("root may give files away");
            }
        }
        Some(sandbox)
    }

    /// The same with one more variable in the environment of everything that it runs.
    #[must_use]
    pub fn with_env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.extra.push((name.into(), value.into()));
        self
    }

    /// Waits until the daemon `pid` has nothing left to do: threads that requests have left end, stores are packed, and what
    /// makes their newest records needless is written.
    pub fn wait_until_idle(&self, pid: Pid) {
        let settled = |store: fs::DirEntry| {
            let ahead = fs::read(store.path().join("stepback/ahead")).unwrap_or_default();
            ahead.first().is_none_or(|byte| *byte == 0)
        };
        let stores = self.state().join("stores");
        let mut before = used(pid);
        eventually("nothing is left to do", IDLE_DEADLINE, || {
            pause(STORE_REST);
            let is_quiet = std::mem::replace(&mut before, used(pid)) == used(pid);
            let mut stores = fs::read_dir(&stores).expect("made by the daemon").flatten();
            is_quiet && stores.all(settled)
        });
    }

    fn furnish(&self) {
        for dir in ["home", "home/.config", "state", "run", "tmp", "work"] {
            let dir = self.dir().join(dir);
            fs::create_dir(&dir).expect("fresh directory");
            fs::set_permissions(&dir, Permissions::from_mode(0o700)).expect("own directory");
        }
        // Git's own housekeeping would change files below `.git` by itself, at moments of its own.
        let config = "[user]\n\tname = Ann\n\temail = ann@example.org\n[init]\n\tdefaultBranch = main\n\
                      [gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[advice]\n\tdetachedHead = false\n";
        fs::write(self.dir().join("home/.gitconfig"), config).expect("own home");
    }

    /// The sandbox's own directory, which holds everything else.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// `HOME`.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.dir().join("home")
    }

    /// STATE of the programs.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.dir().join("state/stepback")
    }

    /// Where the daemon listens.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir().join("run/stepback/stepbackd.sock")
    }

    /// The configuration file of the daemon (it need not exist).
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.home().join(".config/stepback/config.toml")
    }

    /// Writes the configuration file.
    pub fn configure(&self, text: &str) {
        let path = self.config();
        fs::create_dir_all(path.parent().expect("has a parent")).expect("own home");
        fs::write(path, text).expect("own home");
    }

    /// A new empty directory that can be attached.
    #[must_use]
    pub fn project(&self, name: &str) -> Project<'_> {
        let project = Project::at(self, self.dir().join("work").join(name));
        self.sh(&self.dir().join("work"), &format!("mkdir -p '{name}'"));
        project
    }

    /// Path of one of the two programs.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }

    /// A command in this sandbox's environment and as its user.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>, cwd: &Path) -> Command {
        let mut command = if self.as_nobody {
            let mut command = Command::new("setpriv");
            let id = NOBODY;
            command
                .args([format!("--reuid={id}"), format!("--regid={id}")])
                .arg("--clear-groups")
                .arg(program);
            command
        } else {
            Command::new(program)
        };
        let dir = self.dir();
        command.env_clear().current_dir(cwd);
        command.env(
            "PATH",
            std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()),
        );
        command
            .env("HOME", dir.join("home"))
            .env("XDG_CONFIG_HOME", dir.join("home/.config"));
        command
            .env("XDG_STATE_HOME", dir.join("state"))
            .env("XDG_RUNTIME_DIR", dir.join("run"));
        command
            .env("TMPDIR", dir.join("tmp"))
            .env("LANG", "C.UTF-8")
            .env("GIT_CONFIG_NOSYSTEM", "1");
        command.env("STEPBACKD", self.program("stepbackd"));
        command.envs(self.extra.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a shell script as an agent would, and asserts that it succeeds.
    #[track_caller]
    pub fn sh(&self, cwd: &Path, script: &str) -> Finished {
        let mut command = self.command("sh", cwd);
        command.args(["-euc", &format!("umask 022\n{script}")]);
        finish(start(&mut command), script, COMMAND_DEADLINE).exits(0)
    }

    /// Runs `stepback` to its end.
    #[track_caller]
    pub fn stepback<S: AsRef<OsStr>>(&self, cwd: &Path, args: &[S]) -> Finished {
        self.stepback_env(cwd, args, &[])
    }

    /// Runs `stepback` to its end with more variables.
    #[track_caller]
    pub fn stepback_env<S: AsRef<OsStr>>(&self, cwd: &Path, args: &[S], env: &[(&str, &str)]) -> Finished {
        let mut command = self.command(self.program("stepback"), cwd);
        command.args(args).envs(env.iter().copied());
        let words: Vec<_> = args.iter().map(|a| a.as_ref().to_string_lossy()).collect();
        finish(
            start(&mut command),
            &format!("stepback {}", words.join(" ")),
            COMMAND_DEADLINE,
        )
    }

    /// Starts the daemon as a child of the test, and returns when it answers.
    #[track_caller]
    #[must_use]
    pub fn daemon(&self) -> Daemon {
        self.daemon_under(&[])
    }

    /// The same, with the daemon's command line put behind `prefix` (`strace` and its options, say).
    #[track_caller]
    #[must_use]
    pub fn daemon_under(&self, prefix: &[&OsStr]) -> Daemon {
        let program = self.program("stepbackd");
        let mut line: Vec<&OsStr> = prefix.to_vec();
        line.push(program.as_os_str());
        let mut command = self.command(line[0], Path::new("/"));
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir().join("daemon.log"))
            .expect("own file");
        command
            .args(&line[1..])
            .arg("--foreground")
            .stdin(std::process::Stdio::null());
        command
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log);
        let child = command
            .spawn()
            .unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        let mut daemon = Daemon::new(child);
        eventually("the daemon answers", Duration::from_secs(60), || {
            assert!(daemon.runs(), "the daemon ended:\n{}", self.log());
            self.stepback(self.dir(), &["daemon", "status"]).code() == 0
        });
        daemon
    }

    /// What the daemon said: of a child of the test, and of its log in STATE.
    #[must_use]
    pub fn log(&self) -> String {
        let mut text = fs::read_to_string(self.dir().join("daemon.log")).unwrap_or_default();
        if let Ok(entries) = fs::read_dir(self.state().join("log")) {
            for entry in entries.flatten() {
                text.push_str(&fs::read_to_string(entry.path()).unwrap_or_default());
            }
        }
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// The process that `STATE/daemon.json` names, if it is a daemon of this sandbox.
    #[must_use]
    pub fn daemon_pid(&self) -> Option<Pid> {
        let text = fs::read(self.state().join("daemon.json")).ok()?;
        let json: serde_json::Value = serde_json::from_slice(&text).ok()?;
        let pid = i32::try_from(json["pid"].as_i64()?).ok()?;
        // A number alone may be another process's by now: only one with this sandbox's home is ours.
        let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let home = [b"HOME=", self.home().as_os_str().as_encoded_bytes()].concat();
        environ
            .split(|&b| b == 0)
            .any(|v| v == home)
            .then(|| Pid::from_raw(pid))
    }

    fn stop(&self) {
        if !self.state().join("daemon.json").exists() {
            return;
        }
        let pid = self.daemon_pid();
        let mut command = self.command(self.program("stepback"), self.dir());
        command
            .args(["daemon", "stop"])
            .stdin(std::process::Stdio::null());
        let stopped = command.output().is_ok_and(|o| o.status.success());
        if let (false, Some(pid)) = (stopped, pid)
            && self.daemon_pid() == Some(pid)
            && let Err(e) = kill(pid, Signal::SIGKILL)
        {
            eprintln!("the sandbox's daemon {pid} could not be killed: {e}");
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "--- the daemon's log in {}:\n{}\n---",
                self.dir().display(),
                self.log()
            );
        }
        self.stop();
        // A test may have taken the write bit off a directory of its own.
        let mut chmod = Command::new("chmod");
        drop(chmod.args(["-R", "u+rwX"]).arg(self.dir()).output());
    }
}

/// The directory of the two programs.
fn binaries() -> PathBuf {
    let dir = std::env::var_os("STEPBACK_BIN_DIR").map_or_else(
        || {
            let test = std::env::current_exe().expect("the test's own path");
            // target/PROFILE/deps/it-HASH
            test.parent()
                .and_then(Path::parent)
                .expect("tests are built two levels down")
                .to_path_buf()
        },
        PathBuf::from,
    );
    for program in ["stepback", "stepbackd"] {
        let path = dir.join(program);
        assert!(
            path.is_file(),
            "{} is missing: run `cargo build --workspace` first (`make test` does), or set STEPBACK_BIN_DIR",
            path.display()
        );
    }
    dir
}
