//! `stepback daemon`

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use stepback_proto::{DaemonInfo, Failure, FailureKind, Reply, Request, Verb, WirePath};

use crate::app::App;
use crate::autostart;
use crate::connection::{Connection, Probe};
use crate::error::{At, Error, Result};
use crate::reader;
use crate::render::path::one_line;
use crate::render::{json, written};

/// How long a daemon may take to go. It takes the pending checkpoints and exits within 5 s.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

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

fn status(app: &App) -> Result<u8> {
    match app.endpoint.probe()? {
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
    connection.ask(
        &Request {
            place: Path::new("/").into(),
            verb,
        },
        &mut |_| Ok(()),
    )
}

/// Stops the daemon and waits until its process is gone; its id, if one ran.
fn stop(app: &App) -> Result<Option<u32>> {
    let pid = match app.endpoint.probe()? {
        Probe::Absent => return Ok(None),
        Probe::WrongVersion(welcome) => {
            // It doesn't know our requests, but every daemon knows this signal.
            terminate(welcome.pid)?;
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
    let deadline = Instant::now() + STOP_TIMEOUT;
    while alive(pid) {
        if Instant::now() > deadline {
            return Err(Error::Told(Failure {
                kind: FailureKind::Busy,
                message: format!(
                    "the daemon (pid {pid}) is still there after {} s",
                    STOP_TIMEOUT.as_secs()
                ),
                hint: format!(
                    "see `stepback daemon logs`; `kill -9 {pid}` ends it, `stepback recover` mends what it left"
                ),
            }));
        }
        thread::sleep(STOP_POLL);
    }
    Ok(Some(pid))
}

fn terminate(pid: u32) -> Result<()> {
    match signal::kill(process(pid), Signal::SIGTERM) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(e) => Err(Error::Io {
            path: format!("process {pid}").into(),
            source: e.into(),
        }),
    }
}

/// Whether the process runs. One that has ended but that its parent hasn't asked after yet doesn't.
fn alive(pid: u32) -> bool {
    if signal::kill(process(pid), None) == Err(Errno::ESRCH) {
        return false;
    }
    let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else {
        return !Path::new("/proc/self").exists();
    };
    let state = stat
        .iter()
        .rposition(|b| *b == b')')
        .and_then(|end| stat.get(end + 2));
    !matches!(state, Some(b'Z' | b'X'))
}

/// The process of this id and no group: 0 and numbers that are none are nobody.
fn process(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).ok().filter(|p| *p > 0).unwrap_or(i32::MAX))
}

fn logs(app: &App, follow: bool) -> Result<u8> {
    let path = log_file(app)?;
    let mut file = File::open(&path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Error::Environment {
            message: format!("there is no log at {}", path.display()),
            hint: "a daemon that systemd started logs to the journal: journalctl --user -u stepbackd".into(),
        },
        _ => Error::Io {
            path: path.clone(),
            source: e,
        },
    })?;
    if !follow {
        let mut sink = app.printer.sink(&app.environment);
        written(io::copy(&mut file, &mut sink).map(drop))?;
        written(sink.finish())?;
        return Ok(0);
    }
    reader::end_when_gone();
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

/// What the running daemon names, else where one logs by default.
fn log_file(app: &App) -> Result<PathBuf> {
    let named = match app.endpoint.probe()? {
        Probe::Ready(connection) => ping(connection)?.log,
        Probe::WrongVersion(_) | Probe::Absent => None,
    };
    Ok(named.map_or_else(
        || app.endpoint.state().join("log/stepbackd.log"),
        |p| p.as_path().to_owned(),
    ))
}
