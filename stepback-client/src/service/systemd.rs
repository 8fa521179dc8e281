//! systemd: two user units, a socket and the service behind it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Before, Installed, WORK_TIMEOUT, call, is_ours, text, variables, write};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::whole;

/// The service's name, as `systemctl` and `journalctl` take it.
pub const NAME: &str = "stepbackd.service";

const SOCKET: &str = "stepbackd.socket";

const SERVICE_TEXT: &str = include_str!("../../../systemd/stepbackd.service");
const SOCKET_TEXT: &str = include_str!("../../../systemd/stepbackd.socket");

/// How long the manager may take to read its units again.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(10);

/// What a comment begins and ends with.
const COMMENT: [&str; 2] = ["# ", ""];

/// What the templates have in place of the program, and of the socket.
const PROGRAM: &str = "@BINDIR@/stepbackd";
const LISTEN: &str = "%t/stepback/stepbackd.sock";

/// Where packages and administrators put user units.
const SHARED: &[&str] = &[
    "/etc/systemd/user",
    "/usr/local/lib/systemd/user",
    "/usr/lib/systemd/user",
];

pub fn installed(environment: &Environment) -> Option<Installed> {
    let own = own_dir(environment).map(|dir| dir.join(NAME));
    if let Some(file) = own
        && let Ok(text) = fs::read_to_string(&file)
    {
        let state = state_of(&text, environment);
        let program = program_of(&text);
        return Some(Installed {
            file,
            own: true,
            state: state?,
            program,
        });
    }
    let file = SHARED
        .iter()
        .map(|dir| Path::new(dir).join(NAME))
        .find(|file| file.is_file())?;
    let program = fs::read_to_string(&file).ok().and_then(|text| program_of(&text));
    Some(Installed {
        file,
        own: false,
        state: default_state(environment)?,
        program,
    })
}

pub fn put(environment: &Environment, binary: &Path) -> Result<Before> {
    let dir = own_dir(environment).ok_or_else(no_home)?;
    let service = service_text(environment, binary)?;
    let socket = socket_text(environment)?;
    // Before anything is written: without a manager that answers the files would be of no use.
    reload(environment).map_err(|e| no_manager(&e, binary))?;
    let files = [(dir.join(SOCKET), socket), (dir.join(NAME), service)];
    let before = write(&files, COMMENT)?;
    if let Err(e) = reload(environment) {
        before.back()?;
        return Err(failed("daemon-reload", &e));
    }
    Ok(before)
}

/// Takes back what [`put`] and [`enable`] have done to the files.
pub fn take_back(environment: &Environment, before: &Before) -> Result<()> {
    if before.was_empty() {
        return remove(environment);
    }
    before.back()?;
    // A manager that doesn't answer now reads them at its next start.
    let _ = reload(environment);
    Ok(())
}

pub fn enable(environment: &Environment) -> Result<()> {
    systemctl(environment, &["enable", "--now", SOCKET, NAME], WORK_TIMEOUT)
        .map(drop)
        .map_err(|e| failed("enable --now", &e))
}

pub fn start(environment: &Environment, limit: Duration) -> io::Result<()> {
    systemctl(environment, &["start", NAME], limit).map(drop)
}

/// Has it end the daemon, which it would start again if somebody else killed it.
pub fn stop(environment: &Environment) -> io::Result<()> {
    systemctl(environment, &["stop", NAME], WORK_TIMEOUT).map(drop)
}

pub fn remove(environment: &Environment) -> Result<()> {
    // Where no manager answers there is nothing that runs under it; the files go all the same.
    let told = systemctl(environment, &["disable", "--now", SOCKET, NAME], WORK_TIMEOUT);
    let Some(dir) = own_dir(environment) else {
        return Ok(());
    };
    // Whoever has changed one needs the other with it.
    let edited = [NAME, SOCKET]
        .iter()
        .filter_map(|unit| fs::read_to_string(dir.join(unit)).ok())
        .any(|text| !is_ours(&text, COMMENT));
    for (wants, unit) in [("default.target.wants", NAME), ("sockets.target.wants", SOCKET)] {
        whole::remove(&dir.join(wants).join(unit))?;
        if !edited {
            whole::remove(&dir.join(unit))?;
        }
        // One that holds something else stays, as do those below.
        let _ = fs::remove_dir(dir.join(wants));
    }
    let _ = fs::remove_dir(&dir);
    if let Some(above) = dir.parent() {
        let _ = fs::remove_dir(above);
    }
    if told.is_err_and(|e| e.kind() == io::ErrorKind::TimedOut) {
        return Ok(());
    }
    let _ = reload(environment);
    let _ = systemctl(environment, &["reset-failed", SOCKET, NAME], RELOAD_TIMEOUT);
    Ok(())
}

/// The whole service unit.
fn service_text(environment: &Environment, binary: &Path) -> Result<String> {
    let lines: String = variables(environment)?
        .iter()
        .map(|(name, value)| format!("Environment={}\n", quoted(&format!("{name}={value}"))))
        .collect();
    Ok(SERVICE_TEXT
        .replace(PROGRAM, &quoted(text(binary)?))
        .replace("[Service]\n", &format!("[Service]\n{lines}")))
}

fn socket_text(environment: &Environment) -> Result<String> {
    Ok(match &environment.socket {
        Some(socket) => SOCKET_TEXT.replace(LISTEN, &text(socket)?.replace('%', "%%")),
        None => SOCKET_TEXT.to_owned(),
    })
}

/// A word of a unit file: in double quotes, nothing in it has a meaning.
fn quoted(word: &str) -> String {
    let escaped = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    format!("\"{escaped}\"")
}

/// What [`quoted`] made one of; other words as they are.
fn unquoted(word: &str) -> String {
    let word = word
        .strip_prefix('"')
        .and_then(|w| w.strip_suffix('"'))
        .unwrap_or(word);
    word.replace("%%", "%")
        .replace("\\\"", "\"")
        .replace("\\\\", "\\")
}

fn program_of(unit: &str) -> Option<PathBuf> {
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart="))?;
    Some(unquoted(line.strip_suffix(" --foreground").unwrap_or(line)).into())
}

/// The state directory of the daemon that this unit starts.
fn state_of(unit: &str, environment: &Environment) -> Option<PathBuf> {
    let value = |name: &str| {
        unit.lines()
            .filter_map(|line| line.strip_prefix("Environment="))
            .find_map(|word| {
                unquoted(word)
                    .strip_prefix(&format!("{name}="))
                    .map(PathBuf::from)
            })
    };
    value("STEPBACK_STATE_DIR")
        .or_else(|| Some(value("XDG_STATE_HOME")?.join("stepback")))
        .or_else(|| default_state(environment))
}

fn default_state(environment: &Environment) -> Option<PathBuf> {
    Some(environment.home.as_ref()?.join(".local/state/stepback"))
}

fn own_dir(environment: &Environment) -> Option<PathBuf> {
    Some(environment.config_home.as_ref()?.join("systemd/user"))
}

fn reload(environment: &Environment) -> io::Result<()> {
    systemctl(environment, &["daemon-reload"], RELOAD_TIMEOUT).map(drop)
}

fn systemctl(environment: &Environment, args: &[&str], limit: Duration) -> io::Result<String> {
    let program = environment
        .program("systemctl")
        .ok_or_else(|| io::Error::other("systemctl is not in PATH"))?;
    call(&program, &[&["--user"], args].concat(), limit)
}

fn no_home() -> Error {
    Error::Environment {
        message: "HOME isn't set, so that there is no place for systemd's user units".into(),
        hint: "set HOME".into(),
    }
}

fn no_manager(e: &io::Error, binary: &Path) -> Error {
    Error::Environment {
        message: format!("no systemd user manager answers here: {e}"),
        hint: format!(
            "have `{} --daemonize` run at your login, or leave it to the first stepback command",
            crate::render::path::word(&binary.to_string_lossy())
        ),
    }
}

fn failed(what: &str, e: &io::Error) -> Error {
    Error::Environment {
        message: format!("`systemctl --user {what}` failed: {e}"),
        hint: "nothing was installed; see `journalctl --user -u stepbackd`".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment() -> Environment {
        Environment {
            home: Some("/h".into()),
            config_home: Some("/h/.config".into()),
            ..Environment::default()
        }
    }

    #[test]
    fn the_template_holds_what_is_replaced() {
        let unit = service_text(&environment(), Path::new("/opt/a b/50%/step\"d")).unwrap();
        assert!(
            unit.contains("ExecStart=\"/opt/a b/50%%/step\\\"d\" --foreground\n"),
            "{unit}"
        );
        assert_eq!(program_of(&unit), Some("/opt/a b/50%/step\"d".into()));
        assert_eq!(
            state_of(&unit, &environment()),
            Some("/h/.local/state/stepback".into())
        );
        assert!(
            socket_text(&environment())
                .unwrap()
                .contains(&format!("ListenStream={LISTEN}\n"))
        );
    }

    #[test]
    fn what_the_shell_sets_goes_into_the_unit() {
        let mut environment = environment();
        environment.for_service = vec![("STEPBACK_STATE_DIR", "/s/50% \"x\"".into())];
        environment.socket = Some("/s/100%.sock".into());
        let unit = service_text(&environment, Path::new("/b/stepbackd")).unwrap();
        assert!(
            unit.contains("[Service]\nEnvironment=\"STEPBACK_STATE_DIR=/s/50%% \\\"x\\\"\"\n"),
            "{unit}"
        );
        assert_eq!(state_of(&unit, &environment), Some("/s/50% \"x\"".into()));
        assert!(
            socket_text(&environment)
                .unwrap()
                .contains("ListenStream=/s/100%%.sock\n")
        );
        environment.for_service = vec![("STEPBACK_CONFIG", "/a\nExecStart=/bad".into())];
        assert!(service_text(&environment, Path::new("/b/stepbackd")).is_err());
    }
}
