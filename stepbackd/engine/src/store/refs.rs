//! Refs: one file each below `refs`, and `packed-refs`, as git has them. Changes are one at a time, under a lock of the
//! store, and durable when they return.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use super::Store;
use super::ahead::Batch;
use super::files;
use super::lock;
use super::packed_refs::{self, Packed};
use super::prepared_refs::{PreparedRefs, RefChange};
use super::ref_file::{Found, check_name, lock_file, read_loose, refused, remove_empty_dirs};
use super::verify::Finding;
use crate::error::{At, Error, Result};
use crate::fault;
use crate::oid::Oid;

/// More than so many refs at once go to `packed-refs`.
const SET_EACH_MAX: usize = 32;

/// What [`Store::set_ref`] expects to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// No such ref.
    Absent,
    /// This.
    Is(Oid),
    /// Whatever is there, a broken ref included.
    Any,
}

impl Store {
    /// All refs whose names begin with `prefix`, sorted by name.
    ///
    /// # Errors
    /// [`Error::Damaged`], naming the ref, when one is broken.
    pub fn refs(&self, prefix: &str) -> Result<Vec<(String, Oid)>> {
        let found = self.all_refs(prefix)?;
        found
            .into_iter()
            .map(|(name, oid)| oid.map_err(|how| self.broken(&name, &how)).map(|oid| (name, oid)))
            .collect()
    }

    /// As [`Store::refs`], broken ones included.
    ///
    /// # Errors
    /// When a directory, or the file of packed refs, can't be read.
    pub fn all_refs(&self, prefix: &str) -> Result<BTreeMap<String, Found>> {
        let mut found = BTreeMap::new();
        // Loose ones first: whoever packs refs writes the packed ones before it removes these.
        self.walk_refs("refs", prefix, &mut found)?;
        let packed = packed_refs::read(&self.dir, &self.packed_refs)?;
        for (name, oid) in packed
            .refs
            .range(prefix.to_owned()..)
            .take_while(|(name, _)| name.starts_with(prefix))
        {
            found.entry(name.clone()).or_insert(Ok(*oid));
        }
        for broken in &packed.broken {
            // Which ref it was may be unknown: then whoever asks for all of them is told.
            let (name, how) = match &broken.name {
                Some(name) => (name.clone(), broken.how()),
                None => (
                    format!("refs/ in line {} of packed-refs", broken.number),
                    "can't be read".into(),
                ),
            };
            if name.starts_with(prefix) {
                found.entry(name).or_insert(Err(how));
            }
        }
        Ok(found)
    }

    /// Refs below a prefix that can't be read, or whose commit can't be, and how.
    ///
    /// # Errors
    /// When a directory can't be read.
    pub fn unreadable_refs(&self, prefix: &str) -> Result<BTreeMap<String, String>> {
        let mut found = BTreeMap::new();
        for (name, value) in self.all_refs(prefix)? {
            let how = match value {
                Ok(commit) => match self.read_commit(commit) {
                    Ok(_) => continue,
                    Err(error @ Error::Damaged { .. }) => error.to_string(),
                    Err(error) => return Err(error),
                },
                Err(how) => how,
            };
            found.insert(name, how);
        }
        Ok(found)
    }

    fn walk_refs(&self, below: &str, prefix: &str, found: &mut BTreeMap<String, Found>) -> Result<()> {
        let dir = self.dir.join(below);
        let entries = match std::fs::read_dir(&dir) {
            Err(error) if files::is_absent(&error) => return Ok(()),
            other => other.at(&dir)?,
        };
        for entry in entries {
            let entry = entry.at(&dir)?;
            let (part, path) = (entry.file_name(), entry.path());
            let name = format!("{below}/{}", part.to_string_lossy());
            if entry.file_type().at(&path)?.is_dir() {
                let dir = format!("{name}/");
                if dir.starts_with(prefix) || prefix.starts_with(&dir) {
                    self.walk_refs(&name, prefix, found)?;
                }
            } else if name.starts_with(prefix) && !name.ends_with(".lock") {
                if part.to_str().is_none() {
                    found.insert(name, Err("has a name that isn't UTF-8".into()));
                } else if let Some(oid) = read_loose(&path)? {
                    found.insert(name, oid);
                }
            }
        }
        Ok(())
    }

    /// One ref; `None` when there is none.
    ///
    /// # Errors
    /// [`Error::Damaged`], naming the ref, when it is broken.
    pub fn read_ref(&self, name: &str) -> Result<Option<Oid>> {
        check_name(name)?;
        match self.find_ref(name)? {
            Some(found) => found.map(Some).map_err(|how| self.broken(name, &how)),
            None => Ok(None),
        }
    }

    fn find_ref(&self, name: &str) -> Result<Option<Found>> {
        if let Some(found) = read_loose(&self.dir.join(name))? {
            return Ok(Some(found));
        }
        let packed = packed_refs::read(&self.dir, &self.packed_refs)?;
        if let Some(oid) = packed.refs.get(name) {
            return Ok(Some(Ok(*oid)));
        }
        let broken = packed
            .broken
            .iter()
            .find(|broken| broken.name.as_deref() == Some(name));
        Ok(broken.map(|broken| Err(broken.how())))
    }

    fn broken(&self, name: &str, how: &str) -> Error {
        Error::Damaged {
            store: self.dir.clone(),
            what: format!("ref {name} {how}"),
        }
    }

    /// Makes a ref point to `new` if it is as `expected`. On a crash it is the old or the new one; durable when this
    /// returns.
    ///
    /// # Errors
    /// [`Error::Refused`] when it isn't as expected, its name isn't one, or another ref stands where a directory above or
    /// below it would.
    pub fn set_ref(&self, name: &str, new: Oid, expected: Expected) -> Result<()> {
        let mut prepared = self.prepare_refs(&[RefChange { name, new, expected }])?;
        let mut batch = Batch::default();
        batch.set(name, new);
        if self.ahead.append(&batch)? {
            prepared.are_ahead(&self.ahead);
        } else {
            self.ahead.settle(false)?;
            files::sync_files(&prepared.files())?;
        }
        prepared.publish()
    }

    /// Writes the new values beside the refs, not durable yet.
    pub(super) fn prepare_refs(&self, changes: &[RefChange<'_>]) -> Result<PreparedRefs> {
        changes.iter().try_for_each(|change| check_name(change.name))?;
        let mut prepared = PreparedRefs {
            waiting: VecDeque::with_capacity(changes.len()),
            ahead: None,
            _serial: match changes {
                [] => None,
                _ => Some(self.lock_refs()?),
            },
        };
        for change in changes {
            self.expect(change)?;
            let path = self.make_room(change.name)?;
            fault::point("store.ref").at(&path)?;
            let mut temp = lock_file(&path)?;
            temp.write_all(format!("{}\n", change.new).as_bytes())?;
            self.size.add_file(1);
            prepared.waiting.push_back((path, temp));
        }
        Ok(prepared)
    }

    fn expect(&self, change: &RefChange<'_>) -> Result<()> {
        let RefChange { name, expected, .. } = change;
        if *expected == Expected::Any {
            return Ok(());
        }
        match (self.find_ref(name)?, *expected) {
            (_, Expected::Any) | (None, Expected::Absent) => Ok(()),
            (Some(Ok(oid)), Expected::Is(wanted)) if oid == wanted => Ok(()),
            (Some(Err(how)), _) => Err(self.broken(name, &how)),
            (found, _) => {
                let found = found
                    .and_then(Result::ok)
                    .map_or("is gone".into(), |oid| format!("is {oid} now"));
                Err(refused(
                    &format!("ref {name} {found}"),
                    "somebody else has changed it; try again",
                ))
            }
        }
    }

    /// Makes refs that may be there already point elsewhere: one by one in this order when they are few, else with as few
    /// barriers as possible, and the first before the others. On a crash each is the old or the new one; durable when
    /// this returns.
    ///
    /// # Errors
    /// As [`Store::set_ref`].
    pub fn set_refs(&self, refs: &[(String, Oid)]) -> Result<()> {
        let (first, rest) = match refs.split_first() {
            Some((first, rest)) if refs.len() > SET_EACH_MAX => (std::slice::from_ref(first), rest),
            _ => (refs, &[][..]),
        };
        for (name, oid) in first {
            self.set_ref(name, *oid, Expected::Any)?;
        }
        if rest.is_empty() {
            return Ok(());
        }
        rest.iter().try_for_each(|(name, _)| check_name(name))?;
        let _serial = self.lock_refs()?;
        self.ahead.settle(false)?;
        // A ref's own file stands before the packed one, so each changes when its file goes.
        let mut packed = Packed::clone(&*packed_refs::read(&self.dir, &self.packed_refs)?);
        packed.refs.extend(rest.iter().cloned());
        packed_refs::write(&self.dir, &packed)?;
        let names: Vec<&str> = rest.iter().map(|(name, _)| name.as_str()).collect();
        self.remove_loose(&names, true)
    }

    /// Refs that have a file of their own.
    ///
    /// # Errors
    /// When a directory can't be read.
    pub fn loose_refs(&self) -> Result<usize> {
        let mut found = BTreeMap::new();
        self.walk_refs("refs", "refs/", &mut found)?;
        Ok(found.len())
    }

    /// Makes the directories above a ref's file, and takes empty ones out of its place.
    pub(super) fn make_room(&self, name: &str) -> Result<PathBuf> {
        let conflict = |other: &str| {
            refused(
                &format!("ref {name} can't stand beside ref {other}"),
                "use another name",
            )
        };
        let packed = packed_refs::read(&self.dir, &self.packed_refs)?;
        let below = format!("{name}/");
        if let Some((other, _)) = packed
            .refs
            .range(below.clone()..)
            .next()
            .filter(|(other, _)| other.starts_with(&below))
        {
            return Err(conflict(other));
        }
        for (slash, _) in name.match_indices('/').skip(1) {
            let above = &name[..slash];
            let dir = self.dir.join(above);
            // The usual case costs one look.
            if !packed.refs.contains_key(above) && dir.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
                continue;
            }
            if packed.refs.contains_key(above) || dir.symlink_metadata().is_ok_and(|meta| !meta.is_dir()) {
                return Err(conflict(above));
            }
            if files::make_dir(&dir)? {
                files::sync_dir(dir.parent().expect("below the store"))?;
            }
        }
        let path = self.dir.join(name);
        if path.is_dir() {
            remove_empty_dirs(&path)?;
            if path.is_dir() {
                return Err(conflict(&below));
            }
        }
        Ok(path)
    }

    /// Removes a ref; absent is fine, broken too. Durable when this returns.
    ///
    /// # Errors
    /// When it can't be removed.
    pub fn delete_ref(&self, name: &str) -> Result<()> {
        self.delete_refs(&[name])
    }

    /// Removes refs with as few barriers as possible. On a crash some are gone, the others there.
    ///
    /// # Errors
    /// When one can't be removed.
    pub fn delete_refs(&self, names: &[&str]) -> Result<()> {
        names.iter().try_for_each(|name| check_name(name))?;
        let _serial = self.lock_refs()?;
        let mut batch = Batch::default();
        names.iter().for_each(|name| batch.gone(name));
        let sync = !self.ahead.append(&batch)?;
        if sync {
            self.ahead.settle(false)?;
        }
        let removed = self.remove_refs(names, sync);
        if removed.is_err() && !sync {
            self.ahead.abandon();
        }
        removed
    }

    /// For whoever has the lock of the refs.
    pub(super) fn remove_refs(&self, names: &[&str], sync: bool) -> Result<()> {
        // Packed ones first, or an older value would show for a moment.
        let mut packed = Packed::clone(&*packed_refs::read(&self.dir, &self.packed_refs)?);
        let before = packed.len();
        for name in names {
            packed.refs.remove(*name);
        }
        packed
            .broken
            .retain(|broken| broken.name.as_deref().is_none_or(|name| !names.contains(&name)));
        if packed.len() < before {
            packed_refs::write(&self.dir, &packed)?;
        }
        self.remove_loose(names, sync)
    }

    fn remove_loose(&self, names: &[&str], sync: bool) -> Result<()> {
        let mut touched = std::collections::BTreeSet::new();
        for name in names {
            let path = self.dir.join(name);
            fault::point("store.ref").at(&path)?;
            match std::fs::remove_file(&path) {
                Ok(()) => {
                    touched.insert(self.prune_above(&path));
                }
                Err(error) if files::is_absent(&error) => {}
                // A directory: other refs stand below; this one is absent.
                Err(_) if path.is_dir() => {}
                Err(error) => return Err(error).at(path),
            }
        }
        if !sync {
            return Ok(());
        }
        // Of two directories of which one was in the other, the outer may have outlived it.
        touched
            .iter()
            .filter(|dir| dir.is_dir())
            .try_for_each(|dir| files::sync_dir(dir))
    }

    /// Removes the directories above a ref that are empty now; the first that stays.
    fn prune_above(&self, path: &Path) -> PathBuf {
        let refs = self.dir.join("refs");
        let mut dir = path.parent().expect("a ref is below refs");
        while dir != refs && std::fs::remove_dir(dir).is_ok() {
            dir = dir.parent().expect("below refs");
        }
        dir.to_owned()
    }

    /// Moves all refs into `packed-refs`: one file instead of a disk block for each. Those of files that can't be read stay as
    /// they are.
    ///
    /// # Errors
    /// When a line of that file is broken (it is named, nothing is moved) or something can't be written.
    pub fn pack_refs(&self) -> Result<()> {
        let _serial = self.lock_refs()?;
        self.ahead.settle(false)?;
        let mut all = Packed::clone(&*packed_refs::read(&self.dir, &self.packed_refs)?);
        if let Some(broken) = all.broken.first() {
            let name = broken.name.as_deref().unwrap_or("packed-refs");
            return Err(self.broken(name, &broken.how()));
        }
        let mut loose = BTreeMap::new();
        self.walk_refs("refs", "refs/", &mut loose)?;
        loose.retain(|_, value| value.is_ok());
        let readable = loose
            .iter()
            .filter_map(|(name, value)| Some((name.clone(), *value.as_ref().ok()?)));
        all.refs.extend(readable);
        packed_refs::write(&self.dir, &all)?;
        let names: Vec<&str> = loose.keys().map(String::as_str).collect();
        self.remove_loose(&names, true)
    }

    /// Lines of the packed refs of which nobody can tell whose they were.
    ///
    /// # Errors
    /// When the file can't be read.
    pub fn nameless_refs(&self) -> Result<Vec<Finding>> {
        let packed = packed_refs::read(&self.dir, &self.packed_refs)?;
        let nameless = packed.broken.iter().filter(|broken| broken.name.is_none());
        Ok(nameless
            .map(|broken| {
                let what = format!("line {} of packed-refs", broken.number);
                Finding::of_record(what, "can't be read: a checkpoint or another record is lost")
            })
            .collect())
    }

    /// Takes what can't be read out of the packed refs. What they were stays in the store, in the file that is returned;
    /// `None` when all is well.
    ///
    /// # Errors
    /// When something can't be written.
    pub fn set_broken_refs_aside(&self) -> Result<Option<PathBuf>> {
        let _serial = self.lock_refs()?;
        self.ahead.settle(false)?;
        let packed = packed_refs::read(&self.dir, &self.packed_refs)?;
        (!packed.broken.is_empty())
            .then(|| packed_refs::set_broken_aside(&self.dir, &packed))
            .transpose()
    }

    /// Changes of refs are one at a time, so a `.lock` file that is there is one that a crash has left.
    pub(super) fn lock_refs(&self) -> Result<Flock<File>> {
        Ok(lock::flock(&self.refs_lock_path(), FlockArg::LockExclusive)?.expect("a lock that waits is got"))
    }
}
