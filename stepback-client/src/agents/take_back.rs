//! Taking an insertion of ours out of a text that its owner has changed since: every byte of theirs stays as they wrote it.

use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

/// A larger text isn't compared byte by byte.
const BYTES_MAX: usize = 256 * 1024;
/// Nor longer than this.
const PATIENCE: Duration = Duration::from_millis(500);

/// A part of a text and what comes in its place.
struct Edit<'a> {
    from: usize,
    to: usize,
    with: &'a [u8],
}

/// `now` without what made `ours` of `before`. `None`: the owner has changed what is to be taken out, or the texts are too
/// different to tell. What comes out is to be checked: bytes know nothing of syntax.
pub fn take_back(before: &str, ours: &str, now: &str) -> Option<String> {
    if [before, ours, now].iter().any(|text| text.len() > BYTES_MAX) {
        return None;
    }
    let until = Instant::now() + PATIENCE;
    let mut all = edits(ours, before, until);
    all.extend(edits(ours, now, until));
    if Instant::now() > until {
        return None;
    }
    all.sort_by_key(|edit| (edit.from, edit.to));
    let mut out = Vec::with_capacity(now.len());
    let overlap = |pair: &[Edit<'_>]| {
        // Of two insertions at one place nobody can say which comes first.
        pair[1].from < pair[0].to || pair[1].from == pair[0].to && pair[1].from == pair[1].to
    };
    if all.windows(2).any(overlap) {
        return None;
    }
    let mut at = 0;
    for edit in &all {
        out.extend_from_slice(&ours.as_bytes()[at..edit.from]);
        out.extend_from_slice(edit.with);
        at = edit.to;
    }
    out.extend_from_slice(&ours.as_bytes()[at..]);
    String::from_utf8(out).ok()
}

/// What makes `to` of `from`.
fn edits<'a>(from: &str, to: &'a str, until: Instant) -> Vec<Edit<'a>> {
    let to = to.as_bytes();
    let ops = capture_diff_slices_deadline(Algorithm::Myers, from.as_bytes(), to, Some(until));
    ops.into_iter()
        .filter(|op| !matches!(op, DiffOp::Equal { .. }))
        .map(|op| Edit {
            from: op.old_range().start,
            to: op.old_range().end,
            with: &to[op.new_range()],
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_elsewhere_stays_as_it_was_written() {
        let (before, ours) = ("{\"a\":1,\"b\":2}", "{\n  \"a\":1,\"b\":2,\n  \"ours\": [3]\n}");
        assert_eq!(take_back(before, ours, ours).as_deref(), Some(before));
        let now = ours.replace("\"a\":1", "\"a\":17");
        assert_eq!(
            take_back(before, ours, &now).as_deref(),
            Some("{\"a\":17,\"b\":2}")
        );
    }

    #[test]
    fn what_is_too_large_is_not_tried() {
        let long = "x".repeat(BYTES_MAX + 1);
        assert_eq!(take_back("x", "xy", &long), None);
    }
}
