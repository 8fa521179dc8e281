//! Conversations of coding agents.

use serde::{Deserialize, Serialize};

/// What a rewind puts back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RewindWhat {
    /// Files and conversations.
    Both,
    /// Files alone.
    Files,
    /// Conversations alone.
    Conversation,
}

/// What becomes, or became, of a conversation: of an operation, sent before its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationLine {
    /// Whose: `claude-code`, `codex`, ...
    pub agent: String,
    /// The agent's own id of it.
    pub session: String,
    /// `rewind`, `fork`, `none` (it is so already) or `left`.
    pub action: String,
    /// Why it was left.
    pub why: Option<String>,
    /// The command that goes on from there.
    pub resume: Option<String>,
    /// The id of the fork.
    pub fork: Option<String>,
}
