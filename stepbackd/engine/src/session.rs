//! Sessions: named spans of checkpoints. `refs/stepback/<root id>/session/<name>` points to a commit with the empty tree
//! and a [`Record`] as JSON.

use serde::{Deserialize, Serialize};

use crate::conversation::Agent;
use crate::error::{Error, Result};
use crate::oid::Oid;
use crate::record::{self, Head};
use crate::store::{ObjectWriter, Store};
use crate::time::Time;

/// The session outside of any that was opened. Has no record.
pub const WATCH: &str = "watch";

/// The most bytes of a session's name.
const NAME_BYTES_MAX: usize = 32;

/// A named span of checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Unique in its root.
    pub name: String,
    /// The command line, for `run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The process whose end ends it: pid, and when it began in clock ticks since boot (so that a reused pid isn't
    /// taken for it).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<(u32, u64)>,
    /// When it was opened.
    pub started: Time,
    /// The checkpoint at its start.
    pub start: u64,
    /// When it was ended; `None` while open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Time>,
    /// The checkpoint at its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct Record {
    #[serde(flatten)]
    head: Head,
    #[serde(flatten)]
    session: Session,
}

/// What all session refs of a root begin with.
#[must_use]
pub fn refs_prefix(root: &str) -> String {
    format!("refs/stepback/{root}/session/")
}

impl Session {
    /// Its ref.
    #[must_use]
    pub fn ref_name(&self, root: &str) -> String {
        format!("{}{}", refs_prefix(root), self.name)
    }

    /// Whether it was not ended yet.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.ended.is_none()
    }

    /// The agent that its command starts.
    #[must_use]
    pub fn agent(&self) -> Option<Agent> {
        Agent::of_command(self.command.as_deref()?)
    }

    /// Writes its record; gives the commit.
    ///
    /// # Errors
    /// Those of the store.
    pub fn write(&self, writer: &ObjectWriter<'_>, root: &str, now: Time) -> Result<Oid> {
        let record = Record {
            head: Head::of(root),
            session: self.clone(),
        };
        writer.commit(
            Oid::EMPTY_TREE,
            &record::message(&format!("session {}", self.name), &record),
            now,
        )
    }

    /// Reads the session in `commit`.
    ///
    /// # Errors
    /// [`Error::Damaged`] when it can't be read.
    pub fn load(store: &Store, commit: Oid) -> Result<Self> {
        let found = store.read_commit(commit)?;
        Ok(record::parse::<Record>(store, commit, &found.message)?.session)
    }
}

/// Checks a name that a person gave.
///
/// # Errors
/// [`Error::BadName`], whose hint is the rule.
pub fn check_name(name: &str) -> Result<()> {
    let good = name.len() <= NAME_BYTES_MAX
        && name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    if good {
        return Ok(());
    }
    Err(Error::BadName(name.to_owned()))
}

/// A name that none of `taken` is: `wanted`, else with `-2`, `-3` and so on, shortened to fit.
#[must_use]
pub fn free_name(wanted: &str, taken: &dyn Fn(&str) -> bool) -> String {
    if !taken(wanted) {
        return wanted.to_owned();
    }
    (2u64..)
        .map(|i| {
            let suffix = format!("-{i}");
            let keep = wanted.len().min(NAME_BYTES_MAX - suffix.len());
            format!("{}{suffix}", &wanted[..keep])
        })
        .find(|name| !taken(name))
        .expect("there are more numbers than sessions")
}

/// A session's name made of a command: its program's base name, in the characters that names may have.
#[must_use]
pub fn name_of_command(command: &str) -> String {
    let program = command.split_whitespace().next().unwrap_or_default();
    let base = program.rsplit('/').next().unwrap_or_default();
    let name: String = base
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' || c == '-' {
                c
            } else {
                '-'
            }
        })
        .take(NAME_BYTES_MAX)
        .collect();
    let name = name.trim_matches('-').to_owned();
    if check_name(&name).is_ok() {
        name
    } else {
        "session".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_tells_the_agent() {
        for (command, agent) in [
            ("claude --continue", Some(Agent::ClaudeCode)),
            ("'/opt/my tools/codex' exec x", None),
            ("/opt/tools/codex exec x", Some(Agent::Codex)),
            (
                "npx -y @anthropic-ai/claude-code@2.1.0 -p x",
                Some(Agent::ClaudeCode),
            ),
            ("python3 -m aider", Some(Agent::Aider)),
            ("vim claude", None),
            ("", None),
        ] {
            assert_eq!(Agent::of_command(command), agent, "{command}");
        }
    }

    #[test]
    fn names_are_checked() {
        for good in ["a", "A1", "fix-bug_2", &"x".repeat(32)] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", ".a", "a/b", "ä", "a b", "a.b", &"x".repeat(33)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_taken_name_gets_a_number_and_still_fits() {
        assert_eq!(free_name("a", &|n| n == "a" || n == "a-2"), "a-3");
        let long = "x".repeat(32);
        let free = free_name(&long, &|n| n == long);
        assert_eq!((free.len(), free.ends_with("-2")), (32, true));
    }

    #[test]
    fn a_command_gives_a_name() {
        assert_eq!(name_of_command("/usr/bin/claude --x"), "claude");
        assert_eq!(name_of_command("./run.sh"), "run-sh");
        assert_eq!(name_of_command("python3.12 -m x"), "python3-12");
        assert_eq!(name_of_command("_x"), "session");
        assert_eq!(name_of_command("'"), "session");
    }
}
