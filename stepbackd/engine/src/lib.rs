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
//! - Nothing is written below a root but by `restore`, and there only the paths of its plan. Nothing is written below
//!   any `.git`.
//! - A damaged object or record is an error that names it, never taken for an empty tree.
//!
//! # Limitations
//!
//! - Writes through a memory map give no event and may not change a file's times until the kernel writes them back: they
//!   are seen by the next full scan after that.
//! - What a process writes later through a descriptor that it holds open on a replaced file goes to the replaced file.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "the clock and the environment are the caller's, which is what a test is"
    )
)]

pub mod diff;
pub mod error;
pub mod node;
pub mod oid;
pub mod path;
pub mod progress;
pub mod restore;
pub mod rules;
pub mod store;
pub mod time;
pub mod tree;

mod fault;
mod root;

pub use error::{Error, Result};
