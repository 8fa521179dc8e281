//! What stands in the way: things on disk that the present tree doesn't have, and directories that must go.

use std::io;
use std::os::fd::AsFd;

use super::change::MOUNT;
use super::compare;
use super::plan::{Going, Planner, not_in_checkpoint, unknown_because};
use super::step::Step;
use super::table::{OnDisk, Target, Verdict, verdict};
use crate::error::{At, Result};
use crate::node::{Kind, Node, Perm, Reason};
use crate::path::{DOT_GIT, TreePath, is_temporary};
use crate::root::{DirHandle, FileType, Stat};

const GIT_INSIDE: &str = ".git inside";
const GIT_DIR_INSIDE: &str = "a git directory inside";
const TEMPORARY_INSIDE: &str = "a temporary directory of an earlier operation inside";
const APPEARED: &str = "made since it was saved";
const FILES_INSIDE: &str = "it holds what isn't in the checkpoint";

/// What becomes of something uncaptured.
pub(super) enum Ignored {
    /// It goes; its bytes are with the writer.
    Saved(Node),
    /// It stays, and nothing is said.
    Stays,
    /// It stays, and is named.
    Kept(String),
}

/// Judges something that isn't a directory and isn't in the present tree.
pub(super) fn judge(planner: &Planner<'_>, path: &TreePath, stat: &Stat, target: Target) -> Result<Ignored> {
    if let Some(unknown) = planner
        .unknown_in_target(path)
        .or_else(|| planner.unknown_now(path))
    {
        return Ok(Ignored::Kept(unknown_because(unknown)));
    }
    if planner.is_forgotten(path) {
        return Ok(Ignored::Kept(not_in_checkpoint(Reason::Forgotten)));
    }
    let too_large = stat.kind == FileType::File && stat.size > planner.input.max_file_size;
    let on_disk = match stat.kind {
        FileType::Special => return Ok(Ignored::Kept(not_in_checkpoint(Reason::Special))),
        FileType::Fifo => OnDisk::Fifo,
        _ if planner.is_ignored(path, false)? => {
            if verdict(OnDisk::Ignored, target) == Verdict::Untouched {
                // In a redo, what the operation left counts as captured, whatever the rules say.
                if planner
                    .input
                    .left_by
                    .is_none_or(|left_by| left_by(path).is_none())
                {
                    return Ok(Ignored::Stays);
                }
            }
            if too_large {
                return Ok(Ignored::Kept(not_in_checkpoint(Reason::TooLarge)));
            }
            OnDisk::Ignored
        }
        _ => OnDisk::Changed,
    };
    if on_disk == OnDisk::Changed && planner.input.left_by.is_none() {
        return Ok(Ignored::Kept(APPEARED.into()));
    }
    let node = match read_uncaptured(planner, path, stat)? {
        Some(node) => node,
        None => return Ok(Ignored::Kept(not_in_checkpoint(Reason::Unreadable))),
    };
    let on_disk = if planner.is_left_by(path, &node) {
        OnDisk::Captured
    } else {
        on_disk
    };
    Ok(match verdict(on_disk, target) {
        Verdict::Replace | Verdict::CaptureThenReplace | Verdict::Remove => Ignored::Saved(node),
        Verdict::Untouched => Ignored::Stays,
        _ => Ignored::Kept(APPEARED.into()),
    })
}

/// Reads what isn't captured, and gives its bytes to the writer. `None`: it can't be read, or keeps changing.
pub(super) fn read_uncaptured(planner: &Planner<'_>, path: &TreePath, stat: &Stat) -> Result<Option<Node>> {
    let Some(root) = planner.input.root else {
        return Ok(None);
    };
    let full = planner.input.root_path.join(path.as_path());
    let Some((parent, name)) = path.split_last() else {
        return Ok(None);
    };
    let parent = match root.open_beneath(&parent) {
        Ok(parent) => parent,
        Err(error) if is_unreadable(&error) => return Ok(None),
        Err(error) => return Err(error).at(full),
    };
    match read_node(planner, &parent, name, stat) {
        Err(crate::Error::Io { source, .. }) if is_unreadable(&source) => Ok(None),
        other => other,
    }
}

fn is_unreadable(error: &io::Error) -> bool {
    super::change::vanished(error) || error.kind() == io::ErrorKind::PermissionDenied
}

fn read_node(planner: &Planner<'_>, parent: &DirHandle, name: &[u8], stat: &Stat) -> Result<Option<Node>> {
    let full = planner.input.root_path;
    if stat.kind != FileType::File {
        let found = compare::identify(parent.as_fd(), name).at(full)?;
        let node = found.and_then(|found| found.node);
        if let Some(Node {
            kind: Kind::Link(_), ..
        }) = node
        {
            let target = parent.read_link(name).at(full)?;
            let oid = planner.input.writer.put(crate::oid::ObjectKind::Blob, &target)?;
            return Ok(Some(Node::plain(Kind::Link(oid), Perm::of_mode(0o777))));
        }
        return Ok(node);
    }
    let mut file = parent.open_file(name).at(full)?;
    let before = Stat::of(&file).at(full)?;
    if before.kind != FileType::File {
        return Ok(None);
    }
    let attributes = super::attributes::read(&file).at(full)?;
    let Some(oid) = planner.input.writer.put_stream(before.size, &mut file)? else {
        return Ok(None);
    };
    let after = Stat::of(&file).at(full)?;
    let same =
        (before.size, before.mtime_ns, before.ctime_ns) == (after.size, after.mtime_ns, after.ctime_ns);
    Ok(same.then(|| Node {
        kind: Kind::File(oid),
        perm: Perm::of_mode(before.mode),
        attributes,
    }))
}

/// Plans what happens to directories that must go, and to what isn't captured in them. `going` holds a directory before
/// those in it.
pub(super) fn clear(planner: &mut Planner<'_>, going: &[Going<'_>]) -> Result<()> {
    let paths: std::collections::HashSet<&TreePath> = going.iter().map(|going| going.path).collect();
    for top in going {
        let inner = top
            .path
            .split_last()
            .is_some_and(|(parent, _)| paths.contains(&parent));
        if inner {
            continue;
        }
        if let Some(to) = top.to
            && become_other(planner, top.path, top.from, to, false)?
        {
            continue;
        }
        let mut sweep = Sweep::new(false);
        sweep.captured_dir(planner, top.path, top.from, top.to.is_none())?;
        sweep.settle(planner);
    }
    Ok(())
}

/// The target has nothing at a path at which a directory stands that isn't captured.
pub(super) fn remove_uncaptured(planner: &mut Planner<'_>, path: &TreePath, stat: &Stat) -> Result<()> {
    let mut sweep = Sweep::new(false);
    sweep.uncaptured_dir(planner, path, stat)?;
    sweep.settle(planner);
    Ok(())
}

/// A directory on disk that isn't captured stands where the target has a file, link or FIFO.
pub(super) fn clear_uncaptured(
    planner: &mut Planner<'_>,
    path: &TreePath,
    stat: &Stat,
    to: &Node,
) -> Result<()> {
    if let Some(unknown) = planner
        .unknown_now(path)
        .or_else(|| planner.unknown_in_target(path))
    {
        planner.keep(&unknown.path, unknown_because(unknown));
        return Ok(());
    }
    if planner.is_forgotten(path) {
        planner.keep(path, not_in_checkpoint(Reason::Forgotten));
        return Ok(());
    }
    let Some(from) = read_uncaptured(planner, path, stat)? else {
        planner.keep(path, not_in_checkpoint(Reason::Unreadable));
        return Ok(());
    };
    become_other(planner, path, &from, to, true)?;
    Ok(())
}

/// Plans that a directory becomes something else, with all that is in it. `false`: it can't; it is kept.
fn become_other(
    planner: &mut Planner<'_>,
    path: &TreePath,
    from: &Node,
    to: &Node,
    extra: bool,
) -> Result<bool> {
    let mut sweep = Sweep::new(true);
    if sweep.below(planner, path)? {
        let reason = sweep.kept.into_iter().next().map_or_else(
            || FILES_INSIDE.to_owned(),
            |(at, reason)| {
                if at == *path {
                    reason
                } else {
                    format!("{FILES_INSIDE}: {at} ({reason})")
                }
            },
        );
        planner.keep(path, reason);
        return Ok(false);
    }
    sweep.settle(planner);
    planner.step(path, Some(from.clone()), Some(to.clone()), extra);
    Ok(true)
}

/// A walk through a directory that is to go.
struct Sweep {
    /// Something else is to take its place, so what is ignored in it is in the way.
    must_go: bool,
    /// All that matters is whether anything stays: stop at the first that does.
    probe: bool,
    steps: Vec<Step>,
    kept: Vec<(TreePath, String)>,
}

impl Sweep {
    fn new(must_go: bool) -> Self {
        Self {
            must_go,
            probe: false,
            steps: Vec::new(),
            kept: Vec::new(),
        }
    }

    fn settle(self, planner: &mut Planner<'_>) {
        for step in self.steps {
            planner.step(&step.path, step.from, step.to, step.extra);
        }
        for (path, reason) in self.kept {
            planner.keep(&path, reason);
        }
    }

    fn goes(&mut self, path: &TreePath, from: Node, extra: bool) {
        self.steps.push(Step {
            path: path.clone(),
            from: Some(from),
            to: None,
            extra,
            edited_since: false,
        });
    }

    /// Whether it stays. `goes_itself`: it is removed too when nothing in it stays.
    fn captured_dir(
        &mut self,
        planner: &Planner<'_>,
        path: &TreePath,
        from: &Node,
        goes_itself: bool,
    ) -> Result<bool> {
        let stays = self.below(planner, path)?;
        if !stays && goes_itself {
            self.goes(path, from.clone(), false);
        }
        Ok(stays)
    }

    /// Whether anything in a directory stays.
    fn below(&mut self, planner: &Planner<'_>, path: &TreePath) -> Result<bool> {
        let Some(root) = planner.input.root else {
            return Ok(false);
        };
        let full = planner.input.root_path.join(path.as_path());
        let mut dir = match root.open_beneath(path) {
            Ok(dir) => dir,
            Err(error) if super::change::vanished(&error) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.kept
                    .push((path.clone(), not_in_checkpoint(Reason::Unreadable)));
                return Ok(true);
            }
            Err(error) => return Err(error).at(full),
        };
        let mut entries = Vec::new();
        for (name, _) in dir.entries().at(&full)? {
            match dir.stat(&name) {
                Ok(stat) => entries.push((name, stat)),
                Err(error) if super::change::vanished(&error) => {}
                Err(error) => return Err(error).at(full),
            }
        }
        // Not held open while going down: a deep tree has more levels than a process may have open files.
        drop(dir);
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        let mut stays = is_mount_point(planner, path)?;
        if stays {
            self.kept.push((path.clone(), MOUNT.into()));
        }
        for (name, stat) in entries {
            if stays && self.probe {
                break;
            }
            if name == DOT_GIT {
                self.kept.push((path.clone(), GIT_INSIDE.into()));
                stays = true;
            } else if is_temporary(&name) {
                self.kept.push((path.clone(), TEMPORARY_INSIDE.into()));
                stays = true;
            } else if (planner.input.git_own)(&path.join(&name)).is_some() {
                self.kept.push((path.clone(), GIT_DIR_INSIDE.into()));
                stays = true;
            } else {
                stays |= self.entry(planner, &path.join(&name), &stat)?;
            }
        }
        Ok(stays)
    }

    /// Whether it stays.
    fn entry(&mut self, planner: &Planner<'_>, path: &TreePath, stat: &Stat) -> Result<bool> {
        if let Some(unknown) = planner
            .unknown_in_target(path)
            .or_else(|| planner.unknown_now(path))
        {
            if !planner.not_covered.contains_key(&unknown.path) {
                self.kept.push((unknown.path.clone(), unknown_because(unknown)));
            }
            return Ok(true);
        }
        let captured = (planner.input.present)(path);
        if stat.kind == FileType::Dir {
            return match captured {
                Some(from) if from.kind == Kind::Dir => {
                    let ignored = !self.must_go
                        && !planner.is_left_by(path, &from)
                        && (planner.input.ignored_then)(path, true)?;
                    if ignored {
                        Ok(true)
                    } else {
                        self.captured_dir(planner, path, &from, true)
                    }
                }
                _ => self.uncaptured_dir(planner, path, stat),
            };
        }
        if planner.input.mounted.contains(path) {
            self.kept.push((path.clone(), MOUNT.into()));
            return Ok(true);
        }
        if let Some(from) = captured {
            // What it is now shows when it is swapped out.
            if self.must_go {
                self.goes(path, from, false);
                return Ok(false);
            }
            return Ok(!planner.steps.contains_key(path));
        }
        if !self.must_go && planner.steps.get(path).is_some_and(|step| step.to.is_none()) {
            return Ok(false);
        }
        let target = if self.must_go {
            Target::Something
        } else {
            Target::Nothing
        };
        Ok(match judge(planner, path, stat, target)? {
            Ignored::Saved(node) => {
                self.goes(path, node, true);
                false
            }
            Ignored::Stays => true,
            Ignored::Kept(reason) => {
                self.kept.push((path.clone(), reason));
                true
            }
        })
    }

    /// A directory that isn't captured goes only as a whole: when it must, or when nothing that stays is in it.
    fn uncaptured_dir(&mut self, planner: &Planner<'_>, path: &TreePath, stat: &Stat) -> Result<bool> {
        if planner.is_forgotten(path) {
            self.kept
                .push((path.clone(), not_in_checkpoint(Reason::Forgotten)));
            return Ok(true);
        }
        if !planner.is_ignored(path, true)? && planner.input.left_by.is_none() {
            self.kept.push((path.clone(), APPEARED.into()));
            return Ok(true);
        }
        let Some(from) = read_uncaptured(planner, path, stat)? else {
            self.kept
                .push((path.clone(), not_in_checkpoint(Reason::Unreadable)));
            return Ok(true);
        };
        let mut inner = Self {
            probe: self.probe || !self.must_go,
            ..Self::new(self.must_go)
        };
        let stays = inner.below(planner, path)?;
        if self.must_go {
            self.kept.append(&mut inner.kept);
        }
        if !stays {
            self.steps.append(&mut inner.steps);
            self.goes(path, from, true);
        }
        Ok(stays)
    }
}

/// Whether something is mounted here. A second mount of the same file system shows only in the system's list, if it has one, or
/// else when the directory is removed.
fn is_mount_point(planner: &Planner<'_>, path: &TreePath) -> Result<bool> {
    if planner.input.mounted.contains(path) {
        return Ok(true);
    }
    let Some((parent, _)) = path.split_last() else {
        return Ok(false);
    };
    let (here, above) = (planner.stat(path)?, planner.stat(&parent)?);
    Ok(here.zip(above).is_some_and(|(here, above)| here.dev != above.dev))
}
