//! What stands before the compressed bytes of an object in a pack (git's format, version 2).

use std::io::{self, Read};

use crate::oid::ObjectKind;

/// Objects begin behind the header of a pack.
pub const PACK_HEADER_BYTES: u64 = 12;

/// The header of an object in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryHeader {
    /// How it stands there.
    pub form: Form,
    /// So many bytes its compressed ones become.
    pub size: u64,
}

/// How an object stands in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As it is.
    Whole(ObjectKind),
    /// As the difference to what begins so many bytes before it.
    DeltaOfBefore(u64),
    /// As the difference to an object whose name follows, which git hardly ever writes.
    DeltaOfNamed,
}

impl EntryHeader {
    /// Reads one, and nothing behind it.
    ///
    /// # Errors
    /// Those of the reader, among them `UnexpectedEof`; `InvalidData` when it isn't one, or one of a kind that is never
    /// written here.
    pub fn read(from: &mut dyn Read) -> io::Result<Self> {
        let mut next = || {
            let mut byte = [0];
            from.read_exact(&mut byte).map(|()| byte[0])
        };
        let wrong = || io::Error::from(io::ErrorKind::InvalidData);
        // The kind in three bits, the size in the rest, seven bits a byte, the first with four.
        let first = next()?;
        let mut byte = first;
        let mut size = u64::from(byte & 0x0f);
        let mut shift = 4;
        while byte & 0x80 != 0 {
            byte = next()?;
            if shift > u64::BITS - 8 {
                return Err(wrong());
            }
            size |= u64::from(byte & 0x7f) << shift;
            shift += 7;
        }
        let form = match first >> 4 & 7 {
            1 => Form::Whole(ObjectKind::Commit),
            2 => Form::Whole(ObjectKind::Tree),
            3 => Form::Whole(ObjectKind::Blob),
            6 => {
                let mut byte = next()?;
                let mut distance = u64::from(byte & 0x7f);
                while byte & 0x80 != 0 {
                    byte = next()?;
                    if distance >= 1 << (u64::BITS - 8) {
                        return Err(wrong());
                    }
                    distance = (distance + 1) << 7 | u64::from(byte & 0x7f);
                }
                Form::DeltaOfBefore(distance)
            }
            7 => Form::DeltaOfNamed,
            _ => return Err(wrong()),
        };
        Ok(Self { form, size })
    }

    /// As it stands in a pack.
    pub fn bytes(&self) -> Vec<u8> {
        let kind = match self.form {
            Form::Whole(ObjectKind::Commit) => 1,
            Form::Whole(ObjectKind::Tree) => 2,
            Form::Whole(ObjectKind::Blob) => 3,
            Form::DeltaOfBefore(_) => 6,
            Form::DeltaOfNamed => 7,
        };
        let mut bytes = Vec::new();
        let mut byte = kind << 4 | low(self.size, 0x0f);
        let mut rest = self.size >> 4;
        while rest > 0 {
            bytes.push(byte | 0x80);
            byte = low(rest, 0x7f);
            rest >>= 7;
        }
        bytes.push(byte);
        if let Form::DeltaOfBefore(distance) = self.form {
            push_distance(distance, &mut bytes);
        }
        bytes
    }
}

/// Seven bits a byte, the last ones last; each byte before them stands for one more than it says.
fn push_distance(mut distance: u64, out: &mut Vec<u8>) {
    let mut digits = vec![low(distance, 0x7f)];
    distance >>= 7;
    while distance > 0 {
        distance -= 1;
        digits.push(low(distance, 0x7f) | 0x80);
        distance >>= 7;
    }
    out.extend(digits.iter().rev());
}

fn low(value: u64, bits: u64) -> u8 {
    u8::try_from(value & bits).expect("masked to a byte")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOB: Form = Form::Whole(ObjectKind::Blob);

    fn read(bytes: &[u8]) -> Result<EntryHeader, io::ErrorKind> {
        EntryHeader::read(&mut &*bytes).map_err(|error| error.kind())
    }

    #[test]
    fn what_is_written_is_read() {
        let forms = [
            BLOB,
            Form::Whole(ObjectKind::Tree),
            Form::Whole(ObjectKind::Commit),
            Form::DeltaOfNamed,
        ];
        let far = [1, 127, 128, 255, 16_511, 16_512, 1 << 40].map(Form::DeltaOfBefore);
        for form in forms.into_iter().chain(far) {
            for size in [0, 15, 16, 2_047, 2_048, (1 << 60) - 1] {
                let header = EntryHeader { form, size };
                let bytes = header.bytes();
                assert_eq!(read(&[&bytes[..], b"more"].concat()), Ok(header));
                for cut in 0..bytes.len() {
                    assert_eq!(
                        read(&bytes[..cut]),
                        Err(io::ErrorKind::UnexpectedEof),
                        "{header:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn as_git_writes_them() {
        let header = |form, size| EntryHeader { form, size };
        assert_eq!(
            read(&[0x9c, 0x12]),
            Ok(header(Form::Whole(ObjectKind::Commit), 300))
        );
        assert_eq!(read(&[0x65, 0x80, 0x00]), Ok(header(Form::DeltaOfBefore(128), 5)));
    }

    #[test]
    fn what_is_none_is_an_error() {
        let endless = [[0xbf; 20], [0xe0; 20]].map(|bytes| read(&bytes));
        let far = read(&[&[0x60][..], &[0xff; 20]].concat());
        // No kind, a tag, a kind that git keeps for later.
        let kinds = [0x00, 0x40, 0x50].map(|byte| read(&[byte]));
        for answer in endless.into_iter().chain([far]).chain(kinds) {
            assert_eq!(answer, Err(io::ErrorKind::InvalidData));
        }
    }
}
