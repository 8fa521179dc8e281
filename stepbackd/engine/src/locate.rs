//! Which store a root's checkpoints are in, and which roots are known.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

use crate::error::{At, Error, Result};
use crate::head;
use crate::oid::Oid;
use crate::path::for_shell;
use crate::record;
use crate::salvage::{self, Place};
use crate::state::{self, AbsolutePath, Identity, RootRecord};
use crate::store::Store;
use crate::time::Time;

/// The most bytes of the directory's name in a root's id or a store's name.
const NAME_BYTES_MAX: usize = 24;

/// The part of a directory's name that ids and store names carry.
fn short_name(path: &Path) -> String {
    let name = path
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    let kept: String = name
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
        .take(NAME_BYTES_MAX)
        .collect();
    let kept = kept.trim_start_matches('-');
    if kept.is_empty() {
        "root".into()
    } else {
        kept.to_owned()
    }
}

fn digits_of(path: &Path, identity: &Identity, now: Time, round: u32) -> String {
    use std::os::unix::ffi::OsStrExt;
    let mut hasher = Sha1::new();
    hasher.update(path.as_os_str().as_bytes());
    hasher.update(format!(
        "\0{identity:?}\0{}\0{round}\0{}",
        now.0,
        std::process::id()
    ));
    Oid(hasher.finalize().into()).to_string()[..8].to_owned()
}

/// A new root's id: its name, `-`, 8 hexadecimal digits.
#[must_use]
pub fn new_root_id(path: &Path, identity: &Identity, now: Time) -> String {
    format!("{}-{}", short_name(path), digits_of(path, identity, now, 0))
}

/// All stores below `state`.
///
/// # Errors
/// When the directory of stores can't be listed.
pub fn stores(state: &Path) -> Result<Vec<PathBuf>> {
    let dir = state.join("stores");
    let entries = match fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e).at(&dir),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.at(&dir)?.path();
        if path.extension().is_some_and(|e| e == "git") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// A root that a store knows.
#[derive(Debug, Clone)]
pub struct KnownRoot {
    /// The store.
    pub store: PathBuf,
    /// Its record.
    pub record: RootRecord,
    /// The record was damaged or missing, and is built anew: what was wrong and what is lost.
    pub rebuilt: Option<String>,
}

/// A store, or a record in it, that can't be read.
#[derive(Debug)]
pub struct Unreadable {
    /// The store.
    pub store: PathBuf,
    /// Why.
    pub error: Error,
}

/// The records of all roots in all stores, and what of them can't be read: one bad store must not hold up the others.
///
/// # Errors
/// When the directory of stores can't be listed.
pub fn known_roots(state: &Path) -> Result<(Vec<KnownRoot>, Vec<Unreadable>)> {
    let (mut known, mut unreadable) = (Vec::new(), Vec::new());
    for path in stores(state)? {
        let mut bad = |error| {
            unreadable.push(Unreadable {
                store: path.clone(),
                error,
            });
        };
        match roots_in(&path) {
            Ok(roots) => roots.into_iter().for_each(|root| match root {
                Ok(root) => known.push(root),
                Err(error) => bad(error),
            }),
            Err(error) => bad(error),
        }
    }
    Ok((known, unreadable))
}

fn roots_in(path: &Path) -> Result<Vec<Result<KnownRoot>>> {
    let store = Store::open(path)?;
    let ids = salvage::root_ids(&store)?;
    Ok(ids.into_iter().map(|id| root_in(&store, &id)).collect())
}

/// The record of one root, as it stands in the store.
///
/// # Errors
/// [`Error::DamagedRecord`] when it is missing or can't be read.
pub fn read_record(store: &Store, id: &str) -> Result<RootRecord> {
    let name = state::ref_name(id);
    let read = || match store.read_ref(&name)? {
        Some(commit) => record::parse(store, commit, &store.read_commit(commit)?.message),
        None => Err(Error::Damaged {
            store: store.path().to_owned(),
            what: format!("{name} is missing"),
        }),
    };
    read().map_err(|error| match error {
        Error::Damaged { store: path, what } => Error::DamagedRecord {
            store: path,
            what: format!("the record of root {id}: {what}"),
            hint: match salvage::path_of(store, id) {
                Some(path) => format!(
                    "`stepback attach --here {}` builds it anew from its checkpoints",
                    for_shell(&path)
                ),
                None => "`stepback attach` in its directory builds it anew from its checkpoints".into(),
            },
        },
        other => other,
    })
}

fn root_in(store: &Store, id: &str) -> Result<KnownRoot> {
    let known = |record, rebuilt| KnownRoot {
        store: store.path().to_owned(),
        record,
        rebuilt,
    };
    match read_record(store, id) {
        Ok(record) => Ok(known(record, None)),
        Err(error @ Error::DamagedRecord { .. }) => {
            let place = Origin::read(store.path()).and_then(|origin| origin.place_of(id));
            match salvage::salvage(store, id, place)? {
                Some(salvaged) => {
                    let rebuilt = format!("{error}; it is built anew, lost is: {}", salvaged.lost);
                    Ok(known(salvaged.record, Some(rebuilt)))
                }
                None => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// Which repository a store was made for: kept in `STORE/stepback/origin.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Origin {
    path: AbsolutePath,
    identity: Identity,
}

/// The identity of no directory.
const NOTHING: Identity = Identity {
    ino: 0,
    born_ns: None,
    fsid: None,
    volume: None,
};

const ORIGIN: &str = "stepback/origin.json";

impl Origin {
    /// Of the store that the root at `root` has, or would get.
    fn of(root: &Path) -> Result<Self> {
        let shared = head::git_dir(root)
            .map(|git| head::common_dir(&git))
            .and_then(|dir| fs::canonicalize(dir).ok());
        let path = shared.unwrap_or_else(|| root.to_owned());
        let identity = Identity::at(&path)?.ok_or_else(|| Error::RootMissing(path.clone()))?;
        Ok(Self {
            path: AbsolutePath(path),
            identity,
        })
    }

    /// Whether a store that was made for the one is that of the other.
    fn shares_with(&self, other: &Self) -> bool {
        self.identity.is(&other.identity) && (other.identity.is_certain() || self.path == other.path)
    }

    /// Where root `id` of a store that was made for this is, as far as that can be told: the first worktree of a
    /// repository by its name; which directory it is by its repository.
    fn place_of(&self, id: &str) -> Option<Place> {
        let path = &self.path.0;
        if path.file_name().is_none_or(|name| name != ".git") {
            return Some(Place {
                path: path.clone(),
                identity: self.identity,
            });
        }
        let top = path.parent()?;
        let name = id.rsplit_once('-')?.0;
        let of = |path| Identity::at(path).ok()?;
        (name == short_name(top)).then(|| Place {
            path: top.to_owned(),
            identity: if of(path).is_some_and(|found: Identity| found.is(&self.identity)) {
                of(top)
            } else {
                None
            }
            .unwrap_or(NOTHING),
        })
    }

    /// Of a store; `None` when it doesn't say.
    fn read(store: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(store.join(ORIGIN)).ok()?).ok()
    }
}

/// Whether `store` is the one that the root at `root` has, or would get.
///
/// # Errors
/// When the root can't be looked at.
pub fn is_store_of(store: &Path, root: &Path) -> Result<bool> {
    let origin = Origin::of(root)?;
    Ok(Origin::read(store).is_some_and(|found| found.shares_with(&origin)))
}

/// Opens the store for a new root: that of its repository's other worktrees if there is one, else a new one. One that is
/// damaged is passed over when all is to begin `anew`.
///
/// # Errors
/// Those of the stores.
pub fn store_for(state: &Path, root: &Path, anew: bool, now: Time) -> Result<Store> {
    let origin = Origin::of(root)?;
    for path in stores(state)? {
        if Origin::read(&path).is_some_and(|found| found.shares_with(&origin)) {
            match Store::open(&path) {
                Err(Error::Damaged { .. } | Error::DamagedRecord { .. }) if anew => {}
                opened => return opened,
            }
        }
    }
    let is_git = origin.path.0.file_name().is_some_and(|n| n == ".git");
    let name_of = if is_git {
        origin.path.0.parent().unwrap_or(root)
    } else {
        root
    };
    let dir = (0u32..)
        .map(|round| {
            let digits = digits_of(&origin.path.0, &origin.identity, now, round);
            state
                .join("stores")
                .join(format!("{}-{digits}.git", short_name(name_of)))
        })
        .find(|dir| !dir.exists())
        .expect("there are more names than stores");
    // Made under another name: one that a crash leaves half made is no store.
    let unfinished = aside(&dir);
    remove_dir(&unfinished)?;
    Store::create(&unfinished)?;
    let json = serde_json::to_vec(&origin).expect("an origin is plain data");
    crate::durable::write(&unfinished.join(ORIGIN), &json)?;
    fs::rename(&unfinished, &dir).at(&dir)?;
    crate::durable::sync_dir_of(&dir)?;
    Store::open(&dir)
}

/// Removes a whole store: by one rename first, so that a crash leaves it or takes it.
///
/// # Errors
/// What the system says.
pub fn remove_store(dir: &Path) -> Result<()> {
    let going = aside(dir);
    remove_dir(&going)?;
    fs::rename(dir, &going).at(dir)?;
    crate::store::size::forget(dir);
    crate::durable::sync_dir_of(dir)?;
    remove_dir(&going)
}

/// Removes what making or removing a store left when it was interrupted.
///
/// # Errors
/// What the system says.
pub fn remove_leftovers(state: &Path) -> Result<()> {
    let dir = state.join("stores");
    let entries = match fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e).at(&dir),
    };
    for entry in entries {
        let path = entry.at(&dir)?.path();
        if path.extension().is_some_and(|e| e == ASIDE) {
            remove_dir(&path)?;
        }
    }
    Ok(())
}

const ASIDE: &str = "tmp";

fn aside(store: &Path) -> PathBuf {
    store.with_extension(ASIDE)
}

fn remove_dir(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e).at(dir),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_short_and_plain() {
        let identity = Identity {
            ino: 1,
            born_ns: None,
            fsid: None,
            volume: None,
        };
        let id = new_root_id(
            Path::new("/x/--naïve project with a very long name"),
            &identity,
            Time(0),
        );
        assert!(id.starts_with("naveprojectwithavery"), "{id}");
        assert!(id.len() <= 33);
        assert!(new_root_id(Path::new("/x/日本"), &identity, Time(0)).starts_with("root-"));
    }
}
