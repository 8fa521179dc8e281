//! Trees and small things that several topics share.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use stepback_tests::{Project, Sandbox};

/// How many rounds a test of chance takes: `STEPBACK_ROUNDS`, else 20.
pub fn rounds() -> u64 {
    number_from("STEPBACK_ROUNDS", 20)
}

/// How long a test of time goes on: `STEPBACK_SECONDS`, else so many seconds.
pub fn seconds(otherwise: u64) -> u64 {
    number_from("STEPBACK_SECONDS", otherwise)
}

/// How large a test is: the number in a variable, else this one.
pub fn number_from(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable)
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(otherwise)
}

/// How much of something: little in `make test`, all of it with `STEPBACK_SCALE=full`.
pub fn scale(little: u64, all: u64) -> u64 {
    match std::env::var("STEPBACK_SCALE").as_deref() {
        Ok("full") => all,
        Ok(number) => number.parse().unwrap_or(little),
        Err(_) => little,
    }
}

/// Files of every plain kind, without git.
pub const FILES: &str = r"
mkdir -p src docs/deep empty-dir
printf 'one\n' > src/a
printf 'two\n' > src/b
printf 'three\n' > docs/deep/c
printf '#!/bin/sh\necho hi\n' > run.sh
printf 'no newline' > last-line
: > nothing
ln -s src/a link
ln -s /nonexistent/target dangling
chmod 600 src/b
";

/// What is there beside commits, after [`FILES`] and `git init`: a merge that stopped, on a detached HEAD, with staged,
/// unstaged, untracked and ignored files.
pub const MID_MERGE: &str = r"
git checkout -q -b side; printf 'side\n' > src/a; git commit -qam side
git checkout -q main; printf 'main\n' > src/a; git commit -qam main
git checkout -q --detach
git merge side >/dev/null 2>&1 && exit 1
printf 'staged\n' > src/staged; git add src/staged
printf 'staged\n' > run.sh; git add run.sh; printf 'and unstaged\n' >> run.sh
printf 'unstaged\n' >> docs/deep/c
printf 'untracked\n' > untracked
printf 'ignored\n' > ignored.txt
mkdir out-dir; printf 'ignored\n' > out-dir/o
";

/// Makes a repository of `FILES` in the directory, one commit, and an ignore file. `options` go to `git init`.
pub fn repository(project: &Project<'_>, options: &str) {
    project.sh(&format!(
        "git init -q {options} .\n{FILES}\nprintf 'ignored.txt\\nout-dir/\\n' > .gitignore\ngit add -A\ngit commit -qm one"
    ));
}

/// Makes a repository with one file, `a`, in one commit.
pub fn committed(project: &Project<'_>) {
    project.sh("git init -q .; printf 'v1\n' > a; git add a; git commit -qm one");
}

/// What an agent does to such a tree through the shell, without git: edits, creates, deletes, renames, chmods, links.
pub const EDITS: &str = r"
sed -i 's/three/THREE/' docs/deep/c
cat > new <<EOF
hello
EOF
rm last-line
mv src lib
chmod +x lib/b
chmod 711 docs
rm link; ln -s nowhere link
rm dangling; mkdir dangling; printf 'now a directory\n' > dangling/f
[ ! -d empty-dir ] || rmdir empty-dir
mkdir -p fresh/dir
printf 'other\n' > run.sh
printf 'filled\n' > nothing
";

/// Saves, edits through the shell, rewinds, redoes, rewinds: the tree is exact each time and nothing below any `.git` is
/// touched. `projects` beyond the first are only looked at.
#[track_caller]
pub fn round_trip(project: &Project<'_>, also: &[&Project<'_>]) {
    let gits = || {
        std::iter::once(&project)
            .chain(also)
            .map(|p| p.git())
            .collect::<Vec<_>>()
    };
    let git = gits();
    let untouched = |when: &str| git.iter().zip(gits()).for_each(|(was, now)| was.same(&now, when));
    let before = project.tree();
    project.attach();
    let first = project.save();
    untouched("after attach and save");
    before.same(&project.tree(), "after attach and save");
    project.sh(EDITS);
    let edited = project.tree();
    before.differs(&edited, "after the edits");
    project.settle();
    untouched("after the automatic checkpoint");

    let report = project.rewind(first);
    assert_eq!(report["kept"], Value::Array(Vec::new()), "{report:#}");
    before.same(&project.tree(), "after rewind");
    untouched("after rewind");
    project.redo();
    edited.same(&project.tree(), "after redo");
    untouched("after redo");
    project.rewind(first);
    before.same(&project.tree(), "after the second rewind");
    untouched("after the second rewind");
    project.fsck();
}

/// Numbers in an array of JSON objects, under `key`.
pub fn numbers(of: &[Value], key: &str) -> Vec<u64> {
    of.iter().filter_map(|v| v[key].as_u64()).collect()
}

/// The entry of a checkpoint in `list`.
#[track_caller]
pub fn entry(project: &Project<'_>, id: u64) -> Value {
    let list = project.list();
    list.iter()
        .find(|c| c["id"] == id)
        .unwrap_or_else(|| panic!("no checkpoint {id} in {list:#?}"))
        .clone()
}

/// What `status` warns of, of one kind.
pub fn warnings(project: &Project<'_>, kind: &str) -> Vec<Value> {
    let status = project.status();
    let all = status["warnings"].as_array().unwrap().iter();
    all.filter(|warning| warning["kind"] == kind).cloned().collect()
}

/// The paths in an array of `{path, ..}`.
pub fn paths(of: &Value) -> Vec<String> {
    let array = of.as_array().unwrap_or_else(|| panic!("not an array: {of}"));
    array
        .iter()
        .map(|v| {
            v["path"]
                .as_str()
                .unwrap_or_else(|| panic!("no path: {v}"))
                .to_owned()
        })
        .collect()
}

/// The status letter of a path in `changes` or `files`, if it is there.
pub fn status_of(of: &Value, path: &str) -> Option<String> {
    of.as_array()?.iter().find(|v| v["path"] == path)?["status"]
        .as_str()
        .map(str::to_owned)
}

/// The top level of this repository.
pub fn top() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

/// Disk blocks of everything below a directory, in bytes.
pub fn bytes_on_disk(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let mut sum = 0;
    let Ok(entries) = std::fs::read_dir(dir) else {
        return 0;
    };
    for entry in entries.flatten() {
        // What vanishes meanwhile uses nothing.
        if let Ok(metadata) = entry.path().symlink_metadata() {
            sum += metadata.blocks() * 512;
            if metadata.is_dir() {
                sum += bytes_on_disk(&entry.path());
            }
        }
    }
    sum
}

/// Bytes that don't compress, the same for the same seed.
pub fn random_bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut random = stepback_tests::Random::seeded(seed);
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

/// For what takes seconds on a loaded machine.
pub fn long_deadline() -> std::time::Duration {
    std::time::Duration::from_secs(60)
}

/// Beginnings of the sha-256 of `v1\n`, `v2\n`, `v3\n` and `KEEP\n`, as the cases give them.
pub const V1: &str = "2d27fbdf4e8ca207";
pub const V2: &str = "81db67b6a5702b9b";
pub const V3: &str = "1875add404b2a01d";
pub const KEEP: &str = "c7cde802";

/// Asserts what a file's sha-256 begins with.
#[track_caller]
pub fn is(project: &Project<'_>, file: &str, sha256: &str) {
    let now = project.sha256(file);
    assert!(
        now.starts_with(sha256),
        "{file} is {now} and ought to be {sha256}..."
    );
}

/// A file system mounted for a test.
pub struct Mount<'a> {
    at: PathBuf,
    sandbox: &'a Sandbox,
}

impl<'a> Mount<'a> {
    /// `None`, and a printed reason, where that can't be had.
    pub fn tmpfs(sandbox: &'a Sandbox, at: &Path, options: &str) -> Option<Self> {
        let mut mount = Command::new("mount");
        let mounted = mount
            .args(["-t", "tmpfs", "-o", options, "stepback-test"])
            .arg(at)
            .output();
        if mounted.is_ok_and(|done| done.status.success()) {
            let at = at.to_owned();
            return Some(Self { at, sandbox });
        }
        println!("skipped: a tmpfs can't be mounted here (root can)");
        None
    }

    /// What `umount` has to say while the daemon is as it is.
    pub fn unmount(&self) -> String {
        let output = Command::new("umount").arg(&self.at).output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        // The daemon goes first: what says how to find it may be on this file system.
        let mut stop = self
            .sandbox
            .command(self.sandbox.program("stepback"), self.sandbox.dir());
        drop(stop.args(["daemon", "stop"]).output());
        drop(Command::new("umount").arg("-l").arg(&self.at).output());
    }
}
