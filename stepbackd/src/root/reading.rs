//! What is read from the engine for a status, all at one moment.

use std::sync::Arc;

use stepback_engine::conversation::{Agent, SessionId};
use stepback_engine::engine::{Budget, Engine, Uncovered, Usage, Whereabouts};
use stepback_engine::mounts::Astray;
use stepback_engine::node::{NotCaptured, Reason};
use stepback_engine::noise::Noisy;
use stepback_engine::path::TreePath;
use stepback_engine::restore::is_leftover;
use stepback_engine::store::Finding;
use stepback_proto::{RootStatus, Warning};

use crate::convert;
use crate::root::now;

/// A session that was opened by hand is mentioned after so long.
const SESSION_MS_LONG: i64 = 7 * 24 * 3600 * 1000;
/// A checkpoint may be so much younger than now, in milliseconds, before the clock is in doubt.
const AHEAD_MS_MAX: i64 = 60_000;

/// What is read from the engine for a status.
pub(super) struct Reading {
    pub(super) files: u64,
    pub(super) session: String,
    pub(super) sessions: Vec<String>,
    pub(super) long_sessions: Vec<String>,
    pub(super) damaged: Vec<Finding>,
    pub(super) half_forgotten: Option<Vec<TreePath>>,
    pub(super) noisy: Vec<Noisy>,
    pub(super) uncovered: Vec<Uncovered>,
    pub(super) has_processes: bool,
    pub(super) checkpoints: u64,
    pub(super) redo: u64,
    pub(super) last: Option<stepback_proto::Last>,
    /// Checkpoints that were made later than now.
    pub(super) from_later: Vec<u64>,
    pub(super) newest: Option<u64>,
    pub(super) current: Option<u64>,
    pub(super) untold: Vec<stepback_proto::CheckpointEntry>,
    pub(super) unfinished: Option<stepback_proto::Unfinished>,
    /// Of a journal that can't be read.
    pub(super) bad_journal: Option<Warning>,
    pub(super) builtin: Vec<String>,
    pub(super) rule_notes: Vec<String>,
    pub(super) astray: Vec<(TreePath, Astray)>,
    pub(super) not_captured: Arc<[NotCaptured]>,
    pub(super) whereabouts: Whereabouts,
    pub(super) agents: Vec<SessionId>,
    pub(super) conversation_notes: Vec<(Agent, String)>,
    pub(super) usage: Option<Usage>,
}

impl Reading {
    /// Reads it all; `told` is the newest checkpoint that was told of.
    pub(super) fn of(engine: &Engine, told: Option<u64>) -> Self {
        let open: Vec<_> = engine
            .sessions()
            .iter()
            .rev()
            .filter(|session| session.is_open())
            .collect();
        let checkpoints = engine.checkpoints();
        let newest = checkpoints.last().map(|c| c.n);
        let latest = now().ms() + AHEAD_MS_MAX;
        let from_later = checkpoints.iter().filter(|c| c.time.ms() > latest);
        let from_later = from_later.map(|c| c.n).collect();
        // Those of before the daemon's start are no news.
        let told = told.unwrap_or_else(|| newest.unwrap_or(0));
        let untold = checkpoints.iter().rev().take_while(|c| c.n > told);
        let mut untold: Vec<_> = untold
            .map(|c| convert::checkpoint(c, engine.pinned(c.n)))
            .collect();
        untold.reverse();
        let (unfinished, bad_journal) = match engine.unfinished() {
            Ok(unfinished) => (unfinished, None),
            Err(error) => (None, Some(convert::warning(convert::failure(&error)))),
        };
        Self {
            files: engine.files(),
            session: engine.session_now().to_owned(),
            sessions: open.iter().map(|session| session.name.clone()).collect(),
            long_sessions: open
                .iter()
                .filter(|s| s.process.is_none() && now().ms() - s.started.ms() > SESSION_MS_LONG)
                .map(|session| session.name.clone())
                .collect(),
            damaged: engine.damaged().to_vec(),
            half_forgotten: engine.interrupted_forget().ok().flatten(),
            noisy: engine.noisy(now()),
            uncovered: engine.uncovered(),
            has_processes: open.iter().any(|session| session.process.is_some()),
            checkpoints: checkpoints.len() as u64,
            redo: engine.redo_stack().len() as u64,
            last: checkpoints.last().map(convert::last),
            from_later,
            newest,
            current: engine.current(),
            untold,
            unfinished: unfinished.as_ref().map(convert::unfinished),
            bad_journal,
            builtin: engine.builtin_hits(),
            rule_notes: engine.rule_notes(),
            astray: astray(engine),
            not_captured: engine.not_captured(None).unwrap_or_default().into(),
            whereabouts: engine.whereabouts(),
            agents: engine.agent_sessions(),
            conversation_notes: engine.conversation_notes(),
            usage: engine.usage().ok(),
        }
    }

    /// Staging directories that no journal knows.
    pub(super) fn leftovers(&self) -> impl Iterator<Item = &TreePath> {
        let known = self.unfinished.is_some() || self.bad_journal.is_some();
        let all = self
            .not_captured
            .iter()
            .filter(move |entry| !known && is_leftover(entry));
        all.map(|entry| &entry.path)
    }

    /// How much is left out for want of room.
    pub(super) fn refused(&self) -> usize {
        let refused = self.not_captured.iter().filter(|it| it.reason == Reason::Quota);
        refused.count()
    }

    /// Whether the budget is used up, or something was left out for it.
    pub(super) fn is_pressed(&self, budget: &Budget) -> bool {
        self.usage.is_some_and(|usage| usage.room(budget) == 0) || self.refused() > 0
    }

    /// Takes it into a status.
    pub(super) fn fill(&self, status: &mut RootStatus) {
        status.files = self.files;
        status.session.clone_from(&self.session);
        status.sessions.clone_from(&self.sessions);
        status.checkpoints = self.checkpoints;
        status.redo = self.redo;
        status.last = self.last;
        status.unfinished.clone_from(&self.unfinished);
        status.builtin.clone_from(&self.builtin);
        if let Some(usage) = self.usage {
            status.store_bytes = usage.store;
        }
    }
}

/// Those mount points that aren't as they were and that would be captured.
fn astray(engine: &Engine) -> Vec<(TreePath, Astray)> {
    if engine.astray().is_empty() {
        return Vec::new();
    }
    let left_out = engine.not_captured(None).unwrap_or_default();
    let named = |path: &TreePath| left_out.iter().any(|entry| entry.path == *path);
    let all = engine.astray().iter().filter(|(path, _)| named(path));
    all.map(|(path, how)| (path.clone(), *how)).collect()
}
