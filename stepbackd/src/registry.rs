//! Which roots are attached: `STATE/roots.json`. It can be lost (attaching again finds the stores), but never silently.

use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stepback_engine::path::{escape, unescape};
use stepback_engine::time::Time;

use crate::error::{At, Error, Result};
use crate::state_file;

const SCHEMA: u32 = 1;
const HINT: &str =
    "mend that line, or move the file away and attach each root again: that finds its checkpoints";

/// One attached root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its id.
    pub id: String,
    /// Where it is.
    #[serde(with = "path_as_text")]
    pub path: PathBuf,
    /// Its store.
    #[serde(with = "path_as_text")]
    pub store: PathBuf,
    /// When it was attached.
    pub attached: Time,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: u32,
    roots: Vec<Entry>,
}

/// The attached roots, on disk and in memory.
#[derive(Debug)]
pub struct Registry {
    file: PathBuf,
    roots: Vec<Entry>,
}

impl Registry {
    /// Reads the file; empty when there is none.
    ///
    /// # Errors
    /// [`Error::Broken`] with file and line when it isn't understood; when it is no regular file.
    pub fn read(file: &Path) -> Result<Self> {
        state_file::check(file)?;
        let roots = match state_file::read(file) {
            Ok(bytes) => parse(&bytes, file)?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(e).at(file),
        };
        Ok(Self {
            file: file.to_owned(),
            roots,
        })
    }

    /// All roots.
    pub fn roots(&self) -> &[Entry] {
        &self.roots
    }

    /// Adds a root, in place of one with the same id, whose time stays. On an error nothing has changed, on disk and here.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn put(&mut self, mut entry: Entry) -> Result<()> {
        let (same, mut roots): (Vec<Entry>, Vec<Entry>) =
            self.roots.iter().cloned().partition(|root| root.id == entry.id);
        if let Some(before) = same.first() {
            entry.attached = before.attached;
        }
        roots.push(entry);
        self.replace(roots)
    }

    /// Takes a root out; absent is fine.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn remove(&mut self, id: &str) -> Result<()> {
        let roots: Vec<Entry> = self.roots.iter().filter(|root| root.id != id).cloned().collect();
        if roots.len() == self.roots.len() {
            return Ok(());
        }
        self.replace(roots)
    }

    fn replace(&mut self, roots: Vec<Entry>) -> Result<()> {
        let file = File {
            schema: SCHEMA,
            roots,
        };
        let mut text = serde_json::to_vec_pretty(&file)
            .map_err(std::io::Error::from)
            .at(&self.file)?;
        text.push(b'\n');
        write_durably(&self.file, &text)?;
        self.roots = file.roots;
        Ok(())
    }
}

/// Replaces `file` as a whole: at any instant, also after a power loss, it is the old one or the new one. Mode 0600.
///
/// # Errors
/// When any step fails; then `file` is the old one.
pub fn write_durably(file: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = file.with_extension("tmp");
    let written = (|| {
        let mut to = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(state_file::flags())
            .open(&temporary)?;
        to.write_all(bytes)?;
        to.sync_all()?;
        std::fs::rename(&temporary, file)?;
        match file.parent() {
            Some(dir) => std::fs::File::open(dir)?.sync_all(),
            None => Ok(()),
        }
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written.at(file)
}

fn parse(bytes: &[u8], path: &Path) -> Result<Vec<Entry>> {
    let broken = |line: usize, message: String| Error::Broken {
        path: path.to_owned(),
        line,
        message,
        hint: HINT,
    };
    let file: File = serde_json::from_slice(bytes).map_err(|e| broken(e.line().max(1), e.to_string()))?;
    if file.schema != SCHEMA {
        return Err(broken(
            1,
            format!("schema {} is not one that this version knows", file.schema),
        ));
    }
    Ok(file.roots)
}

mod path_as_text {
    use super::{Deserialize, OsStrExt, OsStringExt, Path, PathBuf, escape, unescape};

    pub fn serialize<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&escape(path.as_os_str().as_bytes()))
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = unescape(&text).ok_or_else(|| serde::de::Error::custom("a bad % escape in a path"))?;
        let path = PathBuf::from(std::ffi::OsString::from_vec(bytes));
        if path.is_relative() {
            return Err(serde::de::Error::custom(format!(
                "{text:?} is not an absolute path"
            )));
        }
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn entry(id: &str, path: &[u8]) -> Entry {
        Entry {
            id: id.into(),
            path: PathBuf::from(std::ffi::OsString::from_vec(path.to_vec())),
            store: "/s/x.git".into(),
            attached: Time::from_ms(1_700_000_000_123),
        }
    }

    #[test]
    fn what_was_put_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("roots.json");
        let mut registry = Registry::read(&file).unwrap();
        registry.put(entry("a-1", b"/p/\xff% x")).unwrap();
        registry.put(entry("b-2", b"/q")).unwrap();
        registry.put(entry("b-2", b"/r")).unwrap();
        registry.remove("none").unwrap();
        let again = Registry::read(&file).unwrap();
        assert_eq!(again.roots(), [entry("a-1", b"/p/\xff% x"), entry("b-2", b"/r")]);
        registry.remove("a-1").unwrap();
        assert_eq!(Registry::read(&file).unwrap().roots().len(), 1);
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_broken_one_is_an_error_that_names_the_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("roots.json");
        for (text, line) in [
            ("{\n\"schema\": 1,\n\"roots\": [}", 3),
            ("", 1),
            ("{\"schema\": 9, \"roots\": []}", 1),
            ("{\"schema\": 1,\n\"roots\": [], \"x\": 1}", 2),
            (
                "{\"schema\": 1, \"roots\": [\n{\"id\":\"a\",\"path\":\"p\",\"store\":\"/s\",\"attached\":\"2026-01-01T00:00:00Z\"}]}",
                2,
            ),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = Registry::read(&file).unwrap_err().to_string();
            assert!(
                error.contains(&format!("roots.json:{line}: ")),
                "{text:?}: {error}"
            );
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "it stays as it is");
        }
    }

    #[test]
    fn a_failed_write_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut registry = Registry::read(&dir.path().join("no/roots.json")).unwrap();
        assert!(registry.put(entry("a", b"/p")).is_err());
        assert!(registry.roots().is_empty());
    }
}
