//! Running a process to its end, with a deadline.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait::eventually_some;

/// How long a program may be held open by those who forked while it was written.
const FREED: Duration = Duration::from_secs(10);

/// What a process said and how it ended.
#[derive(Debug, Clone)]
pub struct Finished {
    /// The command line, for messages.
    pub command: String,
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error, as text.
    pub stderr: String,
}

impl Finished {
    /// Its exit code; 128 plus the signal's number when a signal ended it, as a shell says it.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Its standard output as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Its standard output as JSON.
    #[track_caller]
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|e| panic!("not JSON ({e}): {self:#?}"))
    }

    /// Asserts that it ended with `code`.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(
            self.code(),
            code,
            "exit code of `{}`\nstdout: {}\nstderr: {}",
            self.command,
            self.text(),
            self.stderr
        );
        self
    }
}

/// A child that is killed, by its id, and waited for when it is dropped: also when a test fails before its end.
#[derive(Debug)]
pub struct Guarded(Option<Child>);

impl Guarded {
    /// Guards `child`.
    #[must_use]
    pub const fn new(child: Child) -> Self {
        Self(Some(child))
    }

    /// The child.
    pub fn child(&mut self) -> &mut Child {
        self.0.as_mut().expect("not released")
    }

    /// Gives the child back, unguarded.
    #[must_use]
    pub fn release(mut self) -> Child {
        self.0.take().expect("not released")
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // It may have ended already: then the wait says so at once.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Starts a process without standard input whose output is collected.
///
/// # Panics
/// When it can't be started, or is busy for longer than 10 seconds.
#[track_caller]
pub fn start(command: &mut Command) -> Child {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // A program that a test has just written is still open for writing in the children that other threads fork
    // meanwhile, up to their exec: it can't be executed before (ETXTBSY).
    eventually_some("a program that can be executed", FREED, || {
        match command.spawn() {
            Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy => None,
            started => Some(started.unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"))),
        }
    })
}

/// Waits for a child and for the end of its output.
///
/// # Panics
/// When that takes longer than `deadline`; then the child is killed. Something that the child has started and that
/// keeps its output open counts, too.
#[track_caller]
pub fn finish(child: Child, command: &str, deadline: Duration) -> Finished {
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id is an i32"));
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        // The receiver is gone when the deadline has passed: nobody wants the answer then.
        drop(send.send(child.wait_with_output()));
    });
    match receive.recv_timeout(deadline) {
        Ok(output) => {
            let output = output.unwrap_or_else(|e| panic!("waiting for `{command}`: {e}"));
            Finished {
                command: command.to_owned(),
                status: output.status,
                stdout: output.stdout,
                stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            }
        }
        Err(_) => {
            let killed = kill(pid, Signal::SIGKILL);
            panic!(
                "`{command}` did not end, or its output stayed open, within {deadline:?} (kill: {killed:?})"
            )
        }
    }
}
