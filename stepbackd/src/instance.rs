//! One daemon for each STATE: the lock, and the note of who holds it.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use stepback_proto::Note;

use crate::error::{At, Error, Result};
use crate::paths::Paths;
use crate::process;
use crate::registry::write_durably;
use crate::socket::{self, Listening};
use crate::state_file;

/// How long a daemon that holds the lock may take until it has said where it listens.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// How often one that doesn't answer is asked to look after its socket.
const KNOCK_AGAIN: Duration = Duration::from_secs(3);

/// The right to be the daemon of a STATE, held until dropped.
#[derive(Debug)]
pub struct Instance {
    paths: Paths,
    _lock: Flock<File>,
    door: Arc<Door>,
}

/// Where we listen, and how to listen anew when somebody has taken that away: a runtime directory that went with the
/// user's last session, say.
#[derive(Debug)]
pub struct Door {
    paths: Paths,
    /// The socket of our own making, with the inode to know it again; `None` for one that was passed to us.
    at: Mutex<Option<Made>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Made {
    path: PathBuf,
    identity: (u64, u64),
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
        let mut knocked: Option<Instant> = None;
        loop {
            let file = std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(state_file::flags())
                .open(&path)
                .at(&path)?;
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => {
                    // Of a daemon that was killed: nobody must take it for ours.
                    let _ = std::fs::remove_file(paths.daemon_json());
                    return Ok(Claim::Ours(Self {
                        paths: paths.clone(),
                        _lock: lock,
                        door: Arc::new(Door {
                            paths: paths.clone(),
                            at: Mutex::default(),
                        }),
                    }));
                }
                Err((_, Errno::EWOULDBLOCK | Errno::EINTR)) => {}
                Err((_, errno)) => return Err(errno).at(&path),
            }
            if let Some((pid, socket)) = served_by(paths) {
                return Ok(Claim::Served { pid, socket });
            }
            let holder = note(paths)
                .map(|note| note.pid)
                .filter(|pid| process::is_daemon(*pid));
            if Instant::now() >= deadline {
                let (who, end) = match holder {
                    Some(pid) => (format!(" (pid {pid})"), format!("`kill -9 {pid}` ends it")),
                    None => (String::new(), "end that process".into()),
                };
                return Err(Error::refused(
                    format!(
                        "another stepbackd{who} holds {} and doesn't answer",
                        path.display()
                    ),
                    format!("wait until it has ended, or {end}; nothing that is saved is lost by that"),
                ));
            }
            // It may have been left without its socket: then it makes another.
            if let Some(pid) = holder
                && knocked.is_none_or(|at| at.elapsed() >= KNOCK_AGAIN)
            {
                knocked = Some(Instant::now());
                process::hang_up(pid);
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
            self.door.made(socket);
        }
        self.door.announce(socket)
    }

    /// For listening anew.
    pub fn door(&self) -> Arc<Door> {
        Arc::clone(&self.door)
    }
}

impl Door {
    /// A new listener, if the socket of our own making is gone or is another's now: at the same path, else below STATE.
    /// Beside it whether that could be written down; if not, [`Self::announce`] is to be tried again.
    ///
    /// # Errors
    /// When neither can be had. The daemon is then found by nobody, but goes on.
    pub fn mend(&self) -> Result<Option<(UnixListener, Result<()>)>> {
        let made = self.lock().clone();
        let Some(made) = made.filter(|made| socket::identity(&made.path) != Some(made.identity)) else {
            return Ok(None);
        };
        tracing::warn!("the socket {} is gone: a new one is made", made.path.display());
        let (listener, path) = match socket::listen(&made.path) {
            Ok(listener) => (listener, made.path),
            Err(e) => {
                tracing::warn!("{e}");
                let path = self.paths.socket_in_state();
                (socket::listen(&path)?, path)
            }
        };
        self.made(&path);
        // On a full disk, say: the listener must not be lost with the note.
        let noted = write_note(&self.paths, &path);
        Ok(Some((listener, noted)))
    }

    /// Says to everyone where we listen; `passed` is where when the socket isn't of our own making.
    ///
    /// # Errors
    /// When the note can't be written.
    pub fn announce(&self, passed: &Path) -> Result<()> {
        let made = self.lock().clone();
        write_note(&self.paths, made.as_ref().map_or(passed, |made| &made.path))
    }

    fn made(&self, path: &Path) {
        *self.lock() = socket::identity(path).map(|identity| Made {
            path: path.to_owned(),
            identity,
        });
    }

    fn lock(&self) -> MutexGuard<'_, Option<Made>> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the note that says that this process listens at `socket`.
fn write_note(paths: &Paths, socket: &Path) -> Result<()> {
    let note = Note::new(std::process::id(), socket, env!("CARGO_PKG_VERSION"));
    let file = paths.daemon_json();
    let text = serde_json::to_vec(&note)
        .map_err(std::io::Error::from)
        .at(&file)?;
    write_durably(&file, &text)
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(made) = self.door.lock().take() {
            socket::remove(&made.path, Some(made.identity));
        }
        // Another daemon may have come, if somebody has taken our lock away.
        if note(&self.paths).is_none_or(|note| note.pid == std::process::id()) {
            let _ = std::fs::remove_file(self.paths.daemon_json());
        }
    }
}

fn note(paths: &Paths) -> Option<Note> {
    serde_json::from_slice(&state_file::read(&paths.daemon_json()).ok()?).ok()
}

/// The daemon that its note names and that answers there, if there is one.
pub fn served_by(paths: &Paths) -> Option<(u32, PathBuf)> {
    let note = note(paths)?;
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
            config_is_named: false,
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
    fn a_new_socket_is_listened_at_even_if_nobody_can_be_told() {
        let (_dir, paths) = paths();
        let mut instance = ours(&paths);
        let listener = socket::listen(&paths.socket).unwrap();
        instance.announce(&paths.socket, true).unwrap();
        assert!(instance.door().mend().unwrap().is_none());
        std::fs::remove_file(&paths.socket).unwrap();
        std::fs::remove_file(paths.daemon_json()).unwrap();
        std::fs::create_dir(paths.daemon_json()).unwrap();
        let (another, noted) = instance.door().mend().unwrap().unwrap();
        assert!(noted.is_err());
        std::fs::remove_dir(paths.daemon_json()).unwrap();
        instance.door().announce(Path::new("/elsewhere")).unwrap();
        assert_eq!(note(&paths).unwrap().socket(), paths.socket);
        drop(listener);
        std::os::unix::net::UnixStream::connect(&paths.socket).unwrap();
        another.accept().unwrap();
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
