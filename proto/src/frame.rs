//! Frames: a length, then bincode. The only file of the project that names the codec.

use std::io::{self, Read, Write};

use serde::{Serialize, de::DeserializeOwned};

use crate::FRAME_BYTES_MAX;

/// Why a frame couldn't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The transport failed, or ended within a frame (`UnexpectedEof`).
    #[error("connection: {0}")]
    Io(#[from] io::Error),
    /// The length prefix asks for more than [`FRAME_BYTES_MAX`].
    #[error("a frame of {0} bytes is larger than the {FRAME_BYTES_MAX} allowed")]
    TooLarge(usize),
    /// The bytes aren't the message that is due here.
    #[error("a frame that isn't a message of this protocol: {0}")]
    Malformed(String),
}

const fn config() -> impl bincode::config::Config {
    bincode::config::legacy().with_limit::<FRAME_BYTES_MAX>()
}

/// The bytes of `message`, without the length prefix.
///
/// # Errors
/// [`FrameError::TooLarge`] when the message doesn't fit a frame.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let bytes = bincode::serde::encode_to_vec(message, bincode::config::legacy())
        .map_err(|e| FrameError::Malformed(e.to_string()))?;
    if bytes.len() > FRAME_BYTES_MAX {
        return Err(FrameError::TooLarge(bytes.len()));
    }
    Ok(bytes)
}

/// The message that `body` (a frame without its length prefix) holds.
///
/// # Errors
/// [`FrameError::Malformed`] when the bytes aren't a `T`, or when some are left over.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    let (message, used) = bincode::serde::decode_from_slice(body, config())
        .map_err(|e| FrameError::Malformed(e.to_string()))?;
    if used != body.len() {
        return Err(FrameError::Malformed(format!(
            "{} bytes left over",
            body.len() - used
        )));
    }
    Ok(message)
}

/// Writes one frame, blocking.
///
/// # Errors
/// As [`encode`], and whatever the transport reports.
pub fn write<T: Serialize>(to: &mut impl Write, message: &T) -> Result<(), FrameError> {
    let body = encode(message)?;
    let length = u32::try_from(body.len()).map_err(|_| FrameError::TooLarge(body.len()))?;
    let mut frame = Vec::with_capacity(4 + body.len());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&body);
    to.write_all(&frame)?;
    to.flush()?;
    Ok(())
}

/// Reads one frame, blocking; `None` when the other side closed cleanly between two frames.
///
/// # Errors
/// [`FrameError::TooLarge`] before anything is allocated for it; `UnexpectedEof` for a torn frame; as [`decode`].
pub fn read<T: DeserializeOwned>(from: &mut impl Read) -> Result<Option<T>, FrameError> {
    let mut prefix = [0u8; 4];
    let mut have = 0;
    while have < prefix.len() {
        match from.read(&mut prefix[have..]) {
            Ok(0) if have == 0 => return Ok(None),
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(n) => have += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.into()),
        }
    }
    let length = u32::from_be_bytes(prefix) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(FrameError::TooLarge(length));
    }
    let mut body = vec![0u8; length];
    from.read_exact(&mut body)?;
    decode(&body).map(Some)
}

/// The same framing for tokio: the daemon's side.
#[cfg(feature = "tokio")]
#[must_use]
pub fn codec() -> tokio_util::codec::LengthDelimitedCodec {
    tokio_util::codec::LengthDelimitedCodec::builder()
        .length_field_length(4)
        .max_frame_length(FRAME_BYTES_MAX)
        .new_codec()
}
