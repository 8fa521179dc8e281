//! A word of an agent's hook: to which root it goes, and what the agent waits for.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use stepback_engine::conversation::{Agent, SessionId};
use stepback_engine::progress::Progress;
use stepback_proto::{Failure, FailureKind, Hook, HookEvent, Reply, SAVE_PATIENCE};

use crate::convert;
use crate::daemon::Daemon;
use crate::handler::{send, shortened};
use crate::named;
use crate::outlet::{self, Outlet};
use crate::process;
use crate::root::job::{Heard, Job};
use crate::root::{self, Root};
use crate::talkers::Talker;
use crate::unsaved;

/// The most bytes of a name that an agent's hook tells.
const NAME_BYTES_MAX: usize = 256;

/// How long the events of what was written before it may take.
const EVENTS_PATIENCE: Duration = Duration::from_secs(1);

/// An agent's word is taken at once. It waits for the answer before a command that may destroy work, and before the first
/// that it does in a turn whose start isn't saved yet.
pub fn hook(daemon: &Daemon, place: &Path, mut hook: Hook, answers: Outlet, progress: Arc<Progress>) {
    let received = Instant::now();
    let tool = match &mut hook.event {
        HookEvent::TurnStart { prompt, .. } | HookEvent::TurnEnd { prompt } => {
            *prompt = prompt.take().map(shortened);
            None
        }
        HookEvent::ToolStart(tool) | HookEvent::ToolEnd(tool) => Some(&tool.name),
        HookEvent::SessionStart | HookEvent::SessionEnd => None,
    };
    // They stand in checkpoints, and in every list.
    let names = [&hook.agent, &hook.session].into_iter().chain(tool);
    if names
        .into_iter()
        .any(|name| name.is_empty() || name.len() > NAME_BYTES_MAX)
    {
        let message = "the name of an agent, a session or a tool is empty or too long";
        let hint = format!("at most {NAME_BYTES_MAX} bytes");
        return answers.finish(Err(convert::fail(FailureKind::Usage, message, hint)));
    }
    let root = root_of(daemon, place, &hook);
    let agent = hook.agent.clone();
    let destroys = matches!(&hook.event, HookEvent::ToolStart(tool) if tool.destructive);
    let starts = matches!(&hook.event, HookEvent::TurnStart { .. });
    let waits = destroys
        || matches!(&hook.event, HookEvent::ToolStart(_))
            && root
                .as_ref()
                .is_some_and(|root| root.turn_starts.waits(&hook.agent, &hook.session));
    let mut heard = Heard {
        transcript_bytes: if starts { transcript_bytes(&hook) } else { None },
        hook,
        received,
        waits,
        waiting: None,
    };
    // Not before it is in the mailbox: what the agent tells next must come after it, however slow the disk is.
    let write_down = || {
        daemon.hooks_seen.heard(&agent, root::now());
        unsaved::take(daemon);
    };
    let alone = daemon.roots().len() <= usize::from(root.is_some());
    match &root {
        Some(root) if waits && (alone || !destroys) => {
            send(root, Job::Hook(Box::new(heard)), answers, progress);
            return write_down();
        }
        Some(root) if waits => {
            let (sender, saved) = mpsc::channel();
            heard.waiting = Some(sender);
            let (nobody, _) = outlet::pair(daemon.runtime.clone(), daemon.paths.spool());
            send(root, Job::Hook(Box::new(heard)), nobody, Arc::clone(&progress));
            let saved = wait(&saved, received);
            let others = save_others(daemon, Some(root), &agent, received, &progress);
            answers.finish(saved.and(others).map(|()| Reply::Empty));
            return write_down();
        }
        Some(root) => {
            let (nobody, _) = outlet::pair(daemon.runtime.clone(), daemon.paths.spool());
            let (agent, session) = (heard.hook.agent.clone(), heard.hook.session.clone());
            if starts {
                root.turn_starts.told(&agent, &session);
            }
            if !send(root, Job::Hook(Box::new(heard)), nobody, progress) {
                if starts {
                    root.turn_starts.over(&agent, &session);
                }
                if root.unheard() {
                    tracing::warn!(root = %root.id, "what {agent} tells can't be taken: too much waits for this root");
                }
            }
        }
        None if destroys && !alone => {
            // No actor has waited for the events of what was written until now.
            daemon
                .runtime
                .block_on(daemon.cookies.seen_everything(EVENTS_PATIENCE));
            let others = save_others(daemon, None, &agent, received, &progress);
            answers.finish(others.map(|()| Reply::Empty));
            return write_down();
        }
        None => {}
    }
    write_down();
    answers.finish(Ok(Reply::Empty));
}

/// The root of an agent's session: where it was first heard of, or what has its conversation, else where the agent stands. A
/// session that another process goes on with begins anew.
fn root_of(daemon: &Daemon, place: &Path, hook: &Hook) -> Option<Arc<Root>> {
    let Hook { agent, session, .. } = hook;
    let process = hook.pid.map(|pid| (pid, process::start_time(pid).unwrap_or(0)));
    let id = Agent::of_name(agent).map(|agent| SessionId {
        agent,
        session: session.clone(),
    });
    if let (Some(id), Some((pid, start))) = (&id, process) {
        daemon
            .environment
            .conversations
            .told
            .heard(id.clone(), pid, start);
    }
    let roots = daemon.roots();
    let begins = hook.event == HookEvent::SessionStart;
    let home = match daemon.talkers.get(agent, session) {
        Some(known) if !begins || known.process == process => roots.iter().find(|root| root.id == known.root),
        None if !begins => id.as_ref().and_then(|id| {
            let knows = |root: &&Arc<Root>| root.agents().contains(id);
            let here = daemon.root_at(place);
            let mut all = roots.iter();
            match here.as_ref().is_none_or(|here| !knows(&here)) {
                true => all.find(knows),
                false => None,
            }
        }),
        _ => None,
    };
    let root = home.cloned().or_else(|| daemon.root_at(place));
    if hook.event == HookEvent::SessionEnd {
        daemon.talkers.forget(agent, session);
        if let Some(id) = &id {
            daemon.environment.conversations.told.ended(id);
        }
    } else if let Some(root) = &root {
        daemon.talkers.put(Talker {
            agent: agent.clone(),
            session: session.clone(),
            process,
            root: root.id.clone(),
        });
    }
    root
}

/// The length of the transcript that a hook names; 0 as long as there is none. `None`: it names none.
fn transcript_bytes(hook: &Hook) -> Option<u64> {
    let path = named::absolute(hook.transcript.as_ref()?, "a transcript").ok()?;
    match path.metadata() {
        Ok(metadata) => Some(metadata.len()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Some(0),
        Err(_) => None,
    }
}

/// Has what is pending in other roots saved: nobody knows where a command goes.
fn save_others(
    daemon: &Daemon,
    but: Option<&Arc<Root>>,
    agent: &str,
    received: Instant,
    progress: &Arc<Progress>,
) -> Result<(), Failure> {
    let roots = daemon.roots();
    let others = roots.iter().filter(|root| {
        but.is_none_or(|but| but.id != root.id) && root.can_capture() && !root.mailbox.is_settled()
    });
    let begun: Vec<Receiver<_>> = others
        .map(|root| {
            let (waiting, saved): (Sender<Result<(), Failure>>, _) = mpsc::channel();
            let job = Job::SaveBefore {
                agent: agent.to_owned(),
                received,
                waiting,
            };
            let (nobody, _) = outlet::pair(daemon.runtime.clone(), daemon.paths.spool());
            send(root, job, nobody, Arc::clone(progress));
            saved
        })
        .collect();
    begun
        .iter()
        .map(|saved| wait(saved, received))
        .fold(Ok(()), Result::and)
}

/// Waits for an actor, as long as the agent does.
fn wait(saved: &Receiver<Result<(), Failure>>, received: Instant) -> Result<(), Failure> {
    let patience = SAVE_PATIENCE.saturating_sub(received.elapsed());
    saved.recv_timeout(patience).unwrap_or_else(|_| {
        let message = "the tree couldn't be saved in time";
        Err(convert::fail(
            FailureKind::Busy,
            message,
            "`stepback status` shows the gap",
        ))
    })
}
