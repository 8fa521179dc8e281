//! The units, the agent, and what `make install` puts in place.

use std::fs;
use std::process::Command;

use crate::support::top;

/// Runs a judge; `None`, and a printed reason, where it isn't installed.
fn judge(program: &str, args: &[&str]) -> Option<(bool, String)> {
    let runtime = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    let output = command
        .args(args)
        .current_dir(top())
        .env("XDG_RUNTIME_DIR", runtime.path())
        .output();
    let Ok(output) = output else {
        println!("skipped: {program} is not installed");
        return None;
    };
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Some((output.status.success(), said))
}

#[test]
fn the_units_are_clean() {
    let temp = tempfile::tempdir().unwrap();
    for unit in ["stepbackd.service", "stepbackd.socket"] {
        let text = fs::read_to_string(top().join("systemd").join(unit)).unwrap();
        // The judge wants the program to exist, and here it isn't installed.
        fs::write(
            temp.path().join(unit),
            text.replace("@BINDIR@/stepbackd", "/bin/true"),
        )
        .unwrap();
    }
    let service = temp.path().join("stepbackd.service");
    let socket = temp.path().join("stepbackd.socket");
    let args = [
        "--user",
        "verify",
        service.to_str().unwrap(),
        socket.to_str().unwrap(),
    ];
    let Some((fine, said)) = judge("systemd-analyze", &args) else {
        return;
    };
    // On a machine that systemd didn't start, the judge itself may not work.
    if said.contains("Failed to initialize manager") {
        println!("skipped: systemd-analyze doesn't work here: {said}");
        return;
    }
    assert!(fine && said.is_empty(), "{said}");
}

#[test]
fn the_socket_is_ours_alone() {
    let socket = fs::read_to_string(top().join("systemd/stepbackd.socket")).unwrap();
    for line in [
        "ListenStream=%t/stepback/stepbackd.sock",
        "SocketMode=0600",
        "DirectoryMode=0700",
    ] {
        assert!(socket.lines().any(|l| l == line), "{line}");
    }
}

#[test]
fn the_hardening_leaves_every_project_writable() {
    let service = fs::read_to_string(top().join("systemd/stepbackd.service")).unwrap();
    for line in [
        "Type=notify",
        "Restart=on-failure",
        "NoNewPrivileges=yes",
        "LockPersonality=yes",
    ] {
        assert!(service.lines().any(|l| l == line), "{line}");
    }
    for word in [
        "ProtectHome=",
        "ProtectSystem=",
        "PrivateTmp=",
        "RestrictSUIDSGID=",
    ] {
        assert!(
            !service.lines().any(|l| l.starts_with(word)),
            "{word} would keep the daemon from its work"
        );
    }
}

#[test]
fn the_launchd_agent_is_a_property_list() {
    let script = "import plistlib, sys; d = plistlib.load(open(sys.argv[1], 'rb')); \
                  assert d['Label'] and d['ProgramArguments'][1:] == ['--foreground'], d";
    let Some((fine, said)) = judge("python3", &["-c", script, "launchd/stepbackd.plist"]) else {
        return;
    };
    assert!(fine, "{said}");
}
