//! Opening, ending and summing up sessions.

use std::sync::Arc;

use super::capture::is_left_out;
use super::{Context, Engine, Scope, Why};
use crate::checkpoint::Trigger;
use crate::diff::{self, Change};
use crate::error::{Error, Result};
use crate::session::{self, Session};
use crate::store::Expected;

/// What `session show` tells.
#[derive(Debug)]
pub struct SessionSummary {
    /// It.
    pub session: Session,
    /// How many checkpoints belong to it.
    pub checkpoints: u64,
    /// What differs between its start and its end, or now: files, links and FIFOs, and directories.
    pub changes: Vec<Change>,
}

impl Engine {
    /// All sessions, open and ended, the one opened first in front.
    #[must_use]
    pub fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    /// How many checkpoints have this session among those open at the time.
    #[must_use]
    pub fn checkpoints_of(&self, session: &str) -> u64 {
        self.checkpoints
            .iter()
            .filter(|c| c.session == session || c.sessions.iter().any(|s| s == session))
            .count() as u64
    }

    /// Opens a session with a checkpoint at its start; gives its name and that checkpoint. `process`: the pid whose end
    /// ends it, and when that process began, in clock ticks since boot.
    ///
    /// # Errors
    /// [`Error::BadName`]; as [`Self::capture`].
    pub fn session_start(
        &mut self,
        name: Option<&str>,
        command: Option<&str>,
        process: Option<(u32, u64)>,
        cx: &Context<'_>,
    ) -> Result<(String, u64)> {
        let wanted = match (name, command) {
            (Some(name), _) => {
                session::check_name(name)?;
                name.to_owned()
            }
            (None, Some(command)) => session::name_of_command(command),
            (None, None) => "session".to_owned(),
        };
        let name = session::free_name(&wanted, &|n| {
            n == session::WATCH || self.sessions.iter().any(|s| s.name == n)
        });
        // The checkpoint belongs to the session that it opens, so that the session is in `list` from its start on.
        self.sessions.push(Session {
            name: name.clone(),
            command: command.map(str::to_owned),
            process,
            started: cx.now,
            start: self.record.highest + 1,
            ended: None,
            end: None,
        });
        let result = self
            .capture(Scope::All, &Why::plain(Trigger::SessionStart), cx)
            .and_then(|captured| {
                if let Some(session) = self.sessions.last_mut() {
                    session.start = captured.id;
                }
                self.write_session(&name, cx)?;
                Ok(captured.id)
            });
        match result {
            Ok(id) => Ok((name, id)),
            Err(e) => {
                self.sessions.retain(|s| s.name != name);
                Err(e)
            }
        }
    }

    /// Ends a session (the one opened last, without a name) with a checkpoint; gives its name and that checkpoint.
    ///
    /// # Errors
    /// As [`Self::open_session`] and [`Self::capture`].
    pub fn session_end(&mut self, name: Option<&str>, cx: &Context<'_>) -> Result<(String, u64)> {
        let name = self.open_session(name)?.name.clone();
        let captured = self.capture(Scope::All, &Why::plain(Trigger::SessionEnd), cx)?;
        self.close_session(&name, Some(captured.id), cx)?;
        Ok((name, captured.id))
    }

    /// Ends a session whose process is gone, without a look at the disk if that fails: the session must not stay open.
    ///
    /// # Errors
    /// As [`Self::open_session`]; those of the store.
    pub fn session_abandoned(&mut self, name: &str, cx: &Context<'_>) -> Result<()> {
        self.open_session(Some(name))?;
        let end = match self.capture(Scope::All, &Why::plain(Trigger::SessionEnd), cx) {
            Ok(captured) => Some(captured.id),
            Err(_) => self.record.position,
        };
        self.close_session(name, end, cx)
    }

    /// The open session of this name, or the one opened last.
    ///
    /// # Errors
    /// [`Error::NoSuchSession`], [`Error::SessionEnded`], [`Error::NoOpenSession`].
    pub fn open_session(&self, name: Option<&str>) -> Result<&Session> {
        let Some(name) = name else {
            let open = self.sessions.iter().rev().find(|s| s.is_open());
            return open.ok_or(Error::NoOpenSession);
        };
        let session = self.session_named(name)?;
        if session.is_open() {
            Ok(session)
        } else {
            Err(Error::SessionEnded(name.to_owned()))
        }
    }

    fn close_session(&mut self, name: &str, end: Option<u64>, cx: &Context<'_>) -> Result<()> {
        if let Some(session) = self.sessions.iter_mut().find(|s| s.name == name) {
            session.ended = Some(cx.now);
            session.end = end;
        }
        self.write_session(name, cx)
    }

    fn write_session(&self, name: &str, cx: &Context<'_>) -> Result<()> {
        let store = Arc::clone(&self.store);
        let _lock = store.lock()?;
        let session = self.session_named(name)?;
        let writer = store.writer();
        let commit = session.write(&writer, self.id(), cx.now)?;
        writer.finish()?;
        store.set_ref(&session.ref_name(self.id()), commit, Expected::Any)
    }

    /// Sums up a session (the one opened last, without a name). Looks at the disk when it is still open.
    ///
    /// # Errors
    /// [`Error::NoSuchSession`], [`Error::NoSessionYet`]; as [`Self::capture`].
    pub fn session_show(&mut self, name: Option<&str>, cx: &Context<'_>) -> Result<SessionSummary> {
        let session = match name {
            Some(name) => self.session_named(name)?.clone(),
            None => self.sessions.last().cloned().ok_or(Error::NoSessionYet)?,
        };
        let start = self.checkpoint(session.start)?.snapshot;
        let (end, left_out) = match session.end.and_then(|n| self.checkpoint(n).ok()) {
            Some(end) => (end.snapshot, self.not_captured(Some(end.n))?),
            None => {
                self.require_presence()?;
                let now = self.look_durably(cx)?;
                (now, self.not_captured(None)?)
            }
        };
        let mut changes = diff::compare(&*self.store, start, end, &self.record.modes, &[])?;
        changes.retain(|change| change.new.is_some() || !is_left_out(&left_out, &change.path));
        let checkpoints = self.checkpoints_of(&session.name);
        Ok(SessionSummary {
            session,
            checkpoints,
            changes,
        })
    }
}
