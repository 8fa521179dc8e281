//! Maintenance without git: what refs reach is found by walking, and packs are written anew without deltas.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;

use crate::error::{At, Result};
use crate::oid::{ObjectKind, Oid};

use super::git::Interrupt;
use super::maintenance::{PACKS_MAX, Thoroughness};
use super::object::{MODE_GITLINK, MODE_TREE, TreeEntry};
use super::pack::{PackWriter, Packed};
use super::pack_index::Index;
use super::writer::LARGE_BYTES;
use super::{Store, files, loose};

/// Reachable objects.
pub(super) type Reached = HashMap<Oid, ObjectKind>;

impl Store {
    /// Removes what no ref reaches and gathers loose objects in a pack; with them all packs but the largest when they are
    /// many, or, when it is to be thorough, those with something unreachable. The caller has the exclusive lock.
    ///
    /// # Errors
    /// [`Error::Cancelled`]; when a ref is broken, or an object on the way to others can't be read: then nothing is removed;
    /// [`Error::NoRoom`] when packs can't be written: then unreachable loose objects are gone.
    pub(super) fn sweep(&self, how: Thoroughness, interrupt: &Interrupt) -> Result<()> {
        let reached = self.reached(interrupt)?;
        let mut loose = Vec::new();
        for oid in self.loose_names()? {
            interrupt.check()?;
            if reached.contains_key(&oid) {
                loose.push(oid);
            } else {
                files::remove(&loose::path(&self.objects, oid))?;
            }
        }
        self.require_room(how)?;
        let mut rewritten = self.pack_contents()?;
        match how {
            Thoroughness::Full => {
                rewritten.retain(|_, oids| oids.iter().any(|oid| !reached.contains_key(oid)))
            }
            Thoroughness::Fold if rewritten.len() >= PACKS_MAX => {
                // By number of objects: what has most of them stays as it is.
                let largest = rewritten.iter().max_by_key(|(_, oids)| oids.len());
                let largest = largest.map(|(stem, _)| stem.clone());
                rewritten.retain(|stem, _| Some(stem) != largest.as_ref());
            }
            Thoroughness::Fold => rewritten.clear(),
        }
        let mut folded = Vec::with_capacity(loose.len());
        for oid in loose {
            if self.large_loose_bytes(oid)?.is_none() {
                folded.push(oid);
            }
        }
        let mut wanted: BTreeMap<Oid, ObjectKind> = BTreeMap::new();
        for oid in folded.iter().chain(rewritten.values().flatten()) {
            if let Some(kind) = reached.get(oid) {
                wanted.insert(*oid, *kind);
            }
        }
        let name = self.write_pack(&wanted, interrupt)?;
        // What is in the new pack goes: from here on it is soon done.
        for stem in rewritten.keys().filter(|stem| Some(*stem) != name.as_ref()) {
            self.remove_pack(stem)?;
        }
        folded
            .iter()
            .try_for_each(|oid| files::remove(&loose::path(&self.objects, *oid)))
    }

    /// Writes these objects as a pack, durably; its name without an ending.
    fn write_pack(
        &self,
        wanted: &BTreeMap<Oid, ObjectKind>,
        interrupt: &Interrupt,
    ) -> Result<Option<OsString>> {
        if wanted.is_empty() {
            return Ok(None);
        }
        let dir = self.pack_dir();
        let mut pack = PackWriter::new(&dir)?;
        for (oid, kind) in wanted {
            interrupt.check()?;
            if *kind == ObjectKind::Blob && self.blob_size(*oid)? > LARGE_BYTES {
                pack.append_blob(*oid, self.blob_size(*oid)?, |to| self.copy_blob(*oid, to))?;
                continue;
            }
            let body = self.read(*oid, *kind)?;
            pack.append(&Packed::new(*oid, *kind, &body).at(&dir)?)?;
        }
        let sealed = pack.seal(&dir, true)?;
        let name = sealed.name().into();
        sealed.publish(&dir)?;
        Ok(Some(name))
    }

    /// What refs reach.
    ///
    /// # Errors
    /// [`Error::Cancelled`](crate::Error::Cancelled); when a ref is broken, or an object on the way to others can't be read.
    pub(super) fn reached(&self, interrupt: &Interrupt) -> Result<Reached> {
        let mut reached = Reached::new();
        let mut tasks: Vec<(Oid, ObjectKind)> = self
            .refs("refs/")?
            .into_iter()
            .map(|(_, oid)| (oid, ObjectKind::Commit))
            .collect();
        tasks.push((Oid::EMPTY_TREE, ObjectKind::Tree));
        while let Some((oid, kind)) = tasks.pop() {
            interrupt.check()?;
            if reached.insert(oid, kind).is_some() {
                continue;
            }
            match kind {
                ObjectKind::Commit => tasks.push((self.read_commit(oid)?.tree, ObjectKind::Tree)),
                ObjectKind::Tree => {
                    for TreeEntry { mode, oid, .. } in self.read_tree(oid)? {
                        match mode {
                            MODE_GITLINK => {}
                            MODE_TREE => tasks.push((oid, ObjectKind::Tree)),
                            _ => tasks.push((oid, ObjectKind::Blob)),
                        }
                    }
                }
                ObjectKind::Blob => {}
            }
        }
        Ok(reached)
    }

    /// All loose objects.
    pub(super) fn loose_names(&self) -> Result<Vec<Oid>> {
        let mut found = Vec::new();
        for fan_out in files::names(&self.objects)? {
            if fan_out.len() != 2 {
                continue;
            }
            for name in files::names(&self.objects.join(&fan_out))? {
                let hex = format!("{}{}", fan_out.to_string_lossy(), name.to_string_lossy());
                found.extend(hex.parse::<Oid>());
            }
        }
        Ok(found)
    }

    /// Packs, by name without ending, and the objects that are in each.
    fn pack_contents(&self) -> Result<BTreeMap<OsString, Vec<Oid>>> {
        let mut packs = BTreeMap::new();
        for name in files::names(&self.pack_dir())? {
            let path = self.pack_dir().join(&name);
            if path.extension().is_some_and(|it| it == "idx")
                && let Some(stem) = path.file_stem()
            {
                packs.insert(stem.to_owned(), Index::open_checked(&self.dir, &path)?.names()?);
            }
        }
        Ok(packs)
    }
}
