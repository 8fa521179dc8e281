//! Lines of JSON: the first ones, and the chain in which each names the one before.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader, Read};

use serde::Deserialize;
use serde_json::Value;

/// The most bytes of one line that is looked at.
const LINE_BYTES_MAX: u64 = 4 << 20;

/// Hands out the records at the beginning of a file, until one gives an answer, at most `bytes_max` bytes of them. A line
/// that is no record is passed over.
pub(super) fn first<T>(
    from: impl Read,
    bytes_max: u64,
    mut each: impl FnMut(&Value) -> Option<T>,
) -> io::Result<Option<T>> {
    let mut from = BufReader::new(from.take(bytes_max));
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut from).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(None);
        }
        if let Ok(value) = serde_json::from_slice::<Value>(&line)
            && let Some(found) = each(&value)
        {
            return Ok(Some(found));
        }
    }
}

/// What of a record makes the chain; the rest of it is passed over.
#[derive(Default, Deserialize)]
struct Link {
    uuid: Option<String>,
    #[serde(rename = "parentUuid")]
    parent: Option<String>,
}

impl Link {
    fn of(line: &[u8]) -> Self {
        serde_json::from_slice(line).unwrap_or_default()
    }
}

/// Follows the chain of `parentUuid`s through a transcript, line by line, twice: records may stand before those that they
/// name.
#[derive(Default)]
pub(super) struct Chain {
    /// Of each record's id: all of a long transcript's.
    there: HashSet<u64>,
    last: Option<String>,
    /// Records that name one that isn't there.
    pub broken: u64,
}

impl Chain {
    /// The first time.
    pub fn note(&mut self, line: &[u8]) {
        if let Some(uuid) = Link::of(line).uuid {
            self.there.insert(short(&uuid));
        }
    }

    /// The second time: the line, its parent replaced by the record before it if the one that it names isn't there.
    pub fn mend(&mut self, line: &[u8]) -> Vec<u8> {
        let link = Link::of(line);
        let mut out = line.to_vec();
        if let (Some(parent), Some(last)) = (link.parent, &self.last)
            && !self.there.contains(&short(&parent))
        {
            self.broken += 1;
            let mend = |space: &str| {
                let from = format!("\"parentUuid\":{space}\"{parent}\"");
                let to = format!("\"parentUuid\":{space}\"{last}\"");
                replace(line, &[(from.into_bytes(), to.into_bytes())])
            };
            out = mend("");
            if out == line {
                out = mend(" ");
            }
        }
        if let Some(uuid) = link.uuid {
            self.last = Some(uuid);
        }
        out
    }
}

/// In place of an id: a chance of one in billions that two of a transcript are the same leaves a break as it is.
fn short(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

/// Replaces each `from` by its `to`, wherever it stands.
pub(super) fn replace(bytes: &[u8], pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hit = pairs
            .iter()
            .find(|(from, _)| !from.is_empty() && bytes[at..].starts_with(from));
        match hit {
            Some((from, to)) => {
                out.extend_from_slice(to);
                at += from.len();
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_chain_is_mended_and_a_whole_one_left() {
        let lines = [
            r#"{"uuid":"a","parentUuid":null}"#,
            r#"{"uuid":"b","parentUuid":"a"}"#,
            r#"{"type":"other"}"#,
            r#"{"uuid":"d","parentUuid":"c","x":1}"#,
            r#"{"uuid":"f","parentUuid":"e"}"#,
            r#"{"uuid":"e","parentUuid":"d"}"#,
            "{half",
        ];
        let mut chain = Chain::default();
        lines.iter().for_each(|line| chain.note(line.as_bytes()));
        let out: Vec<_> = lines
            .iter()
            .map(|line| String::from_utf8(chain.mend(line.as_bytes())).unwrap())
            .collect();
        assert_eq!(out[3], r#"{"uuid":"d","parentUuid":"b","x":1}"#);
        assert_eq!(
            (&out[..3], &out[4..]),
            (&lines.map(String::from)[..3], &lines.map(String::from)[4..])
        );
        assert_eq!(chain.broken, 1);
    }

    #[test]
    fn the_first_answer_counts_and_bad_lines_are_passed_over() {
        let text = b"nonsense\n{\"a\":1}\n{\"cwd\":\"/x\"}\n";
        let cwd = |v: &Value| v.get("cwd").and_then(Value::as_str).map(str::to_owned);
        assert_eq!(first(&text[..], 1000, cwd).unwrap().as_deref(), Some("/x"));
        assert_eq!(first(&text[..], 20, cwd).unwrap(), None);
    }
}
