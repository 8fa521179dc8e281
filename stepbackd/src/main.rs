//! `stepbackd`: the daemon that watches project directories and keeps their checkpoints.
//!
//! | file | what |
//! |---|---|
//! | `main` | arguments, start, signals |
//! | `paths` `config` `environment` `logging` `daemonize` | the world around |
//! | `instance` `socket` `reserve` | one daemon for each STATE, one socket, also on a full disk |
//! | `registry` | which roots are attached |
//! | `keeper` | maintenance of the stores |
//! | `server` `connection` `handler` `named` `outlet` `convert` | from the wire to a job and back |
//! | `daemon` | what all roots share |
//! | `first_looks` | which root is scanned first after the start |
//! | `root/` | the actor of each root |
//! | `watch` `watches` `pending` `cookie` | from file events to what has to be looked at |
//! | `idle_trees` | which roots keep their tree in memory |
//! | `prune_roots` | deletes the checkpoints of roots whose directory is gone |
//! | `hooks` `talkers` | words of agents: to which root they go, and what the agent waits for |
//! | `hooks_seen` `unsaved` | when hooks of agents were heard of, and what they waited for in vain |
//! | `memory` | what was freed goes back to the system |
//! | `alive` `locks` `process` `place` `error` | small parts of these |

mod alive;
mod attach;
mod config;
mod connection;
mod convert;
mod cookie;
mod daemon;
mod daemonize;
mod environment;
mod error;
mod first_looks;
mod handler;
mod hooks;
mod hooks_seen;
mod idle_trees;
mod instance;
mod keeper;
mod locks;
mod logging;
mod memory;
mod named;
mod outlet;
mod paths;
mod pending;
mod place;
mod process;
mod prune_roots;
mod registry;
mod reserve;
mod root;
mod server;
mod socket;
mod state_file;
mod steady;
mod talkers;
mod unsaved;
mod watch;
mod watches;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Parser;
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, umask};
use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::Sender;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::daemon::Daemon;
use crate::daemonize::{Herald, Side};
use crate::error::{At, Error, Result};
use crate::instance::{Claim, Door, Instance};
use crate::logging::{Book, Gate};
use crate::paths::Paths;
use crate::registry::Registry;

/// The whole stop takes at most 5 s; what is left is for the process to end.
const STOP_PATIENCE: Duration = Duration::from_millis(4500);

/// How long it is waited after a CONT for the TERM that may belong to it.
const A_MOMENT: Duration = Duration::from_millis(100);

/// How often a full disk is tried for the note that says where we listen.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(20);

/// Watches attached directories and keeps checkpoints of them. Clients talk to it over a Unix socket; `stepback` starts
/// it when there is none.
#[derive(Debug, Parser)]
#[command(name = "stepbackd", version)]
struct Arguments {
    /// Stay in the foreground (the default)
    #[arg(long, conflicts_with = "daemonize")]
    foreground: bool,
    /// Go to the background; return when the daemon answers
    #[arg(long)]
    daemonize: bool,
    /// Only read what a start would read, and say what is broken
    #[arg(long, hide = true, conflicts_with_all = ["foreground", "daemonize"])]
    check: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut herald = Herald::none();
    match run(&arguments, &mut herald) {
        Ok(code) => code,
        Err(error) => {
            let mut words = format!("stepbackd: {error}\n");
            if !error.hint().is_empty() {
                words.push_str(&format!("hint: {}\n", error.hint()));
            }
            tracing::error!("{error}");
            herald.tell(error.exit_code(), &words);
            say(&words);
            ExitCode::from(error.exit_code())
        }
    }
}

/// The one place that prints.
fn say(words: &str) {
    // Nobody may be there to read it.
    let _ = std::io::stderr().write_all(words.as_bytes());
}

fn run(arguments: &Arguments, herald: &mut Herald) -> Result<ExitCode> {
    environment::scrub()?;
    memory::settle();
    umask(Mode::from_bits_truncate(0o077));
    let lookup = |name: &str| std::env::var_os(name);
    environment::close_inherited(lookup);
    environment::raise_descriptor_limit();
    let mut paths = Paths::from_environment(lookup)?;
    let asked = lookup("STEPBACK_SOCKET").is_some() || lookup("LISTEN_PID").is_some();
    if arguments.check {
        paths.check_files()?;
        Registry::read(&paths.registry())?;
        log_filter(lookup, &Config::read(&paths)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    reserve::release_if_full(&paths.reserve());
    paths.make_state()?;
    if arguments.daemonize {
        if let Some(served) = instance::served_by(&paths) {
            let (code, words) = already_served(&paths, asked, &served);
            say(&words);
            return Ok(ExitCode::from(code));
        }
        match daemonize::split()? {
            Side::Daemon(of_background) => *herald = of_background,
            Side::Command(code, words) => {
                say(&words);
                return Ok(ExitCode::from(code));
            }
        }
    }
    let config = Config::read(&paths)?;
    let filter = log_filter(lookup, &config)?;
    let under_systemd = lookup("NOTIFY_SOCKET").is_some() || lookup("LISTEN_PID").is_some();
    let mut instance = match Instance::claim(&paths)? {
        Claim::Ours(instance) => instance,
        Claim::Served { pid, socket } => {
            let (code, words) = already_served(&paths, asked, &(pid, socket));
            say(&words);
            herald.tell(code, &words);
            return Ok(ExitCode::from(code));
        }
    };
    let log = logging::start(&filter, &paths.log_file(), under_systemd && !arguments.daemonize)?;
    let passed = passed_socket()?;
    let own_socket = passed.is_none();
    let listener = match passed {
        Some(listener) => {
            // Where systemd listens for us is where clients are to go, whatever our own default is.
            let address = listener.local_addr().at("LISTEN_FDS")?;
            paths.socket = address.as_pathname().unwrap_or(&paths.socket).to_owned();
            listener
        }
        None => socket::listen(&paths.socket)?,
    };
    listener.set_nonblocking(true).at(&paths.socket)?;
    let environment = environment::for_engine(&paths, lookup);
    if environment.git.program.is_none() {
        tracing::warn!("git is not in PATH: files that are tracked but ignored are not captured");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("wire")
        .enable_all()
        .build()
        .at("tokio runtime")?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), socket = %paths.socket.display(), "started");
    let shutdown = CancellationToken::new();
    let handle = runtime.handle().clone();
    let daemon = Daemon::start(paths, environment, config, log.file, handle, shutdown)?;
    runtime.block_on(async {
        let listener = tokio::net::UnixListener::from_std(listener).at(&daemon.paths.socket)?;
        let (listeners, more) = tokio::sync::mpsc::channel(1);
        let door = (instance.door(), listeners);
        let signals = tokio::spawn(heed_signals(Arc::clone(&daemon), (log.gate, log.book), door));
        let watchdog = sd_notify::watchdog_enabled().map(|limit| tokio::spawn(feed_watchdog(limit / 3)));
        announce(&daemon, &mut instance, own_socket)?;
        notify(&[NotifyState::Ready]);
        herald.ready();
        server::serve(
            Arc::clone(&daemon),
            listener,
            more,
            server::Limits::default(),
            STOP_PATIENCE,
        )
        .await;
        notify(&[NotifyState::Stopping]);
        signals.abort();
        if let Some(watchdog) = watchdog {
            watchdog.abort();
        }
        Ok(())
    })?;
    tracing::info!("stopped");
    runtime.shutdown_background();
    drop(instance);
    Ok(ExitCode::SUCCESS)
}

/// Writes down where we listen. On a full disk that is tried again and again: clients find the usual place without it.
fn announce(daemon: &Arc<Daemon>, instance: &mut Instance, own_socket: bool) -> Result<()> {
    match instance.announce(&daemon.paths.socket, own_socket) {
        Err(e) if e.is_no_space() => {
            tracing::warn!("{e}");
            tokio::spawn(announce_again(Arc::clone(daemon), instance.door()));
            Ok(())
        }
        announced => {
            reserve::keep(&daemon.paths.reserve());
            announced
        }
    }
}

async fn announce_again(daemon: Arc<Daemon>, door: Arc<Door>) {
    let pause = || tokio::time::sleep(ANNOUNCE_AGAIN);
    while daemon.shutdown.run_until_cancelled(pause()).await.is_some() {
        let (daemon, door) = (Arc::clone(&daemon), Arc::clone(&door));
        let told = tokio::task::spawn_blocking(move || door.announce(&daemon.paths.socket).is_ok());
        if told.await.unwrap_or(false) {
            return;
        }
    }
}

/// `STEPBACK_LOG`, else what the settings say, which have been checked.
fn log_filter(lookup: impl Fn(&str) -> Option<OsString>, config: &Config) -> Result<String> {
    let Some(filter) = lookup("STEPBACK_LOG").filter(|filter| !filter.is_empty()) else {
        return Ok(config.log.clone());
    };
    let filter = filter.to_string_lossy();
    match logging::check(&filter) {
        Ok(()) => Ok(filter.into_owned()),
        Err(why) => Err(Error::Variable {
            message: format!("STEPBACK_LOG: {why}"),
            hint: "set STEPBACK_LOG to error, warn, info, debug or trace, or unset it",
        }),
    }
}

/// Another process is the daemon of this STATE: fine, unless one at another socket was `asked` for. The exit code and the
/// words.
fn already_served(paths: &Paths, asked: bool, (pid, socket): &(u32, std::path::PathBuf)) -> (u8, String) {
    let words = format!(
        "stepbackd: already running (pid {pid}, socket {})\n",
        socket.display()
    );
    if !asked || *socket == paths.socket {
        return (0, words);
    }
    let hint = "hint: `stepback daemon stop` ends it; or set STEPBACK_STATE_DIR for a daemon of its own\n";
    (1, words + hint)
}

/// The socket that systemd listens at for us.
fn passed_socket() -> Result<Option<UnixListener>> {
    let mut passed = listenfd::ListenFd::from_env();
    match passed.len() {
        0 => Ok(None),
        1 => passed.take_unix_listener(0).at("LISTEN_FDS"),
        n => Err(Error::refused(
            format!("{n} sockets were passed, not one"),
            "mend the socket unit",
        )),
    }
}

/// Stops at the first TERM or INT, ends at once at the second; HUP reads the settings again, opens the log again, and makes
/// the socket again if it is gone; after a CONT everything is looked at.
async fn heed_signals(
    daemon: Arc<Daemon>,
    log: (Gate, Option<Book>),
    door: (Arc<Door>, Sender<tokio::net::UnixListener>),
) {
    let streams = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
        signal(SignalKind::hangup()),
        signal(SignalKind::from_raw(Signal::SIGCONT as i32)),
    );
    let (Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup), Ok(mut goes_on)) = streams else {
        tracing::error!("signals can't be heeded: the system's defaults stay");
        return;
    };
    let one_at_a_time = Arc::new(Mutex::new(()));
    loop {
        let number = tokio::select! {
            _ = terminate.recv() => 15,
            _ = interrupt.recv() => 2,
            _ = goes_on.recv() => {
                let daemon = Arc::clone(&daemon);
                tokio::spawn(async move {
                    // A service manager sends one behind each TERM, and then there is no time for it.
                    let moment = tokio::time::sleep(A_MOMENT);
                    if daemon.shutdown.run_until_cancelled(moment).await.is_some() {
                        daemon.watcher.stood_still();
                    }
                });
                continue;
            }
            _ = hangup.recv() => {
                // Not awaited: a disk that hangs mustn't keep us from hearing that we shall end.
                let (daemon, turn, door) = (Arc::clone(&daemon), Arc::clone(&one_at_a_time), door.clone());
                let (gate, book) = log.clone();
                tokio::task::spawn_blocking(move || {
                    let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(Err(e)) = book.map(|book| book.open_again()) {
                        tracing::error!("{e}; the log goes on in the file that was open");
                    }
                    if let Err(e) = mend(&daemon, &door.0, &door.1) {
                        tracing::error!("{e}");
                    }
                    reload(&daemon, &gate);
                });
                continue;
            }
        };
        if daemon.shutdown.is_cancelled() {
            std::process::exit(128 + number);
        }
        tracing::info!("stopping at signal {number}");
        daemon.shutdown.cancel();
    }
}

fn mend(daemon: &Arc<Daemon>, door: &Arc<Door>, listeners: &Sender<tokio::net::UnixListener>) -> Result<()> {
    if let Some((listener, noted)) = door.mend()? {
        if let Err(e) = noted {
            tracing::warn!("{e}");
            daemon
                .runtime
                .spawn(announce_again(Arc::clone(daemon), Arc::clone(door)));
        }
        listener.set_nonblocking(true).at("the new socket")?;
        let listener = tokio::net::UnixListener::from_std(listener).at("the new socket")?;
        // The server is gone only at the end.
        let _ = listeners.blocking_send(listener);
    }
    Ok(())
}

fn reload(daemon: &Daemon, gate: &Gate) {
    let mut states = vec![NotifyState::Reloading];
    states.extend(NotifyState::monotonic_usec_now().ok());
    notify(&states);
    match daemon.reload() {
        Ok(()) => {
            let filter = log_filter(|name| std::env::var_os(name), &daemon.config());
            let set = filter.and_then(|filter| gate.set(&filter).map_err(|why| Error::refused(why, "")));
            if let Err(e) = set {
                tracing::error!("{e}; what is logged stays as it was");
            }
            tracing::info!("the settings were read again");
        }
        Err(e) => tracing::error!("{e}; the settings stay as they were"),
    }
    notify(&[NotifyState::Ready]);
}

async fn feed_watchdog(every: Duration) {
    let mut tick = tokio::time::interval(every.max(Duration::from_millis(10)));
    loop {
        tick.tick().await;
        notify(&[NotifyState::Watchdog]);
    }
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        tracing::warn!("the service manager isn't told: {e}");
    }
}
