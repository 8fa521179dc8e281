//! Whose conversations go back with a tree, and how far: along `base`, as the trees themselves do.

use std::collections::BTreeSet;

use super::Engine;
use super::talk::Talk;
use crate::checkpoint::{Checkpoint, Trigger};
use crate::conversation::plan::{Act, Step};
use crate::conversation::reason::{Cure, Reason};
use crate::conversation::record::{self, Kept};
use crate::conversation::{Mode, SessionId, What};
use crate::error::{Error, Result};
use crate::oid::Oid;
use crate::store::Store;
use crate::time::Time;

/// How far back conversations are looked for.
const NEAREST_MAX: usize = 50;
/// So many sessions are named that say what came after a target.
const AHEAD_MAX: usize = 16;

impl Engine {
    /// For a rewind to checkpoint `n`. Where it has no conversation of its own, as after an edit by hand, those of the
    /// checkpoint that it stands on are as they were then. `files`: some change, so that other sessions may be out of step.
    pub(super) fn plan_talk_at(
        &mut self,
        store: &Store,
        n: u64,
        mode: Mode,
        files: bool,
        now: Time,
    ) -> Option<Talk> {
        if !self.settings.conversations {
            return None;
        }
        let source = self.talk_source(n);
        let mut talk = source.and_then(|source| self.plan_talk_of(store, source, mode, now));
        if let Some(talk) = &mut talk {
            talk.steps.retain(|step| !self.begins_at(n, &step.id));
        }
        if files && mode.what == What::Both {
            let planned: Vec<SessionId> = talk.iter().flat_map(|t| &t.steps).map(|s| s.id.clone()).collect();
            let ahead = self.ahead(store, n, &planned, now).unwrap_or_default();
            if !ahead.is_empty() {
                let empty = || Talk {
                    steps: Vec::new(),
                    target: Vec::new(),
                    target_tree: Oid::EMPTY_TREE,
                    n,
                    exact: false,
                    seed: String::new(),
                };
                talk.get_or_insert_with(empty).steps.extend(ahead);
            }
        }
        talk.filter(|talk| !talk.steps.is_empty())
    }

    /// The checkpoint whose record says how the conversations were at checkpoint `n`: itself, else the nearest along `base`
    /// that has any, if it is sure that nothing was said in between.
    fn talk_source(&self, n: u64) -> Option<u64> {
        let mut at = Some(n);
        for _ in 0..NEAREST_MAX {
            let checkpoint = self.checkpoint(at?).ok()?;
            if checkpoint.conversation.is_empty() {
                at = checkpoint.base;
                continue;
            }
            let source = checkpoint.n;
            // One that is gone may have been of the same sessions, and one beside the way is.
            let silent = |c: &Checkpoint| {
                let mut of_it = c.conversation.iter();
                !of_it.any(|id| checkpoint.conversation.contains(id))
            };
            let sure = (source + 1..n).all(|k| self.checkpoint(k).is_ok_and(silent));
            return sure.then_some(source);
        }
        None
    }

    /// Whether a session's first turn starts with checkpoint `n`, before a word of it was written. A burst may have seen its
    /// first words all the same.
    fn begins_at(&self, n: u64, id: &SessionId) -> bool {
        self.checkpoint(n).is_ok_and(|c| {
            c.trigger == Trigger::TurnStart
                && c.agent.as_deref() == Some(id.agent.name())
                && c.agent_session.as_ref() == Some(&id.session)
                && !c.conversation.contains(id)
        })
    }

    /// Sessions that went on between checkpoint `n` and the present, and aren't among `planned`: they remember what the
    /// files no longer have.
    fn ahead(&mut self, store: &Store, n: u64, planned: &[SessionId], now: Time) -> Result<Vec<Step>> {
        let mut sessions = self.sessions_since(n);
        sessions.retain(|id| !planned.contains(id));
        let sessions: Vec<SessionId> = sessions.into_iter().take(AHEAD_MAX).collect();
        if sessions.is_empty() {
            return Ok(Vec::new());
        }
        let (present, _) = self.look_at_talk(store, (&sessions, true, false), now, None)?;
        let mut ahead = Vec::new();
        for id in sessions {
            let Some(present) = record::find(&present, &id) else {
                continue;
            };
            let last = if self.begins_at(n, &id) {
                None
            } else {
                self.last_record(store, n, &id)?
            };
            let (why, cure) = match last {
                Some((_, then, _)) if self.talk_cx(store, false).is_so(&then, present)? => continue,
                Some((m, _, alone)) => {
                    let put = format!("`stepback rewind {m} --conversation-only` puts it back, too");
                    (
                        format!("it goes on after checkpoint {n}"),
                        if alone { Cure::Text(put) } else { tell() },
                    )
                }
                None => (format!("it began after checkpoint {n}"), tell()),
            };
            ahead.push(Step::without(id, Act::Ahead(Reason::new(why, cure))));
        }
        Ok(ahead)
    }

    /// The sessions of the checkpoints that lead from `n` to the position; of a position beside it, from where the two part.
    fn sessions_since(&self, n: u64) -> BTreeSet<SessionId> {
        let mut before = BTreeSet::new();
        let mut at = Some(n);
        while let Some(k) = at.filter(|k| before.insert(*k)) {
            at = self.checkpoint(k).ok().and_then(|c| c.base);
        }
        let mut found = BTreeSet::new();
        let mut at = self.record.position;
        while let Some(k) = at.filter(|k| before.insert(*k)) {
            let Ok(checkpoint) = self.checkpoint(k) else { break };
            found.extend(checkpoint.conversation.iter().cloned());
            at = checkpoint.base;
        }
        found
    }

    /// What was recorded of a session at checkpoint `n` or last before it, and whether it was the only one there.
    fn last_record(&self, store: &Store, n: u64, id: &SessionId) -> Result<Option<(u64, Kept, bool)>> {
        let mut at = Some(n);
        for _ in 0..NEAREST_MAX {
            let Some(checkpoint) = at.and_then(|k| self.checkpoint(k).ok()) else {
                break;
            };
            if checkpoint.conversation.contains(id) {
                let Some(tree) = self.talk_of(checkpoint.n)? else {
                    return Ok(None);
                };
                let alone = checkpoint.conversation.len() == 1;
                let all = record::load(store, tree)?;
                return Ok(record::find(&all, id).map(|kept| (checkpoint.n, kept.clone(), alone)));
            }
            at = checkpoint.base;
        }
        Ok(None)
    }

    /// The nearest checkpoint along `base` whose conversations aren't as they are there; the position when there is none.
    /// After a rewind of conversations alone the position has them as they were before it: what is there isn't that and
    /// more, so it is passed over, and twice goes two back.
    pub(super) fn nearest_talk(&mut self, store: &Store, mode: Mode, now: Time) -> Result<u64> {
        let position = self.record.position;
        let position = position.ok_or_else(|| Error::NoSuchCheckpoint("yet".into()))?;
        // One of rows, of which nobody can say whether they only grew: the sessions.
        let mut nearest: Option<(u64, Vec<SessionId>)> = None;
        let mut differs = None;
        let mut at = Some(position);
        for _ in 0..NEAREST_MAX {
            let Some(n) = at else { break };
            at = self.checkpoint(n).ok().and_then(|c| c.base);
            let Some(talk) = self.plan_talk_of(store, n, mode, now) else {
                continue;
            };
            let is_there = |id: &SessionId| talk.steps.iter().any(|s| s.id == *id && s.act == Act::Nothing);
            // What is there is an earlier state than the one that seemed to be the nearest.
            nearest = nearest.filter(|(_, sessions)| !sessions.iter().any(is_there));
            if talk.is_noop() {
                continue;
            }
            differs = differs.or(Some(n));
            if nearest.is_some() {
                continue;
            }
            let mut changes = talk
                .steps
                .iter()
                .filter(|s| matches!(s.act, Act::Put | Act::Fork));
            if changes
                .clone()
                .any(|step| step.act == Act::Fork || step.grew == Some(true))
            {
                return Ok(n);
            }
            if changes.any(|step| step.grew.is_none()) {
                nearest = Some((n, talk.put()));
            }
        }
        Ok(nearest.map(|(n, _)| n).or(differs).unwrap_or(position))
    }
}

fn tell() -> Cure {
    Cure::Text("tell that agent what was taken back, or start a new session".into())
}
