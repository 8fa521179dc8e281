//! `stepback hooks`: have agents tell whose turn it is.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;
use similar::TextDiff;
use stepback_proto::{HookSeen, Reply, Verb};

use crate::agents::Agent;
use crate::agents::settings::{Change, Settings, State};
use crate::app::App;
use crate::confirm;
use crate::connection::Probe;
use crate::error::{Error, Result};
use crate::render::path::one_line;
use crate::render::time::{both, rfc3339};
use crate::service;

/// Have agents tell whose turn it is, by their own hooks
#[derive(Debug, clap::Subcommand)]
pub enum Hooks {
    /// Add stepback to the agents' own settings, which are shown first
    Install(Args),
    /// Take stepback out of the agents' settings
    Uninstall(Args),
    /// Which are installed, and when they were heard of
    Status(Agents),
}

/// Which agents, and whether to ask.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    agents: Agents,
    /// Don't ask
    #[arg(short = 'y', long)]
    yes: bool,
}

/// Which agents.
#[derive(Debug, clap::Args)]
pub struct Agents {
    /// claude-code, codex, gemini, qwen, copilot, opencode, goose or aider; all that are used here when none is named
    #[arg(value_name = "AGENT", value_parser = named)]
    agents: Vec<Agent>,
}

fn named(name: &str) -> std::result::Result<Agent, String> {
    Agent::named(name).ok_or_else(|| {
        let all: Vec<&str> = Agent::ALL.iter().map(|agent| agent.name()).collect();
        format!("no agent of this name is known; there are {}", all.join(", "))
    })
}

pub fn run(app: &App, hooks: Hooks) -> Result<u8> {
    let program = std::env::current_exe().map_err(|source| Error::Io {
        path: "/proc/self/exe".into(),
        source,
    })?;
    let settings = Settings::new(&app.environment, &program)?;
    match hooks {
        Hooks::Install(args) => install(app, &settings, &args),
        Hooks::Uninstall(args) => uninstall(app, &settings, &args),
        Hooks::Status(agents) => status(app, &settings, &agents.agents),
    }
}

/// Those that were named, else those that are used here.
fn chosen(app: &App, settings: &Settings, named: &[Agent]) -> Vec<Agent> {
    if !named.is_empty() {
        return named.to_vec();
    }
    let used = |agent: &Agent| {
        let dir = settings.dir(*agent).is_some_and(|dir| dir.is_dir());
        let program = match agent {
            Agent::ClaudeCode => "claude",
            Agent::Aider => return false,
            other => other.name(),
        };
        dir || app.environment.program(program).is_some()
    };
    Agent::ALL.into_iter().filter(used).collect()
}

fn install(app: &App, settings: &Settings, args: &Args) -> Result<u8> {
    let agents = chosen(app, settings, &args.agents.agents);
    if agents.is_empty() {
        return Err(Error::usage(
            "no agent that has hooks was found here",
            "name one: `stepback hooks install claude-code`",
        ));
    }
    let mut changes = Vec::new();
    for agent in &agents {
        changes.extend(settings.install(*agent)?);
    }
    for agent in &agents {
        if *agent == Agent::Aider {
            app.printer
                .note("aider has no hooks: its turns aren't known. Checkpoints are made all the same.");
        }
    }
    change(app, &changes, args.yes, "Change these files?")?;
    for agent in &agents {
        if let Some(note) = next_step(*agent) {
            app.printer.note(note);
        }
    }
    done(app, &agents, &changes)
}

/// What stays to be done by hand.
const fn next_step(agent: Agent) -> Option<&'static str> {
    match agent {
        Agent::Codex => Some(
            "codex runs hooks only when you trust them: start it and type `/hooks`, look at stepback's entries and trust them. \
             Until then only the ends of its turns are told, by `notify`.",
        ),
        Agent::Goose => {
            Some("goose takes the plugin at its next start; it doesn't tell of the ends of turns.")
        }
        _ => None,
    }
}

fn uninstall(app: &App, settings: &Settings, args: &Args) -> Result<u8> {
    let agents = if args.agents.agents.is_empty() {
        Agent::ALL.to_vec()
    } else {
        args.agents.agents.clone()
    };
    let mut changes = Vec::new();
    for agent in &agents {
        changes.extend(settings.uninstall(*agent)?);
    }
    change(app, &changes, args.yes, "Change these files back?")?;
    done(app, &agents, &changes)
}

/// Shows all of it, asks, and does it.
fn change(app: &App, changes: &[Change], yes: bool, question: &str) -> Result<()> {
    if changes.is_empty() {
        app.printer.note("nothing to change");
        return Ok(());
    }
    for change in changes {
        app.printer.note(&shown(change));
    }
    if !yes {
        confirm::ask(&app.printer, question)?;
    }
    changes.iter().try_for_each(Change::apply)
}

fn shown(change: &Change) -> String {
    let (before, after) = (change.before.as_deref(), change.after.as_deref());
    let file = change.file.display();
    let name = |text: Option<&str>| text.map_or("/dev/null".to_owned(), |_| file.to_string());
    let diff = TextDiff::from_lines(before.unwrap_or_default(), after.unwrap_or_default());
    let diff = diff
        .unified_diff()
        .context_radius(2)
        .header(&name(before), &name(after))
        .to_string();
    diff.trim_end().to_owned()
}

fn done(app: &App, agents: &[Agent], changes: &[Change]) -> Result<u8> {
    if app.printer.json {
        let agents: Vec<&str> = agents.iter().map(|agent| agent.name()).collect();
        let files: Vec<String> = changes.iter().map(|c| c.file.display().to_string()).collect();
        app.printer.json(&json!({ "agents": agents, "changed": files }))?;
    }
    Ok(0)
}

fn status(app: &App, settings: &Settings, named: &[Agent]) -> Result<u8> {
    let agents = if named.is_empty() { &Agent::ALL[..] } else { named };
    let seen = seen(app);
    let now = Timestamp::now();
    let mut lines = Vec::new();
    let mut text = String::new();
    for agent in agents {
        let state = settings.state(*agent)?;
        let at = seen
            .iter()
            .find(|seen| seen.agent == agent.name())
            .map(|seen| seen.time_ms);
        let heard = match at {
            Some(ms) => format!(", heard of last {}", both(ms, now, &TimeZone::system())),
            None => String::new(),
        };
        let words = match state {
            State::Impossible => "has no hooks",
            State::Absent => "not installed",
            State::Stale => "stale: `stepback hooks install` brings it up to date",
            State::Installed => "installed",
        };
        text += &format!("{:<12} {}{heard}\n", agent.name(), one_line(words));
        lines.push(json!({
            "agent": agent.name(),
            "installed": matches!(state, State::Installed | State::Stale),
            "stale": state == State::Stale,
            "seen": at.map(rfc3339),
        }));
    }
    if app.printer.json {
        app.printer.json(&lines.into())?;
    } else {
        app.printer.text(&text)?;
    }
    Ok(0)
}

/// What a running daemon has heard; none is started for it.
fn seen(app: &App) -> Vec<HookSeen> {
    let Ok(Probe::Ready(connection)) = service::look(&app.endpoint, &app.environment) else {
        return Vec::new();
    };
    let place = app.environment.home.clone().unwrap_or_else(|| "/".into());
    match app.ask_on(connection, &place, Verb::HooksSeen, &mut |_| Ok(())) {
        Ok(Reply::HooksSeen(seen)) => seen,
        _ => Vec::new(),
    }
}
