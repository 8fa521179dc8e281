//! What a backend tells, in words that fit every system.

use std::path::PathBuf;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// Something about a path.
    Path(PathBuf, What),
    /// Events were lost.
    Overflow,
}

/// What about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Nothing is there any more; the watches of the path and below are void.
    Gone,
    /// Another thing may be there than before.
    Another,
    /// Its bytes may have changed.
    Contents,
    /// Its mode, owner, times or attributes may have.
    Attributes,
}

/// Why a directory isn't watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failed {
    /// The system gives no more watches.
    Limit,
    /// It isn't there any more, or can't be read: whoever looks at it meets the same.
    Gone,
    /// Not this one.
    Unwatchable,
    /// Its file system tells of nothing.
    Silent,
    /// There is no source of events.
    NoEvents,
}
