//! What can go wrong around the roots: start, settings, registry. What goes wrong in a root is the engine's error.

use std::io;
use std::path::{Path, PathBuf};

/// The daemon's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the daemon can't start or go on. `Display` is one line for people, [`Error::hint`] what they can do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused something.
    #[error("{}: {source}", path.display())]
    Io {
        /// At which path.
        path: PathBuf,
        /// How.
        source: io::Error,
    },
    /// A file that people write (config) or that we wrote (registry) can't be understood.
    #[error("{}:{line}: {message}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        message: String,
        /// What to do.
        hint: &'static str,
    },
    /// A variable of the environment that can't be used.
    #[error("{message}")]
    Variable {
        /// Which, and why.
        message: String,
        /// What to do.
        hint: &'static str,
    },
    /// Something that isn't as it must be for us to start.
    #[error("{message}")]
    Refused {
        /// What.
        message: String,
        /// What to do.
        hint: String,
    },
}

impl Error {
    /// What to do about it; empty when there is nothing to say.
    pub fn hint(&self) -> &str {
        match self {
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "check the owner and the mode of that path and of the directories above it"
            }
            Self::Io { .. } => "",
            Self::Broken { hint, .. } | Self::Variable { hint, .. } => hint,
            Self::Refused { hint, .. } => hint,
        }
    }

    /// Whether there was no room on the disk.
    pub fn is_no_space(&self) -> bool {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        matches!(self, Self::Io { source, .. } if full.contains(&source.kind()))
    }

    /// What `stepbackd` exits with: clients tell by it what is wrong. 78 is `EX_CONFIG`.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Broken { .. } | Self::Variable { .. } => 78,
            Self::Io { .. } | Self::Refused { .. } => 1,
        }
    }

    /// Something that isn't as it must be, with the remedy.
    pub fn refused(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Refused {
            message: message.into(),
            hint: hint.into(),
        }
    }
}

/// Gives an I/O result the path that it is about.
pub trait At<T> {
    /// The same result, the error with `path`.
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

impl<T> At<T> for nix::Result<T> {
    fn at(self, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|errno| Error::Io {
            path: path.as_ref().to_owned(),
            source: errno.into(),
        })
    }
}
