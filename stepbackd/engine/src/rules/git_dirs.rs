//! Git directories in a root that aren't named `.git`: a `.git` file or link names them, as `git init --separate-git-dir`,
//! bare repositories with worktrees and other layouts have it. They are git's own like any `.git`.
//!
//! What is found stays so while it looks like a git directory, whether or not something names it still: what is in it
//! must not be taken for new files only because a `.git` file went.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::repo::GitDir;
use crate::path::TreePath;
use crate::user_file::read_small;

/// What in a git directory may be a link to where the history really is.
const LINKED: [&str; 6] = ["objects", "refs", "logs", "packed-refs", "worktrees", "modules"];

/// What git keeps for itself in a root, outside of any `.git`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct GitDirs {
    /// Those that a `.git` names or once named, without those below another.
    named: BTreeSet<TreePath>,
    /// They, and what they use. Nothing in them is captured.
    whole: BTreeSet<Box<[u8]>>,
    /// Those in which worktrees are.
    around: Vec<Around>,
}

/// A git directory in which worktrees are.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Around {
    path: TreePath,
    worktrees: BTreeSet<TreePath>,
}

impl GitDirs {
    /// Looks. `places`: directories below `root`, a canonical path, of which each holds a `.git` that is no directory.
    /// `earlier`: what was known before.
    pub fn look(root: &Path, places: &BTreeSet<TreePath>, earlier: &BTreeSet<TreePath>) -> Self {
        let mut named = BTreeSet::new();
        let mut users = Vec::new();
        for place in places.iter().chain([&TreePath::root()]) {
            let holder = root.join(place.as_path());
            let Some(git_dir) = GitDir::find(&holder) else {
                continue;
            };
            // A submodule's in the `.git` of its superproject, or a worktree's, is the usual case; or a `.git` itself, unless
            // it is a link.
            let is_plain = |dir: &&Path| {
                dir.components().any(|part| part.as_os_str() == ".git")
                    && (**dir != holder.join(".git") || !dir.is_symlink())
            };
            let found: Vec<TreePath> = git_dir
                .dirs()
                .filter(|dir| !is_plain(dir))
                .filter_map(|dir| within(root, dir))
                .collect();
            if !found.is_empty() || place.is_root() {
                users.push(git_dir);
            }
            named.extend(found);
        }
        for dir in earlier.difference(&named.clone()) {
            if let Some(git_dir) = GitDir::at(root.join(dir.as_path())) {
                named.insert(dir.clone());
                users.push(git_dir);
            }
        }
        let used: Vec<TreePath> = users.iter().flat_map(|git_dir| used_by(root, git_dir)).collect();
        let named = outermost(named);
        let mut found = Self::default();
        for path in outermost(named.iter().cloned().chain(used).collect()) {
            let mut worktrees = worktrees(root, &path);
            let inside = |place: &&TreePath| **place != path && place.starts_with(&path);
            worktrees.extend(places.iter().filter(inside).cloned());
            if worktrees.is_empty() {
                found.whole.insert(path.as_bytes().into());
            } else {
                found.around.push(Around { path, worktrees });
            }
        }
        found.named = named;
        found
    }

    /// Those that a `.git` names, or once named.
    pub const fn named(&self) -> &BTreeSet<TreePath> {
        &self.named
    }

    /// Whether this very path is git's own. What is below it isn't looked at then.
    pub fn has(&self, path: &[u8]) -> bool {
        self.whole.contains(path) || self.around.iter().any(|around| around.has(path))
    }

    /// The uppermost path of git's own that is `path` or above it.
    pub fn above(&self, path: &TreePath) -> Option<TreePath> {
        if *self == Self::default() {
            return None;
        }
        let mut at = TreePath::root();
        path.parts().find_map(|part| {
            at = at.join(part);
            self.has(at.as_bytes()).then(|| at.clone())
        })
    }

    /// Paths that are captured otherwise than by `other`.
    pub fn differences(&self, other: &Self) -> BTreeSet<TreePath> {
        if self == other {
            return BTreeSet::new();
        }
        let whole = self.whole.symmetric_difference(&other.whole);
        let whole = whole.filter_map(|path| TreePath::new(path).ok());
        let lists = [(&self.around, &other.around), (&other.around, &self.around)];
        let around = lists
            .into_iter()
            .flat_map(|(a, b)| a.iter().filter(|around| !b.contains(around)));
        whole
            .chain(around.flat_map(|around| around.worktrees.iter().chain([&around.path]).cloned()))
            .collect()
    }
}

impl Around {
    fn has(&self, path: &[u8]) -> bool {
        let is_below = path
            .strip_prefix(self.path.as_bytes())
            .is_some_and(|rest| rest.first() == Some(&b'/'));
        let leads_to = |worktree: &TreePath| {
            is_at_or_below(path, worktree.as_bytes()) || is_at_or_below(worktree.as_bytes(), path)
        };
        is_below && !self.worktrees.iter().any(leads_to)
    }
}

fn is_at_or_below(path: &[u8], above: &[u8]) -> bool {
    path.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Without those that are below another.
fn outermost(paths: BTreeSet<TreePath>) -> BTreeSet<TreePath> {
    let inner = |path: &TreePath| paths.iter().any(|other| other != path && path.starts_with(other));
    paths.iter().filter(|path| !inner(path)).cloned().collect()
}

/// The place strictly below the root that a path leads to; none for what is outside, or in a `.git` anyway.
fn within(root: &Path, path: &Path) -> Option<TreePath> {
    let real = fs::canonicalize(path).ok()?;
    let path = TreePath::from_path(real.strip_prefix(root).ok()?).ok()?;
    (!path.is_root()).then_some(path)
}

/// What a git directory has elsewhere in the root: by links, and by alternates.
fn used_by(root: &Path, git_dir: &GitDir) -> Vec<TreePath> {
    let links = git_dir.dirs().flat_map(|dir| LINKED.map(|name| dir.join(name)));
    let mut used: Vec<TreePath> = links
        .filter(|link| link.is_symlink())
        .filter_map(|link| within(root, &link))
        .collect();
    let objects = git_dir.common.join("objects");
    let alternates = read_small(&objects.join("info/alternates")).unwrap_or_default();
    for line in alternates
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let other = objects.join(OsStr::from_bytes(line));
        let repository = other
            .parent()
            .filter(|dir| GitDir::at(dir.to_path_buf()).is_some());
        used.extend(within(root, repository.unwrap_or(&other)));
    }
    used
}

/// The worktrees inside a git directory that it knows of.
fn worktrees(root: &Path, git_dir: &TreePath) -> BTreeSet<TreePath> {
    let dir = root.join(git_dir.as_path()).join("worktrees");
    let Ok(entries) = fs::read_dir(&dir) else {
        return BTreeSet::new();
    };
    let dot_git = |entry: PathBuf| {
        let text = read_small(&entry.join("gitdir")).ok()?;
        let path = within(
            root,
            entry.join(OsStr::from_bytes(text.trim_ascii_end())).parent()?,
        )?;
        (path != *git_dir && path.starts_with(git_dir)).then_some(path)
    };
    entries
        .flatten()
        .filter_map(|entry| dot_git(entry.path()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> TreePath {
        TreePath::new(text.as_bytes()).unwrap()
    }

    fn make(dir: &Path) {
        for name in ["objects/info", "refs"] {
            fs::create_dir_all(dir.join(name)).unwrap();
        }
        fs::write(dir.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    }

    fn look(root: &Path, places: &[&str], earlier: &[&str]) -> GitDirs {
        let set = |paths: &[&str]| paths.iter().map(|text| path(text)).collect();
        GitDirs::look(root, &set(places), &set(earlier))
    }

    #[test]
    fn only_what_is_named_and_looks_like_one() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        make(&root.join("gd"));
        make(&root.join("bare.git"));
        fs::create_dir(root.join("plain")).unwrap();
        assert_eq!(look(&root, &[], &[]), GitDirs::default());
        fs::write(root.join(".git"), "gitdir: plain\n").unwrap();
        assert_eq!(look(&root, &[], &[]), GitDirs::default());
        fs::write(root.join(".git"), "gitdir: ./plain/../gd\n").unwrap();
        let found = look(&root, &[], &[]);
        assert!(found.has(b"gd") && !found.has(b"gd2") && !found.has(b"bare.git") && !found.has(b"plain"));
        assert_eq!(found.above(&path("gd/refs/heads")), Some(path("gd")));
        assert_eq!(found.above(&path("plain/gd")), None);
        assert_eq!(found.differences(&GitDirs::default()), [path("gd")].into());

        fs::remove_file(root.join(".git")).unwrap();
        assert!(look(&root, &[], &["gd"]).has(b"gd"), "it stays what it was");
        fs::remove_file(root.join("gd/HEAD")).unwrap();
        assert_eq!(look(&root, &[], &["gd"]), GitDirs::default());
    }

    #[test]
    fn what_a_git_directory_uses_belongs_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["repo/p.git", "alt.git", "outer"] {
            make(&root.join(name));
        }
        fs::create_dir_all(root.join("objects/p")).unwrap();
        fs::create_dir(root.join("p")).unwrap();
        fs::remove_dir_all(root.join("repo/p.git/objects")).unwrap();
        std::os::unix::fs::symlink("../../objects/p", root.join("repo/p.git/objects")).unwrap();
        std::os::unix::fs::symlink("../repo/p.git", root.join("p/.git")).unwrap();
        fs::create_dir(root.join("objects/p/info")).unwrap();
        fs::write(
            root.join("objects/p/info/alternates"),
            format!("{}\n", root.join("alt.git/objects").display()),
        )
        .unwrap();
        let found = look(&root, &["p"], &[]);
        for own in ["repo/p.git", "objects/p", "alt.git"] {
            assert!(found.has(own.as_bytes()), "{own}: {found:?}");
        }
        for other in ["repo", "p", "objects", "outer"] {
            assert!(!found.has(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn worktrees_in_a_git_directory_are_captured() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        make(&root.join("b.git"));
        for (name, to) in [("main", "b.git/main"), ("deep", "b.git/x/deep")] {
            let own = root.join("b.git/worktrees").join(name);
            fs::create_dir_all(&own).unwrap();
            fs::create_dir_all(root.join(to)).unwrap();
            fs::write(own.join("HEAD"), "ref: refs/heads/x\n").unwrap();
            fs::write(own.join("commondir"), "../..\n").unwrap();
            fs::write(
                own.join("gitdir"),
                format!("{}\n", root.join(to).join(".git").display()),
            )
            .unwrap();
            fs::write(root.join(to).join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
        }
        for found in [look(&root, &["b.git/main"], &[]), look(&root, &[], &["b.git"])] {
            for own in ["b.git/HEAD", "b.git/objects", "b.git/worktrees", "b.git/x/other"] {
                assert!(found.has(own.as_bytes()), "{own}");
            }
            for theirs in [
                "b.git",
                "b.git/main",
                "b.git/main/f",
                "b.git/x",
                "b.git/x/deep/f",
                "b.github",
            ] {
                assert!(!found.has(theirs.as_bytes()), "{theirs}");
            }
        }
    }
}
