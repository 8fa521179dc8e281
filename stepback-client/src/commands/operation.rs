//! What rewind, restore, redo and a session's revert have in common: show the plan, ask, do what was shown, report.

use serde_json::json;
use stepback_proto::{Consent, FailureKind, Item, NamedPath, PlanChange, Preview, Reply, Report, Verb};

use super::IN_PART;
use crate::app::App;
use crate::confirm;
use crate::error::{Error, Result};
use crate::render::{json, operation};

/// How far to go.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Options {
    /// Only show what would happen
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Don't ask
    #[arg(short, long)]
    pub yes: bool,
}

/// An operation and its words.
pub struct Operation<'a> {
    /// The request, for a given consent.
    pub verb: &'a dyn Fn(Consent) -> Verb,
    /// `rewind to`
    pub doing: &'a str,
    /// `rewound to`
    pub done: &'a str,
    /// Show whole lists.
    pub all: bool,
}

/// The items of an operation, sorted.
#[derive(Default)]
struct Parts {
    changes: Vec<PlanChange>,
    kept: Vec<NamedPath>,
    not_covered: Vec<NamedPath>,
}

/// Runs the operation as far as `options` and the person at the terminal allow; the exit code.
///
/// # Errors
/// [`Error::Declined`] on a no, or with nobody to ask; whatever the daemon fails with.
pub fn run(app: &App, operation: &Operation<'_>, options: Options) -> Result<u8> {
    if options.dry_run {
        let (parts, plan) = preview(app, operation)?;
        if app.printer.json {
            let (kept, left) = (&parts.kept, &parts.not_covered);
            app.printer
                .json(&json::preview(plan.target, plan.noop, &parts.changes, kept, left))?;
        } else {
            app.printer.text(&describe(app, operation, &parts, &plan))?;
        }
        return Ok(0);
    }
    if options.yes {
        return act(app, operation, Consent::Yes);
    }
    let (parts, plan) = preview(app, operation)?;
    if !plan.noop {
        app.printer.question(&describe(app, operation, &parts, &plan));
        let doing = operation.doing;
        confirm::ask(
            &app.printer,
            &format!("{}{} {}?", doing[..1].to_uppercase(), &doing[1..], plan.target),
        )?;
    }
    let done = act(app, operation, Consent::YesTo(plan.plan));
    if let Err(Error::Told(failure)) = &done
        && failure.kind == FailureKind::StalePlan
    {
        let (parts, plan) = preview(app, operation)?;
        app.printer.question(&describe(app, operation, &parts, &plan));
    }
    done
}

fn preview(app: &App, operation: &Operation<'_>) -> Result<(Parts, Preview)> {
    let (parts, reply) = ask(app, (operation.verb)(Consent::Preview))?;
    let Reply::Preview(plan) = reply else {
        return Err(Error::Unexpected("a preview"));
    };
    Ok((parts, plan))
}

fn ask(app: &App, verb: Verb) -> Result<(Parts, Reply)> {
    let mut parts = Parts::default();
    let reply = app.ask(verb, &mut |item| {
        match item {
            Item::Change(change) => parts.changes.push(change),
            Item::Kept(path) => parts.kept.push(path),
            Item::NotCovered(path) => parts.not_covered.push(path),
            _ => {}
        }
        Ok(())
    })?;
    Ok((parts, reply))
}

fn describe(app: &App, of: &Operation<'_>, parts: &Parts, plan: &Preview) -> String {
    if plan.noop {
        return format!("already at {}, nothing to do\n", plan.target)
            + &operation::left_alone(&parts.kept, &parts.not_covered, of.all);
    }
    let plan = operation::Plan {
        what: &format!("{} {}", of.doing, plan.target),
        changes: &parts.changes,
        kept: &parts.kept,
        not_covered: &parts.not_covered,
    };
    operation::preview(&plan, of.all, app.printer.color())
}

fn act(app: &App, of: &Operation<'_>, consent: Consent) -> Result<u8> {
    let (parts, reply) = ask(app, (of.verb)(consent))?;
    let (ended, report) = match reply {
        Reply::Report(report) => (None, report),
        Reply::SessionEnded {
            session,
            checkpoint,
            reverted: Some(report),
        } => (Some((session, checkpoint)), report),
        _ => return Err(Error::Unexpected("an operation")),
    };
    let told = if app.printer.json {
        let done = json::report(&report, &parts.kept, &parts.not_covered);
        app.printer.json(&match ended {
            None => done,
            Some((session, checkpoint)) => {
                json!({ "session": session, "checkpoint": checkpoint, "reverted": done })
            }
        })
    } else {
        if let Some((session, checkpoint)) = ended {
            app.printer
                .note(&format!("session {session} ended at checkpoint {checkpoint}"));
        }
        tell(app, of, &parts, &report)
    };
    match told {
        // It is done, whether somebody reads about it or not: the exit code still says how.
        Ok(()) | Err(Error::OutputClosed) => {}
        Err(e) => return Err(e),
    }
    Ok(if parts.kept.is_empty() { 0 } else { IN_PART })
}

fn tell(app: &App, of: &Operation<'_>, parts: &Parts, report: &Report) -> Result<()> {
    let nothing = report.written == 0 && report.removed == 0;
    if nothing && parts.kept.is_empty() {
        let left = operation::left_alone(&[], &parts.not_covered, of.all);
        return app
            .printer
            .text(&format!("already at {}, nothing to do\n{left}", report.target));
    }
    let done = format!("{} {}", of.done, report.target);
    app.printer
        .text(&operation::report(&done, report, &parts.kept, &parts.not_covered))?;
    match report.back {
        _ if nothing => {}
        Some(n) => app
            .printer
            .hint(&format!("`stepback rewind {n}` takes this back")),
        None => app.printer.hint("`stepback redo` takes this back"),
    }
    Ok(())
}
