//! `stepback save`

use stepback_proto::{Item, Reply, Verb};

use super::warn_not_captured;
use crate::app::App;
use crate::error::{Error, Result};
use crate::render::json;
use crate::render::path::one_line;

/// Take a checkpoint now.
///
/// Scans everything and prints the checkpoint's number once it is durable. When nothing changed and neither -m nor
/// --pin is given, prints the number of the checkpoint that equals the directory and makes none. What can't be captured
/// is named on stderr.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Say what this state is; makes a checkpoint also when nothing changed
    #[arg(short, long = "message", value_name = "LABEL")]
    message: Option<String>,
    /// Keep it for ever
    #[arg(long)]
    pin: bool,
}

pub fn run(app: &App, args: Args) -> Result<u8> {
    let (items, reply) = app.collect(Verb::Save {
        label: args.message,
        pin: args.pin,
    })?;
    let Reply::Saved {
        id, created, tree, ..
    } = reply
    else {
        return Err(Error::Unexpected("save"));
    };
    if app.printer.json {
        app.printer.json(&json::saved(id, created, &tree))?;
    } else {
        app.printer.text(&format!("{id}\n"))?;
        app.printer.note(&if created {
            format!("saved as checkpoint {id}")
        } else {
            format!("nothing changed; this is checkpoint {id}")
        });
    }
    let not_captured: Vec<_> = items
        .into_iter()
        .filter_map(|item| match item {
            Item::NotCaptured(path) => Some(path),
            Item::Note(note) => {
                app.printer.warn(&one_line(&note));
                None
            }
            _ => None,
        })
        .collect();
    warn_not_captured(app, &not_captured);
    Ok(0)
}
