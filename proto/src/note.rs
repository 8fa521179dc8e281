//! What `STATE/daemon.json` says: where clients find the daemon that serves. JSON, unlike the frames.

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

/// A path as it is; as a list of bytes where it isn't UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Text {
    Plain(String),
    Bytes(Vec<u8>),
}

impl Note {
    /// Of the process `pid` that listens at `socket`.
    #[must_use]
    pub fn new(pid: u32, socket: &Path, version: &str) -> Self {
        let socket = match socket.to_str() {
            Some(text) => Text::Plain(text.into()),
            None => Text::Bytes(socket.as_os_str().as_bytes().into()),
        };
        Self {
            pid,
            socket,
            version: version.into(),
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        match &self.socket {
            Text::Plain(text) => text.into(),
            Text::Bytes(bytes) => OsString::from_vec(bytes.clone()).into(),
        }
    }
}
