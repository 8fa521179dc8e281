//! `run`: the command is as it would be without us.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stepback_tests::{Guarded, Project, Sandbox, eventually, finish, start};

fn code_of(project: &Project<'_>, script: &str) -> i32 {
    project.stepback(&["run", "--", "sh", "-c", script]).code()
}

#[test]
fn exit_codes_are_the_commands() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'not a program' > data");
    assert_eq!(code_of(&project, "exit 0"), 0);
    assert_eq!(code_of(&project, "exit 3"), 3);
    assert_eq!(code_of(&project, "exit 255"), 255);
    assert_eq!(code_of(&project, "kill -KILL $$"), 137);
    assert_eq!(code_of(&project, "kill -TERM $$"), 143);
    assert_eq!(project.stepback(&["run", "--", "./data"]).code(), 126);
    assert_eq!(
        project
            .stepback(&["run", "--", "no-such-program-anywhere"])
            .code(),
        127
    );
    assert_eq!(project.stepback(&["run", "--", "./no-such-file"]).code(), 127);
    // A file of that name in the current directory is no command: PATH decides.
    project.sh("printf '#!/bin/sh\n' > bare-name-only; chmod +x bare-name-only");
    assert_eq!(project.stepback(&["run", "--", "bare-name-only"]).code(), 127);
    assert_eq!(project.stepback(&["run", "--", "./bare-name-only"]).code(), 0);
}

#[test]
fn output_is_the_commands_and_the_summary_goes_to_stderr() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\n' > a; printf 'gone\n' > gone");
    let said = project
        .stepback(&[
            "run",
            "--name",
            "work",
            "--",
            "sh",
            "-c",
            "echo out; echo err >&2; echo v2 > a; rm gone; echo n > new",
        ])
        .exits(0);
    assert_eq!(said.text(), "out\n");
    assert!(said.stderr.contains("err\n"), "{said:#?}");
    for word in ["a", "gone", "new"] {
        assert!(
            said.stderr.contains(word),
            "the summary names {word}: {}",
            said.stderr
        );
    }
}

#[test]
fn start_and_end_are_checkpoints_of_a_session_and_the_root_is_attached() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\n' > a");
    let before = project.tree();
    project
        .stepback(&["run", "--name", "work", "--", "sh", "-c", "echo v2 > a; exit 5"])
        .exits(5);
    let of_session = project.json(&["list", "--session", "work"])["checkpoints"].clone();
    let triggers: Vec<_> = of_session
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["trigger"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(triggers.first().map(String::as_str), Some("session-end"));
    assert_eq!(triggers.last().map(String::as_str), Some("session-start"));
    assert_eq!(project.stepback(&["show", "latest:a"]).exits(0).text(), "v2\n");
    assert_eq!(
        project.status()["sessions"],
        serde_json::json!([]),
        "the session ended with its command"
    );
    let line = project.json(&["session", "show", "work"]);
    assert!(line["command"].as_str().unwrap().starts_with("sh -c"), "{line}");
    project.json(&["rewind", "session:work", "-y"]);
    before.same(&project.tree(), "after rewind to the session's start");
}

#[test]
fn many_at_once_in_a_new_directory_share_one_root() {
    let sandbox = Sandbox::new();
    let _daemon = sandbox.daemon();
    for verb in ["run", "attach"] {
        let project = sandbox.project(verb);
        project.sh("mkdir -p one two; for i in $(seq 300); do echo $i > one/$i; done; git init -q");
        let args: &[&str] = match verb {
            "run" => &["run", "--", "sh", "-c", "exit 7"],
            _ => &["attach"],
        };
        let code = if verb == "run" { 7 } else { 0 };
        std::thread::scope(|scope| {
            for i in 0..8 {
                // Both mean the top level.
                let place = project.file(["one", "two"][i % 2]);
                let sandbox = &sandbox;
                scope.spawn(move || {
                    let said = sandbox.stepback(&place, args).exits(code);
                    assert!(!said.stderr.contains("warning"), "{said:#?}");
                });
            }
        });
        let roots = project.json(&["roots"]);
        let here: Vec<_> = roots
            .as_array()
            .unwrap()
            .iter()
            .filter(|root| root["path"] == project.path.to_str().unwrap())
            .collect();
        assert_eq!(here.len(), 1, "{roots:#}");
        if verb == "run" {
            let sessions = project.json(&["session", "list"]);
            assert_eq!(sessions.as_array().unwrap().len(), 8, "{sessions:#}");
        }
        let stores = std::fs::read_dir(sandbox.state().join("stores")).unwrap();
        let of_this = stores.filter(|store| {
            let name = store.as_ref().unwrap().file_name();
            name.to_string_lossy().starts_with(verb)
        });
        assert_eq!(of_this.count(), 1);
        assert_eq!(
            project
                .store_git("for-each-ref refs/stepback")
                .matches("/root")
                .count(),
            1
        );
    }
}

#[test]
fn standard_input_environment_and_directory_are_the_commands() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("mkdir sub");
    let mut command = sandbox.command(sandbox.program("stepback"), &project.file("sub"));
    command
        .args(["run", "--", "sh", "-c", "cat; pwd; echo $MARK"])
        .env("MARK", "here");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"from stdin\n").unwrap();
    let said = finish(child, "run", Duration::from_secs(60)).exits(0);
    assert_eq!(
        said.text(),
        format!("from stdin\n{}\nhere\n", project.file("sub").display())
    );
}

#[test]
fn without_a_daemon_there_is_a_warning_and_the_command_runs() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let env = [("STEPBACKD", "/nonexistent/stepbackd")];
    let said = project
        .stepback_env(&["run", "--", "sh", "-c", "echo ran; exit 4"], &env)
        .exits(4);
    assert_eq!(said.text(), "ran\n");
    assert!(said.stderr.contains("stepback: "), "{said:#?}");
}

#[test]
fn a_refused_root_is_a_warning_and_the_command_runs() {
    let sandbox = Sandbox::new();
    let home = sandbox.home();
    let said = sandbox
        .stepback(&home, &["run", "--", "sh", "-c", "echo ran; exit 6"])
        .exits(6);
    assert_eq!(said.text(), "ran\n");
    assert!(said.stderr.contains("stepback: "), "{said:#?}");
}

#[test]
fn term_is_passed_on_and_the_end_is_still_captured() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    for (signal, name) in [(Signal::SIGTERM, "TERM"), (Signal::SIGHUP, "HUP")] {
        let script = format!(
            "trap 'echo got {name} > got-{name}; exit 9' {name}; : > ready-{name}; while :; do sleep 0.05; done"
        );
        let mut command = sandbox.command(sandbox.program("stepback"), &project.path);
        command.args(["run", "--", "sh", "-c", &script]);
        let child = start(&mut command);
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let ready = project.file(&format!("ready-{name}"));
        let child = Guarded::new(child);
        eventually("the command runs", Duration::from_secs(30), || ready.exists());
        let child = child.release();
        kill(pid, signal).unwrap();
        finish(child, "run", Duration::from_secs(60)).exits(9);
        assert_eq!(
            project
                .stepback(&["show", &format!("latest:got-{name}")])
                .exits(0)
                .text(),
            format!("got {name}\n")
        );
        assert_eq!(project.list()[0]["trigger"], "session-end");
    }
}

#[test]
fn a_killed_run_ends_its_session() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    let mut command = sandbox.command(sandbox.program("stepback"), &project.path);
    // The command itself ends as soon as its parent is gone.
    let script = ": > ready; while kill -0 $PPID 2>/dev/null; do sleep 0.05; done";
    command.args(["run", "--name", "doomed", "--", "sh", "-c", script]);
    let child = Guarded::new(start(&mut command));
    eventually("the command runs", Duration::from_secs(30), || {
        project.file("ready").exists()
    });
    assert_eq!(project.status()["session"], "doomed");
    drop(child);
    eventually("the session ends by itself", Duration::from_secs(60), || {
        project.status()["sessions"] == serde_json::json!([])
    });
}

/// A terminal with a program on it.
struct Terminal {
    master: File,
    child: std::process::Child,
    said: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn run(project: &Project<'_>, args: &[&str]) -> Self {
        let pty = openpty(None, None).unwrap();
        let copy = |fd: &OwnedFd| Stdio::from(fd.try_clone().unwrap());
        // `setsid --ctty` makes the terminal the controlling one, as a terminal program does.
        let mut command = project.sandbox.command("setsid", &project.path);
        command
            .args(["--ctty", "--wait"])
            .arg(project.sandbox.program("stepback"))
            .args(args);
        command
            .stdin(copy(&pty.slave))
            .stdout(copy(&pty.slave))
            .stderr(copy(&pty.slave));
        let child = command.spawn().unwrap();
        drop(command);
        drop(pty.slave);
        let master = File::from(pty.master);
        let said = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, into) = (master.try_clone().unwrap(), Arc::clone(&said));
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The end of a terminal is an error (EIO) on Linux.
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                into.lock().unwrap().extend_from_slice(&buffer[..n]);
            }
        });
        Self { master, child, said }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.said.lock().unwrap()).into_owned()
    }

    fn wait_for(&self, word: &str) {
        eventually(
            &format!("{word:?} on the terminal"),
            Duration::from_secs(60),
            || self.text().contains(word),
        );
    }

    fn types(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    fn code(&mut self) -> i32 {
        let mut code = None;
        eventually("the terminal's program ends", Duration::from_secs(60), || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        use std::os::unix::process::ExitStatusExt;
        let status = code.unwrap();
        status.code().unwrap_or_else(|| 128 + status.signal().unwrap())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

#[test]
fn ctrl_c_reaches_a_command_that_handles_it() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    let script =
        "trap 'n=$((n+1)); echo got-$n; [ $n -lt 2 ] || { echo late > late; exit 7; }' INT; n=0; echo ready
                  while :; do sleep 0.05; done";
    let mut terminal = Terminal::run(&project, &["run", "--", "sh", "-c", script]);
    terminal.wait_for("ready");
    terminal.types("\x03");
    terminal.wait_for("got-1");
    terminal.types("\x03");
    terminal.wait_for("got-2");
    assert_eq!(terminal.code(), 7, "{}", terminal.text());
    assert_eq!(
        project.stepback(&["show", "latest:late"]).exits(0).text(),
        "late\n"
    );
}

#[test]
fn after_ctrl_c_the_same_signal_to_run_alone_still_reaches_the_command() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    let script = "trap 'n=$((n+1)); echo got-$n' INT; trap 'echo then' USR2; trap 'exit $n' TERM; n=0; echo run-is-$PPID.
                  while :; do sleep 0.05; done";
    let mut terminal = Terminal::run(&project, &["run", "--", "sh", "-c", script]);
    terminal.wait_for(".");
    let text = terminal.text();
    let run = text
        .split("run-is-")
        .nth(1)
        .and_then(|rest| rest.split('.').next());
    let run = Pid::from_raw(run.unwrap().parse().unwrap());
    terminal.types("\x03");
    terminal.wait_for("got-1");
    // It has the higher number: by now the first is taken.
    kill(run, Signal::SIGUSR2).unwrap();
    terminal.wait_for("then");
    kill(run, Signal::SIGINT).unwrap();
    terminal.wait_for("got-2");
    kill(run, Signal::SIGTERM).unwrap();
    assert_eq!(terminal.code(), 2, "{}", terminal.text());
}

#[test]
fn ctrl_c_ends_a_command_that_does_not_handle_it() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    let mut terminal = Terminal::run(
        &project,
        &["run", "--", "sh", "-c", "echo ready; exec sleep 1000"],
    );
    terminal.wait_for("ready");
    terminal.types("\x03");
    assert_eq!(terminal.code(), 130, "{}", terminal.text());
    assert_eq!(project.list()[0]["trigger"], "session-end");
}

#[test]
fn the_command_is_on_the_terminal() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    let script = "test -t 0 && test -t 1 && test -t 2 && read -r word && echo \"read:$word\"";
    let mut terminal = Terminal::run(&project, &["run", "--", "sh", "-c", script]);
    terminal.types("hello\n");
    terminal.wait_for("read:hello");
    assert_eq!(terminal.code(), 0, "{}", terminal.text());
}

#[test]
fn a_no_at_the_question_changes_nothing_and_a_yes_does_it() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    project.write("a", "v2\n");
    project.save();
    let (tree, ids) = (project.tree(), project.ids());
    let mut terminal = Terminal::run(&project, &["rewind", "first"]);
    terminal.wait_for("?");
    terminal.types("n\n");
    assert_eq!(terminal.code(), 1, "{}", terminal.text());
    tree.same(&project.tree(), "after a no");
    assert_eq!(project.ids(), ids);
    let mut terminal = Terminal::run(&project, &["rewind", "first"]);
    terminal.wait_for("?");
    terminal.types("y\n");
    assert_eq!(terminal.code(), 0, "{}", terminal.text());
    assert_eq!(project.read("a"), b"v1\n");
}

#[test]
fn a_plan_that_changed_before_the_yes_is_asked_about_again() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    project.write("a", "v2\n");
    project.save();
    let mut terminal = Terminal::run(&project, &["rewind", "first"]);
    terminal.wait_for("[y/N]");
    let first = terminal.text();
    assert!(
        first.contains(": 1 file changed, 0 removed, 0 created") && first.contains(": 1 changed, 0 removed"),
        "{first}"
    );
    project.sh("rm a; mkdir a; printf 'new\n' > a/b");
    terminal.types("y\n");
    terminal.wait_for("The new plan:");
    eventually("a second question", Duration::from_secs(60), || {
        terminal.text().matches("[y/N]").count() == 2
    });
    assert_eq!(project.read("a/b"), b"new\n", "nothing is done yet");
    terminal.types("y\n");
    assert_eq!(terminal.code(), 0, "{}", terminal.text());
    assert_eq!(project.read("a"), b"v1\n");
}
