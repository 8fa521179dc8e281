//! Starting the daemon when none answers.

use std::env;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::SigSet;

use crate::child;
use crate::connection::{Connection, Probe};
use crate::endpoint::Endpoint;
use crate::environment::{Environment, is_program};
use crate::error::{Error, Result};
use crate::{bounded, confined, service};

/// How long `stepbackd --daemonize` may take. It returns once the daemon answers.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The exit code of `stepbackd` when a file that it reads at its start (settings, registry) is broken; as `sysexits.h`.
const EX_CONFIG: i32 = 78;

/// The exit code of a `stepbackd` that doesn't know an option of ours.
const EX_OPTION: i32 = 2;

/// The most bytes of its last words that are read.
const WORDS_MAX: u64 = 64 * 1024;

const DAEMONIZE: &str = "--daemonize";

/// Only reads what a start would read.
const CHECK: &str = "--check";

const NAME_IT: &str = "set STEPBACKD to the daemon's binary";

const SEE_LOG: &str = "see `stepback daemon logs`";

/// A connection to the daemon, which is started if need be and allowed.
///
/// # Errors
/// When there is none and none can be started, or one of another protocol answers.
pub fn connect(endpoint: &Endpoint, environment: &Environment) -> Result<Connection> {
    match endpoint.probe()? {
        Probe::Ready(connection) => Ok(connection),
        Probe::WrongVersion(welcome) => Err(Error::WrongVersion(welcome)),
        Probe::Absent if environment.no_autostart => Err(Error::Absent {
            socket: endpoint.socket(),
            why: "STEPBACK_NO_AUTOSTART=1 forbids to start one".into(),
            hint: "run `stepback daemon start`".into(),
        }),
        Probe::Absent => {
            if let Some(connection) = through_service(endpoint, environment)? {
                return Ok(connection);
            }
            match confined::by(&environment.state) {
                Some(how) => Err(Error::Absent {
                    socket: endpoint.socket(),
                    why: format!("this command runs in a sandbox ({how}), where none is started"),
                    hint: "run `stepback daemon start` in a terminal of your own, or once `stepback daemon install`"
                        .into(),
                }),
                None => directly(endpoint, environment),
            }
        }
    }
}

/// Starts the daemon, through the service manager if it has a unit, and connects to it.
///
/// # Errors
/// When the binary isn't found, or ends badly, or doesn't answer afterwards.
pub fn start(endpoint: &Endpoint, environment: &Environment) -> Result<Connection> {
    match through_service(endpoint, environment)? {
        Some(connection) => Ok(connection),
        None => directly(endpoint, environment),
    }
}

/// `None` when there is no unit for this daemon, or its manager can't start it: an own start tells why it fails.
fn through_service(endpoint: &Endpoint, environment: &Environment) -> Result<Option<Connection>> {
    if service::start(environment, endpoint.start_patience()) != Some(true) {
        return Ok(None);
    }
    match endpoint.probe()? {
        Probe::Ready(connection) => Ok(Some(connection)),
        Probe::WrongVersion(welcome) => Err(Error::WrongVersion(welcome)),
        Probe::Absent => Ok(None),
    }
}

/// Starts the daemon and connects to it. Many at once are fine: the daemon holds the start-up lock, and each of these
/// ends once one daemon answers.
///
/// # Errors
/// When the binary isn't found, or ends badly, or doesn't answer afterwards.
fn directly(endpoint: &Endpoint, environment: &Environment) -> Result<Connection> {
    let binary = known_binary(endpoint, environment)?;
    let failed = |e| not_run(&binary, &e);
    let child = command(&binary)
        .and_then(|mut command| {
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
        })
        .map_err(failed)?;
    let pid = child.id();
    let (report, ended) = mpsc::channel();
    thread::spawn(move || {
        // It may outlive its use, and `run` counts on getting every signal itself. Blocking can't fail.
        let _ = SigSet::all().thread_block();
        // The receiver is gone only when it stopped waiting.
        let _ = report.send(end_of(child));
    });
    ended.recv_timeout(START_TIMEOUT).unwrap_or_else(|_| {
        let seconds = START_TIMEOUT.as_secs();
        Err(not_started(format!(
            "{} (pid {pid}) isn't up after {seconds} s",
            binary.display()
        )))
    })?;
    match endpoint.probe()? {
        Probe::Ready(connection) => Ok(connection),
        Probe::WrongVersion(welcome) => Err(Error::WrongVersion(welcome)),
        Probe::Absent => Err(not_started(format!(
            "it doesn't answer at {} although it says so",
            endpoint.socket().display()
        ))),
    }
}

/// Whether a daemon could read its settings and its registry, for those who are about to end the one that runs.
///
/// # Errors
/// When it couldn't, or the binary isn't found. A binary that is too old to tell is left to its start.
pub fn check(endpoint: &Endpoint, environment: &Environment) -> Result<()> {
    let binary = known_binary(endpoint, environment)?;
    let ended =
        bounded::output(Command::new(&binary).arg(CHECK), START_TIMEOUT).map_err(|e| not_run(&binary, &e))?;
    if ended.status.success() || ended.status.code() == Some(EX_OPTION) {
        return Ok(());
    }
    Err(last_words(&String::from_utf8_lossy(&ended.stderr), ended.status))
}

/// The daemon's program.
///
/// # Errors
/// When it isn't found, with where it was looked for.
pub fn known_binary(endpoint: &Endpoint, environment: &Environment) -> Result<PathBuf> {
    binary(environment).ok_or_else(|| Error::Absent {
        socket: endpoint.socket(),
        why: "stepbackd is neither beside stepback nor in PATH".into(),
        hint: NAME_IT.into(),
    })
}

fn not_run(binary: &Path, e: &io::Error) -> Error {
    Error::NotStarted {
        why: format!("{}: {e}", binary.display()),
        hint: NAME_IT.into(),
        config: false,
    }
}

/// The command that starts the daemon, which must not inherit what `run` holds back.
fn command(binary: &Path) -> io::Result<Command> {
    let blocked = SigSet::thread_get_mask()?;
    if blocked.iter().next().is_some() {
        return child::command(&[binary.into(), DAEMONIZE.into()], &blocked);
    }
    let mut command = Command::new(binary);
    command.arg(DAEMONIZE);
    Ok(command)
}

fn not_started(why: String) -> Error {
    Error::NotStarted {
        why,
        hint: SEE_LOG.into(),
        config: false,
    }
}

/// Waits for the starting process; its last words when it ends badly.
fn end_of(mut child: Child) -> Result<()> {
    let status = match child.wait() {
        Ok(status) => status,
        // Where ends of children are ignored, only the socket can tell.
        Err(e) if e.raw_os_error() == Some(nix::libc::ECHILD) => return Ok(()),
        Err(e) => return Err(not_started(e.to_string())),
    };
    if status.success() {
        return Ok(());
    }
    // A daemon that failed to start holds no end of this pipe any longer; one that started might, but isn't read here.
    let mut words = Vec::new();
    if let Some(stderr) = child.stderr.take()
        && let Err(e) = stderr.take(WORDS_MAX).read_to_end(&mut words)
    {
        return Err(not_started(format!("its message can't be read: {e}")));
    }
    Err(last_words(&String::from_utf8_lossy(&words), status))
}

/// `stepbackd: what went wrong` and `hint: what to do`, as the daemon prints them, and what its exit code says.
fn last_words(words: &str, status: ExitStatus) -> Error {
    let mut lines = words.lines().map(str::trim).filter(|line| !line.is_empty());
    let why = match lines.next() {
        Some(line) => line.strip_prefix("stepbackd: ").unwrap_or(line).to_owned(),
        None => format!("stepbackd ended with {status}"),
    };
    let hint = lines
        .find_map(|line| line.strip_prefix("hint: "))
        .unwrap_or(SEE_LOG)
        .to_owned();
    Error::NotStarted {
        why,
        hint,
        config: status.code() == Some(EX_CONFIG),
    }
}

/// `STEPBACKD`, else the one beside this program, else the first in `PATH`.
pub fn binary(environment: &Environment) -> Option<PathBuf> {
    if let Some(named) = &environment.daemon {
        return Some(named.clone());
    }
    let beside = env::current_exe()
        .ok()
        .and_then(|own| own.parent().map(|dir| dir.join("stepbackd")));
    beside
        .filter(|path| is_program(path))
        .or_else(|| environment.program("stepbackd"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use stepback_proto::FailureKind;

    use super::*;

    #[test]
    fn last_words_become_an_error_with_a_kind() {
        let code = |n: i32| ExitStatus::from_raw(n << 8);
        let error = last_words(
            "stepbackd: /c/config.toml:3: unknown key `x`\nhint: mend it\n",
            code(EX_CONFIG),
        );
        assert_eq!(
            error.to_string(),
            "the daemon can't start: /c/config.toml:3: unknown key `x`"
        );
        assert_eq!((error.kind(), &*error.hint()), (FailureKind::Config, "mend it"));
        let error = last_words("", code(1));
        assert_eq!(error.kind(), FailureKind::DaemonUnavailable);
        assert!(error.to_string().contains("exit status: 1"), "{error}");
    }
}
