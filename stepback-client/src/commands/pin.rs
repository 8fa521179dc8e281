//! `stepback pin` and `stepback unpin`

use std::ffi::OsString;

use serde_json::json;
use stepback_proto::{Reply, Verb};

use crate::app::App;
use crate::error::{Error, Result};

/// Whether a checkpoint is kept for ever.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which checkpoint
    id: OsString,
}

pub fn run(app: &App, args: &Args, pinned: bool) -> Result<u8> {
    let id = app.selector(&args.id)?;
    let (_, reply) = app.collect(Verb::Pin { id, pinned })?;
    let Reply::Pinned { id, pinned } = reply else {
        return Err(Error::Unexpected("pin"));
    };
    if app.printer.json {
        app.printer.json(&json!({ "id": id, "pinned": pinned }))?;
    } else {
        app.printer.text(&format!(
            "{id} is {}\n",
            if pinned { "pinned" } else { "not pinned" }
        ))?;
    }
    Ok(0)
}
