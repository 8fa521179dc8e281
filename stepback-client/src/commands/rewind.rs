//! `stepback rewind`

use std::ffi::OsString;

use stepback_proto::Verb;

use super::operation::{self, Operation, Options};
use crate::app::App;
use crate::error::Result;

/// Put the whole directory back to a checkpoint.
///
/// Shows what will happen and asks. The state before is saved first; `stepback redo` takes the rewind back. Without ID:
/// with unsaved changes, back to the checkpoint that the directory stands on; else to the nearest before it that
/// differs, so that twice goes two back. What isn't covered by checkpoints isn't touched; a path that has to be kept is
/// named, and the exit code is then 3.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// To which checkpoint
    id: Option<OsString>,
    #[command(flatten)]
    options: Options,
    /// Show all paths, however many
    #[arg(long)]
    all: bool,
}

pub fn run(app: &App, args: &Args) -> Result<u8> {
    let id = args.id.as_deref().map(|id| app.selector(id)).transpose()?;
    let rewind = Operation {
        verb: &|how| Verb::Rewind { id: id.clone(), how },
        name: "rewind",
        on: "",
        to: "to",
        done: "rewound to",
        back: "`stepback redo`",
        all: Some(args.all),
        before: id.is_none(),
    };
    operation::run(app, &rewind, args.options)
}
