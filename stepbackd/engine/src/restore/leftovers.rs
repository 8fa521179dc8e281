//! Staging directories that no journal knows any more: it was lost, or couldn't be read.

use std::io;
use std::os::fd::AsFd;

use super::change::vanished;
use super::compare::{self, Found};
use super::ops;
use super::step::Kept;
use super::unstaging::{compare_not_empty, remove_from};
use crate::error::Result;
use crate::node::{Kind, NotCaptured};
use crate::path::{TreePath, escape, is_temporary};
use crate::root::{DirHandle, FileType};
use crate::store::Store;

/// So many files of one directory that the store lacks are named.
const NAMED_MAX: usize = 3;

/// What a plan says of one that it meets.
pub(super) const LEFT: &str =
    "left by an operation of stepback; `stepback recover` clears it, or says what is in it";

/// Whether a path has the name of a staging directory.
#[must_use]
pub fn is_leftover(entry: &NotCaptured) -> bool {
    has_temporary_name(&entry.path)
}

pub(super) fn has_temporary_name(path: &TreePath) -> bool {
    path.split_last().is_some_and(|(_, name)| is_temporary(name))
}

/// Removes those staging directories among `places` in which nothing is but what the store has, too. Only for when no
/// operation is unfinished. Returns those that stay, and why; the flag says whether any of them went.
///
/// # Errors
/// Those of the store. What is refused at a single place is told as what stays.
pub fn clear_leftovers(root: &DirHandle, store: &Store, places: &[TreePath]) -> Result<(bool, Vec<Kept>)> {
    let (mut went, mut left) = (false, Vec::new());
    for path in places.iter().filter(|path| has_temporary_name(path)) {
        let mut has = |oid| store.has(oid);
        let reason = match clear(root, path, &mut has) {
            Ok(Cleared::Gone) => {
                went = true;
                continue;
            }
            Ok(Cleared::Holds(names)) => holds(&names),
            Ok(Cleared::NoDirectory) => "it has the name of a directory of stepback, and is none".into(),
            Err(Failed::Disk(error)) => format!("left by an operation of stepback: {error}"),
            Err(Failed::Store(error)) => return Err(error),
        };
        left.push(Kept {
            path: path.clone(),
            reason,
        });
    }
    Ok((went, left))
}

enum Cleared {
    Gone,
    /// The names in it that must stay.
    Holds(Vec<Vec<u8>>),
    NoDirectory,
}

enum Failed {
    Disk(io::Error),
    Store(crate::Error),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

fn clear(
    root: &DirHandle,
    path: &TreePath,
    has: &mut dyn FnMut(crate::oid::Oid) -> Result<bool>,
) -> Result<Cleared, Failed> {
    let (above, name) = path.split_last().expect("it has a name");
    let parent = match root.open_beneath(&above) {
        Err(error) if vanished(&error) => return Ok(Cleared::Gone),
        other => other?,
    };
    match ops::stat(parent.as_fd(), name)? {
        None => return Ok(Cleared::Gone),
        Some(stat) if stat.kind == FileType::Dir => {}
        Some(_) => return Ok(Cleared::NoDirectory),
    }
    let mut dir = parent.open_dir(name)?;
    let mut stay = Vec::new();
    for (slot, _) in dir.entries()? {
        // One in another one; they aren't deeper.
        if is_temporary(&slot) && !has_temporary_name(&above) {
            match clear(root, &path.join(&slot), has)? {
                Cleared::Gone => {}
                Cleared::Holds(names) if !names.is_empty() => {
                    stay.extend(names.iter().map(|name| [&slot[..], b"/", name].concat()));
                }
                _ => stay.push(slot),
            }
            continue;
        }
        let Some(found) = compare::identify(dir.as_fd(), &slot)? else {
            continue;
        };
        if !remove_known(&dir, &slot, &found, has)? {
            stay.push(slot);
        }
    }
    if !stay.is_empty() {
        stay.sort();
        return Ok(Cleared::Holds(stay));
    }
    match remove_from(&parent, name) {
        Err(error) if compare_not_empty(&error) => return Ok(Cleared::Holds(stay)),
        other => other?,
    }
    ops::sync_file("clear.fsync", &ops::open_dir(parent.as_fd(), b".")?)?;
    Ok(Cleared::Gone)
}

/// `false`: it stays, as it would be lost.
fn remove_known(
    dir: &DirHandle,
    slot: &[u8],
    found: &Found,
    has: &mut dyn FnMut(crate::oid::Oid) -> Result<bool>,
) -> Result<bool, Failed> {
    let known = match found.node.as_ref().map(|node| node.kind) {
        None => false,
        Some(Kind::Dir) => {
            return match ops::remove_dir("clear.rmdir", dir.as_fd(), slot) {
                Err(error) if compare_not_empty(&error) => Ok(false),
                other => Ok(other.map(|()| true)?),
            };
        }
        // There are no bytes in it.
        Some(Kind::Fifo) => true,
        Some(Kind::File(_)) if found.stat.size == 0 => true,
        Some(Kind::File(oid) | Kind::Link(oid)) => has(oid).map_err(Failed::Store)?,
    };
    if known {
        ops::unlink("clear.unlink", dir.as_fd(), slot)?;
    }
    Ok(known)
}

fn holds(names: &[Vec<u8>]) -> String {
    let named: Vec<String> = names.iter().take(NAMED_MAX).map(|name| escape(name)).collect();
    let more = match names.len() - named.len() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    format!(
        "left by an operation of stepback: {}{more} in it is in no checkpoint; look at it, then remove it",
        named.join(", ")
    )
}
