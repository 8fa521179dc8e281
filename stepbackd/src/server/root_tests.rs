//! Roots with real directories and real stores, through the socket of a server in this process.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use stepback_proto::{
    Answer, Consent, Event, FailureKind, Item, Reply, Request, RootState, RootStatus, Selector, Verb, frame,
};

use super::Limits;
use super::tests::Server;

pub(super) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Directories beside STATE, which may be attached.
pub(super) fn roots() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap();
    (dir, path)
}

pub(super) fn attach(path: &Path) -> Verb {
    Verb::Attach(stepback_proto::Attach {
        path: path.into(),
        here: true,
        include: Vec::new(),
        max_file_size: None,
        force: false,
        new: false,
        yes: false,
    })
}

impl Server {
    pub(super) fn attached(&self, path: &Path) {
        std::fs::create_dir_all(path).unwrap();
        let answer = self.ask("/", attach(path));
        assert!(
            matches!(&answer, Answer::Done(Reply::Attached(a)) if a.checkpoint == 1),
            "{answer:?}"
        );
    }

    pub(super) fn at(&self, place: &Path, verb: Verb) -> Answer {
        self.ask(place.to_str().unwrap(), verb)
    }

    pub(super) fn status(&self, place: &Path) -> RootStatus {
        match self.at(place, Verb::Status { verify: false }) {
            Answer::Done(Reply::Status(status)) => status.root.expect("a root"),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn lines(&self) -> Vec<stepback_proto::RootLine> {
        let mut stream = self.begin(Path::new("/"), Verb::Roots);
        let mut lines = Vec::new();
        while let Ok(Some(Answer::Item(Item::Root(line)))) = frame::read(&mut stream) {
            lines.push(line);
        }
        lines
    }

    pub(super) fn settled(&self, place: &Path) -> RootStatus {
        eventually("settled", || self.status(place).settled == Some(true));
        self.status(place)
    }

    pub(super) fn begin(&self, place: &Path, verb: Verb) -> UnixStream {
        let mut stream = self.introduced();
        frame::write(
            &mut stream,
            &Request {
                place: place.into(),
                verb,
            },
        )
        .unwrap();
        stream
    }
}

#[test]
fn a_burst_becomes_a_checkpoint_and_followers_hear_of_it() {
    let server = Server::start(Limits::default());
    let (_dir, base) = roots();
    let root = base.join("p");
    server.attached(&root);
    assert_eq!(server.status(&root).state, RootState::Watching);
    let mut follower = server.begin(&root, Verb::Watch);
    eventually("a follower", || server.daemon.events.receiver_count() == 1);
    std::fs::write(root.join("a"), "1").unwrap();
    let status = server.status(&root);
    assert!(
        status.settled == Some(false) || status.checkpoints == 2,
        "{status:?}"
    );
    assert_eq!(server.settled(&root).last.unwrap().id, 2);
    let Ok(Some(Answer::Item(Item::Event(event)))) = frame::read(&mut follower) else {
        panic!("no event")
    };
    let Event::Checkpoint { checkpoint, .. } = *event else {
        panic!("{event:?}")
    };
    assert_eq!((checkpoint.id, checkpoint.files.added), (2, 1));
    let rewind = Verb::Rewind {
        id: Some(Selector::First),
        how: Consent::Yes,
    };
    assert!(matches!(server.at(&root, rewind), Answer::Done(Reply::Report(r)) if r.removed == 1));
    assert!(!root.join("a").exists());
}

#[test]
fn settings_that_are_broken_are_told_in_the_status() {
    let server = Server::start(Limits::default());
    let (_dir, base) = roots();
    let root = base.join("p");
    server.attached(&root);
    let config = server.daemon.paths.config.clone();
    let warnings = |verify| match server.at(&root, Verb::Status { verify }) {
        Answer::Done(Reply::Status(status)) => status.root.unwrap().warnings,
        other => panic!("{other:?}"),
    };
    assert_eq!(warnings(false), []);
    for (text, said) in [
        (
            "\nsettle_ms = oops\n",
            Some(format!("settings not read: {}:2: ", config.display())),
        ),
        ("settle_ms = 5\n", None),
        ("[retention]\nnewest = 3\n", None),
    ] {
        std::fs::write(&config, text).unwrap();
        assert_eq!(server.daemon.reload().is_err(), text.contains("oops"));
        for verify in [false, true] {
            let told = warnings(verify);
            assert_eq!(told.len(), usize::from(said.is_some()), "{told:?}");
            for (warning, said) in told.iter().zip(&said) {
                assert_eq!(warning.kind, "config");
                assert!(
                    warning.message.starts_with(said) && !warning.hint.is_empty(),
                    "{warning:?}"
                );
            }
        }
    }
}

#[test]
fn where_no_root_is_the_hint_names_the_place() {
    let server = Server::start(Limits::default());
    let (_dir, base) = roots();
    let (dir, file, nowhere) = (base.join("a dir"), base.join("a dir/file"), base.join("nowhere"));
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(&file, "").unwrap();
    let told = |place: &Path, verb: Verb| match server.at(place, verb) {
        Answer::Failed(failure) => {
            assert_eq!(failure.kind, FailureKind::NotAttached);
            (failure.message, failure.hint)
        }
        other => panic!("{other:?}"),
    };
    let attach = format!("`stepback attach '{}'` attaches it", dir.display());
    assert_eq!(told(&dir, Verb::SessionList).1, attach);
    assert_eq!(told(&file, Verb::SessionList).1, attach);
    let roots = "`stepback roots` lists the attached directories";
    assert_eq!(
        told(&nowhere, Verb::SessionList),
        (
            format!("{}: no such directory", nowhere.display()),
            roots.to_owned()
        )
    );
    for forget in [false, true] {
        assert_eq!(told(&dir, Verb::Detach { forget, exact: true }).1, roots);
    }
}

#[test]
fn a_root_that_is_away_is_missing_and_then_watched_again() {
    let server = Server::start(Limits::default());
    let (_dir, base) = roots();
    let root = base.join("p");
    server.attached(&root);
    std::fs::rename(&root, base.join("away")).unwrap();
    let status = server.status(&root);
    assert_eq!(status.state, RootState::Missing, "at once");
    assert_eq!(status.settled, Some(true), "nothing waits to settle");
    let hint = format!("`stepback -C {} rewind` makes it again", root.display());
    assert_eq!(status.warnings.len(), 1);
    assert!(status.warnings[0].hint.contains(&hint), "{status:?}");
    assert!(
        status.warnings[0].hint.contains("`stepback attach NEWPATH`"),
        "{status:?}"
    );
    // What the actor itself tells is the same.
    eventually("the actor knows", || {
        server.daemon.roots()[0].told().state == RootState::Missing
    });
    assert_eq!(server.daemon.roots()[0].told().warnings, status.warnings);
    assert_eq!(server.lines()[0].state, RootState::Missing);
    std::fs::create_dir(&root).unwrap();
    assert_eq!(server.status(&root).state, RootState::Replaced, "at once");
    assert_eq!(server.lines()[0].state, RootState::Replaced);
    assert_eq!(
        server.failure(root.to_str().unwrap(), attach(&root)),
        FailureKind::RootReplaced
    );
    std::fs::remove_dir(&root).unwrap();
    std::fs::write(base.join("away/b"), "1").unwrap();
    std::fs::rename(base.join("away"), &root).unwrap();
    eventually("watching", || server.status(&root).state == RootState::Watching);
    std::fs::write(root.join("c"), "1").unwrap();
    let status = server.settled(&root);
    assert_eq!(status.files, 2);
    let [gap] = &status.gaps[..] else {
        panic!("{status:?}")
    };
    assert!(gap.from_ms < gap.to_ms, "{gap:?}");
    assert_eq!(gap.reason, "another directory was in its place");
}

#[test]
fn a_client_that_does_not_read_holds_nobody_up() {
    let server = Server::start(Limits::default());
    let (_dir, base) = roots();
    let root = base.join("p");
    std::fs::create_dir(&root).unwrap();
    let bytes: Vec<u8> = (0..12_000_000u32).map(|n| (n ^ (n >> 7)) as u8).collect();
    std::fs::write(root.join("big"), &bytes).unwrap();
    server.attached(&root);
    let path = PathBuf::from("big").into();
    let mut stalled = server.begin(
        &root,
        Verb::Cat {
            id: Selector::Latest,
            path,
        },
    );
    std::fs::write(root.join("a"), "1").unwrap();
    assert_eq!(server.settled(&root).checkpoints, 2);
    let mut got = Vec::new();
    while let Ok(Some(Answer::Item(Item::Bytes(chunk)))) = frame::read(&mut stalled) {
        got.extend(chunk);
    }
    assert!(got == bytes, "{} of {} bytes", got.len(), bytes.len());
}

#[test]
fn an_answer_that_cannot_be_kept_for_a_slow_client_ends_with_a_failure() {
    let server = Server::start(Limits::default());
    let (_dir, base) = roots();
    let root = base.join("p");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("big"), vec![7; 12_000_000]).unwrap();
    server.attached(&root);
    std::fs::remove_dir(server.daemon.paths.spool()).unwrap();
    let mut stalled = server.begin(
        &root,
        Verb::Cat {
            id: Selector::Latest,
            path: PathBuf::from("big").into(),
        },
    );
    // It has begun: what is asked from here on comes after it.
    let first = frame::read::<Answer>(&mut stalled).unwrap();
    assert!(matches!(first, Some(Answer::Item(_))), "{first:?}");
    assert_eq!(server.at(&root, Verb::SessionList), Answer::Done(Reply::Empty));
    let mut last = None;
    while let Some(answer) = frame::read::<Answer>(&mut stalled).unwrap() {
        last = Some(answer);
    }
    assert!(matches!(last, Some(Answer::Failed(_))), "{last:?}");
}

#[test]
fn a_dead_session_ends_on_a_root_that_is_asked_all_the_time() {
    let server = Server::start(Limits::default());
    let (_dir, base) = roots();
    let root = base.join("p");
    server.attached(&root);
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let start = Verb::SessionStart {
        name: Some("s".into()),
        command: None,
        pid: Some(child.id()),
    };
    assert!(matches!(server.at(&root, start), Answer::Done(_)));
    eventually("the session ends", || {
        let mut stream = server.begin(&root, Verb::SessionList);
        let Ok(Some(Answer::Item(Item::Session(session)))) = frame::read(&mut stream) else {
            panic!("no session")
        };
        session.ended_ms.is_some()
    });
}

#[test]
fn a_client_that_reads_a_part_of_a_diff_costs_no_look_at_everything() {
    let server = Server::start(Limits::default());
    let (_dir, base) = roots();
    let root = base.join("p");
    server.attached(&root);
    // Not so many that the file would only be named.
    let text: String = (0..300_000)
        .map(|n| format!("{n} a line, a longer one\n"))
        .collect();
    std::fs::write(root.join("big"), text).unwrap();
    assert_eq!(server.settled(&root).checkpoints, 2);
    let mut cut = server.begin(
        &root,
        Verb::Diff {
            between: stepback_proto::DiffSides::Between(Selector::Number(1), Selector::Number(2)),
            paths: Vec::new(),
            form: stepback_proto::DiffForm::Patch,
        },
    );
    let first = loop {
        match frame::read(&mut cut) {
            Ok(Some(Answer::Progress(_))) => {}
            other => break other,
        }
    };
    assert!(matches!(first, Ok(Some(Answer::Item(_)))), "{first:?}");
    drop(cut);
    // The diff is over when the next job is done.
    assert_eq!(server.at(&root, Verb::SessionList), Answer::Done(Reply::Empty));
    assert_eq!(server.status(&root).settled, Some(true));
}

#[test]
fn an_attach_that_is_given_up_leaves_nothing() {
    let server = Server::start(Limits::default());
    let (_dir, base) = roots();
    let root = base.join("p");
    for n in 0..3000 {
        let dir = root.join(format!("d{}", n % 50));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(n.to_string()), n.to_string()).unwrap();
    }
    let given_up = server.begin(&root, attach(&root));
    eventually("begun", || !server.daemon.roots().is_empty());
    drop(given_up);
    // It may have been through by then.
    let detach = Verb::Detach {
        forget: true,
        exact: true,
    };
    eventually("gone", || {
        server.daemon.roots().is_empty() || matches!(server.at(&root, detach.clone()), Answer::Done(_))
    });
    let stores = server.daemon.paths.state.join("stores");
    eventually("no store", || std::fs::read_dir(&stores).unwrap().count() == 0);
}

#[test]
fn detached_roots_are_forgotten_when_asked_also_later() {
    let server = Server::start(Limits::default());
    let (_dir, base) = roots();
    let root = base.join("p");
    server.attached(&root);
    let detached = server.at(
        &root,
        Verb::Detach {
            forget: false,
            exact: true,
        },
    );
    assert!(matches!(
        detached,
        Answer::Done(Reply::Detached { forgotten: false, .. })
    ));
    assert_eq!(
        server.failure(root.to_str().unwrap(), Verb::SessionList),
        FailureKind::NotAttached
    );
    let forgotten = server.at(
        &root,
        Verb::Detach {
            forget: true,
            exact: true,
        },
    );
    assert!(matches!(forgotten, Answer::Done(Reply::Deleted { .. })));
    let again = Verb::Detach {
        forget: true,
        exact: true,
    };
    assert_eq!(
        server.failure(root.to_str().unwrap(), again),
        FailureKind::NotAttached
    );
}
