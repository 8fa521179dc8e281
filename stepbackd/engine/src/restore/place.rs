//! Changes to be made, and where they are made.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use super::journal::StagingPlace;
use super::leftovers::has_temporary_name;
use super::ops::{self, At as Name};
use super::step::is_dir;
use crate::error::{At, Result};
use crate::node::Node;
use crate::path::TreePath;
use crate::root::DirHandle;

/// One path to be brought from one version to another.
#[derive(Debug, Clone)]
pub(super) struct Work {
    /// Number of the step in the plan.
    pub step: usize,
    pub path: TreePath,
    /// What stands there.
    pub from: Option<Node>,
    /// What will.
    pub to: Option<Node>,
    /// What comes out of the way may differ from `from` in attributes and set-id bits that we were refused.
    pub lenient: bool,
    /// Where `to` lies ready already, if it does: which staging directory.
    pub ready: Option<usize>,
}

/// Which of the passes does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// Nothing, or something that isn't a directory, becomes a directory.
    MakeDir,
    /// No directory on either side.
    Leaf,
    /// A directory becomes nothing or something else.
    RemoveDir,
    /// A directory stays one.
    KeepDir,
}

impl Work {
    pub fn sort(&self) -> Sort {
        match (is_dir(self.from.as_ref()), is_dir(self.to.as_ref())) {
            (true, true) => Sort::KeepDir,
            (true, false) => Sort::RemoveDir,
            (false, true) => Sort::MakeDir,
            (false, false) => Sort::Leaf,
        }
    }

    /// Its version must be staged.
    pub fn wants_staging(&self) -> bool {
        self.to.is_some() && self.sort() != Sort::KeepDir
    }

    /// Its old version goes through a staging directory.
    pub fn needs_slot(&self) -> bool {
        self.wants_staging() || (self.sort() == Sort::Leaf)
    }

    /// Its name in a staging directory.
    pub fn slot(&self) -> String {
        self.step.to_string()
    }
}

/// An open staging directory.
#[derive(Debug)]
pub(super) struct Staging {
    pub place: StagingPlace,
    pub dir: DirHandle,
}

impl Staging {
    pub fn at<'a>(&'a self, slot: &'a str) -> Name<'a> {
        Name(self.dir.as_fd(), slot.as_bytes())
    }

    pub fn path(&self) -> TreePath {
        self.place.path()
    }

    /// Whether it is in another one.
    pub fn is_inner(&self) -> bool {
        has_temporary_name(&self.place.parent)
    }
}

/// The root, open, and the staging directories of all generations.
#[derive(Debug)]
pub(super) struct Ground<'a> {
    pub root_path: &'a Path,
    pub root: DirHandle,
    pub stagings: Vec<Staging>,
    /// Staging directory of each step, by its number.
    pub staging_of: BTreeMap<usize, usize>,
}

impl Ground<'_> {
    /// For errors.
    pub fn full(&self, path: &TreePath) -> std::path::PathBuf {
        self.root_path.join(path.as_path())
    }

    /// Opens the directory that holds a path anew, so that nothing that took its place since is taken for it.
    pub fn parent(&self, path: &TreePath) -> io::Result<OwnedFd> {
        let (parent, _) = path.split_last().unwrap_or_default();
        ops::open_parent(&self.root, &parent)
    }

    pub fn staging(&self, work: &Work) -> &Staging {
        &self.stagings[self.staging_of[&work.step]]
    }

    /// Whether a staging directory has others in it, and so no slots: what is in it besides is somebody else's.
    pub fn has_inner(&self, index: usize) -> bool {
        let path = self.stagings[index].path();
        self.stagings.iter().any(|staging| staging.place.parent == path)
    }

    /// Opens staging directories that should be there; those that aren't are left out.
    pub fn open_stagings(&mut self, places: &[StagingPlace]) -> Result<std::ops::Range<usize>> {
        let first = self.stagings.len();
        for place in places {
            let opened = self
                .root
                .open_beneath(&place.parent)
                .and_then(|parent| parent.open_dir(place.name.as_bytes()));
            match opened {
                Ok(dir) => self.stagings.push(Staging {
                    place: place.clone(),
                    dir,
                }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
                Err(error) => return Err(error).at(self.full(&place.path())),
            }
        }
        Ok(first..self.stagings.len())
    }
}

/// Last part of a path; empty for the root.
pub(super) fn name(path: &TreePath) -> &[u8] {
    let bytes = path.as_bytes();
    bytes
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(bytes, |at| &bytes[at + 1..])
}
