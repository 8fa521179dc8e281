//! `stepback`: lists, diffs, rewinds and redoes the checkpoints that `stepbackd` keeps.
//!
//! One invocation is one request to the daemon over its socket (a few commands make two or three: preview, question,
//! act). The client is blocking and small on purpose, so that it starts fast. It never opens a store, a registry or a
//! root itself; what concerns the user's own programs (git, the pager, the command of `run`) it does itself.
//!
//! Data goes to stdout, everything else to stderr. Only `render` prints, only `environment` reads the environment.

mod agents;
mod app;
mod autostart;
mod bounded;
mod child;
mod cli;
mod commands;
mod confined;
mod confirm;
mod connection;
mod dial;
mod doctor;
mod endpoint;
mod environment;
mod error;
mod id_path;
mod interrupt;
mod pager;
mod place;
mod process;
mod reader;
mod render;
mod selector;
mod service;
mod size;
mod usage;
mod whole;

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(app::main())
}
