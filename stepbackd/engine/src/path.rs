//! Paths within a root, as a checked type.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Name of the directory entry that is never captured and never touched.
pub const DOT_GIT: &[u8] = b".git";

/// Prefix of our own temporary names below a root; 16 lower-case hexadecimal digits follow. Never captured; never left
/// behind.
pub const TEMPORARY_PREFIX: &[u8] = b".stepback-tmp-";

/// Whether an operation of ours may have made an entry of this name.
#[must_use]
pub fn is_temporary(name: &[u8]) -> bool {
    name.strip_prefix(TEMPORARY_PREFIX).is_some_and(|digits| {
        digits.len() == 16 && digits.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// A path below a root: bytes, parts separated by `/`. No part is empty, `.`, `..`, `.git`, or has a NUL. The empty
/// path is the root itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TreePath(Box<[u8]>);

/// Why bytes aren't a path within a root.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path:?} is not a path within a root: {why}")]
pub struct BadPath {
    /// The bytes, as text.
    pub path: String,
    /// Which rule they break.
    pub why: &'static str,
}

/// Whether a directory entry of this name may be a part of a [`TreePath`].
///
/// # Errors
/// The rule that it breaks.
pub fn check_name(name: &[u8]) -> Result<(), &'static str> {
    match name {
        b"" => Err("a part of it is empty"),
        b"." | b".." => Err("a part of it is '.' or '..'"),
        DOT_GIT => Err("a part of it is '.git'"),
        _ if name.contains(&0) => Err("it has a NUL"),
        _ if name.contains(&b'/') => Err("a name has a '/'"),
        _ => Ok(()),
    }
}

impl TreePath {
    /// The root itself.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// Checks `bytes`, which must be relative.
    ///
    /// # Errors
    /// [`BadPath`] with the rule that is broken.
    pub fn new(bytes: &[u8]) -> Result<Self, BadPath> {
        if !bytes.is_empty() {
            for part in bytes.split(|b| *b == b'/') {
                check_name(part).map_err(|why| BadPath {
                    path: String::from_utf8_lossy(bytes).into_owned(),
                    why,
                })?;
            }
        }
        Ok(Self(bytes.into()))
    }

    /// The same from a relative [`Path`]; `.` parts and repeated slashes are dropped.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn from_path(path: &Path) -> Result<Self, BadPath> {
        let bytes = path.as_os_str().as_bytes();
        let parts: Vec<&[u8]> = bytes
            .split(|b| *b == b'/')
            .filter(|part| !part.is_empty() && *part != b".")
            .collect();
        Self::new(&parts.join(&b'/'))
    }

    /// This path with one more part.
    ///
    /// `name` must satisfy [`check_name`], as every name does that a scan or a stored tree gave.
    #[must_use]
    pub fn join(&self, name: &[u8]) -> Self {
        debug_assert_eq!(check_name(name), Ok(()));
        if self.0.is_empty() {
            return Self(name.into());
        }
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.len());
        bytes.extend_from_slice(&self.0);
        bytes.push(b'/');
        bytes.extend_from_slice(name);
        Self(bytes.into())
    }

    /// All bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As a relative path of this system.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// Whether this is the root itself.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The parts, outermost first.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|b| *b == b'/').filter(|part| !part.is_empty())
    }

    /// Everything but the last part, and the last part; `None` for the root itself.
    #[must_use]
    pub fn split_last(&self) -> Option<(Self, &[u8])> {
        if self.0.is_empty() {
            return None;
        }
        match self.0.iter().rposition(|b| *b == b'/') {
            Some(at) => Some((Self(self.0[..at].into()), &self.0[at + 1..])),
            None => Some((Self::root(), &self.0)),
        }
    }

    /// Whether this is `ancestor` or below it.
    #[must_use]
    pub fn starts_with(&self, ancestor: &Self) -> bool {
        ancestor.is_root()
            || self
                .0
                .strip_prefix(&*ancestor.0)
                .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_path(), f)
    }
}

/// In JSON: text, with `%XX` for `%`, control bytes and bytes that aren't UTF-8.
impl Serialize for TreePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&escape(&self.0))
    }
}

impl<'de> Deserialize<'de> for TreePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = unescape(&text).ok_or_else(|| serde::de::Error::custom("a bad % escape in a path"))?;
        Self::new(&bytes).map_err(serde::de::Error::custom)
    }
}

/// A path as people can paste it into a shell's command line.
#[must_use]
pub fn for_shell(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "/._-+,@%:=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Text for `bytes` in which `%`, control bytes and bytes that aren't UTF-8 are `%XX`.
#[must_use]
pub fn escape(bytes: &[u8]) -> String {
    use fmt::Write;
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == '%' || c.is_ascii_control() {
                let _ = write!(text, "%{:02X}", c as u32);
            } else {
                text.push(c);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// The bytes that [`escape`] was given; `None` when `text` has a `%` without two hexadecimal digits.
#[must_use]
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'%' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_for_a_shell() {
        for (path, shown) in [
            ("/tmp/r-1", "/tmp/r-1"),
            ("/a b", "'/a b'"),
            ("/it's", r"'/it'\''s'"),
            ("/$x", "'/$x'"),
            ("/ä", "/ä"),
        ] {
            assert_eq!(for_shell(Path::new(path)), shown);
        }
    }

    #[test]
    fn bad_parts_are_refused() {
        for bad in ["/a", "a//b", "a/", "./a", "a/../b", ".git", "a/.git/b", "a\0b"] {
            assert!(TreePath::new(bad.as_bytes()).is_err(), "{bad:?}");
        }
        for good in ["", "a", "a/b", ".gitignore", "a/.github/x", "\u{1F642}", " ", "-"] {
            assert!(TreePath::new(good.as_bytes()).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn a_prefix_ends_at_a_part() {
        let path = TreePath::new(b"ab/c").unwrap();
        assert!(path.starts_with(&TreePath::new(b"ab").unwrap()));
        assert!(path.starts_with(&TreePath::root()));
        assert!(!path.starts_with(&TreePath::new(b"a").unwrap()));
    }

    #[test]
    fn escapes_go_both_ways() {
        for bytes in [&b"a%b"[..], b"\xff\xfe", b"new\nline", "naïve".as_bytes(), b"%41"] {
            assert_eq!(unescape(&escape(bytes)).unwrap(), bytes);
        }
        assert_eq!(escape("日本".as_bytes()), "日本");
        assert_eq!(unescape("%4"), None);
    }
}
