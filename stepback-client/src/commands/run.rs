//! `stepback run`: a command in a session of its own.
//!
//! Whatever happens to stepback, the command runs, and what happens to the command is what `run` reports.

mod foreground;
mod witness;

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use clap::ValueHint;
use foreground::Signals;
use nix::sys::signal::SigSet;
use stepback_proto::{
    Attach, Failure, FailureKind, Item, Reply, Request, RootState, RootStatus, SessionPath, Verb,
};
pub use witness::become_witness;

use super::session::summary;
use crate::app::App;
use crate::autostart;
use crate::child;
use crate::connection::Probe;
use crate::endpoint::Endpoint;
use crate::error::{Error, Result};
use crate::render::path::{one_line, shown, word};

/// How long the daemon may take for its first word before the command goes on without it.
const WELCOME_PATIENCE: Duration = Duration::from_secs(5);

/// How long it may then say nothing where the root is looked at for the first time, which is waited for. Progress is told.
const FIRST_LOOK_PATIENCE: Duration = Duration::from_secs(60);

/// ... and in any other root: when its file system hangs, the command shall not.
const PATIENCE: Duration = Duration::from_secs(5);

/// ... and in one of which it is known that its file system doesn't answer.
const HUNG_PATIENCE: Duration = Duration::from_secs(1);

/// How often it is asked, while nothing comes, whether the file system answers.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The kind of the warning that it doesn't.
const NO_ANSWER: &str = "no_answer";

/// ... and at the end, when nothing waits any more but the user.
const END_PATIENCE: Duration = Duration::from_secs(15);

/// The exit code of a command that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// How many changed paths the summary names.
const PATHS_MAX: usize = 10;

/// Run a command in a session of its own, with a checkpoint before and after.
///
/// The directory is attached if need be. The command has the terminal, the signals and the exit code that it would have
/// without `run`. When stepback fails, a warning is printed and the command runs all the same.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The session's name; one is made up when absent
    #[arg(long)]
    name: Option<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

pub fn run(app: &App, args: &Args) -> Result<u8> {
    if app.printer.json {
        return Err(Error::usage(
            "run takes no --json",
            "`stepback session show --json` sums up what it did",
        ));
    }
    let session = match open_session(app, args) {
        Ok(session) => Some(session),
        Err(e) => {
            warn(
                app,
                "no session, the command runs without checkpoints of its own",
                &e,
            );
            None
        }
    };
    let code = run_command(app, &args.command);
    if code == INTERRUPTED {
        app.printer.below_interrupt();
    }
    if let Some((place, name)) = session
        && let Err(e) = close_session(app, &place, &name)
    {
        warn(app, &format!("session {name} isn't ended properly"), &e);
    }
    Ok(code)
}

fn warn(app: &App, what: &str, error: &Error) {
    let hint = error.hint();
    let hint = if hint.is_empty() {
        hint
    } else {
        format!(" ({hint})")
    };
    app.printer.warn(&one_line(&format!("{what}: {error}{hint}")));
}

/// Opens the session, in a root that is attached if need be; where it is and its name.
fn open_session(app: &App, args: &Args) -> Result<(PathBuf, String)> {
    let place = app.place()?;
    let reply = ask(app, PATIENCE, &place, Verb::Status { verify: false }, &mut |_| {})?;
    let Reply::Status(status) = reply else {
        return Err(Error::Unexpected("status"));
    };
    let patience = match status.root {
        None => {
            attach(app, &place)?;
            PATIENCE
        }
        Some(root) if hangs(&root).is_some() => HUNG_PATIENCE,
        Some(root) if root.state == RootState::Indexing => FIRST_LOOK_PATIENCE,
        Some(_) => PATIENCE,
    };
    let words: Vec<String> = args.command.iter().map(|w| word(&w.to_string_lossy())).collect();
    let verb = Verb::SessionStart {
        name: args.name.clone(),
        command: Some(words.join(" ")),
        pid: Some(std::process::id()),
    };
    let reply = ask(app, patience, &place, verb, &mut |_| {}).map_err(|e| match (e, &args.name) {
        (Error::Told(failure), Some(name)) if failure.kind == FailureKind::Usage => Error::Told(Failure {
            message: format!("--name {}: {}", word(name), failure.message),
            ..failure
        }),
        (other, _) => other,
    })?;
    let Reply::SessionStarted { session, .. } = reply else {
        return Err(Error::Unexpected("session start"));
    };
    Ok((place, session))
}

fn attach(app: &App, place: &Path) -> Result<()> {
    let options = Attach {
        path: place.into(),
        here: false,
        include: Vec::new(),
        max_file_size: None,
        force: false,
        new: false,
        yes: false,
    };
    let reply = ask(
        app,
        FIRST_LOOK_PATIENCE,
        place,
        Verb::Attach(options),
        &mut |_| {},
    )?;
    let Reply::Attached(attached) = reply else {
        return Err(Error::Unexpected("attach"));
    };
    app.printer.note(&format!("attached: {}", shown(&attached.path)));
    Ok(())
}

fn close_session(app: &App, place: &Path, name: &str) -> Result<()> {
    let end = Verb::SessionEnd {
        name: Some(name.to_owned()),
        revert: None,
    };
    ask(app, END_PATIENCE, place, end, &mut |_| {})?;
    let mut paths = Vec::new();
    ask(
        app,
        END_PATIENCE,
        place,
        Verb::SessionShow {
            name: Some(name.to_owned()),
        },
        &mut |item| {
            if let Item::SessionPath(path) = item {
                paths.push(path);
            }
        },
    )?;
    summarise(app, name, &paths);
    Ok(())
}

fn summarise(app: &App, name: &str, paths: &[SessionPath]) {
    if paths.is_empty() {
        app.printer
            .note(&format!("stepback: session {name}: nothing changed"));
        return;
    }
    app.printer
        .note(&format!("stepback: session {name}: {}", summary(paths)));
    for path in paths.iter().take(PATHS_MAX) {
        app.printer.note(&format!(
            "  {} {}{}",
            path.status.letter(),
            shown(&path.path),
            if path.dir { "/" } else { "" }
        ));
    }
    if paths.len() > PATHS_MAX {
        app.printer.note(&format!(
            "  ... and {} more (`stepback session show {name}`)",
            paths.len() - PATHS_MAX
        ));
    }
    app.printer
        .hint(&format!("`stepback rewind session:{name}` takes it back"));
}

fn ask(app: &App, patience: Duration, place: &Path, verb: Verb, each: &mut dyn FnMut(Item)) -> Result<Reply> {
    let endpoint = app.endpoint.with_patience(WELCOME_PATIENCE);
    let mut connection = autostart::connect(&endpoint, &app.environment)?;
    connection.limit(Some(patience))?;
    let (of_status, to) = (endpoint.clone(), place.to_owned());
    connection.meanwhile(LOOK_AGAIN, move || match status(&of_status, &to) {
        Ok(Some(root)) => hangs(&root).map_or(Ok(()), Err),
        _ => Ok(()),
    });
    let answer = app.ask_on(connection, place, verb, &mut |item| {
        each(item);
        Ok(())
    });
    answer.map_err(|e| match e {
        Error::Unanswered { .. } => match status(&endpoint, place) {
            Ok(Some(root)) => hangs(&root).unwrap_or_else(|| slow(&root)),
            // The daemon itself hangs, or the place is in no root.
            _ => e,
        },
        other => other,
    })
}

/// What the daemon says at once of the root that holds `place`, if one does.
fn status(endpoint: &Endpoint, place: &Path) -> Result<Option<RootStatus>> {
    let Probe::Ready(mut connection) = endpoint.probe()? else {
        return Ok(None);
    };
    connection.end_by(Instant::now() + WELCOME_PATIENCE);
    let request = Request {
        place: place.to_owned().into(),
        verb: Verb::Status { verify: false },
    };
    match connection.ask(&request, &mut |_| Ok(()))? {
        Reply::Status(status) => Ok(status.root),
        _ => Err(Error::Unexpected("status")),
    }
}

/// That its file system doesn't answer, if that is so.
fn hangs(root: &RootStatus) -> Option<Error> {
    let warning = root.warnings.iter().find(|warning| warning.kind == NO_ANSWER)?;
    Some(Error::Told(Failure {
        kind: FailureKind::DaemonUnavailable,
        message: warning.message.clone(),
        hint: warning.hint.clone(),
    }))
}

/// That it takes too long, for a reason that isn't known.
fn slow(root: &RootStatus) -> Error {
    Error::Told(Failure {
        kind: FailureKind::DaemonUnavailable,
        message: format!("{} doesn't answer in time", shown(&root.path)),
        hint: "`stepback status` says what it is at, and whether its file system answers".into(),
    })
}

/// Runs the command on the user's terminal; its exit code, or 128 and the number of the signal that killed it.
fn run_command(app: &App, words: &[OsString]) -> u8 {
    let accompanied = match &mut Signals::take() {
        Ok(signals) => accompanied(app, words, signals),
        Err(e) => {
            app.printer
                .warn(&format!("signals sent to run don't reach the command: {e}"));
            child::command(words, &SigSet::empty())
                .and_then(|mut c| c.status())
                .map(exit_code)
        }
    };
    accompanied.unwrap_or_else(|e| {
        app.printer
            .warn(&format!("how the command ended isn't known: {e}"));
        u8::MAX
    })
}

fn accompanied(app: &App, words: &[OsString], signals: &mut Signals) -> io::Result<u8> {
    let mut child = child::command(words, signals.taken())?.spawn()?;
    signals.accompany(&child).or_else(|e| {
        app.printer.warn(&format!(
            "signals sent to run don't reach the command any longer: {e}"
        ));
        child.wait().map(exit_code)
    })
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|n| 128 + n));
    code.and_then(|n| u8::try_from(n).ok()).unwrap_or(u8::MAX)
}
