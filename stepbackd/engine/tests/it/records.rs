//! Records of a root's own that go or rot: each is named, and none holds the root up for ever.

use std::fs;
use std::path::PathBuf;

use stepback_engine::Error;
use stepback_engine::checkpoint::Trigger;
use stepback_engine::engine::{AttachRequest, Operation, Select, Why};

use crate::support::Sandbox;

/// Three checkpoints, a rewind to the first with its redo entry, an ended session.
fn worked_on() -> Sandbox {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("a"), "v1\n").unwrap());
    sandbox
        .on(|engine, cx| {
            engine.session_start(Some("work"), None, None, cx)?;
            engine.session_end(None, cx)
        })
        .unwrap();
    sandbox.write("a", "v2\n");
    sandbox.capture();
    sandbox.rewind(1);
    sandbox
}

fn ref_file(sandbox: &mut Sandbox, below: &str) -> PathBuf {
    let id = sandbox.engine().id().to_owned();
    sandbox
        .engine()
        .store_path()
        .join(format!("refs/stepback/{id}/{below}"))
}

fn journal(sandbox: &mut Sandbox) -> PathBuf {
    let id = sandbox.engine().id().to_owned();
    sandbox
        .engine()
        .store_path()
        .join(format!("stepback/{id}/journal"))
}

fn recover(sandbox: &mut Sandbox) -> stepback_engine::engine::Recovered {
    sandbox.on(|engine, cx| engine.recover(false, cx)).unwrap()
}

#[test]
fn a_damaged_journal_is_set_aside_by_recover_and_the_tree_is_captured() {
    for bytes in ["", "{\"version\":1,", "{}", "garbage"] {
        let mut sandbox = worked_on();
        let journal = journal(&mut sandbox);
        fs::write(&journal, bytes).unwrap();
        sandbox.write("half", "done\n");
        let left = ".stepback-tmp-0123456789abcdef";
        sandbox.write(&format!("{left}/0"), "somebody's bytes\n");
        let refused = sandbox.execute(&Operation::Redo).unwrap_err();
        assert!(matches!(refused, Error::DamagedRecord { .. }), "{refused}");
        assert!(refused.hint().contains("stepback recover"), "{}", refused.hint());

        let recovered = recover(&mut sandbox);
        assert!(recovered.interrupted.is_none());
        assert!(recovered.notes[0].contains("damaged-journal-1"), "{recovered:?}");
        assert_eq!(recovered.kept[0].path.to_string(), left, "{recovered:?}");
        assert_eq!(
            fs::read_to_string(journal.with_file_name("damaged-journal-1")).unwrap(),
            bytes
        );
        let saved = sandbox.engine().position().unwrap();
        assert_eq!(
            sandbox.read(&format!("{left}/0")).as_deref(),
            Some("somebody's bytes\n")
        );
        sandbox.execute(&Operation::Redo).unwrap();
        assert_eq!(sandbox.read("a").as_deref(), Some("v2\n"));
        sandbox.rewind(1);
        assert_eq!(sandbox.read("half"), None);
        sandbox.rewind(saved);
        assert_eq!(sandbox.read("half").as_deref(), Some("done\n"));
        assert!(recover(&mut sandbox).notes.is_empty());
    }
}

#[test]
fn a_journal_of_a_later_version_stays() {
    let mut sandbox = worked_on();
    let journal = journal(&mut sandbox);
    fs::write(&journal, "{\"version\":2}").unwrap();
    let refused = sandbox.on(|engine, cx| engine.recover(false, cx)).unwrap_err();
    assert!(
        matches!(refused, Error::Refused { .. }) && refused.hint().contains("newer"),
        "{refused}"
    );
    assert!(journal.exists());
}

/// How a ref can be bad: gone, empty (what a power cut leaves), garbage, an object that isn't there.
const BAD: [Option<&str>; 4] = [
    None,
    Some(""),
    Some("garbage\n"),
    Some("0123456789012345678901234567890123456789\n"),
];

fn spoil(file: &std::path::Path, bad: Option<&str>) {
    match bad {
        None => fs::remove_file(file).unwrap(),
        Some(text) => fs::write(file, text).unwrap(),
    }
}

#[test]
fn attach_builds_a_bad_root_record_anew() {
    for bad in BAD {
        for with_copy in [true, false] {
            let mut sandbox = worked_on();
            sandbox.engine().pin(2, true).unwrap();
            sandbox.write("a", "v3\n");
            let highest = sandbox.capture().id;
            let store = sandbox.engine().store_path().to_owned();
            let id = sandbox.engine().id().to_owned();
            let root_ref = ref_file(&mut sandbox, "root");
            let checkpoints = sandbox.engine().checkpoints().len();
            // The newest number is only in a ref that can't be read: it counts all the same.
            let newest = store.join(format!("refs/checkpoints/{id}/watch/{highest}"));
            fs::write(&newest, "").unwrap();
            spoil(&root_ref, bad);
            if !with_copy {
                fs::remove_file(store.join(format!("stepback/{id}/root.json"))).unwrap();
            }
            sandbox.engine = None;
            let environment = sandbox.environment();
            let opened =
                stepback_engine::engine::Engine::open(&environment, &store, &id, &Sandbox::settings());
            let refused = opened.err().unwrap();
            assert!(refused.hint().contains("stepback attach"), "{bad:?}: {refused}");

            let root = sandbox.root();
            let request = AttachRequest {
                path: root,
                here: true,
                ..AttachRequest::default()
            };
            let found = stepback_engine::engine::Engine::attach(
                &environment,
                &request,
                &Sandbox::settings(),
                Sandbox::now(),
            )
            .unwrap();
            assert!(!found.created);
            assert!(found.notes[0].contains("lost is:"), "{:?}", found.notes);
            sandbox.engine = Some(found.engine);
            let engine = sandbox.engine();
            assert_eq!(
                (engine.id(), engine.checkpoints().len()),
                (id.as_str(), checkpoints - 1)
            );
            assert!(engine.pinned(2) && engine.sessions().len() == 1 && engine.redo_stack().len() == 1);
            let next = sandbox.capture();
            assert_eq!((next.id, next.created), (highest + 1, true), "{bad:?}");
            sandbox.rewind(1);
            assert_eq!(sandbox.read("a").as_deref(), Some("v1\n"));
            sandbox.reopen(false);
        }
    }
}

#[test]
fn a_bad_record_of_one_worktree_hides_no_history_and_stops_no_other() {
    let mut sandbox = Sandbox::new();
    let main = sandbox.root();
    let git = |arguments: &[&str]| {
        let done = std::process::Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@localhost"])
            .args(arguments)
            .current_dir(&main)
            .output()
            .unwrap();
        assert!(done.status.success(), "git {arguments:?}");
    };
    git(&["init", "-q"]);
    git(&["commit", "-q", "--allow-empty", "-m", "one"]);
    git(&["worktree", "add", "-q", "../wt"]);
    fs::write(main.join("a"), "v1\n").unwrap();
    sandbox.attach();
    let id = sandbox.engine().id().to_owned();
    let wt = sandbox.path().join("wt");
    sandbox.attach_at(&wt).unwrap();
    let root_ref = sandbox
        .engine()
        .store_path()
        .join(format!("refs/stepback/{id}/root"));
    fs::remove_file(root_ref).unwrap();
    // Its checkpoints must not go with the store.
    sandbox.engine.take().unwrap().forget_all().unwrap();
    sandbox.attach();
    assert_eq!(sandbox.engine().id(), id);
    assert_eq!(sandbox.engine().checkpoints().len(), 1);
}

#[test]
fn a_damaged_redo_entry_is_named_and_recover_takes_it_off() {
    let mut sandbox = worked_on();
    sandbox.write("a", "v4\n");
    sandbox.capture();
    sandbox.rewind(1);
    let entry = ref_file(&mut sandbox, "redo/2");
    fs::write(&entry, "0123456789012345678901234567890123456789\n").unwrap();
    sandbox.reopen(true);
    let refused = sandbox.execute(&Operation::Redo).unwrap_err();
    assert!(
        refused.to_string().contains("redo/2") && refused.hint().contains("stepback recover"),
        "{refused}"
    );
    assert_eq!(
        sandbox.read("a").as_deref(),
        Some("v1\n"),
        "no older one in its place"
    );
    let recovered = recover(&mut sandbox);
    assert!(recovered.notes[0].contains("redo/2"), "{recovered:?}");
    sandbox.execute(&Operation::Redo).unwrap();
    assert_eq!(sandbox.read("a").as_deref(), Some("v2\n"));
    sandbox.reopen(true);
    assert!(sandbox.engine().damaged().is_empty());
    sandbox.write("a", "v5\n");
    sandbox.rewind(1);
    assert_eq!(
        sandbox.engine().redo_stack()[0].k,
        3,
        "its number is not given again"
    );
}

#[test]
fn a_damaged_session_is_named_and_recover_takes_it_away() {
    let mut sandbox = worked_on();
    let session = ref_file(&mut sandbox, "session/work");
    fs::write(&session, "").unwrap();
    sandbox.reopen(true);
    assert_eq!(sandbox.engine().damaged().len(), 1);
    assert_eq!(sandbox.engine().checkpoints_of("work"), 2, "its checkpoints stay");
    assert!(recover(&mut sandbox).notes[0].contains("session/work"));
    sandbox.reopen(true);
    assert!(sandbox.engine().damaged().is_empty() && sandbox.engine().verify().unwrap().is_empty());
}

#[test]
fn a_checkpoint_without_its_side_record_is_named_and_passed_over() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("a"), "v1\n").unwrap());
    for version in 2..=4 {
        sandbox.write("a", &format!("v{version}\n"));
        sandbox.capture();
    }
    fs::remove_file(ref_file(&mut sandbox, "side/3")).unwrap();
    sandbox.reopen(true);
    let refused = sandbox
        .execute(&Operation::Rewind(Some(Select::Number(3))))
        .unwrap_err();
    assert!(
        matches!(&refused, Error::Damaged { what, .. } if what.contains("side/3")),
        "{refused}"
    );
    assert!(
        sandbox
            .engine()
            .verify()
            .unwrap()
            .iter()
            .any(|finding| finding.what.contains("side/3"))
    );
    let report = sandbox.execute(&Operation::Rewind(None)).unwrap();
    assert_eq!(report.target, 2);
    assert_eq!(sandbox.read("a").as_deref(), Some("v2\n"));
}

/// Equal side records are one object.
#[test]
fn every_checkpoint_that_needs_a_lost_side_record_is_named() {
    let mut sandbox = worked_on();
    let count = sandbox.engine().checkpoints().len();
    let side = fs::read_to_string(ref_file(&mut sandbox, "side/1")).unwrap();
    let side = side.trim();
    let lost = sandbox.engine().store_path().join("objects");
    fs::remove_file(lost.join(&side[..2]).join(&side[2..])).unwrap();
    let findings = sandbox.engine().verify().unwrap();
    let of_it: Vec<_> = findings.iter().filter(|it| it.what.contains(side)).collect();
    assert_eq!(of_it.len(), 1, "{findings:?}");
    for n in 1..=count {
        let refused = sandbox.execute(&Operation::Rewind(Some(Select::Number(n as u64))));
        let named = of_it[0].what.contains(&format!("/side/{n}"));
        assert_eq!(refused.is_err(), named, "{n}: {refused:?} {of_it:?}");
    }
}

#[test]
fn a_checkpoint_whose_ref_went_meanwhile_is_named_by_verify() {
    let mut sandbox = worked_on();
    assert!(sandbox.engine().verify().unwrap().is_empty());
    let gone = sandbox.engine().checkpoints()[1].clone();
    let id = sandbox.engine().id().to_owned();
    let name = format!("refs/checkpoints/{id}/{}/{}", gone.session, gone.n);
    fs::remove_file(sandbox.engine().store_path().join(&name)).unwrap();
    let findings = sandbox.engine().verify().unwrap();
    assert!(findings.iter().any(|it| it.what == name), "{findings:?}");
}

#[test]
fn a_save_that_leaves_out_more_makes_a_checkpoint_that_says_so() {
    let mut sandbox = worked_on();
    let position = sandbox.engine().position().unwrap();
    let large = vec![b'x'; 11 << 20];
    fs::write(sandbox.root().join("large"), &large).unwrap();
    let automatic = sandbox.capture_as(&Why::plain(Trigger::Auto)).unwrap();
    assert_eq!((automatic.id, automatic.created), (position, false));
    let saved = sandbox.capture();
    assert!(saved.created, "{saved:?}");
    assert!(!sandbox.capture().created);
    sandbox.write("large", "small now\n");
    sandbox.capture();
    sandbox.rewind(saved.id);
    assert_eq!(sandbox.read("large").as_deref(), Some("small now\n"));
}

#[test]
fn a_redo_names_nothing_that_the_operation_left_alone() {
    let mut sandbox = worked_on();
    fs::write(sandbox.root().join("large"), vec![b'x'; 11 << 20]).unwrap();
    let report = sandbox.execute(&Operation::Redo).unwrap();
    assert_eq!(sandbox.read("a").as_deref(), Some("v2\n"));
    assert!(report.kept.is_empty(), "{report:?}");
    assert!(sandbox.root().join("large").exists());
}

/// Checkpoints between which the root's record wasn't written, and then the process dies.
fn behind() -> Sandbox {
    let mut sandbox = worked_on();
    for version in 3..9 {
        sandbox.write("a", &format!("v{version}\n"));
        sandbox.capture();
    }
    assert!(sandbox.engine().is_record_behind());
    sandbox
}

#[test]
fn a_record_that_is_behind_is_made_good_by_the_checkpoints() {
    for with_cache in [true, false] {
        let mut sandbox = behind();
        let newest = sandbox.engine().checkpoints().last().unwrap().n;
        sandbox.reopen(with_cache);
        assert_eq!(sandbox.engine().position(), Some(newest));
        assert_eq!(sandbox.engine().damaged(), []);
        assert_eq!(sandbox.capture().id, newest);
        sandbox.write("a", "later\n");
        assert_eq!(sandbox.capture().id, newest + 1);
        assert_eq!(sandbox.engine().checkpoints().last().unwrap().base, Some(newest));
        // And it is caught up with now and then, also without anybody asking for it.
        let file = ref_file(&mut sandbox, "root");
        let before = fs::read(&file).unwrap();
        for version in 0..20 {
            sandbox.write("a", &format!("w{version}\n"));
            sandbox.capture();
        }
        assert_ne!(fs::read(&file).unwrap(), before);
    }
}

#[test]
fn a_checkpoint_that_gets_lost_while_the_record_is_behind_is_named() {
    let mut sandbox = behind();
    let newest = sandbox.engine().checkpoints().last().unwrap().n;
    let id = sandbox.engine().id().to_owned();
    let lost = sandbox
        .engine()
        .store_path()
        .join(format!("refs/checkpoints/{id}/watch/{}", newest - 1));
    fs::remove_file(lost).unwrap();
    sandbox.reopen(false);
    let named = sandbox.engine().damaged().to_vec();
    assert_eq!(named.len(), 1, "{named:?}");
    assert!(named[0].what.ends_with(&(newest - 1).to_string()), "{named:?}");
    assert_eq!(sandbox.engine().position(), Some(newest));
}

#[test]
fn the_number_of_a_checkpoint_that_was_dropped_is_never_given_again() {
    let mut sandbox = behind();
    let newest = sandbox.engine().checkpoints().last().unwrap().n;
    let dropped = sandbox.on(|engine, cx| engine.drop_checkpoints(&[newest], false, cx));
    dropped.unwrap();
    sandbox.reopen(false);
    sandbox.write("a", "new\n");
    assert!(sandbox.capture().id > newest);
}
