//! What agents tell of their work: a checkpoint at the start and the end of each turn, and before a command that may destroy
//! work. No scan: what events have told until now is captured.

use std::path::PathBuf;
use std::time::Instant;

use stepback_engine::checkpoint::Trigger;
use stepback_engine::conversation::{Agent, SessionId, Until};
use stepback_engine::engine::{TurnLabel, Why};
use stepback_engine::time::Time;
use stepback_proto::{Failure, Hook, HookEvent, SAVE_PATIENCE, Tool};

use crate::convert;
use crate::named;
use crate::root::actor::Actor;
use crate::root::capture::Extent;
use crate::root::job::Heard;
use crate::root::now;

impl Actor {
    /// Takes what a hook told.
    ///
    /// # Errors
    /// When the present couldn't be saved.
    pub(super) fn hook(&mut self, heard: Heard) -> Result<(), Failure> {
        let Heard {
            hook,
            received,
            transcript_bytes,
            waits,
            waiting: _,
        } = heard;
        let Hook {
            agent,
            session,
            pid,
            event,
            transcript,
        } = hook;
        self.turns.heard(&agent, &session, pid);
        // A transcript whose path says nothing is looked for like those that aren't told of.
        let transcript = transcript.and_then(|path| named::absolute(&path, "a transcript").ok());
        let until = until(&agent, &session, transcript.as_ref().zip(transcript_bytes));
        if let (Some(engine), Some(seen)) = (&mut self.engine, convert::seen(&agent, &session, transcript)) {
            engine.note_seen(seen);
        }
        let result = match event {
            HookEvent::SessionStart => Ok(()),
            HookEvent::TurnStart { prompt, id } => {
                let started = self.turn_starts(&agent, &session, (prompt, id), until);
                self.root.turn_starts.over(&agent, &session);
                started
            }
            HookEvent::ToolStart(tool) => {
                self.turn_goes_on(&agent, &session);
                self.turns.uses(&agent, &session, &tool.name);
                if tool.destructive {
                    self.save_before_command(&agent, &session, received)
                } else {
                    if waits && tool.writes && received.elapsed() > SAVE_PATIENCE {
                        let (from, to) = since(received);
                        let reason = format!("{agent} began to work before the start of its turn was saved");
                        self.unprotected(from, to, &reason);
                    }
                    Ok(())
                }
            }
            HookEvent::ToolEnd(tool) => {
                self.turn_goes_on(&agent, &session);
                let files = self.captured_edits(&tool);
                self.turns.edited(&agent, &session, files);
                Ok(())
            }
            HookEvent::TurnEnd { prompt } => self.turn_ends(&agent, &session, prompt),
            HookEvent::SessionEnd => match self.turns.of(&agent, &session) {
                Some(_) => self.turn_ends(&agent, &session, None),
                None => Ok(()),
            },
        };
        self.publish();
        result
    }

    fn turn_starts(
        &mut self,
        agent: &str,
        session: &str,
        (prompt, id): (Option<String>, Option<String>),
        until: Option<Until>,
    ) -> Result<(), Failure> {
        if self.turns.is_told_again(agent, session, id.as_deref()) {
            return Ok(());
        }
        // It was interrupted, which no agent tells. The new turn begins though that can't be recorded.
        self.turn_goes_on(agent, session);
        let interrupted = self.turns.of(agent, session).is_some();
        let ended = if interrupted {
            self.turn_ends(agent, session, None)
        } else {
            Ok(())
        };
        let label = TurnLabel {
            agent: agent.to_owned(),
            session: session.to_owned(),
            turn: self.last_turn(agent, session).map_or(1, |(turn, _)| turn + 1),
            prompt,
            tools: Vec::new(),
        };
        self.turns.begin(label.clone(), id);
        let n = self.capture_turn(Trigger::TurnStart, Some(label), until)?;
        if let Some(n) = n {
            self.turns.started_at(n);
        }
        ended
    }

    /// A turn that was begun under an earlier daemon, and hasn't ended, is open again.
    fn turn_goes_on(&mut self, agent: &str, session: &str) {
        if self.turns.tells_starts(agent, session) {
            return;
        }
        let Some((n, false)) = self.last_turn(agent, session) else {
            return;
        };
        let start = self
            .engine
            .iter()
            .flat_map(|engine| engine.checkpoints())
            .rev()
            .find(|c| {
                c.trigger == Trigger::TurnStart
                    && c.turn == Some(n)
                    && c.agent_session.as_deref() == Some(session)
            });
        // One of ends alone has no starts.
        let Some(start) = start.map(|c| c.n) else {
            return;
        };
        let label = self.label(agent, session, n, None);
        self.turns.begin(label, None);
        self.turns.goes_on_from(start);
    }

    /// Ends the session's open turn. One that was begun under an earlier daemon is known by its checkpoints; an agent that
    /// tells of ends alone has turns of one checkpoint.
    fn turn_ends(&mut self, agent: &str, session: &str, prompt: Option<String>) -> Result<(), Failure> {
        let turn = self.turns.end(agent, session);
        let label = match (&turn, self.last_turn(agent, session)) {
            (Some(turn), _) => turn.label.clone(),
            // The end of one that has ended is told twice.
            (None, _) if self.turns.tells_starts(agent, session) => return Ok(()),
            (None, Some((n, false))) => {
                self.turns.starts_are_told(agent, session);
                self.label(agent, session, n, prompt)
            }
            (None, last) => self.label(agent, session, last.map_or(1, |(n, _)| n + 1), prompt),
        };
        let n = self.capture_turn(Trigger::TurnEnd, Some(label), None)?;
        if let (Some(turn), Some(n)) = (turn, n) {
            let captured = turn.start.map_or(0, |start| self.changed_between(start, n));
            self.turns.compare(&turn, captured);
        }
        Ok(())
    }

    fn label(&self, agent: &str, session: &str, turn: u64, prompt: Option<String>) -> TurnLabel {
        let known = self.engine.as_ref().and_then(|engine| {
            let mut of_turn = engine
                .checkpoints()
                .iter()
                .filter(|c| c.turn == Some(turn) && c.agent_session.as_deref() == Some(session));
            of_turn.next_back()
        });
        TurnLabel {
            agent: agent.to_owned(),
            session: session.to_owned(),
            turn,
            prompt: prompt.or_else(|| known.and_then(|c| c.prompt.clone())),
            tools: known.map(|c| c.tools.clone()).unwrap_or_default(),
        }
    }

    /// Saves the present before a command that may destroy work. When that fails, or comes too late for the agent to have
    /// waited for it, the status says so.
    fn save_before_command(&mut self, agent: &str, session: &str, received: Instant) -> Result<(), Failure> {
        let label = self.turns.of(agent, session).map(|turn| turn.label.clone());
        let saved = self.capture_turn(Trigger::BeforeCommand, label, None);
        self.note_if_unsaved(agent, received, saved.is_ok());
        saved.map(drop)
    }

    /// Likewise for a command of an agent that works in another root: what is pending here.
    pub(super) fn save_before_foreign_command(
        &mut self,
        agent: &str,
        received: Instant,
    ) -> Result<(), Failure> {
        let why = Why {
            turn: self.turns.label(),
            ..Why::plain(Trigger::BeforeCommand)
        };
        let saved = self.capture_as(&why, Extent::Pending);
        self.note_if_unsaved(agent, received, saved.is_ok());
        self.publish();
        saved.map(drop)
    }

    fn note_if_unsaved(&mut self, agent: &str, received: Instant, saved: bool) {
        if !saved || received.elapsed() > SAVE_PATIENCE {
            let (from, to) = since(received);
            self.note_unsaved(from, to, agent);
        }
    }

    /// An agent ran a command that may destroy work, and nothing was saved before. Agent and daemon may both tell of it.
    pub(super) fn note_unsaved(&mut self, from: Time, to: Time, agent: &str) {
        self.unprotected(
            from,
            to,
            &format!("{agent} ran a command that may destroy work before the tree was saved"),
        );
    }

    fn unprotected(&mut self, from: Time, to: Time, reason: &str) {
        tracing::warn!(root = %self.root.id, "{reason}");
        self.gaps.add_or_extend(from, to, reason);
    }

    /// Turns of those whose process is gone have ended.
    pub(super) fn end_turns_of_the_gone(&mut self) {
        for (agent, session) in self.turns.of_the_gone() {
            // A failure is in the status, and what is pending is captured when it can be.
            let _ = self.turn_ends(&agent, &session, None);
        }
    }

    /// A checkpoint of all that has happened until now; its number, or `None` when the root is being let go.
    fn capture_turn(
        &mut self,
        trigger: Trigger,
        turn: Option<TurnLabel>,
        until: Option<Until>,
    ) -> Result<Option<u64>, Failure> {
        let by_events = self.indexed && self.poll.is_none() && self.wait_for_events();
        let extent = if by_events {
            Extent::PendingIfAny
        } else {
            Extent::Everything("scanning")
        };
        let why = Why {
            turn,
            until,
            ..Why::plain(trigger)
        };
        Ok(self.capture_as(&why, extent)?.map(|captured| captured.id))
    }

    /// The newest turn of an agent's session, and whether it has ended.
    fn last_turn(&self, agent: &str, session: &str) -> Option<(u64, bool)> {
        let engine = self.engine.as_ref()?;
        let mut of_session = engine
            .checkpoints()
            .iter()
            .filter(|c| c.agent.as_deref() == Some(agent) && c.agent_session.as_deref() == Some(session));
        let turn = of_session.clone().filter_map(|c| c.turn).max()?;
        let ended = of_session.any(|c| c.turn == Some(turn) && c.trigger == Trigger::TurnEnd);
        Some((turn, ended))
    }

    /// Files that the checkpoints after `start` up to `end` changed.
    fn changed_between(&self, start: u64, end: u64) -> u64 {
        let engine = self.engine.iter();
        engine
            .flat_map(|engine| engine.checkpoints())
            .filter(|c| c.n > start && c.n <= end)
            .map(|c| c.counts.added + c.counts.modified + c.counts.deleted)
            .sum()
    }

    /// How many files that a tool edited are captured here.
    fn captured_edits(&self, tool: &Tool) -> u64 {
        let Some(engine) = &self.engine else {
            return 0;
        };
        let edits = tool
            .edits
            .iter()
            .filter_map(|path| named::within(&self.root, path).ok())
            .filter(|path| engine.captures(path));
        edits.count() as u64
    }
}

/// What was said until now, by the transcript and its length then.
fn until(agent: &str, session: &str, transcript: Option<(&PathBuf, u64)>) -> Option<Until> {
    let (path, bytes) = transcript?;
    Some(Until {
        session: SessionId {
            agent: Agent::of_name(agent)?,
            session: session.to_owned(),
        },
        path: path.clone(),
        bytes,
    })
}

/// The time from a moment to now, never nothing.
fn since(moment: Instant) -> (Time, Time) {
    let to = now();
    let length = i64::try_from(moment.elapsed().as_nanos()).unwrap_or(i64::MAX);
    (Time(to.0.saturating_sub(length.max(1))), to)
}
