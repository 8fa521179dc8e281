//! The environment that the daemon lives in: only what it has a use for, whoever starts it.

use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use stepback_engine::conversation::{Agent, Homes, Told};
use stepback_engine::engine::Environment;
use stepback_engine::rules::GitEnvironment;

use crate::error::{At, Result};
use crate::paths::Paths;

const KEPT: &[&str] = &[
    "HOME",
    "USER",
    "LOGNAME",
    "PATH",
    "SHELL",
    "LANG",
    "TZ",
    "TMPDIR",
    "NOTIFY_SOCKET",
    // Where agents keep their transcripts.
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "GEMINI_CLI_HOME",
    "QWEN_HOME",
    "COPILOT_HOME",
    "QWEN_RUNTIME_DIR",
    "OPENCODE_CONFIG_DIR",
    "GOOSE_PATH_ROOT",
];

const KEPT_PREFIXES: &[&str] = &["LC_", "XDG_", "STEPBACK", "WATCHDOG_", "LISTEN_"];

/// Whether the daemon keeps this variable. Nothing that steers git, the loader or a language's runtime is kept.
pub fn keeps(name: &OsStr) -> bool {
    let name = name.as_bytes();
    KEPT.iter().any(|kept| kept.as_bytes() == name)
        || KEPT_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix.as_bytes()))
}

/// Starts this program over with nothing but the variables that are kept, in `/`. The process stays the same, so do its
/// open descriptors (a socket that systemd passed). Returns when there is nothing to take away.
///
/// # Errors
/// When the program can't be executed again.
pub fn scrub() -> Result<()> {
    let root = std::env::current_dir().is_ok_and(|dir| dir.as_os_str() == "/");
    if root && std::env::vars_os().all(|(name, _)| keeps(&name)) {
        return Ok(());
    }
    // By its name, not by /proc/self/exe, so that process lists and an upgrade in place show the real path.
    let program = std::env::current_exe().at("/proc/self/exe")?;
    let error = Command::new(&program)
        .args(std::env::args_os().skip(1))
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| keeps(name)))
        .current_dir("/")
        .exec();
    Err(error).at(program)
}

/// Closes what was left open by whoever started us (a lock of a shell's, a pipe of an agent's), but for the standard
/// streams and the sockets that systemd passes. To be called before anything is opened.
pub fn close_inherited(lookup: impl Fn(&str) -> Option<OsString>) {
    let number = |name| lookup(name).and_then(|text| text.into_string().ok()?.parse::<u32>().ok());
    let ours = number("LISTEN_PID") == Some(std::process::id());
    let passed = number("LISTEN_FDS")
        .filter(|_| ours)
        .and_then(|n| RawFd::try_from(n).ok())
        .unwrap_or(0);
    let open: Vec<RawFd> = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open.into_iter().filter(|fd| *fd > 2 + passed) {
        // The descriptor of the listing itself is closed by now.
        let _ = nix::unistd::close(fd);
    }
}

/// Takes as many file descriptors as the system allows: each root and each connection needs some. Nothing here uses
/// `select`, which can't count beyond 1,024.
pub fn raise_descriptor_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // With fewer it works, too, only for fewer.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// What the engine may know of the world, from the environment as `lookup` gives it.
pub fn for_engine(paths: &Paths, lookup: impl Fn(&str) -> Option<OsString>) -> Environment {
    let absolute = |name: &str| lookup(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let path = lookup("PATH");
    let program = path.as_deref().and_then(|path| find_program("git", path));
    Environment {
        state_dir: paths.state.clone(),
        runtime_dir: paths.runtime_dir(),
        git: GitEnvironment {
            program,
            home: absolute("HOME"),
            config_home: absolute("XDG_CONFIG_HOME"),
            path,
            children: Default::default(),
            scratch: Some(paths.state.join("scratch")),
        },
        conversations: homes(absolute),
    }
}

/// Where the agents keep their sessions: as each finds it out itself.
fn homes(absolute: impl Fn(&str) -> Option<PathBuf>) -> Homes {
    let home = absolute("HOME");
    let below = |name: &str| home.as_ref().map(|home| home.join(name));
    let data = |name: &str| {
        let data = absolute("XDG_DATA_HOME").or_else(|| below(".local/share"))?;
        Some(data.join(name))
    };
    let within = |variable: &str, name: &str| absolute(variable).map(|dir| dir.join(name));
    let dirs = [
        (
            Agent::ClaudeCode,
            absolute("CLAUDE_CONFIG_DIR").or_else(|| below(".claude")),
        ),
        (Agent::Codex, absolute("CODEX_HOME").or_else(|| below(".codex"))),
        (
            Agent::Gemini,
            within("GEMINI_CLI_HOME", ".gemini").or_else(|| below(".gemini")),
        ),
        (
            Agent::Qwen,
            absolute("QWEN_RUNTIME_DIR")
                .or_else(|| absolute("QWEN_HOME"))
                .or_else(|| below(".qwen")),
        ),
        (
            Agent::Copilot,
            absolute("COPILOT_HOME").or_else(|| below(".copilot")),
        ),
        (Agent::Opencode, data("opencode")),
        (
            Agent::Goose,
            within("GOOSE_PATH_ROOT", "data").or_else(|| data("goose")),
        ),
    ];
    let processes = Path::new("/proc");
    Homes {
        dirs: dirs
            .into_iter()
            .filter_map(|(agent, dir)| Some((agent, dir?)))
            .collect(),
        processes: processes.join("self").exists().then(|| processes.to_owned()),
        told: Told::default(),
    }
}

fn find_program(name: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .find(|program| {
            std::fs::metadata(program).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_git_goes_and_what_we_need_stays() {
        for kept in [
            "HOME",
            "PATH",
            "LC_ALL",
            "XDG_RUNTIME_DIR",
            "STEPBACK_LOG",
            "LISTEN_FDS",
            "CODEX_HOME",
        ] {
            assert!(keeps(OsStr::new(kept)), "{kept}");
        }
        for gone in [
            "GIT_DIR",
            "GIT_PAGER",
            "LD_PRELOAD",
            "PWD",
            "HOMEX",
            "RUST_LOG",
            "PATHX",
            "STEP",
        ] {
            assert!(!keeps(OsStr::new(gone)), "{gone}");
        }
    }

    #[test]
    fn agents_directories_are_where_their_own_variables_say() {
        let dir_of = |agent: Agent, variables: &[(&str, &str)]| {
            let lookup = |name: &str| {
                let all = variables.iter().chain(&[("HOME", "/h")]);
                all.clone()
                    .find(|(known, _)| *known == name)
                    .map(|(_, value)| PathBuf::from(value))
            };
            homes(lookup).dirs.get(&agent).cloned()
        };
        for (agent, variables, dir) in [
            (Agent::ClaudeCode, &[][..], "/h/.claude"),
            (Agent::ClaudeCode, &[("CLAUDE_CONFIG_DIR", "/c")], "/c"),
            (Agent::Codex, &[], "/h/.codex"),
            (Agent::Codex, &[("CODEX_HOME", "/c")], "/c"),
            (Agent::Gemini, &[], "/h/.gemini"),
            (Agent::Gemini, &[("GEMINI_CLI_HOME", "/g")], "/g/.gemini"),
            (Agent::Qwen, &[], "/h/.qwen"),
            (Agent::Qwen, &[("QWEN_HOME", "/q")], "/q"),
            (
                Agent::Qwen,
                &[("QWEN_HOME", "/q"), ("QWEN_RUNTIME_DIR", "/r")],
                "/r",
            ),
            (Agent::Copilot, &[], "/h/.copilot"),
            (Agent::Copilot, &[("COPILOT_HOME", "/c")], "/c"),
            (Agent::Opencode, &[], "/h/.local/share/opencode"),
            (Agent::Opencode, &[("XDG_DATA_HOME", "/d")], "/d/opencode"),
            (Agent::Goose, &[], "/h/.local/share/goose"),
            (Agent::Goose, &[("XDG_DATA_HOME", "/d")], "/d/goose"),
            (Agent::Goose, &[("GOOSE_PATH_ROOT", "/g")], "/g/data"),
        ] {
            assert_eq!(
                dir_of(agent, variables),
                Some(PathBuf::from(dir)),
                "{variables:?}"
            );
            for (name, _) in variables {
                assert!(keeps(OsStr::new(name)), "{name} gets to the daemon");
            }
        }
        assert_eq!(homes(|_| None).dirs.get(&Agent::Codex), None);
    }

    #[test]
    fn git_is_found_in_absolute_directories_only() {
        let dir = tempfile::tempdir().unwrap();
        let git = dir.path().join("git");
        std::fs::write(&git, "").unwrap();
        let path = std::env::join_paths([PathBuf::from("."), dir.path().to_owned()]).unwrap();
        assert_eq!(find_program("git", &path), None);
        std::fs::set_permissions(&git, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(find_program("git", &path), Some(git));
    }
}
