//! The tree of a root in memory: for each entry what `lstat` said and the object that holds its contents, for each directory
//! the ids of its git tree and side tree. A capture after one edit reads that file and writes the directories above it.
//!
//! - [`Tree::scan`] looks at everything, [`Tree::update`] at given paths; both read only what a stat can't vouch for.
//! - [`Tree::persist`] writes the directories that changed.
//! - [`Tree::saved`] says that the writer which got all this came to its end. What was handed to a writer without that is
//!   read and written anew by the next look, so that an error on the way costs time, never an object.
//! - [`Tree::save`] and [`Tree::load`] keep it over a restart.

mod building;
pub(crate) mod cache;
mod dir;
mod limits;
mod linked;
mod look;
mod merge;
mod persist;
mod read;
mod scan;
mod side;
pub mod stored;
pub(crate) mod together;
mod want;
pub mod with;
pub mod without;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::OnceLock;

use rayon::prelude::*;

use crate::error::Result;
use crate::node::{CommonModes, Node, NotCaptured, Perm, Snapshot};
use crate::oid::Oid;
use crate::path::TreePath;
use crate::progress::Progress;
use crate::root::{DirHandle, Stat};
use crate::rules::Rules;
use crate::store::ObjectWriter;
use crate::time::Time;
use dir::{Dir, Slot};
pub use limits::{Census, Limits, Room};
use linked::Linked;
use want::Want;

/// Which directory stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inode {
    /// Its file system.
    pub dev: u64,
    /// Its number there.
    pub ino: u64,
}

impl From<&Stat> for Inode {
    fn from(stat: &Stat) -> Self {
        let Stat { dev, ino, .. } = *stat;
        Self { dev, ino }
    }
}

/// Told of every captured directory before it is listed, so that a watch can be set first.
pub trait DirWatch: Sync {
    /// About to list this directory (which one it is given), or to trust what is known of it. `true`: it was watched before, so events
    /// have told of every change in it since.
    fn enter(&self, dir: &TreePath, inode: Inode) -> bool;
    /// It is gone or no longer captured.
    fn leave(&self, dir: &TreePath);
}

/// Watches nothing.
pub struct NoWatch;

impl DirWatch for NoWatch {
    fn enter(&self, _: &TreePath, _: Inode) -> bool {
        false
    }
    fn leave(&self, _: &TreePath) {}
}

/// What a scan needs.
pub struct ScanContext<'a> {
    /// The root, open.
    pub root: &'a DirHandle,
    /// What is captured; [`Rules::refresh`] was called for this look.
    pub rules: &'a Rules,
    /// Gets new contents.
    pub writer: &'a ObjectWriter<'a>,
    /// Larger files are left out.
    pub max_file_size: u64,
    /// When the scan began: stats not older than this by the racy margin aren't trusted later.
    pub now: Time,
    /// Told of directories.
    pub watch: &'a dyn DirWatch,
    /// Counts files; may cancel.
    pub progress: &'a Progress,
    /// How much there may be, and how much of it new.
    pub limits: &'a Limits,
}

/// What a scan found.
#[derive(Debug, Default)]
pub struct ScanOutcome {
    /// Anything captured differs from before (contents, modes, attributes, names).
    pub changed: bool,
    /// Files that kept changing while they were read: not captured now, to be looked at again.
    pub still_dirty: Vec<TreePath>,
}

/// Threads of one scan at most: the stat calls of more don't go faster, and other roots need some too.
const THREADS_MAX: usize = 8;

/// Deeper trees are written, saved and dropped on a stack of their own.
const DEPTH_FOR_OWN_STACK: usize = 200;
/// That stack's size in bytes: 16 KiB for each level.
const OWN_STACK_BYTES: usize = 16 * 1024 * scan::DEPTH_MAX;

/// A directory, and those in it that are still to come.
type Level<'a> = (TreePath, Box<dyn Iterator<Item = (&'a [u8], &'a Dir)> + 'a>);

/// The tree of a root.
#[derive(Debug, Default)]
pub struct Tree {
    root: Option<Box<Dir>>,
    /// Levels below the root, at least.
    depth: usize,
    /// Ignore files aren't known, or an error ended a look half-way: the next look is at everything.
    incomplete: bool,
    /// What the side trees were written with.
    common: Option<CommonModes>,
    linked: Linked,
}

impl Tree {
    /// Nothing known yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// From the cache file; None when it is absent, of another version, damaged, or of another root (it costs time only).
    #[must_use]
    pub fn load(file: &Path, root_id: &str) -> Option<Self> {
        let bytes = std::fs::read(file).ok()?;
        let cached = cache::decode(&bytes, root_id, |depth, work| on_stack_for(depth, work))?;
        Some(Self {
            root: Some(cached.root),
            depth: cached.depth,
            incomplete: true,
            common: cached.common,
            linked: Linked::default(),
        })
    }

    /// Writes the cache file (temporary + rename, not synced). A tree of which nothing is known writes none.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn save(&self, file: &Path, root_id: &str) -> Result<()> {
        let Some(root) = &self.root else { return Ok(()) };
        let bytes = on_stack_for(self.depth, || {
            cache::encode(root, self.depth, self.common, root_id)
        });
        cache::replace(file, &bytes)
    }

    /// Looks at everything; reads what isn't known by its stat.
    ///
    /// # Errors
    /// [`crate::Error::Rules`], [`crate::Error::Cancelled`], those of the store, and that the root itself can't be listed.
    /// What was found until then stays known, and the next look is at everything.
    pub fn scan(&mut self, cx: &ScanContext<'_>) -> Result<ScanOutcome> {
        self.scan_all(false, cx)
    }

    /// As [`Self::scan`], for when no rule from outside the tree has changed since the latest look: a directory whose ctime
    /// shows that no name came or went since it was listed isn't listed again. All that is known in it is looked at.
    ///
    /// # Errors
    /// As [`Self::scan`].
    pub fn scan_again(&mut self, cx: &ScanContext<'_>) -> Result<ScanOutcome> {
        self.scan_all(!self.incomplete, cx)
    }

    fn scan_all(&mut self, trusts_names: bool, cx: &ScanContext<'_>) -> Result<ScanOutcome> {
        cx.rules.begin_scan();
        cx.progress.begin(self.files());
        self.not_saved();
        let everything = Want {
            whole: true,
            trusts_names,
            ..Want::default()
        };
        let (outcome, linked) = self.look(everything, cx)?;
        self.linked.note(None, &linked);
        Ok(outcome)
    }

    /// Looks at these paths only, and at new directories whole. A path that is a known directory is listed, but what is in the
    /// directories in it isn't looked at. An ignore file (`.gitignore`, `.stepbackignore`) has everything below its directory
    /// looked at. For a `.git` that came or went, give the directory that holds it.
    ///
    /// Falls back to [`Self::scan`] where too little is known, as after [`Self::load`].
    ///
    /// # Errors
    /// As [`Self::scan`].
    pub fn update(&mut self, dirty: &BTreeSet<TreePath>, cx: &ScanContext<'_>) -> Result<ScanOutcome> {
        if self.root.is_none() || self.incomplete {
            return self.scan(cx);
        }
        self.not_saved();
        let mut wanted = dirty.clone();
        wanted.extend(self.linked.always().cloned());
        let (mut outcome, linked) = self.look(Want::of(&wanted), cx)?;
        self.linked.note(Some(&wanted), &linked);
        let others = self.linked.other_names(&linked, &wanted);
        if !others.is_empty() {
            self.look_further(&others, cx, &mut outcome)?;
        }
        Ok(outcome)
    }

    /// Goes on with a look that has just ended, with the same writer.
    ///
    /// # Errors
    /// As [`Self::scan`].
    pub fn look_further(
        &mut self,
        dirty: &BTreeSet<TreePath>,
        cx: &ScanContext<'_>,
        so_far: &mut ScanOutcome,
    ) -> Result<()> {
        let (further, linked) = self.look(Want::of(dirty), cx)?;
        self.linked.note(Some(dirty), &linked);
        so_far.changed |= further.changed;
        so_far.still_dirty.extend(further.still_dirty);
        Ok(())
    }

    fn not_saved(&mut self) {
        on_stack_for(self.depth, || {
            if let Some(root) = &mut self.root {
                persist::not_saved(root);
            }
        });
    }

    /// What it found, and the files with more than one name.
    fn look(&mut self, want: Want, cx: &ScanContext<'_>) -> Result<(ScanOutcome, Vec<(TreePath, u64)>)> {
        // Asking costs a dozen system calls.
        static THREADS: OnceLock<usize> = OnceLock::new();
        let threads = *THREADS.get_or_init(|| {
            std::thread::available_parallelism()
                .map_or(2, usize::from)
                .clamp(2, THREADS_MAX)
        });
        let whole = want.whole;
        let found = scan::walk(cx, self.root.take(), want, threads);
        self.root = found.root;
        self.depth = if whole && found.error.is_none() {
            found.depth
        } else {
            self.depth.max(found.depth)
        };
        match found.error {
            Some(error) => {
                self.incomplete = true;
                Err(error)
            }
            None => {
                self.incomplete &= !whole;
                let outcome = ScanOutcome {
                    changed: found.changed,
                    still_dirty: found.still_dirty,
                };
                Ok((outcome, found.linked))
            }
        }
    }

    /// The modes most files have, for a first capture.
    #[must_use]
    pub fn common_modes(&self) -> CommonModes {
        let (mut files, mut execs, mut dirs) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut stack: Vec<&Dir> = self.root.as_deref().into_iter().collect();
        while let Some(dir) = stack.pop() {
            *dirs.entry(dir.perm).or_insert(0u64) += 1;
            for entry in &dir.entries {
                match &entry.slot {
                    Slot::File(file) if file.perm.is_executable() => {
                        *execs.entry(file.perm).or_insert(0) += 1
                    }
                    Slot::File(file) => *files.entry(file.perm).or_insert(0) += 1,
                    Slot::Dir(dir) => stack.push(dir),
                    _ => {}
                }
            }
        }
        // Of equals the smaller one.
        let most = |counts: BTreeMap<Perm, u64>, otherwise| {
            let most = counts
                .into_iter()
                .max_by_key(|(perm, count)| (*count, std::cmp::Reverse(*perm)));
            most.map_or(otherwise, |(perm, _)| perm)
        };
        let usual = CommonModes::DEFAULT;
        CommonModes {
            file: most(files, usual.file),
            exec: most(execs, usual.exec),
            dir: most(dirs, usual.dir),
        }
    }

    /// Writes the git trees and side tables of all directories that changed since the last time; nothing else.
    ///
    /// # Errors
    /// Those of the store.
    pub fn persist(&mut self, writer: &ObjectWriter<'_>, common: &CommonModes) -> Result<Snapshot> {
        let Some(root) = &mut self.root else {
            return Ok(Snapshot::EMPTY);
        };
        if self.common != Some(*common) {
            if self.common.is_some() {
                forget_sides(root);
            }
            self.common = Some(*common);
        }
        on_stack_for(self.depth, || persist::persist(root, writer, common))
    }

    /// The writer that got what [`Self::scan`], [`Self::update`] and [`Self::persist`] found has finished: it is all in the store.
    pub fn saved(&mut self) {
        on_stack_for(self.depth, || {
            if let Some(root) = &mut self.root {
                persist::saved(root);
            }
        });
    }

    /// What is captured at a path.
    #[must_use]
    pub fn node(&self, path: &TreePath) -> Option<Node> {
        let root = self.root.as_ref()?;
        if path.is_root() {
            Some(root.node())
        } else {
            root.find(path)?.node()
        }
    }

    /// Size in bytes of the captured file at a path.
    #[must_use]
    pub fn size(&self, path: &TreePath) -> Option<u64> {
        match self.root.as_ref()?.find(path)? {
            Slot::File(file) => Some(file.sig.size),
            _ => None,
        }
    }

    /// Inode number of the captured directory at a path.
    #[must_use]
    pub fn dir_ino(&self, path: &TreePath) -> Option<u64> {
        match self.root.as_ref()?.find(path)? {
            Slot::Dir(dir) => Some(dir.ino),
            _ => None,
        }
    }

    /// Everything left out, sorted by path.
    #[must_use]
    pub fn not_captured(&self) -> Vec<NotCaptured> {
        let mut found = Vec::new();
        let mut stack: Vec<_> = self
            .root
            .as_deref()
            .map(|root| (TreePath::root(), root))
            .into_iter()
            .collect();
        while let Some((path, dir)) = stack.pop() {
            if dir.left == 0 {
                continue;
            }
            stack.extend(dir.dirs().map(|(name, dir)| (path.join(name), dir)));
            found.extend(dir.entries.iter().filter_map(|entry| match &entry.slot {
                Slot::Left(left) => Some(NotCaptured {
                    path: path.join(&entry.name),
                    reason: left.reason,
                    size: left.size,
                    mtime_ns: left.mtime_ns,
                }),
                _ => None,
            }));
        }
        found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        found
    }

    /// How many files, links and FIFOs are captured.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.root.as_ref().map_or(0, |root| root.files)
    }

    /// Paths of directories that are captured, for watches after a cached start. A directory comes before what is in it.
    pub fn for_each_dir(&self, f: &mut dyn FnMut(&TreePath, u64)) {
        let mut stack: Vec<_> = self
            .root
            .as_deref()
            .map(|root| (TreePath::root(), root))
            .into_iter()
            .collect();
        while let Some((path, dir)) = stack.pop() {
            stack.extend(dir.dirs().map(|(name, dir)| (path.join(name), dir)));
            f(&path, dir.ino);
        }
    }

    /// The directories that come behind `after` (from the root on, when there is none), a directory before what is in it,
    /// siblings by name: as many as have `entries` entries in all, but one at least. None: that was the last one. Looking at
    /// these for [`Self::update`], and so on behind the last of them, looks at everything in parts.
    #[must_use]
    pub fn dirs_after(&self, after: Option<&TreePath>, entries: usize) -> Vec<TreePath> {
        let Some(root) = self.root.as_deref() else {
            return Vec::new();
        };
        let mut found = Vec::new();
        let mut counted = 0;
        // What is still to come: of each level the directories that are left, the deepest level last.
        let mut levels: Vec<Level<'_>> = Vec::new();
        match after {
            None => levels.push((TreePath::root(), Box::new(std::iter::once((&[][..], root))))),
            Some(after) => {
                let (mut at, mut dir) = (TreePath::root(), Some(root));
                for part in after.parts() {
                    let Some(here) = dir else { break };
                    let behind = here.dirs().skip_while(move |(name, _)| *name <= part);
                    levels.push((at.clone(), Box::new(behind)));
                    dir = here.dirs().find(|(name, _)| *name == part).map(|(_, dir)| dir);
                    at = at.join(part);
                }
                levels.extend(dir.map(|dir| (at, Box::new(dir.dirs()) as Box<_>)));
            }
        }
        while let Some((above, left)) = levels.last_mut() {
            let Some((name, dir)) = left.next() else {
                levels.pop();
                continue;
            };
            let path = if name.is_empty() {
                above.clone()
            } else {
                above.join(name)
            };
            levels.push((path.clone(), Box::new(dir.dirs())));
            found.push(path);
            counted += dir.entries.len();
            if counted >= entries {
                break;
            }
        }
        found
    }

    /// Whether all that is known to be stored is: `holds` is asked for each object.
    ///
    /// # Errors
    /// The first one of `holds`.
    pub fn is_stored(&self, holds: &(dyn Fn(Oid) -> Result<bool> + Sync)) -> Result<bool> {
        let mut dirs: Vec<&Dir> = self.root.as_deref().into_iter().collect();
        let mut at = 0;
        while at < dirs.len() {
            let below = dirs[at].dirs();
            at += 1;
            dirs.extend(below.map(|(_, dir)| dir));
        }
        let lost = dirs.par_iter().find_map_any(|dir| {
            let contents = dir.entries.iter().filter_map(|entry| entry.slot.contents());
            let entries = contents.filter(|file| !file.unsaved).map(|file| file.oid);
            let own = [dir.tree, dir.side]
                .into_iter()
                .flatten()
                .filter(|_| !dir.unsaved);
            own.chain(entries)
                .map(holds)
                .find(|held| !matches!(held, Ok(true)))
        });
        lost.unwrap_or(Ok(true))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let root = self.root.take();
        on_stack_for(self.depth, || drop(root));
    }
}

fn forget_sides(root: &mut Dir) {
    let mut stack = vec![root];
    while let Some(dir) = stack.pop() {
        dir.side = None;
        stack.extend(dir.entries.iter_mut().filter_map(|entry| match &mut entry.slot {
            Slot::Dir(dir) => Some(&mut **dir),
            _ => None,
        }));
    }
}

/// Runs what recurses so many levels where the stack is large enough for it.
fn on_stack_for<T: Send>(depth: usize, work: impl FnOnce() -> T + Send) -> T {
    if depth <= DEPTH_FOR_OWN_STACK {
        return work();
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .stack_size(OWN_STACK_BYTES)
            .spawn_scoped(scope, work);
        let thread = thread.expect("a thread can be made");
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests;
