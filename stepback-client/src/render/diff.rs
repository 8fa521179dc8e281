//! Colours for a unified patch, as it streams by.

use std::io::{self, Write};

const RESET: &[u8] = b"\x1b[m";
const BOLD: &[u8] = b"\x1b[1m";
const CYAN: &[u8] = b"\x1b[36m";
const RED: &[u8] = b"\x1b[31m";
const GREEN: &[u8] = b"\x1b[32m";

/// Writes a patch on, coloured. It counts the lines of each hunk, so that a removed line which begins with `-- ` isn't
/// taken for a header. Pieces may be cut anywhere; a line of a hunk is never held back whole.
pub struct Painter<W> {
    to: W,
    /// Lines of the hunk that are still to come: old side, new side.
    left: (u64, u64),
    /// The beginning of a line outside hunks, until it is whole: it is short.
    head: Vec<u8>,
    /// Within a line of a hunk, and whether it is coloured.
    line: Option<bool>,
}

impl<W: Write> Painter<W> {
    /// Paints on `to`.
    pub fn new(to: W) -> Self {
        Self {
            to,
            left: (0, 0),
            head: Vec::new(),
            line: None,
        }
    }

    /// The next piece of the patch.
    ///
    /// # Errors
    /// What the writer fails with.
    pub fn push(&mut self, mut piece: &[u8]) -> io::Result<()> {
        while !piece.is_empty() {
            let newline = piece.iter().position(|b| *b == b'\n');
            let end = newline.unwrap_or(piece.len());
            if self.line.is_none() && self.left != (0, 0) {
                self.begin_line(piece[0])?;
            }
            if let Some(coloured) = self.line {
                self.to.write_all(&piece[..end])?;
                if newline.is_some() {
                    self.to.write_all(if coloured { RESET } else { b"" })?;
                    self.to.write_all(b"\n")?;
                    self.line = None;
                }
            } else {
                self.head.extend_from_slice(&piece[..end]);
                if newline.is_some() {
                    self.header()?;
                }
            }
            piece = &piece[newline.map_or(end, |n| n + 1)..];
        }
        Ok(())
    }

    /// What is left of a patch without a last newline.
    ///
    /// # Errors
    /// What the writer fails with.
    pub fn finish(mut self) -> io::Result<W> {
        self.to.write_all(&self.head)?;
        if self.line == Some(true) {
            self.to.write_all(RESET)?;
        }
        Ok(self.to)
    }

    /// Starts a line of a hunk, by its first byte.
    fn begin_line(&mut self, first: u8) -> io::Result<()> {
        let (old, new) = &mut self.left;
        let colour = match first {
            b'-' => {
                *old = old.saturating_sub(1);
                Some(RED)
            }
            b'+' => {
                *new = new.saturating_sub(1);
                Some(GREEN)
            }
            b'\\' => None,
            _ => {
                *old = old.saturating_sub(1);
                *new = new.saturating_sub(1);
                None
            }
        };
        if let Some(colour) = colour {
            self.to.write_all(colour)?;
        }
        self.line = Some(colour.is_some());
        Ok(())
    }

    /// Writes the whole line outside hunks that has come together.
    fn header(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.head);
        if let Some((counts, range_end)) = hunk(&line) {
            self.left = counts;
            self.to.write_all(CYAN)?;
            self.to.write_all(&line[..range_end])?;
            self.to.write_all(RESET)?;
            self.to.write_all(&line[range_end..])?;
        } else if is_meta(&line) {
            self.to.write_all(BOLD)?;
            self.to.write_all(&line)?;
            self.to.write_all(RESET)?;
        } else {
            self.to.write_all(&line)?;
        }
        self.to.write_all(b"\n")
    }
}

fn is_meta(line: &[u8]) -> bool {
    const META: [&[u8]; 10] = [
        b"diff ",
        b"index ",
        b"--- ",
        b"+++ ",
        b"old mode ",
        b"new mode ",
        b"new file mode ",
        b"deleted file mode ",
        b"similarity ",
        b"rename ",
    ];
    META.iter().any(|start| line.starts_with(start))
}

/// The line counts of `@@ -1,2 +3,4 @@ ...` and where its second `@@` ends.
fn hunk(line: &[u8]) -> Option<((u64, u64), usize)> {
    let rest = line.strip_prefix(b"@@ -")?;
    let end = rest.windows(3).position(|w| w == b" @@")?;
    let ranges = std::str::from_utf8(&rest[..end]).ok()?;
    let (old, new) = ranges.split_once(" +")?;
    let lines = |range: &str| match range.split_once(',') {
        Some((_, n)) => n.parse().ok(),
        None => range.parse::<u64>().ok().map(|_| 1),
    };
    Some(((lines(old)?, lines(new)?), b"@@ -".len() + end + b" @@".len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "\
diff --git a/f b/f
index 1..2 100644
--- a/f
+++ b/f
@@ -1,3 +1,2 @@ fn x
 same
--- old
-gone
+++ new
\\ No newline at end of file
diff --git a/b b/b
Binary files a/b and b/b differ
";

    const PAINTED: &str = "\
<b>diff --git a/f b/f<>
<b>index 1..2 100644<>
<b>--- a/f<>
<b>+++ b/f<>
<c>@@ -1,3 +1,2 @@<> fn x
 same
<r>--- old<>
<r>-gone<>
<g>+++ new<>
\\ No newline at end of file
<b>diff --git a/b b/b<>
Binary files a/b and b/b differ
";

    fn paint(pieces: &[&[u8]]) -> String {
        let mut painter = Painter::new(Vec::new());
        for piece in pieces {
            painter.push(piece).unwrap();
        }
        String::from_utf8(painter.finish().unwrap())
            .unwrap()
            .replace("\x1b[1m", "<b>")
            .replace("\x1b[36m", "<c>")
            .replace("\x1b[31m", "<r>")
            .replace("\x1b[32m", "<g>")
            .replace("\x1b[m", "<>")
    }

    #[test]
    fn hunks_and_headers_have_their_colours_wherever_the_patch_is_cut() {
        assert_eq!(paint(&[PATCH.as_bytes()]), PAINTED);
        for size in [1, 2, 3, 7, 20] {
            assert_eq!(
                paint(&PATCH.as_bytes().chunks(size).collect::<Vec<_>>()),
                PAINTED,
                "{size}"
            );
        }
    }

    #[test]
    fn empty_lines_and_a_torn_end_do_not_derail_it() {
        assert_eq!(
            paint(&[b"@@ -1,2 +1,2 @@\n\n-a\n+b"]),
            "<c>@@ -1,2 +1,2 @@<>\n\n<r>-a<>\n<g>+b<>"
        );
        assert_eq!(
            paint(&[b"@@ -1 +0,0 @@\n-a\n--- x\n"]),
            "<c>@@ -1 +0,0 @@<>\n<r>-a<>\n<b>--- x<>\n"
        );
    }
}
