//! Which files make an agent call us.

use std::path::{Path, PathBuf};

use super::json_hooks::Hooks;
use super::{Agent, claude_code, codex, copilot, gemini, goose, opencode, qwen};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::render::path::word;

/// A part of an agent's settings.
pub(super) enum Part {
    /// JSON with hooks in it, the user's own among them.
    Hooks(PathBuf, &'static Hooks),
    /// Codex's `notify`.
    Notify(PathBuf),
    /// A file of ours alone.
    Own(PathBuf, String),
}

/// Where agents have their things, and what their hooks are to call.
#[derive(Debug, Clone)]
pub struct Settings {
    home: PathBuf,
    claude: PathBuf,
    pub(super) codex: PathBuf,
    gemini: PathBuf,
    qwen: PathBuf,
    copilot: PathBuf,
    opencode: PathBuf,
    goose: PathBuf,
    /// Our own program.
    pub(super) program: String,
}

impl Settings {
    /// By the environment; `program` is what hooks call.
    ///
    /// # Errors
    /// Without a home directory, or when the program's path isn't UTF-8.
    pub fn new(environment: &Environment, program: &Path) -> Result<Self> {
        let lacks = |what: &str, hint: &str| Error::Environment {
            message: what.into(),
            hint: hint.into(),
        };
        let home = environment.home.clone();
        let home = home.ok_or_else(|| lacks("HOME isn't set", "agents' settings are below it"))?;
        let config_home = environment
            .config_home
            .clone()
            .unwrap_or_else(|| home.join(".config"));
        let program = program.to_str().ok_or_else(|| {
            let message = format!("{}: this path isn't UTF-8", program.display());
            lacks(
                &message,
                "agents' settings can't name it: install stepback elsewhere",
            )
        })?;
        let given = |name: &str| environment.agent_dir(name);
        Ok(Self {
            claude: given("CLAUDE_CONFIG_DIR").unwrap_or_else(|| home.join(".claude")),
            codex: given("CODEX_HOME").unwrap_or_else(|| home.join(".codex")),
            // This one stands for the home directory.
            gemini: given("GEMINI_CLI_HOME")
                .unwrap_or_else(|| home.clone())
                .join(".gemini"),
            qwen: given("QWEN_HOME").unwrap_or_else(|| home.join(".qwen")),
            copilot: given("COPILOT_HOME").unwrap_or_else(|| home.join(".copilot")),
            opencode: given("OPENCODE_CONFIG_DIR").unwrap_or_else(|| config_home.join("opencode")),
            goose: given("GOOSE_PATH_ROOT")
                .map_or_else(|| config_home.join("goose"), |root| root.join("config")),
            program: program.to_owned(),
            home,
        })
    }

    /// The directory that shows that an agent is used here.
    pub fn dir(&self, agent: Agent) -> Option<PathBuf> {
        Some(match agent {
            Agent::ClaudeCode => self.claude.clone(),
            Agent::Codex => self.codex.clone(),
            Agent::Gemini => self.gemini.clone(),
            Agent::Qwen => self.qwen.clone(),
            Agent::Copilot => self.copilot.clone(),
            Agent::Opencode => self.opencode.clone(),
            Agent::Goose => self.goose.clone(),
            Agent::Aider => return None,
        })
    }

    /// Above this no directory was made for the agent.
    pub(super) fn top(&self, agent: Agent) -> PathBuf {
        match self.dir(agent) {
            Some(dir) if agent != Agent::Goose => dir,
            _ => self.home.join(".agents"),
        }
    }

    pub(super) fn command(&self, agent: Agent) -> String {
        format!("{} hook {}", word(&self.program), agent.name())
    }

    pub(super) fn parts(&self, agent: Agent) -> Vec<Part> {
        match agent {
            Agent::ClaudeCode => vec![Part::Hooks(
                self.claude.join("settings.json"),
                &claude_code::HOOKS,
            )],
            Agent::Codex => vec![
                Part::Hooks(self.codex.join("hooks.json"), &codex::HOOKS),
                Part::Notify(self.codex.join("config.toml")),
            ],
            Agent::Gemini => vec![Part::Hooks(self.gemini.join("settings.json"), &gemini::HOOKS)],
            Agent::Qwen => vec![Part::Hooks(self.qwen.join("settings.json"), &qwen::HOOKS)],
            Agent::Copilot => {
                let text = copilot::file(&self.command(agent));
                vec![Part::Own(self.copilot.join("hooks/stepback.json"), text)]
            }
            Agent::Opencode => {
                let text = opencode::plugin(&self.program);
                vec![Part::Own(self.opencode.join("plugin/stepback.js"), text)]
            }
            Agent::Goose => {
                let dir = self.home.join(".agents/plugins/stepback");
                let command = self.command(agent);
                goose::files(&command)
                    .into_iter()
                    .map(|(name, text)| Part::Own(dir.join(name), text))
                    .collect()
            }
            Agent::Aider => Vec::new(),
        }
    }
}

impl Part {
    pub(super) fn file(&self) -> &Path {
        match self {
            Self::Hooks(file, _) | Self::Notify(file) | Self::Own(file, _) => file,
        }
    }
}
