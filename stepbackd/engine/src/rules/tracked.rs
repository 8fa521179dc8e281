//! Which paths are in the user's index, kept as hashes: eight bytes for each file and each directory, whatever their
//! length. Two different paths of one root with the same hash are less likely than a broken disk, and would at worst
//! capture an ignored file.

use std::hash::{DefaultHasher, Hasher};

/// The paths that an index holds, relative to the root.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tracked {
    hashes: Vec<u64>,
}

#[derive(Clone, Copy)]
enum What {
    File = 0,
    Above = 1,
    Repository = 2,
}

fn hash(path: &[u8], what: What) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(path);
    hasher.write_u8(what as u8);
    hasher.finish()
}

impl Tracked {
    /// Whether the index has this file.
    pub fn has(&self, path: &[u8]) -> bool {
        self.contains(hash(path, What::File))
    }

    /// Whether it has something below this directory.
    pub fn has_below(&self, dir: &[u8]) -> bool {
        self.contains(hash(dir, What::Above))
    }

    /// Whether it names this directory as a submodule.
    pub fn has_repository(&self, dir: &[u8]) -> bool {
        self.contains(hash(dir, What::Repository))
    }

    /// Whether a path that `earlier` had is no longer here.
    pub fn lost_some_of(&self, earlier: &Self) -> bool {
        earlier.hashes.iter().any(|hash| !self.contains(*hash))
    }

    fn contains(&self, hash: u64) -> bool {
        self.hashes.binary_search(&hash).is_ok()
    }
}

/// Collects the paths of an index, in the index's order.
#[derive(Default)]
pub(super) struct Collector {
    hashes: Vec<u64>,
    last_dir: Vec<u8>,
}

impl Collector {
    /// Adds a path; `repository`: it is a submodule.
    pub fn add(&mut self, path: &[u8], repository: bool) {
        let what = if repository { What::Repository } else { What::File };
        self.hashes.push(hash(path, what));
        let dir = path
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(&path[..0], |slash| &path[..slash]);
        if dir == self.last_dir {
            return;
        }
        let mut above = dir;
        while !above.is_empty() {
            self.hashes.push(hash(above, What::Above));
            above = above
                .iter()
                .rposition(|byte| *byte == b'/')
                .map_or(&above[..0], |slash| &above[..slash]);
        }
        self.last_dir = dir.to_vec();
    }

    pub fn finish(mut self) -> Tracked {
        self.hashes.sort_unstable();
        self.hashes.dedup();
        self.hashes.shrink_to_fit();
        Tracked { hashes: self.hashes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_what_is_above_them() {
        let mut collector = Collector::default();
        for path in ["a", "d/e/f", "d/e/g", "d/h"] {
            collector.add(path.as_bytes(), false);
        }
        collector.add(b"sub", true);
        let tracked = collector.finish();
        assert!(tracked.has(b"a") && tracked.has(b"d/h") && !tracked.has(b"d") && !tracked.has(b"sub"));
        assert!(tracked.has_below(b"d") && tracked.has_below(b"d/e") && !tracked.has_below(b"a"));
        assert!(tracked.has_repository(b"sub") && !tracked.has_repository(b"d"));
    }
}
