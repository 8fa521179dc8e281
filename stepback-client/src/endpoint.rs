//! Where the daemon is, and looking for it there.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use stepback_proto::Note;

use crate::connection::{Probe, probe};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::process;

/// How long the daemon may take for its first word. It answers a hello at once unless it is stopped or its queue of
/// connections is full.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(30);

/// The same where the daemon itself is what is asked about.
const SOON: Duration = Duration::from_secs(5);

/// How long the service manager may take to start a daemon. It says so once that answers.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Where a daemon may be found.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// How long a daemon may take for its first word.
    patience: Duration,
    /// How long the service manager may take to start one.
    start_patience: Duration,
    explicit: Option<PathBuf>,
    default: PathBuf,
    state: PathBuf,
}

impl Endpoint {
    /// By the environment.
    pub fn new(environment: &Environment) -> Self {
        let state = environment.state.clone();
        let default = match &environment.runtime {
            Some(runtime) => runtime.join("stepback/stepbackd.sock"),
            None => state.join("stepbackd.sock"),
        };
        Self {
            patience: WELCOME_TIMEOUT,
            start_patience: START_TIMEOUT,
            explicit: environment.socket.clone(),
            default,
            state,
        }
    }

    /// The same, but with a daemon that has to answer, or to be started by the service manager, within `patience`.
    pub fn with_patience(&self, patience: Duration) -> Self {
        Self {
            patience,
            start_patience: patience,
            ..self.clone()
        }
    }

    /// The same for a command that is about the daemon itself: one that hangs is what it is there to tell.
    pub fn soon_told(&self) -> Self {
        Self {
            patience: SOON,
            ..self.clone()
        }
    }

    /// How long the service manager may take to start the daemon.
    pub const fn start_patience(&self) -> Duration {
        self.start_patience
    }

    /// The daemon's state directory.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// `STEPBACK_SOCKET` names the socket.
    pub fn is_named(&self) -> bool {
        self.explicit.is_some()
    }

    /// The process of the daemon that serves, or that served last and was killed, as it wrote it down.
    pub fn recorded_pid(&self) -> Option<u32> {
        Some(self.note()?.pid)
    }

    /// The process that serves our state directory, whether it answers or not: it has written itself down, it runs the
    /// daemon's program, and somebody holds the lock of the state directory, which that program does as long as it lives.
    pub fn serving_pid(&self) -> Option<u32> {
        self.recorded_pid()
            .filter(|pid| process::is_daemon(*pid) && self.is_locked())
    }

    fn is_locked(&self) -> bool {
        open(&self.state.join("lock")).is_ok_and(|file| {
            matches!(
                Flock::lock(file, FlockArg::LockSharedNonblock),
                Err((_, Errno::EWOULDBLOCK))
            )
        })
    }

    /// The socket that a daemon is looked for first: `STEPBACK_SOCKET`, else what `STATE/daemon.json` names, else the
    /// default.
    pub fn socket(&self) -> PathBuf {
        self.explicit
            .clone()
            .or_else(|| self.recorded())
            .unwrap_or_else(|| self.default.clone())
    }

    /// Looks for a daemon. One that hangs up on the hello is about to go: it is looked for once more.
    ///
    /// # Errors
    /// When something is there but can't be reached (no permission), or breaks the hello.
    pub fn probe(&self) -> Result<Probe> {
        match self.look()? {
            Probe::Absent => {}
            found => return Ok(found),
        }
        self.look()
    }

    fn look(&self) -> Result<Probe> {
        let first = self.socket();
        match self.named(&first, probe(&first, self.patience))? {
            // What the file names is from a daemon that died; another may be at the usual place.
            Probe::Absent if self.explicit.is_none() && first != self.default => {
                self.named(&self.default, probe(&self.default, self.patience))
            }
            found => Ok(found),
        }
    }

    /// Adds to a silence at this socket the process that has it.
    fn named(&self, socket: &Path, found: Result<Probe>) -> Result<Probe> {
        match found {
            Err(Error::Silent { pid: None, why, .. }) => {
                let is_recorded = self.recorded().as_deref() == Some(socket);
                let noted = self.recorded_pid().filter(|pid| process::is_daemon(*pid));
                Err(Error::Silent {
                    pid: is_recorded.then(|| self.serving_pid()).flatten(),
                    why,
                    noted: noted.map(|pid| (self.note_file(), pid)),
                })
            }
            found => found,
        }
    }

    /// What the running daemon wrote down about itself. A file that is missing, half-written or of another shape only
    /// means that there is nothing to learn from it.
    fn note(&self) -> Option<Note> {
        let mut bytes = Vec::new();
        open(&self.note_file()).ok()?.read_to_end(&mut bytes).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    fn note_file(&self) -> PathBuf {
        self.state.join("daemon.json")
    }

    fn recorded(&self) -> Option<PathBuf> {
        let socket = self.note()?.socket();
        socket.is_absolute().then_some(socket)
    }
}

/// Opens a regular file; anything else, a FIFO say, is an error and isn't waited for.
fn open(path: &Path) -> io::Result<File> {
    let file = File::options()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn the_recorded_socket_comes_before_the_default() {
        let dir = tempfile::tempdir().unwrap();
        let mut environment = Environment {
            state: dir.path().to_owned(),
            ..Environment::default()
        };
        assert_eq!(
            Endpoint::new(&environment).socket(),
            dir.path().join("stepbackd.sock")
        );
        environment.runtime = Some("/run/user/1".into());
        assert_eq!(
            Endpoint::new(&environment).socket(),
            Path::new("/run/user/1/stepback/stepbackd.sock")
        );
        for socket in [&b"/elsewhere/s"[..], b"/100%25/\t\"s", b"/\xff%/s"] {
            let socket = Path::new(std::ffi::OsStr::from_bytes(socket));
            let json = serde_json::to_vec(&Note::new(7, socket, "1")).unwrap();
            let mut file = std::fs::File::create(dir.path().join("daemon.json")).unwrap();
            io::Write::write_all(&mut file, &json).unwrap();
            assert_eq!(Endpoint::new(&environment).socket(), socket);
        }
        environment.socket = Some("/mine".into());
        assert_eq!(Endpoint::new(&environment).socket(), Path::new("/mine"));
    }
}
