//! What is printed where, and the exit codes, when things don't go well.

use std::process::Stdio;

use crate::{said, stepback};

#[test]
fn an_error_is_one_line_and_a_hint_on_stderr() {
    let (out, err, code) = said(&mut stepback(&["list"]));
    assert_eq!((out.as_str(), code), ("", 1));
    let lines: Vec<&str> = err.lines().collect();
    assert_eq!(lines.len(), 2, "{err}");
    assert!(lines[0].starts_with("stepback: no daemon answers at "), "{err}");
    assert_eq!(lines[1], "hint: run `stepback daemon start`");
    assert_eq!(
        said(&mut stepback(&["-q", "list"])).1.lines().count(),
        1,
        "-q silences the hint alone"
    );
}

#[test]
fn with_json_an_error_is_an_object_on_stdout() {
    for args in [&["--json", "list"][..], &["list", "--json"]] {
        let (out, err, code) = said(&mut stepback(args));
        let error: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(
            (&error["error"]["kind"], err.as_str(), code),
            (&"daemon_unavailable".into(), "", 1)
        );
    }
}

#[test]
fn bad_usage_exits_2_and_needs_no_daemon() {
    for args in [
        &[][..],
        &["frob"],
        &["list", "--frob"],
        &["show", "x"],
        &["git", "--", "gc"],
        &["restore", "1"],
    ] {
        let (out, err, code) = said(&mut stepback(args));
        assert_eq!((out.as_str(), code), ("", 2), "{args:?}: {err}");
        assert!(
            err.starts_with("stepback: ") && err.contains("\nhint: "),
            "{args:?}: {err}"
        );
        let (out, _, code) = said(&mut stepback(&[&["--json"], args].concat()));
        let error: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!((&error["error"]["kind"], code), (&"usage".into(), 2), "{args:?}");
    }
}

#[test]
fn asking_about_the_daemon_starts_none() {
    let (out, _, code) = said(&mut stepback(&["daemon", "status", "--json"]));
    let status: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&status["running"], &status["pid"], code),
        (&false.into(), &serde_json::Value::Null, 1)
    );
    assert_eq!(
        said(&mut stepback(&["daemon", "stop"])).2,
        0,
        "there is nothing to stop"
    );
    assert!(
        said(&mut stepback(&["completions", "bash"]))
            .0
            .contains("_stepback")
    );
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = stepback(&["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}
