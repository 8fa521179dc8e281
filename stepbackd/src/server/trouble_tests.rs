//! Roots in which something goes wrong: each says so, harms no other, and comes back.

use std::path::Path;

use stepback_proto::{Answer, DiffForm, DiffSides, FailureKind, RootState, RootStatus, Selector, Verb};

use super::Limits;
use super::root_tests::{attach, eventually, roots};
use super::tests::Server;

#[test]
fn a_root_that_fails_says_so_harms_no_other_and_comes_back() {
    let server = Server::start(Limits::default());
    let (_dir, base) = roots();
    let (bad, good) = (base.join("bad"), base.join("good"));
    server.attached(&bad);
    server.attached(&good);
    let store = server.status(&bad).store.as_path().to_owned();
    let aside = store.with_extension("aside");
    std::fs::rename(&store, &aside).unwrap();
    std::fs::write(bad.join("a"), "1").unwrap();
    eventually("failed", || server.status(&bad).state == RootState::Failed);
    assert!(!server.status(&bad).warnings.is_empty());
    std::fs::write(good.join("a"), "1").unwrap();
    assert_eq!(server.settled(&good).checkpoints, 2);
    std::fs::rename(&aside, &store).unwrap();
    eventually("back", || server.status(&bad).state == RootState::Watching);
    assert_eq!(server.settled(&bad).checkpoints, 2);
}

#[test]
fn a_store_that_is_gone_is_named_and_attach_begins_anew() {
    let server = Server::start(Limits::default());
    let (_dir, base) = roots();
    let (bad, good) = (base.join("bad"), base.join("good"));
    server.attached(&bad);
    server.attached(&good);
    let before = server.settled(&bad);
    std::fs::remove_dir_all(before.store.as_path()).unwrap();
    let told = |status: &RootStatus| {
        assert_eq!(status.state, RootState::Failed);
        let [warning] = &status.warnings[..] else {
            panic!("{status:?}")
        };
        assert_eq!(warning.kind, "store_damaged");
        let store = before.store.as_path().display();
        assert_eq!(
            warning.message,
            format!("the store {store} is gone: nothing is captured")
        );
        let attach = format!("`stepback attach --here {}`", bad.display());
        assert!(warning.hint.contains(&attach), "{warning:?}");
    };
    told(&server.status(&bad));
    let failed = || server.daemon.root_at(&bad).unwrap().told().state == RootState::Failed;
    eventually("the actor knows", failed);
    told(&server.status(&bad));
    for verb in [
        Verb::SessionList,
        Verb::Save {
            label: None,
            pin: false,
        },
    ] {
        assert_eq!(
            server.failure(bad.to_str().unwrap(), verb),
            FailureKind::StoreDamaged
        );
    }
    assert!(!before.store.as_path().exists(), "no part of it is made again");
    std::fs::write(good.join("a"), "1").unwrap();
    assert_eq!(server.settled(&good).checkpoints, 2);
    server.attached(&bad);
    std::fs::write(bad.join("a"), "1").unwrap();
    let after = server.settled(&bad);
    assert_eq!((after.state, after.checkpoints), (RootState::Watching, 2));
    assert_ne!(after.id, before.id);
    assert_eq!(server.lines().len(), 2);
    // Such a root can also be let go.
    std::fs::remove_dir_all(after.store.as_path()).unwrap();
    let detached = server.at(
        &bad,
        Verb::Detach {
            forget: true,
            exact: true,
        },
    );
    assert!(matches!(detached, Answer::Done(_)), "{detached:?}");
}

#[test]
fn what_a_user_does_wrong_is_no_failure_of_the_root() {
    let server = Server::start(Limits::default());
    let (_dir, base) = roots();
    let root = base.join("p");
    server.attached(&root);
    let end = |name: Option<&str>| Verb::SessionEnd {
        name: name.map(str::to_owned),
        revert: None,
    };
    let start = Verb::SessionStart {
        name: Some("a..b".into()),
        command: None,
        pid: None,
    };
    server.settled(&root);
    for (wrong, kind) in [
        (
            Verb::Show {
                id: Selector::Number(9),
            },
            FailureKind::NoSuchCheckpoint,
        ),
        (
            Verb::Diff {
                between: DiffSides::ToTree(Selector::Number(9)),
                paths: Vec::new(),
                form: DiffForm::Names,
            },
            FailureKind::NoSuchCheckpoint,
        ),
        (
            Verb::Cat {
                id: Selector::Number(1),
                path: Path::new("none").into(),
            },
            FailureKind::NoSuchPath,
        ),
        (
            Verb::Save {
                label: Some("x".repeat(5000)),
                pin: false,
            },
            FailureKind::Usage,
        ),
        (end(None), FailureKind::NoSuchSession),
        (end(Some("x")), FailureKind::NoSuchSession),
        (start, FailureKind::Usage),
    ] {
        assert_eq!(server.failure(root.to_str().unwrap(), wrong), kind);
        let status = server.status(&root);
        assert_eq!((status.state, status.warnings), (RootState::Watching, Vec::new()));
        // A name that isn't there, or can't be, is no reason to look at everything again.
        assert_eq!(status.settled, Some(true), "{kind:?}");
    }
    std::fs::write(root.join("a"), "1").unwrap();
    assert_eq!(server.settled(&root).checkpoints, 2);
}

#[test]
fn a_root_whose_actor_dies_is_begun_anew_by_itself_or_by_attach() {
    let server = Server::start(Limits::default());
    let (_dir, base) = roots();
    let (bad, good) = (base.join("bad"), base.join("good"));
    server.attached(&bad);
    server.attached(&good);
    let dies = || {
        server.daemon.root_at(&bad).unwrap().mailbox.panic();
        eventually("fallen", || server.status(&bad).state == RootState::Failed);
    };
    dies();
    let status = server.status(&bad);
    assert_eq!(status.warnings[0].message, crate::root::fallen().message);
    assert_eq!(
        server.failure(bad.to_str().unwrap(), Verb::SessionList),
        FailureKind::Internal
    );
    std::fs::write(good.join("a"), "1").unwrap();
    std::fs::write(bad.join("a"), "1").unwrap();
    assert_eq!(server.settled(&good).checkpoints, 2);
    eventually("back", || server.status(&bad).state == RootState::Watching);
    let status = server.settled(&bad);
    assert_eq!((status.checkpoints, status.warnings), (2, Vec::new()));
    assert_eq!(status.gaps.len(), 1, "{:?}", status.gaps);
    assert_eq!(server.lines().len(), 2);
    dies();
    let attached = server.at(&bad, attach(&bad));
    assert!(matches!(attached, Answer::Done(_)), "{attached:?}");
    std::fs::write(bad.join("a"), "2").unwrap();
    let status = server.settled(&bad);
    assert_eq!((status.state, status.checkpoints), (RootState::Watching, 3));
    assert_eq!(server.lines().len(), 2);
}

/// The point is chosen by the environment, so the test proper is a process of its own.
#[cfg(feature = "fault-points")]
#[test]
fn a_panic_costs_a_root_its_engine_and_nothing_else() {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let done = child
        .args([
            "--exact",
            "server::trouble_tests::panicking",
            "--ignored",
            "--nocapture",
        ])
        // The third job is the first after the two attaches.
        .env("STEPBACK_FAULT", "actor.job:3:panic")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("actor.job"), "{said}");
}

#[cfg(feature = "fault-points")]
#[test]
#[ignore = "run by a_panic_costs_a_root_its_engine_and_nothing_else"]
fn panicking() {
    let server = Server::start(Limits::default());
    let (_dir, base) = roots();
    let (bad, good) = (base.join("bad"), base.join("good"));
    server.attached(&bad);
    server.attached(&good);
    let save = || Verb::Save {
        label: Some("x".into()),
        pin: false,
    };
    let Answer::Failed(failure) = server.at(&bad, save()) else {
        panic!("no panic")
    };
    assert_eq!(failure.kind, FailureKind::Internal);
    let status = server.status(&bad);
    assert_eq!(status.state, RootState::Failed);
    assert_eq!(status.warnings[0].message, failure.message);
    assert!(matches!(server.at(&good, save()), Answer::Done(_)));
    eventually("back", || server.status(&bad).state == RootState::Watching);
    let status = server.settled(&bad);
    assert_eq!((status.checkpoints, status.warnings), (1, Vec::new()));
    assert!(matches!(server.at(&bad, save()), Answer::Done(_)));
    assert_eq!(server.settled(&bad).checkpoints, 2);
}
