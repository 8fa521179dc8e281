//! A long list of paths as a few lines: directories in place of what is below them.

use std::ops::Range;

/// A line of such a list.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// One path, by its place in the list.
    Path(usize),
    /// What is below the directory: the length of its name within each path of the range, without a slash.
    Below(usize, Range<usize>),
}

/// Shortens a list of sorted paths to at most `max` lines where its directories allow that. Small directories are opened
/// before large ones.
pub fn lines(paths: &[&[u8]], max: usize) -> Vec<Line> {
    let mut lines = children(paths, 0, 0..paths.len());
    let mut left_closed = Vec::new();
    // Where nothing can be opened, nothing is tried.
    while lines.len() < max {
        let smallest = lines
            .iter()
            .enumerate()
            .filter_map(|(at, line)| match line {
                Line::Below(name, range) if !left_closed.contains(&range.start) => {
                    Some((range.len(), at, *name, range.clone()))
                }
                _ => None,
            })
            .min_by_key(|(size, at, ..)| (*size, *at));
        let Some((_, at, name, range)) = smallest else {
            return lines;
        };
        let start = range.start;
        let opened = children(paths, name + 1, range);
        if lines.len() - 1 + opened.len() <= max {
            lines.splice(at..=at, opened);
        } else {
            left_closed.push(start);
        }
    }
    lines
}

/// The lines of one directory, whose name and slash take `from` bytes of each path in the range.
fn children(paths: &[&[u8]], from: usize, range: Range<usize>) -> Vec<Line> {
    let mut out = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let path = paths[at];
        let name = path
            .get(from..)
            .and_then(|rest| rest.iter().position(|b| *b == b'/'))
            .map_or(path.len(), |n| from + n);
        if name < from {
            // The directory itself: the first of its range.
            out.push(Line::Path(at));
            at += 1;
            continue;
        }
        let end = (at..range.end)
            .find(|n| !is_at_or_below(paths[*n], &path[..name]))
            .unwrap_or(range.end);
        out.push(if end - at == 1 {
            Line::Path(at)
        } else {
            Line::Below(name, at..end)
        });
        at = end;
    }
    out
}

/// Whether `path` is `dir` or something below it.
pub fn is_at_or_below(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir)
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// The order in which a directory stands right before all that is below it.
pub fn order(a: &[u8], b: &[u8]) -> std::cmp::Ordering {
    a.split(|b| *b == b'/').cmp(b.split(|b| *b == b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shorten(paths: &[String], max: usize) -> Vec<String> {
        let mut bytes: Vec<&[u8]> = paths.iter().map(String::as_bytes).collect();
        bytes.sort_by(|a, b| order(a, b));
        lines(&bytes, max)
            .iter()
            .map(|line| match line {
                Line::Path(at) => String::from_utf8_lossy(bytes[*at]).into_owned(),
                Line::Below(name, range) => {
                    let dir = String::from_utf8_lossy(&bytes[range.start][..*name]);
                    format!("{dir}/ {}", range.len())
                }
            })
            .collect()
    }

    #[test]
    fn small_directories_are_opened_and_large_ones_are_not() {
        let mut paths: Vec<String> = (0..100).map(|n| format!("big/f{n}")).collect();
        paths.extend(["big", "big-not", "a/x", "a/y", "z"].map(String::from));
        assert_eq!(shorten(&paths, 10), ["a/x", "a/y", "big/ 101", "big-not", "z"]);
        assert_eq!(shorten(&paths, 4), ["a/ 2", "big/ 101", "big-not", "z"]);
        assert_eq!(shorten(&paths, 200).len(), 105);
    }

    #[test]
    fn what_lies_deep_is_opened_by_steps_and_an_empty_list_is_one() {
        let paths: Vec<String> = ["d", "d/e", "d/e/1", "d/e/2", "d/e/3", "d/f"]
            .map(String::from)
            .into();
        assert_eq!(shorten(&paths, 1), ["d/ 6"]);
        assert_eq!(shorten(&paths, 3), ["d", "d/e/ 4", "d/f"]);
        assert_eq!(shorten(&[], 3), [""; 0]);
    }
}
