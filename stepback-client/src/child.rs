//! A child's process before it becomes the program that it is for.
//!
//! `run` blocks signals before it spawns its command, so that none is lost or kills it in between, and a child inherits
//! what is blocked. So the child starts as this program again, lets those signals through, and then becomes the other.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::{SigSet, Signal};

use crate::render::path::{one_line, without_numbers};

/// First argument of such a process. Not for people.
const WORD: &str = "--become-command";

const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// What to spawn for the program and arguments in `words`; it will let `blocked` through.
///
/// # Errors
/// When this program's own file can't be named.
pub fn command(words: &[OsString], blocked: &SigSet) -> io::Result<Command> {
    // On Linux this name holds although the file may have been replaced meanwhile.
    let own = if cfg!(target_os = "linux") {
        "/proc/self/exe".into()
    } else {
        std::env::current_exe()?
    };
    let numbers: Vec<String> = blocked.iter().map(|signal| (signal as i32).to_string()).collect();
    let mut command = Command::new(own);
    command
        .arg0("stepback")
        .arg(WORD)
        .arg(numbers.join(","))
        .args(words);
    Ok(command)
}

/// Becomes the command, if these are the arguments of a process made by [`command`]. Returns the exit code only when
/// the command can't be executed, after saying why.
pub fn become_command(args: &[OsString]) -> Option<u8> {
    let [_, word, blocked, words @ ..] = args else {
        return None;
    };
    if word != WORD || words.is_empty() {
        return None;
    }
    let signals = blocked.to_string_lossy();
    let set: SigSet = signals
        .split(',')
        .filter_map(|n| n.parse::<i32>().ok())
        .filter_map(|n| Signal::try_from(n).ok())
        .collect();
    let error = match set.thread_unblock() {
        Ok(()) => exec(words),
        Err(e) => e.into(),
    };
    Some(not_executed(&words[0], &error))
}

/// Executes the command; only returns when that fails.
fn exec(words: &[OsString]) -> io::Error {
    let error = Command::new(&words[0]).args(&words[1..]).exec();
    if error.raw_os_error() == Some(nix::libc::ENOEXEC) {
        // A script without `#!`: shells run it, so we do.
        return Command::new("/bin/sh").args(words).exec();
    }
    error
}

/// Says why the command can't be executed; the exit code that shells have for it.
fn not_executed(name: &OsStr, error: &io::Error) -> u8 {
    // A bare name is looked for in PATH alone, whatever stands in the current directory.
    let is_bare = !name.as_bytes().contains(&b'/');
    let (code, why) = match error.kind() {
        ErrorKind::NotFound if is_bare || !Path::new(name).exists() => {
            (NOT_FOUND, "command not found".into())
        }
        _ => (NOT_EXECUTABLE, without_numbers(&error.to_string())),
    };
    let line = format!("stepback: {}: {why}\n", one_line(&name.to_string_lossy()));
    // The exit code tells, too.
    let _ = io::stderr().write_all(line.as_bytes());
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_of_people_are_left_alone() {
        let args = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(become_command(&args("stepback run -- true")), None);
        assert_eq!(become_command(&args("stepback --become-command 2")), None);
        assert_eq!(become_command(&args("stepback")), None);
    }

    #[test]
    fn the_command_and_the_signals_are_handed_on() {
        let blocked: SigSet = [Signal::SIGINT, Signal::SIGTERM].into_iter().collect();
        let command = command(&["a b".into(), "-c".into()], &blocked).unwrap();
        assert_eq!(
            command.get_args().collect::<Vec<_>>(),
            [WORD, "2,15", "a b", "-c"]
        );
    }
}
