//! The same with ignore files that come, change and go: whatever a rule left out, then or now, no byte is lost, nothing
//! that a rule protects is touched, and a redo brings back the whole disk. What is ignored is judged by a model of its own.

use std::collections::BTreeSet;
use std::fs;

use proptest::prelude::*;
use stepback_engine::engine::{Operation, Report, Select};
use stepback_engine::oid::{ObjectKind, Oid};
use stepback_engine::path::TreePath;

use crate::property::{Edit, apply, bytes_of, config, edit, path};
use crate::support::{Picture, Sandbox, at};

/// Lines of ignore files: names, anchored paths, directories only, and taking back.
const LINES: [&str; 10] = [
    "a", "/b", "dir/", "a.b", "a-b/", "/dir/a", "!a", "!dir/", "x y", "/a/b/",
];
/// Where ignore files stand. In one directory the first has the last word.
const FILES: [&[u8]; 5] = [
    b".gitignore",
    b".stepbackignore",
    b"dir/.gitignore",
    b"a/.gitignore",
    b"dir/a/.gitignore",
];

#[derive(Debug, Clone)]
enum Act {
    Edit(Edit),
    /// The file with this index gets these lines; none: it goes.
    Rules(usize, Vec<usize>),
    Capture,
    Rewind(usize),
    Restore(usize, Vec<usize>),
    RewindAndRedo(usize),
    Redo,
    Reopen(bool),
}

fn act() -> impl Strategy<Value = Act> {
    let index = || any::<prop::sample::Index>().prop_map(|i| i.index(1000));
    prop_oneof![
        8 => edit().prop_map(Act::Edit),
        4 => (0..FILES.len(), proptest::collection::vec(0..LINES.len(), 0..4)).prop_map(|(f, l)| Act::Rules(f, l)),
        3 => Just(Act::Capture),
        2 => index().prop_map(Act::Rewind),
        1 => (index(), path()).prop_map(|(i, path)| Act::Restore(i, path)),
        2 => index().prop_map(Act::RewindAndRedo),
        1 => Just(Act::Redo),
        1 => any::<bool>().prop_map(Act::Reopen),
    ]
}

fn parent(path: &[u8]) -> Option<&[u8]> {
    path.iter().rposition(|b| *b == b'/').map(|end| &path[..end])
}

/// The path itself and all above it, from the top down.
fn from_the_top(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path
        .iter()
        .enumerate()
        .filter(|(_, b)| **b == b'/')
        .map(|(i, _)| i);
    ends.chain([path.len()]).map(|end| &path[..end])
}

/// What one line says of a path below the directory of its file.
fn line_says(line: &str, below: &[u8], is_dir: bool) -> Option<bool> {
    let (ignore, line) = line.strip_prefix('!').map_or((true, line), |rest| (false, rest));
    let (only_dir, line) = line.strip_suffix('/').map_or((false, line), |rest| (true, rest));
    let fits = if line.contains('/') {
        below == line.strip_prefix('/').unwrap_or(line).as_bytes()
    } else {
        below.rsplit(|b| *b == b'/').next() == Some(line.as_bytes())
    };
    (fits && (is_dir || !only_dir)).then_some(ignore)
}

/// Whether the ignore files in `rules` leave `path` out, which stands as in `disk`.
fn ignored(rules: &Picture, disk: &Picture, path: &[u8]) -> bool {
    from_the_top(path).any(|at| {
        let is_dir = disk.get(at).is_some_and(|entry| entry.0 == 'd');
        let mut dir = parent(at);
        loop {
            for name in [&b".stepbackignore"[..], b".gitignore"] {
                let file = dir.map_or_else(|| name.to_vec(), |dir| [dir, b"/", name].concat());
                let Some(('f', _, text)) = rules.get(&file) else {
                    continue;
                };
                let below = dir.map_or(at, |dir| &at[dir.len() + 1..]);
                let text = String::from_utf8(text.clone()).unwrap();
                if let Some(said) = text.lines().rev().find_map(|line| line_says(line, below, is_dir)) {
                    return said;
                }
            }
            match dir {
                Some(inner) => dir = parent(inner),
                None => return false,
            }
        }
    })
}

/// What a checkpoint of this disk holds.
fn captured(disk: &Picture) -> Picture {
    let kept = disk.iter().filter(|(path, _)| !ignored(disk, disk, path));
    kept.map(|(path, entry)| (path.clone(), entry.clone())).collect()
}

fn is_below(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir)
        .is_some_and(|rest| rest.first() == Some(&b'/'))
}

/// What must be at `path` once `before` was rewound to `target`; `None`: either is right.
fn expected<'a>(
    path: &[u8],
    before: &'a Picture,
    target: &'a Picture,
) -> Option<Option<&'a (char, u32, Vec<u8>)>> {
    if let Some(entry) = target.get(path) {
        return Some(Some(entry));
    }
    let in_the_way = from_the_top(path).any(|at| target.get(at).is_some_and(|entry| entry.0 != 'd'));
    let Some(entry) = before.get(path) else {
        return Some(None);
    };
    if in_the_way {
        return Some(None);
    }
    let protected = |path: &[u8]| ignored(before, before, path) || ignored(target, before, path);
    if entry.0 != 'd' {
        return Some(protected(path).then_some(entry));
    }
    let stays = before
        .iter()
        .any(|(inner, entry)| is_below(inner, path) && entry.0 != 'd' && protected(inner));
    // An empty directory that a rule names may stay or go.
    let may = before
        .iter()
        .any(|(inner, entry)| (inner == path || is_below(inner, path)) && entry.0 == 'd' && protected(inner));
    if stays {
        Some(Some(entry))
    } else if may {
        None
    } else {
        Some(None)
    }
}

struct Run {
    sandbox: Sandbox,
    /// For each checkpoint the whole disk when it was made.
    states: Vec<(u64, Picture)>,
    /// Contents that an operation took away or replaced.
    displaced: BTreeSet<Oid>,
}

impl Run {
    fn operate(&mut self, operation: &Operation) -> Result<(Picture, Option<Report>), TestCaseError> {
        let before = self.sandbox.picture();
        let result = self.sandbox.execute(operation);
        let now = self.sandbox.picture();
        let Ok(report) = result else {
            prop_assert_eq!(&now, &before, "{:?} failed and changed something", operation);
            return Ok((before, None));
        };
        prop_assert_eq!(&report.kept, &[]);
        for (path, entry) in &before {
            if matches!(entry.0, 'f' | 'l') && now.get(path).map(|e| (e.0, &e.2)) != Some((entry.0, &entry.2))
            {
                self.displaced.insert(Oid::of(ObjectKind::Blob, &entry.2));
            }
        }
        if let Some(saved) = report.saved {
            self.states.push((saved, before.clone()));
        }
        let position = self.sandbox.engine().position().unwrap();
        if !self.states.iter().any(|(n, _)| *n == position) {
            self.states.push((position, now));
        }
        Ok((before, Some(report)))
    }

    fn rewind(&mut self, index: usize) -> Result<Picture, TestCaseError> {
        let (n, then) = self.states[index % self.states.len()].clone();
        let target = captured(&then);
        let (before, report) = self.operate(&Operation::Rewind(Some(Select::Number(n))))?;
        prop_assert!(report.is_some(), "rewind {}", n);
        let now = self.sandbox.picture();
        for path in before.keys().chain(target.keys()).chain(now.keys()) {
            if let Some(wanted) = expected(path, &before, &target) {
                let name = String::from_utf8_lossy(path);
                prop_assert_eq!(now.get(path), wanted, "{} after rewind {}", name, n);
            }
        }
        Ok(before)
    }

    fn restore(&mut self, index: usize, path: &[u8]) -> Result<(), TestCaseError> {
        let (n, then) = self.states[index % self.states.len()].clone();
        let target = captured(&then);
        let operation = Operation::Restore(Select::Number(n), vec![TreePath::new(path).unwrap()]);
        let (before, report) = self.operate(&operation)?;
        if report.is_none() {
            prop_assert!(
                !target.contains_key(path),
                "a path of checkpoint {} was refused",
                n
            );
            return Ok(());
        }
        let now = self.sandbox.picture();
        for at in before.keys().chain(target.keys()).chain(now.keys()) {
            let name = String::from_utf8_lossy(at);
            if at == path || is_below(at, path) {
                if let Some(wanted) = expected(at, &before, &target) {
                    prop_assert_eq!(now.get(at), wanted, "{} after restore from {}", name, n);
                }
            } else if !is_below(path, at)
                && !from_the_top(at).any(|up| is_below(path, up) && target.contains_key(up))
            {
                prop_assert_eq!(now.get(at), before.get(at), "{} was not asked for", name);
            }
        }
        Ok(())
    }

    /// Everything that was ever taken away is in the store, by git's own account of what its refs hold.
    fn nothing_is_lost(&mut self) -> Result<(), TestCaseError> {
        let store = self.sandbox.engine().store_path().to_owned();
        let listed = std::process::Command::new("git")
            .arg("--git-dir")
            .arg(&store)
            .args(["rev-list", "--objects", "--all"])
            .output()
            .unwrap();
        prop_assert!(listed.status.success());
        let listed = String::from_utf8_lossy(&listed.stdout);
        let held: BTreeSet<&str> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
        for oid in &self.displaced {
            prop_assert!(held.contains(oid.to_string().as_str()), "{} is lost", oid);
        }
        Ok(())
    }
}

fn run(acts: &[Act]) -> Result<(), TestCaseError> {
    let sandbox = Sandbox::with(|_| {});
    let first = sandbox.picture();
    let mut run = Run {
        sandbox,
        states: vec![(1, first)],
        displaced: BTreeSet::new(),
    };
    let root = run.sandbox.root();
    for act in acts {
        match act {
            Act::Edit(edit) => apply(&root, edit),
            Act::Rules(file, lines) => {
                let file = at(&root, FILES[*file]);
                let text: String = lines.iter().map(|line| format!("{}\n", LINES[*line])).collect();
                let there = file
                    .parent()
                    .unwrap()
                    .symlink_metadata()
                    .is_ok_and(|dir| dir.is_dir());
                if there && text.is_empty() {
                    let _ = fs::remove_file(file);
                } else if there {
                    fs::write(file, text).unwrap();
                }
            }
            Act::Capture => {
                let done = run.sandbox.capture();
                let now = run.sandbox.picture();
                if done.created {
                    run.states.push((done.id, now));
                } else {
                    let same = run.states.iter().rev().find(|(n, _)| *n == done.id);
                    prop_assert_eq!(same.map(|(_, then)| captured(then)), Some(captured(&now)));
                }
            }
            Act::Rewind(index) => drop(run.rewind(*index)?),
            Act::Restore(index, path) => run.restore(*index, &bytes_of(path))?,
            Act::RewindAndRedo(index) => {
                let depth = run.sandbox.engine().redo_stack().len();
                let before = run.rewind(*index)?;
                if run.sandbox.engine().redo_stack().len() > depth {
                    run.operate(&Operation::Redo)?;
                    prop_assert_eq!(run.sandbox.picture(), before, "after redo");
                }
            }
            Act::Redo => drop(run.operate(&Operation::Redo)?),
            Act::Reopen(with_cache) => run.sandbox.reopen(*with_cache),
        }
    }
    for index in 0..run.states.len() {
        run.rewind(index)?;
    }
    run.nothing_is_lost()?;
    let findings = run.sandbox.engine().verify().unwrap();
    prop_assert!(findings.is_empty(), "{} findings", findings.len());
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn whatever_rules_come_and_go_no_byte_is_lost(acts in proptest::collection::vec(act(), 1..40)) {
        run(&acts)?;
    }
}
