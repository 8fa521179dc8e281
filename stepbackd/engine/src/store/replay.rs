//! What is done with the file [`ahead`](super::ahead) but for adding to it: brought back after a power loss, emptied.

use std::collections::BTreeMap;

use super::Store;
use super::ahead::Entry;
use super::files::{OBJECT_MODE, TempFile};
use super::loose;
use super::ref_file::lock_file;
use crate::error::Result;
use crate::oid::Oid;

impl Store {
    /// Brings about what the file says: all of it if another boot of the system left it, else at most the end of a deletion.
    /// Then empties it. Killed at any moment, it is done again by whoever opens the store next; nobody who opens it
    /// meanwhile gets past it.
    pub(super) fn replay(&self) -> Result<()> {
        if self.ahead.is_empty()? {
            return Ok(());
        }
        let _lock = self.lock()?;
        let _serial = self.lock_refs()?;
        let mut refs = BTreeMap::new();
        for entry in self.ahead.left()? {
            match entry {
                Entry::Object(oid, file) => self.bring_back(oid, &file)?,
                Entry::Ref(name, oid) => drop(refs.insert(name, oid)),
            }
        }
        let gone: Vec<&str> = refs
            .iter()
            .filter_map(|(name, oid)| oid.is_none().then_some(name.as_str()))
            .collect();
        self.remove_refs(&gone, false)?;
        for (name, oid) in &refs {
            if let Some(oid) = oid {
                let path = self.make_room(name)?;
                let mut temp = lock_file(&path)?;
                temp.write_all(format!("{oid}\n").as_bytes())?;
                temp.rename(&path)?;
            }
        }
        self.ahead.settle(false)
    }

    fn bring_back(&self, oid: Oid, file: &[u8]) -> Result<()> {
        // One that is there and can't be relied on is as good as none.
        if self.has(oid).unwrap_or(false) {
            return Ok(());
        }
        let path = loose::path(&self.objects, oid);
        self.make_fan_out(path.parent().expect("in a fan-out directory"))?;
        self.make_way(oid)?;
        let mut temp = TempFile::new(&self.objects, "tmp_obj_", OBJECT_MODE)?;
        temp.write_all(file)?;
        temp.rename(&path)
    }

    /// Makes the newest changes durable where they belong, if there are any that aren't: a few checkpoints each need then
    /// less to be brought back after a power loss. Nothing depends on it.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn settle(&self) -> Result<()> {
        if self.ahead.is_empty()? {
            return Ok(());
        }
        let _serial = self.lock_refs()?;
        self.ahead.settle(false)
    }
}
