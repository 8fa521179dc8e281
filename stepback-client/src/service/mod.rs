//! The daemon as a service: what systemd, or on macOS launchd, is told about it. Our own files alone are touched.

mod launchd;
mod systemd;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::connection::{Endpoint, Probe};
use crate::environment::Environment;
use crate::error::{At, Error, Result};
use crate::process;

pub use systemd::NAME;

/// Whether launchd rather than systemd looks after services here.
const LAUNCHD: bool = cfg!(target_os = "macos");

/// A unit, or an agent, of the daemon's that is in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// Its file.
    pub file: PathBuf,
    /// `stepback daemon install` put it there, no package did.
    pub own: bool,
    /// The state directory of the daemon that it starts.
    pub state: PathBuf,
    /// The program that it starts.
    pub program: Option<PathBuf>,
}

/// What is in place, by its files alone.
pub fn installed(environment: &Environment) -> Option<Installed> {
    if LAUNCHD {
        launchd::installed(environment)
    } else {
        systemd::installed(environment)
    }
}

/// Puts the unit or agent in place, for the daemon `binary`; whether anything in it is new. Nothing is started.
///
/// # Errors
/// When no service manager answers, with what to do without one; when a file can't be written. Then nothing is left.
pub fn put(environment: &Environment, binary: &Path) -> Result<bool> {
    if LAUNCHD {
        launchd::put(environment, binary)
    } else {
        systemd::put(environment, binary)
    }
}

/// Has the service manager start the daemon now and at each login.
///
/// # Errors
/// What the manager says.
pub fn enable(environment: &Environment) -> Result<()> {
    if LAUNCHD {
        launchd::enable(environment)
    } else {
        systemd::enable(environment)
    }
}

/// Takes out what [`put`] and [`enable`] did, the running daemon included. Nothing to take out is fine.
///
/// # Errors
/// When a file of ours can't be removed.
pub fn remove(environment: &Environment) -> Result<()> {
    if LAUNCHD {
        launchd::remove(environment)
    } else {
        systemd::remove(environment)
    }
}

/// Has the service manager start the daemon, if there is a unit and it is for our state directory. `None` when there
/// isn't, else whether it did. It returns when the daemon answers.
pub fn start(environment: &Environment) -> Option<bool> {
    installed(environment).filter(|unit| unit.state == environment.state)?;
    let started = if LAUNCHD {
        launchd::start(environment)
    } else {
        systemd::start(environment)
    };
    Some(started.is_ok())
}

/// As [`Endpoint::probe`], but a daemon that sleeps behind a socket of systemd's isn't woken by being looked for.
///
/// # Errors
/// As [`Endpoint::probe`].
pub fn look(endpoint: &Endpoint, environment: &Environment) -> Result<Probe> {
    let wakes = !endpoint.is_named() && installed(environment).is_some();
    if wakes && !endpoint.recorded_pid().is_some_and(process::is_daemon) {
        return Ok(Probe::Absent);
    }
    endpoint.probe()
}

/// Whether the service manager has started this process. Only systemd's can be told by the process.
pub fn looks_after(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|groups| groups.contains(NAME))
}

/// Runs a program of the service manager's to its end; its output.
fn call(program: &Path, args: &[&str]) -> io::Result<String> {
    let ended = Command::new(program).args(args).stdin(Stdio::null()).output()?;
    if ended.status.success() {
        return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&ended.stderr);
    let words = words.trim();
    Err(io::Error::other(if words.is_empty() {
        format!("it ended with {}", ended.status)
    } else {
        words.replace('\n', "; ")
    }))
}

/// Writes a file as a whole, unless it holds just that; whether it was new.
fn write(file: &Path, text: &str) -> Result<bool> {
    if fs::read(file).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(false);
    }
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir).at(dir)?;
    }
    let temporary = file.with_extension("stepback-tmp");
    let written = fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, file));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written.at(file)?;
    Ok(true)
}

/// Removes a file of ours; one that isn't there is fine.
fn unlink(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e).at(file),
        _ => Ok(()),
    }
}

/// A path for a file that holds text only.
fn text(path: &Path) -> Result<&str> {
    match path.to_str() {
        Some(text) if !text.contains(char::is_control) => Ok(text),
        _ => Err(Error::Environment {
            message: format!("a service can't be made with the path {}", path.display()),
            hint: "use a path of printable UTF-8 text".into(),
        }),
    }
}

/// Where git is, where the service manager's own PATH may not lead: then the service needs ours.
fn path_for_git(environment: &Environment) -> Option<String> {
    let git = environment.program("git")?;
    let usual = ["/usr/local/bin", "/usr/bin", "/bin"];
    if usual.iter().any(|dir| git.parent() == Some(Path::new(dir))) {
        return None;
    }
    environment.path.clone()?.into_string().ok()
}

/// What the service has to be told of our environment, since no shell starts it: name and value.
fn variables(environment: &Environment) -> Result<Vec<(String, String)>> {
    let mut variables = Vec::new();
    for (name, value) in &environment.for_service {
        variables.push(((*name).to_owned(), text(Path::new(value))?.to_owned()));
    }
    variables.extend(path_for_git(environment).map(|path| ("PATH".to_owned(), path)));
    Ok(variables)
}
