//! One daemon for each STATE: the lock, and the note of who holds it.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use stepback_proto::Note;

use crate::error::{At, Error, Result};
use crate::paths::Paths;
use crate::registry::write_durably;
use crate::socket::{self, Listening};

/// How long a daemon that holds the lock may take until it has said where it listens.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// The right to be the daemon of a STATE, held until dropped.
#[derive(Debug)]
pub struct Instance {
    paths: Paths,
    _lock: Flock<File>,
    socket: Option<(u64, u64)>,
}

/// Who is the daemon of this STATE.
#[derive(Debug)]
pub enum Claim {
    /// We are.
    Ours(Instance),
    /// Another process is.
    Served {
        /// Its process id.
        pid: u32,
        /// Where it listens.
        socket: PathBuf,
    },
}

impl Instance {
    /// Takes the lock of STATE, or finds out who has it.
    ///
    /// # Errors
    /// When the lock can't be opened, or its holder doesn't say who it is within ten seconds.
    pub fn claim(paths: &Paths) -> Result<Claim> {
        let path = paths.lock();
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            let file = std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)
                .at(&path)?;
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => {
                    // Of a daemon that was killed: nobody must take it for ours.
                    let _ = std::fs::remove_file(paths.daemon_json());
                    return Ok(Claim::Ours(Self {
                        paths: paths.clone(),
                        _lock: lock,
                        socket: None,
                    }));
                }
                Err((_, Errno::EWOULDBLOCK | Errno::EINTR)) => {}
                Err((_, errno)) => return Err(errno).at(&path),
            }
            if let Some((pid, socket)) = served_by(paths) {
                return Ok(Claim::Served { pid, socket });
            }
            if Instant::now() >= deadline {
                return Err(Error::refused(
                    format!(
                        "another stepbackd holds {} and doesn't say where it listens",
                        path.display()
                    ),
                    "wait until it has ended, or end that process",
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Says to everyone that this process serves STATE, at `socket`. One of our own making is removed at the end.
    ///
    /// # Errors
    /// When the note can't be written.
    pub fn announce(&mut self, socket: &Path, own_socket: bool) -> Result<()> {
        if own_socket {
            self.socket = socket::identity(socket);
        }
        write_note(&self.paths, socket)
    }
}

/// Writes the note that says that this process listens at `socket`.
///
/// # Errors
/// When it can't be written.
pub fn write_note(paths: &Paths, socket: &Path) -> Result<()> {
    let note = Note::new(std::process::id(), socket, env!("CARGO_PKG_VERSION"));
    let file = paths.daemon_json();
    let text = serde_json::to_vec(&note)
        .map_err(std::io::Error::from)
        .at(&file)?;
    write_durably(&file, &text)
}

impl Drop for Instance {
    fn drop(&mut self) {
        socket::remove(&self.paths.socket, self.socket);
        let _ = std::fs::remove_file(self.paths.daemon_json());
    }
}

/// The daemon that its note names and that answers there, if there is one.
pub fn served_by(paths: &Paths) -> Option<(u32, PathBuf)> {
    let note: Note = serde_json::from_slice(&std::fs::read(paths.daemon_json()).ok()?).ok()?;
    let socket = note.socket();
    match socket::who_listens(&socket, Duration::from_secs(2)) {
        Listening::Daemon(welcome) if welcome.pid == note.pid => Some((note.pid, socket)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use stepback_proto::{Hello, PROTOCOL, Welcome, frame};

    use super::*;

    fn paths() -> (tempfile::TempDir, Paths) {
        let dir = tempfile::Builder::new()
            .permissions(PermissionsExt::from_mode(0o700))
            .tempdir()
            .unwrap();
        let state = dir.path().join("state");
        let paths = Paths {
            socket: state.join("s.sock"),
            config: state.join("c"),
            state,
        };
        paths.make_state().unwrap();
        (dir, paths)
    }

    fn ours(paths: &Paths) -> Instance {
        match Instance::claim(paths).unwrap() {
            Claim::Ours(instance) => instance,
            Claim::Served { pid, .. } => panic!("served by {pid}"),
        }
    }

    #[test]
    fn the_second_is_told_who_serves() {
        let (_dir, paths) = paths();
        let mut first = ours(&paths);
        let listener = socket::listen(&paths.socket).unwrap();
        first.announce(&paths.socket, true).unwrap();
        assert_eq!(
            std::fs::metadata(paths.daemon_json()).unwrap().mode() & 0o777,
            0o600
        );
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let hello: Hello = frame::read(&mut stream).unwrap().unwrap();
            let version = String::new();
            frame::write(
                &mut stream,
                &Welcome {
                    protocol: hello.protocol,
                    version,
                    pid: std::process::id(),
                },
            )
            .unwrap();
        });
        let Claim::Served { pid, socket } = Instance::claim(&paths).unwrap() else {
            panic!("two daemons")
        };
        assert_eq!((pid, socket), (std::process::id(), paths.socket.clone()));
        server.join().unwrap();
        assert_eq!(PROTOCOL, 1);
        drop(first);
        assert!(!paths.socket.exists() && !paths.daemon_json().exists());
        drop(ours(&paths));
    }

    #[test]
    fn a_note_of_a_dead_daemon_counts_for_nothing() {
        let (_dir, paths) = paths();
        std::fs::write(
            paths.daemon_json(),
            r#"{"pid":1,"socket":"/nowhere","version":"0"}"#,
        )
        .unwrap();
        assert!(served_by(&paths).is_none());
        let _instance = ours(&paths);
        assert!(!paths.daemon_json().exists());
    }
}
