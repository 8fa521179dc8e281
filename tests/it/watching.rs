//! File events, and what stands in for them.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use stepback_tests::{
    Daemon, Project, Sandbox, anonymous_bytes, descriptors, eventually, finish, start, watches,
};

use crate::support::number_from;

const PATIENCE: Duration = Duration::from_secs(60);

fn logged(sandbox: &Sandbox, words: &str) -> usize {
    let mut logs = fs::read_to_string(sandbox.dir().join("daemon.log")).unwrap_or_default();
    for entry in fs::read_dir(sandbox.state().join("log")).unwrap().flatten() {
        logs += &fs::read_to_string(entry.path()).unwrap_or_default();
    }
    logs.lines().filter(|line| line.contains(words)).count()
}

#[test]
fn roots_that_come_and_go_leave_nothing_behind() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.daemon();
    let pid = daemon.pid();
    let roots = number_from("STEPBACK_ROOTS", 60);
    let projects: Vec<_> = (0..roots).map(|n| sandbox.project(&format!("p{n}"))).collect();
    for project in &projects {
        project.sh("mkdir -p a/b c; printf 1 > a/b/f; printf 2 > c/g; printf 3 > h");
    }
    let calm = descriptors(pid).len();
    let mut memory = Vec::new();
    for _ in 0..3 {
        for project in &projects {
            project.attach();
        }
        let of_inotify = descriptors(pid)
            .iter()
            .filter(|of| of.contains("inotify"))
            .count();
        assert!(of_inotify <= 2, "{of_inotify} instances of inotify");
        assert_eq!(
            watches(pid) as u64,
            1 + 4 * roots,
            "a watch for each directory, and ours"
        );
        for project in &projects {
            project.stepback(&["detach"]).exits(0);
        }
        eventually("the watches are given back", PATIENCE, || watches(pid) == 1);
        eventually("descriptors are closed", PATIENCE, || {
            descriptors(pid).len() <= calm
        });
        memory.push(anonymous_bytes(pid));
    }
    println!("{roots} roots three times: resident after each {memory:?}");
    assert!(memory[2] < memory[1] + (4 << 20), "memory grows: {memory:?}");
    assert_eq!(projects[0].json(&["roots"]), serde_json::json!([]));
}

/// The daemon in a user namespace of its own, in which it may have so many watches.
fn with_limit<'a>(sandbox: &'a Sandbox, limit: &'a str) -> Option<Daemon> {
    let set = format!("echo {limit} > /proc/sys/user/max_inotify_watches");
    let mut try_it = sandbox.command("unshare", Path::new("/"));
    try_it.args(["-U", "-r", "sh", "-c", &set]);
    if !try_it.output().is_ok_and(|done| done.status.success()) {
        println!("skipped: no user namespace can be made here");
        return None;
    }
    let script = format!("{set} && exec \"$@\"");
    let prefix = ["unshare", "-U", "-r", "sh", "-c", &script, "sh"].map(OsStr::new);
    Some(sandbox.daemon_under(&prefix))
}

#[test]
fn where_watches_are_short_a_root_is_polled_and_others_keep_some() {
    let sandbox = Sandbox::new();
    sandbox.configure("poll_seconds_min = 1\n");
    let Some(daemon) = with_limit(&sandbox, "400") else {
        return;
    };
    let pid = daemon.pid();
    let (small, big) = (sandbox.project("small"), sandbox.project("big"));
    small.sh("mkdir a b c; printf 1 > a/f");
    big.sh("for i in $(seq 500); do mkdir d$i; done; printf 1 > d7/f");
    small.attach();
    big.attach();
    let status = big.status();
    assert_eq!(
        [&status["state"], &status["backend"]],
        ["polling", "poll"],
        "{status:#}"
    );
    assert!(status["poll_seconds"].as_u64().unwrap() >= 1, "{status:#}");
    let warning = &status["warnings"][0];
    assert!(
        warning["hint"].as_str().unwrap().contains("max_user_watches"),
        "{status:#}"
    );
    let needed = "not enough watches for file events here, where 501 directories";
    assert!(
        warning["message"].as_str().unwrap().starts_with(needed),
        "{status:#}"
    );
    let doctor = small.json_code(&["doctor"], 1);
    let found = doctor["findings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["severity"] == "warning");
    let found = found.unwrap_or_else(|| panic!("{doctor:#}"));
    assert_eq!(found["check"], "roots", "{doctor:#}");
    assert!(found["message"].as_str().unwrap().contains(needed), "{doctor:#}");
    assert!(
        found["hint"].as_str().unwrap().contains("max_user_watches"),
        "{doctor:#}"
    );
    assert_eq!(small.status()["state"], "watching");
    // An eighth at least is left to other programs, and a root that doesn't fit keeps none.
    assert_eq!(watches(pid), 1 + 4);
    let before = big.ids().len();
    big.write("d7/f", "22");
    eventually("the edit is found by looking", PATIENCE, || {
        big.ids().len() > before
    });
    small.write("a/f", "22");
    small.settle();
    assert_eq!(small.show(small.ids()[0], "a/f"), b"22");

    // The limit is raised: the root is watched again by itself.
    let mut raise = Command::new("nsenter");
    let target = format!("--target={pid}");
    raise.args([&target, "--user", "--preserve-credentials", "sh", "-c"]);
    raise.arg("echo 5000 > /proc/sys/user/max_inotify_watches");
    if !raise.output().is_ok_and(|done| done.status.success()) {
        println!("skipped in part: nsenter is missing, or not allowed");
        return;
    }
    eventually("the big one is watched", PATIENCE, || {
        big.status()["state"] == "watching"
    });
    assert_eq!(watches(pid), 1 + 4 + 501);
    big.write("d9/f", "3");
    big.settle();
    assert_eq!(big.show(big.ids()[0], "d9/f"), b"3");
    assert_eq!(big.status()["missed"], 0);
}

#[test]
fn events_that_overflow_are_one_scan() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.daemon();
    let (project, quiet) = (sandbox.project("p"), sandbox.project("quiet"));
    for project in [&project, &quiet] {
        project.sh("mkdir d; printf 0 > d/f");
        project.attach();
        project.settle();
    }
    let before = project.ids().len();
    daemon.signal(Signal::SIGSTOP);
    project.sh("cd d; seq 30000 | split -l 1 -a 4 - x; printf 1 > f");
    daemon.signal(Signal::SIGCONT);
    project.settle();
    quiet.settle();
    assert_eq!(logged(&sandbox, "overflowed"), 1);
    assert_eq!(
        project.json(&["diff", "latest", "-w"])["files"],
        serde_json::json!([])
    );
    assert_eq!(project.status()["files"], 30_001);
    let made = project.ids().len() - before;
    assert_eq!(made, 1, "one checkpoint for one scan");
    let root = project.status();
    assert_eq!(root["missed"], 0);
    assert_eq!(root["gaps"].as_array().unwrap().len(), 1, "{root:#}");
    assert_eq!(
        quiet.status()["gaps"],
        serde_json::json!([]),
        "nothing was lost there"
    );
    assert_eq!(quiet.ids().len(), 1);
    project.write("d/f", "2");
    project.settle();
    assert_eq!(project.show(project.ids()[0], "d/f"), b"2");
}

#[test]
fn a_file_system_without_events_is_polled() {
    let sandbox = Sandbox::new();
    let kind = sandbox.sh(sandbox.dir(), "stat -f -c %t .").text();
    sandbox.configure(&format!(
        "poll_seconds_min = 1\npoll_file_systems = [\"{}\"]\n",
        kind.trim()
    ));
    let project = sandbox.project("p");
    project.sh("mkdir d; printf 1 > d/f");
    project.attach();
    let status = project.status();
    assert_eq!(
        [&status["state"], &status["settled"]],
        [&"polling".into(), &serde_json::Value::Null]
    );
    assert_eq!(
        (status["poll_seconds"].as_u64(), status["watches"].as_u64()),
        (Some(1), Some(0))
    );
    project.write("d/f", "22");
    eventually("the edit is found by looking", PATIENCE, || {
        project.ids().len() == 2
    });
    assert_eq!(project.show(2, "d/f"), b"22");
    // Without that setting it is watched again.
    sandbox.configure("settle_ms = 200\n");
    let pid = sandbox.daemon_pid().unwrap();
    nix::sys::signal::kill(pid, Signal::SIGHUP).unwrap();
    eventually("it is watched", PATIENCE, || {
        project.status()["state"] == "watching"
    });
}

#[test]
fn a_root_that_is_renamed_and_comes_back_is_watched_again() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("mkdir d; printf 1 > d/f");
    project.attach();
    let away = project.path.with_extension("away");
    let place = project.path.to_str().unwrap().to_owned();
    let state = || {
        let answer = sandbox.stepback(sandbox.dir(), &["--json", "-C", &place, "status"]);
        answer.exits(0).json()["root"]["state"].clone()
    };
    for round in 0..3 {
        fs::rename(&project.path, &away).unwrap();
        eventually("it is missing", PATIENCE, || state() == "missing");
        fs::rename(&away, &project.path).unwrap();
        eventually("it is watched", PATIENCE, || state() == "watching");
        project.write("d/f", format!("round {round}\n"));
        project.settle();
        assert_eq!(
            project.show(project.ids()[0], "d/f"),
            format!("round {round}\n").as_bytes()
        );
    }
    assert_eq!(project.ids().len(), 4, "no checkpoint says that all was deleted");
}

/// A directory mounted at `on` until the end of the test.
struct Mounted<'a>(&'a Path);

impl Mounted<'_> {
    fn run(program: &str, args: &[&OsStr]) -> bool {
        Command::new(program)
            .args(args)
            .output()
            .is_ok_and(|done| done.status.success())
    }

    fn bind(what: &Path, on: &Path) -> bool {
        Self::run("mount", &["--bind".as_ref(), what.as_os_str(), on.as_os_str()])
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        while Self::run("umount", &["-l".as_ref(), self.0.as_os_str()]) {}
    }
}

#[test]
fn a_root_that_is_unmounted_is_missing_until_it_is_mounted_again() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let disk = sandbox.dir().join("disk");
    fs::create_dir(&disk).unwrap();
    let (_disk, _guard) = (Mounted(&disk), Mounted(&project.path));
    let memory = ["-t", "tmpfs", "none"].map(OsStr::new);
    if !Mounted::run("mount", &[&memory[..], &[disk.as_os_str()]].concat())
        || !Mounted::bind(&disk, &project.path)
    {
        println!("skipped: nothing can be mounted here");
        return;
    }
    fs::create_dir_all(disk.join("d")).unwrap();
    fs::write(disk.join("d/f"), "1").unwrap();
    project.attach();
    project.settle();
    let place = project.path.to_str().unwrap().to_owned();
    let state = || {
        let answer = sandbox.stepback(sandbox.dir(), &["--json", "-C", &place, "status"]);
        answer.exits(0).json()["root"]["state"].clone()
    };
    // Without events of its end, as of a lazy umount, somebody has to look.
    assert!(Mounted::run("umount", &["-l".as_ref(), project.path.as_os_str()]));
    eventually("it is missing", PATIENCE, || state() == "missing");
    let refused = sandbox
        .stepback(sandbox.dir(), &["--json", "-C", &place, "rewind", "1", "-y"])
        .exits(1);
    assert_eq!(refused.json()["error"]["kind"], "root_missing");
    // Something else is mounted there.
    assert!(Mounted::run(
        "mount",
        &[&memory[..], &[project.path.as_os_str()]].concat()
    ));
    eventually("it is replaced", PATIENCE, || state() == "replaced");
    assert!(Mounted::run("umount", &["-l".as_ref(), project.path.as_os_str()]));
    assert!(Mounted::bind(&disk, &project.path));
    eventually("it is watched again", PATIENCE, || state() == "watching");
    project.write("d/f", "2");
    project.settle();
    assert_eq!(project.ids().len(), 2, "no checkpoint says that all was deleted");
    assert_eq!(project.show(2, "d/f"), b"2");
}

#[test]
fn a_write_through_a_mapping_is_found_by_a_full_scan() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'AAAA' > f; printf x > g");
    project.attach();
    project.settle();
    let mut map = sandbox.command("python3", &project.path);
    map.args([
        "-c",
        "import mmap; f = open('f', 'r+b'); m = mmap.mmap(f.fileno(), 4); m[:] = b'BBBB'; m.flush(); m.close()",
    ]);
    if !map.output().is_ok_and(|done| done.status.success()) {
        println!("skipped: python3 is missing");
        return;
    }
    let saved = project.save();
    assert_eq!(project.show(saved, "f"), b"BBBB");
}

#[test]
fn a_worktree_below_an_ignored_directory_is_seen_on_its_own() {
    let sandbox = Sandbox::new();
    let outer = sandbox.project("p");
    outer.sh(
        "git init -q .; printf '/wt/\\n' > .gitignore; printf 1 > a; git add -A; git commit -qm one\n\
         printf 2 > a; git commit -qam two; git branch other HEAD~1; git worktree add -q wt/in -b side",
    );
    let inner = Project::at(&sandbox, outer.file("wt/in"));
    outer.attach();
    inner.attach();
    inner.write("a", "edited\n");
    inner.settle();
    assert_eq!(inner.show(inner.ids()[0], "a"), b"edited\n");
    // HEAD moves, the tree doesn't.
    inner.sh("git update-ref HEAD other; printf new > b");
    inner.settle();
    let entry = inner.list()[0].clone();
    let by_git = {
        let mut git = sandbox.command("sh", &inner.path);
        git.args([
            "-c",
            "export GIT_INDEX_FILE=$TMPDIR/index; git add -A && git write-tree",
        ]);
        finish(start(&mut git), "git write-tree", PATIENCE)
            .exits(0)
            .text()
    };
    assert_eq!(
        entry["tree"],
        by_git.trim(),
        "the same as a scan that knows nothing"
    );
    assert_eq!(inner.json(&["save"])["created"], false);
    assert_eq!(outer.ids().len(), 1, "ignored there");
}

#[test]
fn roots_that_gave_their_memory_back_work_the_same() {
    let sandbox = Sandbox::new();
    sandbox.configure("cache_roots = 1\nlog = \"debug\"\n");
    let projects: Vec<_> = ["one", "two", "three"].map(|name| sandbox.project(name)).into();
    for project in &projects {
        project.sh("mkdir d; for i in 1 2 3 4 5; do printf $i > d/$i; done");
        project.attach();
        project.settle();
    }
    eventually("trees are given back", PATIENCE, || {
        logged(&sandbox, "the tree is no longer in memory") >= 2
    });
    for round in 0..3 {
        for project in &projects {
            let status = project.status();
            assert_eq!(
                (status["files"].as_u64(), &status["settled"]),
                (Some(5), &true.into())
            );
            let before = project.tree();
            let base = project.save();
            project.write("d/1", format!("round {round}\n"));
            project.sh("rm d/2; printf new > d/new");
            project.settle();
            let now = project.ids()[0];
            assert!(now > base);
            assert_eq!(
                project.json(&["diff", "latest", "-w"])["files"],
                serde_json::json!([])
            );
            assert_eq!(project.json(&["list"])["current"], now);
            project.rewind(base);
            before.same(&project.tree(), "rewound");
        }
    }
    for project in &projects {
        assert_eq!(project.status()["missed"], 0);
        project.fsck();
    }
}
