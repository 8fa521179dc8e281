//! Paths that clients name. What comes over the wire becomes a path of ours here and nowhere else.

use std::path::PathBuf;

use stepback_engine::path::TreePath;
use stepback_proto::{Failure, FailureKind, WirePath};

use crate::convert;
use crate::place;
use crate::root::Root;

/// An absolute path without `.`, `..` and NUL. `what` says what it is for.
///
/// # Errors
/// When it isn't one. The client makes all its paths so.
pub fn absolute(path: &WirePath, what: &str) -> Result<PathBuf, Failure> {
    let bytes = &path.0;
    let why = if !bytes.starts_with(b"/") {
        "is not an absolute path"
    } else if bytes.contains(&0) {
        "has a NUL in it"
    } else if bytes
        .split(|b| *b == b'/')
        .any(|part| part == b"." || part == b"..")
    {
        "has `.` or `..` in it"
    } else {
        return Ok(path.as_path().to_owned());
    };
    Err(convert::fail(
        FailureKind::Usage,
        format!("{what} {why}: {:?}", path.lossy()),
        "the program that sent it isn't a stepback of this protocol",
    ))
}

/// A path of a root's that is named as an absolute one.
///
/// # Errors
/// As [`absolute`], and when it is not in the root, or nothing that is captured.
pub fn within(root: &Root, path: &WirePath) -> Result<TreePath, Failure> {
    let path = absolute(path, "a path")?;
    place::within(&root.path, &path).ok_or_else(|| {
        convert::fail(
            FailureKind::NoSuchPath,
            format!("{} is not a path that {} captures", path.display(), root.path.display()),
            "paths are relative to the current directory, or absolute, and inside the root; `.git` is never captured",
        )
    })
}

/// A path of a root's that is named as in a checkpoint: relative, with nothing in it that leads elsewhere.
///
/// # Errors
/// When it is no such path.
pub fn relative(path: &WirePath) -> Result<TreePath, Failure> {
    TreePath::from_path(path.as_path()).map_err(|e| {
        convert::fail(
            FailureKind::NoSuchPath,
            e.to_string(),
            "write ID:PATH with a path relative to the root",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_absolute_paths_pass() {
        let named = |path: &[u8]| absolute(&WirePath(path.to_vec()), "a path");
        for fine in [&b"/"[..], b"/a/b", b"/a//b/", b"/...", b"/a/.b/..c", b"/\xff"] {
            assert_eq!(named(fine).unwrap(), WirePath(fine.to_vec()).as_path());
        }
        for hostile in [
            &b""[..],
            b"a",
            b"./a",
            b"/a/../b",
            b"/..",
            b"/a/./b",
            b"/a/.",
            b"/a\0b",
            b"\0/a",
        ] {
            let failure = named(hostile).unwrap_err();
            assert_eq!(failure.kind, FailureKind::Usage, "{hostile:?}");
            assert!(!failure.message.contains('\0'), "{failure:?}");
        }
    }

    #[test]
    fn paths_of_checkpoints_are_relative_and_lead_nowhere_else() {
        let named = |path: &[u8]| relative(&WirePath(path.to_vec()));
        assert!(named(b"a/b").is_ok());
        for hostile in [
            &b".."[..],
            b"../a",
            b"a/../../b",
            b"a\0",
            b".git/config",
            b"a/.git",
        ] {
            assert_eq!(
                named(hostile).unwrap_err().kind,
                FailureKind::NoSuchPath,
                "{hostile:?}"
            );
        }
    }
}
