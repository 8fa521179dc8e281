//! Things that stand where an object, or the directory that it is in, has its place: they go out of the way.

use std::path::Path;

use super::Store;
use super::{files, loose};
use crate::error::{At, Error, Result};
use crate::oid::Oid;

impl Store {
    /// Makes way for a loose object. A file of whatever kind gives way to a rename; a directory goes when it is empty, else it
    /// is set aside.
    pub(super) fn make_way(&self, oid: Oid) -> Result<()> {
        let path = loose::path(&self.objects, oid);
        match path.symlink_metadata() {
            Ok(meta) if meta.is_dir() => self.set_aside(&path),
            Ok(_) => Ok(()),
            Err(error) if files::is_absent(&error) => Ok(()),
            Err(error) => Err(error).at(path),
        }
    }

    /// Makes the directory that an object is in, unless it is there; whether it was made.
    pub(super) fn make_fan_out(&self, dir: &Path) -> Result<bool> {
        files::make_dir(dir).or_else(|error| match error {
            Error::Io { source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists => {
                self.set_aside(dir)?;
                files::make_dir(dir)
            }
            error => Err(error),
        })
    }

    /// Who made it may want what is in it.
    fn set_aside(&self, path: &Path) -> Result<()> {
        if std::fs::remove_dir(path).is_ok() {
            return Ok(());
        }
        let mut names = (1..).map(|k| self.dir.join(format!("damaged-object-{k}")));
        let aside = names
            .find(|name| name.symlink_metadata().is_err())
            .expect("there is always another number");
        std::fs::rename(path, aside).at(path)
    }
}
