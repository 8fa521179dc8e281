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
    /// Ours goes: no copy is of use any more.
    pub is_back: bool,
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
            self.check()?;
            fs::remove_file(&self.file).at(&self.file)?;
            whole::remove(&copy)?;
            return remove_empty_dirs(&self.file, &self.top);
        };
        if self.is_back || read(&copy)?.as_ref() == Some(after) {
            self.write(after)?;
            return whole::remove(&copy);
        }
        let before = self.before.as_ref().filter(|_| !copy.exists());
        if let Some(before) = before {
            write(&copy, before)?;
        }
        let written = self.write(after);
        if written.is_err() && before.is_some() {
            whole::remove(&copy)?;
        }
        written
    }

    /// Somebody may have written into the file since it was read: then it isn't what was shown.
    ///
    /// # Errors
    /// When it is another now.
    pub fn check(&self) -> Result<()> {
        if read(&self.file)? == self.before {
            return Ok(());
        }
        Err(Error::Environment {
            message: format!(
                "{}: it was changed meanwhile, and is left as it is now",
                self.file.display()
            ),
            hint: "run it again".into(),
        })
    }

    fn write(&self, text: &str) -> Result<()> {
        replace(&self.file, text, || self.check())
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
    replace(file, text, || Ok(()))
}

/// Likewise, if `last` has nothing against it in the last moment.
fn replace(file: &Path, text: &str, last: impl FnOnce() -> Result<()>) -> Result<()> {
    // What a link points to is written, and the link stays.
    let real = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let mode = fs::metadata(&real).map_or(0o600, |metadata| metadata.mode() & 0o7777);
    whole::write_if(&real, text, mode, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_meanwhile_is_left_as_it_is_now() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("settings.json");
        for (before, after, is_back) in [
            (Some("old"), Some("new"), false),
            (Some("old"), Some("new"), true),
            (Some("old"), None, true),
            (None, Some("new"), false),
        ] {
            let change = Change {
                file: file.clone(),
                before: before.map(str::to_owned),
                after: after.map(str::to_owned),
                top: dir.path().to_owned(),
                is_back,
            };
            write(&file, "theirs").unwrap();
            let error = change.apply().unwrap_err().to_string();
            assert!(error.contains("changed meanwhile"), "{error}");
            assert_eq!(fs::read_to_string(&file).unwrap(), "theirs");
            let entries = fs::read_dir(dir.path()).unwrap().count();
            assert_eq!(entries, 1, "neither a copy nor a temporary file is left");
            match before {
                Some(before) => write(&file, before).unwrap(),
                None => fs::remove_file(&file).unwrap(),
            }
            change.apply().unwrap();
            assert_eq!(read(&file).unwrap().as_deref(), after);
            whole::remove(&backup(&file)).unwrap();
        }
    }
}
