//! Trees that mislead, refuse and change while they are captured or put back: nothing outside the root changes, nothing
//! hangs, and what can't be captured is named.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use serde_json::json;
use stepback_tests::{Project, Sandbox, eventually, pause};

use crate::support::{Mount, long_deadline, paths, round_trip, rounds};

/// Names and inodes in a directory that nobody may touch.
fn far_tree(project: &Project<'_>) -> String {
    project
        .sh("find . -printf '%p %i %m %s %T@ %l\n' | LC_ALL=C sort")
        .text()
}

/// Links to everything and nothing, loops, and a web of links in which a watcher that follows them never ends.
#[test]
fn b45_links_to_anywhere_are_links_and_nothing_else() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let outside = sandbox.project("outside");
    outside.sh("printf 'OUTSIDE\n' > f; mkdir d; printf 'OUTSIDE\n' > d/f");
    project.sh(
        "ln -s / root; ln -s .. up; ln -s loop loop; ln -s one two; ln -s two one; ln -s '' empty 2>/dev/null || true
         ln -s ../outside out; ln -s ../outside/f file; ln -s /proc/self/fd/0 proc; ln -s /dev/zero zero
         for i in 1 2 3 4 5 6 7 8 9 10 11 12; do mkdir w$i; for j in 1 2 3 4 5 6 7 8 9 10 11 12; do ln -s ../w$j w$i/l$j; done; done
         printf 'v1\n' > a",
    );
    let (tree, far) = (project.tree(), far_tree(&outside));
    let started = Instant::now();
    project.attach();
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
    let first = project.save();
    let status = project.status();
    assert_eq!(status["not_captured"], json!([]));
    assert!(status["watches"].as_u64().unwrap() <= 20, "{status}");
    let ids = project.ids();
    outside.sh("printf 'OUTSIDE too\n' > f; printf 'OUTSIDE\n' > f");
    project.settle();
    assert_eq!(project.ids(), ids, "what happens beyond a link is no change");
    project.sh("rm root up loop one two out file proc zero; rm -r w7; mkdir out; printf 'v2\n' > out/f; printf 'v2\n' > file; ln -s / a2");
    let edited = project.tree();
    project.save();
    project.rewind(first);
    tree.same(&project.tree(), "after rewind");
    project.redo();
    edited.same(&project.tree(), "after redo");
    let strip = |text: &str| {
        text.lines()
            .filter(|l| !l.starts_with("./f "))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(strip(&far_tree(&outside)), strip(&far));
    assert_eq!(outside.read("f"), b"OUTSIDE\n");
}

/// A FIFO that nobody writes to, a socket and a device: no capture waits for them, a rewind leaves them.
#[test]
fn b47_fifos_sockets_and_devices_hold_nothing_up() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh(
        "mkfifo pipe.py; printf 'v1\n' > a; printf 'regular\n' > r; printf 'regular\n' > q; mkdir sockets",
    );
    let _socket = UnixListener::bind(project.file("sockets/s.sock")).unwrap();
    let device = mknod(
        &project.file("null"),
        SFlag::S_IFCHR,
        Mode::S_IRWXU,
        makedev(1, 3),
    )
    .is_ok();
    if !device {
        println!("skipped: devices, which only root can make");
    }
    let started = Instant::now();
    project.attach();
    let first = project.save();
    let inodes =
        || ["pipe.py", "sockets/s.sock"].map(|f| fs::symlink_metadata(project.file(f)).unwrap().ino());
    let (tree, before) = (project.tree(), inodes());
    let mut named: Vec<_> = paths(&project.status()["not_captured"]);
    named.sort();
    let wanted: &[&str] = if device {
        &["null", "sockets/s.sock"]
    } else {
        &["sockets/s.sock"]
    };
    assert_eq!(named, wanted);
    project.sh("printf 'v2\n' > a; rm r q; mkfifo r");
    let _other = UnixListener::bind(project.file("q")).unwrap();
    project.save();
    // A socket stands where the target has a file: it is kept, and named.
    let report = project.json_code(&["rewind", &first.to_string(), "-y"], 3);
    assert_eq!(paths(&report["kept"]), ["q"]);
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "{:?}",
        started.elapsed()
    );
    tree.clone()
        .without("q")
        .same(&project.tree().without("q"), "after rewind");
    assert_eq!(inodes(), before, "the FIFO and the socket from before stay");
    fs::remove_file(project.file("q")).unwrap();
    project.rewind(first);
    tree.same(&project.tree(), "without the socket in the way");
}

/// One unreadable file cost the whole snapshot, silently.
#[test]
fn b48_unreadable_files_and_directories_are_named_and_left_alone() {
    let Some(sandbox) = Sandbox::of_normal_user() else {
        return;
    };
    let project = sandbox.project("p");
    project.sh("printf 'v1\n' > f; printf 'KEEP\n' > locked; mkdir -p closed/in; printf 'KEEP\n' > closed/in/x; printf 'KEEP\n' > no-exec
                mkdir list-only; printf 'KEEP\n' > list-only/y; chmod 000 locked closed; chmod 444 list-only");
    project.attach();
    let first = project.save();
    project.sh("printf 'v2\n' > f");
    let second = project.save();
    assert_eq!(project.show(second, "f"), b"v2\n");
    let entry = project.json(&["show", &second.to_string()]);
    let named = paths(&entry["not_captured"]);
    for path in ["locked", "closed"] {
        assert!(named.iter().any(|p| p == path), "{path} in {named:?}");
    }
    assert!(named.iter().any(|p| p.starts_with("list-only")), "{named:?}");
    project.stepback(&["rewind", &first.to_string(), "-y"]).exits(0);
    assert_eq!(project.read("f"), b"v1\n");
    // A target from before they were locked, and one from after.
    project.sh("chmod 644 locked; chmod 755 closed list-only; cat closed/in/x list-only/y locked no-exec | sort -u | grep -qx KEEP");
    let open = project.save();
    project.sh("printf 'KEEP\n' > locked; chmod 000 closed; printf 'v3\n' > f");
    let report = project.json_code(&["rewind", &open.to_string(), "-y"], 3);
    assert!(
        paths(&report["kept"]).iter().any(|p| p.starts_with("closed")),
        "{report:#}"
    );
    project.sh("chmod 755 closed; grep -qx KEEP closed/in/x");
}

/// Files that come, go and change while a capture reads them: each save ends, and the last one is the tree.
#[test]
fn files_that_vanish_while_they_are_read_fail_no_capture() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("mkdir a b; printf 'v1\n' > stays");
    project.attach();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = Stop(&done);
        scope.spawn(|| {
            let mut i = 0_u64;
            while !done.load(Ordering::Relaxed) {
                let dir = project.file(&format!("a/{}", i % 40));
                // Whatever the other turn left; what can't be done isn't done.
                let _ = fs::remove_dir_all(&dir);
                let _ = fs::remove_file(&dir);
                match i % 3 {
                    0 => drop(fs::write(&dir, vec![b'x'; 5_000])),
                    1 => drop(
                        fs::create_dir_all(dir.join("deep/er"))
                            .and_then(|()| fs::write(dir.join("deep/er/f"), "y")),
                    ),
                    _ => drop(symlink("/", &dir)),
                }
                let _ = fs::rename(&dir, project.file(&format!("b/{}", i % 30)));
                i += 1;
            }
        });
        for _ in 0..10 {
            let id = project.save();
            assert_eq!(project.show(id, "stays"), b"v1\n");
        }
        drop(stop);
    });
    let last = project.save();
    let tree = project.tree();
    project.sh("rm -r a b");
    project.rewind(last);
    tree.same(&project.tree(), "after it came to rest");
    project.fsck();
}

/// Ends a thread's loop, also when the test fails in between.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A directory and a link to the outside change places, as fast as they can, while rewinds run.
#[test]
fn s01_a_directory_swapped_with_a_link_during_rewinds_lets_nothing_out() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let outside = sandbox.project("outside");
    outside.sh("for i in 1 2 3; do printf 'OUTSIDE\n' > f$i; done; mkdir deep; printf 'OUTSIDE\n' > deep/g; printf 'OUTSIDE\n' > only");
    project.sh("mkdir -p d/deep; for i in 1 2 3; do printf 'v1\n' > d/f$i; done; printf 'v1\n' > d/deep/g; printf 'v1\n' > other");
    let far = far_tree(&outside);
    project.attach();
    let first = project.save();
    project.sh("for i in 1 2; do printf 'v2\n' > d/f$i; done; rm d/f3; printf 'v2\n' > d/deep/g; printf 'v2\n' > d/more; printf 'v2\n' > other");
    let second = project.save();
    let link = sandbox.dir().join("work/link");
    symlink(&outside.path, &link).unwrap();
    let (done, dir) = (AtomicBool::new(false), project.file("d"));
    std::thread::scope(|scope| {
        let stop = Stop(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                renameat2(AT_FDCWD, &dir, AT_FDCWD, &link, RenameFlags::RENAME_EXCHANGE).unwrap();
                // Faster than any watcher can read would only test the watcher.
                pause(Duration::from_micros(200));
            }
        });
        for round in 0..rounds() {
            let id = if round % 2 == 0 { first } else { second }.to_string();
            let said = project.stepback(&["rewind", &id, "-y"]);
            // Whether it works depends on the moment; an operation that was interrupted is ended.
            assert!(matches!(said.code(), 0 | 1 | 3), "{said:#?}");
            if said.code() == 1 {
                project.stepback(&["recover", "--undo"]);
            }
        }
        drop(stop);
    });
    assert_eq!(far_tree(&outside), far);
    if fs::symlink_metadata(project.file("d")).unwrap().is_symlink() {
        renameat2(
            AT_FDCWD,
            &project.file("d"),
            AT_FDCWD,
            &link,
            RenameFlags::RENAME_EXCHANGE,
        )
        .unwrap();
    }
    project.stepback(&["recover"]).exits(0);
    project.rewind(first);
    assert_eq!(project.read("d/f1"), b"v1\n");
    assert_eq!(project.tree().leftovers(), Vec::<String>::new());
    assert_eq!(far_tree(&outside), far);
}

/// The same for a link in the middle that is put there once, between preview and yes, and stays.
#[test]
fn s01_a_link_that_took_a_directorys_place_before_the_yes_is_not_followed() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let outside = sandbox.project("outside");
    outside.sh("mkdir e; printf 'OUTSIDE\n' > e/f; printf 'OUTSIDE\n' > e/new");
    project.sh("mkdir -p d/e; printf 'v1\n' > d/e/f");
    project.attach();
    let first = project.save();
    let tree = project.tree();
    let far = far_tree(&outside);
    for args in [
        &["rewind", "1", "-y"][..],
        &["restore", "1", "-p", "d", "-y"],
        &["restore", "1", "-p", "d/e/f", "-y"],
    ] {
        project.sh("printf 'v2\n' > d/e/f; printf 'v2\n' > d/e/new");
        project.save();
        project.sh("rm -r d; ln -s ../outside d");
        project.json(args);
        assert_eq!(far_tree(&outside), far, "{args:?}");
        assert_eq!(project.read("d/e/f"), b"v1\n", "{args:?}");
        project.rewind(first);
        tree.same(&project.tree(), &format!("{args:?}"));
    }
}

/// A directory in the middle that its owner closes and opens again, while rewinds run: done, or refused with the tree as it
/// was, or taken up by `recover`.
#[test]
fn b15_a_directory_closed_in_the_middle_of_rewinds_leaves_one_of_both_states() {
    let Some(sandbox) = Sandbox::of_normal_user() else {
        return;
    };
    let project = sandbox.project("p");
    let contents = || {
        project
            .sh("find . -type f | LC_ALL=C sort | xargs sha256sum")
            .text()
    };
    project.sh("mkdir -p d/e; for i in 1 2 3 4 5; do printf \"v1 $i\n\" > d/e/$i; printf \"v1 $i\n\" > $i; done; printf 'v1\n' > d/only");
    project.attach();
    let first = project.save();
    let one = contents();
    project.sh("for i in 1 2 3 4; do printf \"v2 $i\n\" > d/e/$i; printf \"v2 $i\n\" > $i; done; rm d/only d/e/5; printf 'v2\n' > d/e/made");
    let second = project.save();
    let two = contents();
    let (done, dir) = (AtomicBool::new(false), project.file("d/e"));
    std::thread::scope(|scope| {
        let stop = Stop(&done);
        scope.spawn(|| {
            for mode in [0o555, 0o755].into_iter().cycle() {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
                pause(Duration::from_micros(300));
            }
        });
        for round in 0..rounds() {
            let id = if round % 2 == 0 { first } else { second }.to_string();
            let said = project.stepback(&["rewind", &id, "-y"]);
            // Taking back may meet the closed directory, too: then the journal stays for another try.
            eventually("recovered", long_deadline(), || {
                let over = project.status()["unfinished"] == json!(null);
                if !over {
                    project.stepback(&["recover", "--undo"]);
                }
                over
            });
            let now = contents();
            assert!(
                now == one || now == two || said.code() == 3,
                "neither state in round {round}: {said:#?}\n{now}"
            );
        }
        drop(stop);
    });
    fs::set_permissions(project.file("d/e"), fs::Permissions::from_mode(0o755)).unwrap();
    project.stepback(&["recover"]).exits(0);
    project.rewind(first);
    assert_eq!(contents(), one);
    assert_eq!(project.tree().leftovers(), Vec::<String>::new());
}

#[test]
fn a_root_on_a_tmpfs_goes_back_and_forth_exactly() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let Some(_mount) = Mount::tmpfs(&sandbox, &project.path, "size=64m,mode=755") else {
        return;
    };
    crate::support::repository(&project, "");
    round_trip(&project, &[]);
}

/// The state directory on a file system of 4 MB: saves fail when it is full, and say so; the tree stays; every checkpoint
/// that was announced is there; with room again it goes on.
#[test]
fn a_full_state_directory_loses_nothing_and_goes_on_when_there_is_room() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let state = sandbox.dir().join("state");
    let Some(_mount) = Mount::tmpfs(&sandbox, &state, "size=4m,mode=700") else {
        return;
    };
    project.sh("printf 'v1\n' > a; mkdir d; printf 'v1\n' > d/b");
    let attached = project.stepback(&["--json", "attach", "--here"]);
    assert_eq!(attached.code(), 0, "a small root fits: {attached:#?}");
    let first = project.save();
    let tree = project.tree();
    let mut saved = vec![first];
    let full = (0..40).find_map(|i| {
        project.sh(&format!(
            "head -c 300000 /dev/urandom > d/big{i}; printf '{i}\n' > a"
        ));
        let said = project.stepback(&["--json", "save"]);
        if said.code() == 0 {
            saved.push(said.json()["id"].as_u64().unwrap());
            return None;
        }
        Some(said)
    });
    let full = full.expect("4 MB are full after 12 MB").exits(1);
    let error = &full.json()["error"];
    assert_eq!(error["kind"], "no_space", "{error}");
    assert_ne!(error["hint"], "", "{error}");
    let present = project.tree();
    let listed = project.ids();
    assert!(saved.iter().all(|id| listed.contains(id)), "{saved:?} {listed:?}");
    for id in &listed {
        project.stepback(&["show", &format!("{id}:d/b")]).exits(0);
    }
    project.fsck();

    // What isn't saved can't be gone back from: refused, and the tree is as it was, or done whole.
    let said = project.stepback(&["--json", "rewind", &first.to_string(), "-y"]);
    if said.code() == 0 {
        tree.same(&project.tree(), "a rewind on a full disk");
        project.redo();
    } else {
        assert_eq!(said.json()["error"]["kind"], "no_space", "{said:#?}");
    }
    present.same(&project.tree(), "after the rewind on a full disk");
    assert_eq!(project.status()["unfinished"], json!(null));
    assert_eq!(present.leftovers(), Vec::<String>::new());

    let grown = Command::new("mount")
        .args(["-o", "remount,size=64m"])
        .arg(&state)
        .status()
        .unwrap();
    assert!(grown.success());
    let last = project.save();
    project.rewind(first);
    tree.same(&project.tree(), "with room again");
    project.redo();
    present.same(&project.tree(), "and redo");
    project.rewind(last);
    present.same(&project.tree(), "at the end");
    project.fsck();
    // That the store couldn't be packed on the full disk stands there until it was tried again.
    let verified = project.json(&["status", "--verify"]);
    let warnings = verified["root"]["warnings"].as_array().unwrap();
    assert!(
        warnings.iter().all(|warning| warning["kind"] == "maintenance"),
        "{warnings:?}"
    );
}

/// Whether a git runs that was sent into `project`.
fn git_runs_in(project: &Project<'_>) -> bool {
    let place = project.file("").canonicalize().unwrap();
    let place = place.to_str().unwrap();
    fs::read_dir("/proc").unwrap().flatten().any(|process| {
        let read = |name: &str| fs::read(process.path().join(name)).unwrap_or_default();
        read("comm").trim_ascii_end() == b"git"
            && String::from_utf8_lossy(&read("cmdline"))
                .split('\0')
                .any(|word| word.trim_end_matches('/') == place)
    })
}

/// A git that waits for settings in a FIFO stayed when the daemon had stopped, and one more for each time that the daemon
/// was killed.
#[test]
fn no_git_outlives_the_daemon() {
    if !Path::new("/proc/self/comm").exists() {
        eprintln!("skipped: no /proc");
        return;
    }
    let deadly = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "true"])
        .status();
    let killed_too = deadly.is_ok_and(|status| status.success());
    if !killed_too {
        eprintln!("skipped in part: no `setpriv --pdeathsig`, so a git stays when the daemon is killed");
    }
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("git init -q .; printf 'v1\n' > a; git add a; mkfifo ../settings");
    let daemon = sandbox.daemon();
    project.attach();
    project.sh(r"printf '[include]\n\tpath = ../../settings\n' >> .git/config; printf 'v2\n' > a");
    eventually("git waits", Duration::from_secs(30), || git_runs_in(&project));
    sandbox.stepback(sandbox.dir(), &["daemon", "stop"]).exits(0);
    assert_eq!(daemon.ended(Duration::from_secs(20)), Some(0));
    assert!(!git_runs_in(&project), "after the stop");
    if killed_too {
        let daemon = sandbox.daemon();
        eventually("git waits again", Duration::from_secs(30), || {
            git_runs_in(&project)
        });
        daemon.kill();
        eventually("git is gone", Duration::from_secs(5), || !git_runs_in(&project));
    }
}

/// A FIFO, or what never ends, where a repository has its files held the root up for ever: its captures fail with words
/// that name the file, and go on when it is mended.
#[test]
fn a_fifo_in_a_repository_holds_nothing_up() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("git init -q -b main .; printf 'v1\n' > a; git add a; git commit -qm one");
    project.attach();
    let begun = Instant::now();
    for (name, fails) in [
        ("HEAD", true),
        ("index", true),
        ("config", true),
        ("commondir", false),
        ("refs/heads/main", false),
        ("packed-refs", false),
    ] {
        for make in ["mkfifo", "ln -s /dev/zero"] {
            project.sh(&format!(
                "cd .git; mkdir -p ../../kept; mv {name} ../../kept/it 2> /dev/null || true; {make} {name}; date +%N > ../a"
            ));
            if fails {
                let error = project.fails(&["save"], 1, "config");
                let message = error["message"].as_str().unwrap();
                assert!(message.contains(&format!(".git/{name}")), "{message}");
            } else {
                project.save();
            }
            project.sh(&format!(
                "cd .git; rm {name}; mv ../../kept/it {name} 2> /dev/null || true"
            ));
        }
        project.save();
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}
