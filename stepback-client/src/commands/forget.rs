//! `stepback forget`

use std::path::PathBuf;

use clap::ValueHint;
use stepback_proto::{Reply, Verb, WirePath};

use crate::app::App;
use crate::confirm;
use crate::error::{Error, Result};
use crate::render::path::shown;
use crate::render::{count, json};
use crate::size;

/// Purge a path's contents from all checkpoints.
///
/// Each PATH, and all below it, is taken out of every checkpoint and redo entry of this root, and its bytes are removed
/// from the store; what still holds the same bytes under another path, or in a worktree that shares the store, is named.
/// From then on the path is left out, and no rewind touches it. The file in the project isn't touched. Transcripts of
/// agents may hold the bytes, too: they are not searched.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A path, literal, relative to the current directory; may be repeated
    #[arg(short, long = "path", value_name = "PATH", required = true, value_hint = ValueHint::AnyPath)]
    path: Vec<PathBuf>,
    /// Capture it again from now on; what was purged stays gone
    #[arg(long)]
    undo: bool,
    /// Don't ask
    #[arg(short, long)]
    yes: bool,
}

/// Of `forget`.
pub struct Forgotten {
    pub paths: Vec<WirePath>,
    pub checkpoints: u64,
    pub freed_bytes: u64,
    pub still_held: Vec<WirePath>,
    notes: Vec<String>,
}

pub fn run(app: &App, args: &Args) -> Result<u8> {
    let paths = args
        .path
        .iter()
        .map(|path| app.absolute(path))
        .collect::<Result<Vec<WirePath>>>()?;
    if !args.undo && !args.yes {
        let would = ask(app, paths.clone(), false, true)?;
        let from = match would.checkpoints {
            0 => "no checkpoint holds it".to_owned(),
            n => format!("it is in {}", count(n, "checkpoint", "checkpoints")),
        };
        let question = format!(
            "Purge {} for good ({from}), and leave it out from now on?",
            names(&would.paths)
        );
        confirm::ask(&app.printer, &question)?;
    }
    let done = ask(app, paths, args.undo, false)?;
    done.notes.iter().for_each(|note| app.printer.note(note));
    if app.printer.json {
        app.printer.json(&json::forgotten(&done))?;
        return Ok(0);
    }
    if args.undo {
        app.printer
            .text(&format!("captured again from now on: {}\n", names(&done.paths)))?;
        return Ok(0);
    }
    app.printer.text(&format!(
        "forgotten: {}; purged from {}, {} given back\n",
        names(&done.paths),
        count(done.checkpoints, "checkpoint", "checkpoints"),
        size::human(done.freed_bytes)
    ))?;
    for path in &done.still_held {
        app.printer
            .warn(&format!("the same bytes are still held at {}", shown(path)));
    }
    app.printer
        .note("transcripts of agents may hold the bytes, too; git and other programs keep their own");
    app.printer
        .hint("`stepback forget --undo -p PATH` captures it again from then on");
    Ok(0)
}

fn names(paths: &[WirePath]) -> String {
    // The root itself has no name in it.
    let name = |path: &WirePath| {
        if path.0.is_empty() {
            ".".to_owned()
        } else {
            shown(path)
        }
    };
    paths.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn ask(app: &App, paths: Vec<WirePath>, undo: bool, preview: bool) -> Result<Forgotten> {
    let (_, reply) = app.collect(Verb::Forget { paths, undo, preview })?;
    let Reply::Forgotten {
        paths,
        checkpoints,
        freed_bytes,
        still_held,
        notes,
    } = reply
    else {
        return Err(Error::Unexpected("forget"));
    };
    Ok(Forgotten {
        paths,
        checkpoints,
        freed_bytes,
        still_held,
        notes,
    })
}
