//! `stepback hook`: what agents' hooks call. Whatever happens it prints nothing, ends soon and exits 0: an agent must never
//! notice it, with a daemon or without one.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;
use stepback_proto::{FailureKind, HookEvent, Request, SAVE_PATIENCE, UNSAVED_DIR, Unsaved, Verb};

use crate::agents::{self, Agent, Told};
use crate::app::App;
use crate::connection::Probe;
use crate::endpoint::Endpoint;
use crate::error::{Error, Result};
use crate::place;
use crate::service;
use crate::whole;

/// How long the payload may take to come, all of it.
const PAYLOAD_PATIENCE: Duration = Duration::from_secs(2);
/// How long a daemon may take when nothing has to be waited for.
const DAEMON_PATIENCE: Duration = Duration::from_millis(40);
/// How long until one that has no room is asked again.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
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
    let from = told.cwd.take().or_else(|| app.cwd().ok())?;
    let place: PathBuf = place::named(Path::new("/"), &from);
    let began = Instant::now();
    let saves = matches!(&told.hook.event, HookEvent::ToolStart(tool) if tool.destructive);
    // A daemon that is there and can't be asked is waited for only where work is at stake.
    let (greeting, answer) = match (saves, told.may_write) {
        (true, _) => (SAVE_PATIENCE, SAVE_PATIENCE),
        (false, true) => (DAEMON_PATIENCE, SAVE_PATIENCE),
        (false, false) => (DAEMON_PATIENCE, DAEMON_PATIENCE),
    };
    told.hook.pid = agents::caller::pid();
    let agent = told.hook.agent.clone();
    // Nor is one woken that sleeps behind a socket of systemd's.
    let endpoint = app.endpoint.with_patience(greeting);
    let request = Request {
        place: place.clone().into(),
        verb: Verb::Hook(Box::new(told.hook)),
    };
    let until = began + greeting.max(answer);
    let asked = loop {
        match ask(app, &endpoint, &request, until) {
            Ok(None) => return None,
            Ok(Some(())) => break true,
            Err(e) if e.kind() == FailureKind::Busy && Instant::now() + BUSY_PAUSE < until => {
                std::thread::sleep(BUSY_PAUSE);
            }
            Err(_) => break false,
        }
    };
    if saves && !asked {
        return leave_note(app.endpoint.state(), &agent, &place, began.elapsed());
    }
    Some(())
}

/// Tells it to the daemon, which has to answer until then; `None` when there is no daemon.
fn ask(app: &App, endpoint: &Endpoint, request: &Request, until: Instant) -> Result<Option<()>> {
    match service::look(endpoint, &app.environment)? {
        Probe::Absent => Ok(None),
        Probe::Ready(mut connection) => {
            connection.end_by(until);
            connection.ask(request, &mut |_| Ok(())).map(|_| Some(()))
        }
        Probe::WrongVersion(welcome) => Err(Error::WrongVersion(welcome)),
    }
}

/// For the daemon, when it can be asked again: an agent goes on, and nothing was saved.
fn leave_note(state: &Path, agent: &str, place: &Path, waited: Duration) -> Option<()> {
    let to_ms = Timestamp::now().as_millisecond();
    let waited_ms = i64::try_from(waited.as_millis()).ok()?.max(1);
    let note = Unsaved::new(agent, place, to_ms - waited_ms, to_ms);
    let file = format!("{to_ms}-{}.json", std::process::id());
    let json = serde_json::to_string(&note).ok()?;
    whole::write(&state.join(UNSAVED_DIR).join(file), &json, 0o600).ok()
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
