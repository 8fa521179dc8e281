//! `stepback recover`

use serde_json::json;
use stepback_proto::{Item, RecoverOutcome, Reply, Verb};

use super::IN_PART;
use crate::app::App;
use crate::error::{Error, Result};
use crate::render::{json, operation};

/// Finish or undo an operation that a crash interrupted.
///
/// Changes only paths that hold one of the two versions that the operation recorded; others are kept and named, and the
/// exit code is then 3. Exits 0 when nothing was interrupted. A journal, redo entry or session that can't be read is set
/// aside and named, so that the next operation can go on.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Put back the state before the operation, rather than finish it
    #[arg(long)]
    undo: bool,
    /// Name all paths that are kept, however many
    #[arg(long)]
    all: bool,
}

pub fn run(app: &App, args: &Args) -> Result<u8> {
    let (items, reply) = app.collect(Verb::Recover { undo: args.undo })?;
    let Reply::Recovered {
        operation,
        target,
        outcome,
        notes,
    } = reply
    else {
        return Err(Error::Unexpected("recover"));
    };
    notes.iter().for_each(|note| app.printer.note(note));
    let kept: Vec<_> = items
        .into_iter()
        .filter_map(|item| match item {
            Item::Kept(path) => Some(path),
            _ => None,
        })
        .collect();
    let word = match outcome {
        RecoverOutcome::Finished => "finished",
        RecoverOutcome::Undone => "undone",
        RecoverOutcome::Nothing => "nothing",
    };
    if app.printer.json {
        let name = (!operation.is_empty()).then_some(operation);
        app.printer.json(
            &json!({ "operation": name, "target": target, "outcome": word, "kept": json::named(&kept) }),
        )?;
    } else if outcome == RecoverOutcome::Nothing {
        let text = if notes.is_empty() && kept.is_empty() {
            "nothing was interrupted\n".to_owned()
        } else {
            format!(
                "no operation is left to finish\n{}",
                operation::left_alone(&kept, &[], true, "")
            )
        };
        app.printer.text(&text)?;
    } else {
        // What was undone is in no checkpoint that could be asked for the rest of a list.
        let again = target.filter(|_| outcome == RecoverOutcome::Finished);
        let way = again.map(operation::way_after).unwrap_or_default();
        let all = args.all || again.is_none();
        let target = target.map_or_else(String::new, |n| format!(" to {n}"));
        app.printer.text(&format!(
            "{word}: the {operation}{target}\n{}",
            operation::left_alone(&kept, &[], all, &way)
        ))?;
    }
    Ok(if kept.is_empty() { 0 } else { IN_PART })
}
