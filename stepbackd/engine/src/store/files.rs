//! Files of the store: their modes whatever the umask, temporaries that vanish, and the barriers.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::fcntl::OFlag;

use crate::error::{At, Result};
use crate::fault;

/// Up to so many files are synced one by one; above, one `syncfs` is cheaper than that many barriers.
pub const FSYNC_EACH_MAX: usize = 32;

/// Mode of a directory of the store.
const DIR_MODE: u32 = 0o700;
/// Mode of a file that changes.
pub const FILE_MODE: u32 = 0o600;
/// Mode of an object or pack, which never change.
pub const OBJECT_MODE: u32 = 0o400;

/// Makes a directory of the store unless it is there; whether it was made. The parent must exist.
pub fn make_dir(path: &Path) -> Result<bool> {
    match DirBuilder::new().mode(DIR_MODE).create(path) {
        Ok(()) => {
            std::fs::set_permissions(path, Permissions::from_mode(DIR_MODE)).at(path)?;
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(false),
        Err(error) => Err(error).at(path),
    }
}

/// Makes what is missing of a directory and of those above it, synced.
pub fn make_dirs(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make_dirs(parent)?;
        make_dir(path)?;
        return sync_dir(parent);
    }
    make_dir(path).map(drop)
}

/// Opens a file of the store for reading: never through a link, never waiting for the other end of a FIFO. `None` when
/// it isn't there.
pub fn open_existing(path: &Path) -> Result<Option<File>> {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error).at(path),
    }
}

/// Whether an error means that there is no such file (also: a file stands where a directory above it would).
pub fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Makes a directory's entries durable.
pub fn sync_dir(path: &Path) -> Result<()> {
    fault::point("store.fsync").at(path)?;
    File::open(path).and_then(|dir| dir.sync_all()).at(path)
}

/// Makes everything on the file system of `path` durable.
pub fn sync_file_system(path: &Path) -> Result<()> {
    fault::point("store.fsync").at(path)?;
    #[cfg(target_os = "linux")]
    {
        let dir = File::open(path).at(path)?;
        nix::unistd::syncfs(dir).at(path)
    }
    #[cfg(not(target_os = "linux"))]
    {
        nix::unistd::sync();
        Ok(())
    }
}

/// Makes the contents of files durable that were written just now. All are on their way to the disk before the first is
/// waited for, so that one commit of the file system's journal does for most of them.
pub fn sync_files(files: &[&TempFile]) -> Result<()> {
    if files.len() > 1 {
        files.iter().for_each(|file| file.start_writing());
    }
    files.iter().try_for_each(|file| file.sync())
}

/// Removes a file; absent is fine.
pub fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if !is_absent(&error) => Err(error).at(path),
        _ => Ok(()),
    }
}

/// Replaces a small file as a whole, durably. On a crash it is the old or the new one.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let dir = path.parent().expect("a file of the store is in a directory");
    let mut temp = TempFile::new(dir, "tmp_file_", FILE_MODE)?;
    temp.write_all(bytes)?;
    temp.sync()?;
    temp.rename(path)?;
    sync_dir(dir)
}

/// A file that is removed when it is dropped without having been renamed.
#[derive(Debug)]
pub struct TempFile {
    path: PathBuf,
    /// `None` once closed, so that many can wait to be renamed.
    file: Option<File>,
}

impl TempFile {
    /// A new file in `dir`, its name beginning with `prefix`.
    pub fn new(dir: &Path, prefix: &str, mode: u32) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = dir.join(format!("{prefix}{}_{number}", std::process::id()));
            match Self::at(path.clone(), mode) {
                // A process that had our pid left it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => return other.at(path),
            }
        }
    }

    /// A new file at `path`, where nothing may be.
    pub fn at(path: PathBuf, mode: u32) -> io::Result<Self> {
        fault::point("store.create")?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path)?;
        let temp = Self {
            path,
            file: Some(file),
        };
        // The umask, or an inherited list of permissions, may have changed it: seldom, so a look comes first.
        if temp.file().metadata()?.permissions().mode() & 0o7777 != mode {
            temp.file().set_permissions(Permissions::from_mode(mode))?;
        }
        Ok(temp)
    }

    /// The open file.
    pub fn file(&self) -> &File {
        self.file.as_ref().expect("used before it is closed")
    }

    /// Where it is now.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends.
    pub fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        fault::point("store.write")
            .and_then(|()| self.file().write_all(bytes))
            .at(&self.path)
    }

    /// Makes its contents durable.
    pub fn sync(&self) -> Result<()> {
        fault::point("store.fsync")
            .and_then(|()| self.file().sync_all())
            .at(&self.path)
    }

    /// Lets the system begin to write it out; only a hint.
    fn start_writing(&self) {
        #[cfg(target_os = "linux")]
        {
            // On dirty pages this is what the advice does.
            let advice = nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED;
            let _ = nix::fcntl::posix_fadvise(self.file(), 0, 0, advice);
        }
    }

    /// Gives the descriptor back; it still waits to be renamed.
    pub fn close(&mut self) {
        self.file = None;
    }

    /// Gives it its name, replacing what is there.
    pub fn rename(mut self, to: &Path) -> Result<()> {
        fault::point("store.rename")
            .and_then(|()| std::fs::rename(&self.path, to))
            .at(to)?;
        self.path = PathBuf::new();
        Ok(())
    }
}

impl Write for TempFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        fault::point("store.write")?;
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // What can't be removed now is removed when the store is opened next.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Names in a directory; none when it isn't there.
pub fn names(dir: &Path) -> Result<Vec<OsString>> {
    match std::fs::read_dir(dir) {
        Ok(entries) => entries
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<io::Result<_>>()
            .at(dir),
        Err(error) if is_absent(&error) => Ok(Vec::new()),
        Err(error) => Err(error).at(dir),
    }
}

/// Disk blocks of everything below `dir`, in bytes. Files that vanish meanwhile count as gone.
pub fn disk_bytes(dir: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut sum = 0;
    for name in names(dir)? {
        let path = dir.join(name);
        match path.symlink_metadata() {
            Ok(meta) => {
                sum += meta.blocks() * 512;
                if meta.is_dir() {
                    sum += disk_bytes(&path)?;
                }
            }
            Err(error) if is_absent(&error) => {}
            Err(error) => return Err(error).at(path),
        }
    }
    Ok(sum)
}
