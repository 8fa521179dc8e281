//! Finding or making a root, its presence, forgetting it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::{Engine, Environment, Settings};
use crate::checkpoint;
use crate::error::{At, Error, Result};
use crate::head::{GitChange, GitSighting};
use crate::locate::{self, KnownRoot};
use crate::node::CommonModes;
use crate::place_check::{self, Owners};
use crate::record::Head;
use crate::rules;
use crate::salvage;
use crate::state::{self, AbsolutePath, Identity, RootRecord, Sighting};
use crate::time::Time;

/// What `attach` asks.
#[derive(Debug, Clone, Default)]
pub struct AttachRequest {
    /// Absolute.
    pub path: PathBuf,
    /// Exactly this directory, not the top level of its work tree.
    pub here: bool,
    /// Replaces the earlier include patterns when not empty.
    pub include: Vec<String>,
    /// Replaces the earlier size cap.
    pub max_file_size: Option<u64>,
    /// Attach also what is refused for its place or size.
    pub force: bool,
    /// Replaced root: start anew.
    pub new: bool,
    /// Replaced root: continue.
    pub yes: bool,
}

impl AttachRequest {
    /// The directory that it means: [`Self::path`] or the top level of its work tree, without symlinks.
    ///
    /// # Errors
    /// When it isn't there or can't be reached.
    pub fn directory(&self) -> Result<PathBuf> {
        let asked = fs::canonicalize(&self.path).at(&self.path)?;
        Ok(match place_check::work_tree_top(&asked) {
            Some(top) if !self.here => top,
            _ => asked,
        })
    }
}

/// What `attach` found. No scan was made: a capture with `Trigger::Attach` comes next, and makes it durable.
#[derive(Debug)]
pub struct Found {
    /// The engine of the root.
    pub engine: Engine,
    /// No store knew the root. If its first capture fails, [`Engine::forget_all`] leaves nothing behind.
    pub created: bool,
    /// For people: continued history, moved root.
    pub notes: Vec<String>,
}

/// What the deletion of all of a root's checkpoints gave back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deleted {
    /// What the store's disk use fell by, in bytes.
    pub freed_bytes: u64,
    /// Why the space of what is gone isn't free yet, if it isn't.
    pub unreclaimed: Option<String>,
}

/// Is the directory the one that was attached?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Yes.
    Here,
    /// Nothing is there, or a mount point without its mount.
    Missing,
    /// Another directory is there.
    Replaced,
}

/// Where a root is and which directory it is: enough to see whether it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whereabouts {
    /// Where.
    pub path: PathBuf,
    /// Which directory.
    pub identity: Identity,
    /// It was a mount point when it was seen last.
    pub mount_point: bool,
    /// Its git repository when it was attached last.
    pub git: Option<GitSighting>,
}

impl Whereabouts {
    /// Is the directory the one that was attached? One or two stats.
    #[must_use]
    pub fn presence(&self) -> Presence {
        match Identity::at(&self.path) {
            Ok(Some(identity)) if identity.is(&self.identity) => Presence::Here,
            Ok(Some(_)) if self.mount_point && !is_mount_point(&self.path) => Presence::Missing,
            Ok(Some(_)) => Presence::Replaced,
            Ok(None) | Err(_) => Presence::Missing,
        }
    }

    /// How its git repository differs from the one that it had when it was attached last, as far as that is known.
    #[must_use]
    pub fn git_change(&self) -> Option<GitChange> {
        self.git?.change_to(GitSighting::of(&self.path)?)
    }
}

fn is_mount_point(path: &Path) -> bool {
    matches!(Sighting::of(path), Ok(Some(sighting)) if sighting.mount_point)
}

/// Two roots of one repository must not make two stores for it.
static ATTACHING: Mutex<()> = Mutex::new(());

impl Engine {
    /// Finds or makes the root and its store.
    ///
    /// # Errors
    /// [`Error::BadPattern`]; [`Error::RefusedRoot`] for places that aren't projects; [`Error::RootReplaced`] when another directory is in the
    /// place of a known root and the request doesn't say what that means; those of the stores.
    pub fn attach(
        env: &Environment,
        request: &AttachRequest,
        settings: &Settings,
        now: Time,
    ) -> Result<Found> {
        for pattern in &request.include {
            rules::check_include(pattern).map_err(|why| Error::BadPattern {
                pattern: pattern.clone(),
                why,
            })?;
        }
        let asked = fs::canonicalize(&request.path).at(&request.path)?;
        let path = request.directory()?;
        let sighting = Sighting::of(&path)?
            .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotADirectory))
            .at(&path)?;
        let owners = Owners {
            ours: &env.own_dirs().collect::<Vec<_>>(),
            home: env.git.home.as_deref(),
        };
        place_check::check_place(&path, &asked, owners, request.force)?;
        let git = GitSighting::of(&path);
        let mut notes = Vec::new();
        let mut elsewhere = BTreeMap::new();
        let (_one_at_a_time, known) = loop {
            let turn = ATTACHING
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            match find_known(env, &path, &sighting, request, &elsewhere, &mut notes)? {
                Search::Known(known) => break (turn, Some(*known)),
                Search::New => break (turn, None),
                Search::Look(old_path) => {
                    // Its file system may not answer, which is no matter of those who wait for their turn.
                    drop(turn);
                    let found = Identity::at(&old_path)?;
                    let is_there = found.is_some_and(|found| found.is(&sighting.identity));
                    elsewhere.insert(old_path, is_there);
                    notes.clear();
                }
            }
        };
        locate::remove_leftovers(&env.state_dir)?;
        let mut engine = match known {
            Some(known) => {
                let mut engine = Self::load_known(env, &known, settings)?;
                notes.extend(known.rebuilt);
                engine.path = path.clone();
                engine.note_sighting(&sighting)?;
                engine.record.git = git;
                engine.record.mounts = None;
                engine.record.git_dirs.clear();
                engine
            }
            None => Self::make(env, &path, &sighting, settings, request.new, now)?,
        };
        // One that was never captured is as good as new. A record alone doesn't tell: it may be older than a checkpoint.
        let created = engine.record.highest == 0;
        if !request.include.is_empty() {
            engine.record.include.clone_from(&request.include);
        }
        engine.forced = request.force;
        if request.max_file_size.is_some() {
            engine.record.max_file_size = request.max_file_size;
        }
        // Also that of a new root, before anybody else may look at the store: it keeps the store from being taken for one
        // that no root uses.
        engine.write_record(now)?;
        Ok(Found {
            engine,
            created,
            notes,
        })
    }

    /// Opens a known root at daemon start: no scan, no change.
    ///
    /// # Errors
    /// Those of the store; [`Error::Damaged`] when it doesn't know the root.
    pub fn open(env: &Environment, store: &Path, id: &str, settings: &Settings) -> Result<Self> {
        Self::load(env, store, id, settings)
    }

    /// Opens the root that some store knows by this path, without looking at the directory: it may be gone.
    ///
    /// # Errors
    /// Those of the stores.
    pub fn find(env: &Environment, path: &Path, settings: &Settings) -> Result<Option<Self>> {
        let (known, _) = locate::known_roots(&env.state_dir)?;
        let newest = known
            .into_iter()
            .filter(|known| known.record.path.0 == path)
            .max_by_key(|known| known.record.attached);
        newest
            .map(|known| Self::load_known(env, &known, settings))
            .transpose()
    }

    fn make(
        env: &Environment,
        path: &Path,
        sighting: &Sighting,
        settings: &Settings,
        anew: bool,
        now: Time,
    ) -> Result<Self> {
        let store = locate::store_for(&env.state_dir, path, anew, now)?;
        let parent = path.parent().unwrap_or(path);
        let record = RootRecord {
            head: Head::of(&locate::new_root_id(path, &sighting.identity, now)),
            path: AbsolutePath(path.to_owned()),
            identity: sighting.identity,
            mount_point: sighting.mount_point,
            parent_fsid: state::file_system_id(parent)?,
            attached: now,
            include: Vec::new(),
            max_file_size: None,
            forgotten: Vec::new(),
            modes: CommonModes::DEFAULT,
            highest: 0,
            highest_redo: 0,
            position: None,
            git: GitSighting::of(path),
            mounts: None,
            git_dirs: BTreeSet::new(),
        };
        Self::with_record(env, store, record, settings)
    }

    /// Is the directory the one that was attached? One or two stats.
    #[must_use]
    pub fn presence(&self) -> Presence {
        self.whereabouts().presence()
    }

    /// Where the root is and which directory it is, for those who look without the engine.
    #[must_use]
    pub fn whereabouts(&self) -> Whereabouts {
        Whereabouts {
            path: self.path.clone(),
            identity: self.record.identity,
            mount_point: self.record.mount_point,
            git: self.record.git,
        }
    }

    /// Takes the directory in the place of the root for the root: an operation on a root around it made it. Nothing when
    /// it is the root already.
    ///
    /// # Errors
    /// [`Error::RootMissing`]; those of the store.
    pub fn continue_in_remade(&mut self, now: Time) -> Result<()> {
        if self.presence() != Presence::Replaced {
            return self.require_presence();
        }
        self.note_made_root()?;
        self.write_record(now)
    }

    /// Records where and what the root's directory is now.
    pub(super) fn note_sighting(&mut self, sighting: &Sighting) -> Result<()> {
        self.record.path = AbsolutePath(self.path.clone());
        self.record.identity = sighting.identity;
        self.record.mount_point = sighting.mount_point;
        self.record.parent_fsid = state::file_system_id(self.path.parent().unwrap_or(&self.path))?;
        Ok(())
    }

    /// Deletes all refs, side data and caches of this root, and the store when no other root uses it.
    ///
    /// # Errors
    /// Those of the store. What is left then is found by the next try.
    pub fn forget_all(self) -> Result<Deleted> {
        let _no_attach_meanwhile = ATTACHING
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let id = self.id().to_owned();
        self.remove_cache()?;
        let others = salvage::root_ids(&self.store)?.iter().any(|other| *other != id);
        let before = self.store.disk_bytes()?;
        if !others {
            let path = self.store.path().to_owned();
            drop(self);
            locate::remove_store(&path)?;
            return Ok(Deleted {
                freed_bytes: before,
                unreclaimed: None,
            });
        }
        // The record goes last: while it is there, another try finds the rest.
        let record = state::ref_name(&id);
        let mut refs = self.store.all_refs(&checkpoint::refs_prefix(&id))?;
        refs.extend(self.store.all_refs(&format!("refs/stepback/{id}/"))?);
        let names: Vec<&str> = refs
            .keys()
            .map(String::as_str)
            .filter(|name| *name != record)
            .collect();
        self.store.delete_refs(&names)?;
        self.store.delete_ref(&record)?;
        let dir = self.store.root_dir(&id)?;
        fs::remove_dir_all(&dir).at(&dir)?;
        // The other roots' contents are in the same store: what only this one had must not stay among them.
        let git = &self.env.git;
        let collected = self.store.collect_garbage(
            git.program.as_deref(),
            git.path.as_deref(),
            git.children.packing(),
        );
        Ok(Deleted {
            freed_bytes: before.saturating_sub(self.store.disk_bytes()?),
            unreclaimed: collected.err().map(|e| e.with_remedy()),
        })
    }
}

/// What all pin refs of a root begin with.
pub(super) fn pins_prefix(root: &str) -> String {
    format!("refs/stepback/{root}/pin/")
}

/// Which known root a directory is.
enum Search {
    Known(Box<KnownRoot>),
    New,
    /// That depends on whether it is still there, too.
    Look(PathBuf),
}

/// The known root that `path` is, if any; what people should know of it goes to `notes`. `elsewhere`: whether the
/// directory is still at these paths.
fn find_known(
    env: &Environment,
    path: &Path,
    sighting: &Sighting,
    request: &AttachRequest,
    elsewhere: &BTreeMap<PathBuf, bool>,
    notes: &mut Vec<String>,
) -> Result<Search> {
    let found = |known: &KnownRoot| Ok(Search::Known(Box::new(known.clone())));
    let (known, unreadable) = locate::known_roots(&env.state_dir)?;
    let same: Vec<&KnownRoot> = known
        .iter()
        .filter(|k| k.record.identity.is(&sighting.identity))
        .collect();
    if let Some(here) = same.iter().find(|k| k.record.path.0 == path) {
        return found(here);
    }
    // Of a file system that gives its directories no name of their own, one isn't known again elsewhere.
    for candidate in same.into_iter().filter(|_| sighting.identity.is_certain()) {
        let old_path = &candidate.record.path.0;
        match elsewhere.get(old_path) {
            None => return Ok(Search::Look(old_path.clone())),
            Some(true) => {}
            Some(false) => {
                notes.push(format!(
                    "the directory was {} before: its history goes on here",
                    old_path.display()
                ));
                return found(candidate);
            }
        }
    }
    let in_its_place = known
        .iter()
        .filter(|k| k.record.path.0 == path)
        .max_by_key(|k| k.record.attached);
    match in_its_place {
        Some(_) if request.new => {
            notes.push("a new history begins; that of the directory which was here before is kept".into());
            Ok(Search::New)
        }
        Some(other) if request.yes => {
            notes.push("the history of the directory which was here before goes on".into());
            found(other)
        }
        Some(_) => Err(Error::RootReplaced(path.to_owned())),
        None => {
            for bad in unreadable {
                // This may be the history that is looked for: a new one in its place would hide it.
                if !request.new && locate::is_store_of(&bad.store, path)? {
                    return Err(bad.error);
                }
                notes.push(format!("something in a store can't be read: {}", bad.error));
            }
            Ok(Search::New)
        }
    }
}
