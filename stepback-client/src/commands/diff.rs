//! `stepback diff`

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};

use stepback_proto::{DiffFile, DiffForm, DiffSides, Item, Reply, Selector, Side, Verb, WirePath};

use crate::app::App;
use crate::error::{Error, Result};
use crate::pager::Sink;
use crate::render::diff::Painter;
use crate::render::path::{one_line, word};
use crate::render::{diffstat, json, written};

/// Show what changed, as a patch that git takes.
///
/// Without ID: the checkpoint that the directory stands on against the directory as it is. With A: what A changed
/// against its base. With A and -w: A against the directory as it is. With A and B: A against B.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A checkpoint
    #[arg(value_name = "A")]
    a: Option<OsString>,
    /// Another one
    #[arg(value_name = "B")]
    b: Option<OsString>,
    /// Compare A with the directory as it is
    #[arg(short = 'w', long = "worktree", conflicts_with = "b")]
    worktree: bool,
    /// Only count lines, with a bar for each file
    #[arg(long, conflicts_with = "name_status")]
    stat: bool,
    /// Only name the files, with A, M, D or T
    #[arg(long)]
    name_status: bool,
    /// Only these paths and what is below them; literal, relative to the current directory
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

pub fn run(app: &App, args: &Args) -> Result<u8> {
    let between = match (&args.a, &args.b) {
        (None, _) => DiffSides::PositionToTree,
        (Some(a), None) if args.worktree => DiffSides::ToTree(id(app, "", a)?),
        (Some(a), None) => DiffSides::BaseTo(id(app, "", a)?),
        (Some(a), Some(b)) => DiffSides::Between(id(app, "", a)?, id(app, &a.to_string_lossy(), b)?),
    };
    let paths = args
        .paths
        .iter()
        .map(|p| app.absolute(p))
        .collect::<Result<Vec<WirePath>>>()?;
    let named = !paths.is_empty();
    if !app.printer.json && !args.stat && !args.name_status {
        return patch(
            app,
            Verb::Diff {
                between,
                paths,
                form: DiffForm::Patch,
            },
            named,
        );
    }
    let names_only = args.name_status && !app.printer.json;
    let form = if names_only {
        DiffForm::Names
    } else {
        DiffForm::Files
    };
    let (items, reply) = app.collect(Verb::Diff { between, paths, form })?;
    let Reply::Diff { from, to } = reply else {
        return Err(Error::Unexpected("diff"));
    };
    let files: Vec<DiffFile> = items
        .into_iter()
        .filter_map(|item| match item {
            Item::DiffFile(file) => Some(file),
            _ => None,
        })
        .collect();
    if app.printer.json {
        app.printer.json(&json::diff(from, to, &files))?;
    } else if names_only {
        app.printer
            .page(&app.environment, &diffstat::name_status(&files))?;
    } else {
        app.printer.page(
            &app.environment,
            &diffstat::stat(&files, app.printer.width(), app.printer.color()),
        )?;
    }
    if files.is_empty() {
        nothing(app, (from, to), named);
    }
    Ok(0)
}

/// Tells a person that the empty answer is one.
fn nothing(app: &App, between: (Side, Side), named: bool) {
    if app.printer.json || !app.printer.on_terminal() {
        return;
    }
    let there = if named { " there" } else { "" };
    app.printer.note(&match between {
        (Side::Checkpoint(n), Side::Tree) => {
            format!("no edits{there} since checkpoint {n}; `stepback diff {n}` shows what {n} changed")
        }
        (Side::Checkpoint(a), Side::Checkpoint(b)) => format!("{a} and {b} don't differ{there}"),
        _ => format!("nothing differs{there}"),
    });
}

/// The ID, or an error that tells a path from one.
fn id(app: &App, before: &str, text: &OsStr) -> Result<Selector> {
    app.selector(text).map_err(|e| match e {
        Error::Usage { message, .. } if Path::new(text).symlink_metadata().is_ok() => {
            let ids = if before.is_empty() {
                String::new()
            } else {
                format!("{} ", word(before))
            };
            let path = word(&one_line(&text.to_string_lossy()));
            Error::usage(message, format!("for a path: `stepback diff {ids}-- {path}`"))
        }
        other => other,
    })
}

/// Where the patch goes: painted on its way or not.
enum Out {
    Plain(Sink),
    Painted(Painter<Sink>),
}

/// The patch as it comes. The pager starts with the first bytes, so that an error or an empty diff shows without one.
fn patch(app: &App, verb: Verb, named: bool) -> Result<u8> {
    let mut out = None;
    let reply = app.ask(verb, &mut |item| {
        let Item::Bytes(bytes) = item else { return Ok(()) };
        let out = out.get_or_insert_with(|| {
            let sink = app.printer.sink(&app.environment);
            if app.printer.color() {
                Out::Painted(Painter::new(sink))
            } else {
                Out::Plain(sink)
            }
        });
        written(match out {
            Out::Plain(sink) => sink.write_all(&bytes),
            Out::Painted(painter) => painter.push(&bytes),
        })
    })?;
    if out.is_none()
        && let Reply::Diff { from, to } = reply
    {
        nothing(app, (from, to), named);
    }
    written(match out {
        None => Ok(()),
        Some(Out::Plain(sink)) => sink.finish(),
        Some(Out::Painted(painter)) => painter.finish().and_then(Sink::finish),
    })?;
    Ok(0)
}
