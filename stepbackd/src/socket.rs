//! The socket's path: who listens there, and how to listen there ourselves without ever taking it from another.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use stepback_proto::{Hello, MAGIC, PROTOCOL, Welcome, frame};

use crate::error::{At, Error, Result};
use crate::paths::make_private_dir;

/// The longest path that `sun_path` holds, with its NUL.
const SUN_PATH_BYTES: usize = 108;

/// What is at a socket's path.
#[derive(Debug)]
pub enum Listening {
    /// A daemon of ours, of any version.
    Daemon(Welcome),
    /// Something that took the connection and isn't a daemon, or didn't answer in time.
    Stranger,
    /// Nobody.
    Nobody,
}

/// Asks who listens at `path`, for at most `patience`.
pub fn who_listens(path: &Path, patience: Duration) -> Listening {
    let Ok(mut stream) = connect(path) else {
        return Listening::Nobody;
    };
    let ask = || -> Option<Welcome> {
        stream.set_read_timeout(Some(patience)).ok()?;
        stream.set_write_timeout(Some(patience)).ok()?;
        frame::write(
            &mut stream,
            &Hello {
                magic: MAGIC,
                protocol: PROTOCOL,
            },
        )
        .ok()?;
        frame::read(&mut stream).ok()?
    };
    let mut ask = ask;
    ask().map_or(Listening::Stranger, Listening::Daemon)
}

/// Connects, also where the path is longer than `sun_path`.
///
/// # Errors
/// As `connect(2)`.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    through_short_name(path, |path| UnixStream::connect(path))
}

/// Listens at `path`: mode 0600, in a directory that nobody else can write to. A stale socket is replaced at once by the
/// new one. A socket that listens, and anything that is no socket of ours, is refused and stays.
///
/// # Errors
/// Why it was refused, by name.
pub fn listen(path: &Path) -> Result<UnixListener> {
    let dir = path
        .parent()
        .ok_or_else(|| Error::refused("the socket's path is the root directory", CHOOSE))?;
    let name = path
        .file_name()
        .ok_or_else(|| Error::refused("the socket's path has no name", CHOOSE))?;
    make_private_dir(dir)?;
    check_dir(dir)?;
    check_vacant(path)?;
    // Made under another name and then renamed: whoever sees it can connect to it.
    let mut temporary = name.to_owned();
    temporary.push(format!(".{}", std::process::id()));
    let temporary = dir.join(temporary);
    let _ = std::fs::remove_file(&temporary);
    let listener = through_short_name(&temporary, |path| UnixListener::bind(path)).at(path)?;
    let placed = std::fs::set_permissions(&temporary, PermissionsExt::from_mode(0o600))
        .and_then(|()| std::fs::rename(&temporary, path));
    if placed.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    placed.at(path)?;
    Ok(listener)
}

/// The inode at `path`: with it, [`remove`] knows our own socket again.
pub fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

/// Removes our socket at the end; one that another daemon has put there since stays.
pub fn remove(path: &Path, identity: Option<(u64, u64)>) {
    if identity.is_some() && self::identity(path) == identity {
        let _ = std::fs::remove_file(path);
    }
}

const CHOOSE: &str = "set STEPBACK_SOCKET to another path";

fn check_dir(dir: &Path) -> Result<()> {
    let metadata = std::fs::symlink_metadata(dir).at(dir)?;
    let why = if !metadata.is_dir() {
        "is not a directory"
    } else if metadata.uid() != nix::unistd::geteuid().as_raw() {
        "belongs to another user"
    } else if metadata.mode() & 0o022 != 0 {
        "can be written to by other users"
    } else {
        return Ok(());
    };
    Err(Error::refused(
        format!("the socket's directory {} {why}", dir.display()),
        CHOOSE,
    ))
}

fn check_vacant(path: &Path) -> Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e).at(path),
    };
    if !metadata.file_type().is_socket() {
        return Err(Error::refused(
            format!("{} is not a socket; it stays as it is", path.display()),
            "move it away, or set STEPBACK_SOCKET to another path",
        ));
    }
    if metadata.uid() != nix::unistd::geteuid().as_raw() {
        return Err(Error::refused(
            format!("the socket {} belongs to another user", path.display()),
            CHOOSE,
        ));
    }
    match who_listens(path, Duration::from_secs(2)) {
        Listening::Nobody => Ok(()),
        Listening::Daemon(welcome) => Err(Error::refused(
            format!(
                "a stepbackd of another state directory (pid {}) listens at {}",
                welcome.pid,
                path.display()
            ),
            CHOOSE,
        )),
        Listening::Stranger => Err(Error::refused(
            format!("another program listens at {}", path.display()),
            CHOOSE,
        )),
    }
}

fn through_short_name<T>(path: &Path, call: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().len() < SUN_PATH_BYTES {
        return call(path);
    }
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return call(path);
    };
    let dir = open(
        dir,
        OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    call(&PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn private_dir() -> tempfile::TempDir {
        tempfile::Builder::new()
            .permissions(PermissionsExt::from_mode(0o700))
            .tempdir()
            .unwrap()
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = private_dir();
        let path = dir.path().join("sub/s.sock");
        drop(listen(&path).unwrap());
        let stale = identity(&path).unwrap();
        let listener = listen(&path).unwrap();
        assert_ne!(identity(&path).unwrap(), stale);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(
            std::fs::metadata(dir.path().join("sub")).unwrap().mode() & 0o777,
            0o700
        );
        let stranger = std::thread::spawn(move || drop(listener.accept()));
        let refused = listen(&path).unwrap_err().to_string();
        assert!(refused.contains("another program listens"), "{refused}");
        stranger.join().unwrap();
        assert!(path.exists());
        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1,
            "no temporary name stays"
        );
    }

    #[test]
    fn what_is_no_socket_of_ours_stays() {
        let dir = private_dir();
        let path = dir.path().join("s.sock");
        std::fs::write(&path, "mine").unwrap();
        assert!(
            listen(&path)
                .unwrap_err()
                .to_string()
                .contains("s.sock is not a socket")
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(listen(&link).is_err());
    }

    #[test]
    fn directories_that_others_reach_are_refused() {
        let dir = private_dir();
        let open = dir.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
        assert!(
            listen(&open.join("s"))
                .unwrap_err()
                .to_string()
                .contains("other users")
        );
        std::os::unix::fs::symlink(dir.path(), dir.path().join("link")).unwrap();
        assert!(
            listen(&dir.path().join("link/s"))
                .unwrap_err()
                .to_string()
                .contains("not a directory")
        );
    }

    #[test]
    fn a_long_path_works() {
        let dir = private_dir();
        let path = dir.path().join("d".repeat(150)).join("s.sock");
        let _listener = listen(&path).unwrap();
        connect(&path).unwrap();
        remove(&path, Some((0, 0)));
        assert!(path.exists());
        remove(&path, identity(&path));
        assert!(!path.exists());
    }
}
