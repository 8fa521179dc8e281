//! A look at one agent's directory: what adapters find sessions with. It only reads, and nothing is reached through a link.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rusqlite::Connection;

use super::{Found, is_within, jsonl, sqlite};
use crate::path::TreePath;
use crate::root::{DirHandle, FileType, Stat};
use crate::time::Time;

/// The most bytes at the beginning of a transcript that are searched for where it runs.
pub(super) const HEADS_BYTES_MAX: u64 = 1 << 20;
/// The most files of one session, and of one list.
const FILES_MAX: usize = 10_000;
/// The most bytes of an agent's own list of projects.
const SMALL_BYTES_MAX: u64 = 16 << 20;

/// Where a session runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub cwd: PathBuf,
    pub session: String,
}

/// What was found out and doesn't change.
#[derive(Debug, Default)]
pub(super) struct Caches {
    /// For each transcript: its inode and, while it says nothing of where it runs, its size.
    heads: HashMap<PathBuf, (u64, u64, Option<Head>)>,
    /// For each database, what it looked like and which sessions it had.
    databases: HashMap<PathBuf, (String, Vec<Found>)>,
    /// For each transcript that a hook told of: its inode, and where it began.
    began: HashMap<PathBuf, (u64, PathBuf)>,
    /// For each directory that isn't the root's by its name, whether it is by links.
    by_links: HashMap<PathBuf, bool>,
    /// One of them is where nothing answers: no others are looked at.
    hangs: bool,
}

/// How long a path that somebody else has named may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// So many directories are held open during a look.
const DIRS_MAX: usize = 64;

/// An agent's directory during one look, and those below it that were looked into: an agent may have hundreds of sessions in
/// one directory.
pub(super) struct Dirs<'a> {
    top: &'a DirHandle,
    open: RefCell<HashMap<TreePath, Option<Rc<DirHandle>>>>,
}

impl<'a> Dirs<'a> {
    pub fn new(top: &'a DirHandle) -> Self {
        Self {
            top,
            open: RefCell::default(),
        }
    }

    /// No part of the path is followed through a link.
    fn dir(&self, path: &TreePath) -> io::Result<Rc<DirHandle>> {
        let mut open = self.open.borrow_mut();
        if let Some(known) = open.get(path) {
            return known.clone().ok_or_else(|| io::ErrorKind::NotFound.into());
        }
        let found = match self.top.open_beneath(path) {
            Ok(dir) => Some(Rc::new(dir)),
            Err(e) if is_not_there(&e) => None,
            Err(e) => return Err(e),
        };
        if open.len() == DIRS_MAX {
            open.clear();
        }
        open.insert(path.clone(), found.clone());
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub fn stat(&self, path: &TreePath) -> io::Result<Stat> {
        let (above, name) = path
            .split_last()
            .ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?;
        self.dir(&above)?.stat(name)
    }
}

/// For one agent's sessions.
pub(crate) struct Look<'a> {
    pub dir: &'a Path,
    pub root: &'a Path,
    pub now: Time,
    pub thorough: bool,
    pub(super) handle: &'a DirHandle,
    pub(super) dirs: &'a Dirs<'a>,
    pub(super) caches: &'a mut Caches,
    pub(super) known: &'a dyn Fn(&TreePath) -> bool,
}

impl Look<'_> {
    pub fn path(text: &str) -> Option<TreePath> {
        TreePath::new(text.as_bytes()).ok()
    }

    /// Whether a session that runs in `cwd` is the root's. Some agents name it as their user's shell did, through links.
    pub fn is_ours(&mut self, cwd: &Path) -> bool {
        if is_within(cwd, self.root) {
            return true;
        }
        if let Some(known) = self.caches.by_links.get(cwd) {
            return *known;
        }
        if self.caches.hangs || !cwd.is_absolute() {
            return false;
        }
        let ours = match real(cwd) {
            Some(real) => real.is_ok_and(|real| is_within(&real, self.root)),
            None => {
                self.caches.hangs = true;
                false
            }
        };
        self.caches.by_links.insert(cwd.to_owned(), ours);
        ours
    }

    /// Whether it is part of a session that is recorded.
    pub fn knows(&self, path: &TreePath) -> bool {
        (self.known)(path)
    }

    /// Names in a directory, sorted, but for those that aren't UTF-8; none when there is no such directory.
    pub fn list(&self, dir: &TreePath) -> io::Result<Vec<String>> {
        let entries = match self.handle.open_beneath(dir).and_then(|mut dir| dir.entries()) {
            Ok(entries) => entries,
            Err(e) if is_not_there(&e) => return Ok(Vec::new()),
            Err(e) => return Err(e),
        };
        let mut names: Vec<String> = entries
            .into_iter()
            .filter(|(name, _)| name != b".git")
            .filter_map(|(name, _)| String::from_utf8(name).ok())
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Adds all plain files at or below a directory, sorted.
    pub fn walk(&mut self, below: TreePath, files: &mut Vec<TreePath>) -> io::Result<()> {
        let what = below.to_string();
        let mut todo = vec![below];
        let mut found = Vec::new();
        while let Some(dir) = todo.pop() {
            // Most sessions have none.
            if self.stat(&dir).is_none() {
                continue;
            }
            for name in self.list(&dir)? {
                let path = dir.join(name.as_bytes());
                match self.stat(&path).map(|stat| stat.kind) {
                    Some(FileType::File) => found.push(path),
                    Some(FileType::Dir) => todo.push(path),
                    _ => {}
                }
                if found.len() + todo.len() + files.len() > FILES_MAX {
                    return Err(io::Error::other(format!(
                        "{what} has more than {FILES_MAX} files"
                    )));
                }
            }
        }
        found.sort_unstable();
        files.append(&mut found);
        Ok(())
    }

    pub fn stat(&self, path: &TreePath) -> Option<Stat> {
        self.dirs.stat(path).ok()
    }

    /// A small file; `None` when there is none.
    pub fn read_small(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let mut text = Vec::new();
        match self.handle.open_file(name.as_bytes()) {
            Ok(file) => file.take(SMALL_BYTES_MAX).read_to_end(&mut text)?,
            Err(e) if is_not_there(&e) => return Ok(None),
            Err(e) => return Err(e),
        };
        Ok(Some(text))
    }

    /// Where a transcript runs, by the first record that says so, else by `fallback`; `None` when that isn't in the root, or
    /// nothing says it.
    pub fn head(
        &mut self,
        path: &TreePath,
        fallback: Option<&Path>,
        each: impl FnMut(&serde_json::Value) -> Option<Head>,
    ) -> Option<Head> {
        self.head_by(path, fallback, |file| {
            jsonl::first(file, HEADS_BYTES_MAX, each).ok().flatten()
        })
    }

    /// As [`Self::head`], of a small text.
    pub fn head_of_text(&mut self, path: &TreePath, read: impl Fn(&str) -> Option<Head>) -> Option<Head> {
        self.head_by(path, None, |file| {
            let mut text = String::new();
            file.take(HEADS_BYTES_MAX).read_to_string(&mut text).ok()?;
            read(&text)
        })
    }

    fn head_by(
        &mut self,
        path: &TreePath,
        fallback: Option<&Path>,
        read: impl FnOnce(std::fs::File) -> Option<Head>,
    ) -> Option<Head> {
        let stat = self.stat(path).filter(|stat| stat.kind == FileType::File)?;
        let place = self.dir.join(path.as_path());
        let head = match self.caches.heads.get(&place) {
            Some((ino, _, Some(head))) if *ino == stat.ino => Some(head.clone()),
            Some((ino, size, None)) if (*ino, *size) == (stat.ino, stat.size) => None,
            _ => {
                // One that can't be opened is told of when it is to be kept.
                let head = open(self.handle, path).ok().and_then(read);
                self.caches
                    .heads
                    .insert(place, (stat.ino, stat.size, head.clone()));
                head
            }
        };
        // Nothing says it yet, or ever: where the file lies has to do.
        let head = head.or_else(|| {
            let cwd = fallback?.to_owned();
            Some(Head {
                cwd,
                session: String::new(),
            })
        });
        head.filter(|head| self.is_ours(&head.cwd))
    }

    /// Where the session of a transcript began, be that here or elsewhere, by the first record that says it.
    pub fn began(
        &mut self,
        path: &TreePath,
        each: impl Fn(&serde_json::Value) -> Option<PathBuf>,
    ) -> Option<PathBuf> {
        let stat = self.stat(path).filter(|stat| stat.kind == FileType::File)?;
        let place = self.dir.join(path.as_path());
        if let Some((ino, began)) = self.caches.began.get(&place)
            && *ino == stat.ino
        {
            return Some(began.clone());
        }
        let file = open(self.handle, path).ok()?;
        let began = jsonl::first(file, HEADS_BYTES_MAX, each).ok().flatten()?;
        self.caches.began.insert(place, (stat.ino, began.clone()));
        Some(began)
    }

    /// The sessions of the root in a database; asked only when it changed.
    pub fn rows(
        &mut self,
        name: &str,
        ask: impl FnOnce(&Connection, &TreePath) -> rusqlite::Result<Vec<Found>>,
    ) -> io::Result<Vec<Found>> {
        let (Some(db), Some(log)) = (Self::path(name), Self::path(&format!("{name}-wal"))) else {
            return Ok(Vec::new());
        };
        let Some(stat) = self.stat(&db).filter(|stat| stat.kind == FileType::File) else {
            return Ok(Vec::new());
        };
        let stamp = format!(
            "{} {}",
            stamp(&stat),
            self.stat(&log).as_ref().map(stamp).unwrap_or_default()
        );
        let place = self.dir.join(db.as_path());
        if let Some((known, found)) = self.caches.databases.get(&place)
            && *known == stamp
        {
            return Ok(found.clone());
        }
        let mut found = sqlite::open(&place)
            .and_then(|database| ask(&database, &db))
            .map_err(|e| io::Error::other(format!("{name}: {e}")))?;
        found.retain(|found| self.is_ours(&found.cwd));
        self.caches.databases.insert(place, (stamp, found.clone()));
        Ok(found)
    }
}

/// Where a path leads that somebody else has named. It may be on a file system that doesn't answer: `None` when that takes too
/// long, and a thread stays behind that waits for it.
pub(super) fn real(path: &Path) -> Option<io::Result<PathBuf>> {
    let path = path.to_owned();
    in_time(PATIENCE, move || path.canonicalize())
}

fn in_time<T: Send + 'static>(patience: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    let worker = thread::Builder::new().name("look".into());
    // Nobody may wait for it any more when it is done.
    let started = worker.spawn(move || drop(sender.send(work())));
    started.ok()?;
    receiver.recv_timeout(patience).ok()
}

/// A transcript is a plain file of ours; anything else is somebody's arrangement that isn't understood here.
pub(super) fn check_owned(stat: &Stat) -> io::Result<()> {
    if stat.kind != FileType::File {
        return Err(io::Error::other("it is no plain file"));
    }
    if stat.uid != nix::unistd::geteuid().as_raw() {
        return Err(io::Error::other("it belongs to another user"));
    }
    Ok(())
}

pub(super) fn stamp(stat: &Stat) -> String {
    format!("{}.{}.{}.{}", stat.ino, stat.size, stat.mtime_ns, stat.ctime_ns)
}

/// Opens a file below an agent's directory, no part of its path through a link.
pub(super) fn open(dir: &DirHandle, path: &TreePath) -> io::Result<std::fs::File> {
    let (above, name) = path
        .split_last()
        .ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?;
    dir.open_beneath(&above)?.open_file(name)
}

pub(super) fn is_not_there(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// An id that can stand in a command and in a path.
pub(super) fn is_plain(session: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    !session.is_empty()
        && session.len() <= 128
        && !session.starts_with(['-', '.'])
        && session.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_answer_is_not_waited_for() {
        let (release, wait) = mpsc::channel::<()>();
        let hangs = in_time(Duration::from_millis(10), move || wait.recv());
        assert!(hangs.is_none());
        drop(release);
        assert_eq!(in_time(Duration::from_secs(60), || 7), Some(7));
        assert!(real(Path::new("/nonexistent/here")).unwrap().is_err());
        assert_eq!(real(Path::new("/")).unwrap().unwrap(), Path::new("/"));
    }
}
