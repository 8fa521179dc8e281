//! What is known of the agents' hooks: what they call, what they send, and which settings make them do it. One file for
//! each agent. A payload that isn't understood is no event: nothing here may ever hurt an agent.

pub mod caller;
pub mod change;
mod claude_code;
mod codex;
mod command;
mod copilot;
mod gemini;
mod goose;
mod harmless;
pub mod installed;
mod json_hooks;
mod opencode;
mod payload;
mod qwen;
pub mod settings;
mod take_back;
mod toml_notify;

use std::path::PathBuf;

use serde_json::Value;
use stepback_proto::{Hook, HookEvent};

/// An agent that has a name in commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Agent {
    ClaudeCode,
    Codex,
    Gemini,
    Qwen,
    Copilot,
    Opencode,
    Goose,
    Aider,
}

impl Agent {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::ClaudeCode,
        Self::Codex,
        Self::Gemini,
        Self::Qwen,
        Self::Copilot,
        Self::Opencode,
        Self::Goose,
        Self::Aider,
    ];

    /// Its name in commands, on the wire and in checkpoints.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Qwen => "qwen",
            Self::Copilot => "copilot",
            Self::Opencode => "opencode",
            Self::Goose => "goose",
            Self::Aider => "aider",
        }
    }

    /// The agent of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|agent| agent.name() == name)
    }
}

/// What a hook was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Where the agent works, if it says so.
    pub cwd: Option<PathBuf>,
    /// A tool that may write is about to run: the answer comes when it may.
    pub may_write: bool,
    /// What the daemon is to hear.
    pub hook: Hook,
}

/// Reads what `agent` sent: `event` is the word that our settings put on the command line, where the payload itself
/// doesn't tell. `None`: nothing that matters here.
pub fn understand(agent: Agent, event: Option<&str>, payload: &Value) -> Option<Told> {
    let told = match agent {
        Agent::ClaudeCode => claude_code::understand(payload),
        Agent::Codex => codex::understand(payload),
        Agent::Gemini => gemini::understand(payload),
        Agent::Qwen => qwen::understand(payload),
        Agent::Copilot => copilot::understand(event?, payload),
        Agent::Opencode => opencode::understand(payload),
        Agent::Goose => goose::understand(payload),
        Agent::Aider => None,
    }?;
    Some(Told {
        cwd: told.cwd,
        may_write: matches!(&told.event, HookEvent::ToolStart(tool) if tool.writes),
        hook: Hook {
            agent: agent.name().into(),
            session: told.session?,
            transcript: told.transcript,
            pid: None,
            event: told.event,
        },
    })
}

/// What one agent's file makes of a payload.
struct Heard {
    session: Option<String>,
    transcript: Option<stepback_proto::WirePath>,
    cwd: Option<PathBuf>,
    event: HookEvent,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again() {
        for agent in Agent::ALL {
            assert_eq!(Agent::named(agent.name()), Some(agent));
        }
        assert_eq!(Agent::named("claude"), None);
    }

    #[test]
    fn whatever_is_sent_is_no_panic() {
        for text in [
            "null",
            "[]",
            "{}",
            "7",
            "\"x\"",
            "{\"hook_event_name\":7,\"session_id\":[]}",
        ] {
            let payload = serde_json::from_str(text).unwrap();
            for agent in Agent::ALL {
                assert_eq!(understand(agent, Some("x"), &payload), None, "{agent:?} {text}");
            }
        }
    }
}
