//! `stepbackd --daemonize`: goes to the background before any thread exists; the command returns when the daemon
//! answers, and with 0 only then.

use std::fs::File;
use std::io::{Read, Write};

use daemonize::{Daemonize, Outcome};
use nix::fcntl::OFlag;
use nix::unistd::pipe2;

use crate::error::{At, Error, Result};

/// How the background process tells the command that waits for it how its start went. Dropped without a word, it has
/// failed.
#[derive(Debug)]
pub struct Herald(Option<File>);

/// The first byte is the exit code of the command that waits; words for the user follow.
const READY: u8 = 0;

impl Herald {
    /// Nobody waits.
    pub const fn none() -> Self {
        Self(None)
    }

    /// The daemon answers.
    pub fn ready(&mut self) {
        self.tell(READY, "");
    }

    /// The exit code of the command that waits, and the words for the user.
    pub fn tell(&mut self, code: u8, words: &str) {
        if let Some(mut pipe) = self.0.take() {
            // The waiting command may have been killed; the daemon goes on.
            let _ = pipe.write_all(&[&[code], words.as_bytes()].concat());
        }
    }
}

/// Which of the two processes this is.
pub enum Side {
    /// The background process goes on from here.
    Daemon(Herald),
    /// The command: what it exits with (0: the daemon answers), and what it says.
    Command(u8, String),
}

/// Splits off a background process: its own session, `/`, umask 077, nothing on its standard streams.
///
/// # Errors
/// When the system has no process or pipe to give.
pub fn split() -> Result<Side> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC).at("pipe")?;
    match Daemonize::new().umask(0o077).execute() {
        Outcome::Child(Ok(_)) => {
            drop(read);
            Ok(Side::Daemon(Herald(Some(File::from(write)))))
        }
        Outcome::Parent(Ok(_)) => {
            drop(write);
            let mut words = Vec::new();
            File::from(read).read_to_end(&mut words).at("pipe")?;
            Ok(match words.split_first() {
                Some((code, words)) => Side::Command(*code, String::from_utf8_lossy(words).into_owned()),
                None => Side::Command(1, "stepbackd: ended before it answered\n".into()),
            })
        }
        Outcome::Child(Err(e)) | Outcome::Parent(Err(e)) => Err(Error::refused(
            format!("stepbackd can't go to the background: {e}"),
            "run it with --foreground",
        )),
    }
}
