//! What the end-to-end tests stand on: both programs run as processes in a [`Sandbox`] of their own.
//!
//! A [`Sandbox`] owns a temporary directory with its own home, configuration, state, socket and temporary files, and an
//! environment that holds nothing else. A [`Project`] is a directory in it, with the commands that a test gives there.
//! [`Snapshot`] and [`GitSnapshot`] are the oracles: what a tree and what lies below every `.git` is, byte for byte.
//! [`eventually`] is the one way to wait.
//!
//! The programs are taken from `STEPBACK_BIN_DIR`, else from the target directory that this test was built into.
//!
//! Guarantees: only processes that a sandbox started are ever ended, each by its id; dropping a sandbox stops its daemon
//! and removes its directory.

#![allow(
    clippy::missing_panics_doc,
    reason = "everything here panics when a test's expectation doesn't hold"
)]

mod daemon;
mod process;
mod process_facts;
mod project;
mod random;
mod sandbox;
mod signals;
mod snapshot;
mod wait;
mod wire;

pub use daemon::Daemon;
pub use process::{Finished, Guarded, finish, start};
pub use process_facts::{
    Used, anonymous_bytes, descriptors, forget_peak, peak_bytes, read_bytes, resident_bytes, used, watches,
};
pub use project::{Project, keys};
pub use random::Random;
pub use sandbox::Sandbox;
pub use snapshot::{GitSnapshot, Snapshot};
pub use wait::{eventually, eventually_some, pause};
pub use wire::Wire;
