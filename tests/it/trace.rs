//! What the daemon asks of the kernel: nothing is written below a root but by a rewind.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::Duration;

use stepback_tests::{Sandbox, eventually};

use crate::support::{EDITS, MID_MERGE, repository};

/// Calls that change a file that is open already: their first argument is what they change.
const ON_DESCRIPTOR: &[&str] = &[
    "write",
    "writev",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "ftruncate",
    "fallocate",
    "fchmod",
    "fchown",
    "fsetxattr",
    "fremovexattr",
    "sendfile",
    "copy_file_range",
    "ioctl",
];
/// Calls that change what a path names.
const ON_PATH: &[&str] = &[
    "rename",
    "renameat",
    "renameat2",
    "mkdir",
    "mkdirat",
    "unlink",
    "unlinkat",
    "rmdir",
    "symlink",
    "symlinkat",
    "link",
    "linkat",
    "chmod",
    "fchmodat",
    "fchmodat2",
    "chown",
    "lchown",
    "fchownat",
    "truncate",
    "utime",
    "utimes",
    "utimensat",
    "futimesat",
    "mknod",
    "mknodat",
    "creat",
    "setxattr",
    "lsetxattr",
    "removexattr",
    "lremovexattr",
    "mount",
    "bind",
];

/// Lines of an strace (with `-y`, so that descriptors show their paths) that write at or below `root`.
fn writes<'t>(trace: &'t str, root: &str) -> Vec<&'t str> {
    // `<...` is a descriptor's path, `"...` a path as it was given.
    let hit = |text: &str| {
        ['<', '"'].iter().any(|open| {
            text.match_indices(&format!("{open}{root}")).any(|(at, found)| {
                matches!(
                    text[at + found.len()..].chars().next(),
                    Some('/' | '>' | '"') | None
                )
            })
        })
    };
    let is_write = |line: &&str| {
        // `PID name(arguments) = result`; what a resumed call was asked stands in its first half.
        let Some(open) = line.find('(') else { return false };
        let name = line[..open].rsplit(' ').next().unwrap_or_default();
        let arguments = &line[open + 1..];
        let first = arguments.split(',').next().unwrap_or_default();
        if ON_DESCRIPTOR.contains(&name) {
            return name != "ioctl" && hit(first);
        }
        let opens_to_write = ["open", "openat", "openat2"].contains(&name)
            && ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_TMPFILE"]
                .iter()
                .any(|flag| line.contains(flag));
        (ON_PATH.contains(&name) || opens_to_write) && hit(arguments)
    };
    trace.lines().filter(is_write).collect()
}

#[test]
fn the_judge_knows_a_write_from_a_read() {
    let root = "/t/p";
    for write in [
        r#"7 openat(AT_FDCWD</>, "/t/p/a", O_WRONLY|O_CREAT, 0600) = 3</t/p/a>"#,
        r#"7 openat(5</t/p>, "a", O_RDWR) = 3</t/p/a>"#,
        r#"7 write(3</t/p/a>, "x", 1) = 1"#,
        r#"7 renameat2(5</t/state>, "a", 6</t/p>, "b", RENAME_EXCHANGE) = 0"#,
        r#"7 unlinkat(5</t/p/d>, "b", 0 <unfinished ...>"#,
        r#"7 mkdir("/t/p", 0700) = 0"#,
    ] {
        assert_eq!(writes(write, root).len(), 1, "{write}");
    }
    for read in [
        r#"7 openat(5</t/p>, "a", O_RDONLY|O_NOFOLLOW) = 3</t/p/a>"#,
        r#"7 read(3</t/p/a>, "x", 1) = 1"#,
        r#"7 openat(AT_FDCWD</>, "/t/pp/a", O_WRONLY|O_CREAT, 0600) = 3</t/pp/a>"#,
        r#"7 write(3</t/state/x>, "/t/p/a", 6) = 6"#,
        r#"7 inotify_add_watch(4<anon_inode:inotify>, "/t/p", IN_CREATE) = 1"#,
    ] {
        assert_eq!(writes(read, root).len(), 0, "{read}");
    }
}

#[test]
fn nothing_below_a_root_is_written_but_by_a_rewind() {
    let sandbox = Sandbox::new();
    let works = sandbox
        .command("strace", sandbox.dir())
        .args(["-o", "/dev/null", "true"])
        .output();
    if !works.is_ok_and(|o| o.status.success()) {
        println!("skipped: strace is not installed, or may not trace here");
        return;
    }
    let trace = sandbox.dir().join("trace");
    let mut prefix: Vec<&OsStr> = [
        "strace",
        "-f",
        "-y",
        "-s",
        "4096",
        "-e",
        "trace=%file,%desc",
        "-o",
    ]
    .iter()
    .map(OsStr::new)
    .collect();
    prefix.push(trace.as_os_str());
    let daemon = sandbox.daemon_under(&prefix);
    let project = sandbox.project("p");
    repository(&project, "");
    project.sh(MID_MERGE);
    project.attach();
    let first = project.save();
    project.sh(EDITS);
    project.settle();
    project.write("new", "more\n");
    project.save();
    for args in [
        &["list"][..],
        &["status", "--verify"],
        &["diff", "first", "-w"],
        &["show", "first:src/a"],
        &["rewind", "first", "-n"],
        &["session", "start", "s"],
        &["session", "end", "s"],
        &["pin", "first"],
        &["unpin", "first"],
    ] {
        project.stepback(args).exits(0);
    }
    let root = project.path.to_str().unwrap();
    let quiet = fs::read_to_string(&trace).unwrap();
    assert!(
        quiet.contains(&format!("{root}/docs")),
        "the trace ought to show the daemon reading the root"
    );
    assert_eq!(writes(&quiet, root), Vec::<&str>::new());

    project.rewind(first);
    eventually("the rewind is in the trace", Duration::from_secs(30), || {
        let now = fs::read_to_string(&trace).unwrap();
        !writes(&now[quiet.len()..], root).is_empty()
    });
    let loud = fs::read_to_string(&trace).unwrap();
    let below_git = writes(&loud, &format!("{root}/.git"));
    assert_eq!(below_git, Vec::<&str>::new(), "never below .git");
    project.stepback(&["daemon", "stop"]).exits(0);
    daemon.ended(Duration::from_secs(30));
    only_ours(&loud, root, sandbox.dir());
}

/// Every write of the daemon is below the root, in its state or its runtime directory, or to a device or pipe.
fn only_ours(trace: &str, root: &str, sandbox: &Path) {
    let sandbox = sandbox.to_str().unwrap();
    for line in writes(trace, "") {
        let ours = [
            root.to_owned(),
            format!("{sandbox}/state"),
            format!("{sandbox}/run"),
            format!("{sandbox}/daemon.log"),
        ];
        let known = ours.iter().any(|dir| line.contains(dir.as_str()))
            || ["/dev/", "/proc/", "pipe:[", "socket:[", "anon_inode:"]
                .iter()
                .any(|w| line.contains(w));
        assert!(known, "a write elsewhere: {line}");
    }
}
