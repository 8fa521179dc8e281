//! `GIT binary patch` of contents that are too large to hold: each side whole, deflated and in base 85, line by line.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;

use crate::error::{Error, Result};
use crate::oid::Oid;
use crate::store::Store;

/// So many bytes stand in a line, as git has it.
const LINE_BYTES: usize = 52;

const DIGITS: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// Writes the body for `git apply`, forth and back. Nothing of a side is held but a few lines.
///
/// # Errors
/// Those of the store; what `to` fails with is an [`Error::Io`] with an empty path.
pub fn write(store: &Store, old: Option<Oid>, new: Option<Oid>, to: &mut dyn Write) -> Result<()> {
    put(to, b"GIT binary patch\n")?;
    literal(store, new, to)?;
    literal(store, old, to)
}

fn literal(store: &Store, oid: Option<Oid>, to: &mut dyn Write) -> Result<()> {
    let size = oid.map_or(Ok(0), |oid| store.blob_size(oid))?;
    put(to, format!("literal {size}\n").as_bytes())?;
    let mut deflated = ZlibEncoder::new(Lines::new(to), Compression::default());
    if let Some(oid) = oid {
        store.copy_blob(oid, &mut deflated)?;
    }
    deflated.finish().and_then(Lines::finish).map_err(nowhere)
}

fn put(to: &mut dyn Write, bytes: &[u8]) -> Result<()> {
    to.write_all(bytes).map_err(nowhere)
}

/// Where it was written to is the caller's to say.
fn nowhere(source: io::Error) -> Error {
    Error::Io {
        path: Default::default(),
        source,
    }
}

/// Cuts bytes into lines: a letter for how many, then their digits.
struct Lines<'a> {
    to: &'a mut dyn Write,
    line: Vec<u8>,
}

impl<'a> Lines<'a> {
    fn new(to: &'a mut dyn Write) -> Self {
        Self {
            to,
            line: Vec::with_capacity(LINE_BYTES),
        }
    }

    fn end_line(&mut self) -> io::Result<()> {
        let length = self.line.len() as u8;
        let mut text = Vec::with_capacity(2 + LINE_BYTES / 4 * 5);
        text.push(if length <= 26 {
            b'A' + length - 1
        } else {
            b'a' + length - 27
        });
        for group in self.line.chunks(4) {
            let mut bytes = [0; 4];
            bytes[..group.len()].copy_from_slice(group);
            let mut value = u32::from_be_bytes(bytes) as usize;
            let mut digits = [0; 5];
            for digit in digits.iter_mut().rev() {
                *digit = DIGITS[value % 85];
                value /= 85;
            }
            text.extend_from_slice(&digits);
        }
        text.push(b'\n');
        self.line.clear();
        self.to.write_all(&text)
    }

    fn finish(mut self) -> io::Result<()> {
        if !self.line.is_empty() {
            self.end_line()?;
        }
        self.to.write_all(b"\n")
    }
}

impl Write for Lines<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(LINE_BYTES - self.line.len());
        self.line.extend_from_slice(&bytes[..taken]);
        if self.line.len() == LINE_BYTES {
            self.end_line()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> String {
        let mut text = Vec::new();
        let mut lines = Lines::new(&mut text);
        lines.write_all(bytes).unwrap();
        lines.finish().unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn lines_are_those_of_git() {
        // What git writes for a side that is empty.
        assert_eq!(lines(&[0x78, 1, 3, 0, 0, 0, 0, 1]), "HcmV?d00001\n\n");
        assert_eq!(lines(&[0xff; 4]), "D|NsC0\n\n");
        let long = lines(&[0; 53]);
        assert_eq!(long, format!("z{}\nA00000\n\n", "0".repeat(65)));
    }
}
