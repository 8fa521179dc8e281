//! Files that only make sense together: a database and the log beside it, as SQLite writes them (`X` with `X-wal` or
//! `X-journal`). A checkpoint must have both as they were at one moment, else what is put back is a broken database.
//!
//! Each file alone was read while it held still. Then either no stat says that one has changed until now, or all are read
//! once more and are what they were: both were there as recorded between the two readings. What doesn't come to rest
//! after some tries is left out as `changing`, and looked at again.

use super::building::Building;
use super::dir::{File, Name, Sig, Slot};
use super::merge::Slots;
use super::read::{Outcome, is_ours, left};
use super::scan::{Walk, at_path, lock};
use crate::error::Result;
use crate::node::Reason;
use crate::root::{DirHandle, FileType, Stat};

/// What the name of a log ends in, after its database's.
const LOGS: [&[u8]; 2] = [b"-wal", b"-journal"];

/// Such a group is read again so often.
const TRIES: u32 = 5;

/// A file of a group: which slot, and what was read last, if it held still.
struct Member {
    at: usize,
    name: Name,
    slot: Option<Slot>,
}

/// The database that a file of this name is the log of.
pub(crate) fn database_of(name: &[u8]) -> Option<&[u8]> {
    LOGS.iter()
        .find_map(|ending| name.strip_suffix(*ending))
        .filter(|database| !database.is_empty())
}

impl Walk<'_> {
    /// All tasks of a directory have ended: sees to it that groups in it are of one moment.
    pub(super) fn hold_together(&self, building: &Building) {
        let groups = groups(&lock(&building.parts).slots);
        if groups.is_empty() || self.is_over() {
            return;
        }
        let handle = match self.cx.root.open_beneath(&building.path) {
            Ok(handle) => handle,
            Err(error) if is_ours(&error) => return self.fail(at_path(error, &building.path)),
            // It changes at this moment: all of it will be looked at again.
            Err(_) => {
                return groups
                    .into_iter()
                    .flatten()
                    .for_each(|m| self.is_changing(building, m, None));
            }
        };
        for group in groups {
            self.hold_group(building, &handle, group);
        }
    }

    fn hold_group(&self, building: &Building, handle: &DirHandle, mut group: Vec<Member>) {
        for _ in 0..TRIES {
            if group.iter().all(|member| is_still(handle, member)) {
                return self.put(building, group);
            }
            let mut same = true;
            for member in &mut group {
                let again = match self.read_again(handle, member) {
                    Ok(again) => again,
                    Err(error) => return self.fail(error),
                };
                same &= again.as_ref().and_then(Slot::node) == member.slot.as_ref().and_then(Slot::node)
                    && !matches!(again, Some(Slot::Left(_)));
                member.slot = again;
            }
            if same {
                return self.put(building, group);
            }
        }
        for member in group {
            let stat = handle.stat(&member.name).ok();
            self.is_changing(building, member, stat);
        }
    }

    fn read_again(&self, handle: &DirHandle, member: &Member) -> Result<Option<Slot>> {
        let Ok(stat) = handle.stat(&member.name) else {
            return Ok(None);
        };
        if stat.kind != FileType::File {
            return Ok(Some(left(Reason::Changing, &stat)));
        }
        let earlier = match &member.slot {
            Some(Slot::File(file)) => Some(file),
            _ => None,
        };
        Ok(match self.reader.file(handle, &member.name, &stat, earlier)? {
            Outcome::Slot(slot) => Some(slot),
            Outcome::Gone => None,
            Outcome::OtherType => Some(left(Reason::Changing, &stat)),
        })
    }

    fn put(&self, building: &Building, group: Vec<Member>) {
        for member in group {
            let old = lock(&building.parts).slots[member.at].1.take();
            let path = building.path.join(&member.name);
            let slot = self.replace(building, old, member.slot, path.as_bytes());
            building.set(vec![(member.at, member.name, slot)]);
        }
    }

    fn is_changing(&self, building: &Building, member: Member, stat: Option<Stat>) {
        self.look_again(building.path.join(&member.name));
        let slot = stat.map(|stat| left(Reason::Changing, &stat));
        self.put(building, vec![Member { slot, ..member }]);
    }
}

/// Whether a file is now as it was read, and its stat can tell.
fn is_still(handle: &DirHandle, member: &Member) -> bool {
    match (&member.slot, handle.stat(&member.name)) {
        (Some(Slot::File(File { sig, racy: false, .. })), Ok(stat)) => *sig == Sig::of(&stat),
        (None, Err(error)) => error.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

/// Whether a file is captured, or would be if it held still.
fn is_wanted(slot: &Option<Slot>) -> bool {
    match slot {
        Some(Slot::File(_)) => true,
        Some(Slot::Left(left)) => left.reason == Reason::Changing,
        _ => false,
    }
}

/// The groups in a directory. A log that isn't captured (it is ignored, say) makes no group; one that only didn't hold still
/// does: without it the database isn't whole.
fn groups(slots: &Slots) -> Vec<Vec<Member>> {
    let find = |name: &[u8]| slots.binary_search_by(|(slot, _)| (**slot).cmp(name)).ok();
    let member = |at: usize| {
        let (name, slot) = &slots[at];
        is_wanted(slot).then(|| Member {
            at,
            name: name.clone(),
            slot: match slot {
                Some(Slot::File(file)) => Some(Slot::File(file.clone())),
                _ => None,
            },
        })
    };
    let mut databases: Vec<usize> = slots
        .iter()
        .filter(|(_, slot)| is_wanted(slot))
        .filter_map(|(name, _)| find(database_of(name)?))
        .collect();
    databases.sort_unstable();
    databases.dedup();
    databases
        .into_iter()
        .filter_map(|at| {
            let mut group = vec![member(at)?];
            for ending in LOGS {
                group.extend(find(&[&slots[at].0, ending].concat()).and_then(member));
            }
            Some(group)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_names_its_database() {
        assert_eq!(database_of(b"a.sqlite-wal"), Some(&b"a.sqlite"[..]));
        assert_eq!(database_of(b"x-journal"), Some(&b"x"[..]));
        assert_eq!((database_of(b"-wal"), database_of(b"wal")), (None, None));
    }
}
