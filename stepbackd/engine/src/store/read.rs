//! Reads objects: the loose one first, then packs. All that is handed out was checked against its name.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::error::{At, Error, Result, damaged_object};
use crate::oid::{ObjectKind, Oid};

use super::Store;
use super::inflate::Fault;
use super::loose::{self, Loose, Stamp};
use super::object::{Malformed, TreeEntry, parse_refs, parse_tree};

/// So many verified loose objects are remembered, at about 64 bytes each.
const KNOWN_MAX: usize = 16_384;

/// Where objects are read from: a store, or a writer with what it is about to add.
pub trait Objects: Sync {
    /// A whole object, verified by its hash.
    ///
    /// # Errors
    /// [`Error::Damaged`], naming the object, when it is missing, damaged or of another kind.
    fn read(&self, oid: Oid, kind: ObjectKind) -> Result<Vec<u8>>;

    /// The store's directory, for errors.
    fn path(&self) -> &Path;
}

impl Objects for Store {
    fn read(&self, oid: Oid, kind: ObjectKind) -> Result<Vec<u8>> {
        Self::read(self, oid, kind)
    }

    fn path(&self) -> &Path {
        self.path()
    }
}

/// A tree's entries.
///
/// # Errors
/// [`Error::Damaged`] when it is missing, damaged or no tree.
pub fn read_tree(objects: &dyn Objects, oid: Oid) -> Result<Vec<TreeEntry>> {
    let bytes = tree_bytes(objects, oid)?;
    parse_tree(&bytes).map_err(|how| damaged_object(objects.path(), oid, how.0))
}

/// Of each of two trees the entries that the other one hasn't just so.
///
/// # Errors
/// As [`read_tree`].
pub fn read_different_entries(
    objects: &dyn Objects,
    a: Oid,
    b: Oid,
) -> Result<(Vec<TreeEntry>, Vec<TreeEntry>)> {
    let bytes = (tree_bytes(objects, a)?, tree_bytes(objects, b)?);
    let damaged = |oid: Oid, how: Malformed| damaged_object(objects.path(), oid, how.0);
    let (mut a_left, mut b_left) = (parse_refs(&bytes.0).peekable(), parse_refs(&bytes.1).peekable());
    let (mut only_a, mut only_b) = (Vec::new(), Vec::new());
    loop {
        let order = match (a_left.peek(), b_left.peek()) {
            (None, None) => return Ok((only_a, only_b)),
            (Some(Ok(in_a)), Some(Ok(in_b))) if in_a == in_b => Ordering::Equal,
            (Some(Ok(in_a)), Some(Ok(in_b))) => match in_a.order(in_b) {
                // Under one name there is something else.
                Ordering::Equal => Ordering::Less,
                order => order,
            },
            (Some(_), _) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
        };
        let in_a = if order.is_le() { a_left.next() } else { None };
        let in_b = if order.is_ge() { b_left.next() } else { None };
        if order.is_eq() {
            continue;
        }
        if let Some(entry) = in_a {
            only_a.push(entry.map_err(|how| damaged(a, how))?.to_entry());
        }
        if let Some(entry) = in_b {
            only_b.push(entry.map_err(|how| damaged(b, how))?.to_entry());
        }
    }
}

fn tree_bytes(objects: &dyn Objects, oid: Oid) -> Result<Vec<u8>> {
    // Nothing may refer to it when garbage is collected; it is what a state is compared with that has no base.
    if oid == Oid::EMPTY_TREE {
        return Ok(Vec::new());
    }
    objects.read(oid, ObjectKind::Tree)
}

/// What the store has under a name.
#[derive(Debug)]
pub enum Existing {
    /// Nothing.
    Absent,
    /// A good loose object; `known` when it is known to be durable as well.
    Loose {
        /// Its file.
        stamp: Stamp,
        /// Verified or written by this open store before.
        known: bool,
    },
    /// A good object in a pack.
    Packed,
    /// Something that can't be relied on.
    Damaged,
}

/// Loose objects that were verified and are durable, with the stamp of their file then.
#[derive(Debug, Default)]
pub struct Known(Mutex<HashMap<Oid, Stamp>>);

impl Known {
    pub fn add(&self, oid: Oid, stamp: Stamp) {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if map.len() >= KNOWN_MAX {
            map.clear();
        }
        map.insert(oid, stamp);
    }

    fn has(&self, oid: Oid, stamp: Stamp) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&oid) == Some(&stamp)
    }
}

impl Store {
    /// A whole object, verified by its hash.
    ///
    /// # Errors
    /// [`Error::Damaged`], naming the object, when it is missing, damaged or of another kind.
    pub fn read(&self, oid: Oid, kind: ObjectKind) -> Result<Vec<u8>> {
        let damage = match Loose::open(&self.objects, oid) {
            Ok(Some(object)) => {
                self.check_kind(oid, object.kind, kind)?;
                match object.read(oid) {
                    Ok(body) => return Ok(body),
                    Err(fault) => self.damage(fault)?,
                }
            }
            Ok(None) => "is missing".to_owned(),
            Err(fault) => self.damage(fault)?,
        };
        match self.packs.read(oid)? {
            Some((found, body)) => {
                self.check_kind(oid, found, kind)?;
                Ok(body)
            }
            None => Err(damaged_object(&self.dir, oid, &damage)),
        }
    }

    /// Writes a blob's bytes to `to` and returns how many; a large one in pieces, unless a pack has it as a delta. Verified
    /// only when this returns, so what was written must not be used before.
    ///
    /// # Errors
    /// [`Error::Damaged`] as [`Store::read`]; an error of `to` comes back as [`Error::Io`] with an empty path, as only
    /// the caller knows where it writes.
    pub fn copy_blob(&self, oid: Oid, to: &mut dyn Write) -> Result<u64> {
        let damage = match self.open_loose(oid) {
            Ok(Some(object)) => {
                self.check_kind(oid, object.kind, ObjectKind::Blob)?;
                return object.copy(oid, to).or_else(|fault| self.failed_copy(oid, fault));
            }
            Ok(None) => "is missing".to_owned(),
            Err(fault) => self.damage(fault)?,
        };
        match self.packs.copy_blob(oid, to) {
            Ok(Some((kind, size))) => self.check_kind(oid, kind, ObjectKind::Blob).map(|()| size),
            Ok(None) => Err(damaged_object(&self.dir, oid, &damage)),
            Err(fault) => self.failed_copy(oid, fault),
        }
    }

    /// A loose object to be handed on in pieces. What was handed on can't be taken back: so where a pack has the object as
    /// well, this is read through before.
    fn open_loose(&self, oid: Oid) -> Result<Option<Loose>, Fault> {
        match Loose::open(&self.objects, oid)? {
            Some(object) if self.packs.lists(oid) => {
                object.copy(oid, &mut std::io::sink())?;
                Loose::open(&self.objects, oid)
            }
            found => Ok(found),
        }
    }

    fn failed_copy(&self, oid: Oid, fault: Fault) -> Result<u64> {
        match fault {
            Fault::Sink(error) => Err(error).at(""),
            fault => Err(damaged_object(&self.dir, oid, &self.damage(fault)?)),
        }
    }

    /// Size of a blob in bytes, from its header; the contents aren't read, so they aren't verified.
    ///
    /// # Errors
    /// [`Error::Damaged`] when it is missing, no blob, or its header can't be read.
    pub fn blob_size(&self, oid: Oid) -> Result<u64> {
        let damage = match Loose::open(&self.objects, oid) {
            Ok(Some(object)) => {
                self.check_kind(oid, object.kind, ObjectKind::Blob)?;
                return Ok(object.size);
            }
            Ok(None) => "is missing".to_owned(),
            Err(fault) => self.damage(fault)?,
        };
        let (kind, size) = self
            .packs
            .header(oid)?
            .ok_or_else(|| damaged_object(&self.dir, oid, &damage))?;
        self.check_kind(oid, kind, ObjectKind::Blob)?;
        Ok(size)
    }

    /// Whether a good object of this name is there: it is read and checked unless that was done before.
    ///
    /// # Errors
    /// When the store can't be read.
    pub fn has(&self, oid: Oid) -> Result<bool> {
        if matches!(self.existing(oid)?, Existing::Loose { .. } | Existing::Packed) {
            return Ok(true);
        }
        self.packs.refresh()?;
        Ok(matches!(
            self.existing(oid)?,
            Existing::Loose { .. } | Existing::Packed
        ))
    }

    /// What is there under a name, in packs that are known.
    pub(super) fn existing(&self, oid: Oid) -> Result<Existing> {
        if let Some(stamp) = loose::stamp(&self.objects, oid)? {
            if self.known.has(oid, stamp) {
                return Ok(Existing::Loose { stamp, known: true });
            }
            let read = Loose::open(&self.objects, oid).and_then(|object| {
                object
                    .map(|object| object.copy(oid, &mut std::io::sink()))
                    .transpose()
            });
            match read {
                Ok(Some(_)) => return Ok(Existing::Loose { stamp, known: false }),
                // Maintenance has moved it to a pack since.
                Ok(None) => {}
                Err(fault) => return self.damage(fault).map(|_| Existing::Damaged),
            }
        }
        self.existing_in_packs(oid)
    }

    /// The same of a name that no loose object has.
    pub(super) fn existing_in_packs(&self, oid: Oid) -> Result<Existing> {
        match self.packs.has(oid) {
            Ok(true) => Ok(Existing::Packed),
            Ok(false) => Ok(Existing::Absent),
            Err(Error::Damaged { .. }) => Ok(Existing::Damaged),
            Err(error) => Err(error),
        }
    }

    /// How an object is damaged, when it is that.
    fn damage(&self, fault: Fault) -> Result<String> {
        match fault {
            Fault::Damaged(how) => Ok(how),
            Fault::System(error) => Err(error),
            Fault::Sink(error) => Err(error).at(&self.objects),
        }
    }

    fn check_kind(&self, oid: Oid, found: ObjectKind, wanted: ObjectKind) -> Result<()> {
        if found == wanted {
            return Ok(());
        }
        let how = format!("is a {}, not a {}", found.name(), wanted.name());
        Err(damaged_object(&self.dir, oid, &how))
    }
}
