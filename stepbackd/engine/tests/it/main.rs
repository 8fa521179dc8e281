//! The engine on real directories, through its public face.
#![allow(
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it must be"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the clock and the environment are the caller's, which is what a test is"
)]

mod capture;
mod damage;
#[cfg(feature = "fault-points")]
mod faults;
mod forget;
#[cfg(feature = "fault-points")]
mod forget_faults;
mod keep;
mod maintenance;
mod operations;
mod position;
mod property;
mod property_rules;
mod records;
mod redo;
mod replaced;
mod store_describes_itself;
mod support;
mod talk;
mod year;
