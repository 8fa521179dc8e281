//! `stepback prune`

use serde_json::json;
use stepback_proto::{PrunedRoot, Reply, Verb};

use crate::app::App;
use crate::confirm;
use crate::error::{Error, Result};
use crate::render::path::shown;
use crate::render::{count, json as render};
use crate::size;

/// Apply retention now, and give the space back.
///
/// The daemon does the same by itself, a little later. Pinned and labelled checkpoints, the newest ones and whatever a
/// redo or an open session needs are never removed. With --roots, all checkpoints of directories that are gone are removed
/// instead, after a question that lists them; a directory that is only unmounted or can't be read isn't gone.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only say what would go
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Remove everything of directories that are gone
    #[arg(long)]
    roots: bool,
    /// Don't ask
    #[arg(short, long)]
    yes: bool,
}

struct Pruned {
    removed: Vec<u64>,
    roots: Vec<PrunedRoot>,
    freed_bytes: u64,
}

pub fn run(app: &App, args: &Args) -> Result<u8> {
    let pruned = if args.roots {
        roots(app, args)?
    } else {
        ask(app, false, Vec::new(), args.dry_run)?
    };
    if app.printer.json {
        let roots: Vec<_> = pruned.roots.iter().map(render::pruned_root).collect();
        app.printer.json(&json!({
            "removed": pruned.removed,
            "roots_removed": roots,
            // A dry run gives back nothing; what would come free isn't known before.
            "freed_bytes": pruned.freed_bytes,
        }))?;
        return Ok(0);
    }
    let mut text = String::new();
    if args.roots {
        for root in &pruned.roots {
            text += &line(root);
        }
    } else if args.dry_run && !pruned.removed.is_empty() {
        let numbers: Vec<String> = pruned.removed.iter().map(u64::to_string).collect();
        text += &format!("{}\n", numbers.join(" "));
    }
    let what = if args.roots {
        count(pruned.roots.len() as u64, "root", "roots")
    } else {
        count(pruned.removed.len() as u64, "checkpoint", "checkpoints")
    };
    text += &if args.dry_run {
        format!("{what} would be deleted\n")
    } else {
        format!("{what} deleted, {} given back\n", size::human(pruned.freed_bytes))
    };
    app.printer.text(&text)?;
    Ok(0)
}

/// Lists, asks, and removes just what was listed.
fn roots(app: &App, args: &Args) -> Result<Pruned> {
    let found = ask(app, true, Vec::new(), true)?;
    if args.dry_run || found.roots.is_empty() {
        return Ok(found);
    }
    if !args.yes {
        let list: String = found.roots.iter().map(line).collect();
        app.printer.question(&list);
        let what = count(
            found.roots.len() as u64,
            "directory that is",
            "directories that are",
        );
        confirm::ask(
            &app.printer,
            &format!("Delete all checkpoints of the {what} gone for good?"),
        )?;
    }
    let ids = found.roots.into_iter().map(|root| root.id).collect();
    ask(app, true, ids, false)
}

fn line(root: &PrunedRoot) -> String {
    format!(
        "{} ({}), {}\n",
        shown(&root.path),
        root.id,
        size::human(root.store_bytes)
    )
}

fn ask(app: &App, roots: bool, only: Vec<String>, preview: bool) -> Result<Pruned> {
    let verb = Verb::Prune { roots, only, preview };
    let Reply::Pruned {
        removed,
        roots,
        freed_bytes,
        notes,
    } = app.collect(verb)?.1
    else {
        return Err(Error::Unexpected("prune"));
    };
    notes.iter().for_each(|note| app.printer.note(note));
    Ok(Pruned {
        removed,
        roots,
        freed_bytes,
    })
}
