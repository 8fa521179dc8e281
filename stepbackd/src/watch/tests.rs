//! Real events in temporary directories.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use stepback_engine::engine::Scope;

use super::*;

struct Setup {
    _dir: tempfile::TempDir,
    root: PathBuf,
    watcher: Arc<Watcher>,
    mailbox: Arc<Mailbox>,
    watch: RootWatch,
}

fn setup() -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().canonicalize().unwrap();
    let (root, cookies) = (base.join("root"), base.join("cookies"));
    std::fs::create_dir_all(&root).unwrap();
    std::fs::create_dir_all(&cookies).unwrap();
    let watcher = Watcher::start(Arc::new(Cookies::new(cookies)));
    let mailbox = Arc::new(Mailbox::default());
    let watch = watcher.add_root(&root, Arc::clone(&mailbox));
    Setup {
        _dir: dir,
        root,
        watcher,
        mailbox,
        watch,
    }
}

impl Setup {
    fn enter(&self, dir: &str) -> bool {
        let path = TreePath::new(dir.as_bytes()).unwrap();
        let ino = std::fs::metadata(self.root.join(dir)).unwrap().ino();
        self.watch.enter(&path, ino)
    }

    /// What is pending once all events until now have come.
    async fn pending(&self) -> Vec<String> {
        assert!(
            self.watcher
                .shared
                .cookies
                .seen_everything(Duration::from_secs(5))
                .await
        );
        match self.mailbox.take_burst().map(|burst| burst.scope) {
            Some(Scope::Paths(paths)) => paths.iter().map(ToString::to_string).collect(),
            Some(Scope::All) => vec!["everything".into()],
            None => Vec::new(),
        }
    }
}

#[tokio::test]
async fn events_become_pending_paths() {
    let s = setup();
    assert!(!s.enter(""));
    assert!(s.enter(""));
    assert_eq!(s.pending().await, [""; 0]);
    std::fs::write(s.root.join("a"), "1").unwrap();
    std::fs::create_dir(s.root.join(".git")).unwrap();
    std::fs::write(s.root.join(".stepback-tmp-1"), "1").unwrap();
    assert_eq!(s.pending().await, ["a"]);
    std::fs::read(s.root.join("a")).unwrap();
    assert_eq!(s.pending().await, [""; 0], "reading is no event");
    std::fs::set_permissions(
        s.root.join("a"),
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .unwrap();
    assert_eq!(s.pending().await, ["a"]);
}

#[tokio::test]
async fn a_directory_that_was_made_again_is_watched_again() {
    let s = setup();
    s.enter("");
    std::fs::create_dir(s.root.join("d")).unwrap();
    assert_eq!(s.pending().await, ["d"]);
    assert!(!s.enter("d") && s.enter("d"));
    std::fs::remove_dir(s.root.join("d")).unwrap();
    std::fs::create_dir(s.root.join("d")).unwrap();
    assert_eq!(s.pending().await, ["d"]);
    assert!(
        !s.enter("d"),
        "another directory, or the events of the first one have come"
    );
    std::fs::write(s.root.join("d/f"), "").unwrap();
    assert_eq!(s.pending().await, ["d/f"]);
}

#[tokio::test]
async fn a_moved_directory_is_known_by_its_new_path() {
    let s = setup();
    std::fs::create_dir_all(s.root.join("a/sub")).unwrap();
    for dir in ["", "a", "a/sub"] {
        assert!(!s.enter(dir));
    }
    std::fs::rename(s.root.join("a"), s.root.join("b")).unwrap();
    // Before its events were seen, or after.
    s.enter("b");
    s.pending().await;
    s.enter("b");
    assert!(!s.enter("b/sub"), "known by its old path only");
    assert!(s.enter("b") && s.enter("b/sub"));
    std::fs::write(s.root.join("b/sub/f"), "").unwrap();
    assert_eq!(s.pending().await, ["b/sub/f"]);
    assert_eq!(s.watch.count(), 3);
}

#[tokio::test]
async fn the_roots_own_end_is_everything_and_watches_are_given_back() {
    let s = setup();
    s.enter("");
    std::fs::create_dir(s.root.join("d")).unwrap();
    s.enter("d");
    std::fs::rename(&s.root, s.root.with_extension("away")).unwrap();
    assert_eq!(s.pending().await, ["everything"]);
    std::fs::rename(s.root.with_extension("away"), &s.root).unwrap();
    s.pending().await;
    assert!(!s.enter("") && !s.enter("d"));
    std::fs::write(s.root.join("d/f"), "").unwrap();
    assert_eq!(s.pending().await, ["d/f"]);
    s.watch.turn_off();
    assert_eq!(s.watch.count(), 0);
    std::fs::write(s.root.join("d/g"), "").unwrap();
    assert_eq!(s.pending().await, [""; 0]);
}

#[tokio::test]
async fn the_end_of_a_root_leaves_its_successor_at_the_same_path_alone() {
    let mut s = setup();
    s.enter("");
    let next = Arc::new(Mailbox::default());
    let next_watch = s.watcher.add_root(&s.root, Arc::clone(&next));
    let ino = std::fs::metadata(&s.root).unwrap().ino();
    next_watch.enter(&TreePath::root(), ino);
    s.mailbox = next;
    drop(std::mem::replace(&mut s.watch, next_watch));
    std::fs::write(s.root.join("f"), "").unwrap();
    assert_eq!(s.pending().await, ["f"]);
    assert_eq!(s.watch.count(), 1);
}

#[tokio::test]
async fn nested_roots_both_hear() {
    let s = setup();
    std::fs::create_dir(s.root.join("in")).unwrap();
    let inner = Arc::new(Mailbox::default());
    let inner_watch = s.watcher.add_root(&s.root.join("in"), Arc::clone(&inner));
    s.enter("");
    s.enter("in");
    let ino = std::fs::metadata(s.root.join("in")).unwrap().ino();
    assert!(!inner_watch.enter(&TreePath::root(), ino));
    std::fs::write(s.root.join("in/f"), "").unwrap();
    assert_eq!(s.pending().await, ["in/f"]);
    let Some(Scope::Paths(paths)) = inner.take_burst().map(|burst| burst.scope) else {
        panic!("no paths")
    };
    assert_eq!(paths.into_iter().next().unwrap().as_bytes(), b"f");
    drop(inner_watch);
    std::fs::write(s.root.join("in/g"), "").unwrap();
    assert_eq!(s.pending().await, ["in/g"], "the outer one still watches");
}

#[tokio::test]
async fn watches_are_given_back_by_a_root_that_ends_but_not_at_the_daemons_end() {
    for (end, left) in [(End::Stop, 1), (End::Retire, 0)] {
        let s = setup();
        s.enter("");
        let (watcher, key) = (Arc::clone(&s.watcher), s.watch.key);
        s.mailbox.end(end);
        drop(s.watch);
        assert_eq!(lock(&watcher.shared.watches).count(key), left, "{end:?}");
    }
}
