//! Large blobs are loose and stay so: in a pack they would be rewritten with it, and compressed anew at worst.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::error::{At, Error, Result};
use crate::oid::{ObjectKind, Oid};

use super::inflate::Fault;
use super::loose::{self, Loose};
use super::writer::LARGE_BYTES;
use super::{Store, files};

/// A large blob's file isn't smaller: zlib doesn't get below a 1,032nd.
const COMPRESSED_MIN: u64 = LARGE_BYTES / 1_040;

/// A loose blob that no pack takes in.
pub struct LargeLoose {
    /// Its name.
    pub oid: Oid,
    /// The length of its file in bytes.
    pub bytes: u64,
}

impl Store {
    /// Whether this is the loose file of a large blob, as far as its header tells; its length in bytes.
    pub(super) fn large_loose_bytes(&self, oid: Oid) -> Result<Option<u64>> {
        let Some(stamp) = loose::stamp(&self.objects, oid)? else {
            return Ok(None);
        };
        if stamp.size() < COMPRESSED_MIN {
            return Ok(None);
        }
        match Loose::open(&self.objects, oid) {
            Ok(Some(object)) if object.kind == ObjectKind::Blob && object.size > LARGE_BYTES => {
                Ok(Some(stamp.size()))
            }
            // Who needs a damaged one will be told.
            Ok(_) | Err(Fault::Damaged(_)) => Ok(None),
            Err(Fault::System(error)) => Err(error),
            Err(Fault::Sink(error)) => Err(error).at(&self.objects),
        }
    }

    /// All of them.
    pub(super) fn large_loose(&self) -> Result<Vec<LargeLoose>> {
        let mut found = Vec::new();
        for oid in self.loose_names()? {
            if let Some(bytes) = self.large_loose_bytes(oid)? {
                found.push(LargeLoose { oid, bytes });
            }
        }
        Ok(found)
    }

    /// What they take, in bytes.
    pub(super) fn large_loose_sum(&self) -> Result<u64> {
        Ok(self.large_loose()?.iter().map(|large| large.bytes).sum())
    }

    /// Shows the large loose blobs to git as those of another directory of objects: told to pack only what is local, it
    /// leaves them out. Those that a pack has as well aren't shown: what is packed must stay so.
    pub(super) fn set_large_aside(&self) -> Result<Aside> {
        let dir = aside(&self.private);
        remove_aside(&self.private)?;
        let aside = Aside(dir);
        files::make_dir(&aside.0)?;
        self.packs.refresh()?;
        for LargeLoose { oid, .. } in self.large_loose()? {
            if self.packs.lists(oid) {
                continue;
            }
            let link = loose::path(&aside.0, oid);
            let fan_out = link.parent().expect("a loose object is in a fan-out directory");
            files::make_dir(fan_out)?;
            let hex = oid.to_string();
            let target = format!("../../../objects/{}/{}", &hex[..2], &hex[2..]);
            symlink(target, &link).at(&link)?;
        }
        Ok(aside)
    }
}

/// A directory of objects that only git's packing is shown, for as long as this is kept.
pub struct Aside(PathBuf);

impl Aside {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // What can't be removed now goes with the next maintenance.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn aside(private: &Path) -> PathBuf {
    private.join("large")
}

/// Removes one that a crash has left.
pub fn remove_aside(private: &Path) -> Result<()> {
    let dir = aside(private);
    match std::fs::remove_dir_all(&dir) {
        Err(error) if !files::is_absent(&error) => Err(Error::Io {
            path: dir,
            source: error,
        }),
        _ => Ok(()),
    }
}
