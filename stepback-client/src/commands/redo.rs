//! `stepback redo`

use stepback_proto::Verb;

use super::operation::{self, Operation, Options};
use crate::app::App;
use crate::error::Result;

/// Take back the latest rewind, restore or session revert.
///
/// The paths which that operation changed become as they were before it; edits elsewhere stay. Paths that were edited
/// since are marked in the preview. New edits don't clear what can be taken back. What now stands in the way goes, and is
/// in the checkpoint before; where all of it has to be kept, the operation can still be taken back later.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    options: Options,
}

pub fn run(app: &App, args: &Args) -> Result<u8> {
    let redo = Operation {
        verb: &|how| Verb::Redo { how },
        name: "redo",
        on: "in ",
        to: "back to",
        done: "redone, back to",
        back: "a rewind to the checkpoint before it",
        all: None,
        before: false,
        talk: None,
    };
    operation::run(app, &redo, args.options)
}
