//! Conversations: what coding agents wrote of their sessions in a root, kept with its checkpoints and put back with them.
//!
//! Best effort by nature: the formats are the agents' own. An unknown one means files only, said in a note; nothing here
//! fails a capture, and nothing is changed that isn't in a checkpoint before.
//!
//! | file | what |
//! |---|---|
//! | `claude` ... `aider` | one agent each: where its sessions are, what belongs to one, how it is resumed and forked |
//! | `book` | what is known of the sessions of a root; a look at them makes a record |
//! | `look` | a look at one agent's directory |
//! | `read` | transcripts into the store |
//! | `record` | the record of a checkpoint: `refs/stepback/<root id>/talk/<n>` |
//! | `chunks` | transcripts in pieces that are shared as long as they only grow |
//! | `complete` | adds to a record what was too much for its moment |
//! | `plan` | what a rewind does to each session, and what hinders it |
//! | `reason` | why a session is left, and what helps |
//! | `put` | brings files and rows to a recorded state, in place |
//! | `fork` | writes a recorded state under a new id |
//! | `sqlite` | the rows of one session in a store of many |
//! | `jsonl` | lines of JSON |
//! | `live` | which agents run in the root |
//! | `told` | the processes that hooks told of |
//! | `homes` | the directories that agents keep their sessions in |
//!
//! An agent that runs keeps its conversation in memory and appends to its file. So its files are left alone; a new
//! process that resumes reads what was put back.

mod aider;
pub(crate) mod book;
mod chunks;
mod claude;
mod codex;
pub(crate) mod complete;
mod copilot;
mod fork;
mod gemini;
mod goose;
mod homes;
mod jsonl;
mod live;
mod look;
mod opencode;
pub(crate) mod plan;
mod put;
mod qwen;
mod read;
pub(crate) mod reason;
pub(crate) mod record;
mod sqlite;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::path::TreePath;

pub(crate) use aider::FILES as AIDER_FILES;
pub use homes::Homes;
pub use plan::{Mode, Outcome, What};
pub use record::refs_prefix;
pub use told::Told;

/// A coding agent whose conversations are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agent {
    /// Claude Code.
    ClaudeCode,
    /// Codex CLI.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// Qwen Code.
    Qwen,
    /// GitHub Copilot CLI.
    Copilot,
    /// opencode.
    Opencode,
    /// goose.
    Goose,
    /// aider.
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

    /// As commands and JSON name it.
    #[must_use]
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
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|agent| agent.name() == name)
    }

    /// The agent that a command line starts: by its program, or by the script or the package that an interpreter or a
    /// runner of packages is given.
    #[must_use]
    pub fn of_command(command: &str) -> Option<Self> {
        let words: Vec<&str> = command
            .split_whitespace()
            .map(|word| word.trim_matches('\''))
            // A package with its version.
            .map(|word| match word.rfind('@') {
                Some(at) if at > 0 => &word[..at],
                _ => word,
            })
            .collect();
        let program = Path::new(words.first()?);
        live::agent_of(program, words.join("\0").as_bytes())
    }

    /// The command that resumes a session, with its id.
    #[must_use]
    pub fn resume(self, session: &str) -> String {
        self.adapter().resume(session)
    }

    pub(crate) fn adapter(self) -> &'static dyn Adapter {
        match self {
            Self::ClaudeCode => &claude::Claude,
            Self::Codex => &codex::Codex,
            Self::Gemini => &gemini::Gemini,
            Self::Qwen => &qwen::Qwen,
            Self::Copilot => &copilot::Copilot,
            Self::Opencode => &opencode::Opencode,
            Self::Goose => &goose::Goose,
            Self::Aider => &aider::Aider,
        }
    }
}

/// A session of an agent.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId {
    /// Whose.
    pub agent: Agent,
    /// The agent's own id of it.
    pub session: String,
}

/// As one word: `claude-code:ID`.
impl std::fmt::Display for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.agent.name(), self.session)
    }
}

/// A session that a hook told of. Sessions are found without it, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Whose.
    pub agent: Agent,
    /// The agent's own id of it.
    pub session: String,
    /// Its transcript, absolute, if the hook named it.
    pub path: Option<PathBuf>,
}

/// How long a session's transcript was when a hook told something: what came later isn't part of that moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Until {
    /// Whose.
    pub session: SessionId,
    /// Its transcript, absolute.
    pub path: PathBuf,
    /// In bytes; 0: it wasn't there yet.
    pub bytes: u64,
}

/// A session as an adapter finds it on disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    pub session: String,
    /// Where it runs.
    pub cwd: PathBuf,
    /// All files that belong to it, relative to the agent's directory; the transcript first.
    pub files: Vec<TreePath>,
    /// Rows that belong to it.
    pub tables: Vec<Table>,
    /// Changes whenever its rows do, and when that was last, nanoseconds since 1970.
    pub rows_stamp: Option<(String, i64)>,
}

/// Rows of one table that belong to a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Table {
    /// The database, relative to the agent's directory.
    pub db: TreePath,
    pub name: String,
    /// The column that says which session a row belongs to.
    pub column: String,
    /// Its values that do.
    pub ids: Vec<String>,
    /// Made from the transcript by the agent itself: dropped by a rewind, not put back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub derived: bool,
}

/// What differs from agent to agent.
pub(crate) trait Adapter: Sync {
    /// The sessions of the root that `look` is about.
    fn find(&self, look: &mut look::Look<'_>) -> io::Result<Vec<Found>>;

    /// Of a session of which a hook told that this is its transcript, wherever it runs: all that belongs to it. Where it
    /// runs is filled in by [`Self::began`].
    fn told(&self, _look: &mut look::Look<'_>, session: &str, transcript: TreePath) -> io::Result<Found> {
        Ok(Found {
            session: session.to_owned(),
            files: vec![transcript],
            ..Found::default()
        })
    }

    /// Where a session began, by a record of its transcript; `None`: that record doesn't say it.
    fn began(&self, record: &serde_json::Value) -> Option<PathBuf>;

    /// The agent's directory, if a transcript at this path would be in its usual place there.
    fn home_of(&self, _transcript: &Path) -> Option<PathBuf> {
        None
    }

    /// The variable by which the agent is told of its directory, where that is all it needs to find a session there.
    fn home_variable(&self) -> Option<&'static str> {
        None
    }

    /// The command that resumes a session.
    fn resume(&self, session: &str) -> String;

    /// Names by which its processes are known: of the program, of the script, of the package's directory.
    fn programs(&self) -> &'static [&'static str];

    /// Why a session's transcript can't be brought back to this length, if it can't.
    fn hindrance(&self, _dir: &Path, _session: &str, _lengths: &BTreeMap<TreePath, u64>) -> Option<String> {
        None
    }

    /// Whether records name the record before them, so that a chain may be broken.
    fn is_chained(&self) -> bool {
        false
    }

    /// Whether a forked session is a set of rows rather than of files.
    fn fork_of(&self) -> fork::Way {
        fork::Way::Files
    }
}

/// Whether `dir` is the root or below it.
fn is_within(dir: &Path, root: &Path) -> bool {
    dir.starts_with(root)
}

/// Agents of which a process works in the root; `None`: nobody can say.
#[must_use]
pub fn running(homes: &Homes, root: &Path) -> Option<BTreeSet<Agent>> {
    let found = live::agents(homes.processes.as_deref()?, root)?;
    Some(found.into_keys().collect())
}
