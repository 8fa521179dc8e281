//! A root's record, built anew when the one in the store is gone or can't be read: from a copy of what changes seldom,
//! `STORE/stepback/<root id>/root.json`, and from what the other refs of the root say. No number is given twice.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::checkpoint;
use crate::durable;
use crate::error::{At, Result};
use crate::node::CommonModes;
use crate::record::{Head, number};
use crate::redo::{self, RedoEntry};
use crate::restore;
use crate::session::{self, Session};
use crate::state::{self, AbsolutePath, Identity, RootRecord, Sighting};
use crate::store::Store;
use crate::time::Time;

const COPY: &str = "root.json";

/// A record that was built anew.
#[derive(Debug, Clone)]
pub struct Salvaged {
    /// It.
    pub record: RootRecord,
    /// What of the old one isn't known any more.
    pub lost: &'static str,
}

/// Where a root is, when no copy tells: what its store was made for.
#[derive(Debug)]
pub struct Place {
    /// Where.
    pub path: PathBuf,
    /// Which directory; that of nothing when it can't be told.
    pub identity: Identity,
}

/// What of a record changes seldom: all but the numbers and the position, which every checkpoint changes.
#[must_use]
pub fn constant_part(record: &RootRecord) -> RootRecord {
    RootRecord {
        highest: 0,
        highest_redo: 0,
        position: None,
        ..record.clone()
    }
}

/// Writes the copy, into the root's directory of the store.
///
/// # Errors
/// What the system says.
pub fn keep_copy(dir: &Path, part: &RootRecord) -> Result<()> {
    let json = serde_json::to_vec(part).expect("a record has text keys and no failing fields");
    durable::write(&dir.join(COPY), &json)
}

/// The copy; `None` when there is none that can be read.
fn copy(dir: &Path, id: &str) -> Result<Option<RootRecord>> {
    let file = dir.join(COPY);
    match fs::read(&file) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)
            .ok()
            .filter(|record: &RootRecord| record.head.root == id)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).at(file),
    }
}

/// Where the copy says that the root is.
pub fn path_of(store: &Store, id: &str) -> Option<PathBuf> {
    Some(copy(&store.root_dir(id).ok()?, id).ok()??.path.0)
}

/// Ids of all roots that have a ref in the store, with or without a record.
///
/// # Errors
/// When the refs can't be listed.
pub fn root_ids(store: &Store) -> Result<BTreeSet<String>> {
    let mut ids = BTreeSet::new();
    for space in ["refs/checkpoints/", "refs/stepback/"] {
        let names = store.all_refs(space)?.into_keys();
        ids.extend(names.filter_map(|name| Some(name[space.len()..].split_once('/')?.0.to_owned())));
    }
    Ok(ids)
}

/// Builds the record of root `id` anew; `None` when neither a copy nor `place` says where the root is.
///
/// # Errors
/// When the refs or the copy can't be read.
pub fn salvage(store: &Store, id: &str, place: Option<Place>) -> Result<Option<Salvaged>> {
    let dir = store.root_dir(id)?;
    let (mut record, lost) = match (copy(&dir, id)?, place) {
        (Some(record), _) => (record, "where the tree stood"),
        (None, Some(place)) => (
            from_place(id, place)?,
            "where the tree stood, include patterns, the size cap and forgotten paths given on the command line",
        ),
        (None, None) => return Ok(None),
    };
    let mut newest = None;
    for (name, commit) in store.all_refs(&checkpoint::refs_prefix(id))? {
        let Some(n) = number(&name) else { continue };
        record.highest = record.highest.max(n);
        if let Some(modes) = commit
            .ok()
            .and_then(|commit| checkpoint::modes(store, commit).ok())
            && newest.is_none_or(|(known, _)| known < n)
        {
            newest = Some((n, modes));
        }
    }
    if let Some((n, modes)) = newest {
        record.position = Some(n);
        record.modes = modes;
    }
    for (name, commit) in store.all_refs(&format!("refs/stepback/{id}/"))? {
        let commit = commit.ok();
        if name.starts_with(&redo::refs_prefix(id)) {
            record.highest_redo = record.highest_redo.max(number(&name).unwrap_or(0));
            if let Some(entry) = commit.and_then(|commit| RedoEntry::load(store, commit).ok()) {
                record.highest = record.highest.max(entry.target).max(entry.before);
            }
        } else if name.starts_with(&session::refs_prefix(id)) {
            if let Some(session) = commit.and_then(|commit| Session::load(store, commit).ok()) {
                record.highest = record.highest.max(session.start).max(session.end.unwrap_or(0));
            }
        } else {
            // Side records, conversations, pins: each is named by the number of its checkpoint.
            record.highest = record.highest.max(number(&name).unwrap_or(0));
        }
    }
    if let Ok(Some(header)) = restore::unfinished(&dir) {
        record.highest = record.highest.max(header.target).max(header.saved.unwrap_or(0));
        record.highest_redo = record.highest_redo.max(header.redo.unwrap_or(0));
    }
    Ok(Some(Salvaged { record, lost }))
}

fn from_place(id: &str, place: Place) -> Result<RootRecord> {
    let parent = place.path.parent().unwrap_or(&place.path);
    Ok(RootRecord {
        head: Head::of(id),
        identity: place.identity,
        mount_point: Sighting::of(&place.path)?.is_some_and(|sighting| sighting.mount_point),
        parent_fsid: if parent.is_dir() {
            state::file_system_id(parent)?
        } else {
            0
        },
        path: AbsolutePath(place.path),
        attached: Time(0),
        include: Vec::new(),
        max_file_size: None,
        forgotten: Vec::new(),
        modes: CommonModes::DEFAULT,
        highest: 0,
        highest_redo: 0,
        position: None,
        git: None,
        mounts: None,
        git_dirs: BTreeSet::new(),
    })
}
