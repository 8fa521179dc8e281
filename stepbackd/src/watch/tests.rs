//! Real events in temporary directories.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use stepback_engine::engine::Scope;
use stepback_engine::tree::{DirWatch, Inode};

use super::*;
use crate::root::mailbox::End;

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

fn inode_of(dir: &Path) -> Inode {
    let meta = std::fs::metadata(dir).unwrap();
    let (dev, ino) = (meta.dev(), meta.ino());
    Inode { dev, ino }
}

impl Setup {
    fn enter(&self, dir: &str) -> bool {
        let path = TreePath::new(dir.as_bytes()).unwrap();
        self.watch.enter(&path, inode_of(&self.root.join(dir)))
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
    std::fs::write(s.root.join(".stepback-tmp-0123456789abcdef"), "1").unwrap();
    std::fs::write(s.root.join(".stepback-tmp-1"), "1").unwrap();
    assert_eq!(s.pending().await, [".stepback-tmp-1", "a"]);
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
    next_watch.enter(&TreePath::root(), inode_of(&s.root));
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
    assert!(!inner_watch.enter(&TreePath::root(), inode_of(&s.root.join("in"))));
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
        assert_eq!(lock(&watcher.shared.books).watches.count(key), left, "{end:?}");
    }
}

#[tokio::test]
async fn letting_go_of_much_among_many_is_quick_and_no_overflow() {
    let s = setup();
    s.enter("");
    for n in 0..12_000 {
        let dir = format!("{}/{n}", n % 3);
        std::fs::create_dir_all(s.root.join(&dir)).unwrap();
        s.enter(&dir);
    }
    for n in 0..3 {
        s.enter(&n.to_string());
    }
    s.pending().await;
    assert_eq!(s.watch.count(), 12_004);
    let started = std::time::Instant::now();
    std::fs::remove_dir_all(s.root.join("1")).unwrap();
    s.pending().await;
    assert_eq!(s.watch.count(), 8003);
    s.watch.turn_off();
    assert_eq!(s.watch.count(), 0);
    // A walk through all of them for each would take minutes.
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(
        s.pending().await,
        [""; 0],
        "nothing was lost of what tells that they went"
    );
    s.watch.turn_on();
    assert!(!s.enter("") && s.enter(""));
    std::fs::write(s.root.join("f"), "").unwrap();
    assert_eq!(s.pending().await, ["f"]);
    let left = lock(&s.watcher.shared.books).source.as_ref().unwrap().count();
    assert_eq!(left, 2, "the root, and our own directory");
}

#[tokio::test]
async fn a_directory_that_is_reached_by_two_paths_tells_of_both() {
    let s = setup();
    // Before anything is watched: the event of its making would end a watch that came first.
    std::fs::create_dir(s.root.join("a")).unwrap();
    s.enter("");
    s.enter("a");
    s.pending().await;
    // As after a bind mount: the same directory at another path.
    let ino = std::fs::metadata(s.root.join("a")).unwrap().ino();
    let watcher = &s.watcher;
    let setter = lock(&watcher.shared.books).source.as_ref().unwrap().setter();
    let watch = setter.watch(&s.root.join("a")).unwrap();
    {
        let mut books = lock(&watcher.shared.books);
        let key = key_of(&s.root.join("b"));
        books.watches.enter(&key, ino, s.watch.key);
        assert!(books.watches.has_set(&key, ino));
        books.source.as_mut().unwrap().record(key, watch);
    }
    std::fs::write(s.root.join("a/f"), "").unwrap();
    assert_eq!(s.pending().await, ["a/f", "b/f"]);
}

#[tokio::test]
async fn where_there_is_no_room_the_root_is_refused_until_there_is() {
    let s = setup();
    s.watch.begin_look();
    let full = |books: &mut Books| {
        let count = books.source.as_ref().unwrap().count();
        // What is left to others is far more than we have.
        books.room.met(count, std::time::Instant::now());
    };
    full(&mut lock(&s.watcher.shared.books));
    assert!(!s.enter("") && s.watch.refused());
    assert_eq!(s.watch.count(), 0);
    s.watch.turn_off();
    s.watch.begin_look();
    assert!(s.watch.refused(), "there is no more room than before");
    s.watch.turn_on_anew();
    assert!(!s.watch.refused() && !s.enter("") && s.enter(""));
}

#[tokio::test]
async fn a_silent_file_system_is_named() {
    let s = setup();
    let kind = nix::sys::statfs::statfs(&s.root).unwrap().filesystem_type().0 as u32;
    assert_eq!(s.watch.silent(), None);
    s.watcher.set_silent(Silent::with(&[u64::from(kind)]));
    assert!(s.watch.silent().is_some());
    assert!(!s.enter("") && !s.watch.refused());
    let (number, _, why) = s.watch.unwatched().unwrap();
    assert_eq!((number, why, s.watch.count()), (1, Unwatched::Silent, 0));
    s.watcher.set_silent(Silent::default());
    assert!(!s.enter("") && s.enter(""));
    assert_eq!(s.watch.unwatched(), None);
}

#[test]
fn a_second_source_takes_no_watch_away() {
    let setup = setup();
    setup.enter("");
    setup.watcher.shared.listen().unwrap();
    assert_eq!(setup.watch.count(), 1);
    assert!(setup.enter(""), "watched all the time");
}
