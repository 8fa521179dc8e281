//! `stepback session`

use std::collections::HashMap;

use jiff::Timestamp;
use serde_json::json;
use stepback_proto::{
    ChangeKind, Consent, Item, Reply, RewindWhat, SessionDetail, SessionLine, SessionPath, Verb,
};

use super::operation::{self, Operation, Options};
use crate::app::App;
use crate::environment::local_zone;
use crate::error::{Error, Result};
use crate::render::path::{one_line, shown};
use crate::render::time::both;
use crate::render::{count, json};

/// Spans of checkpoints.
#[derive(Debug, clap::Subcommand)]
pub enum Session {
    /// Open a session: a checkpoint, and a name for what follows
    Start {
        /// Its name: letters, digits, `-` and `_`; one is made up when absent
        name: Option<String>,
    },
    End(End),
    /// List the sessions of this directory
    List,
    /// Sum up what a session created, modified and deleted
    Show {
        /// Which; the one opened last when absent
        name: Option<String>,
    },
}

/// End a session, and keep or put back what happened in it.
///
/// Without NAME: the one opened last. Without --revert everything is kept; with it, the state at the session's start is
/// put back, after a preview and a question.
#[derive(Debug, clap::Args)]
pub struct End {
    /// Which; the one opened last when absent
    name: Option<String>,
    /// Leave everything as it is; so without --revert
    #[arg(long, conflicts_with = "revert")]
    keep: bool,
    /// Put back the state at its start; `stepback redo` takes that back
    #[arg(long)]
    revert: bool,
    /// With --revert: only show what would happen
    #[arg(short = 'n', long, requires = "revert")]
    dry_run: bool,
    /// Don't ask
    #[arg(short, long)]
    yes: bool,
}

pub fn run(app: &App, session: Session) -> Result<u8> {
    match session {
        Session::Start { name } => start(app, name),
        Session::End(end) if end.revert => {
            let revert = Operation {
                verb: &|how: Consent| Verb::SessionEnd {
                    name: end.name.clone(),
                    revert: Some(how),
                },
                name: "revert",
                on: "",
                to: "to",
                done: "reverted to",
                back: "`stepback redo`",
                all: None,
                before: false,
                talk: Some(RewindWhat::Both),
            };
            operation::run(
                app,
                &revert,
                Options {
                    dry_run: end.dry_run,
                    yes: end.yes,
                },
            )
        }
        Session::End(end) => keep(app, end.name),
        Session::List => list(app),
        Session::Show { name } => show(app, name),
    }
}

fn start(app: &App, name: Option<String>) -> Result<u8> {
    let (_, reply) = app.collect(Verb::SessionStart {
        name,
        command: None,
        pid: None,
    })?;
    let Reply::SessionStarted { session, checkpoint } = reply else {
        return Err(Error::Unexpected("session start"));
    };
    if app.printer.json {
        app.printer
            .json(&json!({ "session": session, "checkpoint": checkpoint }))?;
    } else {
        app.printer
            .text(&format!("session {session} starts at checkpoint {checkpoint}\n"))?;
    }
    Ok(0)
}

fn keep(app: &App, name: Option<String>) -> Result<u8> {
    let (_, reply) = app.collect(Verb::SessionEnd { name, revert: None })?;
    let Reply::SessionEnded {
        session, checkpoint, ..
    } = reply
    else {
        return Err(Error::Unexpected("session end"));
    };
    if app.printer.json {
        app.printer
            .json(&json!({ "session": session, "checkpoint": checkpoint, "reverted": null }))?;
    } else {
        app.printer
            .text(&format!("session {session} ended at checkpoint {checkpoint}\n"))?;
        app.printer.hint(&format!(
            "`stepback rewind session:{session}` goes back to its start"
        ));
    }
    Ok(0)
}

fn list(app: &App) -> Result<u8> {
    let (items, _) = app.collect(Verb::SessionList)?;
    let (mut sessions, mut agents) = (Vec::new(), HashMap::new());
    for item in items {
        match item {
            Item::Session(line) => sessions.push(line),
            Item::SessionAgent { session, agent } => {
                agents.insert(session, agent);
            }
            _ => {}
        }
    }
    if app.printer.json {
        let line = |s: &SessionLine| json::session(s, agents.get(&s.session).map(String::as_str));
        app.printer.json(&sessions.iter().map(line).collect())?;
        return Ok(0);
    }
    let (now, zone) = (Timestamp::now(), local_zone());
    let width = sessions
        .iter()
        .map(|s| s.session.chars().count())
        .max()
        .unwrap_or(0);
    let mut out = String::new();
    for s in &sessions {
        let end = s.ended_ms.map_or_else(
            || "open".to_owned(),
            |at| format!("ended {}", both(at, now, &zone)),
        );
        let command = s
            .command
            .as_ref()
            .map_or_else(String::new, |c| format!("  {}", one_line(c)));
        out += &format!(
            "{:width$}  {}, {end}, {}{command}\n",
            one_line(&s.session),
            both(s.started_ms, now, &zone),
            count(s.checkpoints, "checkpoint", "checkpoints")
        );
    }
    if sessions.is_empty() {
        app.printer.note("no sessions yet");
        return Ok(0);
    }
    app.printer.page(&app.environment, &out)?;
    Ok(0)
}

fn show(app: &App, name: Option<String>) -> Result<u8> {
    let (items, reply) = app.collect(Verb::SessionShow { name })?;
    let Reply::Session(detail) = reply else {
        return Err(Error::Unexpected("session show"));
    };
    let (mut paths, mut agent) = (Vec::new(), None);
    for item in items {
        match item {
            Item::SessionPath(path) => paths.push(path),
            Item::SessionAgent { agent: name, .. } => agent = Some(name),
            _ => {}
        }
    }
    let agent = agent.as_deref();
    if app.printer.json {
        app.printer.json(&json::session_detail(&detail, agent, &paths))?;
    } else {
        app.printer
            .page(&app.environment, &text(&detail, agent, &paths))?;
    }
    Ok(0)
}

fn text(detail: &SessionDetail, agent: Option<&str>, paths: &[SessionPath]) -> String {
    let (now, zone) = (Timestamp::now(), local_zone());
    let line = &detail.line;
    let mut out = format!("session {}\n", one_line(&line.session));
    if let Some(command) = &line.command {
        out += &format!("  command  {}\n", one_line(command));
    }
    if let Some(agent) = agent {
        out += &format!("  agent    {}\n", one_line(agent));
    }
    out += &format!("  started  {}\n", both(line.started_ms, now, &zone));
    let ended = line
        .ended_ms
        .map_or_else(|| "still open".to_owned(), |at| both(at, now, &zone));
    out += &format!("  ended    {ended}\n  {}\n", summary(paths));
    for turn in &detail.turns {
        let prompt = turn.prompt.as_deref().map(one_line).unwrap_or_default();
        out += &format!(
            "  turn {}, from checkpoint {}  {prompt}\n",
            turn.turn, turn.checkpoint
        );
    }
    for p in paths.iter().filter(|p| !p.dir || p.status == ChangeKind::Added) {
        out += &format!(
            "    {} {}{}\n",
            p.status.letter(),
            shown(&p.path),
            if p.dir { "/" } else { "" }
        );
    }
    out
}

/// `3 files created, 2 modified, 1 deleted, 1 directory created`
pub(super) fn summary(paths: &[SessionPath]) -> String {
    let number = |dir: bool, kinds: &[ChangeKind]| {
        paths
            .iter()
            .filter(|p| p.dir == dir && kinds.contains(&p.status))
            .count() as u64
    };
    let mut out = format!(
        "{} created, {} modified, {} deleted",
        count(number(false, &[ChangeKind::Added]), "file", "files"),
        number(false, &[ChangeKind::Modified, ChangeKind::TypeChanged]),
        number(false, &[ChangeKind::Deleted])
    );
    let dirs = number(true, &[ChangeKind::Added]);
    if dirs > 0 {
        out += &format!(", {} created", count(dirs, "directory", "directories"));
    }
    out
}
