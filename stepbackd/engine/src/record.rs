//! How records stand in commit messages: a line for people, an empty line, one JSON object.

use serde::{Serialize, de::DeserializeOwned};

use crate::error::{Error, Result};
use crate::oid::Oid;
use crate::store::Store;
use crate::time::Time;

/// Version of every record. A reader refuses another one by name.
pub const SCHEMA: u32 = 1;

/// Summary lines are cut at so many characters.
const SUMMARY_CHARS_MAX: usize = 120;

/// The message of a commit that carries `record`.
#[must_use]
pub fn message<T: Serialize>(summary: &str, record: &T) -> String {
    let json = serde_json::to_string(record).expect("records have text keys and no failing fields");
    let line: String = summary
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(SUMMARY_CHARS_MAX)
        .collect();
    format!("{}\n\n{json}\n", line.trim())
}

/// The record in `message`, which `oid` of `store` holds.
///
/// # Errors
/// [`Error::Damaged`] naming the commit when there is no record, or one that this program doesn't know.
pub fn parse<T: DeserializeOwned>(store: &Store, oid: Oid, message: &str) -> Result<T> {
    let json = message.split_once("\n\n").map_or("", |(_, json)| json);
    serde_json::from_str(json).map_err(|e| Error::Damaged {
        store: store.path().to_owned(),
        what: format!("the record in commit {oid} can't be read: {e}"),
    })
}

/// The number in which a ref's name ends.
pub fn number(name: &str) -> Option<u64> {
    name.rsplit('/').next()?.parse().ok()
}

/// The fields with which each record begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Head {
    /// [`SCHEMA`].
    pub v: Schema,
    /// Id of the root.
    pub root: String,
}

impl Head {
    /// For a record of this root.
    #[must_use]
    pub fn of(root: &str) -> Self {
        Self {
            v: Schema,
            root: root.to_owned(),
        }
    }
}

/// The number [`SCHEMA`]; any other fails to parse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schema;

impl Serialize for Schema {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(SCHEMA)
    }
}

impl<'de> serde::Deserialize<'de> for Schema {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            SCHEMA => Ok(Self),
            other => Err(serde::de::Error::custom(format!(
                "it has schema {other}, this program knows {SCHEMA}: use a newer stepback"
            ))),
        }
    }
}

/// Time of commits whose contents, not their moment, are what counts: equal records become one object.
pub const NO_TIME: Time = Time(0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_one_line() {
        let text = message("two\nlines\u{7}", &Head::of("r"));
        assert_eq!(text, "two lines\n\n{\"v\":1,\"root\":\"r\"}\n");
    }

    #[test]
    fn another_schema_is_named() {
        let error = serde_json::from_str::<Head>("{\"v\":2,\"root\":\"r\"}").unwrap_err();
        assert!(error.to_string().contains("schema 2"), "{error}");
    }
}
