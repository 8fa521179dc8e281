//! The save that an agent waits for before a command that may destroy work: a daemon that is slow to answer, and one that
//! can't be asked at all.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use stepback_proto::{Answer, Failure, FailureKind, Hello, PROTOCOL, Reply, Request, Verb, Welcome, frame};
use stepback_tests::{Project, Sandbox, eventually, eventually_some, finish, pause};

use crate::hooks::{begin, call};

const DEADLINE: Duration = Duration::from_secs(30);

fn before(project: &Project<'_>, command: &str) -> String {
    json!({"session_id": "s", "cwd": project.path, "hook_event_name": "PreToolUse", "tool_name": "Bash",
           "tool_input": {"command": command}})
    .to_string()
}

fn gap(project: &Project<'_>) -> Value {
    eventually_some("a gap", DEADLINE, || {
        let gaps = project.status()["gaps"].as_array()?.clone();
        gaps.into_iter().find(|gap| {
            gap["reason"]
                .as_str()
                .unwrap()
                .contains("claude-code ran a command")
        })
    })
}

#[test]
fn a_daemon_that_is_slow_to_answer_is_waited_for() {
    let sandbox = Sandbox::new();
    sandbox.configure("settle_ms = 60000\nmax_wait_ms = 60000\n");
    let daemon = sandbox.daemon();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    project.write("precious", "KEEP\n");
    daemon.signal(Signal::SIGSTOP);
    let mut hook = begin(&project, &["claude-code"], &before(&project, "rm -rf precious"));
    // Much longer than a hook that only tells would stay.
    pause(Duration::from_millis(400));
    assert!(hook.try_wait().unwrap().is_none(), "the hook didn't wait");
    daemon.signal(Signal::SIGCONT);
    finish(hook, "hook", DEADLINE).exits(0);
    let saved = project.list()[0].clone();
    assert_eq!(saved["trigger"], "before-command");
    assert_eq!(project.show(saved["id"].as_u64().unwrap(), "precious"), b"KEEP\n");
    assert_eq!(project.status()["gaps"], json!([]));
}

#[test]
fn a_daemon_that_only_has_to_hear_is_not_waited_for() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.daemon();
    let project = sandbox.project("p");
    project.attach();
    daemon.signal(Signal::SIGSTOP);
    let began = Instant::now();
    call(&project, &["claude-code"], &before(&project, "git status"));
    let stop = json!({"session_id": "s", "cwd": project.path, "hook_event_name": "Stop"});
    call(&project, &["claude-code"], &stop.to_string());
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    daemon.signal(Signal::SIGCONT);
    assert_eq!(project.status()["gaps"], json!([]));
}

#[test]
fn what_no_daemon_could_be_told_is_shown_as_unprotected_later() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    project.stepback(&["daemon", "stop"]).exits(0);
    // Without one nobody waits, and nothing is noted: the time without a daemon is a gap by itself.
    call(&project, &["claude-code"], &before(&project, "rm a"));
    assert!(!sandbox.state().join("unsaved").exists());

    // Something that isn't to be asked.
    let listener = UnixListener::bind(sandbox.socket()).unwrap();
    let answering = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&[7; 64]).unwrap();
        // It stays until the hook has heard it: one that hangs up is taken for a daemon that is about to go.
        drop(stream.read_to_end(&mut Vec::new()));
    });
    call(&project, &["claude-code"], &before(&project, "rm a"));
    answering.join().unwrap();
    std::fs::remove_file(sandbox.socket()).unwrap();
    let notes = || {
        std::fs::read_dir(sandbox.state().join("unsaved"))
            .unwrap()
            .count()
    };
    assert_eq!(notes(), 1);
    gap(&project);
    assert_eq!(notes(), 0);
    let text = project.stepback(&["status"]).exits(0).text();
    assert!(text.contains("unprotected"), "{text}");
}

#[test]
fn what_daemon_and_hook_both_tell_is_one_gap() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    let store = project.store();
    let away = store.with_extension("away");
    std::fs::rename(&store, &away).unwrap();
    project.write("a", "v2\n");
    for _ in 0..3 {
        call(&project, &["claude-code"], &before(&project, "git reset --hard"));
    }
    std::fs::rename(&away, &store).unwrap();
    gap(&project);
    assert_eq!(
        std::fs::read_dir(sandbox.state().join("unsaved"))
            .unwrap()
            .count(),
        0
    );
    let gaps = project.status()["gaps"].as_array().unwrap().len();
    assert_eq!(gaps, 1, "{:#}", project.status()["gaps"]);
}

/// Says `busy` to so many requests at the daemon's socket, and takes all after them; how many those are.
fn busy(
    sandbox: &Sandbox,
    refused: usize,
) -> (UnixListener, impl Fn(&UnixListener, usize) -> Vec<Verb> + use<>) {
    let listener = UnixListener::bind(sandbox.socket()).unwrap();
    let serve = move |listener: &UnixListener, requests: usize| -> Vec<Verb> {
        let serve = |n: usize| {
            let (mut stream, _) = listener.accept().unwrap();
            let _: Hello = frame::read(&mut stream).unwrap().unwrap();
            let welcome = Welcome {
                protocol: PROTOCOL,
                version: "1".into(),
                pid: std::process::id(),
            };
            frame::write(&mut stream, &welcome).unwrap();
            let request: Request = frame::read(&mut stream).unwrap().unwrap();
            let answer = if n < refused {
                Answer::Failed(Failure {
                    kind: FailureKind::Busy,
                    message: "no room".into(),
                    hint: "try again later".into(),
                })
            } else {
                Answer::Done(Reply::Empty)
            };
            frame::write(&mut stream, &answer).unwrap();
            request.verb
        };
        (0..requests).map(serve).collect()
    };
    (listener, serve)
}

#[test]
fn a_daemon_that_has_no_room_is_asked_again() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    project.stepback(&["daemon", "stop"]).exits(0);
    let (listener, serve) = busy(&sandbox, 3);
    let serving = thread::spawn(move || serve(&listener, 4));
    call(&project, &["claude-code"], &before(&project, "rm a"));
    eventually("it was asked again", DEADLINE, || serving.is_finished());
    let told = serving.join().unwrap();
    assert!(told.iter().all(|verb| matches!(verb, Verb::Hook(_))), "{told:?}");
    assert!(!sandbox.state().join("unsaved").exists(), "it was told");
}

#[test]
fn a_status_that_a_daemon_has_no_room_for_says_that_it_is_not_known() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    project.stepback(&["daemon", "stop"]).exits(0);
    let (listener, serve) = busy(&sandbox, usize::MAX);
    let serving = thread::spawn(move || serve(&listener, 2));
    let said = project.stepback(&["status"]).exits(1);
    let first = format!(
        "not known whether {} is protected: no room\n",
        project.path.display()
    );
    assert_eq!(said.text(), first);
    let said = project.stepback(&["doctor"]).exits(1).text();
    assert!(said.contains("daemon: no room"), "{said}");
    assert!(said.contains("end clients that stay for long"), "{said}");
    serving.join().unwrap();
}
