//! Whose turn it is: what the hooks of the agents that work in a root have told. Pure. What must outlive the daemon stands
//! in the checkpoints.

use stepback_engine::engine::TurnLabel;
use stepback_proto::{AgentLine, Drift};

use crate::process;

/// So many agents' sessions are known, the latest.
const SESSIONS_MAX: usize = 32;
/// So many tools of a turn are named.
const TOOLS_MAX: usize = 32;

/// A process: pid, and when it began.
type Process = (u32, u64);

/// The agents of one root.
#[derive(Debug, Default)]
pub struct Turns {
    /// Heard of last at the end.
    sessions: Vec<AgentSession>,
    /// Turns that are open, opened last at the end.
    open: Vec<Turn>,
    drift: Option<Drift>,
}

/// An agent's session that was heard of.
#[derive(Debug)]
struct AgentSession {
    agent: String,
    session: String,
    process: Option<Process>,
    /// Its starts of turns are told, not only the ends.
    tells_starts: bool,
}

/// A turn that has begun.
#[derive(Debug)]
pub struct Turn {
    /// What its checkpoints are labelled with.
    pub label: TurnLabel,
    /// The agent's own id of it.
    id: Option<String>,
    process: Option<Process>,
    /// Number of the checkpoint at its start; `None` when that couldn't be made.
    pub start: Option<u64>,
    /// Edits of captured files that hooks told of.
    edits: u64,
    /// Tool calls of any kind.
    calls: u64,
    /// It was begun under an earlier daemon: not all of it was heard.
    goes_on: bool,
}

impl Turns {
    /// A hook of this session was heard.
    pub fn heard(&mut self, agent: &str, session: &str, pid: Option<u32>) {
        let at = self
            .sessions
            .iter()
            .position(|s| s.agent == agent && s.session == session);
        let mut known = match at {
            Some(at) => self.sessions.remove(at),
            None => AgentSession {
                agent: agent.to_owned(),
                session: session.to_owned(),
                process: None,
                tells_starts: false,
            },
        };
        if let Some(pid) = pid {
            // One that is gone already ends its turn at the first look.
            known.process = Some((pid, process::start_time(pid).unwrap_or(0)));
        }
        self.sessions.push(known);
        let surplus = self.sessions.len().saturating_sub(SESSIONS_MAX);
        self.sessions.drain(..surplus);
    }

    /// Whether this start of a turn is told again: the agent's own id of it is that of the open one.
    pub fn is_told_again(&self, agent: &str, session: &str, id: Option<&str>) -> bool {
        id.is_some()
            && self
                .of(agent, session)
                .is_some_and(|turn| turn.id.as_deref() == id)
    }

    /// Whether this session has told of a start of a turn.
    pub fn tells_starts(&self, agent: &str, session: &str) -> bool {
        self.sessions
            .iter()
            .any(|s| s.agent == agent && s.session == session && s.tells_starts)
    }

    /// This session tells of starts.
    pub fn starts_are_told(&mut self, agent: &str, session: &str) {
        let mut all = self.sessions.iter_mut();
        if let Some(known) = all.find(|s| s.agent == agent && s.session == session) {
            known.tells_starts = true;
        }
    }

    /// A turn begins. One of the same session that is still open must have been ended before.
    pub fn begin(&mut self, label: TurnLabel, id: Option<String>) {
        self.starts_are_told(&label.agent, &label.session);
        let known = self
            .sessions
            .iter()
            .find(|s| s.agent == label.agent && s.session == label.session);
        let process = known.and_then(|known| known.process);
        self.open.push(Turn {
            label,
            id,
            process,
            start: None,
            edits: 0,
            calls: 0,
            goes_on: false,
        });
        // Of so many, the first will hardly be told the end of.
        let surplus = self.open.len().saturating_sub(SESSIONS_MAX);
        self.open.drain(..surplus);
    }

    /// The open turn of a session.
    pub fn of(&self, agent: &str, session: &str) -> Option<&Turn> {
        self.open
            .iter()
            .find(|turn| turn.label.agent == agent && turn.label.session == session)
    }

    /// The checkpoint at the start of the turn opened last.
    pub fn started_at(&mut self, n: u64) {
        if let Some(turn) = self.open.last_mut() {
            turn.start = Some(n);
        }
    }

    /// The turn opened last was begun under an earlier daemon, with that checkpoint.
    pub fn goes_on_from(&mut self, n: u64) {
        if let Some(turn) = self.open.last_mut() {
            (turn.start, turn.goes_on) = (Some(n), true);
        }
    }

    /// A tool is used in the session's open turn.
    pub fn uses(&mut self, agent: &str, session: &str, tool: &str) {
        if let Some(turn) = self.of_mut(agent, session) {
            turn.calls += 1;
            let tools = &mut turn.label.tools;
            if tools.len() < TOOLS_MAX && !tools.iter().any(|known| known == tool) {
                tools.push(tool.to_owned());
            }
        }
    }

    /// A tool of the session's open turn has edited so many captured files.
    pub fn edited(&mut self, agent: &str, session: &str, files: u64) {
        if let Some(turn) = self.of_mut(agent, session) {
            turn.edits += files;
        }
    }

    fn of_mut(&mut self, agent: &str, session: &str) -> Option<&mut Turn> {
        self.open
            .iter_mut()
            .find(|turn| turn.label.agent == agent && turn.label.session == session)
    }

    /// The session's open turn is over.
    pub fn end(&mut self, agent: &str, session: &str) -> Option<Turn> {
        let at = self
            .open
            .iter()
            .position(|turn| turn.label.agent == agent && turn.label.session == session)?;
        Some(self.open.remove(at))
    }

    /// What a checkpoint of now is labelled with: the open turn, if just one is open. Of several nobody can say whose work
    /// it is.
    pub fn label(&self) -> Option<TurnLabel> {
        match self.open.as_slice() {
            [turn] => Some(turn.label.clone()),
            _ => None,
        }
    }

    /// A turn ended, in which checkpoints changed so many files. Edits without a change, and changes without any call, are
    /// remembered; but nothing is said of changes while another turn was open, which may have made them.
    pub fn compare(&mut self, turn: &Turn, captured: u64) {
        let unseen = turn.edits > 0 && captured == 0;
        let untold = turn.calls == 0 && !turn.goes_on && captured > 0 && self.open.is_empty();
        if unseen || untold {
            let drift = self.drift.get_or_insert(Drift {
                tool_calls: 0,
                captured: 0,
            });
            drift.tool_calls += turn.edits;
            drift.captured += captured;
        }
    }

    /// What hooks and checkpoints don't agree on since the daemon's start.
    pub const fn drift(&self) -> Option<Drift> {
        self.drift
    }

    /// Those whose process is gone: their turns have ended.
    pub fn of_the_gone(&self) -> Vec<(String, String)> {
        let gone = |turn: &&Turn| {
            turn.process
                .is_some_and(|(pid, start)| !process::is_alive(pid, start))
        };
        self.open
            .iter()
            .filter(gone)
            .map(|turn| (turn.label.agent.clone(), turn.label.session.clone()))
            .collect()
    }

    /// Whether a turn is open that ends when its process does.
    pub fn has_processes(&self) -> bool {
        self.open.iter().any(|turn| turn.process.is_some())
    }

    /// The sessions that were heard of, the latest first.
    pub fn agents(&self) -> Vec<AgentLine> {
        let line = |s: &AgentSession| AgentLine {
            agent: s.agent.clone(),
            session: s.session.clone(),
            live: s
                .process
                .is_some_and(|(pid, start)| process::is_alive(pid, start)),
        };
        self.sessions.iter().rev().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(agent: &str, session: &str, turn: u64) -> TurnLabel {
        TurnLabel {
            agent: agent.into(),
            session: session.into(),
            turn,
            prompt: None,
            tools: Vec::new(),
        }
    }

    fn begun(turns: &mut Turns, agent: &str, session: &str) {
        turns.heard(agent, session, None);
        turns.begin(label(agent, session, 1), Some("id".into()));
    }

    #[test]
    fn a_checkpoint_is_labelled_only_when_it_is_clear_whose_it_is() {
        let mut turns = Turns::default();
        assert_eq!(turns.label(), None);
        begun(&mut turns, "codex", "a");
        assert_eq!(turns.label().map(|l| l.agent), Some("codex".into()));
        begun(&mut turns, "codex", "b");
        assert_eq!(turns.label(), None);
        assert!(turns.end("codex", "a").is_some() && turns.end("codex", "a").is_none());
        assert_eq!(turns.label().map(|l| l.session), Some("b".into()));
    }

    #[test]
    fn a_turn_told_twice_is_one() {
        let mut turns = Turns::default();
        begun(&mut turns, "qwen", "a");
        assert!(turns.is_told_again("qwen", "a", Some("id")));
        assert!(!turns.is_told_again("qwen", "a", Some("another")));
        assert!(!turns.is_told_again("qwen", "a", None));
        assert!(!turns.is_told_again("qwen", "b", Some("id")));
    }

    #[test]
    fn tools_are_named_once_and_not_without_end() {
        let mut turns = Turns::default();
        begun(&mut turns, "codex", "a");
        for n in 0..100 {
            turns.uses("codex", "a", "Bash");
            turns.uses("codex", "a", &format!("tool {n}"));
        }
        let tools = turns.label().unwrap().tools;
        assert_eq!((tools.len(), tools[0].as_str()), (TOOLS_MAX, "Bash"));
    }

    #[test]
    fn turns_that_nobody_ends_are_bounded() {
        let mut turns = Turns::default();
        for n in 0..100 {
            begun(&mut turns, "codex", &n.to_string());
        }
        assert_eq!(turns.open.len(), SESSIONS_MAX);
        assert!(turns.end("codex", "99").is_some() && turns.end("codex", "0").is_none());
    }

    #[test]
    fn only_a_disagreement_is_drift() {
        // Edits told, calls told, files captured; whether they disagree.
        for (edits, calls, captured, drifts) in [
            (0, 0, 0, false),
            (2, 2, 2, false),
            (0, 1, 3, false),
            (2, 2, 0, true),
            (0, 0, 3, true),
        ] {
            let mut turns = Turns::default();
            begun(&mut turns, "codex", "a");
            for _ in 0..calls {
                turns.uses("codex", "a", "x");
            }
            turns.edited("codex", "a", edits);
            let turn = turns.end("codex", "a").unwrap();
            turns.compare(&turn, captured);
            let expected = drifts.then_some(Drift {
                tool_calls: edits,
                captured,
            });
            assert_eq!(turns.drift(), expected, "{edits} {calls} {captured}");
        }
    }

    #[test]
    fn the_sessions_heard_of_are_bounded_and_the_latest_come_first() {
        let mut turns = Turns::default();
        for n in 0..100 {
            turns.heard("codex", &n.to_string(), Some(std::process::id()));
        }
        turns.heard("codex", "90", None);
        let agents = turns.agents();
        assert_eq!(agents.len(), SESSIONS_MAX);
        assert_eq!((agents[0].session.as_str(), agents[0].live), ("90", true));
        assert_eq!(agents[1].session, "99");
    }

    #[test]
    fn a_turn_whose_process_is_gone_is_found() {
        let mut turns = Turns::default();
        turns.heard("codex", "a", Some(std::process::id()));
        turns.begin(label("codex", "a", 1), None);
        assert!(turns.has_processes() && turns.of_the_gone().is_empty());
        turns.open[0].process = Some((std::process::id(), 1));
        assert_eq!(turns.of_the_gone(), [("codex".to_owned(), "a".to_owned())]);
    }
}
