//! Bad input: one line, a hint, the right exit code, and nothing changed.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::thread;

use stepback_proto::{Hello, Welcome, frame};
use stepback_tests::{Project, Sandbox};

#[test]
fn no_such_checkpoint() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    let (tree, ids) = (project.tree(), project.ids());
    for args in [
        &["show", "99"][..],
        &["diff", "99"],
        &["rewind", "99", "-y"],
        &["rewind", "99", "-n"],
        &["restore", "99", "-p", "a", "-y"],
        &["pin", "99"],
        &["drop", "99", "-y"],
        &["export", "99", "--tar", "-"],
    ] {
        let error = project.fails(args, 1, "no_such_checkpoint");
        assert!(error["message"].as_str().unwrap().contains("99"), "{error}");
    }
    tree.same(&project.tree(), "after errors");
    assert_eq!(project.ids(), ids);
}

#[test]
fn not_attached() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    for args in [
        &["list"][..],
        &["save"],
        &["rewind", "-y"],
        &["redo", "-y"],
        &["diff"],
        &["session", "list"],
    ] {
        let error = project.fails(args, 1, "not_attached");
        assert!(
            error["hint"].as_str().unwrap().contains("stepback attach"),
            "{error}"
        );
    }
    let status = project.json(&["status"]);
    assert_eq!(status["root"], serde_json::Value::Null, "status isn't an error");
}

#[test]
fn not_a_directory() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("file", "x");
    for path in ["file", "nowhere"] {
        let said = project.stepback(&["attach", "--here", path]).exits(1);
        assert!(
            said.stderr.starts_with("stepback: ") && said.stderr.contains(path),
            "{said:#?}"
        );
    }
    assert_eq!(project.json(&["roots"]), serde_json::json!([]));
}

#[test]
fn no_permission() {
    let Some(sandbox) = Sandbox::of_normal_user() else {
        return;
    };
    let project = sandbox.project("p");
    project.sh("mkdir -p closed; chmod 000 closed");
    project.fails(&["attach", "--here", "closed"], 1, "permission");
    assert_eq!(project.json(&["roots"]), serde_json::json!([]));
}

#[test]
fn a_file_that_cannot_be_made_is_named() {
    let Some(sandbox) = Sandbox::of_normal_user() else {
        return;
    };
    let project = sandbox.project("p");
    project.write("file", "x");
    project.attach();
    project.sh("mkdir closed; chmod 500 closed");
    for (option, file, kind) in [
        ("--patch", "/nonexistent/x", "no_such_path"),
        ("--tar", "nowhere/x", "no_such_path"),
        ("--tar", "file/x", "no_such_path"),
        ("--patch", "closed/x", "permission"),
    ] {
        let error = project.fails(&["export", "1", option, file], 1, kind);
        assert_ne!(error["hint"], "", "{error}");
    }
}

#[test]
fn bad_usage_exits_2() {
    let sandbox = Sandbox::new();
    // Neither attached nor with a daemon: nothing of that is needed to see what is wrong.
    let project = sandbox.project("p");
    for args in [
        &["list", "--frobnicate"][..],
        &["frobnicate"],
        &["list", "-n", "many"],
        &["restore", "1"],
        &["attach", "--max-file-size", "12 parsecs"],
        &["--color", "sometimes", "list"],
        &["--json", "run", "--", "true"],
        &[],
    ] {
        let said = project.stepback(args).exits(2);
        assert!(!said.stderr.is_empty() || args.contains(&"--json"), "{said:#?}");
    }
}

#[test]
fn a_broken_config_names_file_and_line() {
    for (text, line) in [
        ("settle_ms = 300\nsettle_ms = oops\n", 2),
        ("log = \"info\"\n\nno_such_key = 1\n", 3),
    ] {
        let sandbox = Sandbox::new();
        sandbox.configure(text);
        let project = sandbox.project("p");
        let error = project.fails(&["attach", "--here"], 1, "config");
        let message = format!("{} {}", error["message"], error["hint"]);
        assert!(message.contains("config.toml"), "{message}");
        assert!(
            message.contains(&format!("line {line}")) || message.contains(&format!(":{line}")),
            "{message}"
        );
        assert_eq!(
            fs::read_to_string(sandbox.config()).unwrap(),
            text,
            "never replaced"
        );
    }
}

#[test]
fn a_broken_registry_is_named_and_not_replaced() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    project.stepback(&["daemon", "stop"]).exits(0);
    let registry = sandbox.state().join("roots.json");
    let broken = "{\"roots\": [\n  oops\n";
    fs::write(&registry, broken).unwrap();
    let said = project.stepback(&["list"]).exits(1);
    assert!(said.stderr.contains("roots.json"), "{said:#?}");
    assert_eq!(fs::read_to_string(&registry).unwrap(), broken);
}

#[test]
fn without_a_terminal_and_without_y_nothing_is_changed() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    project.write("a", "v2\n");
    let second = project.save();
    project.write("a", "v3\n");
    project.settle();
    let (tree, ids) = (project.tree(), project.ids());
    project.fails(&["rewind", "first"], 1, "declined");
    project.fails(&["rewind"], 1, "declined");
    project.fails(&["restore", "first", "-p", "a"], 1, "declined");
    project.fails(&["drop", &second.to_string()], 1, "declined");
    project.fails(&["detach", "--forget"], 1, "declined");
    tree.same(&project.tree(), "after a question that nobody could answer");
    assert_eq!(project.ids(), ids);
}

#[test]
fn refused_roots() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.stepback(&["daemon", "start"]).exits(0);
    let home = sandbox.home();
    let above = sandbox.dir().to_path_buf();
    let state = sandbox.state();
    let inside = state.join("inside");
    fs::create_dir_all(&inside).unwrap();
    let ours = [&home, &above, &state, &inside];
    let system = [
        "/",
        "/tmp",
        "/usr",
        "/etc",
        "/dev",
        "/proc",
        "/sys",
        "/var",
        "/proc/self",
        "/sys/kernel",
    ];
    for path in system
        .iter()
        .copied()
        .chain(ours.iter().map(|p| p.to_str().unwrap()))
    {
        project.fails(&["attach", "--here", path], 1, "refused_root");
    }
    for path in ["/", state.to_str().unwrap(), inside.to_str().unwrap()] {
        project.fails(&["attach", "--here", "--force", path], 1, "refused_root");
    }
    assert_eq!(project.json(&["roots"]), serde_json::json!([]));
}

#[test]
fn a_top_level_that_is_refused_hints_at_here() {
    let sandbox = Sandbox::new();
    sandbox.sh(&sandbox.home(), "git init -q .; mkdir -p code/p");
    let project = Project::at(&sandbox, sandbox.home().join("code/p"));
    let error = project.fails(&["attach"], 1, "refused_root");
    assert!(error["hint"].as_str().unwrap().contains("--here"), "{error}");
    project.stepback(&["attach", "--here"]).exits(0);
}

#[test]
fn nothing_to_redo() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    project.fails(&["redo", "-y"], 1, "nothing_to_redo");
    project.fails(&["redo", "-n"], 1, "nothing_to_redo");
}

#[test]
fn no_daemon_where_none_may_be_started() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let said = project
        .stepback_env(&["--json", "list"], &[("STEPBACK_NO_AUTOSTART", "1")])
        .exits(1);
    assert_eq!(said.json()["error"]["kind"], "daemon_unavailable");
    let said = project
        .stepback_env(&["status"], &[("STEPBACK_NO_AUTOSTART", "1")])
        .exits(1);
    assert!(said.text().starts_with("not protected: "), "{said:#?}");
    let said = project
        .stepback_env(&["list"], &[("STEPBACKD", "/nonexistent/stepbackd")])
        .exits(1);
    assert!(
        said.stderr.starts_with("stepback: ") && said.stderr.contains("/nonexistent/stepbackd"),
        "{said:#?}"
    );
}

#[test]
fn a_daemon_of_another_version_is_named() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    for (protocol, version) in [(stepback_proto::PROTOCOL + 1, "99.0.0"), (0, "0.0.1")] {
        let dir = sandbox.dir().join("run").join(format!("v{protocol}"));
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
        let path = dir.join("stepbackd.sock");
        let listener = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let serving = thread::spawn(move || {
            // Two commands, each with one connection or more.
            while let Ok((mut stream, _)) = listener.accept() {
                match frame::read::<Hello>(&mut stream) {
                    Ok(Some(hello)) if hello.magic == stepback_proto::MAGIC => {
                        let welcome = Welcome {
                            protocol,
                            version: version.to_owned(),
                            pid: 1,
                        };
                        frame::write(&mut stream, &welcome).unwrap();
                    }
                    _ => return,
                }
            }
        });
        let socket = path.to_str().unwrap();
        let env = [("STEPBACK_SOCKET", socket)];
        let said = project.stepback_env(&["--json", "list"], &env).exits(1).json();
        assert_eq!(said["error"]["kind"], "version_mismatch", "{said}");
        let said = project.stepback_env(&["list"], &env).exits(1);
        assert!(said.stderr.contains(version), "{said:#?}");
        assert!(said.stderr.contains("hint: "), "{said:#?}");
        // A connection that says nothing ends the thread.
        drop(std::os::unix::net::UnixStream::connect(&path).unwrap());
        serving.join().unwrap();
    }
}
