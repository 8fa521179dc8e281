//! Whether our hooks are in agents' settings, and what those become when they are put in or taken out. Nothing is written
//! here.

use std::path::Path;

use super::Agent;
use super::change::{Change, backup, broken, holds_other, read};
use super::json_hooks;
use super::settings::{Part, Settings};
use super::take_back::take_back;
use super::toml_notify::{self, Notify};
use crate::environment::is_program;
use crate::error::Result;

/// How an agent's hooks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The agent has no hooks at all.
    Impossible,
    /// Ours aren't there, or not all of them.
    Absent,
    /// They are there, and name a program that isn't, or another one than this.
    Stale,
    /// All is there.
    Installed,
    /// All is there, by somebody's own hand.
    ByHand,
}

impl Settings {
    /// Whether the agent is used here: its directory holds something besides what we put there.
    pub fn is_used(&self, agent: Agent) -> bool {
        let Some(dir) = self.dir(agent) else {
            return false;
        };
        let parts = self.parts(agent);
        let only_ours: Vec<&Path> = parts
            .iter()
            .filter(|part| match part {
                Part::Own(..) => true,
                // Only we have ever written into it.
                Part::Hooks(file, _) | Part::Notify(file) => {
                    let ours = self.installed(agent, part, "").ok();
                    ours.is_some() && read(file).ok().flatten() == ours && !backup(file).exists()
                }
            })
            .map(Part::file)
            .collect();
        holds_other(&dir, &only_ours)
    }

    /// Whether Codex's `notify` calls a program of the user's own, which stays.
    pub fn codex_notifies_another(&self) -> bool {
        let text = read(&self.codex.join("config.toml")).ok().flatten();
        text.is_some_and(|text| toml_notify::find(&text) == Ok(Notify::Another))
    }

    /// What installing changes; nothing when all is there.
    ///
    /// # Errors
    /// A file that can't be read, or isn't what it should be: it is named, with the line.
    pub fn install(&self, agent: Agent) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        for part in self.parts(agent) {
            let file = part.file();
            let before = read(file)?;
            let after = self.installed(agent, &part, before.as_deref().unwrap_or_default())?;
            if before.as_deref() != Some(&after) {
                changes.push(Change {
                    file: file.to_owned(),
                    before,
                    after: Some(after),
                    top: self.top(agent),
                    is_back: false,
                });
            }
        }
        Ok(changes)
    }

    fn installed(&self, agent: Agent, part: &Part, text: &str) -> Result<String> {
        let result = match part {
            Part::Hooks(_, hooks) => json_hooks::add(text, hooks, agent.name(), &self.command(agent)),
            Part::Notify(_) => toml_notify::add(text, &self.program),
            Part::Own(_, own) => Ok(own.clone()),
        };
        result.map_err(|why| broken(part.file(), &why))
    }

    /// What taking out changes. A file that nobody has changed since the installation becomes what it was before, byte for
    /// byte; from another only our entries are taken.
    ///
    /// # Errors
    /// As [`Self::install`].
    pub fn uninstall(&self, agent: Agent) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        for part in self.parts(agent) {
            let file = part.file();
            let Some(before) = read(file)? else {
                continue;
            };
            let after = match &part {
                Part::Own(..) => None,
                Part::Hooks(..) | Part::Notify(_) => self.without_ours(agent, &part, &before)?,
            };
            if after.as_ref() != Some(&before) {
                changes.push(Change {
                    file: file.to_owned(),
                    before: Some(before),
                    after,
                    top: self.top(agent),
                    is_back: true,
                });
            }
        }
        Ok(changes)
    }

    fn without_ours(&self, agent: Agent, part: &Part, text: &str) -> Result<Option<String>> {
        let file = part.file();
        let old = read(&backup(file))?;
        if let Some(old) = &old
            && self.installed(agent, part, old)? == text
        {
            return Ok(Some(old.clone()));
        }
        // Only we have ever written into it.
        if self.installed(agent, part, "")? == text && !backup(file).exists() {
            return Ok(None);
        }
        let result = match part {
            Part::Hooks(..) => {
                let exact = old.and_then(|old| {
                    let ours = self.installed(agent, part, &old).ok()?;
                    take_back(&old, &ours, text)
                });
                json_hooks::remove(text, agent.name()).map(|plain| {
                    // It knows nothing of JSON: what it made has to be the same, or become it by our hooks again.
                    let is_right = |exact: &String| {
                        json_hooks::are_alike(exact, &plain)
                            || self
                                .installed(agent, part, exact)
                                .is_ok_and(|again| json_hooks::are_alike(&again, text))
                    };
                    exact.filter(is_right).unwrap_or(plain)
                })
            }
            Part::Notify(_) => toml_notify::remove(text),
            Part::Own(..) => return Ok(None),
        };
        result.map(Some).map_err(|why| broken(file, &why))
    }

    /// How the agent's hooks are.
    ///
    /// # Errors
    /// As [`Self::install`].
    pub fn state(&self, agent: Agent) -> Result<State> {
        let parts = self.parts(agent);
        if parts.is_empty() {
            return Ok(State::Impossible);
        }
        let mut any = false;
        for part in &parts {
            any |= self.has_ours(agent, part)?;
        }
        let complete = self.install(agent)?.is_empty();
        Ok(match (any, complete) {
            (false, true) => State::ByHand,
            (true, true) if is_program(Path::new(&self.program)) => State::Installed,
            (true, _) => State::Stale,
            (false, false) => State::Absent,
        })
    }

    /// How many hooks of the agent's call our program by somebody's own hand. They stay as they are.
    ///
    /// # Errors
    /// As [`Self::install`].
    pub fn by_hand(&self, agent: Agent) -> Result<usize> {
        let mut all = 0;
        for part in &self.parts(agent) {
            if let Part::Hooks(file, _) = part
                && let Some(text) = read(file)?
            {
                let found = json_hooks::find(&text, agent.name()).map_err(|why| broken(file, &why))?;
                all += found.by_hand;
            }
        }
        Ok(all)
    }

    fn has_ours(&self, agent: Agent, part: &Part) -> Result<bool> {
        let Some(text) = read(part.file())? else {
            return Ok(false);
        };
        let found = match part {
            Part::Hooks(..) => json_hooks::find(&text, agent.name()).map(|found| !found.ours.is_empty()),
            Part::Notify(_) => toml_notify::find(&text).map(|found| matches!(found, Notify::Ours(_))),
            Part::Own(..) => Ok(true),
        };
        found.map_err(|why| broken(part.file(), &why))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    use super::*;
    use crate::agents::change::write;
    use crate::environment::Environment;

    fn settings(home: &Path) -> Settings {
        let environment = Environment {
            home: Some(home.to_owned()),
            ..Environment::default()
        };
        // Whatever may be executed, but of our name.
        let program = home.join("bin/stepback");
        fs::create_dir(home.join("bin")).unwrap();
        fs::copy("/bin/true", &program).unwrap();
        Settings::new(&environment, &program).unwrap()
    }

    fn apply(changes: Vec<Change>) {
        for change in changes {
            change.apply().unwrap();
        }
    }

    fn tree(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let mut all = Vec::new();
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                all.extend(tree(&path));
            } else {
                let bytes = fs::read(&path).unwrap();
                all.push((path, bytes));
            }
        }
        all.sort();
        all
    }

    #[test]
    fn uninstalling_leaves_every_file_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let claude = dir.path().join(".claude");
        fs::create_dir_all(dir.path().join(".codex")).unwrap();
        fs::create_dir(&claude).unwrap();
        let text = "{ // mine\n\t\"model\": \"x\",   \"hooks\": {\"Stop\": []}\n}";
        let real = claude.join("real.json");
        write(&real, text).unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("real.json", claude.join("settings.json")).unwrap();
        write(&dir.path().join(".codex/config.toml"), "# mine\nmodel = 'x'\n").unwrap();
        let settings = settings(dir.path());
        let before = tree(dir.path());
        for agent in Agent::ALL {
            let possible = agent != Agent::Aider;
            let state = if possible {
                State::Absent
            } else {
                State::Impossible
            };
            assert_eq!(settings.state(agent).unwrap(), state, "{agent:?}");
            apply(settings.install(agent).unwrap());
            assert_eq!(settings.install(agent).unwrap(), [], "{agent:?}: twice is once");
            let state = if possible {
                State::Installed
            } else {
                State::Impossible
            };
            assert_eq!(settings.state(agent).unwrap(), state, "{agent:?}");
        }
        let link = fs::symlink_metadata(claude.join("settings.json")).unwrap();
        assert!(link.is_symlink());
        let mode = fs::metadata(claude.join("real.json"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o640);
        for agent in Agent::ALL {
            apply(settings.uninstall(agent).unwrap());
            assert_eq!(settings.uninstall(agent).unwrap(), []);
        }
        assert_eq!(tree(dir.path()), before);
    }

    #[test]
    fn no_directory_is_left_where_none_was_and_ours_alone_is_no_use() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        let names = || {
            let mut all: Vec<_> = fs::read_dir(dir.path())
                .unwrap()
                .map(|e| e.unwrap().file_name())
                .collect();
            all.sort();
            all
        };
        let before = names();
        for agent in Agent::ALL {
            assert!(!settings.is_used(agent), "{agent:?}: nothing is there");
            apply(settings.install(agent).unwrap());
            assert!(!settings.is_used(agent), "{agent:?}: only ours is there");
            apply(settings.uninstall(agent).unwrap());
        }
        // XDG's is the user's own.
        let after: Vec<_> = names().into_iter().filter(|name| name != ".config").collect();
        assert_eq!(after, before);
        fs::create_dir_all(dir.path().join(".copilot/hooks")).unwrap();
        assert!(!settings.is_used(Agent::Copilot), "as an earlier version left it");
        let theirs = dir.path().join(".copilot/hooks/theirs.json");
        write(&theirs, "{}").unwrap();
        assert!(settings.is_used(Agent::Copilot));
        apply(settings.install(Agent::Copilot).unwrap());
        apply(settings.uninstall(Agent::Copilot).unwrap());
        assert!(theirs.exists());
        write(&dir.path().join(".claude/settings.json"), "{}\n").unwrap();
        assert!(settings.is_used(Agent::ClaudeCode));
    }

    #[test]
    fn hooks_stand_where_the_agents_variables_say() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let environment = Environment {
            home: Some(at("home")),
            for_service: [
                "CLAUDE_CONFIG_DIR",
                "CODEX_HOME",
                "GEMINI_CLI_HOME",
                "QWEN_HOME",
                "COPILOT_HOME",
                "OPENCODE_CONFIG_DIR",
            ]
            .map(|name| (name, at(name).into()))
            .to_vec(),
            ..Environment::default()
        };
        let settings = Settings::new(&environment, &at("stepback")).unwrap();
        for (agent, file) in [
            (Agent::ClaudeCode, "CLAUDE_CONFIG_DIR/settings.json"),
            (Agent::Codex, "CODEX_HOME/hooks.json"),
            (Agent::Gemini, "GEMINI_CLI_HOME/.gemini/settings.json"),
            (Agent::Qwen, "QWEN_HOME/settings.json"),
            (Agent::Copilot, "COPILOT_HOME/hooks/stepback.json"),
            (Agent::Opencode, "OPENCODE_CONFIG_DIR/plugin/stepback.js"),
        ] {
            assert_eq!(settings.install(agent).unwrap()[0].file, at(file), "{agent:?}");
        }
    }

    #[test]
    fn what_was_changed_since_stays_changed() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        let file = dir.path().join(".gemini/settings.json");
        write(&file, "{\n  \"a\": 1\n}\n").unwrap();
        apply(settings.install(Agent::Gemini).unwrap());
        let text = fs::read_to_string(&file).unwrap().replace("\"a\": 1", "\"a\": 2");
        write(&file, &text).unwrap();
        apply(settings.uninstall(Agent::Gemini).unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "{\n  \"a\": 2\n}\n");
        assert!(!backup(&file).exists(), "of no use any more");
    }

    #[test]
    fn what_was_changed_since_keeps_the_shape_that_its_owner_gave_it() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        let file = dir.path().join(".claude/settings.json");
        for before in [
            "{\"model\":\"x\",\"b\":[1,2]}",
            "{\"hooks\":{},\"model\":\"x\"}",
            "{\n  \"model\": \"x\",\n  \"hooks\": {\n    // mine\n  }\n}\n",
            "{ \"hooks\": {\"Stop\": [ ]}, // why\n\t\"model\": \"x\" }",
        ] {
            write(&file, before).unwrap();
            apply(settings.install(Agent::ClaudeCode).unwrap());
            let edited = |text: &str| text.replace("\"x\"", "\"another\"");
            let text = fs::read_to_string(&file).unwrap();
            write(&file, &edited(&text)).unwrap();
            apply(settings.uninstall(Agent::ClaudeCode).unwrap());
            assert_eq!(fs::read_to_string(&file).unwrap(), edited(before));
            assert!(!backup(&file).exists());
        }
    }

    #[test]
    fn hooks_by_hand_are_counted_and_left() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        let file = dir.path().join(".claude/settings.json");
        apply(settings.install(Agent::ClaudeCode).unwrap());
        let ours = settings.command(Agent::ClaudeCode);
        let text = fs::read_to_string(&file).unwrap();
        let theirs = text.replace(&ours, &format!("timeout 20 {ours}"));
        write(&file, &theirs).unwrap();
        assert_eq!(settings.state(Agent::ClaudeCode).unwrap(), State::ByHand);
        assert_eq!(settings.by_hand(Agent::ClaudeCode).unwrap(), 8);
        assert_eq!(settings.install(Agent::ClaudeCode).unwrap(), []);
        assert_eq!(settings.uninstall(Agent::ClaudeCode).unwrap(), []);
        write(&file, &theirs.replacen("timeout 20 ", "", 7)).unwrap();
        assert_eq!(settings.state(Agent::ClaudeCode).unwrap(), State::Installed);
        apply(settings.uninstall(Agent::ClaudeCode).unwrap());
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.matches(&ours).count(), 1, "{text}");
    }

    #[test]
    fn a_program_that_moved_is_stale_and_installing_again_mends_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut old = settings(dir.path());
        old.program = "/no/such/stepback".into();
        apply(old.install(Agent::ClaudeCode).unwrap());
        assert_eq!(old.state(Agent::ClaudeCode).unwrap(), State::Stale);
    }

    #[test]
    fn a_broken_file_is_named_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        let file = dir.path().join(".qwen/settings.json");
        write(&file, "{\n oops\n").unwrap();
        for result in [settings.install(Agent::Qwen), settings.uninstall(Agent::Qwen)] {
            match result {
                Err(e) => assert!(e.to_string().contains(".qwen/settings.json"), "{e}"),
                Ok(changes) => assert_eq!(changes, []),
            }
        }
        assert!(settings.install(Agent::Qwen).is_err());
    }
}
