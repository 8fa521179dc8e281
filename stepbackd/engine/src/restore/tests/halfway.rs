//! Operations stopped between two of their steps, with somebody else at work.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::fd::AsFd;

use super::support::*;
use crate::node::Kind;
use crate::oid::ObjectKind;
use crate::progress::Progress;
use crate::restore::apply::{report, works_of};
use crate::restore::change::{Changer, Outcome};
use crate::restore::journal::{self, Journal};
use crate::restore::ops::At as Name;
use crate::restore::place::{Ground, Work};
use crate::restore::survey::survey;
use crate::restore::swap::Swap;
use crate::restore::{Applied, Plan, clear_leftovers, staging};
use crate::root::DirHandle;

/// An operation whose changes are made, but not yet looked at again.
struct Halfway<'a> {
    ground: Ground<'a>,
    works: Vec<Work>,
    outcome: Outcome,
    plan: Plan,
}

fn halfway(bench: &Bench, plan: Plan) -> Halfway<'_> {
    let root = DirHandle::open_root(&bench.root).unwrap();
    let works = works_of(&plan);
    let survey = survey(&bench.root, &root, &works).unwrap();
    let journal = Journal::new(header(plan.operation), plan.clone(), survey.generation.clone());
    journal::begin(&bench.journal_dir, &journal).unwrap();
    let mut ground = Ground {
        root_path: &bench.root,
        root,
        stagings: Vec::new(),
        staging_of: BTreeMap::new(),
    };
    ground.staging_of = survey.staging_of;
    staging::make_dirs(&mut ground, &survey.generation.stagings).unwrap();
    staging::stage(&ground, &bench.store, &works, &Progress::default()).unwrap();
    journal::mark_staged(&bench.journal_dir, 0).unwrap();
    let mut outcome = Outcome::default();
    Changer {
        ground: &ground,
        works: &works,
        opened: &[],
    }
    .run(&mut outcome)
    .unwrap();
    Halfway {
        ground,
        works,
        outcome,
        plan,
    }
}

impl Halfway<'_> {
    fn settle(&mut self) -> Applied {
        let changer = Changer {
            ground: &self.ground,
            works: &self.works,
            opened: &[],
        };
        changer.settle(&mut self.outcome).unwrap();
        report(&self.plan, &self.outcome)
    }
}

/// A root with a file that is replaced, one that is removed, and one whose directory goes too; each open for writing.
fn scene() -> (Bench, State, State, Vec<fs::File>) {
    let bench = Bench::new();
    bench.write("replaced", "v1");
    let target = bench.capture();
    bench.write("replaced", "v2");
    bench.write("removed", "v2");
    bench.write("logs/today/log", "v2");
    let before = bench.capture();
    let open = |name: &str| fs::OpenOptions::new().append(true).open(bench.at(name)).unwrap();
    let files = vec![open("replaced"), open("removed"), open("logs/today/log")];
    (bench, target, before, files)
}

const ALL: [&str; 3] = ["logs/today/log", "removed", "replaced"];

fn assert_all_written(bench: &Bench, kept: &[crate::restore::Kept]) {
    for name in ALL {
        assert_eq!(bench.read(name), "v2 and more", "{name}");
    }
    let names: Vec<String> = kept.iter().map(|kept| kept.path.to_string()).collect();
    assert_eq!(names, ALL);
}

#[test]
fn what_is_written_through_an_open_file_before_the_last_look_comes_back() {
    let (bench, target, _, mut files) = scene();
    let mut halfway = halfway(&bench, bench.plan(&target));
    assert!(!bench.at("logs").exists());
    for file in &mut files {
        file.write_all(b" and more").unwrap();
    }
    let applied = halfway.settle();
    assert_all_written(&bench, &applied.kept);
}

#[test]
fn what_was_written_before_a_crash_comes_back_in_the_recovery() {
    for undo in [false, true] {
        let (bench, target, before, mut files) = scene();
        drop(halfway(&bench, bench.plan(&target)));
        // The third one's directory is gone when the operation is finished, not when it is undone.
        let written = if undo { 3 } else { 2 };
        for file in &mut files[..written] {
            file.write_all(b" and more").unwrap();
        }
        let recovered = bench.recover(undo).unwrap().unwrap();
        assert_eq!(bench.read("replaced"), "v2 and more");
        assert_eq!(bench.read("removed"), "v2 and more");
        if undo {
            assert_all_written(&bench, &recovered.kept);
        } else {
            assert_eq!(recovered.kept.len(), 2, "{:?}", recovered.kept);
        }
        let _ = before;
        bench.assert_clean();
    }
}

#[test]
#[cfg(target_os = "linux")]
fn staging_directories_are_in_one_that_the_file_system_spreads() {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let (bench, target, _, _) = scene();
    let probe = fs::File::open(&bench.journal_dir).unwrap();
    if ioctl_setflags(&probe, IFlags::TOPDIR).is_err() {
        eprintln!("skipped: this file system doesn't place directories by a flag");
        return;
    }
    let halfway = halfway(&bench, bench.plan(&target));
    let [outer, inner @ ..] = &halfway.ground.stagings[..] else {
        panic!("{:?}", halfway.ground.stagings);
    };
    let open = fs::File::open(bench.root.join(outer.path().as_path())).unwrap();
    assert!(ioctl_getflags(&open).unwrap().contains(IFlags::TOPDIR));
    assert!(!inner.is_empty());
    for staging in inner {
        assert_eq!(staging.place.parent, outer.path());
    }
    for index in halfway.ground.staging_of.values() {
        assert_ne!(*index, 0, "nothing is staged in the outer one itself");
    }
    drop(halfway);
    bench.recover(false).unwrap();
    bench.assert_clean();
}

#[test]
fn what_others_put_beside_or_into_staging_directories_stays_and_is_named() {
    let (bench, target, _, _) = scene();
    let halfway = halfway(&bench, bench.plan(&target));
    let [outer, inner, ..] = &halfway.ground.stagings[..] else {
        panic!("{:?}", halfway.ground.stagings);
    };
    let (outer, inner) = (outer.path(), inner.path());
    // The name of a step, where none is staged; and a name of no step, where some are.
    fs::write(bench.root.join(outer.as_path()).join("0"), "theirs").unwrap();
    fs::write(bench.root.join(inner.as_path()).join("note"), "theirs too").unwrap();
    drop(halfway);
    let recovered = bench.recover(false).unwrap().unwrap();
    assert_eq!(recovered.kept, []);
    assert_eq!(recovered.rest.left, std::slice::from_ref(&outer));
    let root = DirHandle::open_root(&bench.root).unwrap();
    let (went, stays) = clear_leftovers(&root, &bench.store, &recovered.rest.left).unwrap();
    assert!(!went);
    let (_, inner_name) = inner.split_last().unwrap();
    let names = format!("{}/note, 0 in it", String::from_utf8_lossy(inner_name));
    let [stays] = &stays[..] else { panic!("{stays:?}") };
    assert!(stays.path == outer && stays.reason.contains(&names), "{stays:?}");
    assert_eq!(
        fs::read(bench.root.join(outer.as_path()).join("0")).unwrap(),
        b"theirs"
    );
    assert_eq!(
        fs::read(bench.root.join(inner.as_path()).join("note")).unwrap(),
        b"theirs too"
    );
}

#[test]
fn a_link_in_the_place_of_the_staging_directories_hinders_nothing_and_is_not_followed() {
    let (bench, target, _, _) = scene();
    let halfway = halfway(&bench, bench.plan(&target));
    let outer = halfway.ground.stagings[0].path();
    drop(halfway);
    let at = bench.root.join(outer.as_path());
    let aside = bench.root.join("aside");
    fs::rename(&at, &aside).unwrap();
    std::os::unix::fs::symlink("aside", &at).unwrap();
    let there = fs::read_dir(&aside).unwrap().count();
    let recovered = bench.recover(false).unwrap().unwrap();
    assert_eq!(recovered.kept, []);
    assert!(at.is_symlink() && fs::read_dir(&aside).unwrap().count() == there);
    assert!(!bench.is_unfinished());
    fs::remove_file(&at).unwrap();
    fs::remove_dir_all(&aside).unwrap();
    assert_eq!(bench.capture(), target);
}

#[test]
fn bytes_that_can_go_nowhere_are_given_to_the_store() {
    let (bench, target, _, mut files) = scene();
    drop(halfway(&bench, bench.plan(&target)));
    files[0].write_all(b" and more").unwrap();
    bench.write("replaced", "a third version");
    let recovered = bench.recover(false).unwrap().unwrap();
    assert_eq!(bench.read("replaced"), "a third version");
    assert_eq!(kept(&recovered.kept)[0].0, "replaced");
    let Kind::File(oid) = recovered.rest.overtaken[&path("replaced")].kind else {
        panic!("{:?}", recovered.rest);
    };
    assert_eq!(bench.store.read(oid, ObjectKind::Blob).unwrap(), b"v2 and more");
    // Until something names them there, they stay.
    let [left] = &recovered.rest.left[..] else {
        panic!("{:?}", recovered.rest);
    };
    assert_eq!(fs::read_dir(bench.root.join(left.as_path())).unwrap().count(), 1);
    assert!(!bench.is_unfinished());
    let root = DirHandle::open_root(&bench.root).unwrap();
    let (went, stays) = clear_leftovers(&root, &bench.store, &recovered.rest.left).unwrap();
    assert!(went && stays.is_empty(), "{stays:?}");
    bench.assert_clean();
}

#[test]
fn a_crash_after_all_changes_is_finished_or_undone_exactly() {
    for undo in [false, true] {
        let (bench, target, before, _) = scene();
        drop(halfway(&bench, bench.plan(&target)));
        let recovered = bench.recover(undo).unwrap().unwrap();
        assert_eq!(recovered.kept, []);
        assert_eq!(bench.capture(), if undo { before } else { target });
        bench.assert_clean();
    }
}

#[test]
fn without_an_exchange_a_path_is_compared_first() {
    let bench = Bench::new();
    bench.write("a", "v1");
    let target = bench.capture();
    bench.write("a", "v2");
    let saved = bench.capture();
    let (from, to) = (saved[&path("a")].clone(), target[&path("a")].clone());
    let work = Work {
        step: 0,
        path: path("a"),
        from: Some(from.clone()),
        to: Some(to.clone()),
        lenient: false,
        ready: None,
    };
    let root = DirHandle::open_root(&bench.root).unwrap();
    let swap = Swap {
        work: &work,
        there: Name(root.as_fd(), b"a"),
        staged: Name(root.as_fd(), b"staged"),
    };
    bench.write("staged", "v1");
    bench.write("a", "v3");
    let kept = swap.replace_without_exchange(&from, &to).unwrap();
    assert!(matches!(kept, crate::restore::change::Done::Kept(_)));
    assert_eq!(bench.read("a"), "v3");
    bench.write("a", "v2");
    swap.replace_without_exchange(&from, &to).unwrap();
    assert_eq!(bench.read("a"), "v1");
}
