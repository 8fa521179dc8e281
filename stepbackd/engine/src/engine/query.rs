//! Reading what is recorded.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;

use super::capture::is_left_out;
use super::look::Within;
use super::{Context, Engine, LineCounts, Scope};
use crate::checkpoint::Trigger;
use crate::diff::patch::{self, Purpose};
use crate::diff::{self, Change};
use crate::error::{At, Error, Result};
use crate::node::{Kind, Node, Snapshot};
use crate::path::TreePath;
use crate::session::{self, Session};
use crate::time::Time;
use crate::tree::stored;

/// Which checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Select {
    /// By number.
    Number(u64),
    /// Newest.
    Latest,
    /// Oldest.
    First,
    /// So many before the newest.
    Back(u64),
    /// Newest at or before.
    At(Time),
    /// Start of a session.
    Session(String),
    /// Start of a turn of the newest agent session.
    Turn(u64),
    /// Likewise, counted back: 0 is the newest turn.
    TurnBack(u64),
}

/// Two states to compare.
#[derive(Debug, Clone)]
pub enum Sides {
    /// The position against the disk.
    PositionToTree,
    /// What a checkpoint changed against its base.
    BaseTo(Select),
    /// A checkpoint against the disk.
    ToTree(Select),
    /// Two checkpoints.
    Between(Select, Select),
}

/// One end of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// A checkpoint.
    Checkpoint(u64),
    /// The disk.
    Tree,
    /// Nothing.
    Empty,
}

/// What differs between two states, as people are shown it: files, links, FIFOs, empty directories, and directories whose
/// mode or attributes changed.
#[derive(Debug)]
pub struct Diff {
    /// Older.
    pub from: Side,
    /// Newer.
    pub to: Side,
    /// In order of paths.
    pub changes: Vec<Change>,
}

impl Engine {
    /// The number that `select` means.
    ///
    /// # Errors
    /// [`Error::NoSuchCheckpoint`], [`Error::NoSuchSession`].
    pub fn resolve(&self, select: &Select) -> Result<u64> {
        let none = |text: String| Error::NoSuchCheckpoint(text);
        let all = &self.checkpoints;
        match select {
            Select::Number(n) => self.checkpoint(*n).map(|c| c.n),
            Select::Latest => all.last().map(|c| c.n).ok_or_else(|| none("latest".into())),
            Select::First => all.first().map(|c| c.n).ok_or_else(|| none("first".into())),
            Select::Back(back) => usize::try_from(*back)
                .ok()
                .and_then(|back| all.iter().rev().nth(back))
                .map(|c| c.n)
                .ok_or_else(|| none(format!("~{back}"))),
            // A clock that was put back must not hide a checkpoint: the newest by number counts.
            Select::At(time) => all
                .iter()
                .rev()
                .find(|c| c.time.ms() <= time.ms())
                .map(|c| c.n)
                .ok_or_else(|| none("that old".into())),
            Select::Session(name) => {
                let start = self.session_named(name)?.start;
                self.checkpoint(start)
                    .map(|c| c.n)
                    .map_err(|_| none(format!("session:{name}")))
            }
            Select::Turn(turn) => self
                .turn_start(|t| t == *turn)
                .ok_or_else(|| none(format!("turn:{turn}"))),
            Select::TurnBack(back) => {
                let newest = self.newest_turn().ok_or_else(|| none(format!("turn:~{back}")))?;
                let turn = newest
                    .checked_sub(*back)
                    .ok_or_else(|| none(format!("turn:~{back}")))?;
                self.turn_start(|t| t == turn)
                    .ok_or_else(|| none(format!("turn:~{back}")))
            }
        }
    }

    fn newest_turn(&self) -> Option<u64> {
        self.checkpoints.iter().rev().find_map(|c| c.turn)
    }

    /// The start of a turn of the newest agent session: its first checkpoint. Of an agent that tells only of ends, what the
    /// end stood on.
    fn turn_start(&self, wanted: impl Fn(u64) -> bool) -> Option<u64> {
        let newest = self.checkpoints.iter().rev().find(|c| c.turn.is_some())?;
        let first = self.checkpoints.iter().find(|c| {
            c.agent == newest.agent && c.agent_session == newest.agent_session && c.turn.is_some_and(&wanted)
        })?;
        match first.trigger {
            Trigger::TurnEnd => first.base,
            _ => Some(first.n),
        }
    }

    /// Whether a file at `path` would be captured, by the rules as they were read last.
    #[must_use]
    pub fn captures(&self, path: &TreePath) -> bool {
        let ignored = self.rules.as_ref().map(|rules| rules.ignores(path, false));
        !matches!(ignored, Some(Ok(true)))
    }

    /// The session of this name.
    ///
    /// # Errors
    /// [`Error::NoSuchSession`].
    pub(super) fn session_named(&self, name: &str) -> Result<&Session> {
        self.sessions
            .iter()
            .find(|s| s.name == name)
            .ok_or_else(|| Error::NoSuchSession(name.to_owned()))
    }

    /// Name of the open session that a checkpoint belongs to now; `watch` when none is open.
    #[must_use]
    pub fn session_now(&self) -> &str {
        self.sessions
            .iter()
            .rev()
            .find(|s| s.is_open())
            .map_or(session::WATCH, |s| &s.name)
    }

    /// The position if it equals the tree in memory, else the newest checkpoint that does.
    #[must_use]
    pub fn current(&self) -> Option<u64> {
        let memory = self.memory.or(self.resting.as_ref().and_then(|r| r.snapshot))?;
        if self.is_position(memory) {
            return self.record.position;
        }
        self.checkpoints
            .iter()
            .rev()
            .find(|c| c.snapshot == memory)
            .map(|c| c.n)
    }

    /// Numbers of the checkpoints that changed `path` or something below it, oldest first.
    ///
    /// # Errors
    /// Those of the store; [`Error::Cancelled`].
    pub fn changed_path(&self, path: &TreePath, cx: &Context<'_>) -> Result<Vec<u64>> {
        type Found = Option<(Node, Option<Snapshot>)>;
        let mut known: HashMap<Snapshot, Found> = HashMap::new();
        let mut look = |snapshot: Snapshot| -> Result<Found> {
            if let Some(found) = known.get(&snapshot) {
                return Ok(found.clone());
            }
            let found = stored::lookup(&self.store, snapshot, &self.record.modes, path)?;
            known.insert(snapshot, found.clone());
            Ok(found)
        };
        let mut numbers = Vec::new();
        for checkpoint in &self.checkpoints {
            cx.progress.check()?;
            let base = match checkpoint.base.and_then(|n| self.checkpoint(n).ok()) {
                Some(base) => look(base.snapshot)?,
                None => None,
            };
            if look(checkpoint.snapshot)? != base {
                numbers.push(checkpoint.n);
            }
        }
        Ok(numbers)
    }

    /// Writes a file's bytes, or a link's target, as of a checkpoint.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`] when there is nothing, or a directory or FIFO; those of the store and of `to`.
    pub fn cat(&self, n: u64, path: &TreePath, to: &mut dyn Write) -> Result<()> {
        let snapshot = self.checkpoint(n)?.snapshot;
        let found = stored::lookup(&self.store, snapshot, &self.record.modes, path)?;
        match found.map(|(node, _)| node.kind) {
            Some(Kind::File(oid) | Kind::Link(oid)) => self.store.copy_blob(oid, to).map(drop),
            Some(Kind::Dir) => Err(Error::NoSuchPath {
                path: path.clone(),
                place: format!("checkpoint {n} as a file: it is a directory"),
            }),
            _ => Err(Error::NoSuchPath {
                path: path.clone(),
                place: format!("checkpoint {n}"),
            }),
        }
    }

    /// What differs between two states. Looks at the disk first when it is one of them; makes no checkpoint.
    ///
    /// # Errors
    /// As [`Self::capture`] and [`Self::resolve`].
    pub fn diff(&mut self, sides: &Sides, within: &[TreePath], cx: &Context<'_>) -> Result<Diff> {
        let (from, to) = match sides {
            Sides::PositionToTree => (
                self.record.position.map_or(Side::Empty, Side::Checkpoint),
                Side::Tree,
            ),
            Sides::BaseTo(select) => {
                let n = self.resolve(select)?;
                (
                    self.checkpoint(n)?.base.map_or(Side::Empty, Side::Checkpoint),
                    Side::Checkpoint(n),
                )
            }
            Sides::ToTree(select) => (Side::Checkpoint(self.resolve(select)?), Side::Tree),
            Sides::Between(a, b) => (
                Side::Checkpoint(self.resolve(a)?),
                Side::Checkpoint(self.resolve(b)?),
            ),
        };
        let old = self.side_snapshot(from, cx)?;
        let new = self.side_snapshot(to, cx)?;
        let mut changes = diff::compare(&*self.store, old, new, &self.record.modes, within)?;
        let left_out = match to {
            Side::Checkpoint(n) => self.not_captured(Some(n))?,
            Side::Tree => self.not_captured(None)?,
            Side::Empty => Vec::new(),
        };
        // What the newer state doesn't know isn't gone from it.
        changes.retain(|change| {
            change.is_shown() && (change.new.is_some() || !is_left_out(&left_out, &change.path))
        });
        Ok(Diff { from, to, changes })
    }

    fn side_snapshot(&mut self, side: Side, cx: &Context<'_>) -> Result<Snapshot> {
        match side {
            Side::Empty => Ok(Snapshot::EMPTY),
            Side::Checkpoint(n) => Ok(self.checkpoint(n)?.snapshot),
            Side::Tree => {
                self.require_presence()?;
                self.look_durably(cx)
            }
        }
    }

    /// Looks at everything, keeps what is new, makes no checkpoint.
    pub(super) fn look_durably(&mut self, cx: &Context<'_>) -> Result<Snapshot> {
        let store = Arc::clone(&self.store);
        let _lock = store.lock()?;
        self.healing(|engine, _| {
            let look = engine.look(&store, &Scope::All, Within::Budget, cx)?;
            if !engine.is_position(look.snapshot) {
                engine.write_record(cx.now)?;
            }
            Ok(look.snapshot)
        })
    }

    /// Counts the lines of one change.
    ///
    /// # Errors
    /// Those of the store.
    pub fn line_counts(&self, change: &Change) -> Result<LineCounts> {
        patch::line_counts(&self.store, change)
    }

    /// Writes a unified patch, as git would.
    ///
    /// # Errors
    /// Those of the store and of `to`.
    pub fn write_patch(&self, diff: &Diff, purpose: Purpose, to: &mut dyn Write) -> Result<()> {
        diff.changes
            .iter()
            .try_for_each(|change| patch::write(&self.store, change, purpose, to))
    }

    /// Writes a checkpoint's whole tree as a tar.
    ///
    /// # Errors
    /// Those of the store and of `to`.
    pub fn write_tar(&self, n: u64, to: &mut dyn Write) -> Result<()> {
        let checkpoint = self.checkpoint(n)?;
        crate::archive::write(
            &self.store,
            checkpoint.snapshot,
            &self.record.modes,
            checkpoint.time,
            to,
        )
        .at(self.path.as_path())?
    }
}
