//! The table of `restore::table`, walked on real directories: each thing that may stand at a path, against each thing
//! that the target may have there, at the top, in a directory that the target doesn't have, and below a path at which
//! the target has a file.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use super::support::*;
use crate::node::{Kind, Reason};
use crate::oid::{ObjectKind, Oid};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Thing {
    GitInside,
    UnknownAsNoted,
    UnknownChanged,
    TooLarge,
    Socket,
    Fifo,
    IgnoredFifo,
    Dir,
    IgnoredNow,
    IgnoredThen,
    IgnoredLink,
    IgnoredDir,
    Captured,
    Link,
    ChangedSince,
    Appeared,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    File,
    Dir,
    Link,
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Top,
    InNewDir,
    BelowFile,
}

/// What is expected of the thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The target's version is there.
    Goal,
    /// The same, and the thing's bytes were captured first.
    GoalAfterCapture,
    /// It is there as it was, and nothing is said.
    Silent,
    /// It is there as it was, and named.
    Kept,
    /// It is there as it was, and named as not covered.
    NotCovered,
}

fn fate(thing: Thing, goal: Goal, place: Place) -> Fate {
    let in_the_way = goal != Goal::Nothing || place == Place::BelowFile;
    match thing {
        Thing::GitInside if goal == Goal::Dir => Fate::Silent,
        Thing::UnknownAsNoted => Fate::NotCovered,
        Thing::GitInside
        | Thing::UnknownChanged
        | Thing::TooLarge
        | Thing::Socket
        | Thing::ChangedSince
        | Thing::Appeared => Fate::Kept,
        Thing::IgnoredFifo => Fate::GoalAfterCapture,
        Thing::Fifo | Thing::Dir | Thing::Captured | Thing::Link => Fate::Goal,
        Thing::IgnoredNow | Thing::IgnoredLink | Thing::IgnoredDir if in_the_way => Fate::GoalAfterCapture,
        Thing::IgnoredThen if in_the_way => Fate::Goal,
        Thing::IgnoredNow | Thing::IgnoredLink | Thing::IgnoredDir | Thing::IgnoredThen => Fate::Silent,
    }
}

const KEEP: &str = "KEEP\n";

fn make_goal(bench: &Bench, goal: Goal, place: Place) {
    match goal {
        Goal::File => bench.write("t", "goal"),
        Goal::Dir => bench.write("t/child", "goal"),
        Goal::Link => symlink("goal", bench.at("t")).unwrap(),
        Goal::Nothing => {}
    }
    if place == Place::BelowFile {
        bench.write("p", "goal");
    }
    bench.write("other", "v1");
}

fn make_thing(bench: &Bench, thing: Thing, at: &str) {
    if let Some((parent, _)) = at.rsplit_once('/') {
        fs::create_dir_all(bench.at(parent)).unwrap();
    }
    match thing {
        Thing::GitInside => {
            bench.write(&format!("{at}/.git/HEAD"), KEEP);
            bench.write(&format!("{at}/work"), "captured");
        }
        Thing::UnknownAsNoted => {
            bench.write(at, KEEP);
            bench.unknown_then(at, Reason::TooLarge);
            bench.unknown_now(at, Reason::TooLarge);
        }
        Thing::UnknownChanged => {
            bench.write(at, "less");
            bench.unknown_then(at, Reason::TooLarge);
            bench.write(at, KEEP);
        }
        Thing::TooLarge => {
            bench.write(at, KEEP);
            bench.unknown_now(at, Reason::TooLarge);
        }
        Thing::Socket => {
            UnixListener::bind(bench.at(at)).unwrap();
            bench.unknown_now(at, Reason::Special);
        }
        Thing::Fifo | Thing::IgnoredFifo => {
            nix::unistd::mkfifo(&bench.at(at), nix::sys::stat::Mode::S_IRWXU).unwrap();
        }
        Thing::Dir => {
            bench.write(&format!("{at}/x/y"), KEEP);
            fs::create_dir(bench.at(at).join("empty")).unwrap();
        }
        Thing::IgnoredLink | Thing::Link => symlink(KEEP, bench.at(at)).unwrap(),
        Thing::IgnoredDir => bench.write(&format!("{at}/x/y"), KEEP),
        Thing::IgnoredNow | Thing::IgnoredThen | Thing::Captured | Thing::ChangedSince => {
            bench.write(at, KEEP)
        }
        Thing::Appeared => {}
    }
    match thing {
        Thing::IgnoredNow | Thing::IgnoredLink | Thing::IgnoredDir | Thing::IgnoredFifo => bench.ignore(at),
        Thing::IgnoredThen => {
            bench.ignored_then.borrow_mut().insert(path(at));
        }
        _ => {}
    }
}

/// The bytes that must not be lost, wherever the thing has them.
fn bytes_of(bench: &Bench, thing: Thing, at: &str) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt;
    match thing {
        Thing::GitInside => fs::read(bench.at(at).join(".git/HEAD")).ok(),
        Thing::Dir | Thing::IgnoredDir => fs::read(bench.at(at).join("x/y")).ok(),
        Thing::Link | Thing::IgnoredLink => fs::read_link(bench.at(at))
            .ok()
            .map(|target| target.into_os_string().into_vec()),
        Thing::Fifo | Thing::IgnoredFifo | Thing::Socket => {
            use std::os::unix::fs::FileTypeExt;
            let kind = fs::symlink_metadata(bench.at(at)).ok()?.file_type();
            (kind.is_fifo() || kind.is_socket()).then(|| KEEP.into())
        }
        _ => fs::read(bench.at(at)).ok(),
    }
}

fn check(thing: Thing, goal: Goal, place: Place) {
    let what = format!("{thing:?} where the target has {goal:?}, {place:?}");
    let bench = Bench::new();
    make_goal(&bench, goal, place);
    let target = bench.capture();
    for entry in fs::read_dir(&bench.root).unwrap() {
        let entry = entry.unwrap().path();
        if entry.is_dir() && !entry.is_symlink() {
            fs::remove_dir_all(entry).unwrap();
        } else {
            fs::remove_file(entry).unwrap();
        }
    }
    let at = match place {
        Place::Top => "t",
        Place::InNewDir => "v/t",
        Place::BelowFile => "p/t",
    };
    make_thing(&bench, thing, at);
    bench.write("other", "v2");
    if place != Place::Top {
        bench.write(&at.replace('t', "beside"), "captured");
    }
    let plan = bench.plan(&target);
    if matches!(thing, Thing::ChangedSince | Thing::Appeared) {
        bench.write(at, "changed");
    }
    let before = bytes_of(&bench, thing, at);
    let applied = bench.apply(&plan).unwrap();
    let kept = kept(&applied.kept);
    let not_covered: Vec<String> = plan
        .not_covered
        .iter()
        .map(|entry| entry.path.to_string())
        .collect();

    assert_eq!(bench.read("other"), "v1", "{what}");
    if place != Place::Top {
        // What is captured beside it goes in any case.
        assert!(!bench.at(&at.replace('t', "beside")).exists(), "{what}");
    }
    let expected = fate(thing, goal, place);
    match expected {
        Fate::Goal | Fate::GoalAfterCapture => {
            assert_eq!(kept, [], "{what}");
            bench.ignored.borrow_mut().clear();
            let mut now = bench.capture();
            if thing == Thing::IgnoredDir && goal == Goal::Dir {
                // Both have a directory: what is ignored in it is in nobody's way.
                assert!(now.remove(&path("t/x/y")).is_some() && now.remove(&path("t/x")).is_some());
            }
            assert_eq!(now, target, "{what}");
        }
        Fate::Silent => assert_eq!(kept, [], "{what}"),
        Fate::Kept => assert!(!kept.is_empty(), "{what}"),
        Fate::NotCovered => assert_eq!(not_covered, [at], "{what}"),
    }
    if expected != Fate::NotCovered {
        assert_eq!(not_covered, Vec::<String>::new(), "{what}");
    }
    if !matches!(expected, Fate::Goal | Fate::GoalAfterCapture) {
        assert_eq!(bytes_of(&bench, thing, at), before, "{what}");
    }
    if expected == Fate::GoalAfterCapture && !(thing == Thing::IgnoredDir && goal == Goal::Dir) {
        let extras = plan.extras();
        let extra = extras.iter().find(|(extra, _)| extra.starts_with(&path(at)));
        assert!(extra.is_some(), "{what}");
        for node in extras.values() {
            if let Kind::File(oid) | Kind::Link(oid) = node.kind {
                assert_eq!(oid, Oid::of(ObjectKind::Blob, KEEP.as_bytes()), "{what}");
                assert_eq!(
                    bench.store.read(oid, ObjectKind::Blob).unwrap(),
                    KEEP.as_bytes(),
                    "{what}"
                );
            }
        }
    } else if !matches!(expected, Fate::GoalAfterCapture) {
        assert!(plan.extras().is_empty(), "{what}");
    }
    bench.assert_clean();
}

#[test]
fn the_whole_table_holds_on_disk() {
    let things = [
        Thing::GitInside,
        Thing::UnknownAsNoted,
        Thing::UnknownChanged,
        Thing::TooLarge,
        Thing::Socket,
        Thing::Fifo,
        Thing::IgnoredFifo,
        Thing::Dir,
        Thing::IgnoredNow,
        Thing::IgnoredThen,
        Thing::IgnoredLink,
        Thing::IgnoredDir,
        Thing::Captured,
        Thing::Link,
        Thing::ChangedSince,
        Thing::Appeared,
    ];
    for thing in things {
        let target_has_it = !matches!(thing, Thing::UnknownAsNoted | Thing::UnknownChanged);
        for goal in [Goal::File, Goal::Dir, Goal::Link, Goal::Nothing] {
            // A target that doesn't know a path has nothing there; nothing can appear where nothing is wanted; and an
            // ignored FIFO in a directory that stays is looked for by nobody.
            let can_be = match goal {
                Goal::Nothing => !matches!(thing, Thing::Appeared | Thing::IgnoredFifo),
                Goal::File | Goal::Dir | Goal::Link => target_has_it,
            };
            if can_be {
                check(thing, goal, Place::Top);
            }
        }
        check(thing, Goal::Nothing, Place::InNewDir);
        check(thing, Goal::Nothing, Place::BelowFile);
    }
}

#[test]
fn a_clone_made_since_loses_its_working_files_and_keeps_its_git() {
    let bench = Bench::new();
    bench.write("a", "a");
    let before = bench.capture();
    bench.write("clone/.git/config", "[core]");
    bench.write("clone/src/main.c", "int main");
    bench.write("clone/sub/.git", "gitdir: ../.git/modules/sub");
    bench.write("clone/sub/file", "x");
    let after = bench.capture();
    let applied = bench.rewind(&before);
    assert_eq!(
        kept(&applied.kept),
        [
            ("clone".into(), ".git inside".into()),
            ("clone/sub".into(), ".git inside".into())
        ]
    );
    assert_eq!(bench.read("clone/.git/config"), "[core]");
    assert_eq!(bench.read("clone/sub/.git"), "gitdir: ../.git/modules/sub");
    assert!(!bench.at("clone/src").exists());
    bench.rewind(&after);
    assert_eq!(bench.capture(), after);
}

#[test]
fn what_an_ignore_rule_of_the_target_covered_stays() {
    let bench = Bench::new();
    bench.write("a", "a");
    bench.ignored_then.borrow_mut().insert(path("cache"));
    let before = bench.capture();
    bench.write("cache/k", "KEEP\n");
    let plan = bench.plan(&before);
    assert!(plan.is_noop() && plan.kept.is_empty());
}

#[test]
fn below_an_unreadable_directory_of_the_target_nothing_is_touched() {
    let bench = Bench::new();
    fs::create_dir(bench.at("locked")).unwrap();
    bench.unknown_then("locked", Reason::Unreadable);
    bench.write("locked/f", "now readable");
    let plan = bench.plan(&State::from([(
        crate::path::TreePath::root(),
        bench.capture()[&path("")].clone(),
    )]));
    assert!(plan.is_noop());
    assert_eq!(
        kept(&plan.kept),
        [("locked".into(), "not in the checkpoint (unreadable)".into())]
    );
}

#[test]
fn a_directory_that_a_mount_kept_out_is_kept_as_that() {
    let bench = Bench::new();
    bench.write("a", "v1");
    let before = bench.capture();
    fs::create_dir(bench.at("m")).unwrap();
    bench.unknown_then("m", Reason::Special);
    bench.write("m/f", "there now");
    let applied = bench.rewind(&before);
    assert_eq!(
        kept(&applied.kept),
        [(
            "m".into(),
            "not in the checkpoint (what is mounted there had changed)".into()
        )]
    );
}

#[test]
fn a_file_that_grew_over_the_cap_is_kept_and_named() {
    let bench = Bench::new();
    bench.write("big", "small");
    bench.write("a", "v1");
    let before = bench.capture();
    bench.write("big", "large");
    bench.write("big2", "born large");
    bench.write("a", "v2");
    bench.unknown_now("big", Reason::TooLarge);
    bench.unknown_now("big2", Reason::TooLarge);
    let applied = bench.rewind(&before);
    let reason = "not in the checkpoint (too-large)";
    assert_eq!(
        kept(&applied.kept),
        [("big".into(), reason.into()), ("big2".into(), reason.into())]
    );
    assert_eq!(
        (bench.read("big"), bench.read("big2"), bench.read("a")),
        ("large".into(), "born large".into(), "v1".into())
    );
}

#[test]
fn a_redo_takes_back_what_has_become_ignored_and_marks_later_edits() {
    let bench = Bench::new();
    bench.write("a", "v2");
    bench.write("b", "v2");
    let target = bench.capture();
    bench.write("a", "v1");
    bench.write("b", "v1");
    bench.write("made", "by the rewind");
    bench.write("cache/made", "by the rewind");
    bench.write("edited-ignored", "by the rewind");
    let left = bench.capture();
    bench.write("b", "edited");
    bench.write("edited-ignored", "edited");
    for ignored in ["made", "cache", "edited-ignored"] {
        bench.ignore(ignored);
    }
    let left_by = |path: &crate::path::TreePath| left.get(path).cloned();
    bench.asked.borrow_mut().extend(left.keys().cloned());
    let redo = || {
        let operation = crate::restore::OperationKind::Redo;
        bench.plan_with(&target, &[], operation, Some(&left_by)).unwrap()
    };
    let plan = redo();
    let edited: Vec<_> = plan
        .changes()
        .into_iter()
        .map(|change| (change.path.to_string(), change.status, change.edited_since))
        .collect();
    assert_eq!(
        edited,
        [
            ("a".into(), 'M', false),
            ("b".into(), 'M', true),
            ("cache/made".into(), 'D', false),
            ("made".into(), 'D', false)
        ]
    );
    assert!(plan.extras().contains_key(&path("made")));
    bench.write("cache/made", "ignored, and edited");
    assert_eq!(
        shown(&redo()).len(),
        3,
        "what is ignored and not as it was left stays"
    );
    bench.write("cache/made", "by the rewind");
    let applied = bench.apply(&plan).unwrap();
    assert_eq!(applied.kept, []);
    assert_eq!(bench.capture(), target);
    assert!(!bench.at("cache").exists() && !bench.at("made").exists());
    assert_eq!(bench.read("edited-ignored"), "edited");
}
