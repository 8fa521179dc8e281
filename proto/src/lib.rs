//! The wire between `stepback` and `stepbackd`, for these two and for any other program that wants to ask the daemon.
//!
//! # Finding the daemon
//!
//! It listens at a Unix socket in a directory of mode 0700, and closes a connection of another user without a byte. Where:
//! `STEPBACK_SOCKET`, else what `daemon.json` in its state directory names (a [`Note`]), else
//! `$XDG_RUNTIME_DIR/stepback/stepbackd.sock`. A program of another language needs no more than this page, the message
//! types, and bincode's legacy encoding: integers little-endian with fixed width, lists and texts with a `u64` length, an
//! enum as the `u32` number of its variant from 0, an option as a byte 0 or 1, structs as their fields in order.
//!
//! # A connection
//!
//! It carries one request. Each side sends frames: a `u32` big-endian length, at most [`FRAME_BYTES_MAX`], then that many
//! bytes of bincode.
//!
//! ```text
//! client                      daemon
//!   Hello{magic, protocol} ->
//!                          <- Welcome{protocol, version, pid}
//!   Request{place, verb}   ->
//!                          <- Progress*  Item*  then  Done | Failed
//! ```
//!
//! Hello and request have to be there within 30 s; while many connections wait for theirs, the one that has been silent
//! for longest is closed before. 128 requests are served at once, further ones fail with [`FailureKind::Busy`], but for
//! [`Verb::Status`], [`Verb::Roots`] and [`Verb::Hook`], which have 32 places more, and [`Verb::Ping`] and
//! [`Verb::Shutdown`], which have 8 more than those. [`Verb::Watch`] has 64 places of its own. The daemon reads nothing
//! after the request: closing the connection gives the request up. What only reads, waits or scans ends then; an
//! operation that has begun to change files is brought to its end.
//!
//! Which items a verb answers with, and which [`Reply`] comes last, stands with each [`Verb`]. Items come as they are
//! found, large contents in pieces of at most [`CHUNK_BYTES_MAX`]; who reads slowly holds up nobody else. All paths in
//! requests are absolute, without `.` and `..`, but for [`Verb::Cat`]'s, which is relative to the root.
//!
//! ```no_run
//! use std::os::unix::net::UnixStream;
//! use stepback_proto::{Answer, Hello, MAGIC, PROTOCOL, Reply, Request, Verb, Welcome, frame};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut daemon = UnixStream::connect("/run/user/1000/stepback/stepbackd.sock")?;
//! frame::write(&mut daemon, &Hello { magic: MAGIC, protocol: PROTOCOL })?;
//! let welcome: Welcome = frame::read(&mut daemon)?.ok_or("it hung up")?;
//! assert_eq!(welcome.protocol, PROTOCOL, "one of the two is older");
//! let place = std::env::current_dir()?.into();
//! frame::write(&mut daemon, &Request { place, verb: Verb::Save { label: None, pin: false } })?;
//! while let Some(answer) = frame::read::<Answer>(&mut daemon)? {
//!     match answer {
//!         Answer::Progress(_) | Answer::Item(_) => {}
//!         Answer::Done(Reply::Saved { id, .. }) => println!("checkpoint {id}"),
//!         Answer::Done(other) => return Err(format!("{other:?}").into()),
//!         Answer::Failed(failure) => return Err(failure.message.into()),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `examples/am_i_protected.rs` is a whole program.
//!
//! # Versions
//!
//! `Hello` and `Welcome` never change their shape. Every other type is frozen for a given [`PROTOCOL`]: a change of any
//! of them, even a new enum variant in the middle, needs a new number. When the numbers differ the daemon still answers
//! `Welcome`, so that the client can say which side is older, and closes the connection.
//!
//! # Guarantees
//!
//! Decoding never panics and never allocates more than the frame's own length asks for; a clean end between frames
//! ([`frame::read`] gives `None`) differs from a torn frame (an error). `make fuzz` tries ten million hostile bodies.

pub mod frame;
pub mod message;
mod note;

pub use message::*;
pub use note::{Note, UNSAVED_DIR, Unsaved};

/// The number of this wire format. Both sides must have the same one to go on after the hello.
pub const PROTOCOL: u32 = 1;

/// First bytes of a [`Hello`]: a stray program that connects is recognised before anything of its is decoded further.
pub const MAGIC: [u8; 4] = *b"sbk\0";

/// The most bytes that one frame's body may have. Larger answers are cut into several items.
pub const FRAME_BYTES_MAX: usize = 1024 * 1024;

/// The most bytes of file contents, patch or archive that one [`Item::Bytes`] carries.
pub const CHUNK_BYTES_MAX: usize = 128 * 1024;
