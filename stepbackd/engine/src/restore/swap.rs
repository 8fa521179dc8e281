//! One path and its slot in a staging directory: the renames, and the comparison of what came out.

use std::io;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;

use super::change::{APPEARED, CHANGED, Done, MOUNT, is_one_of, vanished};
use super::compare::{self, Fit, Signature};
use super::ops::{self, At as Name};
use super::place::Work;
use crate::node::{Kind, Node};

/// Whether this stands there, with what leniency is due; then its signature.
pub(super) fn expected(
    dir: BorrowedFd<'_>,
    name: &[u8],
    node: &Node,
    lenient: bool,
) -> io::Result<Option<Signature>> {
    let exact = compare::is_exactly(dir, name, node)?;
    if exact.is_some() || !lenient {
        return Ok(exact);
    }
    let found = compare::identify(dir, name)?;
    Ok(found.and_then(|found| {
        (compare::fit(found.node.as_ref(), Some(node)) > Fit::No).then(|| Signature::of(&found.stat))
    }))
}

/// One path and its slot.
pub(super) struct Swap<'a> {
    pub work: &'a Work,
    pub there: Name<'a>,
    pub staged: Name<'a>,
}

impl Swap<'_> {
    pub fn create(&self) -> io::Result<Done> {
        match ops::rename_new("apply.create", self.staged, self.there) {
            Ok(()) => Ok(Done::Changed(None)),
            Err(error) if is_one_of(&error, &[Errno::EEXIST]) => Ok(Done::Kept(APPEARED.into())),
            Err(error) => Err(error),
        }
    }

    pub fn replace(&self, from: &Node, to: &Node) -> io::Result<(Done, bool)> {
        match ops::exchange("apply.exchange", self.staged, self.there) {
            Ok(true) => {}
            Ok(false) => return self.replace_without_exchange(from, to).map(|done| (done, false)),
            Err(error) if vanished(&error) => {
                return Ok((Done::Kept("removed since it was saved".into()), false));
            }
            Err(error) if is_one_of(&error, &[Errno::EBUSY]) => return Ok((Done::Kept(MOUNT.into()), false)),
            Err(error) => return Err(error),
        }
        match self.came_out(from) {
            Some(signature) => Ok((Done::Changed(Some(signature)), false)),
            None => {
                let back = self.put_back()?;
                Ok((Done::Kept(CHANGED.into()), !back))
            }
        }
    }

    /// What came out, if it is what was saved. What can't be read is taken for changed: it goes back.
    fn came_out(&self, from: &Node) -> Option<Signature> {
        expected(self.staged.0, self.staged.1, from, self.work.lenient).unwrap_or_default()
    }

    /// For file systems without an exchange: compares first. The gap to the rename is the limit that is documented.
    pub fn replace_without_exchange(&self, from: &Node, to: &Node) -> io::Result<Done> {
        if expected(self.there.0, self.there.1, from, self.work.lenient)?.is_none() {
            return Ok(Done::Kept(CHANGED.into()));
        }
        if to.kind == Kind::Dir {
            // A directory can't be renamed over a file. The file is in the store, and the journal knows of it.
            ops::unlink("apply.unlink", self.there.0, self.there.1)?;
            return self.create();
        }
        ops::rename_over("apply.rename", self.staged, self.there)?;
        Ok(Done::Changed(None))
    }

    pub fn remove(&self, from: &Node) -> io::Result<(Done, bool)> {
        match ops::rename_new("apply.remove", self.there, self.staged) {
            Ok(()) => {}
            Err(error) if vanished(&error) => return Ok((Done::Already, false)),
            Err(error) if is_one_of(&error, &[Errno::EBUSY]) => return Ok((Done::Kept(MOUNT.into()), false)),
            Err(error) => return Err(error),
        }
        match self.came_out(from) {
            Some(signature) => Ok((Done::Changed(Some(signature)), false)),
            None => {
                let back = self.put_back()?;
                Ok((Done::Kept(CHANGED.into()), !back))
            }
        }
    }

    /// Puts what is in the slot back where it was. `false`: somebody else has put something there meanwhile, so it stays
    /// in the slot.
    pub fn put_back(&self) -> io::Result<bool> {
        if ops::stat(self.there.0, self.there.1)?.is_none() {
            return match ops::rename_new("apply.back", self.staged, self.there) {
                Ok(()) => Ok(true),
                Err(error) if is_one_of(&error, &[Errno::EEXIST]) => Ok(false),
                Err(error) => Err(error),
            };
        }
        let Some(to) = &self.work.to else { return Ok(false) };
        if !ops::exchange("apply.back", self.staged, self.there)? {
            if expected(self.there.0, self.there.1, to, true)?.is_none() {
                return Ok(false);
            }
            ops::rename_over("apply.back", self.staged, self.there)?;
            return Ok(true);
        }
        if to.kind == Kind::Dir || expected(self.staged.0, self.staged.1, to, true)?.is_some() {
            return Ok(true);
        }
        // What came out is newer still: it belongs there. The older edit stays in the slot.
        ops::exchange("apply.back", self.staged, self.there)?;
        Ok(false)
    }
}
