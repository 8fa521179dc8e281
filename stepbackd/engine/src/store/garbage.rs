//! Removing what no ref needs any longer, by the user's git.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::error::{At, Error, Result};

use super::Store;

impl Store {
    /// Removes objects that no ref reaches; keeps every writer out meanwhile. Without git nothing is removed: the space
    /// stays used, nothing is harmed.
    ///
    /// # Errors
    /// When git can't be run or fails; then everything that a ref needs is still there.
    pub fn collect_garbage(&self, git: Option<&Path>, path: Option<&OsStr>) -> Result<()> {
        let Some(git) = git else { return Ok(()) };
        let _alone = self.lock_exclusive()?;
        // Loose objects first, so that the new pack doesn't take them in. Deltas are kept as they are: no search.
        self.run_git(git, path, &["prune", "--expire=now"])?;
        self.run_git(
            git,
            path,
            &[
                "repack",
                "-a",
                "-d",
                "-q",
                "--window=0",
                "--no-write-bitmap-index",
            ],
        )?;
        self.packs.refresh()
    }

    fn run_git(&self, git: &Path, path: Option<&OsStr>, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(git);
        command
            .env_clear()
            .envs(path.map(|path| ("PATH", path)))
            .envs([
                ("GIT_CONFIG_NOSYSTEM", "1"),
                ("GIT_CONFIG_GLOBAL", "/dev/null"),
                ("LC_ALL", "C"),
            ])
            .current_dir("/")
            .arg("--git-dir")
            .arg(self.path())
            .args([
                "-c",
                "core.fsmonitor=false",
                "-c",
                "core.hooksPath=/dev/null",
                "-c",
                "safe.directory=*",
            ])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let output = command.output().at(git)?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("No space left") || said.contains("Out of diskspace") {
            return Err(std::io::Error::from(std::io::ErrorKind::StorageFull)).at(self.path());
        }
        Err(Error::Damaged {
            store: self.path().to_owned(),
            what: format!(
                "`git {}` failed: {}",
                arguments[0],
                said.lines().last().unwrap_or("without a word")
            ),
        })
    }
}
