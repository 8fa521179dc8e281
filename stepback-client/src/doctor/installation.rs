//! Programs, settings, units.

use std::process::Command;
use std::time::Duration;

use super::{DaemonFound, Outcome, Patient, Severity};
use crate::autostart;
use crate::bounded;
use crate::service;

/// How long a program may take to say its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Both programs are there and of one version.
pub fn programs(patient: &Patient<'_>) -> Outcome {
    let binary = match autostart::known_binary(&patient.app.endpoint, &patient.app.environment) {
        Ok(binary) => binary,
        Err(_) => {
            return Outcome::one(
                Severity::Error,
                "stepbackd is neither beside stepback nor in PATH",
                "install it there, or set STEPBACKD to its path",
            );
        }
    };
    let said = bounded::output(Command::new(&binary).arg("--version"), VERSION_TIMEOUT);
    let shown = binary.display();
    match said {
        Ok(said) if said.status.success() => {
            let text = String::from_utf8_lossy(&said.stdout);
            let version = text.split_ascii_whitespace().last().unwrap_or("?");
            if version == VERSION {
                return Outcome::fine(format!("stepback and {shown} are version {VERSION}"));
            }
            Outcome::one(
                Severity::Warning,
                format!("stepback is version {VERSION}, {shown} is version {version}"),
                "install both of one version; STEPBACKD names another daemon",
            )
        }
        Ok(said) => Outcome::one(
            Severity::Error,
            format!("{shown} --version ended with {}", said.status),
            "install it anew, or set STEPBACKD to a stepbackd",
        ),
        Err(e) => Outcome::one(
            Severity::Error,
            format!("{shown} can't be run: {e}"),
            "install it anew, or set STEPBACKD to a stepbackd",
        ),
    }
}

/// A daemon that starts now could read its settings and its registry.
pub fn settings(patient: &Patient<'_>) -> Outcome {
    let app = patient.app;
    if autostart::known_binary(&app.endpoint, &app.environment).is_err() {
        return Outcome::skipped("not looked at: there is no stepbackd");
    }
    match autostart::check(&app.endpoint, &app.environment) {
        Ok(()) => Outcome::fine("settings and registry can be read"),
        Err(e) => {
            let mut outcome = Outcome::default();
            outcome.error(Severity::Error, &e);
            outcome
        }
    }
}

/// What is tracked can be told from what is ignored.
pub fn git(patient: &Patient<'_>) -> Outcome {
    match patient.app.environment.program("git") {
        Some(git) => Outcome::fine(format!("{}", git.display())),
        None => Outcome::one(
            Severity::Warning,
            "git is not in PATH: files that are tracked although they are ignored aren't captured",
            "install git, then `stepback daemon restart`",
        ),
    }
}

/// The service manager starts the daemon, this very one.
pub fn unit(patient: &Patient<'_>) -> Outcome {
    let environment = &patient.app.environment;
    let Some(unit) = service::installed(environment) else {
        return Outcome::one(
            Severity::Note,
            "no service starts the daemon at login: the first stepback command does",
            "`stepback daemon install` sets one up where there is systemd or launchd",
        );
    };
    let again = "`stepback daemon install` writes it anew";
    let file = unit.file.display();
    if unit.state != environment.state {
        return Outcome::one(
            Severity::Note,
            format!(
                "{file} is for the state directory {}, not for this one",
                unit.state.display()
            ),
            again,
        );
    }
    let mut outcome = Outcome::fine(format!("{file}"));
    match &unit.program {
        Some(program) if !crate::environment::is_program(program) => outcome.add(
            Severity::Error,
            format!("{file} starts {}, which isn't there", program.display()),
            again,
        ),
        Some(program) if unit.own && autostart::binary(environment).as_ref() != Some(program) => outcome.add(
            Severity::Warning,
            format!(
                "{file} starts {}, which isn't the daemon that this stepback would start",
                program.display()
            ),
            again,
        ),
        _ => {}
    }
    if let DaemonFound::Runs(info) = &patient.daemon
        && cfg!(target_os = "linux")
        && !service::looks_after(info.pid)
    {
        outcome.add(
            Severity::Warning,
            format!("the daemon (pid {}) wasn't started through {file}", info.pid),
            "`stepback daemon restart`; `systemctl --user status stepbackd` says why it can't be",
        );
    }
    outcome
}
