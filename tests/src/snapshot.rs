//! Oracles: what is on disk, to be compared with what was.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// A whole tree but for what is in a `.git`: type, twelve mode bits, link target and bytes of every entry, the top
/// directory included.
#[derive(Clone, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<Vec<u8>, Entry>);

/// Every `.git` of a tree and all that is below: type, mode, link target, bytes, inode and time of modification.
#[derive(Clone, PartialEq, Eq)]
pub struct GitSnapshot(BTreeMap<Vec<u8>, (Entry, u64, i64, i64)>);

#[derive(Clone, PartialEq, Eq)]
struct Entry {
    kind: char,
    mode: u32,
    /// Of a file its contents, of a link its target, else empty; `None` when it can't be read.
    bytes: Option<Vec<u8>>,
}

impl Entry {
    fn of(path: &Path, meta: &fs::Metadata) -> Self {
        let kind = meta.file_type();
        let (kind, bytes) = if kind.is_dir() {
            ('d', Some(Vec::new()))
        } else if kind.is_symlink() {
            (
                'l',
                fs::read_link(path)
                    .ok()
                    .map(|t| t.as_os_str().as_bytes().to_vec()),
            )
        } else if kind.is_file() {
            ('f', fs::read(path).ok())
        } else if kind.is_fifo() {
            ('p', Some(Vec::new()))
        } else if kind.is_socket() {
            ('s', Some(Vec::new()))
        } else {
            ('?', Some(Vec::new()))
        };
        Self {
            kind,
            mode: meta.mode() & 0o7777,
            bytes,
        }
    }

    fn describe(&self) -> String {
        let bytes = self.bytes.as_deref().map(|b| {
            let cut = &b[..b.len().min(60)];
            format!("{} bytes {:?}", b.len(), String::from_utf8_lossy(cut))
        });
        format!(
            "{} {:04o} {}",
            self.kind,
            self.mode,
            bytes.unwrap_or_else(|| "unreadable".into())
        )
    }
}

impl Snapshot {
    /// Of `dir`.
    #[must_use]
    pub fn of(dir: &Path) -> Self {
        let mut found = BTreeMap::new();
        walk(dir, b".", &mut |path, name, meta| {
            if path.file_name() == Some(OsStr::new(".git")) {
                return false;
            }
            found.insert(name.to_vec(), Entry::of(path, meta));
            true
        });
        Self(found)
    }

    /// The same without `path` (relative, no `./`) and all below it.
    #[must_use]
    pub fn without(mut self, path: &str) -> Self {
        let path = format!("./{path}").into_bytes();
        let below = [&path[..], b"/"].concat();
        self.0
            .retain(|name, _| *name != path && !name.starts_with(&below));
        self
    }

    /// Paths, relative to the directory, that differ: at most 20, each with what it was and is.
    #[must_use]
    pub fn differences(&self, now: &Self) -> Vec<String> {
        differences(&self.0, &now.0, Entry::describe)
    }

    /// Asserts that `now` is the same.
    #[track_caller]
    pub fn same(&self, now: &Self, when: &str) {
        let found = self.differences(now);
        assert!(found.is_empty(), "the tree differs {when}:\n{}", found.join("\n"));
    }

    /// Asserts that `now` isn't the same: a test whose edits did nothing would prove nothing.
    #[track_caller]
    pub fn differs(&self, now: &Self, when: &str) {
        assert!(self != now, "the tree ought to differ {when}");
    }

    /// How many entries are regular files.
    #[must_use]
    pub fn files(&self) -> usize {
        self.0.values().filter(|e| e.kind == 'f').count()
    }

    /// Names of temporary files of ours that are still there.
    #[must_use]
    pub fn leftovers(&self) -> Vec<String> {
        let names = self.0.keys().map(|n| String::from_utf8_lossy(n).into_owned());
        names
            .filter(|n| {
                n.rsplit('/')
                    .next()
                    .is_some_and(|last| last.starts_with(".stepback-"))
            })
            .collect()
    }
}

impl GitSnapshot {
    /// Of every `.git` at or below `dir`.
    #[must_use]
    pub fn of(dir: &Path) -> Self {
        let mut found = BTreeMap::new();
        walk(dir, b".", &mut |path, name, meta| {
            let inside = name.split(|&b| b == b'/').any(|part| part == b".git");
            if inside {
                let entry = (Entry::of(path, meta), meta.ino(), meta.mtime(), meta.mtime_nsec());
                found.insert(name.to_vec(), entry);
            }
            true
        });
        Self(found)
    }

    /// Asserts that nothing below any `.git` was changed, not even written again.
    #[track_caller]
    pub fn same(&self, now: &Self, when: &str) {
        let found = differences(&self.0, &now.0, |(entry, ino, s, ns)| {
            format!("{} inode {ino} mtime {s}.{ns:09}", entry.describe())
        });
        assert!(
            found.is_empty(),
            "something below .git differs {when}:\n{}",
            found.join("\n")
        );
    }

    /// Whether there is no `.git` at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Visits `path` and, where `visit` says so, what is below it. What vanishes meanwhile is left out.
fn walk(path: &Path, name: &[u8], visit: &mut impl FnMut(&Path, &[u8], &fs::Metadata) -> bool) {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return;
    };
    if !visit(path, name, &meta) || !meta.is_dir() {
        return;
    }
    let Ok(entries) = fs::read_dir(path) else { return };
    for entry in entries.flatten() {
        let name = [name, b"/", entry.file_name().as_bytes()].concat();
        walk(&entry.path(), &name, visit);
    }
}

fn differences<E: PartialEq>(
    was: &BTreeMap<Vec<u8>, E>,
    now: &BTreeMap<Vec<u8>, E>,
    describe: impl Fn(&E) -> String,
) -> Vec<String> {
    let show = |entry: Option<&E>| entry.map_or_else(|| "absent".to_owned(), &describe);
    let mut names: Vec<_> = was.keys().chain(now.keys()).collect();
    names.sort();
    names.dedup();
    let changed = names.into_iter().filter(|n| was.get(*n) != now.get(*n));
    let lines = changed.map(|n| {
        format!(
            "{:?}\n  was: {}\n  now: {}",
            String::from_utf8_lossy(n),
            show(was.get(n)),
            show(now.get(n))
        )
    });
    lines.take(20).collect()
}
