//! What an agent's hook tells of its work.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::path::WirePath;

/// One event of an agent that works in a root. The request's place is the agent's current directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// Which agent, as commands name it: `claude-code`, `codex` and so on.
    pub agent: String,
    /// The agent's own id of the session.
    pub session: String,
    /// Where the agent keeps the conversation, if it says so.
    pub transcript: Option<WirePath>,
    /// The agent's process: when it is gone its turn has ended.
    pub pid: Option<u32>,
    /// What happened.
    pub event: HookEvent,
}

/// How long an agent waits for the checkpoint before a command that may destroy work; the command runs then, saved or not.
pub const SAVE_PATIENCE: Duration = Duration::from_secs(10);

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HookEvent {
    /// The agent was started or went on with a session.
    SessionStart,
    /// A prompt was submitted.
    TurnStart {
        /// Its first line.
        prompt: Option<String>,
        /// The agent's own id of the turn: the same one again is the same turn.
        id: Option<String>,
    },
    /// A tool is about to run.
    ToolStart(Tool),
    /// A tool has run.
    ToolEnd(Tool),
    /// The turn ended: well, with an error, or by an interruption.
    TurnEnd {
        /// First line of the prompt, where only the end of a turn is told.
        prompt: Option<String>,
    },
    /// The agent left the session.
    SessionEnd,
}

/// A tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Its name, as the agent has it.
    pub name: String,
    /// The files that it edits, absolute, when it is an edit tool and says so.
    pub edits: Vec<WirePath>,
    /// A shell command that may destroy work (it isn't known to leave files alone): the present is saved before it runs, and
    /// the answer comes then.
    pub destructive: bool,
    /// An edit tool or a shell command: the answer to the first of a turn comes when the checkpoint at its start is made.
    pub writes: bool,
}

/// An agent that is or was at work in a root, as `status` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentLine {
    /// Which agent.
    pub agent: String,
    /// Its own id of the session.
    pub session: String,
    /// Its process works in this root.
    pub live: bool,
}

/// Edits that hooks told of and that no checkpoint has, or the other way round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drift {
    /// Edit calls that hooks told of, in turns where the two disagree.
    pub tool_calls: u64,
    /// Files that checkpoints of the same turns changed.
    pub captured: u64,
}

/// When a hook of an agent was heard of last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookSeen {
    /// Which agent.
    pub agent: String,
    /// When, in milliseconds since 1970 UTC.
    pub time_ms: i64,
}
