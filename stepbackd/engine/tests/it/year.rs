//! A year of work in one test: the time is an argument.

use std::collections::BTreeSet;

use stepback_engine::checkpoint::Trigger;
use stepback_engine::engine::{Budget, Engine, Operation, Scope, Select, Why};
use stepback_engine::retention::{self, Candidate, Policy};
use stepback_engine::store::{Interrupt, Maintained, Store, Thoroughness};
use stepback_engine::time::Time;

use crate::support::{Sandbox, at_time, fsck, random_bytes, scale};

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 24 * 3600 * SECOND;
/// When no room could be made, so many captures pass before the next try.
const TRY_AGAIN: usize = 50;
/// Captures go over the limit by small files, refs and records, until room is tried to be made again.
const SLACK: u64 = 4 << 20;

/// The moment of capture `i` of `count`: eight busy hours of each day.
fn moment(start: Time, i: usize, count: usize) -> Time {
    let part = |whole: i64| i64::try_from(i).unwrap() * whole / i64::try_from(count).unwrap();
    let day = part(365);
    let within = part(365 * 8 * 3600) - day * 8 * 3600;
    Time(start.0 + day * DAY + (9 * 3600 + within) * SECOND)
}

fn candidates(engine: &Engine) -> Vec<Candidate> {
    engine.checkpoints().iter().map(Candidate::from).collect()
}

#[test]
fn policy_and_quota_hold_all_year() {
    let count = scale(500, 60_000);
    let mut sandbox = Sandbox::with(|root| std::fs::write(root.join("a"), "first").unwrap());
    let git = sandbox.environment().git;
    let Some(program) = &git.program else {
        println!("skipped: git is not installed");
        return;
    };
    // With the reserve of 4 MiB. Tight: now and then room has to be made. But what is kept for ever has to fit, and each may
    // hold a large file of its own: small captures go on above the limit when nothing else is left.
    let quota = if count > 10_000 { 160 << 20 } else { 24 << 20 };
    let (pin_every, name_every) = if count > 10_000 {
        (1_999, 2_999)
    } else {
        (499, 997)
    };
    let budget = Budget {
        store: quota,
        ..Budget::default()
    };
    let policy = Policy::default();
    let start = Sandbox::now();
    let mut for_ever = BTreeSet::new();
    let mut session: Option<(String, u64)> = None;
    let (mut pinned, mut largest, mut refused, mut try_from) = (0, 0, 0u64, 0);
    for i in 0..count {
        let now = moment(start, i, count);
        // Sources grow and shrink by lines; now and then something large that doesn't compress.
        let file = format!("src/f{}.rs", i % 23);
        let lines = 40 + i % 97;
        let text: String = (0..lines)
            .map(|l| format!("line {l} of {}\n", (i / 23) * 31 + l % (1 + i % 5)))
            .collect();
        sandbox.write(&file, &text);
        if i % 211 == 0 {
            std::fs::write(sandbox.root().join("blob"), random_bytes(i as u64, 1_200_000)).unwrap();
        }
        let why = Why {
            trigger: if i % 7 == 0 {
                Trigger::TurnEnd
            } else {
                Trigger::Auto
            },
            label: (i % name_every == 0).then(|| format!("milestone {i}")),
            ..Why::plain(Trigger::Auto)
        };
        let captured = at_time(&mut sandbox, now, |engine, cx| {
            engine.set_budget(budget);
            engine.capture(Scope::All, &why, cx).unwrap()
        });
        if why.label.is_some() {
            for_ever.insert(captured.id);
        }
        if i % pin_every == pin_every - 1 {
            sandbox.engine().pin(captured.id, true).unwrap();
            for_ever.insert(captured.id);
            pinned += 1;
        }
        if i % 301 == 0 {
            at_time(&mut sandbox, now, |engine, cx| {
                if let Some((name, _)) = session.take() {
                    engine.session_end(Some(&name), cx).unwrap();
                }
                session = Some(engine.session_start(None, None, None, cx).unwrap());
            });
        }
        if i % 173 == 172 {
            let to = sandbox.engine().checkpoints().iter().rev().nth(3).unwrap().n;
            at_time(&mut sandbox, now, |engine, cx| {
                engine
                    .execute(&Operation::Rewind(Some(Select::Number(to))), None, cx)
                    .unwrap()
            });
        }
        // As the daemon does it.
        let kept = retention::kept_anyway(&candidates(sandbox.engine()), now, &policy, &BTreeSet::new());
        let is_pressed = sandbox.engine().usage().unwrap().room(&budget) == 0
            || !sandbox.engine().not_captured(None).unwrap().is_empty();
        let pressed = is_pressed && i >= try_from;
        refused += u64::from(!sandbox.engine().not_captured(None).unwrap().is_empty());
        at_time(&mut sandbox, now, |engine, cx| {
            if pressed {
                engine.make_room(&policy, quota - 3 * (1 << 20), cx).unwrap();
                if engine.usage().unwrap().room(&budget) < 2 << 20 {
                    try_from = i + TRY_AGAIN;
                }
            } else if i % 11 == 0 {
                engine.thin(&policy, false, cx).unwrap();
            }
        });
        let engine = sandbox.engine();
        let there: BTreeSet<u64> = engine.checkpoints().iter().map(|c| c.n).collect();
        assert!(for_ever.is_subset(&there), "at {i}");
        assert!(kept.is_subset(&there), "at {i}");
        let open = session.as_ref().map(|(_, start)| *start);
        assert!(open.is_none_or(|n| there.contains(&n)), "at {i}");
        for entry in engine.redo_stack() {
            assert!(
                there.contains(&entry.target) && there.contains(&entry.before),
                "redo at {i}"
            );
        }
        let bytes = engine.usage().unwrap().store;
        largest = largest.max(bytes);
        assert!(bytes <= quota + SLACK, "{bytes} bytes at {i}");
        if i % 11 == 0 && !pressed {
            let none = retention::thin(&candidates(engine), now, &policy, &protected(engine, open));
            assert!(none.is_empty(), "at {i}: {none:?}");
        }
        if i % 50 == 49 {
            let store = Store::open(engine.store_path()).unwrap();
            let measured = store.disk_bytes().unwrap();
            assert!(measured <= quota + SLACK, "{measured} bytes measured at {i}");
            if store.wants_folding().unwrap() || i % 500 == 499 {
                let how = if i % 1_000 == 999 {
                    Thoroughness::Full
                } else {
                    Thoroughness::Fold
                };
                let done = store
                    .maintain(Some(program), git.path.as_deref(), how, &Interrupt::default())
                    .unwrap();
                assert!(matches!(done, Maintained::Done { .. }));
            }
        }
        if i % (count / 24) == 0 {
            println!(
                "day {:3}: {:5} captures, {:4} checkpoints, {:6} KiB",
                (now.0 - start.0) / DAY,
                i,
                there.len(),
                bytes >> 10
            );
        }
    }
    let engine = sandbox.engine();
    println!(
        "{count} captures, {} checkpoints left, {pinned} pinned, at most {} KiB, {refused} times something was left out",
        engine.checkpoints().len(),
        largest >> 10
    );
    assert!(engine.verify().unwrap().is_empty());
    fsck(engine.store_path());
    sandbox.reopen(true);
    let there: BTreeSet<u64> = sandbox.engine().checkpoints().iter().map(|c| c.n).collect();
    assert!(for_ever.is_subset(&there));
    let oldest = *for_ever.first().unwrap();
    sandbox.rewind(oldest);
}

/// The clock is a year behind for a while.
#[test]
fn a_clock_that_jumps_costs_nothing_that_it_is_wrong_about() {
    let mut sandbox = Sandbox::with(|root| std::fs::write(root.join("a"), "first").unwrap());
    let policy = Policy {
        newest: 5,
        ..Policy::default()
    };
    let right = Sandbox::now();
    let capture = |sandbox: &mut Sandbox, text: &str, now: Time| {
        sandbox.write("a", text);
        let why = Why::plain(Trigger::Auto);
        at_time(sandbox, now, |engine, cx| {
            engine.capture(Scope::All, &why, cx).unwrap().id
        })
    };
    let prune = |sandbox: &mut Sandbox, now: Time| {
        at_time(sandbox, now, |engine, cx| {
            engine.prune(&policy, false, cx).unwrap().checkpoints
        })
    };
    let before: Vec<u64> = (0..20)
        .map(|i| capture(&mut sandbox, &format!("right {i}"), Time(right.0 + i * SECOND)))
        .collect();
    // Behind: what is of the future stays, numbers go on, and what is made now is young.
    let behind = Time(right.0 - 365 * DAY);
    assert!(prune(&mut sandbox, behind).is_empty());
    let made: Vec<u64> = (0..10)
        .map(|i| capture(&mut sandbox, &format!("behind {i}"), Time(behind.0 + i * SECOND)))
        .collect();
    assert!(made[0] > *before.last().unwrap());
    assert!(prune(&mut sandbox, Time(behind.0 + 60 * SECOND)).is_empty());
    let position = sandbox.engine().position();
    assert_eq!(position, made.last().copied());
    // Right again: what has the time of a year ago is old, but for the newest; the others are as young as they are.
    let gone = prune(&mut sandbox, Time(right.0 + 60 * SECOND));
    assert!(gone.iter().all(|n| made.contains(n)), "{gone:?}");
    assert!(gone.len() <= made.len() - 5);
    let there: BTreeSet<u64> = sandbox.engine().checkpoints().iter().map(|c| c.n).collect();
    assert!(before.iter().all(|n| there.contains(n)));
    sandbox.rewind(before[7]);
    assert_eq!(std::fs::read(sandbox.root().join("a")).unwrap(), b"right 7");
    assert!(sandbox.engine().verify().unwrap().is_empty());
    fsck(sandbox.engine().store_path());
}

/// What the engine holds back beside what checkpoints are.
fn protected(engine: &Engine, open: Option<u64>) -> BTreeSet<u64> {
    let redo = engine
        .redo_stack()
        .iter()
        .flat_map(|entry| [entry.target, entry.before]);
    let pins = engine
        .checkpoints()
        .iter()
        .map(|c| c.n)
        .filter(|n| engine.pinned(*n));
    redo.chain(pins).chain(open).chain(engine.position()).collect()
}
