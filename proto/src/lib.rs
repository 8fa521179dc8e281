//! The wire between `stepback` and `stepbackd`.
//!
//! A connection carries one request. Each side sends frames: a `u32` big-endian length, at most
//! [`FRAME_BYTES_MAX`], then that many bytes of bincode (legacy configuration: little-endian, fixed-width
//! integers).
//!
//! ```text
//! client                      daemon
//!   Hello{magic, protocol} ->
//!                          <- Welcome{protocol, version, pid}
//!   Request{place, verb}   ->
//!                          <- Progress*  Item*  then  Done | Failed
//! ```
//!
//! `Hello` and `Welcome` never change their shape. Every other type is frozen for a given [`PROTOCOL`]: a change of any
//! of them, even a new enum variant in the middle, needs a new number. When the numbers differ the daemon still answers
//! `Welcome`, so that the client can say which side is older, and closes the connection.
//!
//! Guarantees: decoding never panics and never allocates more than the frame's own length asks for; a clean end between
//! frames ([`frame::read`] gives `None`) differs from a torn frame (an error).

pub mod frame;
pub mod message;
mod note;

pub use message::*;
pub use note::Note;

/// The number of this wire format. Both sides must have the same one to go on after the hello.
pub const PROTOCOL: u32 = 1;

/// First bytes of a [`Hello`]: a stray program that connects is recognised before anything of its is decoded further.
pub const MAGIC: [u8; 4] = *b"sbk\0";

/// The most bytes that one frame's body may have. Larger answers are cut into several items.
pub const FRAME_BYTES_MAX: usize = 1024 * 1024;

/// The most bytes of file contents, patch or archive that one [`Item::Bytes`] carries.
pub const CHUNK_BYTES_MAX: usize = 128 * 1024;
