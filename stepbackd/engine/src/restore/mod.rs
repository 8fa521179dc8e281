//! Putting paths of a root back: the only place that writes below a root.
//!
//! [`plan`] compares what is on disk with a target and decides, by the table in [`table`], what happens to each path. It
//! changes nothing below the root. [`apply`] carries a plan out, [`recover`] finishes or undoes one that was interrupted.
//!
//! # What holds, whatever happens
//!
//! - The journal is durable before anything else is written. It is removed last. In between [`unfinished`] tells of it.
//! - Every wanted version lies complete and durable in a staging directory on its target's own file system before
//!   anything in the tree changes. If that fails, the tree is as it was.
//! - A path changes by one rename. What comes out is compared with what the plan says was there; if it is something
//!   else, it goes back and the path is *kept*. So no bytes are lost that aren't in the store.
//! - Nothing is reached through a symbolic link: parents are opened part by part, below the root, for each change.
//! - After a kill or a power loss each path holds its old version or its new one, whole. A directory that becomes
//!   something else may for an instant be neither; it was empty then.
//!
//! # Limits
//!
//! - What a process writes through a descriptor that it held open over the whole operation is lost with the file it has
//!   open, as with every replacing rename.
//! - On a file system without `RENAME_EXCHANGE` a path is compared first and then replaced by a plain rename: an edit in
//!   between these two system calls is overwritten.

mod apply;
mod attributes;
mod change;
mod compare;
mod converge;
mod dirs;
mod journal;
mod leftovers;
mod ops;
mod owners;
mod place;
mod plan;
mod record;
mod rest;
mod settle;
mod staging;
mod step;
mod survey;
mod swap;
pub mod table;
mod unstaging;
mod way;

#[cfg(test)]
mod tests;

pub use apply::{Applied, ApplyContext, apply};
pub use converge::{Outcome, Recovered, recover};
pub use journal::{JournalHeader, OperationKind, clear as finish, set_aside, unfinished, unfinished_paths};
pub use leftovers::{clear_leftovers, is_leftover};
pub use plan::{IgnoredBy, LookUp, PlanInput, plan};
pub use record::{decode_plan, encode_plan};
pub use rest::Rest;
pub use step::{Kept, NotCovered, Plan, PlanId, PlannedChange, Step};
