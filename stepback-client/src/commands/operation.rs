//! What rewind, restore, redo and a session's revert have in common: show the plan, ask, do what was shown, report.

use std::collections::HashSet;

use jiff::Timestamp;
use serde_json::json;
use stepback_proto::{
    CheckpointEntry, Consent, ConversationLine, Failure, FailureKind, Item, NamedPath, PlanChange, Preview,
    Reply, Report, RewindWhat, Selector, Verb, WirePath,
};

use super::IN_PART;
use crate::app::App;
use crate::autostart;
use crate::confirm;
use crate::environment::local_zone;
use crate::error::{Error, Result};
use crate::interrupt::Explained;
use crate::render::path::shown;
use crate::render::time::{age, clock};
use crate::render::{conversation, json, operation};

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
    /// `rewind`, `restore`, `redo`, `revert`.
    pub name: &'a str,
    /// What leads to the root: nothing where all of it is put back, else `in `.
    pub on: &'a str,
    /// What leads to the checkpoint: `to`, `from`, `back to`.
    pub to: &'a str,
    /// `rewound to`
    pub done: &'a str,
    /// What takes it back, if it isn't known from the report.
    pub back: &'a str,
    /// Show whole lists; `None` where there is no `--all` to ask for them.
    pub all: Option<bool>,
    /// The target is the nearest checkpoint before the present state.
    pub before: bool,
    /// What is put back, where files and conversations may get out of step.
    pub talk: Option<RewindWhat>,
}

/// The items of an operation, sorted.
#[derive(Default)]
struct Parts {
    changes: Vec<PlanChange>,
    kept: Vec<NamedPath>,
    not_covered: Vec<NamedPath>,
    /// Changes that an include pattern brings about.
    included: HashSet<WirePath>,
    conversation: Vec<ConversationLine>,
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
            app.printer.json(&json::preview(
                plan.target,
                plan.noop,
                &parts.changes,
                &parts.included,
                kept,
                left,
                &parts.conversation,
            ))?;
        } else {
            let target = Target::ask(app, plan.target);
            app.printer.text(&describe(app, operation, &parts, &target))?;
        }
        return Ok(0);
    }
    if options.yes {
        return act(app, operation, Consent::Yes);
    }
    loop {
        let (parts, plan) = preview(app, operation)?;
        // Nobody is asked whether nothing may be done.
        if !parts.changes.is_empty() || parts.conversation.iter().any(conversation::acts) {
            let target = Target::ask(app, plan.target);
            app.printer.question(&describe(app, operation, &parts, &target));
            confirm::ask(&app.printer, &question(operation, &parts, &target))?;
        }
        match act(app, operation, Consent::YesTo(plan.plan)) {
            Err(Error::Told(failure)) if failure.kind == FailureKind::StalePlan => {
                if !confirm::can_ask() {
                    return Err(Error::Told(Failure {
                        hint: "look at the new plan with -n, then run the command again".into(),
                        ..failure
                    }));
                }
                app.printer.question(
                    "The directory has changed since this was shown. Nothing is done yet. The new plan:\n",
                );
            }
            other => return other,
        }
    }
}

/// The checkpoint to be put back, as far as it is worth a look. What can't be found out is left out of the text.
struct Target {
    id: u64,
    entry: Option<Box<CheckpointEntry>>,
    root: Option<WirePath>,
}

impl Target {
    fn ask(app: &App, id: u64) -> Self {
        let show = Verb::Show {
            id: Selector::Number(id),
        };
        let entry = match app.ask(show, &mut |_| Ok(())) {
            Ok(Reply::Checkpoint(entry)) => Some(entry),
            _ => None,
        };
        let list = Verb::List {
            limit: Some(1),
            session: None,
            path: None,
        };
        let root = match app.ask(list, &mut |_| Ok(())) {
            Ok(Reply::List { root, .. }) => Some(root),
            _ => None,
        };
        Self { id, entry, root }
    }

    /// `checkpoint 7 (14:05:07, 3m ago)`
    fn full(&self) -> String {
        let now = Timestamp::now();
        let when = self.entry.as_ref().map_or_else(String::new, |e| {
            let clock = clock(e.time_ms, now, &local_zone());
            format!(" ({clock}, {} ago)", age(e.time_ms, now))
        });
        format!("checkpoint {}{when}", self.id)
    }

    /// `checkpoint 7 (3m ago)`
    fn short(&self) -> String {
        let when = self.entry.as_ref().map_or_else(String::new, |e| {
            format!(" ({} ago)", age(e.time_ms, Timestamp::now()))
        });
        format!("checkpoint {}{when}", self.id)
    }
}

/// `Rewind to checkpoint 7 (3m ago): 3 changed, 14 removed, 12 created?`
fn question(of: &Operation<'_>, parts: &Parts, target: &Target) -> String {
    let (first, rest) = of.name.split_at(1);
    format!(
        "{}{rest} {} {}: {}?",
        first.to_uppercase(),
        of.to,
        target.short(),
        operation::counts(&parts.changes)
    )
}

fn preview(app: &App, operation: &Operation<'_>) -> Result<(Parts, Preview)> {
    let (parts, reply) = gather(|each| app.ask((operation.verb)(Consent::Preview), each))?;
    let Reply::Preview(plan) = reply else {
        return Err(Error::Unexpected("a preview"));
    };
    Ok((parts, plan))
}

/// The items that `ask` hands out, sorted, and its reply.
fn gather(ask: impl FnOnce(&mut dyn FnMut(Item) -> Result<()>) -> Result<Reply>) -> Result<(Parts, Reply)> {
    let mut parts = Parts::default();
    let reply = ask(&mut |item| {
        match item {
            Item::Change(change) => parts.changes.push(change),
            Item::Kept(path) => parts.kept.push(path),
            Item::NotCovered(path) => parts.not_covered.push(path),
            Item::Included(path) => {
                parts.included.insert(path);
            }
            Item::Conversation(line) => parts.conversation.push(line),
            _ => {}
        }
        Ok(())
    })?;
    Ok((parts, reply))
}

fn describe(app: &App, of: &Operation<'_>, parts: &Parts, target: &Target) -> String {
    let talks = parts.conversation.iter().any(conversation::acts);
    if let Some(why) = nothing_to_do(of, target, parts).filter(|_| parts.changes.is_empty() && !talks) {
        let way = operation::way_to_all(of.all);
        return why
            + &operation::left_alone(&parts.kept, &parts.not_covered, of.all == Some(true), way)
            + &conversation::preview(&parts.conversation);
    }
    let root = target
        .root
        .as_ref()
        .map_or_else(String::new, |root| format!(" {}{}", of.on, shown(root)));
    let plan = operation::Plan {
        what: &format!("{}{root} {} {}", of.name, of.to, target.full()),
        changes: &parts.changes,
        kept: &parts.kept,
        not_covered: &parts.not_covered,
        included: &parts.included,
    };
    operation::preview(&plan, of.all, app.printer.color()) + &conversation::preview(&parts.conversation)
}

/// Why there is nothing to do, where nothing changes. `None`: because all that differs is kept.
fn nothing_to_do(of: &Operation<'_>, target: &Target, parts: &Parts) -> Option<String> {
    let id = target.id;
    let stays = parts.conversation.iter().any(conversation::stays);
    match &target.entry {
        Some(entry) if of.before && entry.base.is_none() => Some(format!(
            "checkpoint {id} is the first: there is nothing before it\n"
        )),
        _ if !parts.kept.is_empty() => None,
        _ if stays && of.talk == Some(RewindWhat::Conversation) => {
            Some(format!("no conversation goes back to checkpoint {id}\n"))
        }
        _ if stays => Some(format!("files are as in checkpoint {id} already\n")),
        _ => Some(format!("already at checkpoint {id}, nothing to do\n")),
    }
}

/// Does it. From the request on, the daemon goes on also without us.
fn act(app: &App, of: &Operation<'_>, consent: Consent) -> Result<u8> {
    let place = app.place()?;
    let connection = autostart::connect(&app.endpoint, &app.environment)?;
    let explained = Explained::begin(
        app.printer,
        format!(
            "the {} goes on in the daemon; `stepback status` shows it, {} takes it back",
            of.name, of.back
        ),
    );
    let answer = gather(|each| app.ask_on(connection, &place, (of.verb)(consent), each));
    drop(explained);
    let (parts, reply) = answer?;
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
        let done = json::report(&report, &parts.kept, &parts.not_covered, &parts.conversation);
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
    let talked =
        of.talk != Some(RewindWhat::Conversation) || parts.conversation.iter().all(|l| l.action != "left");
    Ok(if parts.kept.is_empty() && talked {
        0
    } else {
        IN_PART
    })
}

fn tell(app: &App, of: &Operation<'_>, parts: &Parts, report: &Report) -> Result<()> {
    let talked = parts.conversation.iter().any(conversation::acts);
    let nothing = report.written == 0 && report.removed == 0 && !talked;
    let all = of.all == Some(true);
    let why = nothing
        .then(|| nothing_to_do(of, &Target::ask(app, report.target), parts))
        .flatten();
    if let Some(why) = why {
        let way = operation::way_after(report.target);
        let left = operation::left_alone(&parts.kept, &parts.not_covered, all, &way);
        let talk = conversation::report(&parts.conversation);
        app.printer.text(&format!("{why}{left}{talk}"))?;
        tell_step(app, of, parts, report);
        return Ok(());
    }
    let done = format!("{} checkpoint {}", of.done, report.target);
    let text = operation::report(&done, report, &parts.kept, &parts.not_covered, all);
    app.printer
        .text(&(text + &conversation::report(&parts.conversation)))?;
    tell_step(app, of, parts, report);
    match report.back {
        _ if nothing => {}
        Some(n) => {
            let only = only_flag(app, report, n, talked);
            app.printer
                .hint(&format!("`stepback rewind {n}{only}` takes this back"));
        }
        None if report.redoable => app.printer.hint("`stepback redo` takes this back"),
        None => {}
    }
    Ok(())
}

/// What has a rewind to checkpoint `n` take back no more than a redo did. `talked`: that was (also) of conversations.
fn only_flag(app: &App, report: &Report, n: u64, talked: bool) -> &'static str {
    let files = report.written > 0 || report.removed > 0;
    let has_talk = || {
        let entry = Target::ask(app, n).entry;
        entry.is_some_and(|entry| !entry.conversation.is_empty())
    };
    match (files, talked) {
        (true, false) if has_talk() => " --files-only",
        (false, true) => " --conversation-only",
        _ => "",
    }
}

/// Files and conversations that don't belong together are mentioned.
fn tell_step(app: &App, of: &Operation<'_>, parts: &Parts, report: &Report) {
    // A redo puts both back, or says why not.
    let what = of.talk.unwrap_or(RewindWhat::Both);
    if of.talk.is_none() && parts.conversation.is_empty() {
        return;
    }
    let changed = report.written > 0 || report.removed > 0;
    // Asked only where the answer matters.
    let agents = parts.conversation.is_empty() && changed && has_agents(app);
    if let Some((note, hint)) = conversation::step(what, &parts.conversation, report.target, agents) {
        app.printer.note(&note);
        let hints = conversation::hints(&parts.conversation);
        for hint in hint.iter().chain(&hints) {
            app.printer.hint(hint);
        }
    }
}

/// Whether agents are known to have worked here.
fn has_agents(app: &App) -> bool {
    match app.ask(Verb::Status { verify: false }, &mut |_| Ok(())) {
        Ok(Reply::Status(status)) => status.root.is_some_and(|root| !root.agents.is_empty()),
        _ => false,
    }
}
