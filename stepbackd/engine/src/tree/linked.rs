//! Files with more than one name. A write through one name makes no event where the others are, so they are looked at
//! whenever something is.

use std::collections::{BTreeMap, BTreeSet};

use crate::path::TreePath;

/// So many are known at most; further ones are found by a look at everything.
const KNOWN_MAX: usize = 20_000;
/// So many are looked at with every update. Of more, those with the inode of one that an event told of.
const LOOKED_AT_MAX: usize = 256;

/// The captured files with more than one name, and their inodes.
#[derive(Debug, Default)]
pub(super) struct Linked(BTreeMap<TreePath, u64>);

impl Linked {
    /// Those that are looked at with every update.
    pub fn always(&self) -> impl Iterator<Item = &TreePath> {
        let few = self.0.len() <= LOOKED_AT_MAX;
        self.0.keys().filter(move |_| few)
    }

    /// What a look at these paths (`None`: at everything) found.
    pub fn note(&mut self, looked_at: Option<&BTreeSet<TreePath>>, found: &[(TreePath, u64)]) {
        match looked_at {
            None => self.0.clear(),
            Some(_) if self.0.is_empty() => {}
            Some(paths) => self.0.retain(|path, _| !paths.contains(path)),
        }
        for (path, ino) in found {
            if self.0.len() < KNOWN_MAX || self.0.contains_key(path) {
                self.0.insert(path.clone(), *ino);
            }
        }
    }

    /// The other names of what was found, but those that were looked at.
    pub fn other_names(
        &self,
        found: &[(TreePath, u64)],
        looked_at: &BTreeSet<TreePath>,
    ) -> BTreeSet<TreePath> {
        if found.is_empty() {
            return BTreeSet::new();
        }
        let inodes: BTreeSet<u64> = found.iter().map(|(_, ino)| *ino).collect();
        let others = self.0.iter().filter(|(path, ino)| {
            let is_found = found.iter().any(|(found, _)| found == *path);
            inodes.contains(ino) && !looked_at.contains(*path) && !is_found
        });
        others.map(|(path, _)| path.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(number: usize) -> TreePath {
        TreePath::new(format!("f{number}").as_bytes()).unwrap()
    }

    #[test]
    fn few_are_always_looked_at_and_of_many_those_that_belong_together() {
        let mut linked = Linked::default();
        let many: Vec<_> = (0..LOOKED_AT_MAX + 2).map(|n| (path(n), n as u64 / 2)).collect();
        linked.note(None, &many[..4]);
        assert_eq!(linked.always().count(), 4);
        linked.note(None, &many);
        assert_eq!(linked.always().count(), 0);
        let looked_at = BTreeSet::from([path(2)]);
        linked.note(Some(&looked_at), &many[2..3]);
        assert_eq!(
            linked.other_names(&many[2..3], &looked_at),
            BTreeSet::from([path(3)])
        );
        linked.note(Some(&looked_at), &[]);
        assert_eq!(linked.0.len(), many.len() - 1, "it has one name now, or none");
    }
}
