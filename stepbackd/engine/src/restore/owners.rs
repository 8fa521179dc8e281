//! Who shall own what is staged, and which bits go with it.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

use nix::unistd::{Gid, Uid};

use super::ops::{self};
use super::place::{Ground, Sort, Work};
use crate::node::Kind;
use crate::path::TreePath;
use crate::root::{FileType, Stat};

/// Who shall own what: the owner and group of what is replaced; for what is new, whoever would own it had it been made
/// in its place.
pub(super) struct Owners {
    wanted: HashMap<TreePath, Owner>,
    /// Files to be replaced that have other names, too.
    linked: Vec<Linked>,
}

struct Linked {
    path: TreePath,
    /// Which file it is.
    dev_ino: (u64, u64),
    /// How many names it has.
    names: u64,
}

struct Owner {
    uid: u32,
    gid: u32,
    /// Of what is replaced.
    replaced: Option<FileType>,
    /// Of what is new: only we, whose it will be, may make anything in its directory. Whose it was isn't recorded: in a
    /// directory of others, set-id bits would turn somebody's program into one of ours.
    own_ground: bool,
}

/// So many files that part from their other names are named.
const LINKED_NAMED_MAX: usize = 3;

impl Owners {
    /// What is said of files that part from their other names.
    pub(super) fn parted(&self) -> Option<String> {
        let named: Vec<_> = self
            .linked
            .iter()
            .take(LINKED_NAMED_MAX)
            .map(|linked| linked.path.to_string())
            .collect();
        let more = match self.linked.len() - named.len() {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        let each = if self.linked.len() > 1 { "each " } else { "" };
        let others = if self.leaves_names_alone() {
            "; names that this leaves alone keep the bytes that they had"
        } else {
            ""
        };
        (!named.is_empty()).then(|| {
            format!(
                "{}{more}: {each}a file of its own now, no hard link{others}",
                named.join(", ")
            )
        })
    }

    /// Whether one of the linked files has a name that isn't among those to be replaced.
    fn leaves_names_alone(&self) -> bool {
        let mut replaced: HashMap<(u64, u64), u64> = HashMap::new();
        for linked in &self.linked {
            *replaced.entry(linked.dev_ino).or_default() += 1;
        }
        self.linked
            .iter()
            .any(|linked| replaced[&linked.dev_ino] < linked.names)
    }

    /// By what stands there now.
    pub fn of(ground: &Ground<'_>, works: &[Work]) -> Self {
        let mut owners = Self {
            wanted: HashMap::new(),
            linked: Vec::new(),
        };
        // By directory: the group of what is made in it, and whether nobody else may make anything in it.
        let mut groups: HashMap<TreePath, (u32, bool)> = HashMap::new();
        let mut last: Option<(TreePath, Option<OwnedFd>)> = None;
        let (uid, own_gid) = (Uid::effective().as_raw(), Gid::effective().as_raw());
        for work in works
            .iter()
            .filter(|work| work.wants_staging() && !work.path.is_root())
        {
            let (parent, name) = work.path.split_last().expect("not the root");
            if last.as_ref().is_none_or(|(path, _)| *path != parent) {
                last = Some((parent.clone(), ops::open_parent(&ground.root, &parent).ok()));
            }
            let dir = last.as_ref().and_then(|(_, dir)| dir.as_ref());
            if work.from.is_some()
                && work.sort() == Sort::Leaf
                && let Some(Ok(Some(stat))) = dir.map(|dir| ops::stat(dir.as_fd(), name))
            {
                let owner = Owner {
                    uid: stat.uid,
                    gid: stat.gid,
                    replaced: Some(stat.kind),
                    own_ground: false,
                };
                owners.wanted.insert(work.path.clone(), owner);
                if stat.kind == FileType::File && stat.nlink > 1 {
                    owners.linked.push(Linked {
                        path: work.path.clone(),
                        dev_ino: (stat.dev, stat.ino),
                        names: stat.nlink,
                    });
                }
                continue;
            }
            let (gid, own_ground) = *groups.entry(parent).or_insert_with(|| {
                let Some(stat) = dir.and_then(|dir| Stat::of(dir).ok()) else {
                    return (own_gid, false);
                };
                let hands_on = stat.mode & 0o2000 != 0;
                let closed = match stat.mode & 0o022 {
                    0 => true,
                    0o020 => stat.gid == own_gid,
                    _ => false,
                };
                (
                    if hands_on { stat.gid } else { own_gid },
                    stat.uid == uid && closed,
                )
            });
            let hands_on = work
                .to
                .as_ref()
                .is_some_and(|to| to.kind == Kind::Dir && to.perm.bits() & 0o2000 != 0);
            groups.insert(
                work.path.clone(),
                (if hands_on { gid } else { own_gid }, own_ground),
            );
            owners.wanted.insert(
                work.path.clone(),
                Owner {
                    uid,
                    gid,
                    replaced: None,
                    own_ground,
                },
            );
        }
        owners
    }

    pub fn wanted(&self, path: &TreePath) -> Option<(u32, u32)> {
        self.wanted.get(path).map(|owner| (owner.uid, owner.gid))
    }

    pub(super) fn replaces_file(&self, path: &TreePath) -> bool {
        self.wanted
            .get(path)
            .is_some_and(|owner| owner.replaced == Some(FileType::File))
    }

    /// Only with the owner and group of the replaced file; a new one must be ours.
    pub(super) fn may_have_set_id(&self, path: &TreePath, stat: &Stat) -> bool {
        let ours = (Uid::effective().as_raw(), Gid::effective().as_raw());
        let wanted = match self.wanted.get(path) {
            Some(owner) if owner.replaced.is_some() => (owner.uid, owner.gid),
            Some(owner) if !owner.own_ground => return false,
            _ => ours,
        };
        wanted == (stat.uid, stat.gid)
    }
}
