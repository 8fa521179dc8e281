//! Long answers go through a pager on a terminal, as git does it.

use std::io::{self, IsTerminal, Write};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{SigSet, Signal};

use crate::environment::Environment;

/// Where a long answer is written: stdout, or the pager's stdin.
pub enum Sink {
    /// Straight out.
    Stdout(io::StdoutLock<'static>),
    /// Through the pager, which is waited for by [`Sink::finish`].
    Pager(Child),
}

impl Sink {
    /// Straight to stdout.
    pub fn plain() -> Self {
        Self::Stdout(io::stdout().lock())
    }

    /// A pager if stdout is a terminal, else stdout. The pager is `GIT_PAGER`, else `PAGER`, else `less`; `cat` or an
    /// empty value means none. One that can't be run means none, too.
    pub fn open(environment: &Environment) -> Self {
        let direct = Self::plain;
        if !io::stdout().is_terminal() {
            return direct();
        }
        let pager = match &environment.pager {
            Some(pager) => pager.clone(),
            None if environment.program("less").is_some() => "less".into(),
            None => return direct(),
        };
        if pager.is_empty() || pager == "cat" {
            return direct();
        }
        let mut command = Command::new("sh");
        command.arg("-c").arg(&pager).stdin(Stdio::piped());
        if !environment.less {
            command.env("LESS", "FRX");
        }
        if !environment.lv {
            command.env("LV", "-c");
        }
        if std::env::current_dir().is_err() {
            // The directory is gone; it can't be looked at all the same.
            command.current_dir("/");
        }
        // Ctrl-C is the pager's business: without us it would be left alone on the terminal.
        let mut interrupt = SigSet::empty();
        interrupt.add(Signal::SIGINT);
        match command.spawn() {
            Ok(child) => {
                // Only a wrong argument can fail here.
                let _ = interrupt.thread_block();
                Self::Pager(child)
            }
            Err(_) => direct(),
        }
    }

    /// Ends the answer and waits for the pager.
    ///
    /// # Errors
    /// When stdout can't be written.
    pub fn finish(mut self) -> io::Result<()> {
        match &mut self {
            Self::Stdout(out) => out.flush(),
            Self::Pager(child) => {
                drop(child.stdin.take());
                child.wait().map(drop)
            }
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(out) => out.write(bytes),
            Self::Pager(child) => match &mut child.stdin {
                Some(stdin) => stdin.write(bytes),
                None => Err(io::ErrorKind::BrokenPipe.into()),
            },
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(out) => out.flush(),
            Self::Pager(child) => child.stdin.as_mut().map_or(Ok(()), Write::flush),
        }
    }
}

impl Drop for Sink {
    /// An error on the way must not leave the pager on the terminal without us.
    fn drop(&mut self) {
        if let Self::Pager(child) = self {
            std::mem::drop(child.stdin.take());
            // Already waited for by `finish`, or there is nothing to be done about it.
            let _ = child.wait();
        }
    }
}
