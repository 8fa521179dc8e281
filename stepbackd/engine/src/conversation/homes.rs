//! The directories that agents keep their sessions in. Each has one that the daemon knows; people with two accounts, or
//! with settings for each project, have more of them, which hooks tell of by the transcripts that they name.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::look::real;
use super::record::Kept;
use super::{Agent, Told};

/// Where the agents keep their sessions, and where running processes can be seen. By default nothing is known.
#[derive(Debug, Clone, Default)]
pub struct Homes {
    /// The directory of each agent, as its own settings have it (`~/.claude`, `~/.codex`, ...). Not of those that keep
    /// their conversation in the project.
    pub dirs: BTreeMap<Agent, PathBuf>,
    /// `/proc`. Without it nobody can say which agents run, and nothing is put back.
    pub processes: Option<PathBuf>,
    /// What hooks told, of all roots.
    pub told: Told,
}

impl Homes {
    /// The directory that an agent's paths are relative to; `None`: it isn't used here.
    pub(crate) fn dir(&self, agent: Agent, root: &Path) -> Option<PathBuf> {
        let dir = match agent {
            Agent::Aider => root,
            other => self.dirs.get(&other)?,
        };
        // Links above an agent's directory are its user's own arrangement; below it none is followed.
        dir.canonicalize().ok()
    }

    /// The directory that a recorded session's paths are relative to.
    pub(crate) fn dir_of(&self, kept: &Kept, root: &Path) -> Option<PathBuf> {
        match &kept.home {
            Some(home) => home.0.canonicalize().ok(),
            None => self.dir(kept.id.agent, root),
        }
    }
}

/// The directory of an agent in which a transcript lies that a hook told of; `None` as long as nothing is there.
pub(super) fn other_home(
    agent: Agent,
    transcript: &Path,
) -> std::result::Result<Option<PathBuf>, &'static str> {
    let real = transcript.parent().and_then(real);
    let (Some(Ok(above)), Some(name)) = (real, transcript.file_name()) else {
        return Ok(None);
    };
    let home = agent.adapter().home_of(&above.join(name));
    let home = home.ok_or("which isn't where this agent keeps them")?;
    match home.metadata() {
        Ok(metadata) if metadata.uid() != nix::unistd::geteuid().as_raw() => {
            Err("in a directory of another user")
        }
        Ok(_) => Ok(Some(home)),
        Err(_) => Ok(None),
    }
}

/// The directory above a file and the directories of `layout`, which stand for names from the top; an empty one for any.
pub(super) fn above(file: &Path, layout: &[&str]) -> Option<PathBuf> {
    let mut at = file.parent()?;
    for wanted in layout.iter().rev() {
        if !wanted.is_empty() && at.file_name()? != OsStr::new(wanted) {
            return None;
        }
        at = at.parent()?;
    }
    Some(at.to_owned()).filter(|home| home.is_absolute() && home.parent().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agents_directory_is_known_by_where_its_transcripts_lie() {
        let of = |agent: Agent, path: &str| agent.adapter().home_of(Path::new(path));
        let is = |home: &str| Some(PathBuf::from(home));
        assert_eq!(
            of(Agent::ClaudeCode, "/h/.work/projects/-p/i.jsonl"),
            is("/h/.work")
        );
        assert_eq!(of(Agent::ClaudeCode, "/h/.work/project/-p/i.jsonl"), None);
        assert_eq!(of(Agent::ClaudeCode, "/projects/-p/i.jsonl"), None);
        assert_eq!(
            of(Agent::Codex, "/h/c/sessions/2026/11/30/rollout-i.jsonl"),
            is("/h/c")
        );
        assert_eq!(of(Agent::Codex, "/h/c/sessions/11/30/rollout-i.jsonl"), None);
        assert_eq!(of(Agent::Gemini, "/h/g/tmp/p/chats/session-i.jsonl"), is("/h/g"));
        assert_eq!(of(Agent::Qwen, "/h/q/projects/-p/chats/i.jsonl"), is("/h/q"));
        assert_eq!(
            of(Agent::Copilot, "/h/c/session-state/i/events.jsonl"),
            is("/h/c")
        );
        assert_eq!(of(Agent::Aider, "/p/.aider.chat.history.md"), None);
    }
}
