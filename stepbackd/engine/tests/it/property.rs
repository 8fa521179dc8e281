//! Random trees and edits; capture, rewind and redo must equal plain copies kept beside.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use proptest::prelude::*;
use stepback_engine::engine::Operation;

use crate::support::{Picture, Sandbox, at};

/// Names that have hurt programs like this one.
const NAMES: [&[u8]; 14] = [
    b"a",
    b"b",
    b"dir",
    b"x y",
    b"-n",
    b" lead",
    b"new\nline",
    b"\"q\"",
    b"*",
    b":(top)x",
    b"na\xc3\xafve",
    b"bad\xff",
    b"a.b",
    b"a-b",
];

#[derive(Debug, Clone)]
pub enum Edit {
    Write { path: Vec<usize>, bytes: Vec<u8> },
    Link { path: Vec<usize>, target: Vec<u8> },
    Dir { path: Vec<usize> },
    Remove { path: Vec<usize> },
    Move { from: Vec<usize>, to: Vec<usize> },
    Mode { path: Vec<usize>, bits: u32 },
}

#[derive(Debug, Clone)]
enum Act {
    Edit(Edit),
    Capture,
    /// To the checkpoint with this index, modulo how many there are.
    Rewind(usize),
    RewindBack,
    Redo,
    Reopen(bool),
}

pub fn path() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(0..NAMES.len(), 1..4)
}

pub fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        6 => (path(), proptest::collection::vec(any::<u8>(), 0..40)).prop_map(|(path, bytes)| Edit::Write { path, bytes }),
        2 => (path(), "[a-z./]{1,12}").prop_map(|(path, target)| Edit::Link { path, target: target.into_bytes() }),
        2 => path().prop_map(|path| Edit::Dir { path }),
        3 => path().prop_map(|path| Edit::Remove { path }),
        2 => (path(), path()).prop_map(|(from, to)| Edit::Move { from, to }),
        2 => (path(), prop_oneof![Just(0o600u32), Just(0o755), Just(0o664), Just(0o444), Just(0o750), Just(0o1755)])
            .prop_map(|(path, bits)| Edit::Mode { path, bits }),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => edit().prop_map(Act::Edit),
        3 => Just(Act::Capture),
        2 => any::<prop::sample::Index>().prop_map(|i| Act::Rewind(i.index(1000))),
        1 => Just(Act::RewindBack),
        2 => Just(Act::Redo),
        1 => any::<bool>().prop_map(Act::Reopen),
    ]
}

pub fn bytes_of(path: &[usize]) -> Vec<u8> {
    path.iter().map(|i| NAMES[*i]).collect::<Vec<_>>().join(&b'/')
}

/// Does the edit if the tree lets it; what can't be done isn't done.
pub fn apply(root: &Path, edit: &Edit) {
    let clear = |path: &Path| {
        if path.symlink_metadata().is_ok_and(|m| m.is_dir()) {
            fs::remove_dir_all(path).is_ok()
        } else {
            let _ = fs::remove_file(path);
            true
        }
    };
    let ready = |path: &Path| {
        let parent = path.parent().expect("below the root");
        // Never through a link: an edit outside the root is no edit of it.
        let mut at = root.to_owned();
        for part in parent.strip_prefix(root).expect("below the root") {
            at.push(part);
            match at.symlink_metadata() {
                Ok(m) if m.is_dir() => {}
                Ok(_) => return false,
                Err(_) => fs::create_dir(&at).unwrap(),
            }
        }
        true
    };
    match edit {
        Edit::Write { path, bytes } => {
            let path = at(root, &bytes_of(path));
            if ready(&path) {
                if path.symlink_metadata().is_ok_and(|m| !m.is_file()) {
                    clear(&path);
                }
                fs::write(&path, bytes).unwrap();
            }
        }
        Edit::Link { path, target } => {
            let path = at(root, &bytes_of(path));
            if ready(&path) {
                clear(&path);
                symlink(at(Path::new(""), target), &path).unwrap();
            }
        }
        Edit::Dir { path } => {
            let path = at(root, &bytes_of(path));
            if ready(&path) && path.symlink_metadata().is_err() {
                fs::create_dir(&path).unwrap();
            }
        }
        Edit::Remove { path } => {
            let path = at(root, &bytes_of(path));
            if ready(&path) {
                clear(&path);
            }
        }
        Edit::Move { from, to } => {
            let (from, to) = (at(root, &bytes_of(from)), at(root, &bytes_of(to)));
            if from.symlink_metadata().is_ok()
                && ready(&from)
                && !to.starts_with(&from)
                && !from.starts_with(&to)
                && ready(&to)
            {
                clear(&to);
                fs::rename(from, to).unwrap();
            }
        }
        Edit::Mode { path, bits } => {
            let path = at(root, &bytes_of(path));
            if path.symlink_metadata().is_ok_and(|m| !m.is_symlink()) && ready(&path) {
                fs::set_permissions(path, Permissions::from_mode(*bits)).unwrap();
            }
        }
    }
}

fn run(acts: &[Act]) -> Result<(), TestCaseError> {
    let mut sandbox = Sandbox::with(|_| {});
    let root = sandbox.root();
    // What each checkpoint must be, and what each redo must bring back.
    let mut states: Vec<(u64, Picture)> = vec![(1, sandbox.picture())];
    let mut redo: Vec<(Picture, Picture)> = Vec::new();
    for act in acts {
        match act {
            Act::Edit(edit) => apply(&root, edit),
            Act::Capture => {
                let captured = sandbox.capture();
                if captured.created {
                    states.push((captured.id, sandbox.picture()));
                } else {
                    let same = states.iter().rev().find(|(n, _)| *n == captured.id);
                    prop_assert_eq!(
                        same.map(|(_, p)| p),
                        Some(&sandbox.picture()),
                        "checkpoint {} again",
                        captured.id
                    );
                }
            }
            Act::Rewind(index) => {
                let (n, wanted) = states[index % states.len()].clone();
                let before = sandbox.picture();
                let report = sandbox.rewind(n);
                prop_assert_eq!(&report.kept, &[]);
                prop_assert_eq!(&sandbox.picture(), &wanted, "after rewind {}", n);
                if let Some(saved) = report.saved {
                    states.push((saved, before.clone()));
                }
                if before != wanted {
                    redo.push((before, wanted));
                }
            }
            Act::RewindBack => {
                let before = sandbox.picture();
                let report = sandbox.execute(&Operation::Rewind(None)).unwrap();
                let wanted = states
                    .iter()
                    .find(|(n, _)| *n == report.target)
                    .map(|(_, p)| p.clone());
                prop_assert_eq!(
                    Some(&sandbox.picture()),
                    wanted.as_ref(),
                    "after rewind to {}",
                    report.target
                );
                if let Some(saved) = report.saved {
                    states.push((saved, before.clone()));
                }
                if Some(&before) != wanted.as_ref() {
                    redo.push((before, sandbox.picture()));
                }
            }
            Act::Redo => {
                let before = sandbox.picture();
                let result = sandbox.execute(&Operation::Redo);
                let Some((wanted, left)) = redo.pop() else {
                    prop_assert!(result.is_err(), "nothing to redo, but it did");
                    continue;
                };
                let report = result.unwrap();
                if before == left {
                    prop_assert_eq!(&sandbox.picture(), &wanted, "after redo");
                }
                if let Some(saved) = report.saved {
                    states.push((saved, before));
                }
                let position = sandbox.engine().position().unwrap();
                if !states.iter().any(|(n, _)| *n == position) {
                    states.push((position, sandbox.picture()));
                }
            }
            Act::Reopen(with_cache) => sandbox.reopen(*with_cache),
        }
        prop_assert_eq!(sandbox.engine().redo_stack().len(), redo.len().min(50));
    }
    for (n, wanted) in &states {
        sandbox.rewind(*n);
        prop_assert_eq!(&sandbox.picture(), wanted, "at the end, rewind {}", n);
    }
    let findings = sandbox.engine().verify().unwrap();
    prop_assert!(findings.is_empty(), "{} findings", findings.len());
    Ok(())
}

/// How many cases: `PROPTEST_CASES` raises it for a long run.
pub fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(40);
    ProptestConfig {
        cases,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn rewinds_and_redos_equal_plain_copies(acts in proptest::collection::vec(act(), 1..40)) {
        run(&acts)?;
    }
}
