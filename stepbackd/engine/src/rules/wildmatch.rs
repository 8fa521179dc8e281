//! Glob matching as git does it, byte by byte.
//!
//! Own code because git is the judge of what is ignored, and the glob crates differ from it where it matters: they take
//! `{a,b}` for alternatives, know no `[[:alpha:]]`, and want UTF-8.

/// How a match ended; the two `Abort` kinds keep a pattern with many stars from trying the same text over and over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Match,
    NoMatch,
    /// The text is used up: a longer run for any star can't help.
    Abort,
    /// A slash is in the way: only a star that crosses slashes can help.
    AbortToCrossing,
}

/// How to match.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    /// `*`, `?` and `[...]` don't match `/`, and `**` between slashes does.
    pub pathname: bool,
    /// ASCII letters match whatever their case.
    pub ignore_case: bool,
}

/// Whether the whole `text` matches `pattern`.
pub(super) fn matches(pattern: &[u8], text: &[u8], options: Options) -> bool {
    run(pattern, text, options) == End::Match
}

/// Whether every `[` of the pattern has its end, and every backslash a byte after it. Other patterns match nothing.
pub(super) fn is_whole(pattern: &[u8]) -> bool {
    let mut p = 0;
    while let Some(byte) = pattern.get(p) {
        match byte {
            b'\\' if p + 1 == pattern.len() => return false,
            b'\\' => p += 1,
            b'[' => match class(pattern, p + 1, b'a', false) {
                Some((_, end)) => p = end,
                None => return false,
            },
            _ => {}
        }
        p += 1;
    }
    true
}

/// Whether a byte has a meaning of its own in a pattern.
pub(super) const fn is_special(byte: u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[' | b'\\')
}

fn run(pattern: &[u8], text: &[u8], options: Options) -> End {
    let fold = |byte: u8| {
        if options.ignore_case {
            byte.to_ascii_lowercase()
        } else {
            byte
        }
    };
    let (mut p, mut t) = (0, 0);
    while let Some(&wanted) = pattern.get(p) {
        let Some(byte) = text.get(t).map(|byte| fold(*byte)) else {
            return if wanted == b'*' {
                star(pattern, p, &text[t..], options)
            } else {
                End::Abort
            };
        };
        match wanted {
            b'*' => {
                match single_level(pattern, p, options).then(|| text[t..].iter().position(|b| *b == b'/')) {
                    // A star before a slash takes the rest of this part of the path; the slash comes next.
                    Some(Some(slash)) => {
                        t += slash;
                        p = after_stars(pattern, p);
                        continue;
                    }
                    Some(None) => return End::Abort,
                    None => return star(pattern, p, &text[t..], options),
                }
            }
            b'?' if options.pathname && byte == b'/' => return End::NoMatch,
            b'?' => {}
            b'[' => match class(pattern, p + 1, byte, options.ignore_case) {
                None => return End::Abort,
                Some((matched, _)) if !matched || (options.pathname && byte == b'/') => return End::NoMatch,
                Some((_, end)) => p = end,
            },
            b'\\' => {
                p += 1;
                // The byte after a backslash stands for itself, also where case is ignored: an upper case one then
                // matches nothing, as in git.
                if pattern.get(p) != Some(&byte) {
                    return End::NoMatch;
                }
            }
            _ if byte != fold(wanted) => return End::NoMatch,
            _ => {}
        }
        p += 1;
        t += 1;
    }
    if t == text.len() { End::Match } else { End::NoMatch }
}

fn after_stars(pattern: &[u8], p: usize) -> usize {
    p + pattern[p..].iter().take_while(|byte| **byte == b'*').count()
}

/// Whether the stars at `p` may take slashes. `pattern` begins where this (inner) match began.
fn crosses(pattern: &[u8], p: usize, options: Options) -> bool {
    let end = after_stars(pattern, p);
    !options.pathname
        || (end - p > 1
            && (p == 0 || pattern[p - 1] == b'/')
            && matches!(&pattern[end..], [] | [b'/', ..] | [b'\\', b'/', ..]))
}

fn single_level(pattern: &[u8], p: usize, options: Options) -> bool {
    pattern.get(after_stars(pattern, p)) == Some(&b'/') && !crosses(pattern, p, options)
}

/// Matches from the stars at `p` on.
fn star(pattern: &[u8], p: usize, text: &[u8], options: Options) -> End {
    let crossing = crosses(pattern, p, options);
    let rest = &pattern[after_stars(pattern, p)..];
    if crossing
        && options.pathname
        && rest.first() == Some(&b'/')
        && run(&rest[1..], text, options) == End::Match
    {
        return End::Match;
    }
    if rest.is_empty() {
        return if crossing || !text.contains(&b'/') {
            End::Match
        } else {
            End::AbortToCrossing
        };
    }
    if single_level(pattern, p, options) {
        return End::Abort;
    }
    for at in 0..text.len() {
        match run(rest, &text[at..], options) {
            End::NoMatch if !crossing && text[at] == b'/' => return End::AbortToCrossing,
            End::NoMatch => {}
            End::AbortToCrossing if crossing => {}
            end => return end,
        }
    }
    End::Abort
}

/// Matches one byte against the class whose `[` is right before `p`. Whether it matches, and where its `]` is; `None` for
/// a class that isn't closed or names an unknown kind of character.
fn class(pattern: &[u8], mut p: usize, byte: u8, ignore_case: bool) -> Option<(bool, usize)> {
    let negated = matches!(pattern.get(p)?, b'!' | b'^');
    if negated {
        p += 1;
    }
    let mut matched = false;
    let mut previous = None;
    let mut first = true;
    loop {
        let mut wanted = *pattern.get(p)?;
        if wanted == b']' && !first {
            return Some((matched != negated, p));
        }
        first = false;
        match (wanted, previous) {
            (b'\\', _) => {
                p += 1;
                wanted = *pattern.get(p)?;
                matched |= byte == wanted;
                previous = Some(wanted);
            }
            (b'-', Some(low)) if pattern.get(p + 1).is_some_and(|next| *next != b']') => {
                p += 1;
                if pattern[p] == b'\\' {
                    p += 1;
                }
                let high = *pattern.get(p)?;
                matched |= (low..=high).contains(&byte)
                    || (ignore_case
                        && byte.is_ascii_lowercase()
                        && (low..=high).contains(&byte.to_ascii_uppercase()));
                previous = None;
            }
            (b'[', _) if pattern.get(p + 1) == Some(&b':') => {
                let start = p + 2;
                let end = start + pattern.get(start..)?.iter().position(|b| *b == b']')?;
                match pattern[start..end].strip_suffix(b":") {
                    Some(name) => {
                        matched |= named(name, byte, ignore_case)?;
                        p = end;
                        previous = None;
                    }
                    None => {
                        matched |= byte == b'[';
                        previous = Some(b'[');
                    }
                }
            }
            _ => {
                matched |= byte == wanted;
                previous = Some(wanted);
            }
        }
        p += 1;
    }
}

fn named(name: &[u8], byte: u8, ignore_case: bool) -> Option<bool> {
    Some(match name {
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"alpha" => byte.is_ascii_alphabetic(),
        b"blank" => matches!(byte, b' ' | b'\t'),
        b"cntrl" => byte.is_ascii_control(),
        b"digit" => byte.is_ascii_digit(),
        b"graph" => byte.is_ascii_graphic(),
        b"lower" => byte.is_ascii_lowercase(),
        b"print" => byte == b' ' || byte.is_ascii_graphic(),
        b"punct" => byte.is_ascii_punctuation(),
        b"space" => matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c),
        b"upper" => byte.is_ascii_uppercase() || (ignore_case && byte.is_ascii_lowercase()),
        b"xdigit" => byte.is_ascii_hexdigit(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(pattern: &str, text: &str) -> bool {
        matches(
            pattern.as_bytes(),
            text.as_bytes(),
            Options {
                pathname: true,
                ignore_case: false,
            },
        )
    }

    #[test]
    fn stars() {
        for (pattern, text) in [
            ("*", "a"),
            ("*", ""),
            ("a/**/b", "a/b"),
            ("a/**/b", "a/x/y/b"),
            ("**/b", "b"),
            ("**/b", "x/b"),
            ("a/**", "a/x/y"),
            ("*/b", "a/b"),
            ("a*b*c", "axbxc"),
            ("a?c", "abc"),
        ] {
            assert!(path(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("*", "a/b"),
            ("a/**", "a"),
            ("*/b", "a/x/b"),
            ("a?c", "a/c"),
            ("x**/b", "x/y/b"),
            ("a", "ab"),
        ] {
            assert!(!path(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn classes() {
        for (pattern, text) in [
            ("[a-c]", "b"),
            ("[!a-c]", "d"),
            ("[^a]", "b"),
            ("[]a]", "]"),
            ("[[:digit:]x]", "7"),
            ("[a\\]]", "]"),
            ("{a,b}", "{a,b}"),
            ("[a-]", "-"),
        ] {
            assert!(path(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("[a", "[a"),
            ("[[:nope:]]", "n"),
            ("[!a]", "a"),
            ("[^x]", "/"),
            ("{a,b}", "a"),
        ] {
            assert!(!path(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_end_soon() {
        let pattern = "*a".repeat(40) + "b";
        let text = "a".repeat(2000);
        assert!(!path(&pattern, &text));
        assert!(!path(
            &("**/".to_owned() + &"*a".repeat(30) + "b"),
            &("aaaaaaaa/".repeat(50))
        ));
    }
}
