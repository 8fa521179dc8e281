//! What is captured.
//!
//! For a path the first of these that says something decides, and a directory that is left out takes all below it along:
//!
//! 1. include patterns of the root;
//! 2. the user's index: what it holds is captured;
//! 3. `.stepbackignore` and `.gitignore`, from the nearest directory up, up to the top of the work tree;
//! 4. `.git/info/exclude`, then `core.excludesFile`;
//! 5. the built-in list.
//!
//! A repository inside another begins anew: outer `.gitignore` files and excludes don't reach into it, as for git; outer
//! `.stepbackignore` files and the built-in list do. The root itself is never ignored: someone attached it.
//!
//! Limits: a `.gitignore` that a sparse checkout leaves out of the work tree isn't read from the index. Without git
//! installed, of the global excludes files only the one at the default place is known.
//!
//! Nothing of this reaches what git keeps for itself: any `.git`, and the directories that a `.git` file or link names.
//!
//! The matching is our own (`pattern`, `wildmatch`), because git is the judge of what is ignored and the crates differ from it.

mod builtin;
mod children;
mod git;
mod git_dirs;
mod ignore_file;
mod include;
mod outside;
mod pattern;
mod place;
mod recorded;
mod repo;
mod split_index;
mod tracked;
mod wildmatch;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use children::Children;
pub use include::{check_include, included_by};
pub use outside::{AboveRules, OutsideRules};
pub(crate) use place::{Below, DirRules, Place};

use crate::error::{At, Error, Result};
use crate::node::Snapshot;
use crate::path::{DOT_GIT, TreePath};
use crate::root::{DirHandle, FileType};
use crate::store::Store;
use git_dirs::GitDirs;
use include::Include;
use recorded::Recorded;
use repo::{Fate, GitDir, Repo};

/// The user's git and where its global files are; given by the caller, who alone reads the environment.
#[derive(Debug, Clone, Default)]
pub struct GitEnvironment {
    /// The git program, if there is one.
    pub program: Option<PathBuf>,
    /// HOME.
    pub home: Option<PathBuf>,
    /// XDG_CONFIG_HOME.
    pub config_home: Option<PathBuf>,
    /// PATH for git.
    pub path: Option<std::ffi::OsString>,
    /// A directory of ours, for copies of what git would change by reading it; `None`: it may.
    pub scratch: Option<PathBuf>,
    /// The gits that run just now, to end them.
    pub children: Children,
}

/// What a change of rules outside the tree makes stale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stale {
    /// Nothing.
    Nothing,
    /// These paths: add them to those to be looked at.
    Paths(BTreeSet<TreePath>),
    /// Any path: scan the whole root.
    All,
}

/// Rules of the present tree or of a recorded one. `Sync`: shared by the threads of a scan.
pub struct Rules {
    source: Source,
    include: Include,
    forgotten: BTreeSet<TreePath>,
    /// Directories that are left out as they are now.
    astray: BTreeSet<TreePath>,
    /// Directories of our own: device and inode.
    own_dirs: Vec<(u64, u64)>,
    max_file_size: u64,
    git_dirs: GitDirs,
    /// Directories with a `.git` that is no directory.
    pointers: Mutex<BTreeSet<TreePath>>,
    /// One of them is new.
    new_pointer: AtomicBool,
    /// Conversations aren't kept as such: those in the root are files.
    takes_conversations: bool,
    /// Bit by bit, which built-in patterns left something out.
    hits: AtomicU32,
    outermost: Place,
    /// Of the outermost place.
    outside: Arc<Repo>,
    above: Vec<AboveRules>,
    repos: Mutex<BTreeMap<TreePath, Arc<Repo>>>,
    /// Directories that [`Self::ignores`] came through; `None` for those that are left out.
    places: Mutex<HashMap<TreePath, Option<Place>>>,
}

enum Source {
    // The root is opened when it is looked at, not held open: its file system must stay free to be unmounted.
    Disk {
        path: PathBuf,
        /// Device and inode.
        identity: (u64, u64),
        git: GitEnvironment,
    },
    Recorded(Box<Recorded>),
}

/// A name of a file that holds rules for its directory and all below.
pub(crate) fn is_rule_file(name: &[u8]) -> bool {
    name == ignore_file::GIT || name == ignore_file::STEPBACK
}

impl Rules {
    /// Rules of the present. Cheap: ignore files are read when a scan or [`Self::ignores`] comes to their directories. Keep it,
    /// and call [`Self::refresh`] before each capture.
    ///
    /// # Errors
    /// [`Error::RootMissing`], [`Error::Rules`] for rules that can't be read.
    pub fn of_disk(
        root: &Path,
        git: &GitEnvironment,
        include: &[String],
        max_file_size: u64,
        forgotten: &[TreePath],
    ) -> Result<Self> {
        let identity = identity(root)?;
        let (outside, above) = outside::read(git, root, None)?;
        let outside = match outside {
            Fate::Rules(repo) | Fate::Index(repo, _) => Arc::new(repo),
            Fate::Same => Arc::default(),
        };
        Ok(Self {
            source: Source::Disk {
                path: root.to_owned(),
                identity,
                git: git.clone(),
            },
            include: Include::new(include),
            forgotten: forgotten.iter().cloned().collect(),
            astray: BTreeSet::new(),
            own_dirs: Vec::new(),
            max_file_size,
            git_dirs: GitDirs::look(root, &BTreeSet::new(), &BTreeSet::new()),
            pointers: Mutex::default(),
            new_pointer: AtomicBool::new(false),
            takes_conversations: false,
            hits: AtomicU32::new(0),
            outermost: outside::place(&outside, &above),
            outside,
            above,
            repos: Mutex::default(),
            places: Mutex::default(),
        })
    }

    /// Captures conversations that are in the root as files like any other.
    pub const fn take_conversations(&mut self) {
        self.takes_conversations = true;
    }

    /// Rules of a recorded tree: its ignore files, and what came from outside then. Tracked files don't count here.
    ///
    /// # Errors
    /// That of opening the store.
    pub fn of_snapshot(store: &Store, snapshot: Snapshot, outside: &OutsideRules) -> Result<Self> {
        let (base, repos) = outside::recorded(outside);
        Ok(Self {
            source: Source::Recorded(Box::new(Recorded::new(Store::open(store.path())?, snapshot.tree))),
            include: Include::new(&outside.include),
            forgotten: BTreeSet::new(),
            astray: BTreeSet::new(),
            own_dirs: Vec::new(),
            max_file_size: outside.max_file_size,
            git_dirs: GitDirs::default(),
            pointers: Mutex::default(),
            new_pointer: AtomicBool::new(false),
            takes_conversations: outside.conversations_as_files,
            hits: AtomicU32::new(0),
            outermost: outside::place(&base, &outside.above),
            outside: base,
            above: outside.above.clone(),
            repos: Mutex::new(repos),
            places: Mutex::default(),
        })
    }

    /// Looks whether rules outside the tree changed: excludes, settings, indexes. Ignore files in the tree are no matter of
    /// this, they are paths like others. Costs a few `stat`s while nothing changed. What comes back is told once: look at it,
    /// or scan everything next time.
    ///
    /// # Errors
    /// [`Error::Rules`]; then the old rules stand, and the next call looks again.
    pub fn refresh(&mut self) -> Result<Stale> {
        let Source::Disk {
            path,
            identity: known,
            git,
        } = &mut self.source
        else {
            return Ok(Stale::Nothing);
        };
        lock(&self.places).clear();
        let mut paths = BTreeSet::new();
        let mut all = std::mem::replace(known, identity(path)?) != *known;
        let (outside, above) = outside::read(git, path, Some(&self.outside))?;
        all |= above != self.above;
        let outside = outcome(outside, &self.outside, &mut paths, &mut all);
        let known = lock(&self.repos).clone();
        let mut repos = BTreeMap::new();
        for (at, repo) in &known {
            match GitDir::find(&path.join(at.as_path())) {
                None => {
                    paths.insert(at.clone());
                }
                Some(git_dir) => {
                    let fate = Repo::read(git, path, at, b"", Some(git_dir), Some(repo))?;
                    repos.insert(at.clone(), outcome(fate, repo, &mut paths, &mut all));
                }
            }
        }
        let places = lock(&self.pointers).clone();
        let git_dirs = GitDirs::look(path, &places, self.git_dirs.named());
        paths.extend(git_dirs.differences(&self.git_dirs));
        // Only now: what changed is told once, and by a call that succeeds.
        *self.new_pointer.get_mut() = false;
        self.git_dirs = git_dirs;
        self.outermost = outside::place(&outside, &above);
        (self.outside, self.above, self.repos) = (outside, above, Mutex::new(repos));
        Ok(match (all, paths.is_empty()) {
            (true, _) => Stale::All,
            (false, true) => Stale::Nothing,
            (false, false) => Stale::Paths(paths),
        })
    }

    /// Whether the path is left out by an ignore rule: itself, or a directory above it; include patterns first. Nothing need
    /// be there. Ignore files on disk are read once between two calls of [`Self::refresh`].
    ///
    /// # Errors
    /// [`Error::Rules`] for an ignore file that can't be read; those of the store.
    pub fn ignores(&self, path: &TreePath, is_dir: bool) -> Result<bool> {
        let Some((above, name)) = path.split_last() else {
            return Ok(false);
        };
        Ok(match self.place_of(&above)? {
            None => true,
            Some(place) => place
                .verdict(self, path.as_bytes(), name, is_dir, &self.hits)
                .is_none(),
        })
    }

    /// Whether include patterns take a path in: itself, or a directory above it.
    #[must_use]
    pub fn is_included(&self, path: &TreePath, is_dir: bool) -> bool {
        self.include.takes_with_above(path, is_dir)
    }

    /// For the side record. What it says of repositories inside the root is known after a scan.
    #[must_use]
    pub fn outside(&self) -> OutsideRules {
        let repos = lock(&self.repos);
        let own = repos.get(&TreePath::root()).unwrap_or(&self.outside);
        let text = |patterns: &pattern::Patterns| String::from_utf8_lossy(patterns.text()).into_owned();
        let mut exclude: BTreeMap<_, _> = repos
            .iter()
            .map(|(at, repo)| (at.clone(), text(&repo.exclude)))
            .collect();
        if self.outside.is_repository() {
            exclude
                .entry(TreePath::root())
                .or_insert_with(|| text(&self.outside.exclude));
        }
        OutsideRules {
            exclude,
            global: text(&own.global),
            include: self.include.texts().to_vec(),
            max_file_size: self.max_file_size,
            conversations_as_files: self.takes_conversations,
            ignore_case: own.ignore_case,
            prefix: String::from_utf8_lossy(&own.prefix).into_owned(),
            above: self.above.clone(),
        }
    }

    /// Built-in patterns that left something out in the latest scan and since, for `status`.
    #[must_use]
    pub fn builtin_hits(&self) -> Vec<String> {
        let hits = self.hits.load(Ordering::Relaxed);
        (0..builtin::COUNT)
            .filter(|index| hits & (1 << index) != 0)
            .filter_map(builtin::pattern)
            .collect()
    }

    /// What people should know: git isn't installed.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let Source::Disk { path, git, .. } = &self.source else {
            return Vec::new();
        };
        let has_git = git.program.as_ref().is_some_and(|program| program.exists());
        if has_git
            || !(self.outside.is_repository()
                || GitDir::find(path).is_some()
                || !lock(&self.repos).is_empty())
        {
            return Vec::new();
        }
        vec!["git isn't installed: ignored files that are tracked aren't covered".into()]
    }

    /// A whole scan begins.
    pub(crate) fn begin_scan(&self) {
        self.hits.store(0, Ordering::Relaxed);
    }

    /// Built-in patterns left something out.
    pub(crate) fn note_builtin_hits(&self, hits: u32) {
        if hits != 0 {
            self.hits.fetch_or(hits, Ordering::Relaxed);
        }
    }

    /// Whether `forget` left out this very path.
    pub(crate) fn is_forgotten(&self, path: &[u8]) -> bool {
        !self.forgotten.is_empty() && TreePath::new(path).is_ok_and(|path| self.forgotten.contains(&path))
    }

    /// Leaves these very paths out until this is called again, each with a name.
    pub(crate) fn leave_out<'a>(&mut self, paths: impl Iterator<Item = &'a TreePath>) {
        self.astray = paths.cloned().collect();
    }

    /// Leaves these directories out wherever they are met, each with a name: device and inode.
    pub(crate) fn leave_out_dirs(&mut self, dirs: Vec<(u64, u64)>) {
        self.own_dirs = dirs;
    }

    /// Whether [`Self::leave_out_dirs`] named this directory.
    pub(crate) fn is_own_dir(&self, dev: u64, ino: u64) -> bool {
        self.own_dirs.contains(&(dev, ino))
    }

    /// Whether [`Self::leave_out`] named this very path.
    pub(crate) fn is_astray(&self, path: &[u8]) -> bool {
        !self.astray.is_empty() && TreePath::new(path).is_ok_and(|path| self.astray.contains(&path))
    }

    /// Git directories that are known from before this was made.
    pub(crate) fn know_git_dirs(&mut self, earlier: &BTreeSet<TreePath>) {
        if let Source::Disk { path, .. } = &self.source {
            let known = earlier.union(self.git_dirs.named()).cloned().collect();
            self.git_dirs = GitDirs::look(path, &lock(&self.pointers), &known);
        }
    }

    /// The git directories in the root that a `.git` names, or once named.
    pub(crate) const fn git_dirs(&self) -> &BTreeSet<TreePath> {
        self.git_dirs.named()
    }

    /// Takes into account which `.git` the latest look met: gives the paths that must be looked at anew because of it.
    pub(crate) fn settle_git_dirs(&mut self) -> BTreeSet<TreePath> {
        let Source::Disk { path, .. } = &self.source else {
            return BTreeSet::new();
        };
        if !std::mem::take(self.new_pointer.get_mut()) {
            return BTreeSet::new();
        }
        let found = GitDirs::look(path, &lock(&self.pointers), self.git_dirs.named());
        let different = found.differences(&self.git_dirs);
        if !different.is_empty() {
            self.git_dirs = found;
            lock(&self.places).clear();
        }
        different
    }

    /// Whether this very path is what git keeps for itself, outside of any `.git`.
    pub(crate) fn is_git_own(&self, path: &[u8]) -> bool {
        self.git_dirs.has(path)
    }

    /// What git keeps for itself, outside of any `.git`, that is `path` or holds it: the uppermost such path.
    #[must_use]
    pub fn git_own(&self, path: &TreePath) -> Option<TreePath> {
        self.git_dirs.above(path)
    }

    /// The place that the root is entered from.
    pub(crate) fn outermost(&self) -> &Place {
        &self.outermost
    }

    /// The place of a directory whose ignore files are known.
    pub(crate) fn enter_known(
        &self,
        from: &Place,
        below: Below,
        path: &TreePath,
        rules: Option<&DirRules>,
    ) -> Result<Place> {
        let repo = match rules {
            Some(rules) if rules.repo && below == Below::ByRules => self.repo_at(path)?,
            _ => None,
        };
        Ok(from.enter(path.as_bytes(), below, rules, repo))
    }

    /// Reads the ignore files of an open directory. `has` tells whether it has an entry of that name.
    pub(crate) fn read_dir(
        &self,
        below: Below,
        path: &TreePath,
        dir: &DirHandle,
        has: &dyn Fn(&[u8]) -> bool,
    ) -> Result<DirRules> {
        let mut rules = DirRules::default();
        let Source::Disk { path: root, .. } = &self.source else {
            return Ok(rules);
        };
        if has(DOT_GIT) && dir.stat(DOT_GIT).is_ok_and(|stat| stat.kind != FileType::Dir) {
            let is_new = lock(&self.pointers).insert(path.clone());
            self.new_pointer.fetch_or(is_new, Ordering::Relaxed);
        }
        if below != Below::ByRules {
            return Ok(rules);
        }
        for (name, patterns) in [
            (ignore_file::GIT, &mut rules.git),
            (ignore_file::STEPBACK, &mut rules.stepback),
        ] {
            if has(name) {
                *patterns = ignore_file::read(dir, name, &root.join(path.as_path()))?;
            }
        }
        rules.repo = has(DOT_GIT) && self.repo_at(path)?.is_some();
        rules.cargo = has(b"Cargo.toml");
        Ok(rules)
    }

    /// The repository whose `.git` is in this directory.
    fn repo_at(&self, path: &TreePath) -> Result<Option<Arc<Repo>>> {
        if let Some(repo) = lock(&self.repos).get(path) {
            return Ok(Some(Arc::clone(repo)));
        }
        let Source::Disk { path: root, git, .. } = &self.source else {
            return Ok(None);
        };
        let Some(git_dir) = GitDir::find(&root.join(path.as_path())) else {
            return Ok(None);
        };
        let repo = match Repo::read(git, root, path, b"", Some(git_dir), None)? {
            Fate::Rules(repo) | Fate::Index(repo, _) => Arc::new(repo),
            Fate::Same => return Ok(None),
        };
        Ok(Some(Arc::clone(
            lock(&self.repos).entry(path.clone()).or_insert(repo),
        )))
    }

    /// The place of a directory, by its path; `None` when it is left out.
    fn place_of(&self, dir: &TreePath) -> Result<Option<Place>> {
        if let Some(known) = lock(&self.places).get(dir) {
            return Ok(known.clone());
        }
        let mut at = TreePath::root();
        let mut place = Some(self.place_below(&self.outermost, Below::ByRules, &at)?);
        for part in dir.parts() {
            let Some(above) = place else { break };
            at = at.join(part);
            if let Some(known) = lock(&self.places).get(&at) {
                place = known.clone();
                continue;
            }
            place = match above.verdict(self, at.as_bytes(), part, true, &self.hits) {
                Some(below) => Some(self.place_below(&above, below, &at)?),
                None => None,
            };
            lock(&self.places).insert(at.clone(), place.clone());
        }
        lock(&self.places).insert(dir.clone(), place.clone());
        Ok(place)
    }

    fn place_below(&self, from: &Place, below: Below, dir: &TreePath) -> Result<Place> {
        let rules = match &self.source {
            Source::Recorded(recorded) => recorded.dir_rules(dir, lock(&self.repos).contains_key(dir))?,
            Source::Disk { path, .. } => match open_root(path)?.open_beneath(dir) {
                Ok(handle) => self.read_dir(below, dir, &handle, &|name| handle.stat(name).is_ok())?,
                Err(error) if has_no_rules(&error) => DirRules::default(),
                Err(error) => return Err(error).at(path.join(dir.as_path())),
            },
        };
        self.enter_known(from, below, dir, Some(&rules))
    }
}

/// Device and inode of the root.
fn identity(path: &Path) -> Result<(u64, u64)> {
    let stat = open_root(path)?.stat_self().at(path)?;
    Ok((stat.dev, stat.ino))
}

fn open_root(path: &Path) -> Result<DirHandle> {
    match DirHandle::open_root(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::RootMissing(path.to_owned()))
        }
        other => other.at(path),
    }
}

/// The repository to go on with, and what that makes stale.
fn outcome(fate: Fate, earlier: &Arc<Repo>, paths: &mut BTreeSet<TreePath>, all: &mut bool) -> Arc<Repo> {
    match fate {
        Fate::Same => Arc::clone(earlier),
        Fate::Index(repo, new) => {
            paths.extend(new);
            Arc::new(repo)
        }
        Fate::Rules(repo) => {
            *all = true;
            Arc::new(repo)
        }
    }
}

/// Whether nothing is where a directory was opened, or something without entries that can be seen: no permission, or a
/// file system that has lost its server. Only what says something of this process says nothing of the directory.
fn has_no_rules(error: &std::io::Error) -> bool {
    use nix::errno::Errno;
    !matches!(
        error.raw_os_error().map(Errno::from_raw),
        Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM)
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules")
            .field("outside", &self.outside())
            .finish_non_exhaustive()
    }
}
