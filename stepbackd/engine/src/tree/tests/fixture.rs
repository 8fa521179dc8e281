//! A root, a store and a tree; and two ways to say what a directory holds, one from the disk, one from the store.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::Result;
use crate::node::{CommonModes, Kind, Node, Perm, Snapshot};
use crate::oid::{ObjectKind, Oid};
use crate::path::TreePath;
use crate::progress::Progress;
use crate::root::DirHandle;
use crate::rules::{GitEnvironment, Rules, Stale};
use crate::store::{MODE_TREE, ObjectWriter, Store, TreeEntry, write_tree};
use crate::time::Time;
use crate::tree::{DirWatch, Inode, Limits, ScanContext, ScanOutcome, Tree, stored};

/// Knows directories by path and inode, as a real watch does.
#[derive(Default)]
pub(super) struct FakeWatch(pub Mutex<HashMap<TreePath, u64>>);

impl DirWatch for FakeWatch {
    fn enter(&self, dir: &TreePath, inode: Inode) -> bool {
        self.0.lock().unwrap().insert(dir.clone(), inode.ino) == Some(inode.ino)
    }
    fn leave(&self, dir: &TreePath) {
        self.0.lock().unwrap().remove(dir);
    }
}

pub(super) struct Fixture {
    _dir: tempfile::TempDir,
    root: PathBuf,
    pub home: PathBuf,
    pub store: Arc<Store>,
    pub rules: Option<Rules>,
    pub include: Vec<String>,
    pub forgotten: Vec<TreePath>,
    pub without_git: bool,
    pub tree: Tree,
    pub watch: FakeWatch,
    pub progress: Progress,
    pub limits: Limits,
    pub common: CommonModes,
    pub max_file_size: u64,
    /// How far a look's clock is ahead, so that all that is old enough by [`Fixture::tick`] is trusted.
    pub ahead_ns: i64,
}

impl Fixture {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let (root, home) = (base.join("root"), base.join("home"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&home).unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        Self {
            store: Arc::new(Store::create(&base.join("store.git")).unwrap()),
            root,
            home,
            rules: None,
            include: Vec::new(),
            forgotten: Vec::new(),
            without_git: false,
            tree: Tree::new(),
            watch: FakeWatch::default(),
            progress: Progress::default(),
            limits: Limits::default(),
            common: CommonModes::DEFAULT,
            max_file_size: 100 << 20,
            ahead_ns: 0,
            _dir: dir,
        }
    }

    /// The same with the root at `below` in what was the root.
    pub fn go_below(&mut self, below: &str) {
        self.root = self.root.join(below);
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    pub fn write(&self, relative: &str, text: &str) {
        let path = self.path(relative);
        let parent = path.parent().unwrap();
        if !parent.exists() {
            fs::create_dir_all(parent).unwrap();
        }
        fs::write(&path, text).unwrap();
    }

    pub fn chmod(&self, relative: &str, mode: u32) {
        fs::set_permissions(self.path(relative), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Waits until the stat of a file is old enough to be trusted.
    pub fn age(&self, relative: &str) {
        let path = self.path(relative);
        let deadline = SystemTime::now() + std::time::Duration::from_secs(5);
        loop {
            let stat = fs::metadata(&path).unwrap();
            let ctime = stat.ctime() * 1_000_000_000 + stat.ctime_nsec();
            if ctime < now().0 - 150_000_000 {
                return;
            }
            assert!(SystemTime::now() < deadline);
            std::thread::yield_now();
        }
    }

    /// Waits until what changes from now on has another time than what changed before.
    pub fn tick(&self) {
        let (file, begun) = (self.home.join("tick"), now().0);
        let deadline = SystemTime::now() + std::time::Duration::from_secs(5);
        loop {
            fs::write(&file, "").unwrap();
            let stat = fs::metadata(&file).unwrap();
            if stat.ctime() * 1_000_000_000 + stat.ctime_nsec() > begun {
                return;
            }
            assert!(SystemTime::now() < deadline);
            std::thread::yield_now();
        }
    }

    pub fn git(&self, arguments: &[&str]) -> Vec<u8> {
        self.git_in("", arguments)
    }

    pub fn git_in(&self, relative: &str, arguments: &[&str]) -> Vec<u8> {
        let out = std::process::Command::new("git")
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", &self.home)
            .args([
                "-c",
                "user.name=u",
                "-c",
                "user.email=u@localhost",
                "-c",
                "protocol.file.allow=always",
                "-C",
            ])
            .arg(self.path(relative))
            .args(arguments)
            .output()
            .unwrap();
        assert!(
            out.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        out.stdout
    }

    pub fn new_rules(&self) -> Result<Rules> {
        let path = std::env::var_os("PATH");
        let program = std::env::split_paths(path.as_ref().unwrap())
            .map(|dir| dir.join("git"))
            .find(|git| git.exists());
        let git = GitEnvironment {
            program: program.filter(|_| !self.without_git),
            home: Some(self.home.clone()),
            config_home: None,
            path,
            scratch: None,
            children: Default::default(),
        };
        Rules::of_disk(
            &self.root,
            &git,
            &self.include,
            self.max_file_size,
            &self.forgotten,
        )
    }

    fn look(&mut self, dirty: Option<&BTreeSet<TreePath>>, writer: &ObjectWriter<'_>) -> Result<ScanOutcome> {
        let mut rules = match self.rules.take() {
            Some(rules) => rules,
            None => self.new_rules()?,
        };
        let stale = rules.refresh();
        self.rules = Some(rules);
        let stale = stale?;
        let is_same = stale == Stale::Nothing;
        let (dirty, all) = match (stale, dirty) {
            (Stale::Nothing, Some(dirty)) => (dirty.clone(), false),
            (Stale::Paths(paths), Some(dirty)) => (dirty.union(&paths).cloned().collect(), false),
            _ => (BTreeSet::new(), true),
        };
        let root = DirHandle::open_root(&self.root).unwrap();
        let cx = ScanContext {
            root: &root,
            rules: self.rules.as_ref().unwrap(),
            writer,
            max_file_size: self.max_file_size,
            now: Time(now().0 + self.ahead_ns),
            watch: &self.watch,
            progress: &self.progress,
            limits: &self.limits,
        };
        if all && is_same {
            self.tree.scan_again(&cx)
        } else if all {
            self.tree.scan(&cx)
        } else {
            self.tree.update(&dirty, &cx)
        }
    }

    fn with_writer<T>(&mut self, work: impl FnOnce(&mut Self, &ObjectWriter<'_>) -> T) -> T {
        let store = Arc::clone(&self.store);
        let writer = store.writer();
        let done = work(self, &writer);
        writer.finish().unwrap();
        self.tree.saved();
        done
    }

    pub fn scan(&mut self) -> ScanOutcome {
        self.try_scan().unwrap()
    }

    pub fn try_scan(&mut self) -> Result<ScanOutcome> {
        self.with_writer(|at, writer| at.look(None, writer))
    }

    pub fn update(&mut self, dirty: &[&str]) -> ScanOutcome {
        let dirty = dirty
            .iter()
            .map(|path| TreePath::new(path.as_bytes()).unwrap())
            .collect();
        self.update_paths(&dirty).unwrap()
    }

    pub fn update_paths(&mut self, dirty: &BTreeSet<TreePath>) -> Result<ScanOutcome> {
        self.with_writer(|at, writer| at.look(Some(dirty), writer))
    }

    pub fn persist(&mut self) -> Snapshot {
        let common = self.common;
        self.with_writer(|at, writer| at.tree.persist(writer, &common))
            .unwrap()
    }

    pub fn capture_all(&mut self) -> Snapshot {
        self.scan();
        self.persist()
    }

    /// What a first scan of another tree would record.
    pub fn fresh_snapshot(&mut self) -> Snapshot {
        let tree = std::mem::take(&mut self.tree);
        let watch = std::mem::take(&mut self.watch);
        let rules = self.rules.take();
        let snapshot = self.capture_all();
        self.tree = tree;
        self.watch = watch;
        self.rules = rules;
        snapshot
    }

    pub fn captured(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut stack = vec![(TreePath::root(), self.tree.root.as_deref().unwrap())];
        while let Some((path, dir)) = stack.pop() {
            stack.extend(dir.dirs().map(|(name, dir)| (path.join(name), dir)));
            let files = dir
                .entries
                .iter()
                .filter(|entry| entry.slot.shows() && !matches!(entry.slot, crate::tree::dir::Slot::Dir(_)));
            found.extend(files.map(|entry| path.join(&entry.name).to_string()));
        }
        found
    }

    pub fn recorded(&self, snapshot: Snapshot) -> BTreeMap<Vec<u8>, String> {
        let mut found = BTreeMap::new();
        let mut stack = vec![(TreePath::root(), snapshot)];
        while let Some((path, snapshot)) = stack.pop() {
            let dir = stored::read_dir(&*self.store, snapshot, &self.common).unwrap();
            if path.is_root() {
                found.insert(Vec::new(), say(&dir.own, b""));
            }
            for entry in dir.entries {
                let path = path.join(&entry.name);
                let bytes = match entry.node.kind {
                    Kind::File(oid) | Kind::Link(oid) => self.store.read(oid, ObjectKind::Blob).unwrap(),
                    _ => Vec::new(),
                };
                found.insert(path.as_bytes().to_vec(), say(&entry.node, &bytes));
                stack.extend(entry.below.map(|below| (path, below)));
            }
        }
        found
    }

    pub fn disk(&self) -> BTreeMap<Vec<u8>, String> {
        let mut found = BTreeMap::new();
        let mut stack = vec![self.root.clone()];
        while let Some(path) = stack.pop() {
            let stat = fs::symlink_metadata(&path).unwrap();
            let kind = stat.file_type();
            let (kind, bytes) = if kind.is_dir() {
                for entry in fs::read_dir(&path).unwrap() {
                    let entry = entry.unwrap();
                    if entry.file_name() != ".git" {
                        stack.push(entry.path());
                    }
                }
                (Kind::Dir, Vec::new())
            } else if kind.is_symlink() {
                (
                    Kind::Link(Oid::EMPTY_TREE),
                    fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec(),
                )
            } else if kind.is_fifo() {
                (Kind::Fifo, Vec::new())
            } else if kind.is_file() {
                (Kind::File(Oid::EMPTY_TREE), fs::read(&path).unwrap())
            } else {
                continue;
            };
            let mut attributes = BTreeMap::new();
            for name in xattr::list(&path)
                .into_iter()
                .flatten()
                .filter(|name| name.as_bytes().starts_with(b"user."))
            {
                attributes.insert(
                    name.as_bytes().to_vec(),
                    xattr::get(&path, &name).unwrap().unwrap(),
                );
            }
            let attributes = (!attributes.is_empty()).then(|| Arc::new(attributes));
            let node = Node {
                kind,
                perm: Perm::of_mode(stat.mode()),
                attributes,
            };
            let relative = path
                .strip_prefix(&self.root)
                .unwrap()
                .as_os_str()
                .as_bytes()
                .to_vec();
            found.insert(relative, say(&node, &bytes));
        }
        found
    }

    pub fn store_tree_of(&self, table: &[(&str, &str)], dir: &str) -> Oid {
        let writer = self.store.writer();
        let entries: Vec<_> = table
            .iter()
            .map(|(name, text)| TreeEntry {
                mode: 0o100_644,
                name: name.as_bytes().to_vec(),
                oid: writer.put(ObjectKind::Blob, text.as_bytes()).unwrap(),
            })
            .collect();
        let inner = write_tree(&writer, &entries).unwrap();
        let wrap = |name: &str, oid| {
            write_tree(
                &writer,
                &[TreeEntry {
                    mode: MODE_TREE,
                    name: name.as_bytes().to_vec(),
                    oid,
                }],
            )
            .unwrap()
        };
        let oid = wrap("d", wrap(dir, inner));
        writer.finish().unwrap();
        oid
    }

    pub fn scan_into(&mut self, writer: &ObjectWriter<'_>) {
        self.try_scan_into(writer).unwrap();
    }

    pub fn try_scan_into(&mut self, writer: &ObjectWriter<'_>) -> Result<ScanOutcome> {
        self.look(None, writer)
    }

    /// Every object of a snapshot is there, by git's judgement.
    pub fn fsck(&self, snapshot: Snapshot) {
        for tree in [snapshot.tree, snapshot.side] {
            let out = std::process::Command::new("git")
                .arg("-C")
                .arg(self.store.path())
                .args(["rev-list", "--objects", &tree.to_string()])
                .output()
                .unwrap();
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        }
    }
}

fn say(node: &Node, bytes: &[u8]) -> String {
    let kind = match node.kind {
        Kind::File(_) => "file",
        Kind::Link(_) => "link",
        Kind::Dir => "dir",
        Kind::Fifo => "fifo",
    };
    format!(
        "{kind} {} {:?} {}",
        node.perm,
        node.attributes,
        String::from_utf8_lossy(bytes)
    )
}

pub(super) fn now() -> Time {
    Time(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap())
}
