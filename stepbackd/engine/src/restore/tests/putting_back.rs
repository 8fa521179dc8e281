//! Plans carried out whole.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use super::support::*;
use crate::path::TreePath;

fn pairs(list: &[(&str, char)]) -> Vec<(String, char)> {
    list.iter()
        .map(|(path, status)| ((*path).to_owned(), *status))
        .collect()
}

#[test]
fn every_kind_of_change_is_put_back() {
    let bench = Bench::new();
    bench.write("same", "same");
    bench.write("edited", "v1\n");
    bench.write("removed", "gone");
    bench.write("dir/inner/deep", "deep");
    bench.write("empty-file", "");
    bench.write("to-dir", "file");
    bench.write("to-link", "file");
    bench.write("was-dir/a", "a");
    fs::create_dir(bench.at("empty-dir")).unwrap();
    symlink("nowhere/at/all", bench.at("link")).unwrap();
    bench.write("mode", "x");
    bench.chmod("mode", 0o755);
    bench.write("private", "secret");
    bench.chmod("private", 0o600);
    fs::create_dir(bench.at("closed")).unwrap();
    bench.chmod("closed", 0o700);
    let before = bench.capture();
    let same = fs::metadata(bench.at("same")).unwrap();

    bench.write("edited", "v2\n");
    fs::remove_file(bench.at("removed")).unwrap();
    fs::remove_dir_all(bench.at("dir")).unwrap();
    bench.write("dir", "now a file");
    bench.write("empty-file", "not empty");
    fs::remove_file(bench.at("to-dir")).unwrap();
    bench.write("to-dir/x/y", "in a directory");
    fs::remove_file(bench.at("to-link")).unwrap();
    symlink("/", bench.at("to-link")).unwrap();
    fs::remove_dir_all(bench.at("was-dir")).unwrap();
    symlink("same", bench.at("was-dir")).unwrap();
    fs::remove_dir(bench.at("empty-dir")).unwrap();
    fs::remove_file(bench.at("link")).unwrap();
    symlink("elsewhere", bench.at("link")).unwrap();
    bench.chmod("mode", 0o644);
    bench.chmod("private", 0o644);
    bench.chmod("closed", 0o755);
    bench.write("new/file", "new");
    fs::create_dir(bench.at("new/empty")).unwrap();
    let after = bench.capture();

    let plan = bench.plan(&before);
    assert_eq!(
        shown(&plan),
        pairs(&[
            ("closed", 'M'),
            ("dir", 'T'),
            ("dir/inner/deep", 'A'),
            ("edited", 'M'),
            ("empty-dir", 'A'),
            ("empty-file", 'M'),
            ("link", 'M'),
            ("mode", 'M'),
            ("new/empty", 'D'),
            ("new/file", 'D'),
            ("private", 'M'),
            ("removed", 'A'),
            ("to-dir", 'T'),
            ("to-dir/x/y", 'D'),
            ("to-link", 'T'),
            ("was-dir", 'T'),
            ("was-dir/a", 'A'),
        ])
    );
    let applied = bench.apply(&plan).unwrap();
    assert_eq!((applied.written, applied.removed), (14, 3));
    assert_eq!(applied.kept, []);
    assert_eq!(applied.notes, Vec::<String>::new());
    assert_eq!(bench.capture(), before);
    bench.assert_clean();
    let now = fs::metadata(bench.at("same")).unwrap();
    assert_eq!(
        (now.ino(), now.mtime_nsec(), now.ctime_nsec()),
        (same.ino(), same.mtime_nsec(), same.ctime_nsec())
    );

    bench.rewind(&after);
    assert_eq!(bench.capture(), after);
    bench.assert_clean();
}

#[test]
fn to_the_present_state_is_nothing() {
    let bench = Bench::new();
    bench.write("a", "a");
    let plan = bench.plan(&bench.capture());
    assert!(plan.is_noop());
    assert_eq!(plan.id(), bench.plan(&bench.capture()).id());
}

#[test]
fn odd_names_and_sizes_are_exact() {
    use std::os::unix::ffi::OsStrExt;
    let bench = Bench::new();
    let long = "n".repeat(255);
    let odd: Vec<&[u8]> = vec![
        b"\xff",
        b"new\nline",
        b"-dash",
        b" space",
        b"quote\"'",
        b"*",
        b":(top)x",
        b"%41",
        "naïve.txt".as_bytes(),
        long.as_bytes(),
        b".stepback",
    ];
    let file = |name: &[u8]| bench.root.join(std::ffi::OsStr::from_bytes(name));
    for (i, name) in odd.iter().enumerate() {
        fs::write(file(name), vec![b'x'; i * 20_000]).unwrap();
    }
    let before = bench.capture();
    for name in &odd {
        fs::write(file(name), "v2").unwrap();
    }
    for name in odd.iter().step_by(2) {
        fs::remove_file(file(name)).unwrap();
    }
    bench.rewind(&before);
    assert_eq!(bench.capture(), before);
    bench.assert_clean();
}

#[test]
fn a_fifo_is_made_again() {
    let bench = Bench::new();
    nix::unistd::mkfifo(&bench.at("pipe"), nix::sys::stat::Mode::from_bits_truncate(0o640)).unwrap();
    bench.chmod("pipe", 0o640);
    bench.write("r", "regular");
    let before = bench.capture();
    fs::remove_file(bench.at("pipe")).unwrap();
    fs::remove_file(bench.at("r")).unwrap();
    nix::unistd::mkfifo(&bench.at("r"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    bench.rewind(&before);
    assert_eq!(bench.capture(), before);
}

#[test]
fn user_attributes_come_back() {
    let bench = Bench::new();
    bench.write("a", "a");
    fs::create_dir(bench.at("d")).unwrap();
    if xattr::set(bench.at("a"), "user.colour", b"red\0").is_err() {
        eprintln!("skipped: this file system has no user attributes");
        return;
    }
    xattr::set(bench.at("d"), "user.kind", b"x").unwrap();
    let before = bench.capture();
    bench.write("a", "b");
    xattr::remove(bench.at("a"), "user.colour").unwrap();
    xattr::set(bench.at("a"), "user.other", b"1").unwrap();
    xattr::set(bench.at("d"), "user.kind", b"y").unwrap();
    bench.rewind(&before);
    assert_eq!(bench.capture(), before);
    assert_eq!(
        xattr::get(bench.at("a"), "user.colour").unwrap(),
        Some(b"red\0".to_vec())
    );
    assert_eq!(xattr::get(bench.at("a"), "user.other").unwrap(), None);
}

#[test]
fn a_missing_root_is_made_again() {
    let bench = Bench::new();
    bench.write("d/a", "a");
    bench.chmod("", 0o750);
    let before = bench.capture();
    fs::remove_dir_all(&bench.root).unwrap();
    let applied = bench.rewind(&before);
    assert_eq!(applied.written, 1);
    assert_eq!(bench.capture(), before);
    bench.assert_clean();
}

#[test]
fn the_roots_own_mode_is_put_back() {
    let bench = Bench::new();
    bench.write("a", "a");
    bench.chmod("", 0o711);
    let before = bench.capture();
    bench.chmod("", 0o777);
    let applied = bench.rewind(&before);
    assert_eq!((applied.written, bench.mode("")), (1, 0o711));
}

#[test]
fn what_is_edited_between_plan_and_change_is_kept() {
    let bench = Bench::new();
    for name in ["edit", "remove", "type", "made", "same"] {
        bench.write(name, "v1");
    }
    bench.write("gone/with/me", "v1");
    let before = bench.capture();
    for name in ["edit", "remove", "type", "same"] {
        bench.write(name, "v2");
    }
    fs::remove_file(bench.at("made")).unwrap();
    bench.write("new", "agent");
    bench.write("new-dir/file", "agent");
    bench.write("new-dir/other", "agent");
    let plan = bench.plan(&before);

    bench.write("edit", "v3");
    fs::remove_file(bench.at("remove")).unwrap();
    fs::remove_file(bench.at("type")).unwrap();
    fs::create_dir(bench.at("type")).unwrap();
    bench.write("made", "by hand");
    bench.write("new", "edited by hand");
    bench.write("new-dir/file", "edited by hand");
    let applied = bench.apply(&plan).unwrap();
    let names: Vec<String> = applied.kept.iter().map(|kept| kept.path.to_string()).collect();
    assert_eq!(names, ["edit", "made", "new", "new-dir/file", "remove", "type"]);
    assert_eq!(bench.read("edit"), "v3");
    assert_eq!(bench.read("made"), "by hand");
    assert_eq!(bench.read("new"), "edited by hand");
    assert_eq!(bench.read("new-dir/file"), "edited by hand");
    assert_eq!(bench.read("same"), "v1");
    assert!(!bench.at("remove").exists());
    assert!(bench.at("type").is_dir());
    assert!(!bench.at("new-dir/other").exists());
    bench.assert_clean();
}

#[test]
fn a_file_made_in_a_directory_that_goes_keeps_it() {
    let bench = Bench::new();
    let before = bench.capture();
    bench.write("d/a", "a");
    let plan = bench.plan(&before);
    bench.write("d/b", "by hand");
    let applied = bench.apply(&plan).unwrap();
    assert_eq!(
        kept(&applied.kept),
        [("d".into(), "something was made in it since it was saved".into())]
    );
    assert_eq!(bench.read("d/b"), "by hand");
    assert!(!bench.at("d/a").exists());
}

#[test]
fn a_mode_that_changed_since_is_kept() {
    let bench = Bench::new();
    fs::create_dir(bench.at("d")).unwrap();
    bench.write("f", "f");
    let before = bench.capture();
    bench.chmod("d", 0o700);
    bench.chmod("f", 0o600);
    let plan = bench.plan(&before);
    bench.chmod("d", 0o750);
    bench.chmod("f", 0o640);
    let applied = bench.apply(&plan).unwrap();
    assert_eq!(applied.kept.len(), 2);
    assert_eq!((bench.mode("d"), bench.mode("f")), (0o750, 0o640));
}

#[test]
fn hard_linked_files_are_put_back_and_other_names_keep_their_bytes() {
    let bench = Bench::new();
    bench.write("a", "one");
    fs::hard_link(bench.at("a"), bench.at("b")).unwrap();
    fs::hard_link(bench.at("a"), bench.root.parent().unwrap().join("outside")).unwrap();
    let before = bench.capture();
    fs::write(bench.at("a"), "two").unwrap();
    fs::remove_file(bench.at("b")).unwrap();
    fs::hard_link(bench.at("a"), bench.at("c")).unwrap();
    bench.rewind(&before);
    assert_eq!(bench.capture(), before);
    assert_eq!(
        fs::read_to_string(bench.root.parent().unwrap().join("outside")).unwrap(),
        "two"
    );
}

#[test]
fn selected_paths_make_the_directories_above_them() {
    let bench = Bench::new();
    bench.write("a/b/c", "c");
    bench.write("a/b/d", "d");
    bench.write("a/e", "e");
    bench.chmod("a/b", 0o750);
    let before = bench.capture();
    fs::remove_dir_all(bench.at("a")).unwrap();
    let within = [path("a/b/c")];
    let plan = bench
        .plan_with(&before, &within, crate::restore::OperationKind::Restore, None)
        .unwrap();
    assert_eq!(shown(&plan), pairs(&[("a/b/c", 'A')]));
    bench.apply(&plan).unwrap();
    assert_eq!(bench.read("a/b/c"), "c");
    assert_eq!(bench.mode("a/b"), 0o750);
    assert!(!bench.at("a/e").exists() && !bench.at("a/b/d").exists());

    fs::remove_dir_all(bench.at("a")).unwrap();
    bench.write("a", "a file in the way");
    let plan = bench
        .plan_with(&before, &within, crate::restore::OperationKind::Restore, None)
        .unwrap();
    assert_eq!(shown(&plan), pairs(&[("a", 'T'), ("a/b/c", 'A')]));
    bench.apply(&plan).unwrap();
    assert_eq!(bench.read("a/b/c"), "c");
    assert_eq!(bench.capture()[&TreePath::root()], before[&TreePath::root()]);
}

#[test]
fn a_cancelled_operation_leaves_the_tree_as_it_was() {
    let bench = Bench::new();
    bench.write("a", "v1");
    let target = bench.capture();
    bench.write("a", "v2");
    let before = bench.capture();
    let plan = bench.plan(&target);
    let progress = crate::progress::Progress::default();
    progress.cancel();
    let error = crate::restore::apply(&bench.context(&progress), &plan, header(plan.operation)).unwrap_err();
    assert!(matches!(error, crate::Error::Cancelled), "{error}");
    assert_eq!(bench.capture(), before);
    bench.assert_clean();
}

#[test]
fn a_missing_object_is_named_before_anything_changes() {
    let bench = Bench::new();
    bench.write("a", "v1");
    bench.write("b", "v1 of b");
    let target = bench.capture();
    bench.write("a", "v2");
    bench.write("b", "v2");
    let before = bench.capture();
    let mut plan = bench.plan(&target);
    let missing = crate::oid::Oid::of(crate::oid::ObjectKind::Blob, b"never stored");
    plan.steps[1].to = Some(crate::node::Node::plain(
        crate::node::Kind::File(missing),
        target[&path("b")].perm,
    ));
    let error = bench.apply(&plan).unwrap_err();
    assert!(error.to_string().contains(&missing.to_string()), "{error}");
    assert_eq!(bench.capture(), before);
    bench.assert_clean();
}

#[test]
fn deep_trees_and_many_files_are_exact() {
    let bench = Bench::new();
    let deep = vec!["d"; 300].join("/");
    bench.write(&format!("{deep}/f"), "v1");
    for i in 0..300 {
        bench.write(&format!("many/{}/f{i}", i % 7), format!("v1 {i}"));
    }
    let target = bench.capture();
    fs::remove_dir_all(bench.at("d")).unwrap();
    fs::remove_dir_all(bench.at("many")).unwrap();
    for i in 0..300 {
        bench.write(&format!("many/{}/f{i}", i % 5), format!("v2 {i}"));
    }
    let other = bench.capture();
    bench.rewind(&target);
    assert_eq!(bench.capture(), target);
    bench.rewind(&other);
    assert_eq!(bench.capture(), other);
    bench.assert_clean();
}

#[test]
fn nothing_is_made_again_that_is_as_it_was() {
    let bench = Bench::new();
    bench.write("a", "v1");
    bench.write("b", "v1");
    let target = bench.capture();
    bench.write("a", "v2");
    let plan = bench.plan(&target);
    assert_eq!(plan.steps.len(), 1);
    bench.apply(&plan).unwrap();
    let again = bench.plan(&target);
    assert!(again.is_noop());
}
