//! `stepback show`

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use jiff::Timestamp;
use stepback_proto::{FailureKind, Item, Reply, Verb, WirePath};

use crate::app::App;
use crate::error::{Error, Result};
use crate::id_path;
use crate::render::path::{one_line, word};
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
        let verb = Verb::Cat {
            id,
            path: WirePath(path.to_vec()),
        };
        return cat(app, verb).map_err(|e| from_below(app, args, path, e));
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

/// Below the root, a path that isn't there may have been meant from the current directory.
fn from_below(app: &App, args: &Args, path: &[u8], error: Error) -> Error {
    let Error::Told(mut failure) = error else {
        return error;
    };
    if failure.kind == FailureKind::NoSuchPath
        && let Ok(place) = app.place()
        && let Ok(Reply::Status(status)) = app.ask(Verb::Status { verify: false }, &mut |_| Ok(()))
        && let Some(root) = status.root
        && let Ok(prefix) = place.strip_prefix(root.path.as_path())
        && !prefix.as_os_str().is_empty()
    {
        let id = args.id.as_bytes();
        let id = &id[..id.len() - path.len()];
        let id = String::from_utf8_lossy(id.strip_suffix(b"./").unwrap_or(id)).into_owned();
        let meant = prefix.join(OsStr::from_bytes(path));
        let meant = word(&one_line(&format!("{id}{}", meant.display())));
        failure.hint = format!("ID:PATH is relative to the root; perhaps `stepback show {meant}`");
    }
    Error::Told(failure)
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
