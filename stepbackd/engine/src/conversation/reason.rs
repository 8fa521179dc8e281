//! Why nothing is done with a session, and what people can do about it.

use super::{Agent, fork};

/// Why nothing is done with a session, and what helps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reason {
    pub why: String,
    pub cure: Cure,
}

/// What helps where a conversation was left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cure {
    /// Nothing that is known.
    Nothing,
    /// This, and then to put it back again; or a fork.
    First(&'static str),
    /// Only a fork.
    Fork,
    /// This.
    Text(String),
}

/// What helps when an agent runs.
pub(crate) const QUIT: Cure = Cure::First("quit the agent");
/// ... and when a service of it does.
pub(crate) const STOP: Cure = Cure::First("quit the agent and run `codex app-server daemon stop`");

impl Reason {
    pub fn new(why: impl Into<String>, cure: Cure) -> Self {
        Self {
            why: why.into(),
            cure,
        }
    }

    /// What people are told to do, for the conversation of this agent as of checkpoint `n`.
    pub fn hint(&self, agent: Agent, n: u64) -> Option<String> {
        let fork = match agent.adapter().fork_of() {
            fork::Way::None(_) => None,
            _ => Some("the conversation of then gets a new id, and the agent may go on running"),
        };
        match (&self.cure, fork) {
            (Cure::Nothing, _) | (Cure::Fork, None) => None,
            (Cure::Text(text), _) => Some(text.clone()),
            (Cure::First(first), None) => Some(format!(
                "{first}, then run `stepback rewind {n} --conversation-only`"
            )),
            (Cure::First(first), Some(fork)) => Some(format!(
                "{first}, then run `stepback rewind {n} --conversation-only`; with --fork {fork}"
            )),
            (Cure::Fork, Some(_)) => Some(format!(
                "with `stepback rewind {n} --conversation-only --fork` the conversation of then gets a new id"
            )),
        }
    }
}
