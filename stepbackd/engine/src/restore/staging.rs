//! Staging: every wanted version made complete, with its mode, owner and attributes, before the tree is touched.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;

use nix::errno::Errno;
use rayon::prelude::*;

use super::attributes;
use super::journal::StagingPlace;
use super::ops::{self, At as Name};
use super::owners::Owners;
use super::place::{Ground, Staging, Work};
use crate::error::{At, Error, Result};
use crate::node::{Kind, Node, Perm};
use crate::oid::{ObjectKind, Oid};
use crate::path::{TreePath, escape};
use crate::progress::Progress;
use crate::root::{FileType, Stat};
use crate::store::Store;

/// Up to so many files are synced one by one; more by one sync of the file system.
pub(super) const SYNC_EACH_MAX: usize = 32;

/// So many works in a row go to one thread: they are mostly of one directory.
const CHUNK: usize = 32;

const SET_ID: u32 = 0o6000;

/// Makes the staging directories of one generation; returns where they are in `ground.stagings`.
pub(super) fn make_dirs(ground: &mut Ground<'_>, places: &[StagingPlace]) -> Result<std::ops::Range<usize>> {
    let first = ground.stagings.len();
    for place in places {
        let path = place.path();
        let full = ground.full(&path);
        let parent = ground.root.open_beneath(&place.parent).at(&full)?;
        ops::make_dir("stage.mkdir", parent.as_fd(), place.name.as_bytes()).at(&full)?;
        let dir = parent.open_dir(place.name.as_bytes()).at(&full)?;
        ground.stagings.push(Staging {
            place: place.clone(),
            dir,
        });
        // A default ACL, or a set-group-id bit, of the directory above must not rub off on what is staged.
        let open = ops::open_dir(parent.as_fd(), place.name.as_bytes()).at(&full)?;
        attributes::write("stage.attributes", &open, &None).at(&full)?;
        ops::chmod_open("stage.chmod", &open, 0o700).at(&full)?;
        if places.iter().any(|place| place.parent == path) {
            ops::spread_dirs(&open);
        }
    }
    Ok(first..ground.stagings.len())
}

/// Stages the `to` of all works that have none ready, and makes it durable. Returns what people should know.
pub(super) fn stage(
    ground: &Ground<'_>,
    store: &Store,
    works: &[Work],
    progress: &Progress,
) -> Result<Vec<String>> {
    let wanted: Vec<&Work> = works
        .iter()
        .filter(|work| work.wants_staging() && work.ready.is_none())
        .collect();
    let owners = Owners::of(ground, works);
    let notes = Mutex::new(Vec::new());
    let sync_each = wanted.len() <= SYNC_EACH_MAX;
    wanted.par_chunks(CHUNK).try_for_each(|chunk| {
        let mut stager = Stager {
            ground,
            store,
            owners: &owners,
            notes: &notes,
            sync_each,
            parent: None,
        };
        chunk.iter().try_for_each(|work| {
            progress.check()?;
            stager.stage(work)?;
            progress.advance(1);
            Ok(())
        })
    })?;
    let used: BTreeSet<usize> = wanted.iter().map(|work| ground.staging_of[&work.step]).collect();
    let mut synced = BTreeSet::new();
    for index in used {
        let staging = &ground.stagings[index];
        let full = ground.full(&staging.path());
        if sync_each {
            let open = ops::open_dir(staging.dir.as_fd(), b".").at(&full)?;
            ops::sync_file("stage.fsync", &open).at(&full)?;
        } else if synced.insert(Stat::of(&staging.dir).at(&full)?.dev) {
            ops::sync_file_system("stage.syncfs", staging.dir.as_fd()).at(&full)?;
        }
    }
    let mut notes = notes
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    notes.sort();
    notes.extend(owners.parted());
    Ok(notes)
}

struct Stager<'a> {
    ground: &'a Ground<'a>,
    store: &'a Store,
    owners: &'a Owners,
    notes: &'a Mutex<Vec<String>>,
    sync_each: bool,
    /// The directory looked at last. Only read from, so it may be out of date.
    parent: Option<(TreePath, OwnedFd)>,
}

impl Stager<'_> {
    fn stage(&mut self, work: &Work) -> Result<()> {
        let node = work
            .to
            .as_ref()
            .expect("only works with a new version are staged");
        let slot = work.slot();
        let at = self.ground.staging(work).at(&slot);
        match node.kind {
            Kind::File(oid) => self.file(work, node, oid, at),
            Kind::Link(oid) => self.link(work, oid, at),
            Kind::Fifo => self.fifo(work, node, at),
            Kind::Dir => self.dir(work, node, at),
        }
    }

    fn file(&mut self, work: &Work, node: &Node, oid: Oid, at: Name<'_>) -> Result<()> {
        let full = self.ground.full(&work.path);
        let mut file = ops::create_file("stage.create", at.0, at.1).at(&full)?;
        crate::fault::point("stage.write").at(&full)?;
        fill(self.store, oid, &mut file, &full)?;
        let old = self.old_file(work);
        self.finish(work, node, &file, old.as_ref()).at(&full)?;
        if self.sync_each {
            ops::sync_file("stage.fsync", &file).at(&full)?;
        }
        Ok(())
    }

    fn link(&self, work: &Work, oid: Oid, at: Name<'_>) -> Result<()> {
        let full = self.ground.full(&work.path);
        let target = self.store.read(oid, ObjectKind::Blob)?;
        ops::make_link("stage.symlink", &target, at.0, at.1).at(&full)?;
        let owner = self.owners.wanted(&work.path);
        if let (Some(owner), Some(stat)) = (owner, ops::stat(at.0, at.1).at(&full)?)
            && (stat.uid, stat.gid) != owner
        {
            // The owner of a link grants nothing; best effort.
            let _ = ops::chown_link("stage.chown", at.0, at.1, owner.0, owner.1);
        }
        Ok(())
    }

    fn fifo(&self, work: &Work, node: &Node, at: Name<'_>) -> Result<()> {
        let full = self.ground.full(&work.path);
        ops::make_fifo("stage.mkfifo", at.0, at.1).at(&full)?;
        let fifo = ops::open_file(at.0, at.1).at(&full)?;
        self.set_owner_and_mode(work, node.perm, &fifo).at(&full)
    }

    /// Its mode comes last of all, when what is in it is made; until then it is the owner's alone.
    fn dir(&self, work: &Work, node: &Node, at: Name<'_>) -> Result<()> {
        let full = self.ground.full(&work.path);
        ops::make_dir("stage.mkdir", at.0, at.1).at(&full)?;
        let dir = ops::open_dir(at.0, at.1).at(&full)?;
        self.set_owner(work, &dir).at(&full)?;
        let refused = attributes::write("stage.attributes", &dir, &node.attributes).at(&full)?;
        self.note_refused(work, &refused);
        ops::chmod_open("stage.chmod", &dir, 0o700).at(&full)
    }

    fn finish(&self, work: &Work, node: &Node, file: &File, old: Option<&File>) -> io::Result<()> {
        self.set_owner(work, file)?;
        if let Some(old) = old {
            attributes::copy_others("stage.attributes", old, file)?;
        }
        // A file made in a staging directory has none by itself.
        if node.attributes.is_some() {
            let refused = attributes::write("stage.attributes", file, &node.attributes)?;
            self.note_refused(work, &refused);
        }
        self.set_mode(work, node.perm, file)
    }

    fn set_owner_and_mode(&self, work: &Work, perm: Perm, file: &File) -> io::Result<()> {
        self.set_owner(work, file)?;
        self.set_mode(work, perm, file)
    }

    fn set_owner(&self, work: &Work, file: &File) -> io::Result<()> {
        let Some((uid, gid)) = self.owners.wanted(&work.path) else {
            return Ok(());
        };
        let stat = Stat::of(file)?;
        if (stat.uid, stat.gid) == (uid, gid) {
            return Ok(());
        }
        let refused = |error: &io::Error| error.raw_os_error() == Some(Errno::EPERM as i32);
        match ops::chown_open("stage.chown", file, uid, gid) {
            Err(error) if refused(&error) => {
                // The group alone may still be allowed.
                match ops::chown_open("stage.chown", file, stat.uid, gid) {
                    Err(error) if !refused(&error) => return Err(error),
                    _ => self.note(format!("{}: its owner or group could not be kept", work.path)),
                }
                Ok(())
            }
            other => other,
        }
    }

    /// Last of all, as a change of owner takes set-id bits away.
    fn set_mode(&self, work: &Work, perm: Perm, file: &File) -> io::Result<()> {
        let may = perm.bits() & SET_ID == 0 || self.owners.may_have_set_id(&work.path, &Stat::of(file)?);
        let bits = if may { perm.bits() } else { perm.bits() & !SET_ID };
        ops::chmod_open("stage.chmod", file, bits)?;
        let set = Stat::of(file)?.mode & 0o7777;
        if set & !SET_ID != bits & !SET_ID {
            return Err(io::Error::other(format!(
                "its mode is {set:04o} after setting it to {bits:04o}"
            )));
        }
        if set != perm.bits() {
            self.note(format!(
                "{}: its set-user-id and set-group-id bits were not put back",
                work.path
            ));
        }
        Ok(())
    }

    fn old_file(&mut self, work: &Work) -> Option<File> {
        if !self.owners.replaces_file(&work.path) {
            return None;
        }
        let (parent, name) = work.path.split_last()?;
        if self.parent.as_ref().is_none_or(|(path, _)| *path != parent) {
            let dir = self.ground.parent(&work.path).ok()?;
            self.parent = Some((parent, dir));
        }
        let dir = self.parent.as_ref()?.1.as_fd();
        // A device that took its place must not be opened.
        (ops::stat(dir, name).ok()??.kind == FileType::File).then_some(())?;
        ops::open_file(dir, name).ok()
    }

    fn note_refused(&self, work: &Work, names: &[Vec<u8>]) {
        for name in names {
            self.note(format!(
                "{}: its attribute {} could not be put back",
                work.path,
                escape(name)
            ));
        }
    }

    fn note(&self, note: String) {
        self.notes
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .push(note);
    }
}

/// Writes a blob's bytes into a new file, of which `full` is the path that is named when that is refused.
fn fill(store: &Store, oid: Oid, file: &mut File, full: &Path) -> Result<()> {
    match store.copy_blob(oid, file) {
        Err(Error::Io { path, source }) if path.as_os_str().is_empty() => Err(source).at(full),
        other => other.map(drop),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_with_the_path_that_was_to_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::create(&dir.path().join("store")).unwrap();
        let writer = store.writer();
        let oid = writer.put(ObjectKind::Blob, b"bytes").unwrap();
        writer.finish().unwrap();
        let mut full = File::options().write(true).open("/dev/full").unwrap();
        let error = fill(&store, oid, &mut full, Path::new("/project/a")).unwrap_err();
        assert!(
            error.to_string().starts_with("/project/a: No space left"),
            "{error}"
        );
    }
}
