//! A checkpoint, and how it is written into and read from its commit.
//!
//! `refs/checkpoints/<root id>/<session>/<n>` points to a parentless commit. Its tree is the captured tree; its message
//! is the label or a summary, an empty line, and one JSON object: the fields of [`Record`].

use serde::{Deserialize, Serialize};

use crate::conversation::SessionId;
use crate::error::{Error, Result};
use crate::node::{CommonModes, Snapshot};
use crate::oid::Oid;
use crate::record::{self, Head};
use crate::store::Store;
use crate::time::Time;

/// Why a checkpoint was made. The names stand in commits, so they stay; clients get them as the wire's own enum of this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// First capture of an attached root.
    Attach,
    /// A burst of edits settled.
    Auto,
    /// Asked for.
    Save,
    /// A session was opened.
    SessionStart,
    /// A session was ended.
    SessionEnd,
    /// The state that a rewind is about to change.
    BeforeRewind,
    /// The state that a restore is about to change.
    BeforeRestore,
    /// The state that a redo is about to change.
    BeforeRedo,
    /// The state that a session revert is about to change.
    BeforeRevert,
    /// An agent is about to run a destructive command.
    BeforeCommand,
    /// What an operation left, when that isn't its target.
    AfterOperation,
    /// An agent's turn began.
    TurnStart,
    /// An agent's turn ended.
    TurnEnd,
    /// A scan found what events had not told.
    Reconcile,
}

impl Trigger {
    /// Whether such a checkpoint is made also when nothing differs from the position.
    #[must_use]
    pub const fn always_makes_one(self) -> bool {
        matches!(
            self,
            Self::SessionStart | Self::SessionEnd | Self::TurnStart | Self::TurnEnd
        )
    }

    /// Whether such a checkpoint holds what is about to be changed, so that it is made though the quota is used up.
    #[must_use]
    pub const fn may_exceed_the_quota(self) -> bool {
        matches!(
            self,
            Self::BeforeRewind
                | Self::BeforeRestore
                | Self::BeforeRedo
                | Self::BeforeRevert
                | Self::BeforeCommand
        )
    }

    /// First line of the commit of a checkpoint without a label.
    const fn summary(self) -> &'static str {
        match self {
            Self::Attach => "attached",
            Self::Auto => "edits settled",
            Self::Save => "saved",
            Self::SessionStart => "session started",
            Self::SessionEnd => "session ended",
            Self::BeforeRewind => "before a rewind",
            Self::BeforeRestore => "before a restore",
            Self::BeforeRedo => "before a redo",
            Self::BeforeRevert => "before a session revert",
            Self::BeforeCommand => "before a command",
            Self::AfterOperation => "after an operation",
            Self::TurnStart => "turn started",
            Self::TurnEnd => "turn ended",
            Self::Reconcile => "found by a scan",
        }
    }
}

/// Files that differ from the base. Directories don't count; nor does a file that only a new ignore rule took out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Not in the base.
    pub added: u64,
    /// Other than in the base.
    pub modified: u64,
    /// No longer there.
    pub deleted: u64,
}

/// Record of a whole root at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its number: counts up per root, never reused.
    pub n: u64,
    /// The number that the tree stood on when it was made.
    pub base: Option<u64>,
    /// The session that it belongs to.
    pub session: String,
    /// All sessions open then, the one opened last first.
    pub sessions: Vec<String>,
    /// Why.
    pub trigger: Trigger,
    /// When.
    pub time: Time,
    /// What people called it.
    pub label: Option<String>,
    /// The agent whose turn it was.
    pub agent: Option<String>,
    /// The agent's own session id.
    pub agent_session: Option<String>,
    /// The turn's number.
    pub turn: Option<u64>,
    /// First line of the turn's prompt.
    pub prompt: Option<String>,
    /// Tools that the agent used.
    pub tools: Vec<String>,
    /// Against the base.
    pub counts: Counts,
    /// Object id that the user's HEAD stood for.
    pub head: Option<String>,
    /// The user's branch.
    pub branch: Option<String>,
    /// How many paths it leaves out.
    pub not_captured: u64,
    /// Sessions of agents whose conversations are kept with it.
    pub conversation: Vec<SessionId>,
    /// What it recorded.
    pub snapshot: Snapshot,
    /// Its commit.
    pub commit: Oid,
}

/// The JSON object in a checkpoint's commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    #[serde(flatten)]
    head: Head,
    n: u64,
    base: Option<u64>,
    session: String,
    sessions: Vec<String>,
    trigger: Trigger,
    time: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent_session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    turn: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prompt: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tools: Vec<String>,
    files: Counts,
    #[serde(rename = "HEAD", default, skip_serializing_if = "Option::is_none")]
    git_head: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    branch: Option<String>,
    not_captured: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    conversation: Vec<SessionId>,
    modes: CommonModes,
    side: Oid,
}

/// The ref of checkpoint `n` of a root.
#[must_use]
pub fn ref_name(root: &str, session: &str, n: u64) -> String {
    format!("{}{session}/{n}", refs_prefix(root))
}

/// What all refs of a root's checkpoints begin with.
#[must_use]
pub fn refs_prefix(root: &str) -> String {
    format!("refs/checkpoints/{root}/")
}

/// The common modes that the checkpoint in `commit` was written with.
///
/// # Errors
/// [`Error::Damaged`] when it can't be read.
pub fn modes(store: &Store, commit: Oid) -> Result<CommonModes> {
    let found = store.read_commit(commit)?;
    Ok(record::parse::<Record>(store, commit, &found.message)?.modes)
}

impl Checkpoint {
    /// The message of its commit.
    #[must_use]
    pub fn message(&self, root: &str, modes: CommonModes) -> String {
        let record = Record {
            head: Head::of(root),
            n: self.n,
            base: self.base,
            session: self.session.clone(),
            sessions: self.sessions.clone(),
            trigger: self.trigger,
            time: self.time,
            label: self.label.clone(),
            agent: self.agent.clone(),
            agent_session: self.agent_session.clone(),
            turn: self.turn,
            prompt: self.prompt.clone(),
            tools: self.tools.clone(),
            files: self.counts,
            git_head: self.head.clone(),
            branch: self.branch.clone(),
            not_captured: self.not_captured,
            conversation: self.conversation.clone(),
            modes,
            side: self.snapshot.side,
        };
        record::message(
            self.label.as_deref().unwrap_or_else(|| self.trigger.summary()),
            &record,
        )
    }

    /// Reads the checkpoint that ref `name` of `root` points to.
    ///
    /// # Errors
    /// [`Error::Damaged`] when the commit, or its record, isn't what the ref says.
    pub fn load(store: &Store, root: &str, name: &str, commit: Oid) -> Result<Self> {
        let found = store.read_commit(commit)?;
        let record: Record = record::parse(store, commit, &found.message)?;
        if record.head.root != root || ref_name(root, &record.session, record.n) != name {
            return Err(Error::Damaged {
                store: store.path().to_owned(),
                what: format!("{name} points to {commit}, which is the record of another checkpoint"),
            });
        }
        Ok(Self {
            n: record.n,
            base: record.base,
            session: record.session,
            sessions: record.sessions,
            trigger: record.trigger,
            time: record.time,
            label: record.label,
            agent: record.agent,
            agent_session: record.agent_session,
            turn: record.turn,
            prompt: record.prompt,
            tools: record.tools,
            counts: record.files,
            head: record.git_head,
            branch: record.branch,
            not_captured: record.not_captured,
            conversation: record.conversation,
            snapshot: Snapshot {
                tree: found.tree,
                side: record.side,
            },
            commit,
        })
    }
}
