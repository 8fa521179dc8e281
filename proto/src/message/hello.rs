//! The first frame each way. Their shapes are fixed for ever.

use serde::{Deserialize, Serialize};

/// First frame of the client. Its shape is fixed for ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`crate::MAGIC`].
    pub magic: [u8; 4],
    /// [`crate::PROTOCOL`] of the client.
    pub protocol: u32,
}

/// First frame of the daemon. Its shape is fixed for ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`crate::PROTOCOL`] of the daemon.
    pub protocol: u32,
    /// The daemon's program version.
    pub version: String,
    /// The daemon's process id.
    pub pid: u32,
}
