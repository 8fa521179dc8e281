//! Where the client stands, and how paths on the command line become absolute.

use std::env;
use std::path::{Component, Path, PathBuf};

use crate::environment::Environment;
use crate::error::{Error, Result};

/// The current directory; when it has been deleted, what `PWD` says it was (so that `stepback rewind` works in the very
/// directory that is to be put back).
///
/// # Errors
/// When there is neither.
pub fn current(environment: &Environment) -> Result<PathBuf> {
    match env::current_dir() {
        Ok(dir) => Ok(dir),
        Err(e) => match &environment.pwd {
            Some(pwd) => Ok(normalise(pwd)),
            None => Err(Error::Environment {
                message: format!("the current directory can't be found: {e}"),
                hint: "name the root with -C PATH".into(),
            }),
        },
    }
}

/// `path` as seen from `from`, without `.`, `..` and doubled slashes; links are not followed.
pub fn absolute(from: &Path, path: &Path) -> PathBuf {
    normalise(&from.join(path))
}

/// The place that `-C PATH` names. A path with `..` in it is resolved as the kernel would, where it exists.
pub fn named(from: &Path, path: &Path) -> PathBuf {
    let joined = from.join(path);
    if joined.components().any(|c| c == Component::ParentDir)
        && let Ok(real) = joined.canonicalize()
    {
        return real;
    }
    normalise(&joined)
}

/// Takes out `.`, `..`, doubled and trailing slashes by the text alone.
pub fn normalise(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) | Component::Normal(_) => out.push(part),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_absolute_by_the_text_alone() {
        let from = Path::new("/home/me/proj/sub");
        for (given, want) in [
            ("a", "/home/me/proj/sub/a"),
            ("./a/./b//c/", "/home/me/proj/sub/a/b/c"),
            ("../x", "/home/me/proj/x"),
            ("../../../../../..", "/"),
            ("/etc/../usr", "/usr"),
            (".", "/home/me/proj/sub"),
            ("", "/home/me/proj/sub"),
            ("-x", "/home/me/proj/sub/-x"),
            ("*", "/home/me/proj/sub/*"),
        ] {
            assert_eq!(absolute(from, Path::new(given)), Path::new(want), "{given}");
        }
    }
}
