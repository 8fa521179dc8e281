//! What is in staging directories when all is done, or after a crash: looked at, and removed.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use rayon::prelude::*;

use super::change::vanished;
use super::compare;
use super::ops;
use super::place::{Ground, Staging};
use crate::error::{At, Result};
use crate::path::TreePath;
use crate::root::{DirHandle, FileType};

/// Removes the slots of these steps and then the staging directories themselves. What is not known, or must stay, stays:
/// then the directory does too, and is returned.
pub(super) fn remove(
    ground: &mut Ground<'_>,
    which: std::ops::Range<usize>,
    steps: usize,
    stays: &(dyn Fn(usize, usize) -> bool + Sync),
) -> Result<Vec<TreePath>> {
    let ground = &*ground;
    which
        .clone()
        .into_par_iter()
        .filter(|index| !ground.has_inner(*index))
        .try_for_each(|index| empty(ground, index, steps, stays))?;
    let mut left = Vec::new();
    let mut parents = BTreeMap::new();
    // Those that are in others come behind them, and go first.
    for index in which.rev() {
        let staging = &ground.stagings[index];
        let full = ground.full(&staging.path());
        let parent = match ground.root.open_beneath(&staging.place.parent) {
            Ok(parent) => parent,
            // The one around it is looked at later: it has gone, or is somewhere else and is told of.
            Err(error) if vanished(&error) && staging.is_inner() => continue,
            Err(error) if vanished(&error) => {
                left.push(staging.path());
                continue;
            }
            Err(error) => return Err(error).at(full),
        };
        match remove_from(&parent, staging.place.name.as_bytes()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // Something is in it that isn't ours, or another thing is in its place. The one around it stays with it and is told
            // of, if there is one.
            Err(error) if compare_not_empty(&error) || vanished(&error) => {
                left.extend((!staging.is_inner()).then(|| staging.path()));
            }
            Err(error) => return Err(error).at(full),
        }
        if !staging.is_inner() {
            parents.insert(&staging.place.parent, parent);
        }
    }
    for (path, parent) in parents {
        let full = ground.full(path);
        let open = ops::open_dir(parent.as_fd(), b".").at(&full)?;
        ops::sync_file("clear.fsync", &open).at(&full)?;
    }
    Ok(left)
}

/// What is in a staging directory, with what its type is told to be. Others may be reading it, too.
fn names(staging: &Staging) -> io::Result<Vec<(Vec<u8>, Option<FileType>)>> {
    staging.dir.open_dir(b".")?.entries()
}

/// The step, of so many, whose slot has this name.
fn step_of(slot: &[u8], steps: usize) -> Option<usize> {
    let step: usize = std::str::from_utf8(slot).ok()?.parse().ok()?;
    (step < steps).then_some(step)
}

/// Removes the slots of one staging directory.
fn empty(
    ground: &Ground<'_>,
    index: usize,
    steps: usize,
    stays: &(dyn Fn(usize, usize) -> bool + Sync),
) -> Result<()> {
    let staging = &ground.stagings[index];
    let full = ground.full(&staging.path());
    let entries = names(staging).at(&full)?;
    entries
        .iter()
        .try_for_each(|(slot, kind)| match step_of(slot, steps) {
            Some(step) if !stays(index, step) => remove_slot(staging.dir.as_fd(), slot, *kind).at(&full),
            _ => Ok(()),
        })
}

/// What is in a slot goes; a directory only when it is empty.
fn remove_slot(staging: BorrowedFd<'_>, slot: &[u8], kind: Option<FileType>) -> io::Result<()> {
    let kind = match kind {
        Some(kind) => Some(kind),
        None => ops::stat(staging, slot)?.map(|stat| stat.kind),
    };
    match kind {
        None => Ok(()),
        Some(FileType::Dir) => match ops::remove_dir("clear.rmdir", staging, slot) {
            Err(error) if compare_not_empty(&error) => Ok(()),
            other => other,
        },
        Some(_) => ops::unlink("clear.unlink", staging, slot),
    }
}

/// Removes an empty directory from `parent`, which may have its final bits by now: where they forbid it, it is opened for
/// its owner for that moment. A crash in it is mended by the recovery, which closes what the journal says was opened.
pub(super) fn remove_from(parent: &DirHandle, name: &[u8]) -> io::Result<()> {
    match ops::remove_dir("clear.rmdir", parent.as_fd(), name) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        other => return other,
    }
    let bits = parent.stat_self()?.mode & 0o7777;
    ops::chmod_open("clear.open", parent, bits | 0o700)?;
    let removed = ops::remove_dir("clear.rmdir", parent.as_fd(), name);
    ops::chmod_open("clear.close", parent, bits)?;
    removed
}

pub(super) fn compare_not_empty(error: &io::Error) -> bool {
    [Errno::ENOTEMPTY as i32, Errno::EEXIST as i32].contains(&error.raw_os_error().unwrap_or(0))
}

/// What lies in the slots of a staging directory, by step.
pub(super) fn slots(ground: &Ground<'_>, index: usize, steps: usize) -> Result<Vec<(usize, compare::Found)>> {
    let staging = &ground.stagings[index];
    let full = ground.full(&staging.path());
    let mut found = Vec::new();
    if ground.has_inner(index) {
        return Ok(found);
    }
    for (slot, _) in names(staging).at(&full)? {
        let Some(step) = step_of(&slot, steps) else {
            continue;
        };
        if let Some(seen) = compare::identify(staging.dir.as_fd(), &slot).at(&full)? {
            found.push((step, seen));
        }
    }
    Ok(found)
}
