//! `stepback daemon`

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use stepback_proto::{DaemonInfo, Failure, FailureKind, Reply, Request, Verb, WirePath};

use crate::app::App;
use crate::autostart;
use crate::connection::{Connection, Probe};
use crate::error::{At, Error, Result};
use crate::process;
use crate::reader;
use crate::render::path::one_line;
use crate::render::{json, written};
use crate::service;

/// How long a daemon may take to go. It takes the pending checkpoints and exits within 5 s.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long one that doesn't answer may take to go when it is asked by a signal, before it is killed.
const SILENT_STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// How long it may take to say who it is, or that it will go.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How often it is looked whether the daemon is gone.
const STOP_POLL: Duration = Duration::from_millis(10);

/// How often a followed log is looked at.
const LOG_POLL: Duration = Duration::from_millis(200);

/// The daemon itself.
#[derive(Debug, clap::Subcommand)]
pub enum Daemon {
    /// Start it, unless it runs; returns when it answers
    Start,
    /// Stop it, after the pending checkpoints; returns when it is gone
    Stop,
    /// Stop it and start it; returns when it answers
    Restart,
    /// Say whether it runs; exit code 1 when it doesn't
    Status,
    /// Print its log
    Logs {
        /// Follow what is added
        #[arg(short, long)]
        follow: bool,
    },
    /// Have systemd (launchd on macOS) start it now and at each login
    Install,
    /// Take that back; checkpoints stay, and the next command that needs the daemon starts it
    Uninstall,
}

pub fn run(app: &App, daemon: Daemon) -> Result<u8> {
    match daemon {
        Daemon::Start => start(app),
        Daemon::Stop => {
            let stopped = stop(app)?;
            report(app, None)?;
            if !app.printer.json {
                app.printer.text(&match stopped {
                    Some(pid) => format!("stopped (pid {pid})\n"),
                    None => "no daemon was running\n".into(),
                })?;
            }
            Ok(0)
        }
        Daemon::Install => install(app),
        Daemon::Uninstall => uninstall(app),
        Daemon::Restart => {
            autostart::check(&app.endpoint, &app.environment)?;
            stop(app)?;
            start(app)
        }
        Daemon::Status => status(app),
        Daemon::Logs { follow } => logs(app, follow),
    }
}

fn start(app: &App) -> Result<u8> {
    let connection = match app.endpoint.probe()? {
        Probe::Ready(connection) => connection,
        Probe::WrongVersion(welcome) => return Err(Error::WrongVersion(welcome)),
        Probe::Absent => autostart::start(&app.endpoint, &app.environment)?,
    };
    let info = ping(connection)?;
    report(app, Some(&info))?;
    Ok(0)
}

fn install(app: &App) -> Result<u8> {
    let binary = autostart::known_binary(&app.endpoint, &app.environment)?;
    let binary = std::path::absolute(&binary).at(&binary)?;
    autostart::check(&app.endpoint, &app.environment)?;
    let before = service::put(&app.environment, &binary)?;
    let mut stopped = None;
    if let Err(e) = hand_over(app, &before, &mut stopped) {
        service::take_back(&app.environment, &before)?;
        // Whoever had a daemon before has one after.
        if stopped.is_some()
            && let Err(other) = autostart::start(&app.endpoint, &app.environment)
        {
            app.printer
                .warn(&format!("the daemon that ran was stopped, and: {other}"));
        }
        return Err(e);
    }
    start(app)?;
    let file = service::installed(&app.environment).map(|unit| unit.file);
    app.printer.note(&format!(
        "installed: {}",
        file.unwrap_or_default().to_string_lossy()
    ));
    Ok(0)
}

/// Has the service manager start the daemon; one that was started by hand makes room for it, and is told in `stopped`.
fn hand_over(app: &App, before: &service::Before, stopped: &mut Option<u32>) -> Result<()> {
    if before.is_changed() || !by_manager(app)? {
        *stopped = stop(app)?;
    }
    service::enable(&app.environment)
}

/// Whether the daemon that runs is one that systemd started.
fn by_manager(app: &App) -> Result<bool> {
    Ok(match service::look(&app.endpoint, &app.environment) {
        Ok(Probe::Ready(connection)) => ping(connection).is_ok_and(|info| service::looks_after(info.pid)),
        Ok(Probe::WrongVersion(_) | Probe::Absent) | Err(Error::Silent { .. }) => false,
        Err(e) => return Err(e),
    })
}

fn uninstall(app: &App) -> Result<u8> {
    let unit = service::installed(&app.environment);
    service::remove(&app.environment)?;
    let left = service::installed(&app.environment);
    // One that was started by hand goes on.
    let running = match service::look(&app.endpoint, &app.environment) {
        Ok(Probe::Ready(connection)) => ping(connection).map(Some),
        Ok(Probe::WrongVersion(_) | Probe::Absent) => Ok(None),
        Err(e) => Err(e),
    };
    if let Ok(info) = &running {
        report(app, info.as_ref())?;
    }
    if !app.printer.json {
        app.printer.text(&match (unit, left) {
            (_, Some(left)) if left.own => {
                format!(
                    "disabled; {} was changed by hand and stays\n",
                    left.file.display()
                )
            }
            (_, Some(left)) => format!(
                "disabled; {} belongs to a package and stays\n",
                left.file.display()
            ),
            (Some(unit), None) => format!("removed {}\n", unit.file.display()),
            (None, None) => "not installed\n".into(),
        })?;
    }
    running.map(|_| 0)
}

fn status(app: &App) -> Result<u8> {
    match service::look(&app.endpoint, &app.environment)? {
        Probe::Ready(connection) => {
            report(app, Some(&ping(connection)?))?;
            Ok(0)
        }
        Probe::WrongVersion(welcome) => {
            let socket = WirePath::from(app.endpoint.socket());
            if app.printer.json {
                app.printer
                    .json(&json::daemon(Some((welcome.pid, &welcome.version)), &socket))?;
            } else {
                app.printer
                    .text(&running(&welcome.version, welcome.pid, &socket))?;
            }
            let mismatch = Error::WrongVersion(welcome);
            app.printer.warn(&mismatch.to_string());
            app.printer.hint(&mismatch.hint());
            Ok(0)
        }
        Probe::Absent => {
            report(app, None)?;
            if !app.printer.json {
                app.printer.text("not running\n")?;
                app.printer
                    .hint("`stepback daemon start` starts it, and so does any command that needs it");
            }
            Ok(1)
        }
    }
}

/// Prints who runs: as JSON in any case, for people only if one does.
fn report(app: &App, info: Option<&DaemonInfo>) -> Result<()> {
    let socket = info.map_or_else(|| app.endpoint.socket().into(), |i| i.socket.clone());
    match info {
        _ if app.printer.json => app
            .printer
            .json(&json::daemon(info.map(|i| (i.pid, i.version.as_str())), &socket)),
        Some(info) => app.printer.text(&running(&info.version, info.pid, &socket)),
        None => Ok(()),
    }
}

fn running(version: &str, pid: u32, socket: &WirePath) -> String {
    format!(
        "running: stepbackd {} (pid {pid}) on {}\n",
        one_line(version),
        socket.lossy()
    )
}

fn ping(connection: Connection) -> Result<DaemonInfo> {
    match ask(connection, Verb::Ping)? {
        Reply::Daemon(info) => Ok(info),
        _ => Err(Error::Unexpected("ping")),
    }
}

fn ask(connection: Connection, verb: Verb) -> Result<Reply> {
    connection.limit(Some(ANSWER_TIMEOUT))?;
    let request = Request {
        place: Path::new("/").into(),
        verb,
    };
    let answer = connection.ask(&request, &mut |_| Ok(()));
    // What is asked here waits for no file system: it is the daemon itself that hangs.
    answer.map_err(|e| match e {
        Error::Unanswered { pid, why } => Error::Silent {
            pid: Some(pid).filter(|pid| process::is_daemon(*pid)),
            why,
            noted: None,
        },
        other => other,
    })
}

/// Stops the daemon and waits until its process is gone; its id, if one ran.
fn stop(app: &App) -> Result<Option<u32>> {
    let pid = match ask_to_stop(app) {
        Err(Error::Silent { pid, why, noted }) => {
            // Of a socket that is recorded alone it is known whose it is.
            let Some(pid) = pid.or_else(|| app.endpoint.serving_pid().filter(|_| !app.endpoint.is_named()))
            else {
                return Err(Error::Silent { pid, why, noted });
            };
            end_silent(app, pid)?;
            pid
        }
        asked => match asked? {
            Some(pid) => pid,
            None => return Ok(None),
        },
    };
    if is_gone_within(pid, STOP_TIMEOUT) {
        return Ok(Some(pid));
    }
    Err(Error::Told(Failure {
        kind: FailureKind::Busy,
        message: format!(
            "the daemon (pid {pid}) is still there after {} s",
            STOP_TIMEOUT.as_secs()
        ),
        hint: format!(
            "see `stepback daemon logs`; `kill -9 {pid}` ends it, `stepback recover` mends what it left"
        ),
    }))
}

/// Asks the daemon to end; its process, if one ran.
fn ask_to_stop(app: &App) -> Result<Option<u32>> {
    let pid = match service::look(&app.endpoint, &app.environment)? {
        Probe::Absent => return Ok(None),
        Probe::WrongVersion(welcome) => {
            if !process::is_daemon(welcome.pid) {
                return Err(Error::silent(format!(
                    "what listens at {} says that it is process {}, which is no stepbackd",
                    app.endpoint.socket().display(),
                    welcome.pid
                )));
            }
            // It doesn't know our requests, but every daemon knows this signal.
            process::terminate(welcome.pid)?;
            welcome.pid
        }
        Probe::Ready(connection) => {
            let pid = ping(connection)?.pid;
            match app.endpoint.probe()? {
                Probe::Ready(connection) => match ask(connection, Verb::Shutdown) {
                    // It may be gone before its answer is out.
                    Ok(_) | Err(Error::Lost(_)) => {}
                    Err(e) => return Err(e),
                },
                Probe::WrongVersion(_) | Probe::Absent => {}
            }
            pid
        }
    };
    Ok(Some(pid))
}

/// Ends a daemon that doesn't answer: by the service manager, which else would start it again; by a signal, after which
/// it takes the pending checkpoints if it can; by force.
fn end_silent(app: &App, pid: u32) -> Result<()> {
    if service::stop(&app.environment, pid) {
        return Ok(());
    }
    process::terminate(pid)?;
    // Looked at again: by then the number may be another's.
    if !is_gone_within(pid, SILENT_STOP_TIMEOUT) && app.endpoint.serving_pid() == Some(pid) {
        process::kill(pid)?;
        app.printer.warn(&format!(
            "the daemon (pid {pid}) didn't answer and was killed; nothing that is saved is lost"
        ));
    }
    Ok(())
}

/// Waits until the process is gone, for so long at most; whether it is.
fn is_gone_within(pid: u32, wait: Duration) -> bool {
    let deadline = Instant::now() + wait;
    while process::is_there(pid) {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(STOP_POLL);
    }
    true
}

fn logs(app: &App, follow: bool) -> Result<u8> {
    let Some(path) = log_file(app)? else {
        return journal(app, follow);
    };
    let mut file = File::open(&path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Error::Environment {
            message: format!("there is no log at {}", path.display()),
            hint: "no daemon has run yet; one that systemd starts logs to the journal: journalctl --user -u stepbackd"
                .into(),
        },
        _ => Error::Io {
            path: path.clone(),
            source: e,
        },
    })?;
    let mut older = older_log(&path, &file)?;
    if !follow {
        let mut sink = app.printer.sink(&app.environment);
        if let Some(older) = &mut older {
            written(io::copy(older, &mut sink).map(drop))?;
        }
        written(io::copy(&mut file, &mut sink).map(drop))?;
        written(sink.finish())?;
        return Ok(0);
    }
    reader::end_when_gone();
    if let Some(older) = &mut older {
        written(io::copy(older, &mut io::stdout().lock()).map(drop))?;
    }
    let mut read = 0;
    loop {
        let mut piece = Vec::new();
        read += file.read_to_end(&mut piece).at(&path)? as u64;
        if !piece.is_empty() {
            let mut out = io::stdout().lock();
            written(out.write_all(&piece).and_then(|()| out.flush()))?;
        }
        let own = file.metadata().at(&path)?;
        // Renamed away or cut: go on in the new one.
        match fs::metadata(&path) {
            Ok(now) if now.ino() != own.ino() || now.len() < read => {
                file = File::open(&path).at(&path)?;
                read = 0;
            }
            _ => thread::sleep(LOG_POLL),
        }
    }
}

/// What was logged before the log at `path` was turned over, unless that is the one that we have open.
fn older_log(path: &Path, open: &File) -> Result<Option<File>> {
    let path = path.with_extension("log.1");
    let older = match File::open(&path) {
        Ok(older) => older,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).at(&path),
    };
    let is_other = older.metadata().at(&path)?.ino() != open.metadata().at(&path)?.ino();
    Ok(is_other.then_some(older))
}

/// The log in the journal, by the user's own journalctl.
fn journal(app: &App, follow: bool) -> Result<u8> {
    let program = app
        .environment
        .program("journalctl")
        .ok_or_else(|| Error::Environment {
            message: "the daemon logs to the journal, and journalctl is not in PATH".into(),
            hint: "install systemd's journalctl, or start the daemon by hand: then it logs to a file".into(),
        })?;
    let mut command = Command::new(&program);
    command.args(["--user", "--unit", service::NAME, "--output", "short-iso"]);
    if follow {
        command.arg("--follow");
    }
    // It becomes us: its pager, its exit code.
    Err(command.exec()).at(program)
}

/// The log file that the running daemon names, else where one logs by default; `None` when it logs to the journal.
fn log_file(app: &App) -> Result<Option<PathBuf>> {
    let default = app.endpoint.state().join("log/stepbackd.log");
    let found = match service::look(&app.endpoint, &app.environment) {
        // What it said before it fell silent is what is wanted then.
        Err(Error::Silent { .. }) => None,
        found => Some(found?),
    };
    Ok(match found {
        Some(Probe::Ready(connection)) => ping(connection)?.log.map(|log| log.as_path().to_owned()),
        Some(Probe::WrongVersion(_) | Probe::Absent) | None => {
            Some(default).filter(|file| file.exists() || service::installed(&app.environment).is_none())
        }
    })
}
