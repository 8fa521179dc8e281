//! A repository of the user's, as far as it says what is captured: exclude file, settings, index. Only read.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::GitEnvironment;
use super::git::{self, Answer};
use super::ignore_file;
use super::pattern::Patterns;
use super::tracked::{Collector, Tracked};
use crate::error::{Error, Result};
use crate::path::TreePath;
use crate::root::{FileType, Stat};
use crate::user_file::{is_null, open_any, read_small};

/// Where git keeps what belongs to a work tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GitDir {
    /// Of this work tree: HEAD, index.
    pub own: PathBuf,
    /// Shared by the worktrees of a repository: config, info/exclude.
    pub common: PathBuf,
}

impl GitDir {
    /// That of the work tree whose top is `dir`; `None` when `dir` holds no `.git` that git would take for one.
    pub fn find(dir: &Path) -> Option<Self> {
        let dot_git = dir.join(".git");
        let own = if fs::metadata(&dot_git).ok()?.is_dir() {
            dot_git
        } else {
            let text = read_small(&dot_git).ok()?;
            dir.join(OsStr::from_bytes(
                text.strip_prefix(b"gitdir: ")?.trim_ascii_end(),
            ))
        };
        Self::at(own)
    }

    /// The one that `own` is; `None` when git would take it for none.
    pub fn at(own: PathBuf) -> Option<Self> {
        let common = match read_small(&own.join("commondir")) {
            Ok(text) => own.join(OsStr::from_bytes(text.trim_ascii_end())),
            Err(_) => own.clone(),
        };
        let there = fs::symlink_metadata(own.join("HEAD")).is_ok()
            && common.join("objects").is_dir()
            && common.join("refs").is_dir();
        there.then_some(Self { own, common })
    }

    /// Both, once each.
    pub fn dirs(&self) -> impl Iterator<Item = &Path> {
        let common = (self.common != self.own).then_some(&self.common);
        [&self.own].into_iter().chain(common).map(PathBuf::as_path)
    }

    /// That git can read its files without being held up: one that waits there would hold up the root, and one that never
    /// ends would fill git's memory.
    fn check_files(&self) -> Result<()> {
        for name in ["HEAD", "index", "config.worktree"] {
            check_file(&self.own.join(name))?;
        }
        check_file(&self.common.join("config"))?;
        let link = self.own.join("commondir");
        match read_small(&link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::Rules {
                path: link,
                why: format!("it can't be read: {error}"),
            }),
            _ => Ok(()),
        }
    }
}

/// Reads a file of patterns; none when it isn't there, or is no file (`/dev/null`).
fn read_patterns(path: &Path) -> Result<Patterns> {
    match read_bytes(path) {
        Ok(text) => Ok(Patterns::parse(&text)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(Patterns::default())
        }
        Err(error) => Err(Error::Rules {
            path: path.to_owned(),
            why: format!("this file of ignore rules can't be read: {error}"),
        }),
    }
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let (mut file, stat) = open_any(path)?;
    let mut text = Vec::new();
    match stat.kind {
        FileType::Dir => return Err(io::ErrorKind::IsADirectory.into()),
        FileType::File if stat.size <= ignore_file::SIZE_MAX => file.read_to_end(&mut text)?,
        _ => 0,
    };
    Ok(text)
}

/// What tells whether a file is still the one that was read.
type Stamp = Option<(u64, u64, i64, i64)>;

fn stamp(path: &Path) -> Stamp {
    let stat = open_stat(path)?;
    Some((stat.ino, stat.size, stat.mtime_ns, stat.ctime_ns))
}

/// Refuses what git would wait for, or read without end, where it expects a file.
fn check_file(path: &Path) -> Result<()> {
    match open_stat(path).map(|stat| stat.kind) {
        Some(FileType::Fifo | FileType::Special) if !is_null(path) => Err(Error::Rules {
            path: path.to_owned(),
            why: "it is no regular file, and git reads it".into(),
        }),
        _ => Ok(()),
    }
}

fn open_stat(path: &Path) -> Option<Stat> {
    nix::sys::stat::stat(path).ok().map(Stat::from)
}

/// What holds in a part of the tree from outside of it: of a repository, or of no repository.
#[derive(Debug, Default)]
pub(super) struct Repo {
    /// The directory that holds `.git`; the root, when that is above it or there is none.
    pub at: TreePath,
    /// From the top of the work tree to the root, ending in a slash; empty unless the root is below the top.
    pub prefix: Vec<u8>,
    /// `.git/info/exclude`.
    pub exclude: Patterns,
    /// `core.excludesFile`.
    pub global: Patterns,
    /// `core.ignoreCase`.
    pub ignore_case: bool,
    /// The index.
    pub tracked: Arc<Tracked>,
    /// Something was captured that rules ignore, because the index has it.
    pub used: AtomicBool,
    git_dir: Option<GitDir>,
    settings: Arc<Settings>,
    index: Stamp,
}

/// Settings with the files that they were read from.
#[derive(Debug, Default)]
struct Settings {
    excludes_file: Option<PathBuf>,
    ignore_case: bool,
    stamps: Vec<(PathBuf, Stamp)>,
}

impl Settings {
    fn fresh(&self) -> bool {
        !self.stamps.is_empty() && self.stamps.iter().all(|(path, earlier)| stamp(path) == *earlier)
    }

    fn read(git: &GitEnvironment, dir: &Path, top: &Path, git_dir: Option<&GitDir>) -> Result<Self> {
        let config_home = git
            .config_home
            .clone()
            .or_else(|| git.home.as_ref().map(|home| home.join(".config")));
        let mut files = vec![PathBuf::from("/etc/gitconfig")];
        files.extend(git.home.as_ref().map(|home| home.join(".gitconfig")));
        files.extend(config_home.as_ref().map(|home| home.join("git/config")));
        if let Some(git_dir) = git_dir {
            files.extend([
                git_dir.common.join("config"),
                git_dir.own.join("config.worktree"),
                git_dir.own.join("HEAD"),
            ]);
            git_dir.check_files()?;
        }
        for file in &files {
            check_file(file)?;
        }
        // Stamped before git reads them: what changes meanwhile is seen next time.
        let mut stamps: Vec<(PathBuf, Stamp)> = files
            .into_iter()
            .map(|file| (file.clone(), stamp(&file)))
            .collect();
        let config = git::config(git, dir)?.unwrap_or_default();
        for file in config.files {
            if !stamps.iter().any(|(known, _)| *known == file) {
                stamps.push((file.clone(), stamp(&file)));
            }
        }
        let excludes_file = match config.excludes_file {
            Some(file) if file.as_os_str().is_empty() => None,
            Some(file) => Some(top.join(file)),
            None => config_home.map(|home| home.join("git/ignore")),
        };
        Ok(Self {
            excludes_file,
            ignore_case: config.ignore_case,
            stamps,
        })
    }
}

/// What became of a repository since it was looked at.
pub(super) enum Fate {
    /// Nothing.
    Same,
    /// Rules changed, or a path left the index that was captured only for being in it: look at everything.
    Rules(Repo),
    /// These paths are new in the index; nothing else changed that matters.
    Index(Repo, Vec<TreePath>),
}

/// More new paths in an index than this aren't listed one by one.
const NEW_PATHS_MAX: usize = 1_000;

impl Repo {
    /// Looks at what rules there are outside the tree for `at`. `root` is the root's path; `above` the part between the top
    /// of the work tree and the root, ending in a slash. `earlier` saves work where nothing changed.
    ///
    /// # Errors
    /// [`Error::Rules`] for what can't be read.
    pub fn read(
        git: &GitEnvironment,
        root: &Path,
        at: &TreePath,
        prefix: &[u8],
        git_dir: Option<GitDir>,
        earlier: Option<&Self>,
    ) -> Result<Fate> {
        let dir = root.join(at.as_path());
        let levels = prefix.iter().filter(|byte| **byte == b'/').count();
        let top = dir.ancestors().nth(levels).unwrap_or(&dir);
        let earlier = earlier.filter(|repo| repo.git_dir == git_dir && repo.prefix == prefix);
        let settings = match earlier {
            Some(repo) if repo.settings.fresh() => Arc::clone(&repo.settings),
            _ => Arc::new(Settings::read(git, &dir, top, git_dir.as_ref())?),
        };
        let exclude = match &git_dir {
            Some(git_dir) => read_patterns(&git_dir.common.join("info/exclude"))?,
            None => Patterns::default(),
        };
        let global = settings
            .excludes_file
            .as_deref()
            .map(read_patterns)
            .transpose()?
            .unwrap_or_default();
        let repo = Self {
            at: at.clone(),
            prefix: prefix.to_vec(),
            exclude,
            global,
            ignore_case: settings.ignore_case,
            tracked: Arc::default(),
            used: AtomicBool::new(earlier.is_some_and(|repo| repo.used.load(Ordering::Relaxed))),
            git_dir,
            settings,
            index: None,
        };
        repo.read_index(git, &dir, earlier)
    }

    fn read_index(mut self, git: &GitEnvironment, dir: &Path, earlier: Option<&Self>) -> Result<Fate> {
        let same_rules = earlier.is_some_and(|earlier| {
            (&earlier.exclude, &earlier.global, earlier.ignore_case)
                == (&self.exclude, &self.global, self.ignore_case)
        });
        self.index = self
            .git_dir
            .as_ref()
            .and_then(|git_dir| stamp(&git_dir.own.join("index")));
        if let Some(earlier) = earlier.filter(|earlier| same_rules && earlier.index == self.index) {
            if Arc::ptr_eq(&earlier.settings, &self.settings) {
                return Ok(Fate::Same);
            }
            self.tracked = Arc::clone(&earlier.tracked);
            return Ok(Fate::Index(self, Vec::new()));
        }
        let mut new = Vec::new();
        if let (Some(_), Some(git_dir)) = (self.index, &self.git_dir) {
            let mut collector = Collector::default();
            let mut path = if self.at.is_root() {
                Vec::new()
            } else {
                [self.at.as_bytes(), b"/"].concat()
            };
            let start = path.len();
            git_dir.check_files()?;
            let answer = git::tracked(git, dir, git_dir, &mut |relative, repository| {
                path.truncate(start);
                path.extend_from_slice(relative);
                collector.add(&path, repository);
                let known = earlier.is_none_or(|earlier| {
                    earlier.tracked.has(&path) || earlier.tracked.has_repository(&path)
                });
                if !known && new.len() <= NEW_PATHS_MAX {
                    new.extend(TreePath::new(&path));
                }
            })?;
            if answer == Answer::Yes {
                self.tracked = Arc::new(collector.finish());
            }
        }
        let Some(earlier) = earlier.filter(|_| same_rules) else {
            return Ok(Fate::Rules(self));
        };
        let lost = self.used.load(Ordering::Relaxed) && self.tracked.lost_some_of(&earlier.tracked);
        Ok(if lost || new.len() > NEW_PATHS_MAX {
            Fate::Rules(self)
        } else {
            Fate::Index(self, new)
        })
    }

    /// Whether `.git` is there.
    pub fn is_repository(&self) -> bool {
        self.git_dir.is_some()
    }

    /// One with rules kept in a checkpoint.
    pub fn recorded(at: TreePath, prefix: &str, exclude: &str, global: &Patterns, ignore_case: bool) -> Self {
        Self {
            at,
            prefix: prefix.as_bytes().to_vec(),
            exclude: Patterns::parse(exclude.as_bytes()),
            global: global.clone(),
            ignore_case,
            ..Self::default()
        }
    }
}
