//! Reading a split index without a trace: git sets the modification time of the shared part whenever it reads it, whatever
//! it is told of optional locks. So it is shown copies, in a git directory of our own.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{At, Result};
use crate::user_file;

/// Begins the names of the shared parts of split indexes.
const SHARED: &[u8] = b"sharedindex.";

/// A git directory of ours with copies of an index and its shared parts; removed when dropped.
#[derive(Debug)]
pub(super) struct StandIn(PathBuf);

impl StandIn {
    /// Makes one below `scratch`, if the index in `git_dir` is split. `format` tells the repository's object format.
    pub fn of(
        git_dir: &Path,
        common: &Path,
        scratch: &Path,
        format: impl FnOnce() -> Result<String>,
    ) -> Result<Option<Self>> {
        let shared = shared_parts(git_dir)?;
        if shared.is_empty() {
            return Ok(None);
        }
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let stand_in = Self(scratch.join(format!("index-{}-{count}", std::process::id())));
        let dir = &stand_in.0;
        for dir in [dir, &dir.join("refs"), &dir.join("objects/info")] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(dir)
                .at(dir)?;
        }
        for part in shared
            .iter()
            .map(PathBuf::as_path)
            .chain([git_dir.join("index").as_path()])
        {
            let to = dir.join(part.file_name().unwrap_or_default());
            let (mut from, _) = user_file::open(part).at(part)?;
            let mut copy = fs::File::create(&to).at(&to)?;
            io::copy(&mut from, &mut copy).at(&to)?;
        }
        let mut alternate = common.join("objects").as_os_str().as_bytes().to_vec();
        alternate.push(b'\n');
        let format = format()?;
        let config = format!(
            "[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectFormat = {format}\n"
        );
        for (name, bytes) in [
            ("HEAD", b"ref: refs/heads/none\n".as_slice()),
            ("config", config.as_bytes()),
            ("objects/info/alternates", &alternate),
        ] {
            let file = dir.join(name);
            fs::write(&file, bytes).at(&file)?;
        }
        Ok(Some(stand_in))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        // A leftover is below our own directory, and small; there is nobody to tell.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn shared_parts(git_dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(git_dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e).at(git_dir),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.at(git_dir)?;
        if entry.file_name().as_bytes().starts_with(SHARED) {
            found.push(entry.path());
        }
    }
    Ok(found)
}
