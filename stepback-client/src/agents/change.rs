//! A change of one file of the user's: shown first, then made, with a copy of what was there before.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{At, Error, Result};
use crate::whole;

/// The name of a copy of a file as it was before ours came into it.
const BACKUP: &str = "stepback-backup";

/// What a file becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Which file; links are followed.
    pub file: PathBuf,
    /// As it is; `None`: there is none.
    pub before: Option<String>,
    /// As it will be; `None`: none.
    pub after: Option<String>,
    /// The uppermost directory that may have been made for this file.
    pub top: PathBuf,
}

/// A file that isn't what it should be.
pub fn broken(file: &Path, why: &str) -> Error {
    Error::Environment {
        message: format!("{}: {why}", file.display()),
        hint: "nothing was changed; mend the file, then try again".into(),
    }
}

/// Where the copy of a file is.
pub fn backup(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(BACKUP);
    name.into()
}

/// A file's text; `None` when there is none.
///
/// # Errors
/// When it can't be read, or isn't text.
pub fn read(file: &Path) -> Result<Option<String>> {
    match fs::metadata(file) {
        Ok(metadata) if !metadata.is_file() => return Err(broken(file, "it is no plain file")),
        Err(_) if file.is_symlink() => return Err(broken(file, "it is a link that leads to no file")),
        _ => {}
    }
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::InvalidData => Err(broken(file, "it isn't UTF-8")),
        Err(e) => Err(e).at(file),
    }
}

impl Change {
    /// Makes it so. A file that was there before is copied beside it first, unless an earlier copy is there; the copy goes
    /// when the file is again what it was. With a file that goes, the directories go that are empty then.
    ///
    /// # Errors
    /// When a step fails; the file is the old one then, or the new one, never half of it.
    pub fn apply(&self) -> Result<()> {
        // A rename would not be hindered by it, but somebody meant it.
        let readonly = fs::metadata(&self.file).is_ok_and(|metadata| metadata.mode() & 0o222 == 0);
        if readonly {
            return Err(Error::Environment {
                message: format!("{}: it is read-only", self.file.display()),
                hint: "nothing was changed; if it is yours to change, `chmod u+w` it first".into(),
            });
        }
        let copy = backup(&self.file);
        let Some(after) = &self.after else {
            fs::remove_file(&self.file).at(&self.file)?;
            whole::remove(&copy)?;
            return remove_empty_dirs(&self.file, &self.top);
        };
        if read(&copy)?.as_ref() == Some(after) {
            write(&self.file, after)?;
            return whole::remove(&copy);
        }
        let before = self.before.as_ref().filter(|_| !copy.exists());
        if let Some(before) = before {
            write(&copy, before)?;
        }
        let written = write(&self.file, after);
        if written.is_err() && before.is_some() {
            whole::remove(&copy)?;
        }
        written
    }
}

/// Whether anything is in `dir` but these files and the directories that lead to them.
pub fn holds_other(dir: &Path, files: &[&Path]) -> bool {
    let Ok(entries) = fs::read_dir(dir) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let path = entry.path();
        if files.iter().any(|file| *file == path) {
            return false;
        }
        let leads_there = entry.file_type().is_ok_and(|kind| kind.is_dir())
            && files.iter().any(|file| file.starts_with(&path));
        !leads_there || holds_other(&path, files)
    })
}

/// Removes the directories that `file` was in, up to `top`, as long as they are empty.
fn remove_empty_dirs(file: &Path, top: &Path) -> Result<()> {
    let dirs = file.ancestors().skip(1).take_while(|dir| dir.starts_with(top));
    for dir in dirs {
        match fs::remove_dir(dir) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            // Something else is in it, or it is a link of the user's: then it isn't ours.
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory
                ) =>
            {
                break;
            }
            Err(e) => return Err(e).at(dir),
        }
    }
    Ok(())
}

/// Writes a file with the mode that it had; only its owner may read a new one.
pub(super) fn write(file: &Path, text: &str) -> Result<()> {
    // What a link points to is written, and the link stays.
    let real = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let mode = fs::metadata(&real).map_or(0o600, |metadata| metadata.mode() & 0o7777);
    whole::write(&real, text, mode)
}
