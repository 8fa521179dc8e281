//! Directories that stay, or were made: opened for the time of an operation, and given their modes and attributes when all
//! in them is done.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use super::attributes;
use super::change::{CHANGED, Changer, Done, Outcome, vanished};
use super::ops;
use super::place::{Sort, Work, name};
use crate::error::{At, Result};
use crate::node::{Node, Perm};
use crate::path::{TreePath, escape};
use crate::root::Stat;

/// Bits of a directory while it is open for its owner.
pub(super) fn opened_perm(perm: Perm) -> Perm {
    Perm::of_mode(perm.bits() | 0o700)
}

/// Bits of a directory from the beginning of an operation that takes some from group and others: those go first, so that
/// nothing that is put into it is open to them for a moment.
fn narrowed(from: Perm, to: Perm) -> Perm {
    Perm::of_mode(from.bits() & !0o077 | from.bits() & to.bits() & 0o077)
}

/// Whether an interrupted operation, or its undoing, may have left a directory of these two versions with these bits.
pub(super) fn may_be_ours(perm: Perm, a: Option<&Node>, b: Option<&Node>) -> bool {
    let sides = [a, b].into_iter().flatten().map(|node| node.perm);
    let between = a
        .zip(b)
        .map(|(a, b)| [narrowed(a.perm, b.perm), narrowed(b.perm, a.perm)]);
    let fresh = Perm::of_mode(0o700);
    sides
        .chain(between.into_iter().flatten())
        .chain([fresh])
        .any(|ours| perm == ours || perm == opened_perm(ours))
}

impl Changer<'_> {
    /// Opens directories that their owner can't write to, for that owner alone. `for_staging`: those that hold a staging
    /// directory; else the others.
    pub fn open(&self, for_staging: bool) -> Result<()> {
        for opened in self
            .opened
            .iter()
            .filter(|opened| opened.for_staging == for_staging)
        {
            let bits = opened.perm.bits() | 0o700;
            match self.chmod("apply.open", &opened.path, bits) {
                Err(error) if vanished(&error) => {}
                other => other.at(self.ground.full(&opened.path))?,
            }
        }
        Ok(())
    }

    fn chmod(&self, point: &'static str, path: &TreePath, bits: u32) -> io::Result<()> {
        if path.is_root() {
            return ops::chmod_open(point, &self.ground.root, bits);
        }
        let parent = self.ground.parent(path)?;
        ops::chmod_dir(point, parent.as_fd(), name(path), bits)
    }

    /// Takes from group and others what they won't have in the end.
    pub(super) fn narrow(&self) -> Result<()> {
        for work in self.of_sort(Sort::KeepDir) {
            let (Some(from), Some(to)) = (&work.from, &work.to) else {
                continue;
            };
            let bits = narrowed(from.perm, to.perm);
            if bits == from.perm {
                continue;
            }
            let full = self.ground.full(&work.path);
            let present = match ops::open_parent(&self.ground.root, &work.path).and_then(Stat::of) {
                Ok(stat) => Perm::of_mode(stat.mode),
                Err(error) if vanished(&error) => continue,
                Err(error) => return Err(error).at(full),
            };
            // Anything else was set by somebody else, and shows when the final mode is set.
            let bits = match present {
                perm if perm == from.perm => bits,
                perm if perm == opened_perm(from.perm) => opened_perm(bits),
                _ => continue,
            };
            match self.chmod("apply.narrow", &work.path, bits.bits()) {
                Err(error) if vanished(&error) => {}
                other => other.at(full)?,
            }
        }
        Ok(())
    }

    /// Fourth pass: modes and attributes of directories, deepest first, so that none closes before what is in it is done.
    pub fn close(&self, outcome: &mut Outcome) -> Result<()> {
        let wanted = self.of_sort(Sort::MakeDir).chain(self.of_sort(Sort::KeepDir));
        let mut last: BTreeMap<&TreePath, Option<&Work>> =
            self.opened.iter().map(|opened| (&opened.path, None)).collect();
        last.extend(wanted.map(|work| (&work.path, Some(work))));
        for (path, work) in last.into_iter().rev() {
            let Some(work) = work else {
                self.close_again(path)?;
                continue;
            };
            if matches!(
                outcome.done.get(&work.step),
                Some(Done::Kept(_) | Done::Blocked | Done::Already)
            ) {
                continue;
            }
            let made = outcome.done.contains_key(&work.step);
            match self.set_dir(work, made, &mut outcome.notes) {
                Ok(done) => {
                    if !made || matches!(done, Done::Kept(_)) {
                        outcome.done.insert(work.step, done);
                    }
                }
                Err(error) if vanished(&error) => {
                    outcome.done.insert(work.step, Done::Kept(CHANGED.into()));
                }
                Err(error) => return Err(error).at(self.ground.full(path)),
            }
        }
        Ok(())
    }

    /// Gives an opened directory its bits back, if they are still those that we set.
    fn close_again(&self, path: &TreePath) -> Result<()> {
        let opened = self
            .opened
            .iter()
            .find(|opened| opened.path == *path)
            .expect("one of them");
        let stat = match ops::open_parent(&self.ground.root, path).and_then(Stat::of) {
            Ok(stat) => stat,
            Err(error) if vanished(&error) => return Ok(()),
            Err(error) => return Err(error).at(self.ground.full(path)),
        };
        if Perm::of_mode(stat.mode) != opened_perm(opened.perm) {
            return Ok(());
        }
        match self.chmod("apply.close", path, opened.perm.bits()) {
            Err(error) if vanished(&error) => Ok(()),
            other => other.at(self.ground.full(path)),
        }
    }

    fn set_dir(&self, work: &Work, made: bool, notes: &mut Vec<String>) -> io::Result<Done> {
        let to = work.to.as_ref().expect("a directory stays");
        let dir = if work.path.is_root() {
            ops::open_dir(self.ground.root.as_fd(), b".")
        } else {
            let parent = self.ground.parent(&work.path)?;
            ops::open_dir(parent.as_fd(), name(&work.path))
        };
        // A directory that can't be listed has no attributes that we could have captured: only its bits are set.
        let dir = match dir {
            Ok(dir) => dir,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.chmod("apply.chmod", &work.path, to.perm.bits())?;
                return Ok(Done::Changed(None));
            }
            Err(error) => return Err(error),
        };
        if !made && !work.lenient && !self.is_as_saved(work, &dir)? {
            return Ok(Done::Kept(CHANGED.into()));
        }
        for refused in attributes::write("apply.attributes", &dir, &to.attributes)? {
            let refused = escape(&refused);
            notes.push(format!(
                "{}: its attribute {refused} could not be put back",
                work.path
            ));
        }
        ops::chmod_open("apply.chmod", &dir, to.perm.bits())?;
        if Stat::of(&dir)?.mode & 0o7777 != to.perm.bits() {
            notes.push(format!(
                "{}: not all bits of its mode could be put back",
                work.path
            ));
        }
        Ok(Done::Changed(None))
    }

    /// Whether it is as it was saved, but for what this operation did to its bits; if not, that is taken back.
    fn is_as_saved(&self, work: &Work, dir: &File) -> io::Result<bool> {
        let (Some(from), Some(to)) = (&work.from, &work.to) else {
            return Ok(true);
        };
        let perm = Perm::of_mode(Stat::of(dir)?.mode);
        let narrow = narrowed(from.perm, to.perm);
        if ![from.perm, narrow, opened_perm(from.perm), opened_perm(narrow)].contains(&perm) {
            return Ok(false);
        }
        if attributes::are_same_but_for_bits(&attributes::read(dir)?, &from.attributes) {
            return Ok(true);
        }
        if perm != from.perm {
            ops::chmod_open("apply.chmod", dir, from.perm.bits())?;
        }
        Ok(false)
    }
}
