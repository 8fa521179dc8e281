//! Trees that change, refuse and mislead while they are put back.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use super::support::*;

#[test]
fn a_directory_swapped_with_a_link_leads_nowhere() {
    let bench = Bench::new();
    let outside = bench.root.parent().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    for i in 0..4 {
        bench.write(&format!("d/f{i}"), "v1");
        fs::write(outside.join(format!("f{i}")), "OUTSIDE").unwrap();
    }
    let target = bench.capture();
    symlink(&outside, bench.root.parent().unwrap().join("link")).unwrap();
    let rounds: u32 = std::env::var("STEPBACK_SWAP_ROUNDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(1000);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let flags = nix::fcntl::RenameFlags::RENAME_EXCHANGE;
            let here = nix::fcntl::AT_FDCWD;
            let link = bench.root.parent().unwrap().join("link");
            while !stop.load(Ordering::Relaxed) {
                nix::fcntl::renameat2(here, &bench.at("d"), here, &link, flags).unwrap();
            }
        });
        let plan = {
            let mut before = target.clone();
            for i in 0..4 {
                let mut node = before[&path(&format!("d/f{i}"))].clone();
                node.perm = crate::node::Perm::of_mode(0o600);
                before.insert(path(&format!("d/f{i}")), node);
            }
            let steps = changes(&before, &target)
                .into_iter()
                .map(|change| crate::restore::Step {
                    path: change.path,
                    from: change.old,
                    to: change.new,
                    extra: false,
                    edited_since: false,
                });
            crate::restore::Plan {
                operation: crate::restore::OperationKind::Rewind,
                steps: steps.collect(),
                kept: vec![],
                not_covered: vec![],
            }
        };
        for _ in 0..rounds {
            // Whether it works depends on the moment; that nothing outside changes doesn't.
            let _ = bench.apply(&plan);
            let _ = bench.recover(true);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 4);
    for i in 0..4 {
        let file = outside.join(format!("f{i}"));
        assert_eq!(fs::read_to_string(&file).unwrap(), "OUTSIDE");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o644);
    }
}

#[test]
fn a_directory_that_became_a_link_to_the_outside_comes_back() {
    let bench = Bench::new();
    let outside = bench.root.parent().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("f"), "OUTSIDE").unwrap();
    bench.write("d/f", "v1");
    let target = bench.capture();
    fs::remove_dir_all(bench.at("d")).unwrap();
    symlink(&outside, bench.at("d")).unwrap();
    bench.rewind(&target);
    assert_eq!(bench.capture(), target);
    assert_eq!(fs::read_to_string(outside.join("f")).unwrap(), "OUTSIDE");

    // The same after the plan was made: the path is kept.
    bench.write("d/f", "v2");
    let plan = bench.plan(&target);
    fs::rename(bench.at("d"), bench.root.parent().unwrap().join("d")).unwrap();
    symlink(&outside, bench.at("d")).unwrap();
    let applied = bench.apply(&plan).unwrap();
    assert_eq!(applied.kept.len(), 1);
    assert_eq!(fs::read_to_string(outside.join("f")).unwrap(), "OUTSIDE");
}

#[test]
fn a_private_file_is_never_wider() {
    let bench = Bench::new();
    bench.write("k.pem", vec![b'1'; 100_000]);
    bench.chmod("k.pem", 0o600);
    let one = bench.capture();
    bench.write("k.pem", vec![b'2'; 100_000]);
    let two = bench.capture();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut looks = 0u32;
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(bench.mode("k.pem") & 0o077, 0);
                looks += 1;
            }
            looks
        });
        for _ in 0..20 {
            bench.rewind(&one);
            bench.rewind(&two);
        }
        stop.store(true, Ordering::Relaxed);
        assert!(watcher.join().unwrap() > 0);
    });
}

#[test]
fn a_file_in_both_states_is_never_missing() {
    let bench = Bench::new();
    bench.write("f", "v1");
    let one = bench.capture();
    bench.write("f", "v2");
    let two = bench.capture();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let text = bench.read("f");
                assert!(text == "v1" || text == "v2", "{text:?}");
            }
        });
        for _ in 0..50 {
            bench.rewind(&one);
            bench.rewind(&two);
        }
        stop.store(true, Ordering::Relaxed);
        watcher.join().unwrap();
    });
}

#[test]
fn an_immutable_file_is_found_before_anything_changes() {
    let bench = Bench::new();
    bench.write("a", "v1");
    bench.write("z", "v1");
    let target = bench.capture();
    bench.write("a", "v2");
    bench.write("z", "v2");
    let before = bench.capture();
    let plan = bench.plan(&target);
    let chattr = |flag: &str| {
        std::process::Command::new("chattr")
            .arg(flag)
            .arg(bench.at("z"))
            .status()
            .is_ok_and(|s| s.success())
    };
    if !is_root() || !chattr("+i") {
        eprintln!("skipped: no immutable files here");
        return;
    }
    let error = bench.apply(&plan).unwrap_err();
    chattr("-i");
    assert!(error.to_string().contains("/z"), "{error}");
    assert_eq!(bench.capture(), before);
    bench.assert_clean();
}

#[test]
fn an_append_only_file_in_the_middle_takes_all_back() {
    let bench = Bench::new();
    for i in 0..20 {
        bench.write(&format!("d{i}/f"), "v1");
    }
    let target = bench.capture();
    for i in 0..20 {
        bench.write(&format!("d{i}/f"), "v2");
    }
    let before = bench.capture();
    let plan = bench.plan(&target);
    let chattr = |flag: &str| {
        std::process::Command::new("chattr")
            .arg(flag)
            .arg(bench.at("d9/f"))
            .status()
            .is_ok_and(|s| s.success())
    };
    if !is_root() || !chattr("+a") {
        eprintln!("skipped: no append-only files here");
        return;
    }
    let error = bench.apply(&plan).unwrap_err();
    chattr("-a");
    assert!(error.to_string().contains("d9/f"), "{error}");
    assert_eq!(bench.capture(), before);
    bench.assert_clean();
}

struct Mount(std::path::PathBuf);

impl Mount {
    fn tmpfs(at: std::path::PathBuf, options: &str) -> Option<Self> {
        let mut mount = std::process::Command::new("mount");
        let status = mount
            .args(["-t", "tmpfs", "-o", options, "none"])
            .arg(&at)
            .status();
        status.is_ok_and(|status| status.success()).then_some(Self(at))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_mount_point_inside_the_root_is_staged_on_its_own_file_system() {
    let bench = Bench::new();
    fs::create_dir(bench.at("m")).unwrap();
    let Some(_mount) = is_root()
        .then(|| Mount::tmpfs(bench.at("m"), "size=8m,mode=755"))
        .flatten()
    else {
        eprintln!("skipped: can't mount here");
        return;
    };
    bench.write("m/deep/f", "v1");
    bench.write("top", "v1");
    let target = bench.capture();
    bench.write("m/deep/f", "v2");
    bench.write("m/new/g", "v2");
    bench.write("top", "v2");
    let after = bench.capture();
    bench.rewind(&target);
    assert_eq!(bench.capture(), target);
    bench.assert_clean();
    bench.rewind(&after);
    assert_eq!(bench.capture(), after);

    // A target without the mount point: what is in it goes, the mount point can't.
    let mut without = target.clone();
    without.retain(|at, _| !at.starts_with(&path("m")));
    let applied = bench.rewind(&without);
    assert_eq!(
        kept(&applied.kept),
        [("m".into(), "something is mounted here".into())]
    );
    assert_eq!(fs::read_dir(bench.at("m")).unwrap().count(), 0);
}

#[test]
fn no_space_for_the_new_versions_leaves_the_tree_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let bench = Bench::below(dir);
    let Some(_mount) = is_root()
        .then(|| Mount::tmpfs(bench.root.clone(), "size=1m,mode=755"))
        .flatten()
    else {
        eprintln!("skipped: can't mount here");
        return;
    };
    for i in 0..8 {
        bench.write(&format!("f{i}"), vec![i; 100_000]);
    }
    let target = bench.capture();
    for i in 0..8 {
        bench.write(&format!("f{i}"), vec![i + 100; 100_000]);
    }
    let before = bench.capture();
    let error = bench.apply(&bench.plan(&target)).unwrap_err();
    assert!(error.is_no_space(), "{error}");
    assert_eq!(bench.capture(), before);
    bench.assert_clean();
}

#[test]
fn owner_group_and_set_id_bits_are_those_of_the_replaced_file() {
    if !is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    let bench = Bench::new();
    for name in ["kept", "new", "given"] {
        bench.write(name, "v1");
    }
    std::os::unix::fs::chown(bench.at("kept"), Some(12), Some(34)).unwrap();
    bench.chmod("kept", 0o4755);
    bench.chmod("new", 0o6755);
    let target = bench.capture();
    bench.write("kept", "v2");
    bench.chmod("kept", 0o644);
    fs::remove_file(bench.at("new")).unwrap();
    let applied = bench.rewind(&target);
    assert_eq!(applied.notes, Vec::<String>::new());
    let stat = fs::metadata(bench.at("kept")).unwrap();
    assert_eq!((stat.uid(), stat.gid(), stat.mode() & 0o7777), (12, 34, 0o4755));
    assert_eq!(bench.capture(), target);
}

#[test]
fn a_set_group_directory_hands_its_group_on() {
    if !is_root() {
        eprintln!("skipped: only root can give directories away");
        return;
    }
    let bench = Bench::new();
    fs::create_dir(bench.at("shared")).unwrap();
    std::os::unix::fs::chown(bench.at("shared"), None, Some(34)).unwrap();
    bench.chmod("shared", 0o2775);
    bench.write("shared/sub/f", "v1");
    bench.write("plain", "v1");
    let target = bench.capture();
    fs::remove_dir_all(bench.at("shared/sub")).unwrap();
    fs::remove_file(bench.at("plain")).unwrap();
    std::os::unix::fs::chown(&bench.root, None, Some(56)).unwrap();
    bench.rewind(&target);
    assert_eq!(bench.capture(), target);
    let gid = |name: &str| fs::metadata(bench.at(name)).unwrap().gid();
    assert_eq!((gid("shared/sub"), gid("shared/sub/f")), (34, 34));
    assert_eq!(gid("plain"), nix::unistd::Gid::effective().as_raw());
}

#[test]
fn what_is_written_to_a_replaced_file_during_the_operation_comes_back() {
    use std::io::Write;
    let bench = Bench::new();
    bench.write("log", "v1");
    let target = bench.capture();
    bench.write("log", "v2");
    // Many other files make the operation long enough to be written into.
    for i in 0..200 {
        bench.write(&format!("x{i}/f"), "x");
    }
    let plan = bench.plan(&target);
    let mut log = fs::OpenOptions::new().append(true).open(bench.at("log")).unwrap();
    let inode = fs::metadata(bench.at("log")).unwrap().ino();
    let wrote = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            // As soon as the file has been swapped out, and before the operation ends.
            loop {
                match fs::metadata(bench.at("log")) {
                    Ok(stat) if stat.ino() == inode => {
                        if !bench.is_unfinished() && bench.read("log") == "done" {
                            return false;
                        }
                        std::hint::spin_loop();
                    }
                    _ => {
                        log.write_all(b" and more").unwrap();
                        return true;
                    }
                }
                if bench.at("stop").exists() {
                    return false;
                }
            }
        });
        let applied = bench.apply(&plan).unwrap();
        fs::write(bench.at("stop"), "").unwrap();
        (writer.join().unwrap(), applied)
    });
    let (wrote, applied) = wrote;
    if wrote && bench.read("log") == "v2 and more" {
        assert_eq!(applied.kept.len(), 1);
    } else {
        assert_eq!(bench.read("log"), "v1");
    }
}

#[test]
fn closed_directories_are_opened_for_their_owner_alone_and_closed_again() {
    let bench = Bench::new();
    bench.write("d/x", "v1");
    bench.write("d/sub/y", "v1");
    bench.write("stays-closed/z", "v1");
    bench.chmod("stays-closed", 0o555);
    let target = bench.capture();
    let user = super::faults::User::nobody();
    bench.write("d/x", "v2");
    bench.write("d/sub/y", "v2");
    bench.chmod("stays-closed", 0o755);
    bench.write("stays-closed/z", "v2");
    bench.chmod("stays-closed", 0o555);
    bench.chmod("d/sub", 0o555);
    bench.chmod("d", 0o555);
    let plan = bench.plan(&target);
    match user.apply(&bench, &plan) {
        None => eprintln!("skipped: can't run as another user"),
        Some(worked) => {
            assert!(worked);
            assert_eq!(bench.capture(), target);
            bench.assert_clean();
        }
    }
}

#[test]
fn a_root_that_cannot_be_written_to_is_staged_further_down() {
    let bench = Bench::new();
    bench.write("d/x", "v1");
    let target = bench.capture();
    bench.write("d/x", "v2");
    let plan = bench.plan(&target);
    let user = super::faults::User::nobody();
    if !user.own(&bench) {
        eprintln!("skipped: can't run as another user");
        return;
    }
    std::os::unix::fs::chown(&bench.root, Some(0), Some(0)).unwrap();
    assert_eq!(user.apply_here(&bench, &plan), Some(true));
    assert_eq!(bench.read("d/x"), "v1");
    bench.assert_clean();
}

#[test]
fn another_users_directory_is_named_before_anything_changes() {
    let bench = Bench::new();
    bench.write("a", "v1");
    bench.write("d/x", "v1");
    let target = bench.capture();
    bench.write("a", "v2");
    bench.write("d/x", "v2");
    let before = bench.capture();
    let plan = bench.plan(&target);
    let user = super::faults::User::nobody();
    if !user.own(&bench) {
        eprintln!("skipped: can't run as another user");
        return;
    }
    std::os::unix::fs::chown(bench.at("d"), Some(0), Some(0)).unwrap();
    assert_eq!(user.apply_here(&bench, &plan), Some(false));
    assert_eq!(bench.capture(), before);
    bench.assert_clean();
}

#[test]
fn a_directory_that_is_to_be_private_is_so_before_its_files_come() {
    let bench = Bench::new();
    bench.write("secrets/key", "v1");
    bench.chmod("secrets", 0o700);
    let target = bench.capture();
    bench.write("secrets/key", "v2");
    bench.chmod("secrets", 0o777);
    let before = bench.capture();
    let inode = fs::metadata(bench.at("secrets/key")).unwrap().ino();
    let plan = bench.plan(&target);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let key = fs::metadata(bench.at("secrets/key")).unwrap().ino();
                let mode = bench.mode("secrets");
                assert!(key == inode || mode & 0o077 == 0, "{mode:o}");
            }
        });
        bench.apply(&plan).unwrap();
        stop.store(true, Ordering::Relaxed);
        watcher.join().unwrap();
    });
    assert_eq!(bench.capture(), target);
    bench.rewind(&before);
    assert_eq!(bench.capture(), before);
}
