//! `stepback show`

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use jiff::Timestamp;
use stepback_proto::{Item, Reply, Verb, WirePath};

use crate::app::App;
use crate::error::{Error, Result};
use crate::id_path;
use crate::render::{json, list, written};

/// Show a checkpoint's details, or a file as it was then.
///
/// With ID:PATH prints the file's bytes as they were, PATH being relative to the attached directory.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which checkpoint, or which file of it
    #[arg(value_name = "ID[:PATH]")]
    id: OsString,
}

pub fn run(app: &App, args: &Args) -> Result<u8> {
    let (id, path) = id_path::split(&args.id);
    let id = app.selector(id)?;
    if let Some(path) = path {
        let path = path.as_bytes().strip_prefix(b"./").unwrap_or(path.as_bytes());
        if path.is_empty() || path.starts_with(b"/") {
            return Err(Error::usage(
                "the path of ID:PATH is relative to the attached directory",
                "`stepback diff ID --name-status` lists the paths that ID changed",
            ));
        }
        return cat(
            app,
            Verb::Cat {
                id,
                path: WirePath(path.to_vec()),
            },
        );
    }
    let (items, reply) = app.collect(Verb::Show { id })?;
    let Reply::Checkpoint(entry) = reply else {
        return Err(Error::Unexpected("show"));
    };
    let not_captured: Vec<_> = items
        .into_iter()
        .filter_map(|item| match item {
            Item::NotCaptured(path) => Some(path),
            _ => None,
        })
        .collect();
    if app.printer.json {
        app.printer.json(&json::shown(&entry, &not_captured))?;
    } else {
        let text = list::details(&entry, &not_captured, Timestamp::now(), app.printer.color());
        app.printer.page(&app.environment, &text)?;
    }
    Ok(0)
}

/// The bytes as they come. The pager starts with the first of them, so that an error shows without one.
fn cat(app: &App, verb: Verb) -> Result<u8> {
    let mut sink = None;
    app.ask(verb, &mut |item| {
        let Item::Bytes(bytes) = item else { return Ok(()) };
        let out = sink.get_or_insert_with(|| app.printer.sink(&app.environment));
        written(out.write_all(&bytes))
    })?;
    sink.map_or(Ok(()), |out| written(out.finish()))?;
    Ok(0)
}
