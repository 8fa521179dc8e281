//! Mount points in a root: what isn't mounted isn't deleted, and what is covered by a mount isn't either.

use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use crate::error::{Error, Result};
use crate::mounts::{self, Astray, KnownMounts};
use crate::path::{TreePath, for_shell};
use crate::root::DirHandle;
use crate::store::Store;
use crate::tree::stored;

impl Engine {
    /// Directories in which something was mounted that isn't now, or the other way round: what they held stays out of
    /// captures and operations, named, until it is back or `attach` takes them as they are.
    #[must_use]
    pub const fn astray(&self) -> &BTreeMap<TreePath, Astray> {
        &self.astray
    }

    /// Looks at which mount points are there; gives the paths that must be looked at anew because of it.
    pub(super) fn refresh_mounts(&mut self, store: &Store) -> Result<BTreeSet<TreePath>> {
        let Some(now) = mounts::below(&self.path) else {
            return Ok(BTreeSet::new());
        };
        let mut changed: BTreeSet<TreePath> = self.mounted.symmetric_difference(&now).cloned().collect();
        // At the first look, and the first after an attach, they are as they should be.
        let known = self.record.mounts.clone().unwrap_or_else(|| KnownMounts {
            points: now.clone(),
            ..KnownMounts::default()
        });
        let mut next = KnownMounts::default();
        let mut astray = BTreeMap::new();
        for path in known.points.difference(&now) {
            if self.is_empty_dir(path) {
                astray.insert(path.clone(), Astray::Unmounted);
                next.points.insert(path.clone());
            }
        }
        for path in &now {
            let covers = known.covered.contains(path)
                || (!known.points.contains(path)
                    && !self.is_bound_to_itself(path)
                    && self.has_captured_below(store, path)?);
            if covers {
                astray.insert(path.clone(), Astray::Covered);
                next.covered.insert(path.clone());
            } else {
                next.points.insert(path.clone());
            }
        }
        let differs = |path: &&TreePath| self.astray.get(*path) != astray.get(*path);
        changed.extend(self.astray.keys().chain(astray.keys()).filter(differs).cloned());
        self.record.mounts = Some(next);
        (self.mounted, self.astray) = (now, astray);
        Ok(changed)
    }

    /// That the mount points above `paths` are as they were.
    ///
    /// # Errors
    /// [`Error::Refused`] naming the first that isn't.
    pub(super) fn require_mounts(&mut self, store: &Store, paths: &[TreePath]) -> Result<()> {
        self.wake();
        self.refresh_mounts(store)?;
        let is_inside = |path: &TreePath, point: &TreePath| path != point && path.starts_with(point);
        let needed = |point: &&TreePath| paths.iter().any(|path| is_inside(path, point));
        let Some(point) = self.astray.keys().find(needed) else {
            return Ok(());
        };
        let (what, remedy) = match self.astray[point] {
            Astray::Unmounted => ("what was mounted there isn't", "mount it again"),
            Astray::Covered => ("something is mounted there that wasn't", "unmount it"),
        };
        Err(Error::Refused {
            message: format!("{point}: {what}, and the interrupted operation changes what is in it"),
            hint: format!(
                "{remedy}, then `stepback recover`; or `stepback attach --here {}` takes it as it is",
                for_shell(&self.path)
            ),
        })
    }

    fn is_empty_dir(&self, path: &TreePath) -> bool {
        let dir = DirHandle::open_root(&self.path).and_then(|root| root.open_beneath(path));
        dir.and_then(|mut dir| dir.entries())
            .is_ok_and(|entries| entries.is_empty())
    }

    /// Whether the directory that is mounted is the captured one, as sandboxes do it.
    fn is_bound_to_itself(&self, path: &TreePath) -> bool {
        let dir = DirHandle::open_root(&self.path).and_then(|root| root.open_beneath(path));
        let ino = dir.and_then(|dir| dir.stat_self()).map(|stat| stat.ino);
        ino.is_ok_and(|ino| self.tree.dir_ino(path) == Some(ino))
    }

    /// Whether the position has something in the directory at `path`. One that can't be read knows nothing.
    fn has_captured_below(&self, store: &Store, path: &TreePath) -> Result<bool> {
        let Some(position) = self.record.position.and_then(|n| self.checkpoint(n).ok()) else {
            return Ok(false);
        };
        let modes = &self.record.modes;
        let found = stored::lookup(store, position.snapshot, modes, path).and_then(|found| {
            match found.and_then(|(_, below)| below) {
                Some(below) => Ok(!stored::read_dir(store, below, modes)?.entries.is_empty()),
                None => Ok(false),
            }
        });
        match found {
            Err(crate::Error::Damaged { .. }) => Ok(false),
            found => found,
        }
    }
}
