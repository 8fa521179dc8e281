//! A ref as a file: its name, its lock, what it holds.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::files::{self, FILE_MODE, TempFile};
use crate::error::{At, Error, Result};
use crate::oid::Oid;

/// The longest name of a ref, in bytes.
pub const REF_NAME_MAX: usize = 120;

/// A ref as found: what it points to, or how it is broken.
pub type Found = Result<Oid, String>;

/// Makes `PATH.lock`, which keeps git away too.
pub(super) fn lock_file(path: &Path) -> Result<TempFile> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let lock = PathBuf::from(name);
    match TempFile::at(lock.clone(), FILE_MODE) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            files::remove(&lock)?;
            TempFile::at(lock.clone(), FILE_MODE).at(lock)
        }
        other => other.at(lock),
    }
}

pub(super) fn read_loose(path: &Path) -> Result<Option<Found>> {
    let file = match files::open_existing(path) {
        Ok(Some(file)) => file,
        Ok(None) => return Ok(None),
        Err(Error::Io { source, .. }) if source.raw_os_error() == Some(nix::libc::ELOOP) => {
            return Ok(Some(Err("is a symbolic link".into())));
        }
        Err(error) => return Err(error),
    };
    let meta = file.metadata().at(path)?;
    if meta.is_dir() {
        return Ok(None);
    }
    if !meta.is_file() {
        return Ok(Some(Err("isn't a regular file".into())));
    }
    let mut text = Vec::with_capacity(64);
    file.take(64).read_to_end(&mut text).at(path)?;
    if text.is_empty() {
        return Ok(Some(Err("is empty".into())));
    }
    let oid = std::str::from_utf8(&text)
        .ok()
        .and_then(|text| text.strip_suffix('\n'))
        .and_then(|hex| hex.parse().ok());
    Ok(Some(oid.ok_or_else(|| "doesn't hold an object id".into())))
}

pub(super) fn remove_empty_dirs(dir: &Path) -> Result<()> {
    for name in files::names(dir)? {
        let path = dir.join(name);
        if path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            remove_empty_dirs(&path)?;
        }
    }
    match std::fs::remove_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        other => other.at(dir),
    }
}

/// git's rules for names of refs, and ours: below `refs/`, ASCII, at most [`REF_NAME_MAX`] bytes.
pub(super) fn check_name(name: &str) -> Result<()> {
    let part_ok = |part: &str| {
        !part.is_empty() && !part.starts_with('.') && !part.ends_with('.') && !part.ends_with(".lock")
    };
    let ok = name.len() <= REF_NAME_MAX
        && name
            .strip_prefix("refs/")
            .is_some_and(|rest| rest.split('/').all(part_ok))
        && name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"~^:?*[\\".contains(&byte))
        && !name.contains("..")
        && !name.contains("@{");
    if ok {
        Ok(())
    } else {
        Err(refused(
            &format!("{name:?} can't be the name of a ref"),
            "use another name",
        ))
    }
}

pub(super) fn refused(message: &str, hint: &str) -> Error {
    Error::Refused {
        message: message.into(),
        hint: hint.into(),
    }
}
