//! Purging paths: out of every checkpoint, out of the redo stack, and out of what is captured from now on.
//!
//! The order makes it safe to be killed at any moment: a ref says first that a purge of these paths is under way; then the
//! root's record names them, so that nothing captures them any more; then every record is written anew beside the old one;
//! then the refs change, each from a whole record to a whole one; what no ref needs any longer goes after that; and only when
//! the bytes are gone the first ref goes, too. While it is there, [`Engine::finish_forget`] goes on with all that it names.

mod anew;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Context, Engine, Presence, Scope, Why};
use crate::checkpoint::Trigger;
use crate::error::{At, Error, Result};
use crate::fault;
use crate::node::{Kind, Node, Perm, Snapshot};
use crate::oid::{ObjectKind, Oid};
use crate::path::TreePath;
use crate::record::{self, Head};
use crate::root::{DirHandle, FileType};
use crate::store::{Expected, Holder, ObjectWriter, Store, TreeEntry, write_tree};
use crate::tree::stored;
use crate::tree::without::Removed;
use anew::Found;

/// Result of a `forget`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Forgotten {
    /// What is left out from now on (or, undone, captured again).
    pub paths: Vec<TreePath>,
    /// How many checkpoints held one of the paths.
    pub checkpoints: u64,
    /// What the store's disk use fell by, in bytes.
    pub freed_bytes: u64,
    /// Where the same bytes still are, under another path or in another root of the store.
    pub still_held: Vec<Holder>,
    /// For people: what could not be purged.
    pub notes: Vec<String>,
    /// Why not all space could be given back, if it wasn't; the bytes of the paths are gone all the same.
    pub unreclaimed: Option<String>,
}

/// The record of a purge that is under way. Its commit's tree keeps the side tables of both states.
#[derive(Serialize, Deserialize)]
struct UnderWay {
    #[serde(flatten)]
    head: Head,
    paths: Vec<TreePath>,
}

fn under_way_ref(root: &str) -> String {
    format!("refs/stepback/{root}/forgetting")
}

impl Engine {
    /// Takes `paths` and all below them out of every checkpoint and redo entry, leaves them out from now on, and removes
    /// their bytes from the store unless something else holds the same. The files themselves aren't touched. `preview`:
    /// only says what would be done. After a crash in the middle every checkpoint is whole, and another call goes on.
    ///
    /// # Errors
    /// [`Error::Unfinished`]; [`Error::Refused`] for the root itself; [`Error::NoSuchPath`] for a path that is neither on
    /// disk nor in any checkpoint; [`Error::Unpurged`] when no record has them any more, but their bytes may still be in the
    /// store; those of the disk and the store.
    pub fn forget(&mut self, paths: &[TreePath], preview: bool, cx: &Context<'_>) -> Result<Forgotten> {
        self.require_finished()?;
        let paths = outermost(paths);
        if paths.iter().any(TreePath::is_root) {
            return Err(Error::Refused {
                message: "that is the whole root".into(),
                hint: "`stepback detach --forget` deletes all its checkpoints".into(),
            });
        }
        let holding = self.holding(&paths, cx)?;
        if preview {
            return Ok(Forgotten {
                paths,
                checkpoints: holding,
                ..Forgotten::default()
            });
        }
        self.purge_wholly(paths, holding, cx)
    }

    /// Goes on with a purge that was interrupted, if one was.
    ///
    /// # Errors
    /// As [`Self::forget`].
    pub fn finish_forget(&mut self, cx: &Context<'_>) -> Result<Option<Forgotten>> {
        self.require_finished()?;
        match self.interrupted_forget()? {
            Some(paths) => self.purge_wholly(paths, 0, cx).map(Some),
            None => Ok(None),
        }
    }

    /// `holding`: so many checkpoints are known to hold them.
    fn purge_wholly(&mut self, paths: Vec<TreePath>, holding: u64, cx: &Context<'_>) -> Result<Forgotten> {
        let before = self.store.disk_bytes()?;
        // Of what another call began it isn't known any more which bytes have to go.
        let earlier = match self.interrupted_forget() {
            // Whatever it was is among them.
            Err(Error::Damaged { .. }) => self.record.forgotten.clone(),
            other => other?.unwrap_or_default(),
        };
        let unfinished = !earlier.is_empty();
        let mut all = paths.clone();
        all.extend(earlier);
        let all = outermost(&all);
        let found = self.with_reserve(|engine| engine.purge(&all, cx))?;
        let store = Arc::clone(&self.store);
        let mut notes: Vec<String> = found
            .unreadable
            .iter()
            .map(|what| format!("{what} can't be read and was left as it is: it may still hold the bytes"))
            .collect();
        let unreclaimed = self.reclaim().err();
        // Another call may have taken them out of the records, and come no further.
        let unknown = unfinished || found.blobs.is_empty();
        let mut left = HashSet::new();
        let blobs = found.blobs.into_iter().chain(self.contents_now(&paths));
        for oid in blobs {
            if store.has(oid)? {
                left.insert(oid);
            }
        }
        let unreclaimed = match unreclaimed {
            Some(why) if unknown || !left.is_empty() => {
                return Err(Error::Unpurged { why: Box::new(why) });
            }
            why => why.map(|why| why.with_remedy()),
        };
        notes.extend(
            unreclaimed
                .iter()
                .map(|why| format!("not all of the space is free yet: {why}")),
        );
        let still_held = if left.is_empty() {
            Vec::new()
        } else {
            store.holders(&left)?
        };
        if !left.is_empty() && still_held.is_empty() && notes.is_empty() {
            notes.push("the bytes are still in the store; do the same again".into());
        }
        // What can't be read may be mended some day; what others hold is theirs.
        store.delete_ref(&under_way_ref(self.id()))?;
        fault::point("forget.done").at(&self.path)?;
        // The next start needn't read everything again; without it, it does.
        let _ = self.save_cache();
        Ok(Forgotten {
            paths,
            checkpoints: found.held.max(holding),
            freed_bytes: before.saturating_sub(store.disk_bytes()?),
            still_held,
            notes,
            unreclaimed,
        })
    }

    /// Captures forgotten paths again, from now on. What was purged stays gone.
    ///
    /// # Errors
    /// [`Error::NoSuchPath`] for a path that wasn't forgotten; [`Error::Refused`] for one below a forgotten directory;
    /// those of the disk and the store.
    pub fn unforget(&mut self, paths: &[TreePath], cx: &Context<'_>) -> Result<Forgotten> {
        // What is captured again must not be what the rest of a purge takes away.
        self.finish_forget(cx)?;
        let paths = outermost(paths);
        for path in &paths {
            if self.record.forgotten.iter().any(|known| known.starts_with(path)) {
                continue;
            }
            return Err(
                match self.record.forgotten.iter().find(|known| path.starts_with(known)) {
                    Some(above) => Error::Refused {
                        message: format!("{path} is left out because {above} was forgotten"),
                        hint: format!("`stepback forget --undo -p {above}` captures all of it again"),
                    },
                    None => Error::NoSuchPath {
                        path: path.clone(),
                        place: "the list of forgotten paths".into(),
                    },
                },
            );
        }
        let known = self.record.forgotten.clone();
        self.record
            .forgotten
            .retain(|known| !paths.iter().any(|path| known.starts_with(path)));
        if let Err(e) = self.write_record(cx.now) {
            self.record.forgotten = known;
            return Err(e);
        }
        self.rules = None;
        if self.presence() == Presence::Here {
            self.capture(Scope::All, &Why::plain(Trigger::Auto), cx)?;
        }
        Ok(Forgotten {
            paths,
            ..Forgotten::default()
        })
    }

    /// Paths that are left out because they were forgotten.
    #[must_use]
    pub fn forgotten(&self) -> &[TreePath] {
        &self.record.forgotten
    }

    /// The paths of a purge that isn't at its end: a crash interrupted it, or the bytes couldn't be removed yet.
    ///
    /// # Errors
    /// When its record can't be read.
    pub fn interrupted_forget(&self) -> Result<Option<Vec<TreePath>>> {
        let Some(commit) = self.store.read_ref(&under_way_ref(self.id()))? else {
            return Ok(None);
        };
        let message = self.store.read_commit(commit)?.message;
        Ok(Some(
            record::parse::<UnderWay>(&self.store, commit, &message)?.paths,
        ))
    }

    /// How many checkpoints hold one of the paths.
    fn holding(&self, paths: &[TreePath], cx: &Context<'_>) -> Result<u64> {
        let mut known: HashMap<Snapshot, Vec<bool>> = HashMap::new();
        let mut seen = vec![false; paths.len()];
        let mut holding = 0;
        for checkpoint in &self.checkpoints {
            cx.progress.check()?;
            let has = match known.get(&checkpoint.snapshot) {
                Some(has) => has.clone(),
                None => {
                    let has = self.has_each(checkpoint.snapshot, paths)?;
                    known.insert(checkpoint.snapshot, has.clone());
                    has
                }
            };
            holding += u64::from(has.contains(&true));
            seen.iter_mut().zip(&has).for_each(|(seen, has)| *seen |= has);
        }
        for entry in &self.redo {
            let has = self.has_each(entry.before_snapshot, paths)?;
            seen.iter_mut().zip(&has).for_each(|(seen, has)| *seen |= has);
        }
        for (path, seen) in paths.iter().zip(seen) {
            let left_out = || {
                self.record
                    .forgotten
                    .iter()
                    .any(|known| known.starts_with(path) || path.starts_with(known))
            };
            if !seen && !left_out() && self.on_disk(path)?.is_none() {
                return Err(Error::NoSuchPath {
                    path: path.clone(),
                    place: "the directory nor in any checkpoint".into(),
                });
            }
        }
        Ok(holding)
    }

    /// A tree that can't be read has none of them: that is said when it is to be written anew.
    fn has_each(&self, snapshot: Snapshot, paths: &[TreePath]) -> Result<Vec<bool>> {
        paths
            .iter()
            .map(
                |path| match stored::lookup(&self.store, snapshot, &self.record.modes, path) {
                    Ok(found) => Ok(found.is_some()),
                    Err(Error::Damaged { .. }) => Ok(false),
                    Err(e) => Err(e),
                },
            )
            .collect()
    }

    /// Size and modification time of what stands at a path.
    fn on_disk(&self, path: &TreePath) -> Result<Option<(u64, i64)>> {
        let Some((parent, name)) = path.split_last() else {
            return Ok(None);
        };
        let stat = DirHandle::open_root(&self.path)
            .and_then(|root| root.open_beneath(&parent))
            .and_then(|parent| parent.stat(name));
        match stat {
            Ok(stat) => Ok(Some((stat.size, stat.mtime_ns))),
            Err(e) => match e.raw_os_error().map(nix::errno::Errno::from_raw) {
                Some(nix::errno::Errno::ENOENT | nix::errno::Errno::ENOTDIR | nix::errno::Errno::ELOOP) => {
                    Ok(None)
                }
                _ => Err(e).at(self.path.join(path.as_path())),
            },
        }
    }

    /// All but the removal of what no ref needs any longer. May be called again after an error.
    fn purge(&mut self, paths: &[TreePath], cx: &Context<'_>) -> Result<Found> {
        // What the tree in memory says of them, before it is told to leave them out.
        let now = self.as_now(paths)?;
        let store = Arc::clone(&self.store);
        // Until the bytes are gone.
        let tables = self.tables_under_way(&store)?;
        self.mark_under_way(&store, paths, &tables, cx)?;
        fault::point("forget.marked").at(&self.path)?;
        let known = self.record.forgotten.clone();
        self.record.forgotten.extend(paths.iter().cloned());
        self.record.forgotten = outermost(&self.record.forgotten);
        if let Err(e) = self.write_record(cx.now) {
            self.record.forgotten = known;
            return Err(e);
        }
        self.rules = None;
        self.remove_cache()?;
        fault::point("forget.recorded").at(&self.path)?;
        if self.presence() == Presence::Here {
            self.refresh_rules()?;
        }
        let found = {
            let _lock = store.lock()?;
            let found = self.write_without(&store, paths, &now, cx)?;
            store.set_refs(&found.refs)?;
            found
        };
        fault::point("forget.rewritten").at(&self.path)?;
        self.take_up(&found);
        if self.presence() == Presence::Here {
            // Only what was edited besides makes a checkpoint.
            self.capture(Scope::All, &Why::plain(Trigger::Auto), cx)?;
        } else {
            self.forget_tree();
        }
        // It keeps the tree in memory, which has none of the paths any more.
        self.write_record(cx.now)?;
        // The side tables of before aren't needed any more; they may name what is forgotten.
        self.mark_under_way(&store, paths, &BTreeSet::new(), cx)?;
        fault::point("forget.reclaim").at(&self.path)?;
        Ok(found)
    }

    /// Says in the store that a purge of these paths isn't at its end.
    fn mark_under_way(
        &self,
        store: &Store,
        paths: &[TreePath],
        tables: &BTreeSet<Oid>,
        cx: &Context<'_>,
    ) -> Result<()> {
        let _lock = store.lock()?;
        let writer = store.writer();
        let commit = self.write_under_way(&writer, paths, tables, cx)?;
        writer.finish()?;
        store.set_ref(&under_way_ref(self.id()), commit, Expected::Any)
    }

    /// Side tables that an interrupted purge keeps.
    fn tables_under_way(&self, store: &Store) -> Result<BTreeSet<Oid>> {
        let read = || {
            let Some(commit) = store.read_ref(&under_way_ref(self.id()))? else {
                return Ok(BTreeSet::new());
            };
            let entries = store.read_tree(store.read_commit(commit)?.tree)?;
            Ok(entries.into_iter().map(|entry| entry.oid).collect())
        };
        match read() {
            Err(Error::Damaged { .. }) => Ok(BTreeSet::new()),
            other => other,
        }
    }

    /// What stands at the paths now, with size and modification time: a checkpoint that held just this is known to
    /// differ in nothing as long as these stay.
    fn as_now(&self, paths: &[TreePath]) -> Result<Vec<(Removed, (u64, i64))>> {
        let position = || self.record.position.and_then(|n| self.checkpoint(n).ok());
        let held = self.memory.or_else(|| position().map(|c| c.snapshot));
        let mut now = Vec::new();
        for path in paths {
            // It may be ignored by now, so the tree in memory needn't know it.
            let found = match (self.contents_on_disk(path), held) {
                (Some((node, stamp)), _) => Some((node, None, stamp)),
                (None, Some(held)) => match stored::lookup(&self.store, held, &self.record.modes, path) {
                    Ok(Some((node, below))) if node.kind == Kind::Dir => {
                        self.on_disk(path)?.map(|stamp| (node, below, stamp))
                    }
                    Ok(_) | Err(Error::Damaged { .. }) => None,
                    Err(e) => return Err(e),
                },
                (None, None) => None,
            };
            now.extend(found.map(|(node, below, stamp)| {
                let path = path.clone();
                (Removed { path, node, below }, stamp)
            }));
        }
        Ok(now)
    }

    /// The file or link at a path; `None` when there is none, or when it can't be read or is changing: then a checkpoint
    /// that held the same isn't known to.
    fn contents_on_disk(&self, path: &TreePath) -> Option<(Node, (u64, i64))> {
        let (parent, name) = path.split_last()?;
        let parent = DirHandle::open_root(&self.path)
            .ok()?
            .open_beneath(&parent)
            .ok()?;
        let before = parent.stat(name).ok()?;
        let kind = match before.kind {
            FileType::File => {
                let mut file = parent.open_file(name).ok()?;
                Kind::File(Oid::of_blob(before.size, &mut file).ok()??)
            }
            FileType::Link => Kind::Link(Oid::of(ObjectKind::Blob, &parent.read_link(name).ok()?)),
            FileType::Dir | FileType::Fifo | FileType::Special => return None,
        };
        let after = parent.stat(name).ok()?;
        let same = (before.ino, before.size, before.ctime_ns) == (after.ino, after.size, after.ctime_ns);
        same.then(|| {
            (
                Node::plain(kind, Perm::of_mode(before.mode)),
                (after.size, after.mtime_ns),
            )
        })
    }

    /// The contents of those of the paths that are files: another call may have purged them, and something else hold them.
    fn contents_now(&self, paths: &[TreePath]) -> Vec<Oid> {
        let empty = Oid::of(ObjectKind::Blob, b"");
        let oid = |path| match self.contents_on_disk(path)?.0.kind {
            Kind::File(oid) => (oid != empty).then_some(oid),
            _ => None,
        };
        paths.iter().filter_map(oid).collect()
    }

    fn write_under_way(
        &self,
        writer: &ObjectWriter<'_>,
        paths: &[TreePath],
        tables: &BTreeSet<Oid>,
        cx: &Context<'_>,
    ) -> Result<Oid> {
        let entries: Vec<TreeEntry> = tables
            .iter()
            .map(|oid| TreeEntry::dir(&oid.to_string(), *oid))
            .collect();
        let record = UnderWay {
            head: Head::of(self.id()),
            paths: paths.to_vec(),
        };
        let tree = write_tree(writer, &entries)?;
        writer.commit(tree, &record::message("forgetting", &record), cx.now)
    }

    /// The records in memory become those that the refs name now.
    fn take_up(&mut self, found: &Found) {
        for anew in &found.checkpoints {
            if let Ok(at) = self.checkpoints.binary_search_by_key(&anew.n, |c| c.n) {
                self.checkpoints[at] = anew.clone();
            }
        }
        for anew in &found.redo {
            if let Some(entry) = self.redo.iter_mut().find(|entry| entry.k == anew.k) {
                *entry = anew.clone();
            }
        }
        for path in &self.record.forgotten {
            self.noise.forget(path);
        }
        // Whatever is looked at next, everything is.
        self.memory = None;
    }
}

/// The paths that are in no directory of the others, sorted.
fn outermost(paths: &[TreePath]) -> Vec<TreePath> {
    let all: BTreeSet<&TreePath> = paths.iter().collect();
    all.iter()
        .filter(|path| !all.iter().any(|above| above != *path && path.starts_with(above)))
        .map(|path| (*path).clone())
        .collect()
}
