//! Conversations: kept with each checkpoint, put back by rewinds. What goes wrong with one never hinders the files.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Engine;
use crate::conversation::plan::{Act, Cx, Step};
use crate::conversation::reason::{Cure, QUIT, Reason};
use crate::conversation::record::{self, Kept};
use crate::conversation::{Mode, Outcome, SessionId, plan};
use crate::error::Result;
use crate::oid::Oid;
use crate::store::Store;
use crate::time::Time;

/// The conversations of an operation, planned.
pub(super) struct Talk {
    pub steps: Vec<Step>,
    /// The recorded sessions that are put back, and where they stand in the store.
    pub target: Vec<Kept>,
    pub target_tree: Oid,
    /// The checkpoint that they are of: a rewind to it puts them back another time.
    pub n: u64,
    /// Taken back by `redo`: every byte.
    pub exact: bool,
    /// A new id is made of it.
    pub seed: String,
}

/// What the journal keeps of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TalkEnding {
    /// The record of the state before.
    pub from: Oid,
    /// That of the state which is put back.
    pub to: Oid,
    pub exact: bool,
    /// Those that are put back.
    pub sessions: Vec<SessionId>,
}

impl Talk {
    pub fn is_noop(&self) -> bool {
        !self
            .steps
            .iter()
            .any(|step| matches!(step.act, Act::Put | Act::Fork))
    }

    /// The sessions whose files will change.
    pub fn put(&self) -> Vec<SessionId> {
        let put = self.steps.iter().filter(|step| step.act == Act::Put);
        put.map(|step| step.id.clone()).collect()
    }
}

impl Engine {
    pub(super) fn talk_cx<'a>(&'a self, store: &'a Store, exact: bool) -> Cx<'a> {
        Cx {
            store,
            homes: &self.env.conversations,
            root: &self.path,
            exact,
        }
    }

    /// Plans what becomes of the conversations that the record of checkpoint `n` has, or should have: `listed`. `None`:
    /// there are none.
    pub(super) fn plan_talk(
        &mut self,
        store: &Store,
        (n, tree): (u64, Option<Oid>),
        listed: &[SessionId],
        exact: bool,
        fork: bool,
        now: Time,
    ) -> Option<Talk> {
        if !self.settings.conversations || (tree.is_none() && listed.is_empty()) {
            return None;
        }
        let planned = tree.map(|tree| self.try_to_plan(store, (n, tree), exact, fork, now));
        let why = match planned {
            Some(Ok(talk)) => return Some(talk),
            Some(Err(e)) => e.to_string(),
            None => "its record is missing".into(),
        };
        // Files can be put back all the same.
        let left = |id: &SessionId| {
            let reason = Reason::new(why.as_str(), Cure::Nothing);
            Step::without(id.clone(), Act::Left(reason))
        };
        Some(Talk {
            steps: listed.iter().map(left).collect(),
            target: Vec::new(),
            target_tree: Oid::EMPTY_TREE,
            n,
            exact,
            seed: String::new(),
        })
    }

    fn try_to_plan(
        &mut self,
        store: &Store,
        (n, tree): (u64, Oid),
        exact: bool,
        fork: bool,
        now: Time,
    ) -> Result<Talk> {
        let target = record::load(store, tree)?;
        let wanted: Vec<SessionId> = target.iter().map(|kept| kept.id.clone()).collect();
        let (present, _) = self.look_at_talk(store, (&wanted, true, true), now, None)?;
        let steps = self.talk_cx(store, exact).plan(&target, &present, fork)?;
        Ok(Talk {
            steps,
            target,
            target_tree: tree,
            n,
            exact,
            seed: format!("{} {} {tree}", self.id(), now.0),
        })
    }

    /// As [`Self::plan_talk`], for a checkpoint.
    pub(super) fn plan_talk_of(&mut self, store: &Store, n: u64, mode: Mode, now: Time) -> Option<Talk> {
        let listed = self
            .checkpoint(n)
            .map(|c| c.conversation.clone())
            .unwrap_or_default();
        if listed.is_empty() {
            return None;
        }
        // What its record lacks still is there, as a rule. Whatever comes of it, the plan tells.
        let _ = self.complete_talk_of(store, n, u64::MAX);
        let tree = self.talk_of(n).ok().flatten();
        self.plan_talk(store, (n, tree), &listed, false, mode.fork, now)
    }

    /// What would become of them.
    pub(super) fn foretell(&self, talk: Option<&Talk>) -> Vec<Outcome> {
        let Some(talk) = talk else { return Vec::new() };
        talk.steps.iter().map(|step| self.outcome(talk, step)).collect()
    }

    fn outcome(&self, talk: &Talk, step: &Step) -> Outcome {
        let kept = record::find(&talk.target, &step.id);
        let resume = kept.map(|kept| plan::resume(kept, &step.id.session, &self.path));
        let (action, reason) = match &step.act {
            Act::Nothing => ("none", None),
            Act::Put => ("rewind", None),
            Act::Fork => ("fork", None),
            Act::Left(reason) => ("left", Some(reason)),
            Act::Ahead(reason) => ("ahead", Some(reason)),
        };
        Outcome {
            agent: step.id.agent,
            session: step.id.session.clone(),
            action,
            why: reason.map(|reason| reason.why.clone()),
            hint: reason.and_then(|reason| reason.hint(step.id.agent, talk.n)),
            resume: resume.filter(|_| action != "fork"),
            fork: None,
        }
    }

    /// Does what was planned, and says what became of each. The present sessions are in the record `from`: what isn't
    /// in it, and is there, isn't touched.
    pub(super) fn carry_out_talk(&mut self, store: &Store, talk: &Talk, from: Option<Oid>) -> Vec<Outcome> {
        // Without a record nothing of them was there.
        let present = from.map_or(Ok(Vec::new()), |tree| record::load(store, tree));
        let cx = self.talk_cx(store, talk.exact);
        let mut outcomes = Vec::new();
        for step in &talk.steps {
            let mut outcome = self.outcome(talk, step);
            let Some(kept) = record::find(&talk.target, &step.id) else {
                outcomes.push(outcome);
                continue;
            };
            let left = match step.act {
                Act::Put => match &present {
                    Ok(present) => {
                        let put = cx.put(kept, record::find(present, &step.id));
                        put.unwrap_or_else(|e| Some(e.to_string()))
                    }
                    Err(e) => Some(e.to_string()),
                },
                Act::Fork => match cx.fork(kept, &talk.seed) {
                    Ok(Ok(new)) => {
                        outcome.resume = Some(plan::resume(kept, &new, &self.path));
                        outcome.fork = Some(new);
                        None
                    }
                    Ok(Err(why)) => Some(why),
                    Err(e) => Some(e.to_string()),
                },
                _ => None,
            };
            if let Some(why) = left {
                outcome.hint = Reason::new(why.as_str(), QUIT).hint(step.id.agent, talk.n);
                (outcome.action, outcome.why) = ("left", Some(why));
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    /// Takes what is there for known, so that what we wrote ourselves doesn't count as an agent's doing. `target`: the
    /// records that it was made of.
    pub(super) fn notice_own_talk(
        &mut self,
        store: &Store,
        sessions: &[SessionId],
        target: &[Kept],
        now: Time,
    ) {
        if sessions.is_empty() {
            return;
        }
        if let Ok((mut kept, _)) = self.look_at_talk(store, (sessions, true, true), now, None) {
            for kept in &mut kept {
                let recorded = record::find(target, &kept.id);
                for part in &mut kept.parts {
                    // Only pieces that a record has are sure to stay.
                    let pieces = recorded.and_then(|r| r.parts.iter().find(|p| p.is_at(part)));
                    part.chunks = pieces.map(|p| p.chunks.clone()).unwrap_or_default();
                }
            }
            self.book.remember(&kept);
        }
    }

    /// Finishes the conversations of an interrupted operation, or takes them back. A session that isn't somewhere between
    /// the two recorded states is left.
    pub(super) fn recover_talk(
        &mut self,
        store: &Store,
        ending: &TalkEnding,
        undo: bool,
        now: Time,
    ) -> Result<Vec<String>> {
        let from = record::load(store, ending.from)?;
        let to = record::load(store, ending.to)?;
        let (present, _) = self.look_at_talk(store, (&ending.sessions, true, true), now, None)?;
        let target = if undo { &from } else { &to };
        let cx = self.talk_cx(store, undo || ending.exact);
        let mut notes = Vec::new();
        for id in &ending.sessions {
            let Some(kept) = record::find(target, id) else {
                continue;
            };
            let now = record::find(&present, id);
            let left = match now {
                _ if let Some(busy) = cx.is_busy(id) => Some(busy),
                Some(now) if !cx.is_between(now, record::find(&from, id), record::find(&to, id))? => {
                    Some("it went on since".to_owned())
                }
                now => cx.put(kept, now)?,
            };
            if let Some(why) = left {
                notes.push(format!(
                    "the conversation of {} ({}) was left as it is: {why}",
                    id.agent.name(),
                    id.session
                ));
            }
        }
        let target = target.clone();
        self.notice_own_talk(store, &ending.sessions, &target, now);
        Ok(notes)
    }

    /// The tree of a checkpoint's record of conversations.
    pub(super) fn talk_of(&self, n: u64) -> Result<Option<Oid>> {
        record::tree_of(&Arc::clone(&self.store), self.id(), n)
    }
}
