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
    /// `rewind`, `fork`, `none` (it is so already), `left`, or `ahead` (it isn't put back, and says what came later).
    pub action: String,
    /// Why it was left, or how it is ahead.
    pub why: Option<String>,
    /// The command that goes on from there.
    pub resume: Option<String>,
    /// The id of the fork.
    pub fork: Option<String>,
    /// What to do about one that was left or is ahead.
    pub hint: Option<String>,
}
