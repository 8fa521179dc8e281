//! What can go wrong in the client, and how each error reads: one line, a hint, a kind for programs, an exit code.

use std::io;
use std::path::{Path, PathBuf};

use stepback_proto::frame::FrameError;
use stepback_proto::{Failure, FailureKind, PROTOCOL, Welcome};

/// A failed command.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The daemon said no.
    #[error("{}", .0.message)]
    Told(Failure),
    /// The command line doesn't make sense.
    #[error("{message}")]
    Usage { message: String, hint: String },
    /// A question was answered with no, or there was nobody to ask.
    #[error("{message}")]
    Declined { message: String, hint: String },
    /// No daemon answers and none could be started.
    #[error("no daemon answers at {}: {why}", socket.display())]
    Absent {
        socket: PathBuf,
        why: String,
        hint: String,
    },
    /// The daemon can't start, for a reason that it gave.
    #[error("the daemon can't start: {why}")]
    NotStarted { why: String, hint: String, config: bool },
    /// Something is there, but doesn't say who it is.
    #[error("the daemon{} doesn't answer: {why}", numbered(*.pid))]
    Silent {
        /// Its process, where that is known for sure.
        pid: Option<u32>,
        why: String,
        /// The note of a daemon that runs, and the process that it names.
        noted: Option<(PathBuf, u32)>,
    },
    /// The daemon took the request, and then said nothing: it may be well, and what was asked about not.
    #[error("the daemon (pid {pid}) took the request, but doesn't answer it: {why}")]
    Unanswered { pid: u32, why: String },
    /// Another user listens at the socket.
    #[error("user {who} listens at {}, not this one", socket.display())]
    Stranger { socket: PathBuf, who: u32 },
    /// The daemon speaks another protocol.
    #[error("{}", mismatch(.0))]
    WrongVersion(Welcome),
    /// The connection broke in the middle of an answer.
    #[error("the daemon went away in the middle of its answer: {0}")]
    Lost(FrameError),
    /// The daemon answered with something that isn't an answer to this request.
    #[error("the daemon's answer to {0} makes no sense")]
    Unexpected(&'static str),
    /// A file or program of the user's that the client itself deals with.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The environment lacks something, or has something odd.
    #[error("{message}")]
    Environment { message: String, hint: String },
    /// Whoever read our output has gone. Says nothing and isn't a failure.
    #[error("nobody reads the output")]
    OutputClosed,
}

/// The result of everything in the client.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A usage error with a hint (which may be empty).
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage {
            message: message.into(),
            hint: hint.into(),
        }
    }

    /// A silence of nobody knows whom.
    pub fn silent(why: impl Into<String>) -> Self {
        Self::Silent {
            pid: None,
            why: why.into(),
            noted: None,
        }
    }

    /// The kind, as in `--json`.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Told(failure) => failure.kind,
            Self::Usage { .. } => FailureKind::Usage,
            Self::Declined { .. } => FailureKind::Declined,
            Self::Absent { .. } | Self::Silent { .. } | Self::Unanswered { .. } | Self::Lost(_) => {
                FailureKind::DaemonUnavailable
            }
            Self::NotStarted { config: true, .. } => FailureKind::Config,
            Self::NotStarted { .. } => FailureKind::DaemonUnavailable,
            Self::Stranger { .. } => FailureKind::Permission,
            Self::WrongVersion(_) => FailureKind::VersionMismatch,
            Self::Environment { .. } => FailureKind::Config,
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => FailureKind::Permission,
                io::ErrorKind::StorageFull => FailureKind::NoSpace,
                _ => FailureKind::Internal,
            },
            Self::Unexpected(_) | Self::OutputClosed => FailureKind::Internal,
        }
    }

    /// What to do about it; empty when there is no remedy.
    pub fn hint(&self) -> String {
        match self {
            Self::Told(failure) => failure.hint.clone(),
            Self::Usage { hint, .. }
            | Self::Declined { hint, .. }
            | Self::Absent { hint, .. }
            | Self::NotStarted { hint, .. }
            | Self::Environment { hint, .. } => hint.clone(),
            Self::WrongVersion(welcome) if welcome.protocol < PROTOCOL => {
                "run `stepback daemon restart` to start the newer one".into()
            }
            Self::WrongVersion(_) => {
                "update stepback, or run `stepback daemon restart` to start the daemon that belongs to it"
                    .into()
            }
            Self::Stranger { .. } => {
                "run stepback as the user whose daemon it is (without sudo), or set STEPBACK_SOCKET and \
                 STEPBACK_STATE_DIR to places of your own"
                    .into()
            }
            Self::Silent { pid: Some(_), .. } => {
                "`stepback daemon restart` ends it and starts another; nothing that is saved is lost".into()
            }
            Self::Silent {
                noted: Some((file, pid)),
                ..
            } => format!(
                "see `stepback daemon logs`; if it hangs, end the process {pid}, which {} names",
                file.display()
            ),
            Self::Silent { .. } => "see `stepback daemon logs`".into(),
            Self::Unanswered { .. } => {
                "`stepback status` says whether the file system of this directory answers".into()
            }
            Self::Lost(_) => {
                "see `stepback daemon logs`, and `stepback status` for what was left unfinished".into()
            }
            Self::Unexpected(_) => "run `stepback daemon restart`: the two programs may differ".into(),
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "check the owner and the mode of that path and of the directories above it".into()
            }
            Self::Io { .. } | Self::OutputClosed => String::new(),
        }
    }

    /// What the process exits with.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::OutputClosed => 0,
            other => other.kind().exit_code(),
        }
    }
}

/// Adds the path to an I/O error.
pub trait At<T> {
    /// As [`Error::Io`] at `path`.
    fn at(self, path: impl AsRef<Path>) -> Result<T>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|source| Error::Io {
            path: path.as_ref().to_owned(),
            source,
        })
    }
}

/// ` (pid N)`, if it is known.
pub fn numbered(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

fn mismatch(welcome: &Welcome) -> String {
    let older = if welcome.protocol < PROTOCOL {
        "the running daemon"
    } else {
        "this stepback"
    };
    format!(
        "{older} is older: stepback {} speaks protocol {PROTOCOL}, the daemon (pid {}, version {}) speaks {}",
        env!("CARGO_PKG_VERSION"),
        welcome.pid,
        welcome.version,
        welcome.protocol
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mismatch_says_which_side_is_older() {
        let at = |protocol| {
            Error::WrongVersion(Welcome {
                protocol,
                version: "9.9.9".into(),
                pid: 7,
            })
        };
        assert!(at(PROTOCOL + 1).to_string().starts_with("this stepback is older"));
        assert!(at(0).to_string().starts_with("the running daemon is older"));
        assert!(at(0).hint().contains("stepback daemon restart"));
        assert!(at(PROTOCOL + 1).hint().contains("stepback daemon restart"));
        assert_eq!(at(0).kind(), FailureKind::VersionMismatch);
    }
}
