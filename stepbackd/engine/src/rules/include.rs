//! Include patterns: what is captured though a rule ignores it.

use super::builtin;
use super::pattern::{Patterns, Says};
use super::wildmatch::{self, Options};
use crate::path::TreePath;
use crate::tree::together;

/// Whether a pattern can take anything in.
///
/// # Errors
/// Why not.
pub fn check_include(pattern: &str) -> Result<(), &'static str> {
    let plain = pattern.trim_end_matches([' ', '\r']);
    let plain = plain.strip_prefix('!').unwrap_or(plain);
    let parts = || plain.trim_matches('/').split('/');
    match plain {
        _ if plain.trim_matches('/').is_empty() => Err("it names nothing"),
        _ if pattern.contains(['\n', '\0']) => Err("it has a line break or a NUL in it"),
        _ if pattern.starts_with('#') => Err("it is a comment; `\\#` begins a name with a `#`"),
        _ if parts().any(|part| matches!(part, "." | "..")) => {
            Err("a part of it is '.' or '..'; it is relative to the root")
        }
        _ if parts().any(|part| part == ".git") => Err("nothing below a .git is ever captured"),
        _ if parts().any(str::is_empty) => Err("a part of it is empty"),
        _ if !wildmatch::is_whole(plain.as_bytes()) => {
            Err("it ends within a '[' or after a '\\'; `\\[` is a '[' itself")
        }
        _ => Ok(()),
    }
}

/// Tells of files whether these patterns take them in.
pub fn included_by(texts: &[String]) -> impl Fn(&TreePath) -> bool + use<> {
    let include = Include::new(texts);
    move |path| include.takes_with_above(path, false)
}

/// The include patterns of a root, in gitignore's language, relative to the root.
#[derive(Debug, Default)]
pub(super) struct Include {
    texts: Vec<String>,
    patterns: Patterns,
}

impl Include {
    pub fn new(texts: &[String]) -> Self {
        Self {
            texts: texts.to_vec(),
            patterns: Patterns::parse(texts.join("\n").as_bytes()),
        }
    }

    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Whether the path is taken in, and if it is a directory, all below it. The log of a database comes with it: without
    /// it what is put back may be no database.
    pub fn takes(&self, path: &[u8], is_dir: bool) -> bool {
        let says = |path| self.patterns.says(path, is_dir, false) == Some(Says::Ignore);
        !self.patterns.is_empty() && (says(path) || !is_dir && together::database_of(path).is_some_and(says))
    }

    /// Whether the path is taken in: itself, or a directory above it.
    pub fn takes_with_above(&self, path: &TreePath, is_dir: bool) -> bool {
        let mut at = path.clone();
        let mut takes = self.takes(at.as_bytes(), is_dir);
        while let Some((above, _)) = at.split_last().filter(|_| !takes) {
            takes = !above.is_root() && self.takes(above.as_bytes(), true);
            at = above;
        }
        takes
    }

    /// Whether something below this ignored directory may be taken in. One of a built-in name is searched only if a
    /// pattern names it: nobody who includes `*.env` wants each package in `node_modules` looked at.
    pub fn may_take_below(&self, dir: &[u8], name: &[u8]) -> bool {
        self.patterns.positive().any(|(pattern, any_depth)| {
            may_match_below(pattern, any_depth, dir)
                && (!builtin::names(name) || pattern.split(|byte| *byte == b'/').any(|part| part == name))
        })
    }
}

fn may_match_below(pattern: &[u8], any_depth: bool, dir: &[u8]) -> bool {
    if any_depth {
        return true;
    }
    let mut parts = pattern.split(|byte| *byte == b'/');
    for name in dir.split(|byte| *byte == b'/') {
        match parts.next() {
            None => return false,
            Some(part) if part.starts_with(b"**") => return true,
            Some(part) => {
                if !wildmatch::matches(
                    part,
                    name,
                    Options {
                        pathname: true,
                        ignore_case: false,
                    },
                ) {
                    return false;
                }
            }
        }
    }
    parts.next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_something_may_be_taken_in() {
        let below = |pattern: &str, dir: &str| {
            let name = dir.rsplit('/').next().unwrap();
            Include::new(&[pattern.into()]).may_take_below(dir.as_bytes(), name.as_bytes())
        };
        assert!(below("build/gen/*.h", "build"));
        assert!(below("build/gen/*.h", "build/gen"));
        assert!(!below("build/gen/*.h", "build/obj"));
        assert!(!below("build/gen/*.h", "out"));
        assert!(below("*.env", "out/x"));
        assert!(!below("*.env", "node_modules"));
        assert!(below("node_modules/mine/**", "node_modules"));
        assert!(below("**/node_modules/mine", "a/node_modules"));
        assert!(below("a/*/dist/x", "a/b"));
        assert!(!below("a/*/dist/x", "a/b/lib"));
    }

    #[test]
    fn a_pattern_that_can_take_nothing_in_is_told() {
        for good in [
            "a",
            "*.env",
            "/a/b/",
            "!x",
            "[a-z]*",
            "[]x]",
            "[!]]",
            r"\[x",
            "a/**/b",
            "[[:alpha:]]",
            "ä ö",
        ] {
            assert_eq!(check_include(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            " ",
            "/",
            "!",
            "#x",
            "[a",
            "a[",
            "[]",
            "[[:alpha:]",
            "x\\",
            "../x",
            "a/./b",
            "a//b",
            "a\nb",
            ".git/config",
            "sub/.git",
        ] {
            assert!(check_include(bad).is_err(), "{bad:?}");
        }
    }
}
