//! `stepback restore`

use std::ffi::OsString;
use std::path::PathBuf;

use stepback_proto::{Verb, WirePath};

use super::operation::{self, Operation, Options};
use crate::app::App;
use crate::error::Result;

/// Put selected paths back to a checkpoint.
///
/// Each PATH and all below it become as in ID; what wasn't there then is removed. Shows what will happen and asks; the
/// state before is saved first, and `stepback redo` takes the restore back.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// From which checkpoint
    id: OsString,
    /// A path, literal, relative to the current directory; may be repeated
    #[arg(short, long = "path", value_name = "PATH", required = true)]
    path: Vec<PathBuf>,
    #[command(flatten)]
    options: Options,
}

pub fn run(app: &App, args: &Args) -> Result<u8> {
    let id = app.selector(&args.id)?;
    let paths = args
        .path
        .iter()
        .map(|p| app.absolute(p))
        .collect::<Result<Vec<WirePath>>>()?;
    let restore = Operation {
        verb: &|how| Verb::Restore {
            id: id.clone(),
            paths: paths.clone(),
            how,
        },
        name: "restore",
        on: "in ",
        to: "from",
        done: "restored from",
        back: "`stepback redo`",
        all: None,
        before: false,
        talk: None,
    };
    operation::run(app, &restore, args.options)
}
