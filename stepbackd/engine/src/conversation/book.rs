//! What is known of the sessions of a root: which there are, what of them is recorded already, and from that, at a
//! checkpoint, which ones were active since.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};

use super::homes::other_home;
use super::look::{Caches, Dirs, Look, is_not_there, is_plain, open, real, stamp};
use super::read::{self, ReadError};
use super::record::Kept;
use super::{Agent, Found, Homes, Seen, SessionId, Until, sqlite};
use crate::error::Result;
use crate::path::TreePath;
use crate::root::DirHandle;
use crate::state::AbsolutePath;
use crate::store::{ObjectWriter, Store};
use crate::time::Time;

/// The most bytes of transcripts that are read anew after a burst; the rest follows at the next checkpoints.
pub(crate) const BURST_BYTES_MAX: u64 = 32 << 20;
/// So many records are remembered that lack something, the newest.
const LACKING_MAX: usize = 16;
/// The most sessions in one record.
const SESSIONS_MAX: usize = 64;
/// The times of files may lag so far behind the clock.
const COARSE_NS: i64 = 20_000_000;
/// So many hooks are remembered.
const SEEN_MAX: usize = 256;
/// So many directories of one agent are looked at.
const HOMES_MAX: usize = 8;

/// What is known of the sessions of a root.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// When the last look was that missed no session, by agent and its directory; until there was one, what that began
    /// with.
    looked: BTreeMap<(Agent, PathBuf), Time>,
    seeded: bool,
    /// As recorded last.
    known: BTreeMap<SessionId, Kept>,
    /// Stamps of what was seen and had no reason to be recorded.
    idle: HashMap<SessionId, Vec<(TreePath, String)>>,
    caches: Caches,
    seen: Vec<Seen>,
    /// Numbers of checkpoints of whose record something is still to be read.
    lacking: BTreeSet<u64>,
    /// For people: what couldn't be kept, by agent.
    pub notes: BTreeMap<Agent, String>,
}

/// For a look at all sessions of a root.
pub(crate) struct Wish<'a> {
    pub homes: &'a Homes,
    pub root: &'a Path,
    pub now: Time,
    /// What has changed since counts as active, where nothing else is known.
    pub since: Time,
    /// Whatever it takes; else only as much as a burst of edits may cost.
    pub thorough: bool,
    /// Recorded also when they weren't active.
    pub wanted: &'a [SessionId],
    /// Nothing but those.
    pub only_wanted: bool,
    /// Of this session nothing later.
    pub until: Option<&'a Until>,
}

/// A directory of an agent.
struct Home {
    dir: PathBuf,
    /// It isn't the one that the daemon knows.
    is_other: bool,
}

/// What an agent's directory is looked at with.
struct Place<'a> {
    agent: Agent,
    home: &'a Home,
    handle: &'a DirHandle,
    dirs: &'a Dirs<'a>,
}

impl Book {
    /// Remembers a session that a hook told of.
    pub fn note(&mut self, seen: Seen) {
        let same = |known: &Seen| known.agent == seen.agent && known.session == seen.session;
        self.seen.retain(|known| !same(known));
        if self.seen.len() == SEEN_MAX {
            self.seen.remove(0);
        }
        self.seen.push(seen);
    }

    pub const fn is_seeded(&self) -> bool {
        self.seeded
    }

    /// Takes over what records have, the newest first.
    pub fn seed(&mut self, records: impl Iterator<Item = Vec<Kept>>) {
        self.seeded = true;
        for kept in records.flatten() {
            self.known.entry(kept.id.clone()).or_insert(kept);
        }
    }

    /// Pieces that are known may be gone from the store: all is to be read again.
    pub fn forget_pieces(&mut self) {
        for part in self.known.values_mut().flat_map(|kept| &mut kept.parts) {
            part.chunks.clear();
        }
    }

    /// These are durable now.
    pub fn remember(&mut self, kept: &[Kept]) {
        for kept in kept {
            self.idle.remove(&kept.id);
            self.known.insert(kept.id.clone(), kept.clone());
        }
    }

    /// The record of checkpoint `n` lacks something, or has all now (or what it lacks is gone).
    pub fn lacks(&mut self, n: u64, lacks: bool) {
        if lacks {
            self.lacking.insert(n);
        } else {
            self.lacking.remove(&n);
        }
        if self.lacking.len() > LACKING_MAX {
            self.lacking.pop_first();
        }
    }

    /// The newest checkpoint whose record lacks something: the older ones are the beginnings of it.
    pub fn lacking(&self) -> Option<u64> {
        self.lacking.last().copied()
    }

    /// What was recorded last of a session.
    pub fn known(&self, id: &SessionId) -> Option<&Kept> {
        self.known.get(id)
    }

    /// Looks at all sessions; gives those that were active since the last look, and those that are wanted, as they are now.
    /// Their pieces are put into `writer`. What goes wrong with one is a note, not an error.
    ///
    /// # Errors
    /// Those of the store.
    pub fn look(&mut self, wish: &Wish<'_>, writer: &ObjectWriter<'_>) -> Result<Vec<Kept>> {
        let mut budget = if wish.thorough { u64::MAX } else { BURST_BYTES_MAX };
        let mut all = Vec::new();
        if !wish.only_wanted {
            self.notes.clear();
        }
        for agent in Agent::ALL {
            if wish.only_wanted && !wish.wanted.iter().any(|id| id.agent == agent) {
                continue;
            }
            for home in self.homes(agent, wish) {
                self.look_in(agent, &home, wish, (&mut budget, writer), &mut all)?;
            }
        }
        Ok(all)
    }

    /// The directories of an agent: the one that the daemon knows, then those of transcripts that hooks told of, now or
    /// before.
    fn homes(&mut self, agent: Agent, wish: &Wish<'_>) -> Vec<Home> {
        let mut homes: Vec<Home> = wish
            .homes
            .dir(agent, wish.root)
            .into_iter()
            .map(known_home)
            .collect();
        let recorded = self.known.values().filter(|kept| kept.id.agent == agent);
        let recorded: BTreeSet<&PathBuf> = recorded.filter_map(|kept| Some(&kept.home.as_ref()?.0)).collect();
        let recorded = recorded.into_iter().filter_map(|home| home.canonicalize().ok());
        let mut others: Vec<PathBuf> = recorded.collect();
        for seen in self.seen.iter().filter(|seen| seen.agent == agent) {
            let Some(path) = &seen.path else { continue };
            if others.iter().any(|home| path.starts_with(home))
                || homes.iter().any(|home| below(&home.dir, path).is_some())
            {
                continue;
            }
            match other_home(agent, path) {
                Ok(Some(home)) => others.push(home),
                // It isn't written yet.
                Ok(None) => {}
                Err(why) if !wish.only_wanted => {
                    let note = format!("a hook named the transcript {}, {why}", path.display());
                    self.notes.insert(agent, note);
                }
                Err(_) => {}
            }
        }
        for dir in others {
            if homes.len() < HOMES_MAX && homes.iter().all(|home| home.dir != dir) {
                homes.push(Home { dir, is_other: true });
            }
        }
        homes
    }

    /// Looks at one directory of an agent, as [`Self::look`] does at all.
    fn look_in(
        &mut self,
        agent: Agent,
        home: &Home,
        wish: &Wish<'_>,
        (budget, writer): (&mut u64, &ObjectWriter<'_>),
        all: &mut Vec<Kept>,
    ) -> Result<()> {
        let Ok(handle) = DirHandle::open_root(&home.dir) else {
            return Ok(());
        };
        let dirs = Dirs::new(&handle);
        let place = Place {
            agent,
            home,
            handle: &handle,
            dirs: &dirs,
        };
        let key = (agent, home.dir.clone());
        let since = *self.looked.entry(key.clone()).or_insert(wish.since);
        let found = match self.find(&place, wish) {
            Ok(found) => found,
            Err(e) => {
                self.notes.insert(agent, e.to_string());
                return Ok(());
            }
        };
        let mut missed = false;
        for found in found {
            let id = SessionId {
                agent,
                session: found.session.clone(),
            };
            // One with another name couldn't be named in a command. One that is a copy of another directory's is that one's.
            if !is_plain(&id.session) || all.iter().any(|kept| kept.id == id) {
                continue;
            }
            let until = wish.until.filter(|until| until.session == id);
            if until.is_some_and(|until| until.bytes == 0) {
                continue;
            }
            let wanted = wish.wanted.contains(&id);
            let active = !wish.only_wanted && self.is_active(&id, &found, &dirs, since);
            if !wanted && !active {
                continue;
            }
            if all.len() == SESSIONS_MAX {
                missed = true;
                continue;
            }
            match self.keep(&id, &found, &place, wish, budget, writer)? {
                Ok(kept) => all.push(kept),
                Err(e) => {
                    missed = true;
                    self.notes.insert(agent, format!("session {}: {e}", id.session));
                }
            }
        }
        // What was missed is as active at the next look as it is now.
        if !wish.only_wanted && !missed {
            self.looked.insert(key, wish.now);
        }
        Ok(())
    }

    fn find(&mut self, place: &Place<'_>, wish: &Wish<'_>) -> io::Result<Vec<Found>> {
        let (agent, dir) = (place.agent, place.home.dir.as_path());
        let known = &self.known;
        let knows = |path: &TreePath| {
            let mut of_agent = known.values().filter(|kept| kept.id.agent == agent);
            of_agent.any(|kept| kept.parts.iter().any(|part| part.path == *path))
        };
        let mut look = Look {
            dir,
            root: wish.root,
            now: wish.now,
            thorough: wish.thorough,
            handle: place.handle,
            dirs: place.dirs,
            caches: &mut self.caches,
            known: &knows,
        };
        let adapter = agent.adapter();
        let mut all = Vec::new();
        for found in adapter.find(&mut look)? {
            add(&mut all, found);
        }
        for seen in self.seen.iter().filter(|seen| seen.agent == agent) {
            let Some(path) = &seen.path else { continue };
            if let Some(path) = below(dir, path)
                && is_plain(&seen.session)
                && !all.iter().any(|found| found.session == seen.session)
                && open(place.handle, &path).is_ok()
            {
                let began = look.began(&path, |record| adapter.began(record));
                let mut found = adapter.told(&mut look, &seen.session, path)?;
                if found.cwd.as_os_str().is_empty() {
                    found.cwd = began.unwrap_or_else(|| wish.root.to_owned());
                }
                all.push(found);
            }
        }
        Ok(all)
    }

    fn is_active(&mut self, id: &SessionId, found: &Found, dirs: &Dirs<'_>, since: Time) -> bool {
        let mut newest = i64::MIN;
        let mut stamps = Vec::new();
        for path in &found.files {
            if let Ok(stat) = dirs.stat(path) {
                newest = newest.max(stat.mtime_ns);
                stamps.push((path.clone(), stamp(&stat)));
            }
        }
        if let Some((rows, changed)) = &found.rows_stamp {
            newest = newest.max(*changed);
            stamps.extend(found.tables.first().map(|table| (table.db.clone(), rows.clone())));
        }
        if let Some(known) = self.known.get(id) {
            let mut recorded: Vec<(TreePath, String)> = known
                .parts
                .iter()
                .filter(|part| !part.is_derived())
                .map(|part| (part.path.clone(), part.stamp.clone()))
                .collect();
            recorded.dedup();
            return recorded != stamps || known.partial;
        }
        match self.idle.get(id) {
            Some(idle) if *idle == stamps => false,
            Some(_) => true,
            None => {
                let active = newest > since.0.saturating_sub(COARSE_NS);
                if !active {
                    self.idle.insert(id.clone(), stamps);
                }
                active
            }
        }
    }

    fn keep(
        &self,
        id: &SessionId,
        found: &Found,
        place: &Place<'_>,
        wish: &Wish<'_>,
        budget: &mut u64,
        writer: &ObjectWriter<'_>,
    ) -> Result<io::Result<Kept>> {
        let (dir, handle) = (place.home.dir.as_path(), place.handle);
        let mut kept = Kept {
            id: id.clone(),
            cwd: AbsolutePath(found.cwd.clone()),
            home: place.home.is_other.then(|| AbsolutePath(dir.to_owned())),
            parts: Vec::new(),
            partial: false,
        };
        let until = wish.until.filter(|until| until.session == *id);
        let until = until.and_then(|until| Some((below(dir, &until.path)?, until.bytes)));
        let known = self.known.get(id);
        for path in &found.files {
            let file = match open(handle, path) {
                Ok(file) => file,
                // Gone since it was listed, as short-lived files go.
                Err(e) if is_not_there(&e) => continue,
                Err(e) => {
                    let on = format!("{}: {e}", dir.join(path.as_path()).display());
                    return Ok(Err(io::Error::new(e.kind(), on)));
                }
            };
            let limit = until.as_ref().filter(|(until, _)| until == path);
            let limit = limit.map(|(_, bytes)| *bytes);
            let part = read::file(file, path, limit, known, wish.thorough, budget, writer);
            match part.map_err(|e| e.on(&dir.join(path.as_path()))) {
                Ok((part, whole)) => {
                    kept.partial |= !whole;
                    kept.parts.push(part);
                }
                Err(ReadError::Transcript(e)) => return Ok(Err(e)),
                Err(ReadError::Store(e)) => return Err(e),
            }
        }
        let stamp = found.rows_stamp.as_ref().map_or("", |(stamp, _)| stamp);
        let rows = sqlite::read(dir, &found.tables, stamp, known, writer);
        match rows {
            Ok(parts) => kept.parts.extend(parts),
            // What an agent makes of a transcript is no reason not to keep the transcript.
            Err(ReadError::Transcript(_)) if found.tables.iter().all(|table| table.derived) => {}
            Err(ReadError::Transcript(e)) => return Ok(Err(e)),
            Err(ReadError::Store(e)) => return Err(e),
        }
        Ok(Ok(kept))
    }
}

/// One session may have files in several places.
fn add(all: &mut Vec<Found>, found: Found) {
    match all.iter_mut().find(|known| known.session == found.session) {
        Some(known) => {
            let new = found.files.into_iter().filter(|file| !known.files.contains(file));
            let new: Vec<TreePath> = new.collect();
            known.files.extend(new);
        }
        None => all.push(found),
    }
}

const fn known_home(dir: PathBuf) -> Home {
    Home { dir, is_other: false }
}

/// Where a file is below an agent's directory, which may have been named through a link.
pub(super) fn below(dir: &Path, file: &Path) -> Option<TreePath> {
    let within = match file.strip_prefix(dir) {
        Ok(within) => within.to_owned(),
        Err(_) => {
            let real = real(file.parent()?)?.ok()?;
            real.strip_prefix(dir).ok()?.join(file.file_name()?)
        }
    };
    TreePath::from_path(&within).ok().filter(|path| !path.is_root())
}

/// Reads the records of checkpoints for [`Book::seed`]; one that can't be read is passed over.
pub(crate) fn records<'a>(
    store: &'a Store,
    root: &'a str,
    newest_first: impl Iterator<Item = u64> + 'a,
) -> impl Iterator<Item = Vec<Kept>> + 'a {
    newest_first.filter_map(|n| {
        let tree = super::record::tree_of(store, root, n).ok()??;
        super::record::load(store, tree).ok()
    })
}
