//! The daemon's socket by hand, for what the client would never send.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use stepback_proto::frame;
use stepback_proto::{Answer, Failure, Hello, MAGIC, PROTOCOL, Request, Verb, Welcome, WirePath};

/// No answer takes longer, unless something hangs.
const ANSWER_DEADLINE: Duration = Duration::from_secs(60);

/// A raw connection.
#[derive(Debug)]
pub struct Wire(UnixStream);

impl Wire {
    /// Connects.
    ///
    /// # Errors
    /// As `connect(2)`.
    pub fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER_DEADLINE))?;
        Ok(Self(stream))
    }

    /// Sends bytes as they are; a peer that has closed is fine.
    pub fn send(&mut self, bytes: &[u8]) {
        drop(self.0.write_all(bytes));
    }

    /// Says hello and takes the welcome.
    ///
    /// # Panics
    /// When none comes.
    #[must_use]
    pub fn introduced(mut self) -> Self {
        let hello = Hello {
            magic: MAGIC,
            protocol: PROTOCOL,
        };
        frame::write(&mut self.0, &hello).expect("the daemon listens");
        let _: Welcome = frame::read(&mut self.0).expect("a frame").expect("a welcome");
        self
    }

    /// Everything that comes until the other side closes; how it closes doesn't matter.
    #[must_use]
    pub fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        drop(self.0.read_to_end(&mut bytes));
        bytes
    }

    /// The last frame of the answer to one request.
    ///
    /// # Panics
    /// When the answer isn't one.
    #[track_caller]
    #[must_use]
    pub fn ask(mut self, place: &[u8], verb: Verb) -> Answer {
        let place = WirePath(place.to_vec());
        frame::write(&mut self.0, &Request { place, verb }).expect("the daemon listens");
        let mut last = None;
        while let Some(answer) = frame::read(&mut self.0).expect("a frame") {
            last = Some(answer);
        }
        last.expect("an answer")
    }

    /// The failure that a request ends with.
    ///
    /// # Panics
    /// When it ends well.
    #[track_caller]
    #[must_use]
    pub fn failure(self, place: &[u8], verb: Verb) -> Failure {
        match self.ask(place, verb) {
            Answer::Failed(failure) => failure,
            other => panic!("{other:?}"),
        }
    }
}
