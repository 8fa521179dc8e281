//! What a rewind does to each conversation, and doing it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::chunks;
use super::put::{self, Trouble};
use super::reason::{Cure, QUIT, Reason, STOP};
use super::record::{Kept, Part, find};
use super::{Agent, Homes, SessionId, fork, live, look, sqlite};
use crate::error::Result;
use crate::path::{TreePath, for_shell};
use crate::store::Store;

/// How much of each file is put back.
pub(super) type Lengths = BTreeMap<TreePath, u64>;

/// What a rewind puts back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum What {
    /// Files and conversations.
    #[default]
    Both,
    /// Files alone.
    Files,
    /// Conversations alone.
    Conversation,
}

/// How a rewind treats conversations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mode {
    /// What is put back.
    pub what: What,
    /// Conversations are written under a new id, those that are there left alone.
    pub fork: bool,
}

/// What became, or would become, of one conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Whose.
    pub agent: Agent,
    /// The agent's own id.
    pub session: String,
    /// `rewind`, `fork`, `none` (it is so already), `left`, or `ahead`: not of the target's span, and it says what came
    /// later.
    pub action: &'static str,
    /// Why it was left, or how it is ahead.
    pub why: Option<String>,
    /// What can be done, where that isn't to quit the agent and to come back.
    pub hint: Option<String>,
    /// The command that goes on from there.
    pub resume: Option<String>,
    /// Its new id.
    pub fork: Option<String>,
}

/// What is to be done with a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    /// It is so already.
    Nothing,
    Put,
    Fork,
    Left(Reason),
    /// It isn't put back, and says what came after the target.
    Ahead(Reason),
}

/// A session with what is to be done.
#[derive(Debug)]
pub(crate) struct Step {
    pub id: SessionId,
    pub act: Act,
    /// What is there begins with what would be put, so that only later records go. `None`: nobody can say, as of rows.
    pub grew: Option<bool>,
}

impl Step {
    /// Nothing is put.
    pub const fn without(id: SessionId, act: Act) -> Self {
        Self { id, act, grew: None }
    }
}

/// For planning and doing.
pub(crate) struct Cx<'a> {
    pub store: &'a Store,
    pub homes: &'a Homes,
    pub root: &'a Path,
    /// All bytes as recorded, for taking something back; else whole lines only.
    pub exact: bool,
}

impl Cx<'_> {
    /// What a file's length will be. A record that was being written then isn't put back: what is appended to half a line
    /// is lost with it.
    fn length(&self, part: &Part) -> Result<u64> {
        if self.exact || !part.is_lines() {
            return Ok(part.size());
        }
        chunks::whole_lines(self.store, &part.chunks)
    }

    fn lengths(&self, kept: &Kept) -> Result<Lengths> {
        let files = kept.parts.iter().filter(|part| part.table.is_none());
        files
            .map(|part| Ok((part.path.clone(), self.length(part)?)))
            .collect()
    }

    fn dir(&self, kept: &Kept) -> Option<PathBuf> {
        self.homes.dir_of(kept, self.root)
    }

    /// Where a session began, if that is elsewhere: then it isn't this root's to put back. A directory that is gone, or has
    /// become this one, is nobody's else.
    fn home_of<'k>(&self, kept: &'k Kept) -> Option<&'k Path> {
        let began = kept.cwd.0.as_path();
        if super::is_within(began, self.root) {
            return None;
        }
        match look::real(began) {
            Some(Ok(real)) if super::is_within(&real, self.root) => None,
            Some(Err(_)) => None,
            Some(Ok(_)) | None => Some(began),
        }
    }

    /// A process in which a session is being held, as far as anybody knows: one works in the root, or a hook of the session
    /// told of it, or it has a file of the session open.
    fn busy(
        &self,
        id: &SessionId,
        running: &BTreeMap<Agent, u32>,
        files: impl FnOnce() -> BTreeSet<PathBuf>,
    ) -> Option<Reason> {
        let processes = self.homes.processes.as_deref()?;
        let name = id.agent.name();
        if let Some(pid) = running.get(&id.agent) {
            let why = format!("{name} is running here (process {pid})");
            return Some(Reason::new(why, QUIT));
        }
        let is = |pid, what: &str| match live::is_service(processes, pid) {
            true => Reason::new(
                format!("a service of {name} in the background has it open (process {pid})"),
                STOP,
            ),
            false => Reason::new(format!("{what} (process {pid})"), QUIT),
        };
        if let Some(pid) = self.homes.told.alive(id, processes) {
            return Some(is(pid, &format!("{name} is running it")));
        }
        let pid = live::holder(processes, &files())?;
        Some(is(pid, "a process has it open"))
    }

    /// What is to be done for each session of `target`, given what is there.
    pub fn plan(&self, target: &[Kept], present: &[Kept], fork: bool) -> Result<Vec<Step>> {
        let processes = self.homes.processes.as_deref();
        let running = processes.and_then(|processes| live::agents(processes, self.root));
        let step = |kept: &Kept| {
            let act = if kept.partial {
                Act::Left(Reason::new("not all of it was kept then", Cure::Nothing))
            } else if fork {
                match kept.id.agent.adapter().fork_of() {
                    fork::Way::None(why) => Act::Left(Reason::new(why, Cure::Nothing)),
                    _ => Act::Fork,
                }
            } else {
                self.act(kept, find(present, &kept.id), running.as_ref())?
            };
            let grew = match (&act, find(present, &kept.id)) {
                (Act::Put, Some(present)) => self.grew(kept, present)?,
                (Act::Put, None) => Some(false),
                _ => None,
            };
            Ok(Step {
                id: kept.id.clone(),
                act,
                grew,
            })
        };
        target.iter().map(step).collect()
    }

    fn act(
        &self,
        kept: &Kept,
        present: Option<&Kept>,
        running: Option<&BTreeMap<Agent, u32>>,
    ) -> Result<Act> {
        let agent = kept.id.agent;
        let Some(dir) = self.dir(kept) else {
            let why = format!("the directory of {} isn't there", agent.name());
            return Ok(Act::Left(Reason::new(why, Cure::Nothing)));
        };
        if let Some(present) = present
            && self.is_so(kept, present)?
        {
            return Ok(Act::Nothing);
        }
        let Some(running) = running else {
            let why = "this system doesn't say whether it is running";
            return Ok(Act::Left(Reason::new(why, Cure::Fork)));
        };
        let files = || {
            let files = present
                .iter()
                .flat_map(|present| &present.parts)
                .chain(&kept.parts);
            files
                .filter(|part| part.table.is_none())
                .map(|part| dir.join(part.path.as_path()))
                .collect()
        };
        if let Some(reason) = self.busy(&kept.id, running, files) {
            return Ok(Act::Left(reason));
        }
        if let Some(began) = self.home_of(present.unwrap_or(kept)) {
            let why = format!("it began in {}, and is only put back from there", began.display());
            return Ok(Act::Left(Reason::new(why, Cure::Fork)));
        }
        let hindrance = agent
            .adapter()
            .hindrance(&dir, &kept.id.session, &self.lengths(kept)?);
        Ok(hindrance.map_or(Act::Put, |why| Act::Left(Reason::new(why, Cure::Fork))))
    }

    /// Whether a session may be changed now; why not.
    pub fn is_busy(&self, id: &SessionId) -> Option<String> {
        let processes = self.homes.processes.as_deref();
        let Some(running) = processes.and_then(|processes| live::agents(processes, self.root)) else {
            return Some("nobody can say whether it is running".into());
        };
        self.busy(id, &running, BTreeSet::new).map(|reason| reason.why)
    }

    /// Whether what is there is what would be put.
    pub fn is_so(&self, kept: &Kept, present: &Kept) -> Result<bool> {
        let real = |kept: &Kept| kept.parts.iter().filter(|part| !part.is_derived()).count();
        if real(kept) != real(present) {
            return Ok(false);
        }
        for part in kept.parts.iter().filter(|part| !part.is_derived()) {
            let len = self.length(part)?;
            let Some(now) = present.parts.iter().find(|now| now.is_at(part)) else {
                return Ok(false);
            };
            if now.size() != len || chunks::common(self.store, &part.chunks, &now.chunks)? < len {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether every file is now what it was then and more.
    fn grew(&self, kept: &Kept, present: &Kept) -> Result<Option<bool>> {
        for part in kept.parts.iter().filter(|part| !part.is_derived()) {
            if part.table.is_some() {
                return Ok(None);
            }
            let len = self.length(part)?;
            let now = present.parts.iter().find(|now| now.is_at(part));
            let now = now.map_or(&[][..], |now| &now.chunks);
            if chunks::common(self.store, &part.chunks, now)? < len {
                return Ok(Some(false));
            }
        }
        Ok(Some(true))
    }

    /// Puts a session back; why it was left, if it was.
    ///
    /// # Errors
    /// Those of the store.
    pub fn put(&self, kept: &Kept, present: Option<&Kept>) -> Result<Option<String>> {
        let Some(dir) = self.dir(kept) else {
            return Ok(Some("its directory isn't there".into()));
        };
        match self.try_put(&dir, kept, present) {
            Ok(()) => Ok(None),
            Err(Trouble::File(e)) => Ok(Some(e.to_string())),
            Err(Trouble::Store(e)) => Err(e),
        }
    }

    fn try_put(&self, dir: &Path, kept: &Kept, present: Option<&Kept>) -> Result<(), Trouble> {
        // Rows first: one transaction, and if it is refused nothing was done.
        self.put_rows(dir, kept, present)?;
        for part in kept.parts.iter().filter(|part| part.table.is_none()) {
            let now = present.and_then(|p| p.parts.iter().find(|now| now.is_at(part)));
            put::file(dir, self.store, part, self.length(part)?, now).map_err(|e| on(e, &part.path))?;
        }
        let later = present.iter().flat_map(|present| &present.parts);
        for part in later.filter(|part| part.table.is_none() && !kept.parts.iter().any(|p| p.is_at(part))) {
            put::remove(dir, part)?;
        }
        Ok(())
    }

    fn put_rows(&self, dir: &Path, kept: &Kept, present: Option<&Kept>) -> Result<(), Trouble> {
        let mut by_database: BTreeMap<&TreePath, Vec<&Part>> = BTreeMap::new();
        for part in kept.parts.iter().filter(|part| part.table.is_some()) {
            by_database.entry(&part.path).or_default().push(part);
        }
        // What an agent made of a transcript since the record was taken goes with it.
        for part in present
            .iter()
            .flat_map(|p| &p.parts)
            .filter(|part| part.is_derived())
        {
            let parts = by_database.entry(&part.path).or_default();
            if !parts.iter().any(|known| known.is_at(part)) {
                parts.push(part);
            }
        }
        for (db, parts) in by_database {
            let derived = parts.iter().all(|part| part.is_derived());
            let path = dir.join(db.as_path());
            if derived && !path.exists() {
                continue;
            }
            let done = sqlite::change(&path, |transaction| {
                for part in &parts {
                    let now = present.and_then(|p| p.parts.iter().find(|now| now.is_at(part)));
                    let also = now.and_then(|now| now.table.as_ref()).map(|table| &table.ids[..]);
                    let also = also.or(part.is_derived().then_some(&[]));
                    let recorded = kept.parts.iter().any(|known| known.is_at(part));
                    let empty = part.is_derived() && !(self.exact && recorded);
                    sqlite::equalize(transaction, self.store, part, also, empty)?;
                }
                Ok(())
            });
            match done {
                Ok(()) => {}
                Err(sqlite::Trouble::Database(e)) => return Err(other(format!("{db}: {e}"))),
                Err(sqlite::Trouble::Other(e)) => return Err(other(format!("{db}: {e}"))),
                Err(sqlite::Trouble::Store(e)) => return Err(Trouble::Store(e)),
            }
        }
        Ok(())
    }

    /// Writes a session under a new id; that id, or why not.
    ///
    /// # Errors
    /// Those of the store.
    pub fn fork(&self, kept: &Kept, seed: &str) -> Result<Result<String, String>> {
        let Some(dir) = self.dir(kept) else {
            return Ok(Err("its directory isn't there".into()));
        };
        match fork::fork(&dir, self.store, kept, &self.lengths(kept)?, seed) {
            Ok(new) => Ok(Ok(new)),
            Err(Trouble::File(e)) => Ok(Err(e.to_string())),
            Err(Trouble::Store(e)) => Err(e),
        }
    }

    /// Whether a session is somewhere on the way from one recorded state to the other: then all of it is on record, and
    /// it may be brought to either.
    pub fn is_between(&self, present: &Kept, from: Option<&Kept>, to: Option<&Kept>) -> Result<bool> {
        for part in present.parts.iter().filter(|part| part.table.is_none()) {
            let of = |kept: Option<&Kept>| {
                let found = kept.and_then(|kept| kept.parts.iter().find(|p| p.is_at(part)));
                found.map_or(Vec::new(), |part| part.chunks.clone())
            };
            let (a, b) = (of(from), of(to));
            let size = part.size();
            let mixed = |a: &[chunks::Chunk], b: &[chunks::Chunk]| -> Result<bool> {
                let head = chunks::common(self.store, &part.chunks, a)?;
                Ok(head == size || chunks::same_from(self.store, &part.chunks, b, head)?)
            };
            if !mixed(&b, &a)? && !mixed(&a, &b)? {
                return Ok(false);
            }
        }
        // Rows change in one transaction: they are those of one side.
        let same_rows = |side: Option<&Kept>| -> Result<bool> {
            let Some(side) = side else { return Ok(false) };
            for part in present
                .parts
                .iter()
                .filter(|p| p.table.is_some() && !p.is_derived())
            {
                let Some(then) = side.parts.iter().find(|then| then.is_at(part)) else {
                    return Ok(false);
                };
                if then.size() != part.size()
                    || chunks::common(self.store, &then.chunks, &part.chunks)? != part.size()
                {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        Ok(same_rows(from)? || same_rows(to)?)
    }
}

/// The command that goes on with a session, from wherever people stand.
pub(crate) fn resume(kept: &Kept, session: &str, root: &Path) -> String {
    let mut command = kept.id.agent.resume(session);
    if let (Some(home), Some(variable)) = (&kept.home, kept.id.agent.adapter().home_variable()) {
        command = format!("{variable}={} {command}", for_shell(&home.0));
    }
    match &kept.cwd.0 {
        cwd if cwd == root => command,
        cwd => format!("cd {} && {command}", for_shell(cwd)),
    }
}

fn on(trouble: Trouble, path: &TreePath) -> Trouble {
    match trouble {
        Trouble::File(e) => Trouble::File(std::io::Error::new(e.kind(), format!("{path}: {e}"))),
        store => store,
    }
}

fn other(text: String) -> Trouble {
    Trouble::File(std::io::Error::other(text))
}
