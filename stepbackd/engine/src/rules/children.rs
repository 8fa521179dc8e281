//! The user's gits that run just now. None of them outlives the daemon: one that waits for something would stay for ever.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::error::{At, Error, Result};
use crate::store::Interrupt;

/// Gits that run; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Children {
    running: Arc<Mutex<Running>>,
    before: Arc<OnceLock<Vec<OsString>>>,
    packing: Arc<Interrupt>,
}

#[derive(Debug, Default)]
struct Running {
    ended: bool,
    /// Each has a process group of its own.
    groups: BTreeSet<i32>,
}

impl Children {
    /// Kills all that run, and lets none begin any more.
    pub fn end(&self) {
        self.packing.ask();
        let mut running = self.running();
        running.ended = true;
        for group in &running.groups {
            // It may have ended just now; its number is its own until it is waited for.
            let _ = killpg(Pid::from_raw(*group), Signal::SIGKILL);
        }
    }

    /// Asked by [`Self::end`]: for those that pack stores, and for what is done in their place where there is no git.
    pub(crate) fn packing(&self) -> &Interrupt {
        &self.packing
    }

    /// Whether [`Self::end`] was called.
    pub(super) fn have_ended(&self) -> bool {
        self.running().ended
    }

    /// Starts one; `None` when there is no such program.
    ///
    /// # Errors
    /// [`Error::Cancelled`] after [`Self::end`]; what the system says.
    pub(super) fn start(&self, command: &mut Command, program: &Path) -> Result<Option<(Child, Entry<'_>)>> {
        let mut running = self.running();
        if running.ended {
            return Err(Error::Cancelled);
        }
        let child = match command.process_group(0).spawn() {
            Ok(child) => child,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).at(program),
        };
        let group = i32::try_from(child.id()).ok();
        running.groups.extend(group);
        drop(running);
        Ok(Some((
            child,
            Entry {
                children: self,
                group,
            },
        )))
    }

    /// The program to run for git, with what comes before git on its command line: where util-linux has what makes git die
    /// with us even when we are killed, that.
    pub(super) fn command(&self, git: &Path, path: Option<&std::ffi::OsStr>) -> Command {
        let before = self.before.get_or_init(|| {
            let words = || ["--pdeathsig", "KILL"].map(OsString::from);
            path.into_iter()
                .flat_map(std::env::split_paths)
                .map(|dir| dir.join("setpriv"))
                .filter(|program| program.is_absolute() && program.is_file())
                .find(|program| {
                    Command::new(program)
                        .args(words())
                        .arg(git)
                        .arg("version")
                        .env_clear()
                        .current_dir("/")
                        .stdin(Stdio::null())
                        .stdout(Stdio::null())
                        .stderr(Stdio::null())
                        .status()
                        .is_ok_and(|status| status.success())
                })
                .map(|program| [program.into_os_string()].into_iter().chain(words()).collect())
                .unwrap_or_default()
        });
        match before.split_first() {
            // What `setpriv` says of a git that has gone couldn't be told from what git says.
            Some((program, words)) if git.exists() => {
                let mut command = Command::new(program);
                command.args(words).arg(git);
                command
            }
            _ => Command::new(git),
        }
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One that runs, until dropped: before it is waited for, as its number may be another's after that.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    children: &'a Children,
    group: Option<i32>,
}

impl Entry<'_> {
    /// Kills it.
    pub fn kill(&self) {
        if let Some(group) = self.group {
            // Gone already is as good.
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            self.children.running().groups.remove(&group);
        }
    }
}
