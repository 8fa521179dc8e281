//! Conversations of coding agents: kept with checkpoints, put back by rewinds.

mod claude;
mod codex;
mod databases;
#[cfg(feature = "fault-points")]
mod faults;
mod files;
mod growth;
mod support;
