//! The table that decides what may happen to a path: pure, and walked whole by a test.

/// What stands at a path. The first variant that fits is the one that counts, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnDisk {
    /// An entry named `.git`, or a temporary directory of an operation of ours.
    Git,
    /// The target doesn't know what was here. `as_noted`: it is still uncaptured, with the size and modification time that
    /// were noted then.
    Unknown {
        /// See above.
        as_noted: bool,
    },
    /// Too large, unreadable, a socket or a device, or it kept changing: its present bytes are in no checkpoint.
    Uncaptured,
    /// A FIFO.
    Fifo,
    /// A directory.
    Dir,
    /// A file or link that a rule of now or of the target ignores.
    Ignored,
    /// Captured, and as it was saved; or, in a redo, as the operation that is taken back left it.
    Captured,
    /// Captured or not, other than what was saved: it changed since.
    Changed,
}

/// What the target has at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// A file, link, FIFO or directory: there, or at a path above it that must be no directory.
    Something,
    /// Nothing.
    Nothing,
}

/// What happens to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Nothing, and nothing is said.
    Untouched,
    /// Nothing; the directory that holds it stays, and is named as kept.
    UntouchedDirectoryKept,
    /// Nothing; it is named as kept.
    Keep,
    /// Nothing; it is named as not covered.
    NotCovered,
    /// The target's version takes its place.
    Replace,
    /// It goes.
    Remove,
    /// Its bytes go into the before-checkpoint first; then the target's version takes its place.
    CaptureThenReplace,
    /// Each thing below by this table; it goes itself when nothing is left in it (unless the target has a directory).
    EachBelow,
}

/// The table.
#[must_use]
pub const fn verdict(on_disk: OnDisk, target: Target) -> Verdict {
    use {OnDisk as D, Target as T, Verdict as V};
    match (on_disk, target) {
        (D::Git, T::Something) => V::Untouched,
        (D::Git, T::Nothing) => V::UntouchedDirectoryKept,
        (D::Unknown { as_noted: true }, _) => V::NotCovered,
        (D::Unknown { as_noted: false } | D::Uncaptured | D::Changed, _) => V::Keep,
        (D::Dir, _) => V::EachBelow,
        (D::Ignored, T::Something) => V::CaptureThenReplace,
        (D::Ignored, T::Nothing) => V::Untouched,
        (D::Fifo | D::Captured, T::Something) => V::Replace,
        (D::Fifo | D::Captured, T::Nothing) => V::Remove,
    }
}

#[cfg(test)]
mod tests {
    use super::{OnDisk as D, Target as T, Verdict as V, verdict};

    #[test]
    fn every_combination_has_the_verdict_of_the_design() {
        let table = [
            (D::Git, V::Untouched, V::UntouchedDirectoryKept),
            (D::Unknown { as_noted: true }, V::NotCovered, V::NotCovered),
            (D::Unknown { as_noted: false }, V::Keep, V::Keep),
            (D::Uncaptured, V::Keep, V::Keep),
            (D::Fifo, V::Replace, V::Remove),
            (D::Dir, V::EachBelow, V::EachBelow),
            (D::Ignored, V::CaptureThenReplace, V::Untouched),
            (D::Captured, V::Replace, V::Remove),
            (D::Changed, V::Keep, V::Keep),
        ];
        for (on_disk, something, nothing) in table {
            assert_eq!(verdict(on_disk, T::Something), something, "{on_disk:?}");
            assert_eq!(verdict(on_disk, T::Nothing), nothing, "{on_disk:?}");
        }
    }
}
