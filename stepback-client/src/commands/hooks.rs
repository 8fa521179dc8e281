//! `stepback hooks`: have agents tell whose turn it is.

use jiff::Timestamp;
use serde_json::json;
use similar::TextDiff;
use stepback_proto::{HookSeen, Reply, Verb};

use crate::agents::Agent;
use crate::agents::change::Change;
use crate::agents::installed::State;
use crate::agents::settings::Settings;
use crate::app::App;
use crate::confirm;
use crate::connection::Probe;
use crate::environment::local_zone;
use crate::error::{Error, Result};
use crate::render::count;
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
        let program = match agent {
            Agent::ClaudeCode => "claude",
            Agent::Aider => return false,
            other => other.name(),
        };
        settings.is_used(*agent) || app.environment.program(program).is_some()
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
    let (changes, is_whole) = changes(app, args, &agents, |agent| settings.install(agent))?;
    for agent in &agents {
        if *agent == Agent::Aider {
            app.printer
                .note("aider has no hooks: its turns aren't known. Checkpoints are made all the same.");
        }
    }
    change(app, &changes, args.yes, "Change these files?")?;
    for agent in &agents {
        if let Some(note) = next_step(settings, *agent) {
            app.printer.note(&note);
        }
    }
    done(app, &agents, &changes, is_whole)
}

/// What stays to be done by hand.
fn next_step(settings: &Settings, agent: Agent) -> Option<String> {
    let words = match agent {
        Agent::Codex => {
            let until_then = if settings.codex_notifies_another() {
                "Until then none of its turns is told: your own `notify` stays as it is."
            } else {
                "Until then only the ends of its turns are told, by `notify`."
            };
            return Some(format!(
                "codex runs hooks only when you trust them: start it and type `/hooks`, look at stepback's entries and \
                 trust them. {until_then}"
            ));
        }
        Agent::Goose => "goose takes the plugin at its next start; it doesn't tell of the ends of turns.",
        _ => return None,
    };
    Some(words.into())
}

/// What is to be changed for `agents`. One whose settings are broken is an error if it was named, else it is told and the
/// others go on.
fn changes(
    app: &App,
    args: &Args,
    agents: &[Agent],
    of: impl Fn(Agent) -> Result<Vec<Change>>,
) -> Result<(Vec<Change>, bool)> {
    let (mut changes, mut is_whole) = (Vec::new(), true);
    for agent in agents {
        match of(*agent) {
            Ok(more) => changes.extend(more),
            Err(e) if args.agents.agents.is_empty() => {
                is_whole = false;
                app.printer.warn(&format!("{}: {e}", agent.name()));
                app.printer.hint(&e.hint());
            }
            Err(e) => return Err(e),
        }
    }
    Ok((changes, is_whole))
}

fn uninstall(app: &App, settings: &Settings, args: &Args) -> Result<u8> {
    let agents = if args.agents.agents.is_empty() {
        Agent::ALL.to_vec()
    } else {
        args.agents.agents.clone()
    };
    let (changes, is_whole) = changes(app, args, &agents, |agent| settings.uninstall(agent))?;
    change(app, &changes, args.yes, "Change these files back?")?;
    done(app, &agents, &changes, is_whole)
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
    // All or, as far as can be known before, none.
    changes.iter().try_for_each(Change::check)?;
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

/// `is_whole`: no agent was left out.
fn done(app: &App, agents: &[Agent], changes: &[Change], is_whole: bool) -> Result<u8> {
    if app.printer.json {
        let agents: Vec<&str> = agents.iter().map(|agent| agent.name()).collect();
        let files: Vec<String> = changes.iter().map(|c| c.file.display().to_string()).collect();
        app.printer.json(&json!({ "agents": agents, "changed": files }))?;
    }
    Ok(u8::from(!is_whole))
}

fn status(app: &App, settings: &Settings, named: &[Agent]) -> Result<u8> {
    let agents = if named.is_empty() { &Agent::ALL[..] } else { named };
    let seen = seen(app);
    let now = Timestamp::now();
    let mut lines = Vec::new();
    let mut text = String::new();
    let mut broken = false;
    for agent in agents {
        let state = settings.state(*agent);
        let at = seen
            .iter()
            .find(|seen| seen.agent == agent.name())
            .map(|seen| seen.time_ms);
        let heard = match at {
            Some(ms) => format!(", heard of last {}", both(ms, now, &local_zone())),
            None => String::new(),
        };
        let words = match &state {
            Ok(State::Impossible) => "has no hooks".into(),
            Ok(State::Absent) => "not installed".into(),
            Ok(State::Stale) => "stale: `stepback hooks install` brings it up to date".into(),
            Ok(State::Installed) => "installed".into(),
            Ok(State::ByHand) => "installed by hand".into(),
            Err(e) => {
                broken = true;
                format!("not known: {e}")
            }
        };
        let by_hand = settings.by_hand(*agent).unwrap_or_default();
        let more = match by_hand {
            0 => String::new(),
            _ if matches!(state, Ok(State::ByHand)) => String::new(),
            n => format!(", {} by hand", count(n as u64, "hook", "hooks")),
        };
        text += &format!("{:<12} {}{more}{heard}\n", agent.name(), one_line(&words));
        let mut line = json!({
            "agent": agent.name(),
            "installed": matches!(state, Ok(State::Installed | State::Stale | State::ByHand)),
            "stale": matches!(state, Ok(State::Stale)),
            "seen": at.map(rfc3339),
        });
        if by_hand > 0 {
            line["by_hand"] = json!(by_hand);
        }
        if let Err(e) = &state {
            line["error"] = json!(e.to_string());
        }
        lines.push(line);
    }
    if app.printer.json {
        app.printer.json(&lines.into())?;
    } else {
        app.printer.text(&text)?;
    }
    Ok(u8::from(broken))
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
