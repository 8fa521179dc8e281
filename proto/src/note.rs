//! What daemon and clients leave each other in STATE, as JSON, unlike the frames: where clients find the daemon that serves
//! (`daemon.json`), and what they couldn't tell it (`unsaved/*.json`).

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The note of the daemon that serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Its process.
    pub pid: u32,
    socket: Text,
    /// Its version.
    pub version: String,
}

/// The directory of [`Unsaved`] notes in STATE.
pub const UNSAVED_DIR: &str = "unsaved";

/// The note of a hook that waited in vain for the save before a command that may destroy work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsaved {
    /// Which agent.
    pub agent: String,
    place: Text,
    /// When the hook began to wait, in milliseconds since 1970 UTC.
    pub from_ms: i64,
    /// When it gave up.
    pub to_ms: i64,
}

impl Unsaved {
    /// Of an agent that works at `place`.
    #[must_use]
    pub fn new(agent: &str, place: &Path, from_ms: i64, to_ms: i64) -> Self {
        Self {
            agent: agent.into(),
            place: place.into(),
            from_ms,
            to_ms,
        }
    }

    /// Where the agent works.
    #[must_use]
    pub fn place(&self) -> PathBuf {
        self.place.path()
    }
}

/// A path as it is; as a list of bytes where it isn't UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Text {
    Plain(String),
    Bytes(Vec<u8>),
}

impl From<&Path> for Text {
    fn from(path: &Path) -> Self {
        match path.to_str() {
            Some(text) => Self::Plain(text.into()),
            None => Self::Bytes(path.as_os_str().as_bytes().into()),
        }
    }
}

impl Text {
    fn path(&self) -> PathBuf {
        match self {
            Self::Plain(text) => text.into(),
            Self::Bytes(bytes) => OsString::from_vec(bytes.clone()).into(),
        }
    }
}

impl Note {
    /// Of the process `pid` that listens at `socket`.
    #[must_use]
    pub fn new(pid: u32, socket: &Path, version: &str) -> Self {
        Self {
            pid,
            socket: socket.into(),
            version: version.into(),
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.socket.path()
    }
}
