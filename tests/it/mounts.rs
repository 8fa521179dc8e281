//! Mount points inside a root: what isn't mounted isn't deleted, and no rewind fills a bare mount point.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use stepback_tests::{Project, Sandbox, eventually, finish, start};

use crate::support::{entry, paths, warnings};

const DEADLINE: Duration = Duration::from_secs(60);

/// A bind mount: the same device on both sides, so that no `stat` tells it apart.
struct Mount {
    at: PathBuf,
    mounted: bool,
}

impl Mount {
    /// `None`, with a printed reason, where that isn't allowed.
    fn bind(volume: &Path, at: PathBuf) -> Option<Self> {
        let mut mount = Self { at, mounted: false };
        if !mount.again(volume) {
            println!("skipped: bind mounts aren't allowed here");
            return None;
        }
        Some(mount)
    }

    fn again(&mut self, volume: &Path) -> bool {
        let done = Command::new("mount")
            .arg("--bind")
            .args([volume, &self.at])
            .output();
        self.mounted = done.is_ok_and(|done| done.status.success());
        self.mounted
    }

    fn umount(&mut self) {
        // A daemon that looks at it just now holds it for a moment.
        eventually("it is unmounted", DEADLINE, || {
            let done = Command::new("umount").arg(&self.at).output().unwrap();
            done.status.success()
        });
        self.mounted = false;
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.mounted {
            let _ = Command::new("umount").arg("-l").arg(&self.at).status();
        }
    }
}

/// A project with an empty `data`, and a volume with two files.
fn project(sandbox: &Sandbox) -> (Project<'_>, PathBuf) {
    let project = sandbox.project("p");
    project.sh(
        "mkdir data; printf 'v1\\n' > a; mkdir -p ../volume/sub; printf 'v1\\n' > ../volume/f; \
                printf 'v1\\n' > ../volume/sub/g",
    );
    let volume = sandbox.dir().join("work/volume");
    (project, volume)
}

fn warned(project: &Project<'_>) -> Option<String> {
    let found = warnings(project, "mount").into_iter().next()?;
    assert!(found["hint"].as_str().unwrap().contains("stepback attach --here"));
    Some(found["message"].as_str().unwrap().to_owned())
}

#[test]
fn what_is_not_mounted_is_not_deleted_and_its_place_stays_bare() {
    let sandbox = Sandbox::new();
    let (project, volume) = project(&sandbox);
    let Some(mut mount) = Mount::bind(&volume, project.path.join("data")) else {
        return;
    };
    project.attach();
    let first = project.save();
    assert_eq!(project.show(first, "data/sub/g"), b"v1\n");
    project.write("data/f", "v2\n");
    let second = project.save();
    let whole = project.tree();

    mount.umount();
    project.write("a", "v2\n");
    let without = project.save();
    assert_eq!(
        entry(&project, without)["files"]["deleted"],
        0,
        "unmounted isn't deleted"
    );
    assert_eq!(
        paths(&project.json(&["show", "latest"])["not_captured"]),
        ["data"]
    );
    let message = warned(&project).expect("a warning");
    assert!(
        message.contains("data: what was mounted there isn't"),
        "{message}"
    );
    let report = project.json_code(&["rewind", &first.to_string(), "-y"], 3);
    assert_eq!(paths(&report["kept"]), ["data"], "{report:#}");
    assert_eq!(std::fs::read_dir(project.path.join("data")).unwrap().count(), 0);
    // Also when all that is known of the tree is what the store says.
    project.stepback(&["daemon", "stop"]).exits(0);
    let _ = std::fs::remove_dir_all(sandbox.state().join("cache"));
    project.write("a", "v3\n");
    project.save();
    assert!(warned(&project).is_some());

    assert!(mount.again(&volume));
    let back = project.save();
    assert_eq!(warned(&project), None);
    assert_eq!(project.show(back, "data/f"), b"v2\n");
    project.rewind(second);
    whole.same(&project.tree(), "with the volume there again");
    project.rewind(first);
    assert_eq!(std::fs::read(volume.join("f")).unwrap(), b"v1\n");

    // For good: then its files are gone, and that is recorded.
    mount.umount();
    project.save();
    assert!(warned(&project).is_some());
    project.attach();
    let gone = project.save();
    assert_eq!(warned(&project), None);
    assert_eq!(
        project.json(&["show", &gone.to_string()])["not_captured"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
}

#[test]
fn captured_files_under_a_new_mount_are_not_deleted() {
    let sandbox = Sandbox::new();
    let (project, volume) = project(&sandbox);
    project.sh("printf 'mine\\n' > data/mine");
    project.attach();
    let first = project.save();
    let before = project.tree();
    let Some(mut mount) = Mount::bind(&volume, project.path.join("data")) else {
        return;
    };
    project.write("a", "v2\n");
    let covered = project.save();
    assert_eq!(entry(&project, covered)["files"]["deleted"], 0);
    let message = warned(&project).expect("a warning");
    assert!(message.contains("mounted over captured files"), "{message}");
    let report = project.json_code(&["rewind", &first.to_string(), "-y"], 3);
    assert_eq!(paths(&report["kept"]), ["data"]);
    assert_eq!(std::fs::read(volume.join("f")).unwrap(), b"v1\n");
    project.stepback(&["daemon", "restart"]).exits(0);
    project.save();
    assert!(warned(&project).is_some(), "it is remembered");

    mount.umount();
    project.save();
    assert_eq!(warned(&project), None);
    before.same(&project.tree(), "nothing of it was touched");
    assert_eq!(project.show(project.ids()[0], "data/mine"), b"mine\n");

    assert!(mount.again(&volume));
    project.save();
    assert!(warned(&project).is_some());
    project.attach();
    assert_eq!(warned(&project), None);
    let taken = project.save();
    assert_eq!(project.show(taken, "data/f"), b"v1\n");
}

/// No file event tells of a mount: neither of what it covers, nor of what is written through it.
#[test]
fn a_mount_is_noticed_at_once_and_what_is_in_it_is_watched() {
    let sandbox = Sandbox::new();
    let (project, volume) = project(&sandbox);
    project.sh("mkdir full; printf 'mine\\n' > full/mine");
    project.attach();
    project.settle();
    let Some(mut mount) = Mount::bind(&volume, project.path.join("data")) else {
        return;
    };
    let status = project.status();
    assert_eq!(
        status["settled"], false,
        "nobody has looked there yet: {status:#}"
    );
    project.settle();
    let mounted = project.ids()[0];
    assert_eq!(project.show(mounted, "data/sub/g"), b"v1\n");
    // Through the mount, and past it.
    project.write("data/sub/g", "v2\n");
    project.settle();
    assert_eq!(project.show(project.ids()[0], "data/sub/g"), b"v2\n");
    std::fs::write(volume.join("sub/g"), "v3\n").unwrap();
    project.settle();
    assert_eq!(project.show(project.ids()[0], "data/sub/g"), b"v3\n");

    mount.umount();
    assert_eq!(project.status()["settled"], false);
    project.settle();
    let message = warned(&project).expect("a warning");
    assert!(
        message.contains("data: what was mounted there isn't"),
        "{message}"
    );
    assert!(mount.again(&volume));
    assert_eq!(project.status()["settled"], false);
    project.settle();
    assert_eq!(warned(&project), None);
    std::fs::write(volume.join("sub/g"), "v4\n").unwrap();
    project.settle();
    assert_eq!(project.show(project.ids()[0], "data/sub/g"), b"v4\n");

    let _cover = Mount::bind(&volume, project.path.join("full")).unwrap();
    assert_eq!(project.status()["settled"], false);
    project.settle();
    let message = warned(&project).expect("a warning");
    assert!(message.contains("mounted over captured files"), "{message}");
}

#[test]
fn a_mount_elsewhere_disturbs_no_root() {
    let sandbox = Sandbox::new();
    let (project, volume) = project(&sandbox);
    project.attach();
    project.settle();
    let elsewhere = sandbox.dir().join("work/elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let Some(_mount) = Mount::bind(&volume, elsewhere) else {
        return;
    };
    let status = project.status();
    assert_eq!(status["settled"], true, "{status:#}");
}

#[test]
fn a_mount_point_that_the_target_does_not_have_stays_and_is_named() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\\n' > a; mkdir ../volume");
    project.attach();
    let first = project.save();
    project.sh("mkdir data");
    let Some(_mount) = Mount::bind(&sandbox.dir().join("work/volume"), project.path.join("data")) else {
        return;
    };
    project.write("data/f", "v1\n");
    project.write("a", "v2\n");
    project.save();
    let report = project.json_code(&["rewind", &first.to_string(), "-y"], 3);
    assert_eq!(paths(&report["kept"]), ["data"], "{report:#}");
    assert_eq!(std::fs::read(project.path.join("a")).unwrap(), b"v1\n");
    assert!(!project.path.join("data/f").exists());
    project.redo();
    assert_eq!(std::fs::read(project.path.join("data/f")).unwrap(), b"v1\n");
}

/// A file can be a mount point, too: nothing can take its place, which the preview knows.
#[test]
fn a_mounted_file_is_kept_and_the_preview_says_so() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\\n' > ../other; mkdir d; printf 'v1\\n' > d/f; printf 'v1\\n' > a");
    project.attach();
    let first = project.save();
    project.sh("printf 'v2\\n' > d/f; printf 'v2\\n' > a; mkdir e; printf 'v2\\n' > e/f");
    let other = sandbox.dir().join("work/other");
    let Some(_mount) = Mount::bind(&other, project.path.join("d/f")) else {
        return;
    };
    let _inner = Mount::bind(&other, project.path.join("e/f")).unwrap();
    project.write("d/f", "v3\n");
    project.save();
    let preview = project.json(&["rewind", &first.to_string(), "-n"]);
    assert_eq!(paths(&preview["changes"]), ["a"], "{preview:#}");
    assert_eq!(paths(&preview["kept"]), ["d/f", "e/f"], "{preview:#}");
    let report = project.json_code(&["rewind", &first.to_string(), "-y"], 3);
    assert_eq!((&report["written"], &report["removed"]), (&1.into(), &0.into()));
    assert_eq!(paths(&report["kept"]), ["d/f", "e/f"], "{report:#}");
    assert_eq!(std::fs::read(&other).unwrap(), b"v3\n");
}

/// What is mounted went while an operation was interrupted in it: its bare mount point is no state to go on from.
#[test]
fn recover_waits_for_what_was_mounted() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.daemon();
    let (project, volume) = project(&sandbox);
    let Some(mut mount) = Mount::bind(&volume, project.path.join("data")) else {
        return;
    };
    project.sh("i=0; while [ $i -lt 800 ]; do echo one > data/f$i; i=$((i+1)); done");
    project.attach();
    let first = project.save();
    project.sh("for f in data/f*; do echo two > $f; done");
    project.save();
    let journal = project
        .store()
        .join("stepback")
        .join(project.status()["id"].as_str().unwrap())
        .join("journal");
    let mut rewind = sandbox.command(sandbox.program("stepback"), &project.path);
    rewind
        .args(["rewind", &first.to_string(), "-y"])
        .env("STEPBACK_NO_AUTOSTART", "1");
    let rewind = start(&mut rewind);
    eventually("the operation is under way", DEADLINE, || journal.exists());
    daemon.kill();
    finish(rewind, "stepback rewind", DEADLINE);
    let _daemon = sandbox.daemon();
    if project.status()["unfinished"].is_null() {
        println!("skipped: the operation was faster");
        return;
    }
    mount.umount();
    for arguments in [&["recover"][..], &["recover", "--undo"]] {
        let error = project.fails(arguments, 1, "declined");
        let hint = error["hint"].as_str().unwrap();
        assert!(
            hint.contains("mount it again") && hint.contains("stepback attach --here"),
            "{error:#}"
        );
    }
    assert!(!project.status()["unfinished"].is_null());
    assert_eq!(std::fs::read_dir(project.path.join("data")).unwrap().count(), 0);
    assert!(mount.again(&volume));
    let report = project.json(&["recover"]);
    assert_eq!(report["outcome"], "finished", "{report:#}");
    for n in 0..800 {
        assert_eq!(project.read(&format!("data/f{n}")), b"one\n");
    }
}

#[test]
fn a_root_that_is_a_bind_mount_is_missing_without_it() {
    let sandbox = Sandbox::new();
    let (outer, volume) = project(&sandbox);
    let Some(mut mount) = Mount::bind(&volume, outer.path.join("data")) else {
        return;
    };
    let data = Project::at(&sandbox, outer.path.join("data"));
    data.attach();
    mount.umount();
    eventually("it is missed", DEADLINE, || data.status()["state"] == "missing");
    assert!(mount.again(&volume));
    eventually("it is there again", DEADLINE, || {
        data.status()["state"] == "watching"
    });
}

#[test]
fn the_state_is_never_captured_however_it_is_reached() {
    let sandbox = Sandbox::new();
    let (project, _) = project(&sandbox);
    project.write("a", "v1\n");
    project.attach();
    let Some(_mount) = Mount::bind(&sandbox.state(), project.path.join("data")) else {
        return;
    };
    let saved = project.save();
    assert_eq!(paths(&project.status()["not_captured"]), ["data"]);
    assert_eq!(project.save(), saved, "nothing of its own work is seen");
    // What is above the state by another mount, or by a link, is no root either.
    let above = sandbox.dir().join("work/above");
    std::fs::create_dir(&above).unwrap();
    let Some(_mount) = Mount::bind(sandbox.dir(), above.clone()) else {
        return;
    };
    for state in [above.join("state"), above.clone()] {
        let path = state.to_str().unwrap();
        let refused = sandbox.stepback(sandbox.dir(), &["--json", "attach", "--here", "--force", path]);
        assert_eq!(refused.exits(1).json()["error"]["kind"], "refused_root");
    }
}
