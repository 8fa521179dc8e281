//! The root is replaced while something is under way: nothing is done to the directory that took its place, and nothing of it
//! comes into the history.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use stepback_engine::Error;
use stepback_engine::checkpoint::Trigger;
use stepback_engine::engine::{Context, Operation, Scope, Select, Why};
use stepback_engine::path::TreePath;
use stepback_engine::progress::Progress;
use stepback_engine::tree::{DirWatch, Inode};

use crate::support::{Sandbox, picture};

const FILES: u32 = 300;

/// Moves the root aside, and what is ready to take its place there.
struct Swap {
    root: PathBuf,
    done: AtomicBool,
}

impl Swap {
    fn of(sandbox: &Sandbox) -> Self {
        Self {
            root: sandbox.root(),
            done: AtomicBool::new(false),
        }
    }

    fn aside(&self) -> PathBuf {
        self.root.with_file_name("real")
    }

    fn other(&self) -> PathBuf {
        self.root.with_file_name("other")
    }

    fn go(&self) {
        if !self.done.swap(true, Ordering::Relaxed) {
            fs::rename(&self.root, self.aside()).unwrap();
            fs::rename(self.other(), &self.root).unwrap();
        }
    }

    fn back(&self) {
        if self.done.swap(false, Ordering::Relaxed) {
            fs::rename(&self.root, self.other()).unwrap();
            fs::rename(self.aside(), &self.root).unwrap();
        }
    }
}

/// When the root is about to be listed.
impl DirWatch for Swap {
    fn enter(&self, dir: &TreePath, _: Inode) -> bool {
        if dir.is_root() {
            self.go();
        }
        false
    }
    fn leave(&self, _: &TreePath) {}
}

fn fill(dir: &Path, text: &str) {
    for n in 0..FILES {
        let dir = dir.join(format!("d{}", n % 7));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("f{n}")), text).unwrap();
    }
}

/// Two checkpoints, and another directory with the bytes of the second and a file of its own, ready to take the root's place.
fn two_states() -> (Sandbox, Swap) {
    let mut sandbox = Sandbox::with(|root| fill(root, "one\n"));
    fill(&sandbox.root(), "two\n");
    sandbox.capture();
    let swap = Swap::of(&sandbox);
    fs::create_dir(swap.other()).unwrap();
    fill(&swap.other(), "two\n");
    fs::write(swap.other().join("foreign"), "x").unwrap();
    (sandbox, swap)
}

#[test]
fn while_it_is_looked_at() {
    let (mut sandbox, swap) = two_states();
    let two = sandbox.picture();
    let other = picture(&swap.other());
    let progress = Progress::default();
    let cx = Context {
        now: Sandbox::now(),
        watch: &swap,
        progress: &progress,
    };
    let rewind = Operation::Rewind(Some(Select::Number(1)));
    let engine = sandbox.engine();
    for round in 0..3 {
        let error = match round {
            0 => engine.execute(&rewind, None, &cx).unwrap_err(),
            1 => engine
                .capture(Scope::All, &Why::plain(Trigger::Auto), &cx)
                .unwrap_err(),
            _ => engine.preview(&rewind, &cx).unwrap_err(),
        };
        assert!(matches!(error, Error::RootReplaced(_)), "{round}: {error:?}");
        assert!(swap.done.load(Ordering::Relaxed), "{round}");
        swap.back();
    }
    assert_eq!(engine.unfinished().unwrap(), None);
    assert_eq!(engine.checkpoints().len(), 2);
    assert_eq!((sandbox.picture(), picture(&swap.other())), (two, other));
    assert_eq!(sandbox.rewind(1).written, u64::from(FILES));
}

/// It went for good while it was looked at: that isn't "all deleted".
#[test]
fn while_it_is_removed() {
    struct Remove(PathBuf);
    impl DirWatch for Remove {
        fn enter(&self, dir: &TreePath, _: Inode) -> bool {
            if dir.is_root() {
                fs::remove_dir_all(&self.0).unwrap();
            }
            false
        }
        fn leave(&self, _: &TreePath) {}
    }
    let mut sandbox = Sandbox::with(|root| fill(root, "one\n"));
    let watch = Remove(sandbox.root());
    let progress = Progress::default();
    let cx = Context {
        now: Sandbox::now(),
        watch: &watch,
        progress: &progress,
    };
    let captured = sandbox
        .engine()
        .capture(Scope::All, &Why::plain(Trigger::Auto), &cx);
    assert!(matches!(captured, Err(Error::RootMissing(_))), "{captured:?}");
    assert_eq!(sandbox.engine().checkpoints().len(), 1);
}

#[test]
fn while_it_is_changed() {
    let mut interrupted = 0;
    for round in 0..5u32 {
        let (mut sandbox, swap) = two_states();
        let other = picture(&swap.other());
        let engine = sandbox.engine();
        let journal = engine
            .store_path()
            .join("stepback")
            .join(engine.id())
            .join("journal");
        let over = AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    if journal.exists() {
                        // At another moment of the operation each time.
                        (0..round * 400).for_each(|_| std::thread::yield_now());
                        swap.go();
                        return;
                    }
                }
            });
            let result = sandbox.execute(&Operation::Rewind(Some(Select::Number(1))));
            over.store(true, Ordering::Relaxed);
            result
        });
        if let Err(error) = &result {
            assert!(matches!(error, Error::RootReplaced(_)), "{error:?}");
            interrupted += 1;
        }
        let replaced = if swap.done.load(Ordering::Relaxed) {
            swap.root.clone()
        } else {
            swap.other()
        };
        assert_eq!(picture(&replaced), other, "the other directory is as it was");
        assert_eq!(
            sandbox.engine().checkpoints().len(),
            2,
            "nothing of it is in the history"
        );
        swap.back();
        assert_eq!(sandbox.engine().unfinished().unwrap().is_some(), result.is_err());
        sandbox.on(|engine, cx| engine.recover(false, cx)).unwrap();
        assert_eq!(sandbox.read("d0/f0").as_deref(), Some("one\n"));
        assert!(
            sandbox
                .picture()
                .values()
                .all(|(kind, _, bytes)| *kind != 'f' || bytes == b"one\n")
        );
        let again = sandbox
            .preview(&Operation::Rewind(Some(Select::Number(1))))
            .unwrap();
        assert!(again.noop, "it stands on the target");
    }
    println!("{interrupted} of 5 were interrupted");
}

/// An operation of which all is done but its record, since the root went while `d` was looked at; it is back.
fn unrecorded(sandbox: &mut Sandbox) -> PathBuf {
    struct At(Swap);
    impl DirWatch for At {
        fn enter(&self, dir: &TreePath, _: Inode) -> bool {
            if dir.as_bytes() == b"d" {
                self.0.go();
            }
            false
        }
        fn leave(&self, _: &TreePath) {}
    }
    let watch = At(Swap::of(sandbox));
    fs::create_dir(watch.0.other()).unwrap();
    let progress = Progress::default();
    let cx = Context {
        now: Sandbox::now(),
        watch: &watch,
        progress: &progress,
    };
    let engine = sandbox.engine();
    let error = engine
        .execute(&Operation::Rewind(Some(Select::Number(1))), None, &cx)
        .unwrap_err();
    assert!(matches!(error, Error::RootReplaced(_)), "{error:?}");
    watch.0.back();
    engine
        .store_path()
        .join("stepback")
        .join(engine.id())
        .join("journal")
}

/// Somebody wrote to a path twice while it was replaced: the later version stands, and the other one is in the history. Nothing
/// of ours stays in the root.
#[test]
fn an_edit_that_another_overtook_is_in_a_checkpoint() {
    let mut sandbox = Sandbox::with(|root| {
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/x"), "x\n").unwrap();
        fs::write(root.join("a"), "one\n").unwrap();
    });
    fs::remove_dir_all(sandbox.root().join("d")).unwrap();
    sandbox.write("a", "two\n");
    sandbox.capture();
    let journal = unrecorded(&mut sandbox);
    let journal: serde_json::Value = serde_json::from_slice(&fs::read(journal).unwrap()).unwrap();
    let name = journal["stagings"][0]["name"].as_str().unwrap();
    let steps = journal["plan"]["steps"].as_array().unwrap();
    let slot = steps.iter().position(|step| step["path"] == "a").unwrap();
    sandbox.write(&format!("{name}/{slot}"), "overtaken\n");
    sandbox.write("a", "newest\n");

    let recovered = sandbox.on(|engine, cx| engine.recover(false, cx)).unwrap();
    let [kept] = &recovered.kept[..] else {
        panic!("{recovered:?}");
    };
    assert_eq!(kept.path.as_bytes(), b"a");
    assert!(
        kept.reason.ends_with("; an edit before that is in checkpoint 3"),
        "{kept:?}"
    );
    assert!(!sandbox.root().join(name).exists());
    assert_eq!(sandbox.read("a").as_deref(), Some("newest\n"));
    let bases: Vec<_> = sandbox.engine().checkpoints().iter().map(|c| c.base).collect();
    assert_eq!(bases, [None, Some(1), Some(1), Some(1)]);
    sandbox.rewind(3);
    assert_eq!(sandbox.read("a").as_deref(), Some("overtaken\n"));
    assert_eq!(sandbox.read("d/x").as_deref(), Some("x\n"));
    sandbox.reopen(false);
    let report = sandbox.rewind(4);
    assert_eq!(report.kept, []);
    assert_eq!(sandbox.read("a").as_deref(), Some("newest\n"));
}
