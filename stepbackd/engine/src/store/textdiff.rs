//! Line diffs and binary deltas of two byte strings, by libgit2.

use std::path::Path;

use crate::error::{Error, Result};

/// The line diff of two texts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hunks {
    /// Lines that only the newer text has.
    pub insertions: u64,
    /// Lines that only the older one has.
    pub deletions: u64,
    /// `@@ ... @@` and the lines of all hunks, as in a unified patch.
    pub body: Vec<u8>,
}

/// What follows the file headers of a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Both are text.
    Text(Hunks),
    /// One isn't; holds the `GIT binary patch` body if it was asked for.
    Binary(Option<Vec<u8>>),
}

/// Compares `old` and `new`. With `binary`, bytes that aren't text give a body that `git apply` takes.
///
/// # Errors
/// [`Error::Library`], from libgit2.
pub fn compare(store: &Path, old: &[u8], new: &[u8], binary: bool) -> Result<Body> {
    let failed = |e: git2::Error| Error::Library {
        store: store.to_owned(),
        what: e.message().to_owned(),
    };
    let mut options = git2::DiffOptions::new();
    options.context_lines(3).interhunk_lines(0).show_binary(binary);
    // Names are given so that libgit2 doesn't take a missing one for an added or deleted file.
    let name = Some(Path::new("x"));
    let mut patch = git2::Patch::from_buffers(old, name, new, name, Some(&mut options)).map_err(failed)?;
    let is_binary = patch.delta().flags().is_binary();
    if is_binary {
        if !binary {
            return Ok(Body::Binary(None));
        }
        let whole = patch.to_buf().map_err(failed)?;
        let marker = b"GIT binary patch\n";
        let at = whole.windows(marker.len()).position(|w| w == marker);
        return Ok(Body::Binary(Some(
            at.map(|at| whole[at..].to_vec()).unwrap_or_default(),
        )));
    }
    let (_, insertions, deletions) = patch.line_stats().map_err(failed)?;
    let mut body = Vec::new();
    for hunk in 0..patch.num_hunks() {
        let (header, lines) = patch.hunk(hunk).map_err(failed)?;
        body.extend_from_slice(header.header());
        for line in 0..lines {
            let line = patch.line_in_hunk(hunk, line).map_err(failed)?;
            if matches!(line.origin(), '+' | '-' | ' ') {
                body.push(line.origin() as u8);
            }
            body.extend_from_slice(line.content());
        }
    }
    Ok(Body::Text(Hunks {
        insertions: insertions as u64,
        deletions: deletions as u64,
        body,
    }))
}
