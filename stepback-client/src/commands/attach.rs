//! `stepback attach`

use std::path::PathBuf;

use clap::ValueHint;
use stepback_proto::{Attach, Attached, FailureKind, Item, NamedPath, Reply, Verb};

use super::warn_not_captured;
use crate::app::App;
use crate::confirm;
use crate::error::{Error, Result};
use crate::render::path::{one_line, shown};
use crate::render::{count, json};
use crate::size;

/// Watch a directory and take its first checkpoint.
///
/// Returns when the first checkpoint is durable and the watches are set. In a git work tree PATH means its top level,
/// unless --here. Attaching an attached directory only changes its options; it also repairs one that failed, and
/// continues one that was moved.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory; -C or the current one when absent
    #[arg(value_hint = ValueHint::DirPath)]
    path: Option<PathBuf>,
    /// Exactly this directory, not the top level of its git work tree
    #[arg(long)]
    here: bool,
    /// Capture what matches GLOB although it is ignored; may be repeated
    #[arg(long, value_name = "GLOB")]
    include: Vec<String>,
    /// Leave out larger files: bytes, or with KiB, MiB, GiB
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max_file_size: Option<u64>,
    /// Attach although the place or the size speaks against it
    #[arg(long)]
    force: bool,
    /// Where another directory stands in the place of the attached one: begin a new history
    #[arg(long)]
    new: bool,
    /// Where another directory stands in the place of the attached one: continue the history, unless --new
    #[arg(short, long)]
    yes: bool,
}

pub fn run(app: &App, args: &Args) -> Result<u8> {
    let path = match &args.path {
        Some(path) => app.absolute(path)?,
        None => app.place()?.into(),
    };
    let mut options = Attach {
        path,
        here: args.here,
        include: args.include.clone(),
        max_file_size: args.max_file_size,
        force: args.force,
        new: args.new,
        yes: args.yes && !args.new,
    };
    let asked = match attach(app, &options) {
        Err(Error::Told(failure)) if replaced(&options, failure.kind) && confirm::can_ask() => {
            app.printer.question(&format!("{}\n", one_line(&failure.message)));
            confirm::ask(&app.printer, "Continue its history with this directory?")?;
            options.yes = true;
            attach(app, &options)
        }
        other => other,
    };
    let (attached, not_captured) = asked?;
    if app.printer.json {
        app.printer.json(&json::attached(&attached))?;
    } else {
        let verb = if attached.created {
            "attached"
        } else {
            "attached already"
        };
        let files = count(attached.files, "file", "files");
        let path = shown(&attached.path);
        app.printer.text(&format!(
            "{verb}: {path} ({}), checkpoint {}, {files}\n",
            attached.id, attached.checkpoint
        ))?;
    }
    if !attached.created {
        if let Some(changed) = changed(args) {
            app.printer.note(&format!("options changed: {changed}"));
        }
        if args.new {
            app.printer.note("--new has no effect: the directory is the same");
        }
    }
    for note in &attached.notes {
        app.printer.note(&format!("note: {}", one_line(note)));
    }
    warn_not_captured(app, &not_captured);
    Ok(0)
}

/// The options that an attached directory has got anew.
fn changed(args: &Args) -> Option<String> {
    let mut options = Vec::new();
    if !args.include.is_empty() {
        let globs: Vec<String> = args.include.iter().map(|glob| one_line(glob)).collect();
        options.push(format!("include {}", globs.join(" ")));
    }
    if let Some(bytes) = args.max_file_size {
        options.push(format!("files up to {}", size::human(bytes)));
    }
    (!options.is_empty()).then(|| options.join(", "))
}

/// Whether the failure is the question that -y and --new answer.
fn replaced(options: &Attach, kind: FailureKind) -> bool {
    kind == FailureKind::RootReplaced && !options.yes && !options.new
}

/// Attaches; what it reports and what isn't captured.
///
/// # Errors
/// As [`App::ask`].
fn attach(app: &App, options: &Attach) -> Result<(Attached, Vec<NamedPath>)> {
    let mut not_captured = Vec::new();
    let reply = app.ask_at(
        options.path.as_path(),
        Verb::Attach(options.clone()),
        &mut |item| {
            if let Item::NotCaptured(path) = item {
                not_captured.push(path);
            }
            Ok(())
        },
    )?;
    let Reply::Attached(attached) = reply else {
        return Err(Error::Unexpected("attach"));
    };
    Ok((attached, not_captured))
}
