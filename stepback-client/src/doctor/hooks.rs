//! Whether agents tell whose turn it is.

use super::{Outcome, Patient, Severity};
use crate::agents::Agent;
use crate::agents::installed::State;
use crate::agents::settings::Settings;

/// The hooks of agents that are used here are ours, and of this stepback.
pub fn hooks(patient: &Patient<'_>) -> Outcome {
    let settings = std::env::current_exe()
        .ok()
        .and_then(|program| Settings::new(&patient.app.environment, &program).ok());
    let Some(settings) = settings else {
        return Outcome::fine("not looked at: there is no home directory");
    };
    let mut outcome = Outcome::default();
    let mut installed = Vec::new();
    for agent in Agent::ALL {
        let name = agent.name();
        let remedy = format!("`stepback hooks install {name}`");
        match settings.state(agent) {
            Ok(State::Installed | State::ByHand) => installed.push(name),
            Ok(State::Stale) => outcome.add(
                Severity::Warning,
                format!("the hooks of {name} are of another stepback"),
                format!("{remedy} brings them up to date"),
            ),
            Ok(State::Absent) if settings.is_used(agent) => outcome.add(
                Severity::Note,
                format!("{name} is used here and doesn't tell whose turn it is"),
                format!("{remedy} has it tell"),
            ),
            Ok(State::Absent | State::Impossible) => {}
            Err(e) => outcome.error(Severity::Warning, &e),
        }
    }
    outcome.fine = match installed.is_empty() {
        true => "no agent that is used here lacks them".into(),
        false => format!("installed for {}", installed.join(", ")),
    };
    outcome
}
