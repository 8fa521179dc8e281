//! The environment, read once. The only file that asks for variables.

use std::env;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;
use nix::unistd::{AccessFlags, access};

use crate::error::{Error, Result};

/// The variables that matter to the client.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// `STEPBACK_SOCKET`: the daemon's socket.
    pub socket: Option<PathBuf>,
    /// `STEPBACK_STATE_DIR`, else `$XDG_STATE_HOME/stepback`, else `~/.local/state/stepback`; absolute.
    pub state: PathBuf,
    /// `XDG_RUNTIME_DIR`.
    pub runtime: Option<PathBuf>,
    /// `STEPBACKD`: the daemon's binary.
    pub daemon: Option<PathBuf>,
    /// `STEPBACK_NO_AUTOSTART` is `1`.
    pub no_autostart: bool,
    /// `PWD`, what the shell believes the current directory to be.
    pub pwd: Option<PathBuf>,
    /// `GIT_PAGER`, else `PAGER`.
    pub pager: Option<OsString>,
    /// `LESS` is set, so that the pager's options are the user's own.
    pub less: bool,
    /// `LV` is set.
    pub lv: bool,
    /// `PATH`.
    pub path: Option<OsString>,
    /// `HOME`.
    pub home: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`, else `~/.config`.
    pub config_home: Option<PathBuf>,
    /// Variables that say where the daemon has its things, or agents theirs: a service has to be told them.
    pub for_service: Vec<(&'static str, OsString)>,
}

/// Of the variables above, those that may be in a shell and aren't in a service.
const FOR_SERVICE: &[&str] = &[
    "STEPBACK_STATE_DIR",
    "STEPBACK_CONFIG",
    "STEPBACK_LOG",
    "XDG_STATE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "GEMINI_CLI_HOME",
    "QWEN_HOME",
    "QWEN_RUNTIME_DIR",
    "COPILOT_HOME",
    "OPENCODE_CONFIG_DIR",
    "GOOSE_PATH_ROOT",
];

impl Environment {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// When there is no way to tell where the state directory is.
    pub fn read() -> Result<Self> {
        let absolute = |name| var(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let state = match (
            path("STEPBACK_STATE_DIR")?,
            absolute("XDG_STATE_HOME"),
            absolute("HOME"),
        ) {
            (Some(dir), _, _) => dir,
            (None, Some(base), _) => base.join("stepback"),
            (None, None, Some(home)) => home.join(".local/state/stepback"),
            (None, None, None) => {
                return Err(Error::Environment {
                    message: "HOME isn't set, so that there is no place for stepback's state".into(),
                    hint: "set HOME or STEPBACK_STATE_DIR to an absolute path".into(),
                });
            }
        };
        let home = absolute("HOME");
        Ok(Self {
            socket: path("STEPBACK_SOCKET")?,
            state,
            // The daemon passes over one that isn't its user's, too.
            runtime: absolute("XDG_RUNTIME_DIR").filter(|dir| is_ours(dir)),
            daemon: path("STEPBACKD")?,
            no_autostart: var("STEPBACK_NO_AUTOSTART").is_some_and(|v| v == "1"),
            pwd: absolute("PWD"),
            pager: env::var_os("GIT_PAGER").or_else(|| env::var_os("PAGER")),
            less: env::var_os("LESS").is_some(),
            lv: env::var_os("LV").is_some(),
            path: env::var_os("PATH"),
            config_home: absolute("XDG_CONFIG_HOME").or_else(|| Some(home.as_ref()?.join(".config"))),
            home,
            for_service: FOR_SERVICE
                .iter()
                .filter_map(|name| Some((*name, var(name)?)))
                .collect(),
        })
    }

    /// Where an agent has its things, by its own variable; relative ones are passed over.
    pub fn agent_dir(&self, variable: &str) -> Option<PathBuf> {
        let mut given = self.for_service.iter().filter(|(name, _)| *name == variable);
        given
            .next()
            .map(|(_, value)| PathBuf::from(value))
            .filter(|dir| dir.is_absolute())
    }

    /// The first program of this name in `PATH`. Relative entries are passed over.
    pub fn program(&self, name: &str) -> Option<PathBuf> {
        let path = self.path.as_ref()?;
        env::split_paths(path)
            .filter(|dir| dir.is_absolute())
            .map(|dir| dir.join(name))
            .find(|p| is_program(p))
    }
}

/// Whether `path` is a file that we may execute.
pub fn is_program(path: &Path) -> bool {
    path.is_file() && access(path, AccessFlags::X_OK).is_ok()
}

fn is_ours(dir: &Path) -> bool {
    std::fs::metadata(dir).is_ok_and(|m| m.is_dir() && m.uid() == nix::unistd::geteuid().as_raw())
}

/// Names of the variables that steer git, which it must not see: `GIT_*` but `GIT_PAGER`.
pub fn git_variables() -> Vec<OsString> {
    env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| name.as_encoded_bytes().starts_with(b"GIT_") && name != "GIT_PAGER")
        .collect()
}

/// The system's time zone. `/etc/localtime` is read by itself: to learn its name, too, takes a look at the whole data
/// base of time zones, longer than everything else that a command does.
pub fn local_zone() -> TimeZone {
    if var("TZ").is_none()
        && let Ok(bytes) = std::fs::read("/etc/localtime")
        && let Ok(zone) = TimeZone::tzif("localtime", &bytes)
    {
        return zone;
    }
    TimeZone::system()
}

/// A variable that is set and not empty.
fn var(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|v| !v.is_empty())
}

/// A variable that names a path; made absolute.
fn path(name: &str) -> Result<Option<PathBuf>> {
    var(name)
        .map(|value| {
            std::path::absolute(&value).map_err(|e| Error::Environment {
                message: format!("{name} names a relative path and there is no current directory: {e}"),
                hint: format!("set {name} to an absolute path"),
            })
        })
        .transpose()
}
