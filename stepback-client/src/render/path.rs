//! Paths for people. Names are the bytes of strangers: none may steer the terminal or break a line.

use stepback_proto::WirePath;

/// The path as it is when that is harmless, else quoted as git quotes names (`"a\nb"`), but with UTF-8 left readable.
pub fn shown(path: &WirePath) -> String {
    quoted(&path.0)
}

fn quoted(bytes: &[u8]) -> String {
    let mut out = String::new();
    let mut odd = bytes.is_empty();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            let escape = match c {
                '"' => Some("\\\"".to_owned()),
                '\\' => Some("\\\\".to_owned()),
                '\n' => Some("\\n".to_owned()),
                '\t' => Some("\\t".to_owned()),
                '\r' => Some("\\r".to_owned()),
                c if hidden(c) => Some(octal(c.encode_utf8(&mut [0; 4]).as_bytes())),
                _ => None,
            };
            match escape {
                Some(escape) => {
                    odd = true;
                    out += &escape;
                }
                None => out.push(c),
            }
        }
        if !chunk.invalid().is_empty() {
            odd = true;
            out += &octal(chunk.invalid());
        }
    }
    if odd { format!("\"{out}\"") } else { out }
}

/// Control characters, and those that turn the direction of text around.
fn hidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn octal(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("\\{b:03o}")).collect()
}

/// Text of others (labels, prompts, messages) on one line, without control characters.
pub fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if hidden(c) { ' ' } else { c })
        .collect::<String>()
        .trim_end()
        .to_owned()
}

/// An error's text without the numbers that the system has for it: ` (os error 2)`.
pub fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        match part[digits..].strip_prefix(')') {
            Some(rest) if digits > 0 => out += rest,
            _ => {
                out += " (os error ";
                out += part;
            }
        }
    }
    out
}

/// A word as a shell would take it back.
pub fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmless_names_stay_and_others_are_quoted() {
        for (name, want) in [
            (&b"src/a b.rs"[..], "src/a b.rs"),
            ("日本/naïve 🙂".as_bytes(), "日本/naïve 🙂"),
            (b"a\nb", "\"a\\nb\""),
            (b"a\"b\\c", "\"a\\\"b\\\\c\""),
            (b"\x1b[31m", "\"\\033[31m\""),
            (b"x\xffy", "\"x\\377y\""),
            (b"", "\"\""),
            ("a\u{202e}b".as_bytes(), "\"a\\342\\200\\256b\""),
        ] {
            assert_eq!(quoted(name), want);
        }
    }

    #[test]
    fn words_can_be_read_back_by_a_shell() {
        assert_eq!(word("cargo"), "cargo");
        assert_eq!(word("it's"), r"'it'\''s'");
        assert_eq!(word(""), "''");
        assert_eq!(word("a b"), "'a b'");
    }

    #[test]
    fn numbers_of_errors_are_left_out() {
        for (text, want) in [
            ("/x: No such file (os error 2)", "/x: No such file"),
            ("a (os error 13); b (os error x", "a; b (os error x"),
            ("", ""),
        ] {
            assert_eq!(without_numbers(text), want);
        }
    }

    #[test]
    fn text_of_others_stays_on_its_line() {
        assert_eq!(one_line("a\nb\x1b[0m\n"), "a b [0m");
    }
}
