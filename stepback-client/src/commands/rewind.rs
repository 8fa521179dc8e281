//! `stepback rewind`

use std::ffi::OsString;

use stepback_proto::{Consent, RewindWhat, Selector, Verb};

use super::operation::{self, Operation, Options};
use crate::app::App;
use crate::error::Result;

/// Put the whole directory back to a checkpoint.
///
/// Shows what will happen and asks. The state before is saved first; `stepback redo` takes the rewind back. Without ID:
/// with unsaved changes, back to the checkpoint that the directory stands on; else to the nearest before it that
/// differs, so that twice goes two back. The conversations of coding agents that were at work then go back, too, unless
/// such an agent is running here: quit it first, or use --fork. What isn't covered by checkpoints isn't touched; a path that has to be kept is
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
    /// Put back files alone, no conversations
    #[arg(long, conflicts_with_all = ["conversation_only", "fork"])]
    files_only: bool,
    /// Put back conversations alone, no files
    #[arg(long)]
    conversation_only: bool,
    /// Leave conversations as they are, and write those of then under a new id
    #[arg(long)]
    fork: bool,
}

const fn what(args: &Args) -> RewindWhat {
    if args.files_only {
        RewindWhat::Files
    } else if args.conversation_only {
        RewindWhat::Conversation
    } else {
        RewindWhat::Both
    }
}

fn verb(args: &Args, id: Option<Selector>, how: Consent) -> Verb {
    match (what(args), args.fork) {
        (RewindWhat::Both, false) => Verb::Rewind { id, how },
        (what, fork) => Verb::RewindAs { id, what, fork, how },
    }
}

pub fn run(app: &App, args: &Args) -> Result<u8> {
    let id = args.id.as_deref().map(|id| app.selector(id)).transpose()?;
    let rewind = Operation {
        verb: &|how| verb(args, id.clone(), how),
        name: "rewind",
        on: "",
        to: "to",
        done: "rewound to",
        back: "`stepback redo`",
        all: Some(args.all),
        before: id.is_none(),
        talk: Some(what(args)),
    };
    operation::run(app, &rewind, args.options)
}
