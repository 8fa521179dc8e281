//! Keeping a store small and quick: loose objects and small packs are folded into larger packs, what no ref reaches is
//! removed, refs go into one file. By the user's git, or where there is none as `sweep` does it; while nobody else writes.
//!
//! At any moment, also after a crash, everything that a ref needs is there: a new pack is written and synced before what it
//! replaces is removed. What a crash leaves half-made goes with the next maintenance.

use std::ffi::OsStr;
use std::path::Path;
use std::time::SystemTime;

use crate::error::{Error, Result};

use super::git::{Git, Interrupt, Urgency};
use super::lock::ExclusiveLock;
use super::{Store, create, files, size};

/// So many loose objects are worth being folded.
const LOOSE_MAX: usize = 2_000;
/// So many packs.
pub(super) const PACKS_MAX: usize = 12;
/// So many refs in files of their own are worth being packed.
const LOOSE_REFS_MAX: usize = 500;
/// Room that must remain beside what is rewritten, in bytes,
const ROOM_LEFT: u64 = 64 << 20;
/// or in percent of the file system, if that is less.
const ROOM_LEFT_PERCENT: u64 = 5;

/// A file of the store whose time of change says when the last [`Thoroughness::Full`] was.
const PACKED_WHOLE: &str = "packed-whole";

/// How git folds loose objects and small packs.
const FOLD: &[&str] = &[
    "repack",
    "--geometric=2",
    "--local",
    "-d",
    "-q",
    "--no-write-bitmap-index",
];
/// How git packs everything anew.
const REPACK: &[&str] = &["repack", "-a", "--local", "-d", "-q", "--no-write-bitmap-index"];

/// How much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thoroughness {
    /// Loose objects and small packs become a larger pack; of packs that are large already nothing is touched.
    Fold,
    /// Everything becomes one pack: what no ref reaches is gone from packs, too.
    Full,
}

/// What became of a maintenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Maintained {
    /// Somebody used the store: nothing was done.
    Busy,
    /// Done; the store's disk use before and after, in bytes.
    Done {
        /// Before.
        before: u64,
        /// After.
        after: u64,
    },
}

impl Store {
    /// Whether enough has gathered for a [`Thoroughness::Fold`].
    ///
    /// # Errors
    /// When a directory can't be read.
    pub fn wants_folding(&self) -> Result<bool> {
        Ok(self.has_many_loose()?
            || self.pack_sizes()?.len() >= PACKS_MAX
            || self.loose_refs()? >= LOOSE_REFS_MAX)
    }

    /// When the store was packed as a whole last, if it was.
    #[must_use]
    pub fn packed_whole_at(&self) -> Option<SystemTime> {
        let metadata = self.private.join(PACKED_WHOLE).metadata().ok()?;
        metadata.modified().ok()
    }

    /// Does it, unless somebody uses the store. Can be ended at any moment by `interrupt`.
    ///
    /// # Errors
    /// [`Error::Cancelled`] when it was interrupted; [`Error::NoRoom`] when there isn't room enough; what git says. The
    /// store is whole in any case.
    pub fn maintain(
        &self,
        git: Option<&Path>,
        path: Option<&OsStr>,
        how: Thoroughness,
        interrupt: &Interrupt,
    ) -> Result<Maintained> {
        match self.try_lock_exclusive()? {
            Some(alone) => self.maintain_alone(git, path, (how, Urgency::Idle), &alone, interrupt),
            None => Ok(Maintained::Busy),
        }
    }

    pub(super) fn maintain_alone(
        &self,
        git: Option<&Path>,
        path: Option<&OsStr>,
        (how, urgency): (Thoroughness, Urgency),
        alone: &ExclusiveLock,
        interrupt: &Interrupt,
    ) -> Result<Maintained> {
        create::remove_half_made(self)?;
        {
            let _serial = self.lock_refs()?;
            // What is forgotten must not stand there either.
            self.ahead.settle(true)?;
        }
        let before = self.disk_bytes()?;
        let pack = || match git {
            Some(git) => self.pack_by_git(Git::new(self, git, path, alone, interrupt, urgency)?, how),
            None => self.pack_alone(how, interrupt),
        };
        let done = match pack() {
            Err(Error::NoRoom { .. }) if how == Thoroughness::Full => {
                let free = || Ok(size::free_and_all(&self.dir)?.0);
                match self.give_back_by_pack(&free, interrupt) {
                    Ok(true) => files::replace(&self.private.join(PACKED_WHOLE), b""),
                    // There may be room now; or it says how much is needed.
                    Ok(false) => pack(),
                    Err(error) => Err(error),
                }
            }
            other => other,
        };
        if done.is_err() {
            // A failure must not leave more than there was.
            create::remove_half_made(self)?;
        }
        self.packs.refresh()?;
        // What was given up on a full disk may have room again.
        let _ = self.restore_reserve();
        let after = self.disk_bytes()?;
        match done {
            Ok(()) => Ok(Maintained::Done { before, after }),
            Err(error @ Error::Damaged { .. }) => Err(self.unreadable_ref()?.unwrap_or(error)),
            Err(error) => Err(error),
        }
    }

    /// What is in the way of removing anything, if it is a ref: what it needs isn't known.
    fn unreadable_ref(&self) -> Result<Option<Error>> {
        let unreadable = self.unreadable_refs("refs/")?;
        let error = |(name, how): (&String, &String)| Error::DamagedRecord {
            store: self.dir.clone(),
            what: format!("{name} can't be read, so that nothing can be removed: {how}"),
            hint: remedy(name),
        };
        Ok(unreadable.iter().next().map(error))
    }

    /// Slower, and without deltas.
    fn pack_alone(&self, how: Thoroughness, interrupt: &Interrupt) -> Result<()> {
        self.pack_refs()?;
        self.sweep(how, interrupt)?;
        match how {
            Thoroughness::Fold => Ok(()),
            Thoroughness::Full => files::replace(&self.private.join(PACKED_WHOLE), b""),
        }
    }

    fn pack_by_git(&self, mut git: Git<'_>, how: Thoroughness) -> Result<()> {
        self.pack_refs()?;
        // Loose objects first: that needs no room, and the new pack doesn't take them in.
        let pruned = git.run(&["prune", "--expire=now"]);
        if let Err(Error::Damaged { .. }) = pruned {
            // A ref can't be read: what is unreachable isn't known, but what is there can be folded all the same.
            self.require_room(Thoroughness::Fold)?;
            let aside = self.set_large_aside()?;
            git.leave(aside.path());
            git.run(FOLD)?;
            return pruned;
        }
        pruned?;
        match self.require_room(how) {
            Err(Error::NoRoom { free, .. }) if how == Thoroughness::Full => {
                self.require_room_for_reachable(&git, free)?
            }
            other => other?,
        }
        let aside = self.set_large_aside()?;
        git.leave(aside.path());
        match how {
            Thoroughness::Fold => git.run(FOLD),
            Thoroughness::Full => {
                git.run(REPACK)?;
                // Everything that refs need was found, so a half of a pack is needed by nobody.
                create::remove_torn_packs(&self.pack_dir())?;
                files::replace(&self.private.join(PACKED_WHOLE), b"")
            }
        }
    }

    /// Most of what the packs hold may be unreachable: then what is written is much smaller than what it replaces.
    fn require_room_for_reachable(&self, git: &Git<'_>, free: u64) -> Result<()> {
        let said = git.ask(&["rev-list", "--disk-usage", "--objects", "--all"])?;
        let reachable: u64 = said.trim().parse().unwrap_or(u64::MAX);
        let reachable = reachable.saturating_sub(self.large_loose_sum()?);
        // A delta whose base goes is written as a whole.
        let needed = reachable
            .saturating_add(reachable / 8)
            .saturating_add(self.room_left()?);
        self.has_room(needed, free)
    }

    fn room_left(&self) -> Result<u64> {
        let (_, all) = size::free_and_all(&self.dir)?;
        Ok(ROOM_LEFT.min(all / 100 * ROOM_LEFT_PERCENT))
    }

    fn has_room(&self, needed: u64, free: u64) -> Result<()> {
        if free >= needed {
            return Ok(());
        }
        Err(Error::NoRoom {
            store: self.dir.clone(),
            needed,
            free,
        })
    }

    /// A pack is written before what it replaces goes.
    pub(super) fn require_room(&self, how: Thoroughness) -> Result<()> {
        let packs = match how {
            Thoroughness::Full => files::disk_bytes(&self.pack_dir())?,
            Thoroughness::Fold => self.small_packs()?,
        };
        let loose = files::disk_bytes(&self.objects)? - files::disk_bytes(&self.pack_dir())?;
        let loose = loose.saturating_sub(self.large_loose_sum()?);
        let (free, _) = size::free_and_all(&self.dir)?;
        self.has_room(packs + loose + self.room_left()?, free)
    }

    /// Bytes of the packs that are likely to be rewritten: all but the largest.
    fn small_packs(&self) -> Result<u64> {
        let sizes = self.pack_sizes()?;
        let largest = sizes.iter().max().copied().unwrap_or(0);
        Ok(sizes.iter().sum::<u64>() - largest)
    }

    fn pack_sizes(&self) -> Result<Vec<u64>> {
        let mut sizes = Vec::new();
        for name in files::names(&self.pack_dir())? {
            if name.as_encoded_bytes().ends_with(b".pack")
                && let Ok(metadata) = self.pack_dir().join(&name).metadata()
            {
                sizes.push(metadata.len());
            }
        }
        Ok(sizes)
    }

    /// Whether there are many that would be packed.
    fn has_many_loose(&self) -> Result<bool> {
        let count = self.loose_objects()?;
        Ok(count >= LOOSE_MAX && count.saturating_sub(self.large_loose()?.len()) >= LOOSE_MAX)
    }

    fn loose_objects(&self) -> Result<usize> {
        let mut count = 0;
        for name in files::names(&self.objects)? {
            if name.len() == 2 {
                count += files::names(&self.objects.join(name))?.len();
            }
        }
        Ok(count)
    }
}

/// What to do about a ref that can't be read.
fn remedy(name: &str) -> String {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        ["refs", "checkpoints", root, _, n] if n.parse::<u64>().is_ok() => {
            format!(
                "`stepback drop {n}` in the directory of {root} gives that checkpoint up, and a redo that needs it"
            )
        }
        ["refs", "stepback", root, "root"] => {
            format!("`stepback attach` in the directory of {root} makes it anew")
        }
        ["refs", "stepback", root, ..] => {
            format!("`stepback recover` in the directory of {root} sets it aside")
        }
        _ => "`stepback recover` sets it aside".into(),
    }
}
