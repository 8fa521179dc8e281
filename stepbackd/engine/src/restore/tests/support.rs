//! A root, its store, and the states that tests take of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::Result;
use crate::diff::Change;
use crate::node::{CommonModes, Kind, Node, NotCaptured};
use crate::oid::ObjectKind;
use crate::path::{DOT_GIT, TreePath};
use crate::progress::Progress;
use crate::restore::{
    Applied, ApplyContext, JournalHeader, LookUp, OperationKind, Plan, PlanInput, Recovered, apply, compare,
    finish, plan, recover, unfinished,
};
use crate::root::{DirHandle, FileType};
use crate::store::Store;
use crate::time::Time;

/// Everything captured of a root at one moment; the root itself is the empty path.
pub(super) type State = BTreeMap<TreePath, Node>;

/// What a test sets and closures read, on any thread.
#[derive(Default)]
pub(super) struct Shared<T>(RwLock<T>);

impl<T> Shared<T> {
    pub fn borrow(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap()
    }

    pub fn borrow_mut(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap()
    }
}

pub(super) struct Bench {
    /// What goes with the bench; `None`: another process has it.
    pub _dir: Option<tempfile::TempDir>,
    pub root: PathBuf,
    pub store: Store,
    pub journal_dir: PathBuf,
    /// Paths ignored now, with all below.
    pub ignored: Shared<BTreeSet<TreePath>>,
    /// Paths ignored in the target.
    pub ignored_then: Shared<BTreeSet<TreePath>>,
    pub target_unknown: Shared<Vec<NotCaptured>>,
    pub present_unknown: Shared<Vec<NotCaptured>>,
    /// Paths that a redo asks for though neither side has them.
    pub asked: Shared<Vec<TreePath>>,
}

pub(super) fn path(text: &str) -> TreePath {
    TreePath::new(text.as_bytes()).unwrap()
}

impl Bench {
    pub fn new() -> Self {
        Self::below(tempfile::tempdir().unwrap())
    }

    pub fn below(dir: tempfile::TempDir) -> Self {
        let base = dir.path().canonicalize().unwrap();
        fs::create_dir(base.join("root")).unwrap();
        Self::open(Some(dir), &base, true)
    }

    fn open(dir: Option<tempfile::TempDir>, base: &Path, new: bool) -> Self {
        let store_dir = base.join("store.git");
        let store = if new {
            Store::create(&store_dir)
        } else {
            Store::open(&store_dir)
        }
        .unwrap();
        let journal_dir = store.root_dir("root-12345678").unwrap();
        Self {
            _dir: dir,
            root: base.join("root"),
            store,
            journal_dir,
            ignored: Shared::default(),
            ignored_then: Shared::default(),
            target_unknown: Shared::default(),
            present_unknown: Shared::default(),
            asked: Shared::default(),
        }
    }

    /// On what another process made: the directory stays its own.
    pub fn reopen(base: &Path) -> Self {
        Self::open(None, base, false)
    }

    pub fn at(&self, text: &str) -> PathBuf {
        self.root.join(text)
    }

    pub fn write(&self, text: &str, bytes: impl AsRef<[u8]>) {
        let file = self.at(text);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, bytes).unwrap();
    }

    pub fn read(&self, text: &str) -> String {
        String::from_utf8(fs::read(self.at(text)).unwrap()).unwrap()
    }

    pub fn chmod(&self, text: &str, mode: u32) {
        fs::set_permissions(self.at(text), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub fn mode(&self, text: &str) -> u32 {
        fs::symlink_metadata(self.at(text)).unwrap().permissions().mode() & 0o7777
    }

    pub fn ignore(&self, text: &str) {
        self.ignored.borrow_mut().insert(path(text));
    }

    /// The state on disk, its contents put into the store. Ignored and unknown paths and `.git` are left out.
    pub fn capture(&self) -> State {
        let writer = self.store.writer();
        let mut state = State::new();
        let Ok(root) = DirHandle::open_root(&self.root) else {
            return state;
        };
        let found = compare::identify(root.as_fd(), b".").unwrap().unwrap();
        state.insert(TreePath::root(), found.node.unwrap());
        self.capture_below(&root, &TreePath::root(), &writer, &mut state);
        writer.finish().unwrap();
        state
    }

    fn capture_below(
        &self,
        dir: &DirHandle,
        at: &TreePath,
        writer: &crate::store::ObjectWriter<'_>,
        state: &mut State,
    ) {
        for (name, _) in dir.open_dir(b".").unwrap().entries().unwrap() {
            if name == DOT_GIT {
                continue;
            }
            let path = at.join(&name);
            let unknown = self
                .present_unknown
                .borrow()
                .iter()
                .any(|unknown| unknown.path == path);
            if unknown || is_in(&self.ignored, &path) {
                continue;
            }
            let found = compare::identify(dir.as_fd(), &name).unwrap().unwrap();
            let Some(node) = found.node else { continue };
            match node.kind {
                Kind::File(_) => {
                    let mut bytes = Vec::new();
                    std::io::Read::read_to_end(&mut dir.open_file(&name).unwrap(), &mut bytes).unwrap();
                    writer.put(ObjectKind::Blob, &bytes).unwrap();
                }
                Kind::Link(_) => {
                    writer
                        .put(ObjectKind::Blob, &dir.read_link(&name).unwrap())
                        .unwrap();
                }
                _ => {}
            }
            state.insert(path.clone(), node);
            if found.stat.kind == FileType::Dir {
                self.capture_below(&dir.open_dir(&name).unwrap(), &path, writer, state);
            }
        }
    }

    /// Puts a path on the list of what isn't captured now.
    pub fn unknown_now(&self, text: &str, reason: crate::node::Reason) {
        let entry = self.noted(text, reason);
        self.present_unknown.borrow_mut().push(entry);
    }

    /// Puts a path on the list of what the target left out, with the size and time that it has now.
    pub fn unknown_then(&self, text: &str, reason: crate::node::Reason) {
        let entry = self.noted(text, reason);
        self.target_unknown.borrow_mut().push(entry);
    }

    fn noted(&self, text: &str, reason: crate::node::Reason) -> NotCaptured {
        let root = DirHandle::open_root(&self.root).unwrap();
        let (parent, name) = path(text)
            .split_last()
            .map(|(parent, name)| (parent, name.to_vec()))
            .unwrap();
        let stat = root.open_beneath(&parent).unwrap().stat(&name).unwrap();
        NotCaptured {
            path: path(text),
            reason,
            size: stat.size,
            mtime_ns: stat.mtime_ns,
        }
    }

    pub fn plan(&self, target: &State) -> Plan {
        self.plan_with(target, &[], OperationKind::Rewind, None).unwrap()
    }

    pub fn plan_with(
        &self,
        target: &State,
        within: &[TreePath],
        operation: OperationKind,
        left_by: Option<LookUp<'_>>,
    ) -> Result<Plan> {
        let present = self.capture();
        let mut changes = changes(&present, target);
        changes.retain(|change| within.is_empty() || within.iter().any(|at| change.path.starts_with(at)));
        for asked in self
            .asked
            .borrow()
            .iter()
            .filter(|path| !present.contains_key(path) && !target.contains_key(path))
        {
            changes.push(Change {
                path: asked.clone(),
                old: None,
                new: None,
                empty_dir: false,
            });
        }
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        let root = DirHandle::open_root(&self.root).ok();
        let writer = self.store.writer();
        let plan = plan(&PlanInput {
            root: root.as_ref(),
            root_path: &self.root,
            present: &|path| present.get(path).cloned(),
            changes: &changes,
            target: &|path| Ok(target.get(path).cloned()),
            common: &CommonModes::DEFAULT,
            target_unknown: &self.target_unknown.borrow(),
            present_unknown: &self.present_unknown.borrow(),
            forgotten: &[],
            within,
            ignored_now: &|path, _| Ok(is_in(&self.ignored, path)),
            ignored_then: &|path, _| Ok(is_in(&self.ignored_then, path)),
            git_own: &|_| None,
            mounted: &BTreeSet::new(),
            max_file_size: 1 << 20,
            writer: &writer,
            operation,
            left_by,
        })?;
        writer.finish()?;
        Ok(plan)
    }

    pub fn apply(&self, plan: &Plan) -> Result<Applied> {
        let applied = apply(&self.context(&Progress::default()), plan, header(plan.operation))?;
        finish(&self.journal_dir)?;
        Ok(applied)
    }

    pub fn rewind(&self, target: &State) -> Applied {
        let plan = self.plan(target);
        self.apply(&plan).unwrap()
    }

    pub fn recover(&self, undo: bool) -> Result<Option<Recovered>> {
        let recovered = recover(&self.context(&Progress::default()), undo)?;
        finish(&self.journal_dir)?;
        Ok(recovered)
    }

    pub fn context<'a>(&'a self, progress: &'a Progress) -> ApplyContext<'a> {
        ApplyContext {
            store: &self.store,
            root_path: &self.root,
            identity: None,
            journal_dir: &self.journal_dir,
            progress,
        }
    }

    pub fn is_unfinished(&self) -> bool {
        unfinished(&self.journal_dir).unwrap().is_some()
    }

    /// No journal and no temporary directory is left.
    pub fn assert_clean(&self) {
        assert!(!self.is_unfinished());
        assert_eq!(
            fs::read_dir(&self.journal_dir).unwrap().count(),
            0,
            "files beside the journal"
        );
        let left: Vec<_> = all_names(&self.root)
            .filter(|name| name.contains(".stepback-tmp-"))
            .collect();
        assert_eq!(left, Vec::<String>::new());
    }
}

fn is_in(list: &Shared<BTreeSet<TreePath>>, path: &TreePath) -> bool {
    list.borrow().iter().any(|ignored| path.starts_with(ignored))
}

fn all_names(dir: &Path) -> impl Iterator<Item = String> {
    let mut names = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries {
            let entry = entry.unwrap();
            names.push(entry.path().to_string_lossy().into_owned());
            if entry.file_type().unwrap().is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    names.into_iter()
}

pub(super) fn changes(old: &State, new: &State) -> Vec<Change> {
    let paths: BTreeSet<&TreePath> = old.keys().chain(new.keys()).collect();
    let pairs = paths.into_iter().map(|path| (path, old.get(path), new.get(path)));
    let differing = pairs.filter(|(_, old, new)| old != new);
    differing
        .map(|(path, old, new)| Change {
            path: path.clone(),
            old: old.cloned(),
            new: new.cloned(),
            empty_dir: false,
        })
        .collect()
}

pub(super) fn header(operation: OperationKind) -> JournalHeader {
    JournalHeader {
        operation,
        target: 7,
        started: Time::from_ms(1_700_000_000_000),
        saved: Some(8),
        redo: Some(1),
        data: serde_json::Value::Null,
    }
}

/// `(path, status)` as people are shown them.
pub(super) fn shown(plan: &Plan) -> Vec<(String, char)> {
    plan.changes()
        .into_iter()
        .map(|change| (change.path.to_string(), change.status))
        .collect()
}

pub(super) fn kept(kept: &[crate::restore::Kept]) -> Vec<(String, String)> {
    kept.iter()
        .map(|kept| (kept.path.to_string(), kept.reason.clone()))
        .collect()
}

/// Whether the test can mount file systems, give files to others, and read everything.
pub(super) fn is_root() -> bool {
    nix::unistd::Uid::effective().is_root()
}
