//! What may be wrong with an installation: a table of checks, each in a function of its own. None starts a daemon, and
//! none opens a store: what only the daemon knows it is asked.

mod daemon;
mod hooks;
mod installation;
mod places;
mod roots;

use std::time::Duration;

use stepback_proto::{DaemonInfo, FailureKind, Reply, Verb};

use crate::app::App;
use crate::connection::Probe;
use crate::error::{Error, Result};
use crate::service;

pub use roots::RootFound;

/// How long the daemon may say nothing. A check of a large store tells how far it is.
const PATIENCE: Duration = Duration::from_secs(60);

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing; all works.
    Note,
    /// Something isn't as it should be.
    Warning,
    /// Edits aren't kept, or can't be put back, until it is mended.
    Error,
}

impl Severity {
    /// As in `--json`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Something that was found, with its remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The check that found it.
    pub check: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// One sentence.
    pub message: String,
    /// What to do; never empty.
    pub hint: String,
}

/// What a check came to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What is fine, or why it wasn't looked at, for people; may be empty.
    pub fine: String,
    /// It couldn't be looked at.
    skipped: bool,
    found: Vec<(Severity, String, String)>,
}

impl Outcome {
    /// Nothing to say but that it is fine.
    fn fine(words: impl Into<String>) -> Self {
        Self {
            fine: words.into(),
            ..Self::default()
        }
    }

    /// Nothing can be said, with the reason.
    fn skipped(why: impl Into<String>) -> Self {
        Self {
            fine: why.into(),
            skipped: true,
            ..Self::default()
        }
    }

    /// One finding.
    fn one(severity: Severity, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let mut outcome = Self::default();
        outcome.add(severity, message, hint);
        outcome
    }

    fn add(&mut self, severity: Severity, message: impl Into<String>, hint: impl Into<String>) {
        self.found.push((severity, message.into(), hint.into()));
    }

    fn has_error(&self) -> bool {
        self.found
            .iter()
            .any(|(severity, ..)| *severity == Severity::Error)
    }

    fn error(&mut self, severity: Severity, error: &Error) {
        let hint = match error.hint() {
            // Whoever looks for what is wrong wants to know who takes its places.
            _ if matches!(error, Error::Told(failure) if failure.kind == FailureKind::Busy) => {
                "end clients that stay for long, or try again: `ps x | grep stepback` lists them".to_owned()
            }
            hint if hint.is_empty() => "see `stepback daemon logs`".to_owned(),
            hint => hint,
        };
        self.add(severity, error.to_string(), hint);
    }
}

/// What every check may look at.
pub struct Patient<'a> {
    app: &'a App,
    daemon: DaemonFound,
    roots: Vec<RootFound>,
}

impl Patient<'_> {
    /// The outcome of a check that only the daemon can answer, when it doesn't.
    fn unanswered(&self) -> Option<Outcome> {
        match self.daemon {
            DaemonFound::Runs(_) => None,
            _ => Some(Outcome::skipped("not looked at: no daemon answers")),
        }
    }
}

/// The daemon, as it was found.
enum DaemonFound {
    Runs(DaemonInfo),
    OfOtherProtocol(Error),
    Mute(Error),
    Absent,
}

/// A check: its name, and what looks.
type Check = (&'static str, fn(&Patient<'_>) -> Outcome);

/// The checks, in the order in which they are told. Whoever adds one adds a line here, and a word in the help.
const CHECKS: &[Check] = &[
    ("programs", installation::programs),
    ("settings", installation::settings),
    ("git", installation::git),
    ("unit", installation::unit),
    ("state", places::state),
    ("disk", places::disk),
    ("file-system", places::file_system),
    ("socket", places::socket),
    ("daemon", daemon::daemon),
    ("watches", daemon::watches),
    ("roots", roots::roots),
    ("stores", roots::stores),
    ("clock", roots::clock),
    ("hooks", hooks::hooks),
];

/// A check that was made.
pub struct Examined {
    /// Its name.
    pub check: &'static str,
    /// What is fine, or why it couldn't be looked at.
    pub words: String,
    /// It couldn't be looked at.
    pub skipped: bool,
    /// What was found.
    pub findings: Vec<Finding>,
}

/// Runs every check.
pub fn examine(app: &App) -> Vec<Examined> {
    let daemon = find_daemon(app);
    let roots = match daemon {
        DaemonFound::Runs(_) => roots::find(app),
        _ => Vec::new(),
    };
    let patient = Patient { app, daemon, roots };
    CHECKS
        .iter()
        .map(|(check, look)| {
            let outcome = look(&patient);
            let findings = outcome
                .found
                .into_iter()
                .map(|(severity, message, hint)| Finding {
                    check,
                    severity,
                    message,
                    hint,
                });
            Examined {
                check,
                words: outcome.fine,
                skipped: outcome.skipped,
                findings: findings.collect(),
            }
        })
        .collect()
}

fn find_daemon(app: &App) -> DaemonFound {
    let found = service::look(&app.endpoint, &app.environment);
    let connection = match found {
        Ok(Probe::Ready(connection)) => connection,
        Ok(Probe::WrongVersion(welcome)) => {
            return DaemonFound::OfOtherProtocol(Error::WrongVersion(welcome));
        }
        Ok(Probe::Absent) => return DaemonFound::Absent,
        Err(e) => return DaemonFound::Mute(e),
    };
    let answer = connection
        .limit(Some(PATIENCE))
        .and_then(|()| app.ask_on(connection, std::path::Path::new("/"), Verb::Ping, &mut |_| Ok(())));
    match answer {
        Ok(Reply::Daemon(info)) => DaemonFound::Runs(info),
        Ok(_) => DaemonFound::Mute(Error::Unexpected("ping")),
        // No file system stands between the daemon and this answer.
        Err(Error::Unanswered { pid, why }) => DaemonFound::Mute(Error::Silent {
            pid: Some(pid),
            why,
            noted: None,
        }),
        Err(e) => DaemonFound::Mute(e),
    }
}

/// A question to the daemon that runs.
fn ask(
    app: &App,
    place: &std::path::Path,
    verb: Verb,
    each: &mut dyn FnMut(stepback_proto::Item),
) -> Result<Reply> {
    ask_within(app, PATIENCE, place, verb, each)
}

/// Likewise, to which it may say nothing for so long.
fn ask_within(
    app: &App,
    patience: Duration,
    place: &std::path::Path,
    verb: Verb,
    each: &mut dyn FnMut(stepback_proto::Item),
) -> Result<Reply> {
    match service::look(&app.endpoint, &app.environment)? {
        Probe::Ready(connection) => {
            connection.limit(Some(patience))?;
            app.ask_on(connection, place, verb, &mut |item| {
                each(item);
                Ok(())
            })
        }
        Probe::WrongVersion(welcome) => Err(Error::WrongVersion(welcome)),
        Probe::Absent => Err(Error::Absent {
            socket: app.endpoint.socket(),
            why: "it has ended meanwhile".into(),
            hint: "see `stepback daemon logs`".into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_is_made_once() {
        let mut names: Vec<_> = CHECKS.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all, "{names:?}");
    }
}
