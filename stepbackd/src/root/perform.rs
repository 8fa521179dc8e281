//! Each job on the engine: what is asked, what is sent, and the reply.

use std::collections::BTreeSet;
use std::io::Write;

use stepback_engine::Error;
use stepback_engine::checkpoint::Trigger;
use stepback_engine::conversation::Mode;
use stepback_engine::diff::patch::{LineCounts, Purpose};
use stepback_engine::engine::{Context, Engine, Operation, Report, Scope, Select, Sides, Why};
use stepback_engine::node::NotCaptured;
use stepback_engine::path::TreePath;
use stepback_engine::restore::{PlanId, is_leftover};
use stepback_engine::session::WATCH;
use stepback_proto::{Failure, FailureKind, Item, Reply, TurnLine};

use crate::convert;
use crate::outlet::{Bytes, Gone, Outlet};
use crate::root::job::{Consent, Form, Job};

/// Said once for each root.
const CONVERSATIONS_KEPT: &str = "the conversations of coding agents are kept with the checkpoints and rewound with the \
    files; `conversations = false` in config.toml turns that off";

/// How a job ended well.
#[derive(Debug)]
pub struct Outcome {
    /// The last frame.
    pub reply: Reply,
    /// Paths that kept changing: to be looked at again.
    pub dirty: Vec<TreePath>,
    /// The store was packed, or, for this reason, could not be.
    pub packed: Option<Option<String>>,
}

/// Why a job didn't end well.
#[derive(Debug)]
pub enum JobError {
    /// The engine says why.
    Engine(Error),
    /// We do.
    Failure(Failure),
    /// Nobody wants the answer any more.
    Gone,
}

impl From<Error> for JobError {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl From<Gone> for JobError {
    fn from(Gone: Gone) -> Self {
        Self::Gone
    }
}

impl From<Reply> for Outcome {
    fn from(reply: Reply) -> Self {
        Self {
            reply,
            dirty: Vec::new(),
            packed: None,
        }
    }
}

type Result<T, E = JobError> = std::result::Result<T, E>;

/// So many checkpoints that can't be read are named in a list; `status --verify` names more.
const DAMAGED_MAX: usize = 20;

/// Does one job.
///
/// # Errors
/// What the engine says; [`JobError::Gone`] when the client went away half-way.
pub fn perform(engine: &mut Engine, job: &Job, cx: &Context<'_>, out: &mut Outlet) -> Result<Outcome> {
    Ok(match job {
        Job::FirstCapture { created, notes, .. } => return first_capture(engine, *created, notes, cx, out),
        Job::Save { label, pin } => return save(engine, label.clone(), *pin, cx, out),
        Job::List { limit, session, path } => {
            list(engine, *limit, session.as_deref(), path.as_ref(), cx, out)?.into()
        }
        Job::Show(id) => show(engine, id, out)?.into(),
        Job::Cat(id, path) => {
            let n = engine.resolve(id)?;
            let mut to = Bytes::new(out);
            let written = engine.cat(n, path, &mut to);
            end_of(to, written)?.into()
        }
        Job::Diff { sides, within, form } => diff(engine, sides, within, *form, cx, out)?.into(),
        Job::Operate(operation, mode, Consent::Preview) => preview(engine, operation, *mode, cx, out)?.into(),
        Job::Operate(operation, mode, consent) => {
            let report = execute(engine, operation, *mode, consent, cx, out)?;
            Reply::Report(convert::report(&report)).into()
        }
        Job::Recover { undo } => {
            let recovered = engine.recover(*undo, cx)?;
            for kept in &recovered.kept {
                out.item(convert::kept(kept))?;
            }
            convert::recovered(&recovered, *undo).into()
        }
        Job::SessionStart {
            name,
            command,
            process,
        } => {
            let (session, checkpoint) =
                engine.session_start(name.as_deref(), command.as_deref(), *process, cx)?;
            Reply::SessionStarted { session, checkpoint }.into()
        }
        Job::SessionEnd { name, revert } => {
            session_end(engine, name.as_deref(), revert.as_ref(), cx, out)?.into()
        }
        Job::SessionList => {
            for session in engine.sessions() {
                out.item(Item::Session(convert::session(
                    session,
                    engine.checkpoints_of(&session.name),
                )))?;
                if let Some(agent) = convert::session_agent(session) {
                    out.item(agent)?;
                }
            }
            Reply::Empty.into()
        }
        Job::SessionShow(name) => session_show(engine, name.as_deref(), cx, out)?.into(),
        Job::Pin(id, pinned) => {
            let id = engine.resolve(id)?;
            engine.pin(id, *pinned)?;
            Reply::Pinned { id, pinned: *pinned }.into()
        }
        Job::Drop { ids, preview } => {
            // A number may be that of a damaged one, which nothing else can be done with.
            let ids = ids
                .iter()
                .map(|id| match id {
                    Select::Number(n) => Ok(*n),
                    other => engine.resolve(other),
                })
                .collect::<Result<Vec<u64>, Error>>()?;
            let dropped = engine.drop_checkpoints(&ids, *preview, cx)?;
            let packed = (!preview).then(|| dropped.unreclaimed.clone());
            Outcome {
                packed,
                ..convert::dropped(dropped).into()
            }
        }
        Job::ExportPatch(id) => {
            let diff = engine.diff(&Sides::BaseTo(id.clone()), &[], cx)?;
            let mut to = Bytes::new(out);
            let written = engine.write_patch(&diff, Purpose::Applying, &mut to);
            end_of(to, written)?.into()
        }
        Job::ExportTar(id) => {
            let n = engine.resolve(id)?;
            let mut to = Bytes::new(out);
            let written = engine.write_tar(n, &mut to);
            end_of(to, written)?.into()
        }
        Job::Forget {
            paths, undo: true, ..
        } => convert::forgotten(engine.unforget(paths, cx)?, engine.id()).into(),
        Job::Forget {
            paths,
            preview,
            also_in,
            ..
        } => {
            let mut forgotten = engine.forget(paths, *preview, cx)?;
            forgotten.notes.extend(also_in.iter().map(|root| {
                format!(
                    "{} is attached, too, and has checkpoints of its own: forget it there as well",
                    root.display()
                )
            }));
            let packed = (!preview).then(|| forgotten.unreclaimed.clone());
            Outcome {
                packed,
                ..convert::forgotten(forgotten, engine.id()).into()
            }
        }
        // These end the actor, or need its status or settings: it does them itself.
        Job::Detach { .. }
        | Job::Verify
        | Job::Hook(_)
        | Job::SaveBefore { .. }
        | Job::Unsaved { .. }
        | Job::Prune { .. } => {
            let failure = convert::fail(FailureKind::Internal, "a job that the actor does itself", "");
            return Err(JobError::Failure(failure));
        }
    })
}

fn end_of(mut to: Bytes<'_>, written: Result<(), Error>) -> Result<Reply> {
    if to.is_gone() {
        return Err(JobError::Gone);
    }
    written?;
    to.flush().map_err(|_| JobError::Gone)?;
    Ok(Reply::Empty)
}

fn first_capture(
    engine: &mut Engine,
    created: bool,
    notes: &[String],
    cx: &Context<'_>,
    out: &mut Outlet,
) -> Result<Outcome> {
    let captured = engine.capture(Scope::All, &Why::plain(Trigger::Attach), cx)?;
    // The root is attached now, whether or not the client still listens.
    let unfinished = unfinished(engine);
    let _ = send_left_out(engine, unfinished.is_some(), out);
    let mut notes = notes.to_vec();
    notes.extend(unfinished);
    if created && engine.keeps_conversations() {
        notes.push(CONVERSATIONS_KEPT.into());
    }
    Ok(Outcome {
        reply: Reply::Attached(stepback_proto::Attached {
            path: convert::absolute(engine.path()),
            id: engine.id().to_owned(),
            checkpoint: captured.id,
            files: engine.files(),
            created,
            notes,
        }),
        dirty: captured.still_dirty,
        packed: None,
    })
}

fn save(
    engine: &mut Engine,
    label: Option<String>,
    pin: bool,
    cx: &Context<'_>,
    out: &mut Outlet,
) -> Result<Outcome> {
    let captured = engine.capture(
        Scope::All,
        &Why {
            trigger: Trigger::Save,
            label,
            pin,
            ..Why::plain(Trigger::Save)
        },
        cx,
    )?;
    let unfinished = unfinished(engine);
    let not_captured = send_left_out(engine, unfinished.is_some(), out).unwrap_or_default();
    if let Some(note) = unfinished {
        // It is saved, whether or not the client still listens.
        let _ = out.item(Item::Note(note));
    }
    let tree = convert::tree(engine.checkpoint(captured.id)?.snapshot);
    let reply = Reply::Saved {
        id: captured.id,
        created: captured.created,
        tree,
        not_captured,
    };
    Ok(Outcome {
        reply,
        dirty: captured.still_dirty,
        packed: None,
    })
}

/// What is captured isn't a state that somebody made.
fn unfinished(engine: &Engine) -> Option<String> {
    match engine.require_finished() {
        Err(error @ Error::Unfinished { .. }) => Some(format!("{error}: {}", error.hint())),
        // What can't be read the status tells.
        _ => None,
    }
}

/// What isn't captured now; without what an operation that is `unfinished` has left there, which is told of as that.
fn send_left_out(engine: &Engine, unfinished: bool, out: &mut Outlet) -> Result<u64> {
    let mut left_out = engine.not_captured(None)?;
    if unfinished {
        left_out.retain(|entry| !is_leftover(entry));
    }
    send(&left_out, out)
}

fn send_not_captured(engine: &Engine, n: u64, out: &mut Outlet) -> Result<u64> {
    send(&engine.not_captured(Some(n))?, out)
}

fn send(left_out: &[NotCaptured], out: &mut Outlet) -> Result<u64> {
    for path in left_out {
        out.item(convert::not_captured(path))?;
    }
    Ok(left_out.len() as u64)
}

fn list(
    engine: &Engine,
    limit: Option<u64>,
    session: Option<&str>,
    path: Option<&TreePath>,
    cx: &Context<'_>,
    out: &mut Outlet,
) -> Result<Reply> {
    if let Some(name) = session
        && name != WATCH
        && !engine.sessions().iter().any(|session| session.name == name)
        // Its record may be damaged.
        && engine.checkpoints_of(name) == 0
    {
        return Err(Error::NoSuchSession(name.to_owned()).into());
    }
    let changed: Option<BTreeSet<u64>> = match path {
        Some(path) => Some(engine.changed_path(path, cx)?.into_iter().collect()),
        None => None,
    };
    let wanted = engine
        .checkpoints()
        .iter()
        .rev()
        .filter(|c| session.is_none_or(|name| c.session == name || c.sessions.iter().any(|s| s == name)))
        .filter(|c| changed.as_ref().is_none_or(|changed| changed.contains(&c.n)))
        .take(limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX)));
    for checkpoint in wanted {
        let entry = convert::checkpoint(checkpoint, engine.pinned(checkpoint.n));
        out.item(Item::Checkpoint(Box::new(entry)))?;
    }
    for finding in engine.damaged_checkpoints().take(DAMAGED_MAX) {
        out.item(Item::Damaged {
            what: finding.what.clone(),
            how: finding.how.clone(),
        })?;
    }
    Ok(Reply::List {
        root: convert::absolute(engine.path()),
        current: engine.current(),
        redo: engine.redo_stack().iter().map(convert::redo_entry).collect(),
    })
}

fn show(engine: &Engine, id: &Select, out: &mut Outlet) -> Result<Reply> {
    let n = engine.resolve(id)?;
    send_not_captured(engine, n, out)?;
    Ok(Reply::Checkpoint(Box::new(convert::checkpoint(
        engine.checkpoint(n)?,
        engine.pinned(n),
    ))))
}

fn diff(
    engine: &mut Engine,
    sides: &Sides,
    within: &[TreePath],
    form: Form,
    cx: &Context<'_>,
    out: &mut Outlet,
) -> Result<Reply> {
    let diff = engine.diff(sides, within, cx)?;
    if form == Form::Patch {
        let mut to = Bytes::new(out);
        let written = engine.write_patch(&diff, Purpose::Reading, &mut to);
        end_of(to, written)?;
    } else {
        for change in &diff.changes {
            // Only the client's end cancels it here, and nothing is half done.
            cx.progress.check().map_err(|_| JobError::Gone)?;
            let lines = if form == Form::Files {
                engine.line_counts(change)?
            } else {
                LineCounts::default()
            };
            out.item(convert::diff_file(change, lines))?;
        }
    }
    Ok(convert::diff_end(diff.from, diff.to))
}

fn preview(
    engine: &mut Engine,
    operation: &Operation,
    mode: Mode,
    cx: &Context<'_>,
    out: &mut Outlet,
) -> Result<Reply> {
    let preview = engine.preview_as(operation, mode, cx)?;
    for change in &preview.changes {
        out.item(convert::planned(change))?;
    }
    for path in &preview.included {
        out.item(Item::Included(convert::path(path)))?;
    }
    for kept in &preview.kept {
        out.item(convert::kept(kept))?;
    }
    for left_out in &preview.not_covered {
        out.item(convert::not_covered(left_out))?;
    }
    for outcome in &preview.conversation {
        out.item(convert::conversation(outcome))?;
    }
    Ok(convert::preview(&preview))
}

fn execute(
    engine: &mut Engine,
    operation: &Operation,
    mode: Mode,
    consent: &Consent,
    cx: &Context<'_>,
    out: &mut Outlet,
) -> Result<Report> {
    let expected: Option<&PlanId> = match consent {
        Consent::YesTo(plan) => Some(plan),
        Consent::Yes | Consent::Preview => None,
    };
    let report = engine.execute_as(operation, mode, expected, cx)?;
    // It is done, whether or not the client still listens.
    for kept in &report.kept {
        let _ = out.item(convert::kept(kept));
    }
    for left_out in &report.not_covered {
        let _ = out.item(convert::not_covered(left_out));
    }
    for outcome in &report.conversation {
        let _ = out.item(convert::conversation(outcome));
    }
    Ok(report)
}

fn session_end(
    engine: &mut Engine,
    name: Option<&str>,
    revert: Option<&Consent>,
    cx: &Context<'_>,
    out: &mut Outlet,
) -> Result<Reply> {
    let name = engine.open_session(name)?.name.clone();
    let reverted = match revert {
        None => None,
        Some(Consent::Preview) => {
            return preview(engine, &Operation::Revert(name), Mode::default(), cx, out);
        }
        Some(consent) => Some(execute(
            engine,
            &Operation::Revert(name.clone()),
            Mode::default(),
            consent,
            cx,
            out,
        )?),
    };
    let (session, checkpoint) = engine.session_end(Some(&name), cx)?;
    Ok(Reply::SessionEnded {
        session,
        checkpoint,
        reverted: reverted.as_ref().map(convert::report),
    })
}

fn session_show(
    engine: &mut Engine,
    name: Option<&str>,
    cx: &Context<'_>,
    out: &mut Outlet,
) -> Result<Reply> {
    let summary = engine.session_show(name, cx)?;
    for change in &summary.changes {
        out.item(convert::session_path(change))?;
    }
    if let Some(agent) = convert::session_agent(&summary.session) {
        out.item(agent)?;
    }
    let turns = engine
        .checkpoints()
        .iter()
        .filter(|c| c.trigger == Trigger::TurnStart && c.sessions.contains(&summary.session.name))
        .filter_map(|c| {
            Some(TurnLine {
                turn: c.turn?,
                prompt: c.prompt.clone(),
                checkpoint: c.n,
            })
        })
        .collect();
    Ok(convert::session_detail(&summary, turns))
}
