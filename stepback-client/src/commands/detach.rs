//! `stepback detach`

use std::path::PathBuf;

use clap::ValueHint;
use stepback_proto::{Item, Reply, RootStatus, Verb};

use crate::app::App;
use crate::confirm;
use crate::error::{Error, Result};
use crate::render::path::shown;
use crate::render::{count, json};
use crate::size;

/// Stop watching a directory.
///
/// Its checkpoints stay, and come back with the next attach. With --forget they are deleted, also those of a directory
/// that was detached before.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory; -C or the current one when absent
    #[arg(value_hint = ValueHint::DirPath)]
    path: Option<PathBuf>,
    /// Also delete all its checkpoints
    #[arg(long)]
    forget: bool,
    /// Don't ask before checkpoints are deleted
    #[arg(short, long)]
    yes: bool,
}

pub fn run(app: &App, args: &Args) -> Result<u8> {
    let place = match &args.path {
        Some(path) => app.absolute(path)?.as_path().to_owned(),
        None => app.place()?,
    };
    if args.forget && !args.yes {
        let reply = app.ask_at(&place, Verb::Status { verify: false }, &mut |_| Ok(()))?;
        let Reply::Status(status) = reply else {
            return Err(Error::Unexpected("status"));
        };
        // A named directory is itself what is meant, not the root around it.
        let meant = |root: &RootStatus| args.path.is_none() || *root.path.as_path() == *place;
        let what = match status.root.as_ref().filter(|root| meant(root)) {
            Some(root) => {
                format!(
                    "all {} of {}",
                    count(root.checkpoints, "checkpoint", "checkpoints"),
                    shown(&root.path)
                )
            }
            None => format!("all checkpoints of {}", shown(&place.clone().into())),
        };
        confirm::ask(&app.printer, &format!("Delete {what} for good?"))?;
    }
    let verb = Verb::Detach {
        forget: args.forget,
        exact: args.path.is_some(),
    };
    let reply = app.ask_at(&place, verb, &mut |item| {
        if let Item::Note(note) = item {
            app.printer.note(&note);
        }
        Ok(())
    })?;
    let (path, id, forgotten, freed) = match reply {
        Reply::Detached { path, id, forgotten } => (path, id, forgotten, None),
        Reply::Deleted {
            path,
            id,
            freed_bytes,
            notes,
        } => {
            notes.iter().for_each(|note| app.printer.note(note));
            (path, id, true, Some(freed_bytes))
        }
        _ => return Err(Error::Unexpected("detach")),
    };
    if app.printer.json {
        app.printer.json(&json::detached(&path, &id, forgotten, freed))?;
        return Ok(0);
    }
    let rest = match freed {
        Some(bytes) => format!(", its checkpoints are deleted, {} given back", size::human(bytes)),
        None if forgotten => ", its checkpoints are deleted".to_owned(),
        None => String::new(),
    };
    app.printer
        .text(&format!("detached: {} ({id}){rest}\n", shown(&path)))?;
    if !forgotten {
        app.printer
            .hint("`stepback attach` continues its history, `stepback detach --forget` deletes it");
    }
    Ok(0)
}
