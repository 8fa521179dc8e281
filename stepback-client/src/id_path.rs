//! `ID` or `ID:PATH`, where the ID may have colons of its own.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Cuts `text` into its ID and, if there is one, its path.
pub fn split(text: &OsStr) -> (&OsStr, Option<&OsStr>) {
    let bytes = text.as_bytes();
    let id_end = bytes
        .iter()
        .skip(own_colons(bytes))
        .position(|b| *b == b':')
        .map(|n| n + own_colons(bytes));
    match id_end {
        None => (text, None),
        Some(end) => (
            OsStr::from_bytes(&bytes[..end]),
            Some(OsStr::from_bytes(&bytes[end + 1..])),
        ),
    }
}

/// Where to look for the colon that ends the ID: behind those that belong to it.
fn own_colons(bytes: &[u8]) -> usize {
    for prefix in [&b"session:"[..], b"turn:"] {
        if bytes.starts_with(prefix) {
            return prefix.len();
        }
    }
    // `@2026-11-29T14:05` and `@2026-11-29T14:05:07`
    let digits_at = |at: usize| bytes.len() >= at + 2 && bytes[at..at + 2].iter().all(u8::is_ascii_digit);
    if bytes.first() != Some(&b'@') || bytes.get(11) != Some(&b'T') || bytes.get(14) != Some(&b':') {
        return 0;
    }
    let minutes_end = 17;
    let ends_after_seconds = matches!(bytes.get(20), None | Some(b':' | b'.' | b'Z'));
    if bytes.get(minutes_end) == Some(&b':') && digits_at(18) && ends_after_seconds {
        20
    } else {
        minutes_end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_with_and_without_a_path() {
        for (text, id, path) in [
            ("7", "7", None),
            ("7:src/a", "7", Some("src/a")),
            ("7:", "7", Some("")),
            ("7:a:b", "7", Some("a:b")),
            ("#7::", "#7", Some(":")),
            ("latest:x", "latest", Some("x")),
            ("session:fix", "session:fix", None),
            ("session:fix:a/b:c", "session:fix", Some("a/b:c")),
            ("turn:~2", "turn:~2", None),
            ("turn:~2:a", "turn:~2", Some("a")),
            ("@10m:a", "@10m", Some("a")),
            ("@2026-11-29T14:05", "@2026-11-29T14:05", None),
            ("@2026-11-29T14:05:a", "@2026-11-29T14:05", Some("a")),
            ("@2026-11-29T14:05:07", "@2026-11-29T14:05:07", None),
            ("@2026-11-29T14:05:07:a", "@2026-11-29T14:05:07", Some("a")),
            ("@2026-11-29T14:05:07a", "@2026-11-29T14:05", Some("07a")),
            ("@2026-11-29T14:05:07.5Z:a", "@2026-11-29T14:05:07.5Z", Some("a")),
        ] {
            assert_eq!(
                split(OsStr::new(text)),
                (OsStr::new(id), path.map(OsStr::new)),
                "{text}"
            );
        }
    }
}
