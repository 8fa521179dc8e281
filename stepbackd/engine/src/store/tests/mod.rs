//! The store on a real file system, with git as the judge of what it writes.

mod ahead;
mod damage;
#[cfg(feature = "fault-points")]
mod faults;
mod large;
mod leftovers;
mod objects;
mod pack_by_pack;
#[cfg(feature = "fault-points")]
mod pack_by_pack_faults;
mod refs;
mod speed;
mod trees;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::{LARGE_BYTES, Store, encode_tree, loose};
use crate::oid::{ObjectKind, Oid};
use crate::time::Time;

/// A store in a directory of its own.
struct Sandbox {
    store: Store,
    _dir: TempDir,
}

impl std::ops::Deref for Sandbox {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

fn sandbox() -> Sandbox {
    let dir = TempDir::new().unwrap();
    let store = Store::create(&dir.path().join("state/stores/x-1.git")).unwrap();
    Sandbox { store, _dir: dir }
}

impl Sandbox {
    /// A file of the store that may be changed.
    fn file(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        writable(&path);
        path
    }

    fn loose_file(&self, oid: Oid) -> PathBuf {
        let path = loose::path(&self.path().join("objects"), oid);
        writable(&path);
        path
    }

    fn put(&self, kind: ObjectKind, body: &[u8]) -> Oid {
        let writer = self.writer();
        let oid = writer.put(kind, body).unwrap();
        writer.finish().unwrap();
        oid
    }

    fn blob(&self, body: &[u8]) -> Oid {
        self.put(ObjectKind::Blob, body)
    }

    /// Enough blobs for a pack; all of them.
    fn packed_blobs(&self, count: u32) -> Vec<Oid> {
        let writer = self.writer();
        let blobs = (0..count)
            .map(|i| writer.put(ObjectKind::Blob, &text(i)).unwrap())
            .collect();
        writer.finish().unwrap();
        blobs
    }

    fn packs(&self) -> Vec<PathBuf> {
        let dir = std::fs::read_dir(self.path().join("objects/pack")).unwrap();
        dir.map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|e| e == "pack"))
            .collect()
    }

    /// A commit of a tree with these entries.
    fn commit_of(&self, entries: &[super::TreeEntry]) -> Oid {
        let writer = self.writer();
        let tree = writer.put(ObjectKind::Tree, &encode_tree(entries)).unwrap();
        let oid = writer
            .commit(tree, "a label\n\n{\"n\":1}\n", Time(1_700_000_000_123_456_789))
            .unwrap();
        writer.finish().unwrap();
        oid
    }
}

fn writable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    if path.exists() {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
}

/// Different texts that compress.
fn text(i: u32) -> Vec<u8> {
    format!("line {i}\n")
        .repeat(usize::try_from(i % 97).unwrap() + 1)
        .into_bytes()
}

/// Runs git in `dir` without anything of the environment; its output. `None`, said so, when there is no git.
fn git(dir: &Path, args: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let mut command = Command::new("git");
    command.arg("-C").arg(dir).args(args).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            println!("skipped: git can't be run ({error})");
            return None;
        }
    };
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input).unwrap());
        child.wait_with_output().unwrap()
    });
    let mut stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    // A store has no branch, which fsck notices.
    stderr = stderr
        .lines()
        .filter(|line| !line.starts_with("notice: "))
        .collect();
    assert!(output.status.success(), "git {args:?}: {stderr}");
    assert_eq!(stderr, "", "git {args:?}");
    Some(output.stdout)
}

/// `git fsck` has nothing to say but about what no ref leads to.
fn assert_clean(store: &Store) {
    git(
        store.path(),
        &["fsck", "--connectivity-only", "--no-dangling", "--no-progress"],
        b"",
    );
    let said = git(
        store.path(),
        &["fsck", "--full", "--strict", "--no-dangling", "--no-progress"],
        b"",
    );
    assert_eq!(String::from_utf8(said.unwrap_or_default()).unwrap(), "");
}

fn names_below(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            names_below(&path, found);
        }
        found.push(path);
    }
}
