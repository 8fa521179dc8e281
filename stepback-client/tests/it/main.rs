//! The client as a process, without a daemon: what it promises when there is none to be had.
#![allow(clippy::unwrap_used, reason = "a test may end by it")]

mod interrupt;
mod line;
mod run;

use std::process::Command;

/// The client in an environment of its own, where no daemon runs and none may be started.
///
/// It starts with the signals as a shell's foreground job has them, also where the tests themselves run in the background
/// with interrupts ignored, which a program inherits and the client respects.
fn stepback(args: &[&str]) -> Command {
    let mut command = Command::new("env");
    if Command::new("env")
        .args(["--default-signal", "true"])
        .output()
        .is_ok_and(|o| o.status.success())
    {
        command.arg("--default-signal");
    }
    command.arg(env!("CARGO_BIN_EXE_stepback"));
    let nowhere = std::env::temp_dir().join("stepback-client-test-without-a-daemon");
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
        .env("HOME", "/")
        .env("STEPBACK_STATE_DIR", nowhere)
        .env("STEPBACK_NO_AUTOSTART", "1")
        .args(args);
    command
}

/// Standard output, standard error and the exit code.
fn said(command: &mut Command) -> (String, String, i32) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (
        text(&output.stdout),
        text(&output.stderr),
        output.status.code().unwrap(),
    )
}
