//! Unified patches as git writes them.

use std::io::{self, Write};

use crate::diff::{Change, binary};
use crate::error::{At, Error, Result};
use crate::node::{Kind, Node};
use crate::oid::{ObjectKind, Oid};
use crate::path::TreePath;
use crate::store::Store;
use crate::store::textdiff::{self, Body};

/// Files above so many bytes aren't compared by lines, nor held: they are named as binary. An export carries them whole.
pub const TEXT_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Nor are two that have more lines than this together: each line costs about 130 bytes while they are compared.
const LINES_MAX: usize = 400_000;

/// Lines of one changed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineCounts {
    /// Added.
    pub insertions: u64,
    /// Removed.
    pub deletions: u64,
    /// Not text, or too large to be compared by lines.
    pub binary: bool,
}

/// What a patch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// People read it: binary files are named, and so is what git can't express.
    Reading,
    /// `git apply` takes it: binary files are in it; what git can't express is left out.
    Applying,
}

/// Writes the patch of one change. What git can't express (other permission bits, directories, FIFOs) stands in a line
/// that begins with `#`, for people: `git apply` passes over such lines between the files of a patch.
///
/// # Errors
/// Those of the store; those of `to`, at the change's path.
pub fn write(store: &Store, change: &Change, purpose: Purpose, to: &mut dyn Write) -> Result<()> {
    if purpose == Purpose::Reading
        && let Some(note) = note(change)
    {
        writeln!(to, "# {note} {}", quoted("", &change.path)).at(change.path.as_path())?;
    }
    let old = change.old.as_ref().filter(|n| is_patchable(n));
    let new = change.new.as_ref().filter(|n| is_patchable(n));
    let mut part = |old: Option<&Node>, new: Option<&Node>| -> Result<()> {
        let ends = (old, old.and_then(content));
        write_patch(
            to,
            store,
            &change.path,
            ends,
            (new, new.and_then(content)),
            purpose,
        )
        .map_err(|e| match e {
            Failed::Io(source) => Error::Io {
                path: change.path.as_path().to_owned(),
                source,
            },
            // It doesn't know what it writes for.
            Failed::Engine(Error::Io { path, source }) if path.as_os_str().is_empty() => Error::Io {
                path: change.path.as_path().to_owned(),
                source,
            },
            Failed::Engine(e) => e,
        })
    };
    match (old, new) {
        (None, None) => Ok(()),
        // As git does it: another type is one file removed and one made.
        (Some(a), Some(b)) if !a.same_type(b) => {
            part(Some(a), None)?;
            part(None, Some(b))
        }
        (old, new) => part(old, new),
    }
}

/// Counts the lines of one change.
///
/// # Errors
/// Those of the store.
pub fn line_counts(store: &Store, change: &Change) -> Result<LineCounts> {
    let old = change.old.as_ref().and_then(content);
    let new = change.new.as_ref().and_then(content);
    if old == new {
        return Ok(LineCounts::default());
    }
    if is_large(store, old, new)? {
        return Ok(LineCounts {
            binary: true,
            ..LineCounts::default()
        });
    }
    match body(store, old, new, Purpose::Reading)? {
        Body::Text(hunks) => Ok(LineCounts {
            insertions: hunks.insertions,
            deletions: hunks.deletions,
            binary: false,
        }),
        Body::Binary(_) => Ok(LineCounts {
            binary: true,
            ..LineCounts::default()
        }),
    }
}

/// What git's format has no words for.
fn note(change: &Change) -> Option<String> {
    let name = |node: &Node| match node.kind {
        Kind::Dir => "directory",
        Kind::Fifo => "FIFO",
        Kind::File(_) | Kind::Link(_) => "file",
    };
    let beyond_git = |node: &Node| !is_patchable(node);
    match (&change.old, &change.new) {
        (Some(old), Some(new)) if old.same_type(new) => {
            let seen_by_git = is_patchable(old) && git_mode(old) != git_mode(new);
            if old.perm != new.perm && !seen_by_git {
                Some(format!("mode {} -> {}", old.perm, new.perm))
            } else {
                (old.attributes != new.attributes).then(|| "other attributes".to_owned())
            }
        }
        (old, new) => {
            let gone = old
                .as_ref()
                .filter(|n| beyond_git(n))
                .map(|n| format!("deleted {}", name(n)));
            let made = new
                .as_ref()
                .filter(|n| beyond_git(n))
                .map(|n| format!("new {}", name(n)));
            match (gone, made) {
                (Some(gone), Some(made)) => Some(format!("{gone}, {made}")),
                (gone, made) => gone.or(made),
            }
        }
    }
}

fn is_patchable(node: &Node) -> bool {
    content(node).is_some()
}

fn content(node: &Node) -> Option<Oid> {
    match node.kind {
        Kind::File(oid) | Kind::Link(oid) => Some(oid),
        Kind::Dir | Kind::Fifo => None,
    }
}

fn git_mode(node: &Node) -> u32 {
    node.git_mode().expect("files and links have a git mode")
}

/// Whether one of them isn't to be held.
fn is_large(store: &Store, old: Option<Oid>, new: Option<Oid>) -> Result<bool> {
    for oid in [old, new].into_iter().flatten() {
        if store.blob_size(oid)? > TEXT_BYTES_MAX {
            return Ok(true);
        }
    }
    Ok(false)
}

fn body(store: &Store, old: Option<Oid>, new: Option<Oid>, purpose: Purpose) -> Result<Body> {
    let load = |oid: Option<Oid>| oid.map_or(Ok(Vec::new()), |oid| store.read(oid, ObjectKind::Blob));
    let (old, new) = (load(old)?, load(new)?);
    let lines = |bytes: &[u8]| bytes.iter().filter(|b| **b == b'\n').count();
    if lines(&old) + lines(&new) > LINES_MAX {
        return Ok(Body::Binary(None));
    }
    textdiff::compare(store.path(), &old, &new, purpose == Purpose::Applying)
}

enum Failed {
    Engine(Error),
    Io(io::Error),
}

impl From<io::Error> for Failed {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

impl From<Error> for Failed {
    fn from(e: Error) -> Self {
        Self::Engine(e)
    }
}

type End<'a> = (Option<&'a Node>, Option<Oid>);

fn write_patch(
    text: &mut dyn Write,
    store: &Store,
    path: &TreePath,
    (old, old_id): End<'_>,
    (new, new_id): End<'_>,
    purpose: Purpose,
) -> Result<(), Failed> {
    let a = quoted("a/", path);
    let b = quoted("b/", path);
    let mode_lines = mode_lines(old, new);
    if old_id == new_id && mode_lines.is_empty() {
        return Ok(());
    }
    writeln!(text, "diff --git {a} {b}")?;
    text.write_all(mode_lines.as_bytes())?;
    if old_id == new_id {
        return Ok(());
    }
    let found = match is_large(store, old_id, new_id)? {
        true => Body::Binary(None),
        false => body(store, old_id, new_id, purpose)?,
    };
    let full = matches!(found, Body::Binary(_));
    write!(text, "index {}..{}", short(old_id, full), short(new_id, full))?;
    match (old, new) {
        (Some(a), Some(b)) if git_mode(a) == git_mode(b) => writeln!(text, " {:06o}", git_mode(b))?,
        _ => writeln!(text)?,
    }
    let from = if old.is_some() { a.as_str() } else { "/dev/null" };
    let to = if new.is_some() { b.as_str() } else { "/dev/null" };
    match found {
        Body::Text(hunks) if hunks.body.is_empty() => {}
        Body::Text(hunks) => {
            writeln!(text, "--- {from}{}\n+++ {to}{}", tab_after(from), tab_after(to))?;
            text.write_all(&hunks.body)?;
        }
        Body::Binary(Some(body)) => text.write_all(&body)?,
        Body::Binary(None) if purpose == Purpose::Applying => binary::write(store, old_id, new_id, text)?,
        Body::Binary(None) => writeln!(text, "Binary files {from} and {to} differ")?,
    }
    Ok(())
}

fn mode_lines(old: Option<&Node>, new: Option<&Node>) -> String {
    match (old.map(git_mode), new.map(git_mode)) {
        (None, Some(new)) => format!("new file mode {new:06o}\n"),
        (Some(old), None) => format!("deleted file mode {old:06o}\n"),
        (Some(old), Some(new)) if old != new => format!("old mode {old:06o}\nnew mode {new:06o}\n"),
        _ => String::new(),
    }
}

fn short(oid: Option<Oid>, full: bool) -> String {
    let text = oid.map_or_else(|| "0".repeat(40), |oid| oid.to_string());
    if full { text } else { text[..7].to_owned() }
}

/// git ends a name that holds a space with a tab, so that patch programs see where it ends.
fn tab_after(name: &str) -> &'static str {
    if name.contains(' ') && !name.starts_with('"') {
        "\t"
    } else {
        ""
    }
}

/// A name as git writes it by default: in C quotes when a byte of it is a quote, a backslash, a control byte or not ASCII.
fn quoted(prefix: &str, path: &TreePath) -> String {
    let bytes = path.as_bytes();
    let needs = |b: &u8| !(0x20..0x7f).contains(b) || matches!(b, b'"' | b'\\');
    if !bytes.iter().any(needs) {
        return format!("{prefix}{path}");
    }
    let mut text = format!("\"{prefix}");
    for byte in bytes {
        match byte {
            b'"' => text.push_str("\\\""),
            b'\\' => text.push_str("\\\\"),
            b'\n' => text.push_str("\\n"),
            b'\t' => text.push_str("\\t"),
            b'\r' => text.push_str("\\r"),
            0x07 => text.push_str("\\a"),
            0x08 => text.push_str("\\b"),
            0x0b => text.push_str("\\v"),
            0x0c => text.push_str("\\f"),
            0x20..0x7f => text.push(char::from(*byte)),
            _ => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_git_does() {
        let quote = |name: &[u8]| quoted("a/", &TreePath::new(name).unwrap());
        assert_eq!(quote(b"x y"), "a/x y");
        assert_eq!(quote("naïve".as_bytes()), "\"a/na\\303\\257ve\"");
        assert_eq!(quote(b"a\n\"\xff"), "\"a/a\\n\\\"\\377\"");
    }
}
