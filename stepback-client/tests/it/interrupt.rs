//! Ctrl-C once the daemon has its order.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stepback_proto::{Hello, PROTOCOL, Request, Verb, Welcome, frame};

use crate::stepback;

#[test]
fn an_interrupted_rewind_says_that_it_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
    let socket = dir.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    let child = stepback(&["rewind", "1", "-y"])
        .env("STEPBACK_SOCKET", &socket)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let _: Hello = frame::read(&mut stream).unwrap().unwrap();
    let welcome = Welcome {
        protocol: PROTOCOL,
        version: "1".into(),
        pid: 1,
    };
    frame::write(&mut stream, &welcome).unwrap();
    let request: Request = frame::read(&mut stream).unwrap().unwrap();
    assert!(matches!(request.verb, Verb::Rewind { .. }));
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "stepback: the rewind goes on in the daemon; `stepback status` shows it, `stepback redo` takes it back\n"
    );
}
