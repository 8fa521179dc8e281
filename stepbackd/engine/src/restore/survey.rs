//! Looks at the ground before anything is written: which file systems are there, where staging directories can be, and
//! whether each change will be allowed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use nix::unistd::Uid;

use super::journal::{Generation, Opened, StagingPlace};
use super::ops;
use super::place::{Sort, Work, name};
use crate::error::{At, Error, Result};
use crate::mounts;
use crate::node::Perm;
use crate::path::{TEMPORARY_PREFIX, TreePath};
use crate::root::{DirHandle, FileType, Stat};

/// From so many slots on there is one more staging directory, up to one for each thread: two threads that make files in
/// one directory wait for each other.
const LANE_SLOTS_MIN: usize = 256;

/// Between which directories a rename works.
type FileSystem = (u64, u64);

struct Dir {
    stat: Stat,
    fd: OwnedFd,
    file_system: FileSystem,
    /// Why nothing can be made in it now.
    refusal: Option<io::Error>,
}

/// Where the staging directories will be, and which step uses which.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub generation: Generation,
    /// Index into `generation.stagings` by step.
    pub staging_of: BTreeMap<usize, usize>,
}

struct Surveyor<'a> {
    root_path: &'a Path,
    root: &'a DirHandle,
    /// Directories that are there now, by path. `None`: none is there.
    dirs: HashMap<TreePath, Option<Dir>>,
    /// Directories that won't be there when all is done.
    going: HashSet<&'a TreePath>,
    opened: BTreeMap<TreePath, Opened>,
    /// Nothing is mounted below the root: which mount a directory is on needn't be asked one by one.
    is_one_mount: bool,
}

/// Looks at where `works` will be done.
///
/// # Errors
/// When a change is sure to be refused: the first such path. Nothing has been changed then.
pub(super) fn survey(root_path: &Path, root: &DirHandle, works: &[Work]) -> Result<Survey> {
    let going = works
        .iter()
        .filter(|work| work.sort() == Sort::RemoveDir)
        .map(|work| &work.path)
        .collect();
    let mut surveyor = Surveyor {
        root_path,
        root,
        dirs: HashMap::new(),
        going,
        opened: BTreeMap::new(),
        is_one_mount: mounts::below(root_path).is_some_and(|below| below.is_empty()),
    };
    let needs_place = |work: &Work| work.needs_slot() && work.ready.is_none();
    let slots = works.iter().filter(|work| needs_place(work)).count();
    let lanes = (slots / LANE_SLOTS_MIN).clamp(1, rayon::current_num_threads());
    let mut stagings: BTreeMap<(FileSystem, TreePath, usize), usize> = BTreeMap::new();
    let mut survey = Survey::default();
    for work in works {
        surveyor.check(work)?;
        if needs_place(work) {
            let (file_system, parent) = surveyor.staging_parent(&work.path)?;
            // Neighbours share one: threads take works in runs.
            let lane = survey.staging_of.len() * lanes / slots;
            let next = stagings.len();
            let index = *stagings.entry((file_system, parent, lane)).or_insert(next);
            survey.staging_of.insert(work.step, index);
        }
    }
    let mut places: Vec<_> = stagings.into_iter().collect();
    places.sort_by_key(|(_, index)| *index);
    let parents = places.into_iter().map(|((_, parent, _), _)| parent).collect();
    survey.set_stagings(parents);
    survey.generation.opened = surveyor.opened.into_values().collect();
    Ok(survey)
}

impl Survey {
    /// For a root that isn't there yet: everything is staged at its top.
    pub fn in_new_root(works: &[Work]) -> Self {
        let mut survey = Self {
            staging_of: works.iter().map(|work| (work.step, 0)).collect(),
            ..Self::default()
        };
        survey.set_stagings(vec![TreePath::root()]);
        survey
    }

    /// Sets the staging directories: one for each of `parents`, in the order of `staging_of`. They aren't made right there but in
    /// another one, which has nothing else in it and spreads them (see [`ops::spread_dirs`]).
    fn set_stagings(&mut self, parents: Vec<TreePath>) {
        let mut outer: BTreeMap<TreePath, StagingPlace> = BTreeMap::new();
        let inner: Vec<_> = parents
            .into_iter()
            .map(|parent| {
                let outer = outer.entry(parent.clone());
                staging_at(outer.or_insert_with(|| staging_at(parent)).path())
            })
            .collect();
        for index in self.staging_of.values_mut() {
            *index += outer.len();
        }
        self.generation.stagings = outer.into_values().chain(inner).collect();
    }
}

/// A staging directory in `parent`, of a name that nothing has yet.
fn staging_at(parent: TreePath) -> StagingPlace {
    let random = std::hash::RandomState::new().build_hasher().finish();
    StagingPlace {
        parent,
        name: format!("{}{random:016x}", String::from_utf8_lossy(TEMPORARY_PREFIX)),
    }
}

impl Surveyor<'_> {
    /// Whether the change will be allowed, as far as can be told.
    fn check(&mut self, work: &Work) -> Result<()> {
        if work.path.is_root() {
            return Ok(());
        }
        let (parent, name) = work.path.split_last().expect("not the root");
        let full = self.root_path.join(work.path.as_path());
        if self.dir(&parent)?.is_none() {
            return Ok(());
        }
        if work.sort() == Sort::KeepDir {
            return self.check_owned(work);
        }
        self.open_for_change(&parent)?;
        let dir = self.dirs[&parent].as_ref().expect("looked up above");
        let Some(stat) = ops::stat(dir.fd.as_fd(), name).at(&full)? else {
            return Ok(());
        };
        ops::check_replaceable(dir.fd.as_fd(), name).at(&full)?;
        let me = Uid::effective();
        let sticky = dir.stat.mode & 0o1000 != 0;
        if sticky && !me.is_root() && dir.stat.uid != me.as_raw() && stat.uid != me.as_raw() {
            let why = "it belongs to another user, in a directory where only owners may remove".into();
            return Err(Error::CannotRestore {
                path: work.path.clone(),
                why,
            });
        }
        Ok(())
    }

    fn check_owned(&mut self, work: &Work) -> Result<()> {
        let Some(dir) = self.dir(&work.path)? else {
            return Ok(());
        };
        let me = Uid::effective();
        if !me.is_root() && dir.stat.uid != me.as_raw() {
            let why = "the mode of a directory that belongs to another user can't be changed".into();
            return Err(Error::CannotRestore {
                path: work.path.clone(),
                why,
            });
        }
        Ok(())
    }

    /// Entries of this directory will be changed: it is to be opened for that if its owner, us, can't now.
    fn open_for_change(&mut self, path: &TreePath) -> Result<()> {
        let full = self.root_path.join(path.as_path());
        let dir = self.dirs[path].as_ref().expect("the caller has looked it up");
        let Some(refusal) = &dir.refusal else {
            return Ok(());
        };
        let denied = refusal.kind() == io::ErrorKind::PermissionDenied
            && refusal.raw_os_error() == Some(nix::errno::Errno::EACCES as i32);
        if denied && dir.stat.uid == Uid::effective().as_raw() {
            let perm = Perm::of_mode(dir.stat.mode);
            self.opened.entry(path.clone()).or_insert(Opened {
                path: path.clone(),
                perm,
                for_staging: false,
            });
            return Ok(());
        }
        let source = refusal
            .raw_os_error()
            .map_or_else(|| refusal.kind().into(), io::Error::from_raw_os_error);
        Err(source).at(full)
    }

    /// Where the staging directory for a path goes: as near to the root's top as its file system reaches and we may write.
    fn staging_parent(&mut self, path: &TreePath) -> Result<(FileSystem, TreePath)> {
        let mut ancestors = vec![TreePath::root()];
        for part in path.parts() {
            let next = ancestors.last().expect("never empty").join(part);
            ancestors.push(next);
        }
        ancestors.pop();
        let mut present = Vec::new();
        for ancestor in ancestors {
            match self.dir(&ancestor)? {
                Some(dir) => present.push((ancestor, dir.file_system, dir.refusal.is_none(), dir.stat.uid)),
                None => break,
            }
        }
        let Some(file_system) = present.last().map(|(_, file_system, ..)| *file_system) else {
            return Err(Error::RootMissing(self.root_path.to_owned()));
        };
        // Nothing can be staged in a directory that is to go. One on which a file system is mounted can't go.
        let mut fits = Vec::new();
        let mut above = None;
        for (ancestor, on, writable, uid) in &present {
            let is_mount = above.is_some_and(|above| above != on);
            above = Some(on);
            if *on == file_system && (is_mount || !self.goes(ancestor)) {
                fits.push((ancestor, *writable, *uid));
            }
        }
        if let Some((ancestor, ..)) = fits.iter().find(|(_, writable, _)| *writable) {
            return Ok((file_system, (*ancestor).clone()));
        }
        let me = Uid::effective().as_raw();
        match fits.iter().find(|(_, _, uid)| *uid == me) {
            Some((ancestor, ..)) => {
                let ancestor = (*ancestor).clone();
                self.open_for_change(&ancestor)?;
                if let Some(opened) = self.opened.get_mut(&ancestor) {
                    opened.for_staging = true;
                }
                Ok((file_system, ancestor))
            }
            None => {
                let why =
                    "no directory above it can be written to, so its new version can't be prepared".into();
                Err(Error::CannotRestore {
                    path: path.clone(),
                    why,
                })
            }
        }
    }

    /// Whether a directory, or one above it, is to go.
    fn goes(&self, path: &TreePath) -> bool {
        let mut at = Some(path.clone());
        while let Some(path) = at {
            if self.going.contains(&path) {
                return true;
            }
            at = path.split_last().map(|(parent, _)| parent);
        }
        false
    }

    fn dir(&mut self, path: &TreePath) -> Result<Option<&Dir>> {
        if !self.dirs.contains_key(path) {
            let dir = self.look(path)?;
            self.dirs.insert(path.clone(), dir);
        }
        Ok(self.dirs[path].as_ref())
    }

    fn look(&mut self, path: &TreePath) -> Result<Option<Dir>> {
        let full = self.root_path.join(path.as_path());
        if let Some((parent, _)) = path.split_last() {
            let Some(parent) = self.dir(&parent)? else {
                return Ok(None);
            };
            match ops::stat(parent.fd.as_fd(), name(path)).at(&full)? {
                Some(stat) if stat.kind == FileType::Dir => {}
                _ => return Ok(None),
            }
        }
        let fd = match ops::open_parent(self.root, path) {
            Ok(fd) => fd,
            Err(error) if super::change::vanished(&error) => return Ok(None),
            Err(error) => return Err(error).at(full),
        };
        let stat = Stat::of(&fd).at(&full)?;
        let mount = if self.is_one_mount { 0 } else { mount_of(&fd) };
        let file_system = (stat.dev, mount);
        let refusal = ops::check_writable(fd.as_fd()).err();
        Ok(Some(Dir {
            stat,
            fd,
            file_system,
            refusal,
        }))
    }
}

/// Number of the mount that a directory was reached through; 0 where the system doesn't tell. Two mounts of one file
/// system have one device, yet no rename leads from one to the other.
fn mount_of(fd: &OwnedFd) -> u64 {
    let Ok(text) = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())) else {
        return 0;
    };
    let line = text.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    line.and_then(|id| id.trim().parse().ok()).unwrap_or(0)
}
