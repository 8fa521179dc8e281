//! Which directories are watched, and for which roots. Pure: what it says has to be done, `watch` does.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use smallvec::SmallVec;

/// A path that ends with `/`, so that all below a directory stands right behind it. Shared with whoever keeps the watches.
pub type Key = Arc<[u8]>;

/// A root, among those of this process.
pub type RootKey = u64;

/// The watched directories by path.
#[derive(Debug, Default)]
pub struct Watches {
    by_path: BTreeMap<Key, Entry>,
    counts: HashMap<RootKey, u64>,
}

#[derive(Debug)]
struct Entry {
    /// Inode of the directory that the watch was set on; `None` when it is no longer known what stands there.
    ino: Option<u64>,
    /// The watch is there; before that, whoever comes by sets it, too.
    set: bool,
    roots: SmallVec<[User; 1]>,
}

#[derive(Debug, Clone, Copy)]
struct User {
    root: RootKey,
    /// All events since the root's last look were told to it and taken in.
    told: bool,
}

/// What a root that is about to list a directory needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing: it has been watched for this root all the time.
    Nothing,
    /// The watch is there, but events weren't told to this root before now.
    Joined,
    /// A watch.
    Watch {
        /// The old one has to go first: it may be another directory's.
        stale: bool,
    },
}

impl Watches {
    /// Root `key` is about to list `dir`, whose inode is `ino`. The entry is made; the watch must be set now.
    pub fn enter(&mut self, dir: &Key, ino: u64, key: RootKey) -> Need {
        let entry = self.by_path.entry(Arc::clone(dir));
        let std::collections::btree_map::Entry::Occupied(mut entry) = entry else {
            entry.or_insert(Entry {
                ino: Some(ino),
                set: false,
                roots: SmallVec::from([User {
                    root: key,
                    told: true,
                }]),
            });
            *self.counts.entry(key).or_default() += 1;
            return Need::Watch { stale: false };
        };
        let entry = entry.get_mut();
        let joined = match entry.roots.iter_mut().find(|user| user.root == key) {
            Some(user) => !std::mem::replace(&mut user.told, true),
            None => {
                entry.roots.push(User {
                    root: key,
                    told: true,
                });
                *self.counts.entry(key).or_default() += 1;
                true
            }
        };
        if entry.ino != Some(ino) {
            entry.ino = Some(ino);
            entry.set = false;
            // Until the new watch is there, nobody is told.
            for user in &mut entry.roots {
                user.told = user.root == key;
            }
            return Need::Watch { stale: true };
        }
        if !entry.set {
            return Need::Watch { stale: false };
        }
        if joined { Need::Joined } else { Need::Nothing }
    }

    /// Whether [`Self::enter`] would say [`Need::Nothing`].
    #[cfg(test)]
    pub fn has(&self, dir: &Path, ino: u64, key: RootKey) -> bool {
        self.by_path.get(&*key_of(dir)).is_some_and(|entry| {
            entry.set && entry.ino == Some(ino) && entry.roots.iter().any(|u| u.root == key && u.told)
        })
    }

    /// What root `key` was told went astray: it has to look at each of its directories again.
    pub fn untold(&mut self, key: RootKey) {
        for user in self.by_path.values_mut().flat_map(|entry| &mut entry.roots) {
            user.told &= user.root != key;
        }
    }

    /// The watch that [`Self::enter`] asked for is there. `false`: an event has told meanwhile that another directory may
    /// stand at `dir`, or nobody needs it any more; then it mustn't stay.
    pub fn has_set(&mut self, dir: &Key, ino: u64) -> bool {
        let entry = self.by_path.get_mut(dir);
        entry.is_some_and(|entry| {
            let stands = entry.ino == Some(ino);
            entry.set |= stands;
            stands
        })
    }

    /// The watches of `path` and below are gone with their directories.
    pub fn gone(&mut self, path: &Path) {
        for key in self.below(path) {
            if let Some(entry) = self.by_path.remove(&key) {
                self.discount(&entry.roots);
            }
        }
    }

    /// The watch of `dir` couldn't be set: nobody has one there, unless another has set it meanwhile.
    pub fn failed(&mut self, dir: &Key) {
        if self.by_path.get(dir).is_some_and(|entry| !entry.set)
            && let Some(entry) = self.by_path.remove(dir)
        {
            self.discount(&entry.roots);
        }
    }

    /// Another directory may stand at `path` now; watches of `path` and below may be those of the one that stood there.
    pub fn doubt(&mut self, path: &Path) {
        for key in self.below(path) {
            if let Some(entry) = self.by_path.get_mut(&key) {
                entry.ino = None;
            }
        }
    }

    /// Root `key` has no more use for `dir` and what is below. Returns the paths whose watches nobody needs now.
    pub fn leave(&mut self, dir: &Path, key: RootKey) -> Vec<PathBuf> {
        let below = self.below(dir);
        self.release(below, key)
    }

    /// Root `key` has no more use for `max` of its directories, those at and below `root` that come first. As
    /// [`Self::leave`]; `None` when it has none left.
    pub fn leave_some(&mut self, root: &Path, key: RootKey, max: usize) -> Option<Vec<PathBuf>> {
        let some: Vec<_> = self
            .from(&key_of(root))
            .filter(|(_, entry)| entry.roots.iter().any(|user| user.root == key))
            .map(|(key, _)| key.clone())
            .take(max)
            .collect();
        (!some.is_empty()).then(|| self.release(some, key))
    }

    /// How many directories are watched for root `key`.
    pub fn count(&self, key: RootKey) -> u64 {
        self.counts.get(&key).copied().unwrap_or(0)
    }

    fn release(&mut self, keys: Vec<Key>, root: RootKey) -> Vec<PathBuf> {
        let mut unused = Vec::new();
        for key in keys {
            let Some(entry) = self.by_path.get_mut(&key) else {
                continue;
            };
            let Some(at) = entry.roots.iter().position(|user| user.root == root) else {
                continue;
            };
            let user = entry.roots.swap_remove(at);
            let empty = entry.roots.is_empty();
            self.discount(&[user]);
            if empty {
                self.by_path.remove(&key);
                unused.push(path_of(&key));
            }
        }
        unused
    }

    fn discount(&mut self, users: &[User]) {
        for user in users {
            if let Some(count) = self.counts.get_mut(&user.root) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&user.root);
                }
            }
        }
    }

    fn below(&self, path: &Path) -> Vec<Key> {
        self.from(&key_of(path)).map(|(key, _)| key.clone()).collect()
    }

    fn from<'a>(&'a self, start: &'a [u8]) -> impl Iterator<Item = (&'a Key, &'a Entry)> {
        self.by_path
            .range::<[u8], _>((Bound::Included(start), Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(start))
    }
}

/// A path as a key.
pub fn key_of(path: &Path) -> Key {
    let bytes = path.as_os_str().as_bytes();
    let bytes = bytes.strip_suffix(b"/").unwrap_or(bytes);
    bytes.iter().copied().chain(std::iter::once(b'/')).collect()
}

/// The path of a key.
pub fn path_of(key: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(key.strip_suffix(b"/").unwrap_or(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(text: &str) -> &Path {
        Path::new(text)
    }

    fn k(text: &str) -> Key {
        key_of(p(text))
    }

    /// As a root does it: the watch is set when one is asked for.
    fn enter(watches: &mut Watches, dir: &str, ino: u64, key: RootKey) -> Need {
        let need = watches.enter(&k(dir), ino, key);
        if matches!(need, Need::Watch { .. }) {
            assert!(watches.has_set(&k(dir), ino));
        }
        need
    }

    fn leave_all(watches: &mut Watches, key: RootKey) -> Vec<PathBuf> {
        std::iter::from_fn(|| watches.leave_some(p("/r"), key, 2))
            .flatten()
            .collect()
    }

    #[test]
    fn until_a_watch_is_set_everybody_sets_it() {
        let mut watches = Watches::default();
        assert_eq!(watches.enter(&k("/r"), 1, 7), Need::Watch { stale: false });
        assert_eq!(watches.enter(&k("/r"), 1, 8), Need::Watch { stale: false });
        assert!(!watches.has(p("/r"), 1, 7));
        assert!(watches.has_set(&k("/r"), 1) && !watches.has_set(&k("/r"), 2));
        watches.failed(&k("/r"));
        assert!(watches.has(p("/r"), 1, 7) && watches.has(p("/r"), 1, 8));
        watches.enter(&k("/r/a"), 1, 7);
        watches.gone(p("/r/a"));
        assert!(!watches.has_set(&k("/r/a"), 1), "gone meanwhile");
    }

    #[test]
    fn a_directory_is_watched_once() {
        let mut watches = Watches::default();
        assert_eq!(enter(&mut watches, "/r", 1, 7), Need::Watch { stale: false });
        assert_eq!(enter(&mut watches, "/r", 1, 7), Need::Nothing);
        assert!(watches.has(p("/r"), 1, 7) && !watches.has(p("/r"), 2, 7));
        assert_eq!(enter(&mut watches, "/r", 1, 8), Need::Joined);
        assert_eq!((watches.count(7), watches.count(8)), (1, 1));
    }

    #[test]
    fn what_went_astray_is_looked_at_again_without_a_new_watch() {
        let mut watches = Watches::default();
        enter(&mut watches, "/r", 1, 7);
        enter(&mut watches, "/r", 1, 8);
        watches.untold(7);
        assert!(!watches.has(p("/r"), 1, 7) && watches.has(p("/r"), 1, 8));
        assert_eq!(enter(&mut watches, "/r", 1, 7), Need::Joined);
        assert_eq!(enter(&mut watches, "/r", 1, 7), Need::Nothing);
        assert_eq!(watches.count(7), 1);
    }

    #[test]
    fn another_directory_at_the_path_needs_a_new_watch() {
        let mut watches = Watches::default();
        enter(&mut watches, "/r/a", 1, 7);
        assert_eq!(enter(&mut watches, "/r/a", 2, 7), Need::Watch { stale: true });
        watches.doubt(p("/r"));
        assert!(!watches.has(p("/r/a"), 2, 7));
        assert_eq!(enter(&mut watches, "/r/a", 2, 7), Need::Watch { stale: true });
    }

    #[test]
    fn a_new_watch_for_one_root_tells_the_others_nothing_of_before() {
        let mut watches = Watches::default();
        enter(&mut watches, "/r/a", 1, 7);
        enter(&mut watches, "/r/a", 1, 8);
        assert_eq!(enter(&mut watches, "/r/a", 2, 7), Need::Watch { stale: true });
        assert!(watches.has(p("/r/a"), 2, 7) && !watches.has(p("/r/a"), 2, 8));
        assert_eq!(enter(&mut watches, "/r/a", 2, 8), Need::Joined);
    }

    #[test]
    fn a_watch_that_failed_is_nobodys_and_those_below_stay_known() {
        let mut watches = Watches::default();
        for (dir, root) in [("/r/a", 7), ("/r/a", 8), ("/r/a/b", 7)] {
            enter(&mut watches, dir, 1, root);
        }
        watches.doubt(p("/r/a"));
        watches.enter(&k("/r/a"), 2, 7);
        watches.failed(&k("/r/a"));
        assert!(!watches.has_set(&k("/r/a"), 2));
        assert_eq!((watches.count(7), watches.count(8)), (1, 0));
        assert_eq!(
            leave_all(&mut watches, 7),
            [p("/r/a/b")],
            "its watch can still be given back"
        );
    }

    #[test]
    fn what_is_gone_takes_all_below_and_nothing_beside() {
        let mut watches = Watches::default();
        for dir in ["/r/a", "/r/a/b", "/r/a/b/c", "/r/a.b", "/r/ab"] {
            enter(&mut watches, dir, 1, 7);
        }
        watches.gone(p("/r/a"));
        assert_eq!(watches.count(7), 2);
        assert!(watches.has(p("/r/a.b"), 1, 7) && watches.has(p("/r/ab"), 1, 7));
        watches.gone(p("/r/a"));
        assert_eq!(watches.count(7), 2);
    }

    #[test]
    fn a_watch_stays_while_another_root_needs_it() {
        let mut watches = Watches::default();
        for (dir, root) in [("/r", 7), ("/r/in", 7), ("/r/in", 8), ("/r/in/x", 8)] {
            enter(&mut watches, dir, 1, root);
        }
        assert_eq!(watches.leave(p("/r/in"), 7), Vec::<PathBuf>::new());
        assert_eq!(leave_all(&mut watches, 7), [p("/r")]);
        assert_eq!(watches.leave(p("/r/in"), 8), [p("/r/in"), p("/r/in/x")]);
        assert_eq!((watches.count(7), watches.count(8)), (0, 0));
    }
}
