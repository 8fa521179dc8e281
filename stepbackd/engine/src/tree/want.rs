//! Which parts of a tree are to be looked at.

use std::collections::{BTreeMap, BTreeSet};

use super::dir::Name;
use super::scan::DEPTH_MAX;
use crate::path::TreePath;
use crate::rules::is_rule_file;

/// What is to be looked at in a directory that is known.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Want {
    /// Everything in it and below.
    pub whole: bool,
    /// All its entries, but not what is in known directories.
    pub list: bool,
    /// Where everything is wanted: which names a directory has needn't be asked while its ctime says that they are those that
    /// are known.
    pub trusts_names: bool,
    /// These entries; of a known directory, what is wanted in it.
    pub names: BTreeMap<Name, Self>,
}

impl Want {
    /// What a set of dirty paths asks for. A path asks for the entry, and where that is a directory, for its list.
    pub fn of(dirty: &BTreeSet<TreePath>) -> Self {
        let mut want = Self::default();
        for path in dirty {
            let mut at = &mut want;
            // What is deeper isn't captured; looking at what is above it finds that out.
            let mut parts = path.parts().take(DEPTH_MAX + 1).peekable();
            while let Some(part) = parts.next() {
                // Rules reach all below their directory.
                at.whole |= parts.peek().is_none() && is_rule_file(part);
                at = at.names.entry(part.into()).or_default();
            }
            at.list = true;
        }
        want
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_share_what_is_above_them() {
        let dirty = ["a/b", "a/c", "d/.gitignore"].map(|path| TreePath::new(path.as_bytes()).unwrap());
        let want = Want::of(&dirty.into());
        assert!(!want.list && !want.whole);
        assert_eq!(want.names[&b"a"[..]].names.len(), 2);
        assert!(want.names[&b"a"[..]].names[&b"b"[..]].list);
        assert!(want.names[&b"d"[..]].whole && !want.names[&b"a"[..]].whole);
    }
}
