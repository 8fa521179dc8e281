//! The engine of stepback: captures whole directories into private git stores and puts them back exactly.
//!
//! Synchronous, without a clock, an environment or a terminal of its own: paths, options and the time are arguments.
//!
//! ```text
//! event    dirty paths -> tree (scan, update) -> tree (persist) -> store (objects, then refs)
//! request  engine -> query | operate -> restore (plan, stage, change) -> tree -> store
//! ```
//!
//! # Guarantees
//!
//! - A checkpoint equals the tree, or names every path that it leaves out, or doesn't exist. It is durable before
//!   anybody is told of it.
//! - Before an operation changes anything, what it will change is durable in a checkpoint.
//! - Nothing is written below a root but by [`restore`], and there only the paths of its plan. Nothing is written below
//!   any `.git`.
//! - A damaged object or record is an error that names it, never taken for an empty tree.
//!
//! # Limitations
//!
//! - Writes through a memory map give no event and may not change a file's times until the kernel writes them back: they
//!   are seen by the next full scan after that.
//! - What a process writes later through a descriptor that it holds open on a replaced file goes to the replaced file.
//!
//! # Example
//!
//! ```no_run
//! use stepback_engine::checkpoint::Trigger;
//! use stepback_engine::engine::{AttachRequest, Context, Engine, Environment, Operation, Scope, Settings, Why};
//! use stepback_engine::{progress::Progress, time::Time, tree::NoWatch};
//!
//! # fn main() -> stepback_engine::Result<()> {
//! let env = Environment { state_dir: "/var/tmp/state".into(), runtime_dir: None, git: Default::default(), conversations: Default::default() };
//! let settings = Settings { include: Vec::new(), max_file_size: 100 << 20, conversations: true };
//! let request = AttachRequest { path: "/home/me/project".into(), ..AttachRequest::default() };
//! let now = Time(1_800_000_000_000_000_000);
//! let mut engine = Engine::attach(&env, &request, &settings, now)?.engine;
//! let cx = Context { now, watch: &NoWatch, progress: &Progress::default() };
//! engine.capture(Scope::All, &Why::plain(Trigger::Attach), &cx)?;
//! // ... edits ...
//! engine.execute(&Operation::Rewind(None), None, &cx)?;
//! # Ok(())
//! # }
//! ```

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "the clock and the environment are the caller's, which is what a test is"
    )
)]

pub mod checkpoint;
pub mod conversation;
pub mod diff;
pub mod engine;
pub mod error;
pub mod fault;
pub mod mounts;
pub mod node;
pub mod noise;
pub mod oid;
pub mod path;
pub mod progress;
pub mod redo;
pub mod restore;
pub mod retention;
pub mod rules;
pub mod session;
pub mod side;
pub mod state;
pub mod store;
pub mod time;
pub mod tree;

mod archive;
mod durable;
mod head;
mod locate;
mod place_check;
mod record;
mod root;
mod salvage;
mod user_file;

pub use error::{Error, Result};
pub use user_file::read_settings;

/// Starts the threads that work in parallel, if they haven't been. Later it would be done by whoever needs them first, and
/// they would have that one's priority.
pub fn start_threads() {
    rayon::current_num_threads();
}
