//! Where the user's HEAD stands, and which repository is there, read from files alone: no process, no lock, no write.
//! What can't be known that way (the HEAD of a reftable repository, say) is simply not recorded.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::state::Identity;
use crate::user_file::{find_line, read_small};

/// The user's branch and commit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GitHead {
    /// Object id.
    pub commit: Option<String>,
    /// Short name of the branch; `None` when HEAD is detached.
    pub branch: Option<String>,
}

/// The git directory of a work tree: `.git`, or what a `.git` file names.
#[must_use]
pub fn git_dir(work_tree: &Path) -> Option<PathBuf> {
    let dot_git = work_tree.join(".git");
    let metadata = fs::symlink_metadata(&dot_git).ok()?;
    if metadata.is_dir() {
        return Some(dot_git);
    }
    let text = read_small(&dot_git).ok()?;
    let named = Path::new(OsStr::from_bytes(text.strip_prefix(b"gitdir:")?.trim_ascii()));
    Some(if named.is_absolute() {
        named.to_owned()
    } else {
        work_tree.join(named)
    })
}

/// The directory that all worktrees of a repository share.
#[must_use]
pub fn common_dir(git_dir: &Path) -> PathBuf {
    match read_small(&git_dir.join("commondir")) {
        Ok(text) => git_dir.join(OsStr::from_bytes(text.trim_ascii())),
        Err(_) => git_dir.to_owned(),
    }
}

impl GitHead {
    /// Reads it for the work tree at `path`; empty outside of a repository.
    #[must_use]
    pub fn read(path: &Path) -> Self {
        let Some(dir) = git_dir(path) else {
            return Self::default();
        };
        let Some(head) = read_text(&dir.join("HEAD")) else {
            return Self::default();
        };
        let head = head.trim();
        let Some(reference) = head.strip_prefix("ref:").map(str::trim) else {
            return Self {
                commit: object_id(head),
                branch: None,
            };
        };
        // What a reftable repository has in the HEAD file.
        if reference == "refs/heads/.invalid" || !is_reference(reference) {
            return Self::default();
        }
        let branch = reference.strip_prefix("refs/heads/").map(str::to_owned);
        let common = common_dir(&dir);
        let commit = read_text(&common.join(reference))
            .and_then(|text| object_id(text.trim()))
            .or_else(|| packed_ref(&common, reference));
        Self { commit, branch }
    }
}

/// Which repository a directory has, by what stands at its `.git`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "identity", rename_all = "kebab-case")]
pub enum GitSighting {
    /// None.
    None,
    /// This directory.
    Directory(Identity),
    /// A file that names this directory, if it is there.
    File(Option<Identity>),
}

/// How the repository of a directory differs from the one that it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitChange {
    /// There is none any more.
    Gone,
    /// There was none.
    New,
    /// It is another one.
    Replaced,
}

impl GitSighting {
    /// Looks at `root`; `None` when that fails.
    #[must_use]
    pub fn of(root: &Path) -> Option<Self> {
        let dot_git = root.join(".git");
        match fs::metadata(&dot_git) {
            Ok(metadata) if metadata.is_dir() => Some(Self::Directory(Identity::at(&dot_git).ok()??)),
            Ok(_) => {
                let named = git_dir(root).and_then(|named| Identity::at(&named).ok()?);
                Some(Self::File(named))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Some(Self::None),
            Err(_) => None,
        }
    }

    /// How it has become `now`.
    #[must_use]
    pub fn change_to(self, now: Self) -> Option<GitChange> {
        match (self, now) {
            (then, now) if then == now => None,
            (Self::Directory(then), Self::Directory(now)) if then.is(&now) => None,
            (Self::File(Some(then)), Self::File(Some(now))) if then.is(&now) => None,
            (_, Self::None) => Some(GitChange::Gone),
            (Self::None, _) => Some(GitChange::New),
            _ => Some(GitChange::Replaced),
        }
    }
}

fn read_text(path: &Path) -> Option<String> {
    String::from_utf8(read_small(path).ok()?).ok()
}

/// Whether a name in HEAD can only lead to a file below `refs`.
fn is_reference(name: &str) -> bool {
    name.starts_with("refs/") && !name.contains("..") && !name.contains('\0')
}

fn object_id(text: &str) -> Option<String> {
    let good = matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_hexdigit());
    good.then(|| text.to_owned())
}

fn packed_ref(common: &Path, reference: &str) -> Option<String> {
    find_line(&common.join("packed-refs"), |line| {
        let (id, name) = std::str::from_utf8(line).ok()?.split_once(' ')?;
        if name == reference { object_id(id) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loose_packed_and_detached() {
        let dir = tempfile::tempdir().unwrap();
        let git = dir.path().join(".git");
        fs::create_dir_all(git.join("refs/heads")).unwrap();
        let id = "a".repeat(40);
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        assert_eq!(
            GitHead::read(dir.path()),
            GitHead {
                commit: None,
                branch: Some("main".into())
            }
        );
        fs::write(
            git.join("packed-refs"),
            format!("# pack-refs\n{id} refs/heads/main\n"),
        )
        .unwrap();
        assert_eq!(GitHead::read(dir.path()).commit, Some(id.clone()));
        let newer = "b".repeat(40);
        fs::write(git.join("refs/heads/main"), format!("{newer}\n")).unwrap();
        assert_eq!(GitHead::read(dir.path()).commit, Some(newer));
        fs::write(git.join("HEAD"), format!("{id}\n")).unwrap();
        assert_eq!(
            GitHead::read(dir.path()),
            GitHead {
                commit: Some(id),
                branch: None
            }
        );
    }

    #[test]
    fn nothing_in_a_repository_holds_it_up() {
        use nix::sys::stat::Mode;
        use nix::unistd::mkfifo;
        use std::os::unix::fs::symlink;

        let id = "a".repeat(40);
        let main = GitHead {
            commit: None,
            branch: Some("main".into()),
        };
        let none = GitHead::default();
        for (place, expected) in [
            ("", &none),
            ("HEAD", &none),
            ("refs/heads/main", &main),
            ("packed-refs", &main),
            ("commondir", &main),
        ] {
            for kind in ["fifo", "zero", "huge"] {
                let dir = tempfile::tempdir().unwrap();
                let git = dir.path().join(".git");
                if !place.is_empty() {
                    fs::create_dir_all(git.join("refs/heads")).unwrap();
                    fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
                    let _ = fs::remove_file(git.join(place));
                }
                let at = if place.is_empty() { git } else { git.join(place) };
                match kind {
                    "fifo" => mkfifo(&at, Mode::S_IRWXU).unwrap(),
                    "zero" => symlink("/dev/zero", &at).unwrap(),
                    _ => fs::File::create(&at).unwrap().set_len(1 << 40).unwrap(),
                }
                assert_eq!(&GitHead::read(dir.path()), expected, "{place} {kind}");
                assert!(GitSighting::of(dir.path()).is_some(), "{place} {kind}");
            }
        }
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join(".git/refs")).unwrap();
        fs::write(dir.path().join("secret"), &id).unwrap();
        for name in [
            "/dev/zero".to_owned(),
            dir.path().join("secret").display().to_string(),
            "refs/../../secret".to_owned(),
            "secret".to_owned(),
        ] {
            fs::write(dir.path().join(".git/HEAD"), format!("ref: {name}\n")).unwrap();
            assert_eq!(GitHead::read(dir.path()), none, "{name}");
        }
    }

    #[test]
    fn a_git_file_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("real/wt")).unwrap();
        fs::create_dir(dir.path().join("tree")).unwrap();
        fs::write(dir.path().join("tree/.git"), "gitdir: ../real/wt\n").unwrap();
        fs::write(dir.path().join("real/wt/commondir"), "..\n").unwrap();
        let found = git_dir(&dir.path().join("tree")).unwrap();
        assert!(common_dir(&found).ends_with("real/wt/.."));
    }

    #[test]
    fn which_repository_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let seen = || GitSighting::of(root).unwrap();
        let none = seen();
        fs::create_dir(root.join(".git")).unwrap();
        let first = seen();
        assert_eq!(none.change_to(first), Some(GitChange::New));
        fs::write(root.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        assert_eq!(first.change_to(seen()), None);
        fs::rename(root.join(".git"), root.join("kept")).unwrap();
        assert_eq!(first.change_to(seen()), Some(GitChange::Gone));
        fs::create_dir(root.join(".git")).unwrap();
        assert_eq!(first.change_to(seen()), Some(GitChange::Replaced));
        fs::remove_dir(root.join(".git")).unwrap();
        fs::write(root.join(".git"), "gitdir: kept\n").unwrap();
        let file = seen();
        assert_eq!(first.change_to(file), Some(GitChange::Replaced));
        let json = serde_json::to_string(&file).unwrap();
        assert_eq!(
            serde_json::from_str::<GitSighting>(&json).unwrap(),
            file,
            "{json}"
        );
        assert_eq!(serde_json::to_string(&none).unwrap(), r#"{"kind":"none"}"#);
        fs::rename(root.join("kept"), root.join(".git-real")).unwrap();
        fs::write(root.join(".git"), "gitdir: .git-real\n").unwrap();
        assert_eq!(file.change_to(seen()), None, "moved by git worktree repair, say");
    }
}
