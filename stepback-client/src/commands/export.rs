//! `stepback export`

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use stepback_proto::{Failure, FailureKind, Item, Reply, Selector, Verb};

use crate::app::App;
use crate::error::{At, Error, Result};
use crate::render::path::shown;
use crate::render::{count, json, written};

/// Write what a checkpoint changed as a patch, or its whole tree as a tar.
///
/// `git apply` takes the patch. FILE is complete or isn't there: a failed export leaves an older FILE as it was. `-`
/// is stdout.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which checkpoint
    id: OsString,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Form {
    /// What the checkpoint changed against its base
    #[arg(long, value_name = "FILE")]
    patch: Option<PathBuf>,
    /// The checkpoint's whole tree
    #[arg(long, value_name = "FILE")]
    tar: Option<PathBuf>,
}

pub fn run(app: &App, args: &Args) -> Result<u8> {
    let id = app.selector(&args.id)?;
    if args.form.tar.as_deref() == Some(Path::new("-")) && app.printer.on_terminal() {
        return Err(Error::usage(
            "that is a binary archive",
            "give a file, or pipe it",
        ));
    }
    let mut left_out = 0;
    let reply = app.ask(Verb::Show { id }, &mut |item| {
        left_out += u64::from(matches!(item, Item::NotCaptured(_)));
        Ok(())
    })?;
    let Reply::Checkpoint(entry) = reply else {
        return Err(Error::Unexpected("show"));
    };
    let number = Selector::Number(entry.id);
    let (verb, file) = match (&args.form.patch, &args.form.tar) {
        (Some(file), _) => (Verb::ExportPatch { id: number }, file),
        (None, Some(file)) => (Verb::ExportTar { id: number }, file),
        (None, None) => {
            return Err(Error::usage(
                "neither --patch nor --tar is given",
                "name the file",
            ));
        }
    };
    if file.as_os_str() == "-" {
        let mut out = io::stdout().lock();
        app.ask(verb, &mut |item| match item {
            Item::Bytes(bytes) => written(out.write_all(&bytes)),
            _ => Ok(()),
        })?;
        written(out.flush())?;
    } else {
        write(app, verb, file)?;
        if app.printer.json {
            let value = json!({ "id": entry.id });
            app.printer
                .json(&json::with_named("file", &file.clone().into(), value))?;
        } else {
            app.printer.text(&format!(
                "{} written from checkpoint {}\n",
                shown(&file.clone().into()),
                entry.id
            ))?;
        }
    }
    if left_out > 0 {
        app.printer.note(&format!(
            "checkpoint {} leaves out {}",
            entry.id,
            count(left_out, "path", "paths")
        ));
        app.printer
            .hint(&format!("`stepback show {}` names them", entry.id));
    }
    Ok(0)
}

/// Writes the answer beside `file` and puts it in place when it is whole. What is no regular file (a pipe, a device) is
/// written to as it is.
fn write(app: &App, verb: Verb, file: &Path) -> Result<()> {
    // Through a link: what it points to is replaced, not the link.
    let target = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    if target.is_dir() {
        return Err(Error::usage(
            format!("{} is a directory", shown(&file.into())),
            "name a file in it",
        ));
    }
    if target.exists() && !target.is_file() {
        let mut out = OpenOptions::new().write(true).open(&target).at(&target)?;
        return stream(app, verb, &target, &mut out);
    }
    let (temporary, mut out) = create_beside(&target)?;
    let done = stream(app, verb, &temporary, &mut out)
        .and_then(|()| out.sync_all().at(&temporary))
        .and_then(|()| fs::rename(&temporary, &target).at(&target));
    if done.is_err() {
        // The first error is the one to tell; the file is ours and useless.
        let _ = fs::remove_file(&temporary);
    }
    done
}

fn stream(app: &App, verb: Verb, path: &Path, out: &mut File) -> Result<()> {
    app.ask(verb, &mut |item| match item {
        Item::Bytes(bytes) => out.write_all(&bytes).at(path),
        _ => Ok(()),
    })
    .map(drop)
}

/// Why no file can be made there. That its directory isn't one is the caller's mistake, not ours.
fn not_made(target: &Path, e: io::Error) -> Error {
    let dir = target.parent().filter(|dir| !dir.as_os_str().is_empty());
    if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
        && let Some(dir) = dir
    {
        return Error::Told(Failure {
            kind: FailureKind::NoSuchPath,
            message: format!("{}: no such directory", shown(&dir.into())),
            hint: "make it, or name a file in a directory that is there".into(),
        });
    }
    Error::Io {
        path: target.to_owned(),
        source: e,
    }
}

/// A new file in the directory of `target`.
fn create_beside(target: &Path) -> Result<(PathBuf, File)> {
    let Some(name) = target.file_name() else {
        return Err(Error::usage(
            format!("{} can't be a file", target.display()),
            "name a file",
        ));
    };
    // Short enough for any file system, whatever the name's length.
    let stem = String::from_utf8_lossy(&name.as_bytes()[..name.len().min(100)]).into_owned();
    for attempt in 0..100 {
        let temporary = target.with_file_name(format!(".{stem}.{}-{attempt}.tmp", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(not_made(target, e)),
        }
    }
    Err(Error::Io {
        path: target.to_owned(),
        source: io::ErrorKind::AlreadyExists.into(),
    })
}
