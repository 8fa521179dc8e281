//! The daemon, and what it takes of the system.

use std::fs;

use super::{DaemonFound, Outcome, Patient, Severity, places};
use crate::process;
use crate::render::grouped;
use crate::render::path::one_line;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The watches of a user that may be in use before it is told, in percent.
const WATCHES_PERCENT_MAX: u64 = 80;

/// One runs, answers, and is of our version.
pub fn daemon(patient: &Patient<'_>) -> Outcome {
    let mut outcome = Outcome::default();
    let recorded = patient.app.endpoint.recorded_pid();
    match &patient.daemon {
        DaemonFound::Runs(info) if info.version == VERSION => {
            outcome.fine = format!("pid {}, version {}", info.pid, one_line(&info.version));
        }
        DaemonFound::Runs(info) => outcome.add(
            Severity::Warning,
            format!(
                "the daemon (pid {}) is version {}, stepback is version {VERSION}",
                info.pid,
                one_line(&info.version)
            ),
            "`stepback daemon restart` starts the one that belongs to it",
        ),
        DaemonFound::OfOtherProtocol(e) | DaemonFound::Mute(e) => outcome.error(Severity::Error, e),
        DaemonFound::Absent if recorded.is_some_and(process::is_daemon) => outcome.add(
            Severity::Error,
            format!(
                "the daemon (pid {}) runs, but can't be reached",
                recorded.unwrap_or(0)
            ),
            "`stepback daemon start` has it listen again",
        ),
        DaemonFound::Absent if is_blocked(patient) => outcome.add(
            Severity::Error,
            "no daemon runs, and none can start: edits aren't captured",
            "mend what `state` and `socket` tell first; `stepback daemon start` then starts it",
        ),
        DaemonFound::Absent => outcome.add(
            Severity::Warning,
            "no daemon runs: edits aren't captured until one does",
            "`stepback daemon start` starts it, `stepback daemon install` at each login",
        ),
    }
    outcome
}

/// Whether something is wrong with its places that keeps a daemon from starting.
fn is_blocked(patient: &Patient<'_>) -> bool {
    [places::state, places::socket]
        .iter()
        .any(|look| look(patient).has_error())
}

/// There are watches left.
pub fn watches(patient: &Patient<'_>) -> Outcome {
    if let Some(unanswered) = patient.unanswered() {
        return unanswered;
    }
    let used: u64 = patient.roots.iter().map(|root| root.watches()).sum();
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_user_watches")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok());
    let Some(limit) = limit else {
        return Outcome::fine(format!("{} in use", grouped(used)));
    };
    let message = format!("{} of {} in use", grouped(used), grouped(limit));
    if used.saturating_mul(100) > limit.saturating_mul(WATCHES_PERCENT_MAX) {
        return Outcome::one(
            Severity::Warning,
            format!("{message}: further directories will be looked at now and then instead"),
            format!(
                "raise the limit: sudo sysctl fs.inotify.max_user_watches={}",
                limit.saturating_mul(4)
            ),
        );
    }
    Outcome::fine(message)
}
