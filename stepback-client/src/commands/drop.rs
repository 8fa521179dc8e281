//! `stepback drop`

use std::ffi::OsString;

use serde_json::json;
use stepback_proto::{Reply, Selector, Verb};

use crate::app::App;
use crate::confirm;
use crate::error::{Error, Result};
use crate::render::count;
use crate::size;

/// Delete checkpoints.
///
/// Pinned ones and those that an open session or an unfinished operation needs are refused. One that a redo needs goes
/// together with its redo entry; the question names it. The space is given back when the command returns.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which checkpoints
    #[arg(value_name = "ID", required = true)]
    ids: Vec<OsString>,
    /// Don't ask
    #[arg(short, long)]
    yes: bool,
}

pub fn run(app: &App, args: &Args) -> Result<u8> {
    let mut ids = args
        .ids
        .iter()
        .map(|id| app.selector(id))
        .collect::<Result<Vec<_>>>()?;
    if !args.yes {
        let (dropped, redo, _) = ask(app, ids, true)?;
        let numbers = dropped.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let with = match redo.is_empty() {
            true => String::new(),
            false => format!(" and {}", entries(&redo)),
        };
        let what = if dropped.len() == 1 {
            "checkpoint"
        } else {
            "checkpoints"
        };
        confirm::ask(&app.printer, &format!("Delete {what} {numbers}{with} for good?"))?;
        // What was named in the question, even if `latest` has become another one by now.
        ids = dropped.into_iter().map(Selector::Number).collect();
    }
    let (dropped, redo, freed_bytes) = ask(app, ids, false)?;
    if app.printer.json {
        let mut told = json!({ "dropped": dropped, "freed_bytes": freed_bytes });
        if !redo.is_empty() {
            told["redo"] = redo.into();
        }
        app.printer.json(&told)?;
    } else {
        let mut what = count(dropped.len() as u64, "checkpoint", "checkpoints");
        if !redo.is_empty() {
            what += &format!(" and {}", entries(&redo));
        }
        app.printer.text(&format!(
            "{what} deleted, {} given back\n",
            size::human(freed_bytes)
        ))?;
    }
    Ok(0)
}

/// What goes with them.
fn entries(redo: &[u64]) -> String {
    let n = redo.len() as u64;
    format!(
        "{} that {} them ({})",
        count(n, "redo entry", "redo entries"),
        if n == 1 { "needs" } else { "need" },
        redo.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
    )
}

fn ask(app: &App, ids: Vec<Selector>, preview: bool) -> Result<(Vec<u64>, Vec<u64>, u64)> {
    let (_, reply) = app.collect(Verb::Drop { ids, preview })?;
    let Reply::Dropped {
        dropped,
        redo,
        freed_bytes,
        notes,
    } = reply
    else {
        return Err(Error::Unexpected("drop"));
    };
    notes.iter().for_each(|note| app.printer.note(note));
    Ok((dropped, redo, freed_bytes))
}
