//! A list of ignore patterns: one ignore file, parsed and matched as git does it.

use std::sync::Arc;

use super::wildmatch::{self, Options};

/// What a pattern says of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    /// Left out.
    Ignore,
    /// A `!` pattern: not left out.
    Keep,
}

/// The patterns of one ignore file. A clone shares them, and none take no memory: most directories have none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Patterns(Option<Arc<Parsed>>);

#[derive(Debug, PartialEq, Eq)]
struct Parsed {
    text: Vec<u8>,
    list: Vec<Pattern>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    /// Of the pattern proper, in the text: without `!`, without the slashes at its ends.
    start: usize,
    end: usize,
    /// How many bytes of it are before the first that is special.
    literal: usize,
    keep: bool,
    only_dir: bool,
    /// Has no slash: matched against the last part of a path, at any depth.
    base_name: bool,
}

impl Patterns {
    /// Parses the bytes of an ignore file.
    pub fn parse(text: &[u8]) -> Self {
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        if text.is_empty() {
            return Self::default();
        }
        let list = text
            .split(|byte| *byte == b'\n')
            .filter_map(|line| Pattern::parse(text, line))
            .collect();
        Self(Some(Arc::new(Parsed {
            text: text.to_vec(),
            list,
        })))
    }

    fn list(&self) -> &[Pattern] {
        self.0.as_ref().map_or(&[], |parsed| &parsed.list)
    }

    /// The text that was parsed.
    pub fn text(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |parsed| &parsed.text)
    }

    /// Whether there is no pattern.
    pub fn is_empty(&self) -> bool {
        self.list().is_empty()
    }

    /// What the last pattern that matches says. `path` is relative to the directory of the ignore file.
    pub fn says(&self, path: &[u8], is_dir: bool, ignore_case: bool) -> Option<Says> {
        let text = self.text();
        let base = path
            .iter()
            .rposition(|byte| *byte == b'/')
            .map_or(0, |slash| slash + 1);
        self.list()
            .iter()
            .rev()
            .find(|pattern| pattern.matches(text, path, &path[base..], is_dir, ignore_case))
            .map(|pattern| if pattern.keep { Says::Keep } else { Says::Ignore })
    }

    /// The patterns that leave out or take in: the bytes of each, and whether it is matched at any depth.
    pub fn positive(&self) -> impl Iterator<Item = (&[u8], bool)> {
        let text = self.text();
        let list = self.list().iter().filter(|pattern| !pattern.keep);
        list.map(|pattern| (&text[pattern.start..pattern.end], pattern.base_name))
    }
}

impl Pattern {
    fn parse(text: &[u8], line: &[u8]) -> Option<Self> {
        if line.first() == Some(&b'#') {
            return None;
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = line.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut rest = without_trailing_spaces(line);
        let keep = rest.first() == Some(&b'!');
        if keep {
            rest = &rest[1..];
        }
        let only_dir = rest.last() == Some(&b'/');
        if only_dir {
            rest = &rest[..rest.len() - 1];
        }
        let base_name = !rest.contains(&b'/');
        if rest.first() == Some(&b'/') {
            rest = &rest[1..];
        }
        if rest.is_empty() {
            return None;
        }
        let start = rest.as_ptr().addr() - text.as_ptr().addr();
        let literal = rest
            .iter()
            .position(|byte| wildmatch::is_special(*byte))
            .unwrap_or(rest.len());
        Some(Self {
            start,
            end: start + rest.len(),
            literal,
            keep,
            only_dir,
            base_name,
        })
    }

    fn matches(&self, text: &[u8], path: &[u8], base: &[u8], is_dir: bool, ignore_case: bool) -> bool {
        if self.only_dir && !is_dir {
            return false;
        }
        let pattern = &text[self.start..self.end];
        let same = |a: &[u8], b: &[u8]| {
            if ignore_case {
                a.eq_ignore_ascii_case(b)
            } else {
                a == b
            }
        };
        if self.base_name {
            return match pattern {
                _ if self.literal == pattern.len() => same(pattern, base),
                [b'*', rest @ ..] if !rest.iter().any(|byte| wildmatch::is_special(*byte)) => {
                    base.len() >= rest.len() && same(rest, &base[base.len() - rest.len()..])
                }
                _ => wildmatch::matches(
                    pattern,
                    base,
                    Options {
                        pathname: false,
                        ignore_case,
                    },
                ),
            };
        }
        // The part before the first special byte is compared apart, as in git: what is special about `**` at the start
        // of a pattern then holds right behind it.
        if path.len() < self.literal || !same(&pattern[..self.literal], &path[..self.literal]) {
            return false;
        }
        let (pattern, path) = (&pattern[self.literal..], &path[self.literal..]);
        if pattern.is_empty() {
            return path.is_empty();
        }
        wildmatch::matches(
            pattern,
            path,
            Options {
                pathname: true,
                ignore_case,
            },
        )
    }
}

/// Without the spaces at its end, unless a backslash is before them.
fn without_trailing_spaces(line: &[u8]) -> &[u8] {
    let mut spaces = None;
    let mut at = 0;
    while let Some(byte) = line.get(at) {
        match byte {
            b' ' => {
                spaces.get_or_insert(at);
            }
            b'\\' => {
                at += 1;
                if at == line.len() {
                    return line;
                }
                spaces = None;
            }
            _ => spaces = None,
        }
        at += 1;
    }
    &line[..spaces.unwrap_or(line.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    fn says(text: &str, path: &str, is_dir: bool) -> Option<Says> {
        Patterns::parse(text.as_bytes()).says(path.as_bytes(), is_dir, false)
    }

    #[test]
    fn lines() {
        use Says::{Ignore, Keep};
        for (text, path, is_dir, expected) in [
            ("a", "x/a", false, Some(Ignore)),
            ("/a", "x/a", false, None),
            ("a/", "a", false, None),
            ("a/", "x/a", true, Some(Ignore)),
            ("a\n!a", "a", false, Some(Keep)),
            ("#a", "#a", false, None),
            ("\\#a", "#a", false, Some(Ignore)),
            ("\\!a", "!a", false, Some(Ignore)),
            ("a  ", "a", false, Some(Ignore)),
            ("a\\ ", "a ", false, Some(Ignore)),
            ("a\r\nb\r", "a", false, Some(Ignore)),
            ("a\r\nb\r", "b", false, Some(Ignore)),
            ("\u{feff}a", "a", false, Some(Ignore)),
            ("a/*", "a/b/c", false, None),
            ("a/**", "a/b/c", false, Some(Ignore)),
            ("*.o", "x/y.o", false, Some(Ignore)),
            ("!", "a", false, None),
            ("/", "a", true, None),
        ] {
            assert_eq!(says(text, path, is_dir), expected, "{text:?} {path:?}");
        }
    }

    fn verdicts_of_git(
        dir: &std::path::Path,
        patterns: &[u8],
        paths: &[String],
        ignore_case: bool,
    ) -> Vec<bool> {
        std::fs::write(dir.join(".gitignore"), patterns).unwrap();
        let mut git = Command::new("git")
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .args(["-c", &format!("core.ignoreCase={ignore_case}"), "-C"])
            .arg(dir)
            .args(["check-ignore", "--no-index", "-v", "-n", "-z", "--stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = paths
            .iter()
            .flat_map(|path| [path.as_bytes(), b"\0"].concat())
            .collect::<Vec<_>>();
        git.stdin.take().unwrap().write_all(&input).unwrap();
        let out = git.wait_with_output().unwrap().stdout;
        let fields: Vec<&[u8]> = out.split(|byte| *byte == 0).collect();
        fields
            .chunks_exact(4)
            .map(|four| !four[2].is_empty() && four[2][0] != b'!')
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

        /// git is the judge. The paths have no directory on disk, so none is a directory but those with a slash after it.
        #[test]
        fn git_says_the_same(
            lines in prop::collection::vec("(!|/|\\\\)?([aAb*?/\\]\\[!^ #-]|\\*\\*|\\*\\*/|\\\\[ab* ]|\\[[ab]-[bc]\\]|\\[\\[:[au]l[np][uh][ma]:\\]\\]|\\{a,b\\}){1,6}[ /\r]{0,2}", 1..6),
            paths in prop::collection::vec("[aAbc# !\\[*-]{1,3}(/[aAbc \\]{}]{1,3}){0,3}", 40),
            ignore_case: bool,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let init = Command::new("git").args(["init", "-q"]).arg(dir.path()).status().unwrap();
            prop_assert!(init.success());
            let text = lines.join("\n");
            let patterns = Patterns::parse(text.as_bytes());
            let theirs = verdicts_of_git(dir.path(), text.as_bytes(), &paths, ignore_case);
            prop_assert_eq!(theirs.len(), paths.len());
            for (path, theirs) in paths.iter().zip(theirs) {
                let slashes = path.match_indices('/').map(|(at, _)| at);
                let above = slashes.clone().any(|at| {
                    patterns.says(&path.as_bytes()[..at], true, ignore_case) == Some(Says::Ignore)
                });
                let ours = above || patterns.says(path.as_bytes(), false, ignore_case) == Some(Says::Ignore);
                prop_assert_eq!(ours, theirs, "{:?} {:?}", &text, path);
            }
        }
    }
}
