//! Conversations of coding agents: kept with checkpoints, put back by rewinds.

mod chain;
mod claude;
mod codex;
mod databases;
#[cfg(feature = "fault-points")]
mod faults;
mod files;
mod growth;
mod support;
mod whose;
