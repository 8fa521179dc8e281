//! A directory in a sandbox, and the commands that a test gives in it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::{Finished, GitSnapshot, Sandbox, Snapshot, eventually};

/// How long a settled state may be waited for on a loaded machine. What a test says about speed, it says itself.
const SETTLE_DEADLINE: Duration = Duration::from_secs(30);

/// A directory that is or will be attached.
#[derive(Debug, Clone)]
pub struct Project<'a> {
    /// Whose.
    pub sandbox: &'a Sandbox,
    /// Its path.
    pub path: PathBuf,
}

impl<'a> Project<'a> {
    /// The directory at `path`, which need not exist.
    #[must_use]
    pub const fn at(sandbox: &'a Sandbox, path: PathBuf) -> Self {
        Self { sandbox, path }
    }

    /// A shell script in the directory, as an agent would run it; it must succeed.
    #[track_caller]
    pub fn sh(&self, script: &str) -> Finished {
        self.sandbox.sh(&self.path, script)
    }

    /// `stepback ARGS` in the directory.
    #[track_caller]
    pub fn stepback<S: AsRef<OsStr>>(&self, args: &[S]) -> Finished {
        self.sandbox.stepback(&self.path, args)
    }

    /// `stepback ARGS` with more variables in the environment.
    #[track_caller]
    pub fn stepback_env<S: AsRef<OsStr>>(&self, args: &[S], env: &[(&str, &str)]) -> Finished {
        self.sandbox.stepback_env(&self.path, args, env)
    }

    /// `stepback --json ARGS`, which must exit 0; its answer.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        self.json_code(args, 0)
    }

    /// `stepback --json ARGS`, which must exit with `code`; its answer.
    #[track_caller]
    pub fn json_code(&self, args: &[&str], code: i32) -> Value {
        let args: Vec<&str> = std::iter::once("--json").chain(args.iter().copied()).collect();
        self.stepback(&args).exits(code).json()
    }

    /// `stepback ARGS`, which must fail with this kind of error and exit code, with the right shape in both forms; the
    /// `{kind, message, hint}` object.
    #[track_caller]
    pub fn fails(&self, args: &[&str], code: i32, kind: &str) -> Value {
        let text = self.stepback(args).exits(code);
        assert!(
            text.stderr.lines().any(|l| l.starts_with("stepback: ")),
            "no error line: {text:#?}"
        );
        let answer = self.json_code(args, code);
        keys(&answer, &["error"]);
        keys(&answer["error"], &["kind", "message", "hint"]);
        assert_eq!(answer["error"]["kind"], kind, "{answer:#}");
        answer["error"].clone()
    }

    /// Attaches exactly this directory; the first checkpoint's number.
    #[track_caller]
    pub fn attach(&self) -> u64 {
        number(&self.json(&["attach", "--here"])["checkpoint"])
    }

    /// The present tree's checkpoint.
    #[track_caller]
    pub fn save(&self) -> u64 {
        number(&self.json(&["save"])["id"])
    }

    /// `rewind N -y`; its report.
    #[track_caller]
    pub fn rewind(&self, id: u64) -> Value {
        self.json(&["rewind", &id.to_string(), "-y"])
    }

    /// `redo -y`; its report.
    #[track_caller]
    pub fn redo(&self) -> Value {
        self.json(&["redo", "-y"])
    }

    /// The `root` object of `status`.
    #[track_caller]
    pub fn status(&self) -> Value {
        self.json(&["status"])["root"].clone()
    }

    /// Waits until everything written before is in a checkpoint or known to need none.
    #[track_caller]
    pub fn settle(&self) {
        eventually("settled", SETTLE_DEADLINE, || self.status()["settled"] == true);
    }

    /// Checkpoints, newest first.
    #[track_caller]
    pub fn list(&self) -> Vec<Value> {
        self.json(&["list", "--all"])["checkpoints"]
            .as_array()
            .expect("checkpoints is an array")
            .clone()
    }

    /// Numbers of all checkpoints, newest first.
    #[track_caller]
    pub fn ids(&self) -> Vec<u64> {
        self.list().iter().map(|c| number(&c["id"])).collect()
    }

    /// A file's bytes as of a checkpoint.
    #[track_caller]
    pub fn show(&self, id: u64, path: &str) -> Vec<u8> {
        self.stepback(&["show", &format!("{id}:{path}")]).exits(0).stdout
    }

    /// The tree as it is.
    #[must_use]
    pub fn tree(&self) -> Snapshot {
        Snapshot::of(&self.path)
    }

    /// What is below every `.git`.
    #[must_use]
    pub fn git(&self) -> GitSnapshot {
        GitSnapshot::of(&self.path)
    }

    /// A file's path.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A file's bytes.
    #[track_caller]
    #[must_use]
    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.file(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Writes a file as an editor does: the same inode, other bytes.
    #[track_caller]
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.file(name), bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
    }

    /// Sha-256 of a file, in hexadecimal.
    #[track_caller]
    #[must_use]
    pub fn sha256(&self, name: &str) -> String {
        let mut command = self.sandbox.command("sha256sum", &self.path);
        command.arg("--").arg(name);
        let done = crate::finish(crate::start(&mut command), "sha256sum", Duration::from_secs(60)).exits(0);
        done.text()
            .trim_start_matches('\\')
            .split(' ')
            .next()
            .unwrap_or_default()
            .to_owned()
    }

    /// The store's directory.
    #[track_caller]
    #[must_use]
    pub fn store(&self) -> PathBuf {
        PathBuf::from(
            self.status()["store"]["path"]
                .as_str()
                .expect("a store has a path"),
        )
    }

    /// git, run on the store and not through the client; its output.
    #[track_caller]
    pub fn store_git(&self, args: &str) -> String {
        let store = self.store();
        self.sandbox
            .sh(
                Path::new("/"),
                &format!("git --git-dir='{}' {args}", store.display()),
            )
            .text()
    }

    /// Asserts that git finds nothing wrong with the store.
    #[track_caller]
    pub fn fsck(&self) {
        let store = self.store();
        let script = format!(
            "git --git-dir='{}' fsck --connectivity-only --no-dangling",
            store.display()
        );
        let done = self.sandbox.sh(Path::new("/"), &script);
        let said = format!("{}{}", done.text(), done.stderr);
        let bad: Vec<_> = said
            .lines()
            .filter(|l| !l.is_empty() && !l.starts_with("notice:"))
            .collect();
        assert!(bad.is_empty(), "git fsck of the store: {bad:#?}");
    }
}

/// The number in a JSON value.
#[track_caller]
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a number: {value}"))
}

/// Asserts that an object has exactly these keys.
#[track_caller]
pub fn keys(value: &Value, wanted: &[&str]) {
    let object = value
        .as_object()
        .unwrap_or_else(|| panic!("not an object: {value:#}"));
    let have: BTreeSet<&str> = object.keys().map(String::as_str).collect();
    let want: BTreeSet<&str> = wanted.iter().copied().collect();
    assert_eq!(have, want, "keys of {value:#}");
}
