//! Running the user's git on a store: with nothing of the user's configuration, at low priority, and so that it never
//! outlives the lock that keeps writers away.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::error::{At, Error, Result};

use super::lock::ExclusiveLock;
use super::{LARGE_BYTES, Store};

/// More of what git says isn't kept, in bytes.
const SAID_BYTES_MAX: u64 = 64 * 1024;

/// A git that takes longer hangs: so long in any case,
const LIMIT: Duration = Duration::from_secs(30);
/// and a second more for so many bytes of the store;
const BYTES_A_SECOND: u64 = 1 << 20;
/// where nobody waits for it, so many times that.
const IDLE_LIMIT: u32 = 8;
/// Saying its version takes a moment.
const VERSION_LIMIT: Duration = Duration::from_secs(5);

/// The wish that a running git end at once: somebody wants the store. Shared by the thread that waits for git and those
/// that ask.
#[derive(Debug, Default)]
pub struct Interrupt(Mutex<Asked>);

#[derive(Debug, Default)]
struct Asked {
    asked: bool,
    /// The process groups of gits that run: several stores may be worked on at once.
    groups: BTreeSet<Pid>,
}

impl Interrupt {
    fn state(&self) -> MutexGuard<'_, Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends what runs, and whatever would be run next.
    pub fn ask(&self) {
        let mut state = self.state();
        state.asked = true;
        for group in &state.groups {
            // It may have ended just now.
            let _ = killpg(*group, Signal::SIGKILL);
        }
    }

    /// For work that is done without git.
    ///
    /// # Errors
    /// [`Error::Cancelled`] when somebody wants the store.
    pub(super) fn check(&self) -> Result<()> {
        match self.state().asked {
            true => Err(Error::Cancelled),
            false => Ok(()),
        }
    }

    fn start(&self, command: &mut Command, program: &Path) -> Result<Child> {
        let mut state = self.state();
        if state.asked {
            return Err(Error::Cancelled);
        }
        let child = command.spawn().at(program)?;
        state.groups.extend(group_of(&child));
        Ok(child)
    }

    /// Waits for a child of which all output has been read; whether it went well.
    fn reap(&self, child: &mut Child, program: &Path) -> Result<bool> {
        // Under the lock, so that nobody signals a number that is somebody else's by then.
        let mut state = self.state();
        let status = child.wait();
        if let Some(group) = group_of(child) {
            state.groups.remove(&group);
        }
        if state.asked {
            return Err(Error::Cancelled);
        }
        Ok(status.at(program)?.success())
    }
}

/// Who waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// Nobody: it may take as long as the machine has other things to do.
    Idle,
    /// A command, or a root's captures.
    Waited,
}

/// A child's own process group.
fn group_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().map(Pid::from_raw)
}

/// The user's git, ready to work on one store.
pub struct Git<'a> {
    store: &'a Store,
    program: &'a Path,
    path: Option<&'a OsStr>,
    interrupt: &'a Interrupt,
    /// Open for as long as git runs, also when this process is killed.
    lock: File,
    /// It may take so long.
    limit: Duration,
    /// Another directory of objects: what is there isn't packed.
    aside: Option<OsString>,
    /// Programs before git on the command line.
    before: Vec<String>,
}

impl<'a> Git<'a> {
    /// Finds out how git can be run: so that it doesn't outlive this process, and, unless somebody waits, at low priority.
    ///
    /// # Errors
    /// When no more files can be opened.
    pub fn new(
        store: &'a Store,
        program: &'a Path,
        path: Option<&'a OsStr>,
        alone: &ExclusiveLock,
        interrupt: &'a Interrupt,
        urgency: Urgency,
    ) -> Result<Self> {
        let mut git = Self {
            store,
            program,
            path,
            interrupt,
            lock: alone.file().at(store.path())?,
            limit: limit_for(store.known_bytes(), urgency),
            aside: None,
            before: Vec::new(),
        };
        let deadly = ["setpriv", "--pdeathsig", "KILL"];
        let low = ["nice", "-n", "19"];
        // With neither it works all the same.
        let low = (urgency == Urgency::Idle).then_some(&low[..]);
        for words in low.into_iter().chain([&deadly[..]]) {
            if git.finds(words[0]).is_some() && git.works(words)? {
                git.before
                    .splice(0..0, words.iter().map(|word| (*word).to_owned()));
            }
        }
        Ok(git)
    }

    /// Has it pack nothing that is in this directory of objects, when it is run with `--local`.
    pub fn leave(&mut self, aside: &Path) {
        // In quotes, so that a colon doesn't end it.
        let mut quoted = vec![b'"'];
        for byte in aside.as_os_str().as_bytes() {
            if matches!(byte, b'"' | b'\\') {
                quoted.push(b'\\');
            }
            quoted.push(*byte);
        }
        quoted.push(b'"');
        self.aside = Some(OsString::from_vec(quoted));
    }

    fn finds(&self, name: &str) -> Option<PathBuf> {
        std::env::split_paths(self.path?)
            .map(|dir| dir.join(name))
            .find(|path| path.is_file())
    }

    fn works(&self, words: &[&str]) -> Result<bool> {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(self.program).arg("version");
        self.clean(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        match self.finish(&mut command, VERSION_LIMIT) {
            // Without these words it may work.
            Err(Error::Io { .. }) => Ok(false),
            other => other.map(|ended| ended.well),
        }
    }

    fn clean(&self, command: &mut Command) {
        command
            .env_clear()
            .envs(self.path.map(|path| ("PATH", path)))
            .envs([
                ("GIT_CONFIG_NOSYSTEM", "1"),
                ("GIT_CONFIG_GLOBAL", "/dev/null"),
                ("LC_ALL", "C"),
            ])
            .current_dir("/");
    }

    /// Runs a verb to its end.
    ///
    /// # Errors
    /// [`Error::Cancelled`] when it was interrupted; that the disk is full; [`Error::Damaged`] with what git says.
    pub fn run(&self, arguments: &[&str]) -> Result<()> {
        self.start(arguments, Stdio::null()).map(drop)
    }

    /// The same; what it writes, which is little.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn ask(&self, arguments: &[&str]) -> Result<String> {
        self.start(arguments, Stdio::piped())
    }

    fn start(&self, arguments: &[&str], stdout: Stdio) -> Result<String> {
        let mut words = self.before.iter().map(AsRef::as_ref).collect::<Vec<&OsStr>>();
        words.push(self.program.as_os_str());
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        self.clean(&mut command);
        command.envs(
            self.aside
                .as_ref()
                .map(|aside| ("GIT_ALTERNATE_OBJECT_DIRECTORIES", aside)),
        );
        command.arg("--git-dir").arg(self.store.path());
        let large = format!("core.bigFileThreshold={LARGE_BYTES}");
        for setting in [
            "core.fsmonitor=false",
            "core.hooksPath=/dev/null",
            "safe.directory=*",
            "core.fsync=all",
            // So much memory, one thread, and no deltas of what is to be read in pieces.
            "pack.windowMemory=128m",
            "pack.threads=1",
            &large,
            "repack.writeBitmaps=false",
        ] {
            command.args(["-c", setting]);
        }
        command
            .args(arguments)
            .stdin(Stdio::from(self.lock.try_clone().at(self.program)?))
            .stdout(stdout);
        let Ended { well, answer, said } = self.finish(&mut command, self.limit)?;
        if well {
            return Ok(answer);
        }
        if said.contains("No space left") || said.contains("Out of diskspace") {
            return Err(std::io::Error::from(std::io::ErrorKind::StorageFull)).at(self.store.path());
        }
        let last = said.lines().last().unwrap_or("without a word");
        Err(Error::Damaged {
            store: self.store.path().to_owned(),
            what: format!("`git {}` failed: {last}", arguments[0]),
        })
    }
    /// Runs a command to its end, or kills it and all that it started when that takes longer than `limit`.
    fn finish(&self, command: &mut Command, limit: Duration) -> Result<Ended> {
        command.stderr(Stdio::piped()).process_group(0);
        let mut child = self.interrupt.start(command, self.program)?;
        let group = group_of(&child);
        let hangs = AtomicBool::new(false);
        let (mut said, mut answer) = (Vec::new(), String::new());
        std::thread::scope(|scope| {
            let (ended, ends) = mpsc::channel::<()>();
            let hangs = &hangs;
            scope.spawn(move || {
                if ends.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                    hangs.store(true, Ordering::Relaxed);
                    // Its number is its own until it is waited for, which is after this.
                    let _ = group.map(|group| killpg(group, Signal::SIGKILL));
                }
            });
            if let Some(pipe) = child.stderr.take() {
                let mut pipe = pipe.take(SAID_BYTES_MAX);
                // What can't be read isn't said; the end of the process tells what came of it.
                let _ = pipe.read_to_end(&mut said);
                let _ = std::io::copy(&mut pipe.into_inner(), &mut std::io::sink());
            }
            if let Some(pipe) = child.stdout.take() {
                let _ = pipe.take(SAID_BYTES_MAX).read_to_string(&mut answer);
            }
            drop(ended);
        });
        let well = self.interrupt.reap(&mut child, self.program)?;
        if hangs.into_inner() {
            let why = format!("it didn't end within {} s and was killed", limit.as_secs());
            return Err(std::io::Error::new(std::io::ErrorKind::TimedOut, why)).at(self.program);
        }
        let said = String::from_utf8_lossy(&said).into_owned();
        Ok(Ended { well, answer, said })
    }
}

/// How a command ended: whether it went well, what it wrote, what it said.
struct Ended {
    well: bool,
    answer: String,
    said: String,
}

fn limit_for(bytes: u64, urgency: Urgency) -> Duration {
    let limit = LIMIT + Duration::from_secs(bytes / BYTES_A_SECOND);
    match urgency {
        Urgency::Waited => limit,
        Urgency::Idle => limit * IDLE_LIMIT,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_git_that_hangs_is_killed_with_all_that_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::create(&dir.path().join("x-1.git")).unwrap();
        let (program, pid) = (dir.path().join("git"), dir.path().join("pid"));
        let script = format!("#!/bin/sh\nsleep 1000 & echo $! > {}; wait\n", pid.display());
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o700)).unwrap();
        let alone = store.lock_exclusive().unwrap();
        let interrupt = Interrupt::default();
        let mut git = Git::new(&store, &program, None, &alone, &interrupt, Urgency::Waited).unwrap();
        git.limit = Duration::from_millis(300);
        let started = Instant::now();
        let error = git.run(&["repack"]).unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(20));
        assert!(error.to_string().contains("was killed"), "{error}");
        let pid: i32 = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
        let gone = || match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) => stat.contains(") Z "),
            Err(_) => true,
        };
        while !gone() {
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "{pid} is still there"
            );
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_larger_store_may_take_longer() {
        assert_eq!(limit_for(0, Urgency::Waited), LIMIT);
        assert!(limit_for(5 << 30, Urgency::Waited) > Duration::from_secs(3600));
        assert!(limit_for(0, Urgency::Idle) > LIMIT);
    }
}
