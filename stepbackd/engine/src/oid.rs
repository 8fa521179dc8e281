//! Object ids of the store.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha1::{Digest, Sha1};

/// The SHA-1 name of a git object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid(pub [u8; 20]);

impl Oid {
    /// The empty tree. Written as an object into every store, for empty directories.
    pub const EMPTY_TREE: Self = Self([
        0x4b, 0x82, 0x5d, 0xc6, 0x42, 0xcb, 0x6e, 0xb9, 0xa0, 0x60, 0xe5, 0x4b, 0xf8, 0xd6, 0x92, 0x88, 0xfb,
        0xee, 0x49, 0x04,
    ]);

    /// The name of an object of this kind with these contents.
    #[must_use]
    pub fn of(kind: ObjectKind, body: &[u8]) -> Self {
        let mut hasher = Sha1::new();
        hasher.update(kind.header(body.len() as u64));
        hasher.update(body);
        Self(hasher.finalize().into())
    }

    /// The name of a blob of exactly `size` bytes; `None` when the reader gives more or less.
    ///
    /// # Errors
    /// Those of the reader.
    pub fn of_blob(size: u64, from: &mut dyn Read) -> io::Result<Option<Self>> {
        let mut hasher = Sha1::new();
        hasher.update(ObjectKind::Blob.header(size));
        let mut buffer = vec![0; 64 * 1024];
        let mut read = 0;
        loop {
            match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(bytes) => {
                    read += bytes as u64;
                    hasher.update(&buffer[..bytes]);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if read > size {
                break;
            }
        }
        Ok((read == size).then(|| Self(hasher.finalize().into())))
    }

    /// From 20 raw bytes.
    #[must_use]
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that isn't 40 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an object id: {0:?}")]
pub struct NotAnOid(String);

impl FromStr for Oid {
    type Err = NotAnOid;

    fn from_str(text: &str) -> Result<Self, NotAnOid> {
        let fail = || NotAnOid(text.to_owned());
        if text.len() != 40 || !text.is_ascii() {
            return Err(fail());
        }
        let mut bytes = [0u8; 20];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| fail())?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Oid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Oid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// Kinds of git object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    /// Bytes of a file, or a link's target.
    Blob,
    /// A directory.
    Tree,
    /// A checkpoint or side record.
    Commit,
}

impl ObjectKind {
    /// As in an object's header.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blob => "blob",
            Self::Tree => "tree",
            Self::Commit => "commit",
        }
    }

    /// What is hashed before the contents.
    #[must_use]
    pub fn header(self, bytes: u64) -> Vec<u8> {
        format!("{} {bytes}\0", self.name()).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_git() {
        assert_eq!(
            Oid::of(ObjectKind::Blob, b"v1\n").to_string(),
            "626799f0f85326a8c1fc522db584e86cdfccd51f"
        );
        assert_eq!(Oid::of(ObjectKind::Tree, b""), Oid::EMPTY_TREE);
        let read = |size| Oid::of_blob(size, &mut &b"v1\n"[..]).unwrap();
        assert_eq!(read(3), Some(Oid::of(ObjectKind::Blob, b"v1\n")));
        assert_eq!((read(2), read(4)), (None, None));
    }

    #[test]
    fn text_goes_both_ways() {
        let id = Oid::of(ObjectKind::Blob, b"x");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("zz".parse::<Oid>().is_err());
        assert!("é".repeat(20).parse::<Oid>().is_err());
    }
}
