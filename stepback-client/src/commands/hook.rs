//! `stepback hook`: what agents' hooks call. Whatever happens it prints nothing, ends soon and exits 0: an agent must never
//! notice it, with a daemon or without one.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;
use stepback_proto::{HookEvent, Request, SAVE_PATIENCE, Verb};

use crate::agents::{self, Agent, Told};
use crate::app::App;
use crate::connection::Probe;
use crate::place;
use crate::service;

/// How long the payload may take to come, all of it.
const PAYLOAD_PATIENCE: Duration = Duration::from_secs(2);
/// How long a daemon may take for its first word, and for its answer when nothing is waited for.
const DAEMON_PATIENCE: Duration = Duration::from_millis(40);
/// The most bytes of a payload that are read. Tools' answers can be large; a larger one is no event.
const PAYLOAD_BYTES_MAX: u64 = 16 << 20;

/// Tell the daemon what an agent is doing; for agents' hooks
///
/// Reads the agent's JSON from stdin, or from the last argument. Prints nothing, never starts a daemon, always exits 0.
/// `stepback hooks install` makes agents call it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The agent: claude-code, codex, gemini, qwen, copilot, opencode or goose
    agent: String,
    /// The event's name or its JSON, where the agent puts it on the command line
    #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
    words: Vec<String>,
}

/// Whatever fails, nothing is said of it.
pub fn run(app: &App, args: &Args) {
    let Some(agent) = Agent::named(&args.agent) else {
        return;
    };
    let Some((event, payload)) = payload(&args.words) else {
        return;
    };
    if let Some(told) = agents::understand(agent, event.as_deref(), &payload) {
        tell(app, told);
    }
}

/// The event's name if it was given, and the payload.
fn payload(words: &[String]) -> Option<(Option<String>, Value)> {
    let (event, json) = match words {
        [] => (None, None),
        [.., last] if last.starts_with('{') => (None, Some(last.clone())),
        [event, ..] => (Some(event.clone()), None),
    };
    let bytes = match json {
        Some(json) => json.into_bytes(),
        None => stdin()?,
    };
    Some((event, serde_json::from_slice(&bytes).ok()?))
}

/// All of stdin, unless it is a terminal, too large, or takes too long.
fn stdin() -> Option<Vec<u8>> {
    if std::io::stdin().is_terminal() {
        return None;
    }
    let (sender, receiver) = mpsc::channel();
    // A reader that never comes to an end goes with the process.
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut input = std::io::stdin().lock().take(PAYLOAD_BYTES_MAX + 1);
        if input.read_to_end(&mut bytes).is_ok() {
            let _ = sender.send(bytes);
        }
    });
    let bytes = receiver.recv_timeout(PAYLOAD_PATIENCE).ok()?;
    (bytes.len() as u64 <= PAYLOAD_BYTES_MAX).then_some(bytes)
}

fn tell(app: &App, mut told: Told) -> Option<()> {
    let from = told.cwd.or_else(|| app.cwd().ok())?;
    let place: PathBuf = place::named(Path::new("/"), &from);
    let saves = matches!(&told.hook.event, HookEvent::ToolStart(tool) if tool.destructive);
    told.hook.pid = agents::caller::pid();
    let started = Instant::now();
    // Nor is one woken that sleeps behind a socket of systemd's.
    let endpoint = app.endpoint.with_patience(DAEMON_PATIENCE);
    let Ok(Probe::Ready(connection)) = service::look(&endpoint, &app.environment) else {
        return None;
    };
    let patience = if saves {
        SAVE_PATIENCE.saturating_sub(started.elapsed())
    } else {
        DAEMON_PATIENCE
    };
    connection.limit(Some(patience)).ok()?;
    let request = Request {
        place: place.into(),
        verb: Verb::Hook(Box::new(told.hook)),
    };
    connection.ask(&request, &mut |_| Ok(())).ok().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_may_stand_on_the_command_line() {
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            payload(&words)
        };
        let json = serde_json::json!({"type": "x"});
        assert_eq!(of(&["{\"type\":\"x\"}"]), Some((None, json.clone())));
        assert_eq!(of(&["notify", "{\"type\":\"x\"}"]), Some((None, json)));
        assert_eq!(of(&["{oops"]), None);
    }
}
