//! The daemon as a service: installed, started by systemd, and never from inside a sandbox.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use stepback_tests::{Guarded, Sandbox, eventually, eventually_some, finish, start};

/// Does what systemd would with the user units that it finds, and writes down what it was asked. With a file `no-bus`
/// beside it, it is as where no user manager runs; with `hangs` it never ends, with `no-start` it can't start anything.
const SYSTEMCTL: &str = r#"#!/bin/sh
here=$(dirname "$0")
echo "$*" >> "$here/asked"
if [ -e "$here/no-bus" ]; then echo 'Failed to connect to bus: No medium found' >&2; exit 1; fi
unit="$XDG_CONFIG_HOME/systemd/user/stepbackd.service"
[ "$1" = --user ] || exit 9
if [ -e "$here/hangs" ]; then exec sleep 600; fi
if [ -e "$here/no-$2" ]; then echo 'Job failed.' >&2; exit 1; fi
case "$2" in
daemon-reload | reset-failed) ;;
enable | start)
    [ -f "$unit" ] || { echo 'Unit stepbackd.service not found.' >&2; exit 5; }
    program=$(sed -n 's/^ExecStart="\(.*\)" --foreground$/\1/p' "$unit")
    env -i HOME="$HOME" PATH="$PATH" XDG_RUNTIME_DIR="$XDG_RUNTIME_DIR" STARTED_BY=systemd \
        $(sed -n 's/^Environment="\(.*\)"$/\1/p' "$unit") "$program" --daemonize
    ;;
disable)
    pid=$(sed -n 's/.*"pid":\([0-9]*\).*/\1/p' "$XDG_STATE_HOME/stepback/daemon.json" 2>/dev/null)
    [ -z "$pid" ] || kill "$pid"
    ;;
*) exit 8 ;;
esac
"#;

/// A sandbox with that systemctl first in PATH.
fn with_systemd() -> Sandbox {
    let sandbox = Sandbox::new();
    let bin = sandbox.dir().join("fake");
    fs::create_dir(&bin).unwrap();
    fs::write(bin.join("systemctl"), SYSTEMCTL).unwrap();
    fs::set_permissions(bin.join("systemctl"), Permissions::from_mode(0o755)).unwrap();
    let mut path = OsString::from(&bin);
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    sandbox.with_env("PATH", path)
}

fn asked(sandbox: &Sandbox) -> String {
    fs::read_to_string(sandbox.dir().join("fake/asked")).unwrap_or_default()
}

fn units(sandbox: &Sandbox) -> std::path::PathBuf {
    sandbox.home().join(".config/systemd/user")
}

#[test]
fn install_puts_the_units_in_place_and_uninstall_leaves_no_trace() {
    let sandbox = with_systemd();
    let project = sandbox.project("p");
    for _ in 0..2 {
        project.stepback(&["daemon", "install"]).exits(0);
        let unit = fs::read_to_string(units(&sandbox).join("stepbackd.service")).unwrap();
        let program = sandbox.program("stepbackd");
        assert!(
            unit.contains(&format!("ExecStart=\"{}\" --foreground\n", program.display())),
            "{unit}"
        );
        assert!(!unit.contains('@'), "{unit}");
        assert!(units(&sandbox).join("stepbackd.socket").is_file());
        assert!(
            asked(&sandbox).ends_with("--user enable --now stepbackd.socket stepbackd.service\n"),
            "{}",
            asked(&sandbox)
        );
        project.stepback(&["daemon", "status"]).exits(0);
    }
    project.attach();

    project.stepback(&["daemon", "uninstall"]).exits(0);
    assert!(
        !sandbox.home().join(".config/systemd").exists(),
        "nothing of ours is left"
    );
    assert!(asked(&sandbox).contains("--user disable --now stepbackd.socket stepbackd.service\n"));
    eventually("the daemon is gone", Duration::from_secs(10), || {
        project.stepback(&["daemon", "status"]).code() == 1
    });
    assert_eq!(
        project.stepback(&["daemon", "uninstall"]).exits(0).text(),
        "not installed\n"
    );
    assert_eq!(
        project.ids(),
        [1],
        "checkpoints stay, and a command starts a daemon"
    );
}

#[test]
fn a_running_daemon_makes_room_for_the_service() {
    let sandbox = with_systemd();
    let project = sandbox.project("p");
    project.attach();
    let by_hand = sandbox.daemon_pid().unwrap();
    project.stepback(&["daemon", "install"]).exits(0);
    assert_ne!(sandbox.daemon_pid().unwrap(), by_hand);
    assert_eq!(project.ids(), [1]);
}

#[test]
fn with_the_unit_in_place_a_command_starts_the_daemon_through_it() {
    let sandbox = with_systemd();
    let project = sandbox.project("p");
    project.stepback(&["daemon", "install"]).exits(0);
    project.attach();
    project.stepback(&["daemon", "stop"]).exits(0);
    let before = asked(&sandbox);
    assert_eq!(project.stepback(&["daemon", "status"]).code(), 1);
    assert_eq!(asked(&sandbox), before, "asking starts nothing");
    assert_eq!(project.ids(), [1]);
    let news = asked(&sandbox)[before.len()..].to_owned();
    assert_eq!(news, "--user start stepbackd.service\n");
    // A restart goes the same way.
    project.stepback(&["daemon", "restart"]).exits(0);
    assert!(
        asked(&sandbox).ends_with(
            "start stepbackd.service\nstart stepbackd.service\n"
                .replace("start", "--user start")
                .as_str()
        )
    );

    // The manager is gone: then without it.
    project.stepback(&["daemon", "stop"]).exits(0);
    fs::write(sandbox.dir().join("fake/no-bus"), "").unwrap();
    assert_eq!(project.ids(), [1]);
}

#[test]
fn the_log_of_a_service_is_in_the_journal() {
    let sandbox = with_systemd();
    let project = sandbox.project("p");
    let journalctl = sandbox.dir().join("fake/journalctl");
    fs::write(&journalctl, "#!/bin/sh\necho \"journal: $*\"\n").unwrap();
    fs::set_permissions(&journalctl, Permissions::from_mode(0o755)).unwrap();
    project.stepback(&["daemon", "install"]).exits(0);
    // Here it was started without a journal, and logs to its file.
    let said = project.stepback(&["daemon", "logs"]).exits(0).text();
    assert!(said.contains("started"), "{said}");
    project.stepback(&["daemon", "stop"]).exits(0);
    fs::remove_dir_all(sandbox.state().join("log")).unwrap();
    for (args, asked) in [
        (
            &["daemon", "logs"][..],
            "journal: --user --unit stepbackd.service --output short-iso\n",
        ),
        (
            &["daemon", "logs", "-f"],
            "journal: --user --unit stepbackd.service --output short-iso --follow\n",
        ),
    ] {
        assert_eq!(project.stepback(args).exits(0).text(), asked);
    }
}

#[test]
fn settings_and_a_variable_say_how_much_is_logged() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let log = || fs::read_to_string(sandbox.state().join("log/stepbackd.log")).unwrap_or_default();
    sandbox.configure("log = \"error\"\n");
    project.attach();
    project.stepback(&["daemon", "stop"]).exits(0);
    assert_eq!(log(), "");
    let loud = [("STEPBACK_LOG", "debug")];
    project.stepback_env(&["daemon", "start"], &loud).exits(0);
    assert!(
        log().contains("INFO"),
        "the variable goes before the settings: {}",
        log()
    );
    project.stepback(&["daemon", "stop"]).exits(0);
    let said = project
        .stepback_env(&["daemon", "start"], &[("STEPBACK_LOG", "stepbackd=[")])
        .exits(1);
    assert!(said.stderr.contains("STEPBACK_LOG"), "{said:#?}");
}

#[test]
fn a_word_that_is_no_level_and_a_file_that_is_not_there_are_errors() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let nowhere = sandbox.dir().join("nowhere.toml");
    for (name, value) in [
        ("STEPBACK_LOG", "bogus"),
        ("STEPBACK_CONFIG", nowhere.to_str().unwrap()),
    ] {
        let args = ["daemon", "start", "--json"];
        let said = project.stepback_env(&args, &[(name, value)]).exits(1);
        let all = format!("{}{}", said.text(), said.stderr);
        assert!(
            all.contains("\"config\"") && all.contains(name) && all.contains(value),
            "{all}"
        );
    }
    sandbox.configure("\nlog = \"loud\"\n");
    let said = project.stepback(&["daemon", "start"]).exits(1);
    assert!(
        said.stderr.contains("config.toml:2") && said.stderr.contains("loud"),
        "{said:#?}"
    );
}

#[test]
fn a_hangup_changes_how_much_is_logged() {
    let sandbox = Sandbox::new();
    sandbox.configure("log = \"error\"\n");
    let daemon = sandbox.daemon();
    let log = || fs::read_to_string(sandbox.state().join("log/stepbackd.log")).unwrap_or_default();
    sandbox.configure("log = \"info\"\n");
    daemon.signal(Signal::SIGHUP);
    eventually("the new level holds", Duration::from_secs(20), || {
        log().contains("the settings were read again")
    });
}

#[test]
fn the_log_before_it_was_turned_over_is_shown_too() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.attach();
    fs::write(sandbox.state().join("log/stepbackd.log.1"), "the older one\n").unwrap();
    let text = project.stepback(&["daemon", "logs"]).exits(0).text();
    assert!(
        text.starts_with("the older one\n") && text.contains("started"),
        "{text}"
    );
}

#[test]
fn a_unit_of_another_state_directory_is_not_used() {
    let sandbox = with_systemd();
    let project = sandbox.project("p");
    project.stepback(&["daemon", "install"]).exits(0);
    project.stepback(&["daemon", "stop"]).exits(0);
    let before = asked(&sandbox);
    let other = sandbox.dir().join("other");
    let elsewhere = [("STEPBACK_STATE_DIR", other.to_str().unwrap())];
    project.stepback_env(&["roots"], &elsewhere).exits(0);
    assert_eq!(asked(&sandbox), before);
    project.stepback_env(&["daemon", "stop"], &elsewhere).exits(0);
}

#[test]
fn without_a_manager_install_says_what_to_type_and_leaves_nothing() {
    let sandbox = with_systemd();
    fs::write(sandbox.dir().join("fake/no-bus"), "").unwrap();
    let project = sandbox.project("p");
    let said = project.stepback(&["daemon", "install"]).exits(1);
    assert!(
        said.stderr.contains("no systemd user manager") && said.stderr.contains("No medium found"),
        "{said:#?}"
    );
    assert!(
        said.stderr.contains("hint: ") && said.stderr.contains("stepbackd --daemonize"),
        "{said:#?}"
    );
    assert!(!sandbox.home().join(".config/systemd").exists());
    project.stepback(&["daemon", "uninstall"]).exits(0);
    let none = [("PATH", "/nonexistent")];
    let said = project.stepback_env(&["daemon", "install"], &none).exits(1);
    assert!(said.stderr.contains("systemctl is not in PATH"), "{said:#?}");
}

#[test]
fn a_manager_that_hangs_stops_no_command() {
    let sandbox = with_systemd();
    let project = sandbox.project("p");
    project.stepback(&["daemon", "install"]).exits(0);
    project.stepback(&["daemon", "stop"]).exits(0);
    fs::write(sandbox.dir().join("fake/hangs"), "").unwrap();
    let before = asked(&sandbox);
    let began = Instant::now();
    let said = project.stepback(&["run", "--", "echo", "ran"]).exits(0);
    assert_eq!(said.text(), "ran\n");
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    assert!(asked(&sandbox).len() > before.len(), "it was asked");
    assert!(project.stepback(&["session", "show"]).code() == 0, "{said:#?}");
    let said = project.stepback(&["daemon", "install"]).exits(1);
    assert!(said.stderr.contains("hasn't ended within"), "{said:#?}");
    project.stepback(&["daemon", "status"]).exits(0);
    project.stepback(&["daemon", "stop"]).exits(0);
}

#[test]
fn an_install_that_fails_leaves_all_as_it_was() {
    let sandbox = with_systemd();
    let project = sandbox.project("p");
    project.attach();
    let fails = sandbox.dir().join("fake/no-enable");
    fs::write(&fails, "").unwrap();
    let said = project.stepback(&["daemon", "install"]).exits(1);
    assert!(said.stderr.contains("Job failed"), "{said:#?}");
    assert!(!sandbox.home().join(".config/systemd").exists());
    // One ran before, so that one runs after.
    project.stepback(&["daemon", "status"]).exits(0);

    fs::remove_file(&fails).unwrap();
    project.stepback(&["daemon", "install"]).exits(0);
    let unit = units(&sandbox).join("stepbackd.service");
    let old = fs::read(&unit).unwrap();
    fs::write(&fails, "").unwrap();
    let config = sandbox.dir().join("c.toml");
    fs::write(&config, "").unwrap();
    let other = [("STEPBACK_CONFIG", config.to_str().unwrap())];
    project.stepback_env(&["daemon", "install"], &other).exits(1);
    assert_eq!(fs::read(&unit).unwrap(), old, "the unit of before");
    project.stepback(&["daemon", "status"]).exits(0);
}

#[test]
fn a_unit_that_was_changed_by_hand_is_left_alone() {
    let sandbox = with_systemd();
    let project = sandbox.project("p");
    project.stepback(&["daemon", "install"]).exits(0);
    let unit = units(&sandbox).join("stepbackd.service");
    let mut text = fs::read_to_string(&unit).unwrap();
    text = text.replace("[Service]\n", "[Service]\nNice=5\n");
    fs::write(&unit, &text).unwrap();
    let said = project.stepback(&["daemon", "install"]).exits(1);
    assert!(
        said.stderr.contains(unit.to_str().unwrap()) && said.stderr.contains("hint: "),
        "{said:#?}"
    );
    let said = project.stepback(&["daemon", "uninstall"]).exits(0).text();
    assert!(said.contains("changed by hand and stays"), "{said}");
    assert_eq!(fs::read_to_string(&unit).unwrap(), text);
    fs::remove_file(&unit).unwrap();
    project.stepback(&["daemon", "install"]).exits(0);
    project.stepback(&["daemon", "uninstall"]).exits(0);
    assert!(!unit.exists());
}

#[test]
fn what_install_writes_is_clean() {
    let sandbox = with_systemd();
    let project = sandbox.project("p");
    project.stepback(&["daemon", "install"]).exits(0);
    let units = units(&sandbox);
    let output = sandbox
        .command("systemd-analyze", sandbox.dir())
        .args(["--user", "verify"])
        .args(["stepbackd.service", "stepbackd.socket"].map(|unit| units.join(unit)))
        .output();
    let Ok(output) = output else {
        println!("skipped: systemd-analyze is not installed");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("Failed to initialize manager") {
        println!("skipped: systemd-analyze doesn't work here: {said}");
        return;
    }
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn no_daemon_is_started_from_inside_a_sandbox() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let held = ["setpriv", "--no-new-privs"];
    let run = |args: &[&str]| {
        let mut command = sandbox.command(held[0], &project.path);
        command.arg(held[1]).arg(sandbox.program("stepback")).args(args);
        finish(
            start(&mut command),
            "stepback in a sandbox",
            Duration::from_secs(60),
        )
    };
    let first = fs::read_to_string("/proc/1/status").unwrap_or_default();
    if Command::new("setpriv").arg("--version").output().is_err() || first.contains("NoNewPrivs:\t1") {
        println!("skipped: no setpriv (util-linux), or everything here is in a sandbox");
        return;
    }
    let said = run(&["list"]).exits(1);
    assert!(
        said.stderr.contains("sandbox") && said.stderr.contains("hint: "),
        "{said:#?}"
    );
    assert!(!sandbox.state().exists(), "nothing was made");
    let said = run(&["--json", "list"]).exits(1);
    assert_eq!(said.json()["error"]["kind"], "daemon_unavailable");
    // What is there already may be used, and who says so in so many words gets one.
    run(&["daemon", "start"]).exits(0);
    run(&["roots"]).exits(0);
}

/// Messages of a notify socket, one word a line.
struct Notified(UnixDatagram);

impl Notified {
    #[track_caller]
    fn tells(&self, word: &str) {
        eventually_some(
            &format!("the daemon tells {word}"),
            Duration::from_secs(20),
            || {
                let mut bytes = [0; 4096];
                let length = self.0.recv(&mut bytes).ok()?;
                let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                text.lines().any(|line| line == word).then_some(())
            },
        );
    }
}

#[test]
fn systemd_is_told_when_it_is_ready_alive_reading_settings_and_stopping() {
    let sandbox = Sandbox::new();
    let path = sandbox.dir().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let notified = Notified(socket);
    let sandbox = sandbox
        .with_env("NOTIFY_SOCKET", &path)
        .with_env("WATCHDOG_USEC", "300000");
    let daemon = sandbox.daemon();
    notified.tells("READY=1");
    notified.tells("WATCHDOG=1");
    notified.tells("WATCHDOG=1");
    daemon.signal(Signal::SIGHUP);
    notified.tells("RELOADING=1");
    notified.tells("READY=1");
    daemon.signal(Signal::SIGTERM);
    notified.tells("STOPPING=1");
    assert_eq!(daemon.ended(Duration::from_secs(6)), Some(0));
}

#[test]
fn a_connection_to_the_socket_that_systemd_holds_starts_it() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let dir = sandbox.dir().join("run/stepback");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
    let socket = dir.join("stepbackd.sock");
    let mut command = sandbox.command("systemd-socket-activate", Path::new("/"));
    command.arg("-l").arg(&socket);
    for name in ["XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"] {
        let value = sandbox.dir().join(match name {
            "XDG_STATE_HOME" => "state",
            "XDG_RUNTIME_DIR" => "run",
            _ => "home/.config",
        });
        command.arg("-E").arg(format!("{name}={}", value.display()));
    }
    command
        .arg(sandbox.program("stepbackd"))
        .arg("--foreground")
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let Ok(child) = command.spawn() else {
        println!("skipped: systemd-socket-activate is not installed");
        return;
    };
    let mut child = Guarded::new(child);
    // A name is there a moment before anybody listens.
    eventually("somebody listens", Duration::from_secs(20), || {
        UnixStream::connect(&socket).is_ok()
    });
    let never = [("STEPBACK_NO_AUTOSTART", "1")];
    project.stepback_env(&["attach"], &never).exits(0);
    let pid = sandbox.daemon_pid().unwrap();
    assert_eq!(
        u32::try_from(pid.as_raw()).unwrap(),
        child.child().id(),
        "it became the daemon"
    );
    let status = project.json(&["daemon", "status"]);
    assert_eq!(status["socket"], socket.to_str().unwrap());
    project.stepback(&["daemon", "stop"]).exits(0);
    assert!(socket.exists(), "the socket is systemd's, not the daemon's");
}
