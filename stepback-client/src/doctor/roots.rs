//! The attached directories, as the daemon tells of them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use stepback_proto::{Item, Reply, RootState, RootStatus, Verb, Warning};

use super::{Outcome, Patient, Severity, ask, ask_within};
use crate::app::App;
use crate::error::{Error, Result};
use crate::render::count;
use crate::render::path::{one_line, shown};

/// That of warnings of the clock.
const OF_CLOCK: &str = "clock";

/// Kinds of warnings that are about the store.
const OF_STORE: &[&str] = &["store_damaged", "damaged"];

/// Kinds of warnings that nothing is wrong with.
const NOTES: &[&str] = &["session_open"];

/// The kind of the warning that a root's file system doesn't answer.
const NO_ANSWER: &str = "no_answer";

/// How long the check of a store may say nothing: the root's actor may hang, which isn't known at once.
const VERIFY_PATIENCE: Duration = Duration::from_secs(20);

/// An attached directory.
pub struct RootFound {
    path: PathBuf,
    status: Result<RootStatus>,
    /// Its store was verified, or can't be opened, which its status tells.
    verified: bool,
}

impl RootFound {
    /// The watches that it holds.
    pub fn watches(&self) -> u64 {
        self.status.as_ref().map_or(0, |status| status.watches)
    }
}

/// Asks about every root, and has its store verified.
pub fn find(app: &App) -> Vec<RootFound> {
    let mut lines = Vec::new();
    let told = ask(app, "/".as_ref(), Verb::Roots, &mut |item| {
        if let Item::Root(line) = item {
            lines.push(line);
        }
    });
    if let Err(e) = told {
        return vec![RootFound {
            path: "/".into(),
            status: Err(e),
            verified: false,
        }];
    }
    lines
        .into_iter()
        .map(|line| {
            let path = line.path.as_path().to_owned();
            let (status, verified) = look(app, &path);
            RootFound {
                path,
                status,
                verified,
            }
        })
        .collect()
}

/// Its status, and whether its store was verified.
fn look(app: &App, path: &Path) -> (Result<RootStatus>, bool) {
    let plain = match plain_status(app, path) {
        Ok(plain) => plain,
        Err(e) => return (Err(e), false),
    };
    if plain.warnings.iter().any(|warning| warning.kind == NO_ANSWER) {
        return (Ok(plain), false);
    }
    let verify = Verb::Status { verify: true };
    match ask_within(app, VERIFY_PATIENCE, path, verify, &mut |_| {}) {
        Ok(Reply::Status(status)) => (status.root.ok_or(Error::Unexpected("status")), true),
        Ok(_) => (Err(Error::Unexpected("status")), false),
        // One whose store can't be opened is verified by nobody, but has a status.
        Err(Error::Told(_)) => (Ok(plain), true),
        Err(_) => (Ok(plain), false),
    }
}

fn plain_status(app: &App, path: &Path) -> Result<RootStatus> {
    match ask(app, path, Verb::Status { verify: false }, &mut |_| {})? {
        Reply::Status(status) => status.root.ok_or(Error::Unexpected("status")),
        _ => Err(Error::Unexpected("status")),
    }
}

/// Each is watched, and nothing is left unfinished.
pub fn roots(patient: &Patient<'_>) -> Outcome {
    if let Some(unanswered) = patient.unanswered() {
        return unanswered;
    }
    let mut outcome = Outcome::fine(count(
        patient.roots.len() as u64,
        "attached directory",
        "attached directories",
    ));
    for root in &patient.roots {
        let path = shown(&root.path.clone().into());
        let status = match &root.status {
            Ok(status) => status,
            Err(e) => {
                outcome.error(Severity::Error, e);
                continue;
            }
        };
        if let Some(unfinished) = &status.unfinished {
            outcome.add(
                Severity::Error,
                format!(
                    "{path}: a {} to {} was interrupted",
                    one_line(&unfinished.operation),
                    unfinished.target
                ),
                format!("`stepback -C {path} recover` finishes it, `recover --undo` takes it back"),
            );
        }
        let lost = matches!(
            status.state,
            RootState::Failed | RootState::Missing | RootState::Replaced
        ) || status.warnings.iter().any(|warning| warning.kind == NO_ANSWER);
        let mut named = false;
        let of_others = |w: &&Warning| OF_STORE.contains(&&*w.kind) || w.kind == OF_CLOCK;
        for warning in status.warnings.iter().filter(|w| !of_others(w)) {
            let severity = severity(warning, lost && !named);
            named = true;
            outcome.add(
                severity,
                format!("{path}: {}", one_line(&warning.message)),
                hint(warning),
            );
        }
        if lost && !named {
            outcome.add(
                Severity::Error,
                format!("{path}: nothing is captured there"),
                format!("`stepback -C {path} status` says why"),
            );
        }
    }
    outcome
}

fn severity(warning: &Warning, lost: bool) -> Severity {
    if lost {
        return Severity::Error;
    }
    // A limit can be raised; a file system without events is as it is.
    let as_it_is = warning.kind == "polling" && !warning.hint.contains("sysctl");
    if as_it_is || NOTES.contains(&&*warning.kind) {
        return Severity::Note;
    }
    Severity::Warning
}

fn hint(warning: &Warning) -> String {
    if warning.hint.is_empty() {
        return "see `stepback daemon logs`".into();
    }
    one_line(&warning.hint)
}

/// Every checkpoint can be read.
pub fn stores(patient: &Patient<'_>) -> Outcome {
    if let Some(unanswered) = patient.unanswered() {
        return unanswered;
    }
    let mut outcome = Outcome::fine("verified");
    for root in &patient.roots {
        let Ok(status) = &root.status else { continue };
        if !root.verified {
            let path = shown(&root.path.clone().into());
            outcome.add(
                Severity::Warning,
                format!("{path}: its store wasn't checked: the root doesn't answer"),
                format!("`stepback -C {path} status --verify` when it does"),
            );
        }
        for warning in status.warnings.iter().filter(|w| OF_STORE.contains(&&*w.kind)) {
            let path = shown(&root.path.clone().into());
            outcome.add(
                Severity::Error,
                format!("{path}: {}", one_line(&warning.message)),
                hint(warning),
            );
        }
    }
    outcome
}

/// No checkpoint was made later than now.
pub fn clock(patient: &Patient<'_>) -> Outcome {
    if let Some(unanswered) = patient.unanswered() {
        return unanswered;
    }
    let mut outcome = Outcome::fine("no checkpoint is younger than now");
    for root in &patient.roots {
        let Ok(status) = &root.status else { continue };
        for warning in status.warnings.iter().filter(|w| w.kind == OF_CLOCK) {
            let path = shown(&root.path.clone().into());
            outcome.add(
                Severity::Warning,
                format!("{path}: {}", one_line(&warning.message)),
                hint(warning),
            );
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_mended_is_a_note() {
        let of = |kind: &str, hint: &str| Warning {
            kind: kind.into(),
            message: "m".into(),
            hint: hint.into(),
        };
        let limit = of(
            "polling",
            "raise the limit: sudo sysctl fs.inotify.max_user_watches=1",
        );
        assert_eq!(severity(&limit, false), Severity::Warning);
        assert_eq!(severity(&of("polling", "`stepback save`"), false), Severity::Note);
        assert_eq!(severity(&of("config", "x"), false), Severity::Warning);
        assert_eq!(severity(&of("root_missing", "x"), true), Severity::Error);
        assert_eq!(hint(&of("x", "")), "see `stepback daemon logs`");
    }
}
