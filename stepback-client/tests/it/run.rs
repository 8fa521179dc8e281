//! `run` leaves the command as it would be without it: exit code, signals, stops.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::{said, stepback};

/// Starts a shell script under `run` and waits for its first line.
fn begin(script: &str) -> (Child, BufReader<std::process::ChildStdout>, Pid) {
    let mut child = stepback(&["run", "--", "sh", "-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    assert_eq!(line(&mut lines), "ready\n");
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    (child, lines, pid)
}

fn line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line
}

#[test]
fn without_a_daemon_there_is_one_warning_and_the_command_runs() {
    let (out, err, code) = said(&mut stepback(&["run", "--", "sh", "-c", "echo ran; exit 4"]));
    assert_eq!((out.as_str(), code), ("ran\n", 4));
    assert!(
        err.starts_with("stepback: warning: ") && err.lines().count() == 1,
        "{err}"
    );
}

#[test]
fn exit_codes_are_those_of_a_shell() {
    let code = |words: &[&str]| said(&mut stepback(&[&["run", "--"], words].concat())).2;
    assert_eq!(code(&["true"]), 0);
    assert_eq!(code(&["sh", "-c", "exit 255"]), 255);
    assert_eq!(code(&["sh", "-c", "kill -KILL $$"]), 137);
    assert_eq!(code(&["sh", "-c", "kill -SEGV $$"]), 139);
    assert_eq!(code(&["/dev"]), 126);
    assert_eq!(code(&["stepback-no-such-program"]), 127);
}

#[test]
fn the_words_of_the_command_are_its_own() {
    let words = ["run", "--", "printf", "%s\n", "--json", "-C", "", "--", "run"];
    assert_eq!(said(&mut stepback(&words)).0, "--json\n-C\n\n--\nrun\n");
}

#[test]
fn signals_to_run_reach_the_command_once() {
    for signal in [
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGINT,
    ] {
        let name = &signal.as_str()[3..];
        let script = format!(
            "trap 'n=$((n+1)); echo got $n' {name}; trap 'exit $n' CONT; n=0; echo ready
                              while :; do sleep 0.02; done"
        );
        let (mut child, mut lines, pid) = begin(&script);
        kill(pid, signal).unwrap();
        assert_eq!(line(&mut lines), "got 1\n", "{name}");
        kill(pid, Signal::SIGCONT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1), "{name}");
    }
}

#[test]
fn signals_to_the_whole_group_reach_the_command_once() {
    if !cfg!(target_os = "linux") || Command::new("perl").arg("-v").output().is_err() {
        println!("skipped: needs Linux and perl, which answers each signal at once");
        return;
    }
    let script = "$SIG{$_} = sub { $n++; syswrite STDOUT, \"$_[0] $n\\n\" } for qw(TERM HUP USR1); \
                  $SIG{USR2} = sub { exit $n }; syswrite STDOUT, \"ready\\n\"; select undef, undef, undef, 1 while 1";
    let mut child = stepback(&["run", "--", "perl", "-e", script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    assert_eq!(line(&mut lines), "ready\n");
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    // Alone and to the group in turn: each comes once, and none is lost.
    for n in 0..5 {
        killpg(pid, Signal::SIGTERM).unwrap();
        assert_eq!(line(&mut lines), format!("TERM {}\n", 3 * n + 1));
        kill(pid, Signal::SIGHUP).unwrap();
        assert_eq!(line(&mut lines), format!("HUP {}\n", 3 * n + 2));
        killpg(pid, Signal::SIGUSR1).unwrap();
        assert_eq!(line(&mut lines), format!("USR1 {}\n", 3 * n + 3));
        // Whatever is on its way twice has come before this one.
        kill(pid, Signal::SIGCONT).unwrap();
    }
    kill(pid, Signal::SIGUSR2).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(15));
}

#[test]
fn a_signal_that_kills_the_command_is_the_exit_code() {
    let (mut child, _lines, pid) = begin("echo ready; exec sleep 1000");
    kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn run_stops_with_the_command_and_wakes_it() {
    let (mut child, mut lines, pid) = begin("echo ready; kill -STOP $$; echo awake; exit 5");
    assert_eq!(
        waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap(),
        WaitStatus::Stopped(pid, Signal::SIGSTOP)
    );
    kill(pid, Signal::SIGCONT).unwrap();
    assert_eq!(line(&mut lines), "awake\n");
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn no_signal_is_blocked_in_the_command() {
    let (out, _, _) = said(&mut stepback(&[
        "run",
        "--",
        "grep",
        "SigBlk",
        "/proc/self/status",
    ]));
    if cfg!(target_os = "linux") {
        assert_eq!(out, "SigBlk:\t0000000000000000\n");
    }
}
