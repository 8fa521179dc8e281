//! `stepback list`, also `stepback log`

use std::path::PathBuf;

use jiff::Timestamp;
use stepback_proto::{Item, Reply, Verb};

use super::watch;
use crate::app::App;
use crate::error::{Error, Result};
use crate::render::path::{one_line, shown};
use crate::render::{json, list};

/// How many checkpoints are listed when nothing else is asked for.
const LIMIT_DEFAULT: u64 = 200;

/// List checkpoints, newest first.
///
/// `*` marks the checkpoint that equals the directory as it is now. +, ~ and - count the files added, modified and
/// deleted since the checkpoint's base.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// At most N checkpoints, rather than 200
    #[arg(short = 'n', long = "limit", value_name = "N", value_parser = whole, conflicts_with = "all")]
    limit: Option<u64>,
    /// All of them
    #[arg(long)]
    all: bool,
    /// Only those of this session
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Only those that changed PATH or something below it
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,
    /// Follow new ones as they come, as `stepback watch`
    #[arg(short, long, conflicts_with_all = ["limit", "all", "session", "path"])]
    follow: bool,
}

fn whole(text: &str) -> std::result::Result<u64, &'static str> {
    text.parse().map_err(|_| "N is a whole number")
}

pub fn run(app: &App, args: Args) -> Result<u8> {
    if args.follow {
        return watch::run(app);
    }
    let limit = if args.all {
        None
    } else {
        Some(args.limit.unwrap_or(LIMIT_DEFAULT))
    };
    let path = args.path.as_deref().map(|p| app.absolute(p)).transpose()?;
    let (items, reply) = app.collect(Verb::List {
        limit,
        session: args.session,
        path,
    })?;
    let Reply::List { root, current, redo } = reply else {
        return Err(Error::Unexpected("list"));
    };
    let mut checkpoints = Vec::new();
    let mut damaged = false;
    for item in items {
        match item {
            Item::Checkpoint(entry) => checkpoints.push(*entry),
            Item::Damaged { what, how } => {
                damaged = true;
                app.printer
                    .note(&format!("not listed: {} {}", one_line(&what), one_line(&how)));
            }
            _ => {}
        }
    }
    if damaged {
        app.printer
            .note("hint: `stepback status --verify` names all that is damaged; the others are usable");
    }
    if app.printer.json {
        app.printer
            .json(&json::list(&root, current, &checkpoints, &redo))?;
        return Ok(0);
    }
    if checkpoints.is_empty() {
        app.printer.note(&match &args.path {
            Some(path) => format!("no checkpoint changed {}", shown(&path.clone().into())),
            None => "no checkpoint to list".into(),
        });
        return Ok(0);
    }
    let color = app.printer.color();
    let header = app.printer.on_terminal();
    let text = list::table(&checkpoints, current, Timestamp::now(), header, color);
    app.printer.page(&app.environment, &text)?;
    if let Some(entry) = redo.first() {
        let operation = entry.operation.replace('-', " ");
        let to = if operation == "restore" { "from" } else { "to" };
        app.printer.note(&format!(
            "`stepback redo` takes back the {operation} {to} {}",
            entry.target
        ));
    }
    app.printer
        .note("ignored files are in no checkpoint; `stepback status` says more");
    Ok(0)
}
