//! What goes with time, and how much disk is used.

use std::collections::BTreeSet;
use std::fs;

use stepback_engine::Error;
use stepback_engine::checkpoint::Trigger;
use stepback_engine::engine::{AttachRequest, Budget, Context, Engine, Scope, Why};
use stepback_engine::node::Reason;
use stepback_engine::progress::Progress;
use stepback_engine::retention::Policy;
use stepback_engine::time::Time;
use stepback_engine::tree::NoWatch;

use crate::support::{Sandbox, at_time, fsck, random_bytes};

const DAY: i64 = 24 * 3600 * 1_000_000_000;

fn only_newest(newest: u32) -> Policy {
    Policy {
        all_hours: 0,
        minutely_hours: 0,
        hourly_days: 0,
        daily_days: 0,
        newest,
    }
}

/// Captures one state a minute, `count` of them, from `from` on; their numbers.
fn captures(sandbox: &mut Sandbox, count: usize, from: Time) -> Vec<u64> {
    (0..count)
        .map(|i| {
            sandbox.write("a", &format!("{i} {}", "x".repeat(i % 13)));
            let now = Time(from.0 + i64::try_from(i).unwrap() * 60_000_000_000);
            at_time(sandbox, now, |engine, cx| {
                engine
                    .capture(Scope::All, &Why::plain(Trigger::Auto), cx)
                    .unwrap()
                    .id
            })
        })
        .collect()
}

#[test]
fn many_go_at_once_and_their_bases_are_handed_on() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("a"), "first").unwrap());
    let now = Sandbox::now();
    let all = captures(&mut sandbox, 60, Time(now.0 - 400 * DAY));
    sandbox.engine().pin(all[10], true).unwrap();
    let later = Time(now.0 + DAY);
    let preview = at_time(&mut sandbox, later, |engine, cx| {
        engine.thin(&only_newest(5), true, cx).unwrap()
    });
    let gone = at_time(&mut sandbox, later, |engine, cx| {
        engine.thin(&only_newest(5), false, cx).unwrap()
    });
    assert_eq!(preview, gone);
    assert!(!gone.contains(&all[10]));
    // Of each week the newest stays; all of these are within two.
    assert!(gone.len() >= 52, "{gone:?}");
    let engine = sandbox.engine();
    let left: Vec<u64> = engine.checkpoints().iter().map(|c| c.n).collect();
    let mut before = None;
    for n in &left {
        assert_eq!(engine.checkpoint(*n).unwrap().base, before, "the base of {n}");
        before = Some(*n);
    }
    assert_eq!(engine.checkpoint(all[10]).unwrap().counts.modified, 1);
    sandbox.reopen(true);
    let again: Vec<u64> = sandbox.engine().checkpoints().iter().map(|c| c.n).collect();
    assert_eq!(again, left, "what the store says");
    assert!(sandbox.engine().pinned(all[10]));
    assert!(sandbox.engine().verify().unwrap().is_empty());
    sandbox.rewind(all[10]);
    assert_eq!(sandbox.read("a").unwrap(), format!("10 {}", "x".repeat(10)));
}

#[test]
fn what_redo_an_open_session_and_the_position_need_never_goes() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("a"), "first").unwrap());
    let now = Sandbox::now();
    let old = captures(&mut sandbox, 8, Time(now.0 - 400 * DAY));
    let (_, start) = sandbox.on(|engine, cx| engine.session_start(Some("s"), None, None, cx).unwrap());
    sandbox.rewind(old[3]);
    let entry = sandbox.engine().redo_stack()[0].clone();
    let needed: BTreeSet<u64> = [start, entry.target, entry.before, old[3]].into();
    let much_later = Time(now.0 + 4_000 * DAY);
    let gone = at_time(&mut sandbox, much_later, |engine, cx| {
        engine.thin(&only_newest(0), false, cx).unwrap()
    });
    assert!(gone.is_disjoint(&needed), "{gone:?} and {needed:?}");
    assert!(!gone.is_empty());
    let position = sandbox.engine().position();
    assert_eq!(position, Some(old[3]));
    sandbox
        .execute(&stepback_engine::engine::Operation::Redo)
        .unwrap();
    assert_eq!(sandbox.read("a").unwrap(), format!("7 {}", "x".repeat(7)));
}

#[test]
fn pruning_gives_the_space_back() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("a"), "first").unwrap());
    let now = Sandbox::now();
    for i in 0..12u64 {
        fs::write(sandbox.root().join("big"), random_bytes(i, 1 << 20)).unwrap();
        let then = Time(now.0 - 400 * DAY + i64::try_from(i).unwrap() * 1_000_000_000);
        at_time(&mut sandbox, then, |engine, cx| {
            engine
                .capture(Scope::All, &Why::plain(Trigger::Auto), cx)
                .unwrap()
        });
    }
    let later = Time(now.0 + DAY);
    let pruned = at_time(&mut sandbox, later, |engine, cx| {
        engine.prune(&only_newest(2), false, cx).unwrap()
    });
    assert_eq!(pruned.unreclaimed, None);
    assert!(pruned.freed_bytes > 8 << 20, "{pruned:?}");
    assert!(sandbox.engine().store_bytes().unwrap() < 8 << 20);
    fsck(sandbox.engine().store_path());
    assert!(sandbox.engine().verify().unwrap().is_empty());
}

#[test]
fn contents_that_lost_their_last_checkpoint_are_written_again() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("a"), "kept only by the cache").unwrap());
    let now = Sandbox::now();
    sandbox.engine().save_cache().unwrap();
    captures(&mut sandbox, 5, Time(now.0 + 1));
    let later = Time(now.0 + 400 * DAY);
    at_time(&mut sandbox, later, |engine, cx| {
        engine.prune(&only_newest(1), false, cx).unwrap()
    });
    sandbox.reopen(false);
    sandbox.write("a", "kept only by the cache");
    sandbox.capture();
    assert!(sandbox.engine().verify().unwrap().is_empty());
}

#[test]
fn contents_that_lost_their_last_checkpoint_while_the_root_was_away_are_written_again() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("a"), "first").unwrap());
    sandbox.write("only", "in one checkpoint only");
    let only = sandbox.capture().id;
    sandbox.reopen(true);
    let aside = sandbox.path().join("aside");
    fs::rename(sandbox.root(), &aside).unwrap();
    sandbox.on(|engine, cx| engine.drop_checkpoints(&[only], false, cx).unwrap());
    fs::rename(&aside, sandbox.root()).unwrap();
    sandbox.write("a", "second");
    sandbox.capture();
    assert!(sandbox.engine().verify().unwrap().is_empty());
    fsck(sandbox.engine().store_path());
}

#[test]
fn large_new_contents_are_left_out_when_there_is_no_room_and_small_changes_are_not() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("a"), "first").unwrap());
    let bytes = sandbox.engine().store_bytes().unwrap();
    let budget = Budget {
        store: bytes + (5 << 20),
        ..Budget::default()
    };
    sandbox.engine().set_budget(budget);
    fs::write(sandbox.root().join("fits"), random_bytes(1, 3 << 20)).unwrap();
    sandbox.capture();
    assert!(sandbox.engine().not_captured(None).unwrap().is_empty());
    fs::write(sandbox.root().join("big"), random_bytes(2, 4 << 20)).unwrap();
    sandbox.write("small", "small");
    // The same contents need no room.
    fs::copy(sandbox.root().join("fits"), sandbox.root().join("copy")).unwrap();
    let with_big = sandbox.capture().id;
    let left_out = sandbox.engine().not_captured(Some(with_big)).unwrap();
    let named: Vec<_> = left_out.iter().map(|l| (l.path.to_string(), l.reason)).collect();
    assert_eq!(named, [("big".to_owned(), Reason::Quota)]);
    assert!(sandbox.engine().store_bytes().unwrap() <= budget.store);
    // A rewind leaves it alone going there, and saves it before it goes elsewhere.
    fs::write(sandbox.root().join("big"), random_bytes(3, 4 << 20)).unwrap();
    let report = sandbox.rewind(1);
    let saved = report.saved.unwrap();
    assert!(sandbox.engine().not_captured(Some(saved)).unwrap().is_empty());
    assert!(!sandbox.root().join("big").exists());
    sandbox
        .execute(&stepback_engine::engine::Operation::Redo)
        .unwrap();
    assert_eq!(
        fs::read(sandbox.root().join("big")).unwrap(),
        random_bytes(3, 4 << 20)
    );
}

/// Files that each are small come to any size together.
#[test]
fn many_small_files_stay_within_the_budget_and_an_edit_is_captured_all_the_same() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("a"), "first").unwrap());
    let bytes = sandbox.engine().store_bytes().unwrap();
    let budget = Budget {
        store: bytes + (4 << 20),
        ..Budget::default()
    };
    sandbox.engine().set_budget(budget);
    let mut seed = 0;
    for round in 0..8 {
        for i in 0..10 {
            seed += 1;
            fs::write(sandbox.root().join(format!("f{i}")), random_bytes(seed, 200_000)).unwrap();
        }
        sandbox.write("a", &format!("edit {round}"));
        let id = sandbox.capture().id;
        let left_out = sandbox.engine().not_captured(Some(id)).unwrap();
        assert!(
            left_out.iter().all(|it| it.reason == Reason::Quota),
            "{left_out:?}"
        );
        assert!(
            left_out.iter().all(|it| it.path.to_string() != "a"),
            "{round}: {left_out:?}"
        );
        assert_eq!(left_out.is_empty(), round < 2, "{round}: {left_out:?}");
    }
    // What small changes may take beyond.
    let used = sandbox.engine().store_bytes().unwrap();
    assert!(used <= budget.store + (4 << 20), "{used} of {}", budget.store);
    assert!(sandbox.engine().verify().unwrap().is_empty());
}

#[test]
fn a_directory_larger_than_the_budget_is_refused_and_leaves_nothing() {
    for (files, store, word) in [(10, u64::MAX, "files"), (1_000, 3 << 20, "MiB")] {
        let sandbox = Sandbox::new();
        for i in 0..20u64 {
            fs::write(sandbox.root().join(format!("f{i}")), random_bytes(i, 300_000)).unwrap();
        }
        let budget = Budget {
            store,
            files,
            ..Budget::default()
        };
        let try_it = |force| {
            let request = AttachRequest {
                path: sandbox.root(),
                here: true,
                force,
                ..AttachRequest::default()
            };
            let env = sandbox.environment();
            let mut engine = Engine::attach(&env, &request, &Sandbox::settings(), Sandbox::now())
                .unwrap()
                .engine;
            engine.set_budget(budget);
            let progress = Progress::default();
            let cx = Context {
                now: Sandbox::now(),
                watch: &NoWatch,
                progress: &progress,
            };
            let captured = engine.capture(Scope::All, &Why::plain(Trigger::Attach), &cx);
            (engine, captured)
        };
        let (engine, refused) = try_it(false);
        match refused {
            Err(error @ Error::RefusedRoot { .. }) => {
                assert!(error.to_string().contains(word), "{error}");
                assert!(error.hint().contains("--force"), "{}", error.hint());
            }
            other => panic!("{other:?}"),
        }
        let store = engine.store_path().to_owned();
        assert!(
            engine.store_bytes().unwrap() < 5 << 20,
            "only the reserve and the like"
        );
        engine.forget_all().unwrap();
        assert!(!store.exists());
        let (engine, captured) = try_it(true);
        captured.unwrap();
        assert!(engine.not_captured(None).unwrap().is_empty());
    }
}

#[test]
fn room_is_made_from_the_oldest_that_may_go() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("a"), "first").unwrap());
    let start = Sandbox::now();
    let mut all = Vec::new();
    for i in 0..10u64 {
        fs::write(sandbox.root().join("big"), random_bytes(i, 2 << 20)).unwrap();
        let then = Time(start.0 + i64::try_from(i).unwrap() * 1_000_000_000);
        all.push(at_time(&mut sandbox, then, |engine, cx| {
            engine
                .capture(Scope::All, &Why::plain(Trigger::Auto), cx)
                .unwrap()
                .id
        }));
    }
    sandbox.engine().pin(all[0], true).unwrap();
    let policy = Policy {
        newest: 2,
        ..Policy::default()
    };
    // All of the last hour: by age alone nothing would go.
    let now = Time(start.0 + 60_000_000_000);
    let gone = at_time(&mut sandbox, now, |engine, cx| {
        engine.make_room(&policy, 14 << 20, cx).unwrap().checkpoints
    });
    assert!(!gone.is_empty() && !gone.contains(&all[0]), "{gone:?}");
    assert!(gone.iter().all(|n| *n < all[8]), "{gone:?}");
    assert!(sandbox.engine().store_bytes().unwrap() <= 14 << 20);
    let gone = at_time(&mut sandbox, now, |engine, cx| {
        engine.make_room(&policy, 0, cx).unwrap().checkpoints
    });
    assert!(!gone.is_empty());
    let left: Vec<u64> = sandbox.engine().checkpoints().iter().map(|c| c.n).collect();
    assert_eq!(left, [all[0], all[8], all[9]]);
    assert!(sandbox.engine().verify().unwrap().is_empty());
}

/// It was given up on a full disk, and there is room again.
#[test]
fn the_reserve_is_made_again() {
    let mut sandbox = Sandbox::with(|root| fs::write(root.join("a"), "first").unwrap());
    let reserve = sandbox.engine().store_path().join("stepback/reserve");
    assert!(reserve.exists());
    fs::remove_file(&reserve).unwrap();
    sandbox.engine().store_bytes().unwrap();
    assert!(reserve.exists(), "after measuring");
    fs::remove_file(&reserve).unwrap();
    sandbox.on(|engine, cx| engine.thin(&only_newest(5), false, cx).unwrap());
    assert!(reserve.exists(), "after thinning");
    fs::remove_file(&reserve).unwrap();
    sandbox.on(|engine, cx| engine.make_room(&only_newest(5), 0, cx).unwrap());
    assert!(reserve.exists(), "after packing");
}
