//! `stepback status`

use jiff::Timestamp;
use stepback_proto::{FailureKind, Item, Reply, RootState, Status, Verb};

use crate::app::App;
use crate::error::{Error, Result, numbered};
use crate::render::path::{one_line, shown};
use crate::render::{json, status};

/// Say whether this directory is protected, and what isn't covered.
///
/// Waits a moment for the events of everything written before it. Exits 0 also where no directory is attached.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Also check the store's integrity
    #[arg(long)]
    verify: bool,
}

pub fn run(app: &App, args: &Args) -> Result<u8> {
    let (items, reply) = match app.collect(Verb::Status { verify: args.verify }) {
        Err(e) => {
            if let (false, Some(line)) = (app.printer.json, unprotected(app, &e)?) {
                app.printer.text(&line)?;
            }
            return Err(e);
        }
        Ok(answer) => answer,
    };
    let Reply::Status(answer) = reply else {
        return Err(Error::Unexpected("status"));
    };
    let mut not_captured = Vec::new();
    let mut current = None;
    for item in items {
        match item {
            Item::NotCaptured(path) => not_captured.push(path),
            Item::Current(n) => current = Some(n),
            _ => {}
        }
    }
    if app.printer.json {
        app.printer.json(&json::status(&answer, &not_captured))?;
    } else {
        let current = current.filter(|_| is_at_rest(&answer));
        let place = shown(&app.place()?.into());
        app.printer.text(&status::text(
            &answer,
            &not_captured,
            current,
            &place,
            Timestamp::now(),
            app.printer.color(),
        ))?;
    }
    Ok(0)
}

/// What to say of the directory when the error is that no daemon can be had, or none that has room.
fn unprotected(app: &App, error: &Error) -> Result<Option<String>> {
    Ok(match error {
        Error::Absent { .. } | Error::NotStarted { .. } => {
            let place = shown(&app.place()?.into());
            Some(format!("not protected: no daemon watches {place}\n"))
        }
        Error::Silent { pid, .. } => Some(format!(
            "not protected: the daemon{} doesn't answer\n",
            numbered(*pid)
        )),
        // It answers, so it runs; but whether it watches this directory it didn't say.
        Error::Told(failure) if failure.kind == FailureKind::Busy => {
            let place = shown(&app.place()?.into());
            let why = one_line(&failure.message);
            Some(format!("not known whether {place} is protected: {why}\n"))
        }
        _ => None,
    })
}

/// Whether what the daemon saw last is what is there now.
fn is_at_rest(status: &Status) -> bool {
    status.root.as_ref().is_some_and(|root| {
        let is_busy = root.progress.is_some() || root.settled == Some(false);
        !is_busy && !matches!(root.state, RootState::Indexing | RootState::Failed)
    })
}
