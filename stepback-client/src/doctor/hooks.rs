//! Whether the agents that are used here tell whose turn it is.

use super::{Outcome, Patient, Severity};
use crate::agents::Agent;
use crate::agents::settings::{Settings, State};

pub fn hooks(patient: &Patient<'_>) -> Outcome {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(e) => {
            return Outcome::one(
                Severity::Note,
                format!("this program's own path can't be had: {e}"),
                "hooks can't be looked at",
            );
        }
    };
    let settings = match Settings::new(&patient.app.environment, &program) {
        Ok(settings) => settings,
        Err(e) => return Outcome::one(Severity::Note, e.to_string(), "set HOME"),
    };
    let mut outcome = Outcome::default();
    let mut installed = Vec::new();
    for agent in Agent::ALL {
        let used = settings.dir(agent).is_some_and(|dir| dir.is_dir());
        match settings.state(agent) {
            Ok(State::Installed) => installed.push(agent.name()),
            Ok(State::Stale) => outcome.add(
                Severity::Warning,
                format!("the hooks of {} call a program that isn't this one", agent.name()),
                format!("`stepback hooks install {}`", agent.name()),
            ),
            Ok(State::Absent) if used => outcome.add(
                Severity::Note,
                format!("{} is used here and doesn't tell whose turn it is", agent.name()),
                format!("`stepback hooks install {}`", agent.name()),
            ),
            Ok(State::Absent | State::Impossible) => {}
            Err(e) => outcome.error(Severity::Warning, &e),
        }
    }
    outcome.fine = match installed.as_slice() {
        [] => "no agent that has hooks is used here".into(),
        agents => format!("installed for {}", agents.join(", ")),
    };
    outcome
}
