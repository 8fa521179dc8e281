//! The daemon as a service: what systemd, or on macOS launchd, is told about it. Our own files alone are touched.

mod launchd;
mod systemd;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::bounded;
use crate::connection::Probe;
use crate::endpoint::Endpoint;
use crate::environment::Environment;
use crate::error::{At, Error, Result};
use crate::process;
use crate::whole;

pub use systemd::NAME;

/// Of a file that a service manager reads, less the umask.
const MODE: u32 = 0o666;

/// Whether launchd rather than systemd looks after services here.
const LAUNCHD: bool = cfg!(target_os = "macos");

/// How long the service manager may take to start or to end the daemon.
const WORK_TIMEOUT: Duration = Duration::from_secs(30);

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

/// Puts the unit or agent in place, for the daemon `binary`; what was there before. Nothing is started.
///
/// # Errors
/// When no service manager answers, with what to do without one; when there is a file that somebody else has written or
/// changed; when one can't be written. Then all is as before.
pub fn put(environment: &Environment, binary: &Path) -> Result<Before> {
    if LAUNCHD {
        launchd::put(environment, binary)
    } else {
        systemd::put(environment, binary)
    }
}

/// Takes back what [`put`] and [`enable`] did.
///
/// # Errors
/// When a file can't be put back or removed.
pub fn take_back(environment: &Environment, before: &Before) -> Result<()> {
    if LAUNCHD {
        launchd::take_back(environment, before)
    } else {
        systemd::take_back(environment, before)
    }
}

/// Has the service manager end the daemon `pid`, if it looks after it; whether it did.
pub fn stop(environment: &Environment, pid: u32) -> bool {
    looks_after(pid) && systemd::stop(environment).is_ok()
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

/// Takes out what [`put`] and [`enable`] did, the running daemon included. Nothing to take out is fine. Files that
/// somebody has changed since stay.
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
/// isn't, else whether it did, within `limit`. It returns when the daemon answers.
pub fn start(environment: &Environment, limit: Duration) -> Option<bool> {
    installed(environment).filter(|unit| unit.state == environment.state)?;
    let started = if LAUNCHD {
        launchd::start(environment, limit)
    } else {
        systemd::start(environment, limit)
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

/// Runs a program of the service manager's to its end, which it has to come to within `limit`; its output.
fn call(program: &Path, args: &[&str], limit: Duration) -> io::Result<String> {
    let ended = bounded::output(Command::new(program).args(args), limit)?;
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

/// What was in place of the files that were written: the contents, or none. Those that were the same aren't in it.
#[derive(Debug)]
pub struct Before {
    changed: Vec<(PathBuf, Option<String>)>,
    all: usize,
}

impl Before {
    /// Whether something is other than before.
    pub fn is_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Whether there was none of these files.
    fn was_empty(&self) -> bool {
        self.changed.len() == self.all && self.changed.iter().all(|(_, old)| old.is_none())
    }

    /// Makes it all as before.
    fn back(&self) -> Result<()> {
        for (file, old) in &self.changed {
            match old {
                Some(old) => whole::write(file, old, MODE)?,
                None => whole::remove(file)?,
            }
        }
        Ok(())
    }
}

/// Writes files of ours, each as a whole and with a seal in a comment, unless they hold just that.
///
/// # Errors
/// When one of them is there and isn't ours, or can't be written; then all is as before.
fn write(files: &[(PathBuf, String)], comment: [&str; 2]) -> Result<Before> {
    let mut before = Before {
        changed: Vec::new(),
        all: files.len(),
    };
    for (file, text) in files {
        let old = match fs::read(file) {
            Ok(old) => String::from_utf8(old).map_err(|_| foreign(file))?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                before.changed.push((file.clone(), None));
                continue;
            }
            Err(e) => return Err(e).at(file),
        };
        if old != *text && !is_ours(&old, comment) {
            return Err(foreign(file));
        }
        if old != sealed(text, comment) {
            before.changed.push((file.clone(), Some(old)));
        }
    }
    for (file, text) in files {
        if before.changed.iter().all(|(changed, _)| changed != file) {
            continue;
        }
        if let Err(e) = whole::write(file, &sealed(text, comment), MODE) {
            before.back()?;
            return Err(e);
        }
    }
    Ok(before)
}

fn foreign(file: &Path) -> Error {
    Error::Environment {
        message: format!(
            "{} was written or changed by somebody else than `stepback daemon install`: it stays as it is",
            file.display()
        ),
        hint: "move it away and install again; on systemd, `systemctl --user edit stepbackd` then adds settings of \
               your own, which no install touches"
            .into(),
    }
}

/// What a seal says before its sum.
const SEAL: &str = "Written by stepback daemon install; it leaves a changed file alone. Sum: ";

/// The text with a last line by which it is known as ours, and as unchanged.
fn sealed(text: &str, [open, close]: [&str; 2]) -> String {
    // FNV-1a: against changes by people, not against forgers.
    let sum = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("{text}{open}{SEAL}{sum:016x}{close}\n")
}

/// Whether a file with this text is as we wrote it.
fn is_ours(text: &str, comment: [&str; 2]) -> bool {
    text.rfind(&format!("{}{SEAL}", comment[0]))
        .is_some_and(|at| sealed(&text[..at], comment) == text)
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
