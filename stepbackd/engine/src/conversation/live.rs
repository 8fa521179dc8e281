//! Which agents run in a root, by what the system says of processes. `processes` is `/proc`.
//!
//! An agent's service in the background isn't at work in a directory, though it was started in one and stays there: only
//! what it holds open counts.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::Agent;

/// Interpreters: what they run is an argument.
const INTERPRETERS: &[&str] = &["node", "bun", "deno", "python", "npx", "npm", "pipx", "uv"];
/// So many arguments are looked at for the script.
const ARGUMENTS_MAX: usize = 6;

/// What runs as an agent's service, by an argument of it.
const SERVICE: &str = "--managed-daemon";
/// What only keeps such a service up to date.
const UPDATER: &str = "pid-update-loop";

/// The agents of which a process has its working directory in the root, with one such process; `None`: the system doesn't
/// say.
pub(super) fn agents(processes: &Path, root: &Path) -> Option<BTreeMap<Agent, u32>> {
    let mut found = BTreeMap::new();
    for pid in pids(processes)? {
        let dir = processes.join(pid.to_string());
        let Ok(cwd) = fs::read_link(dir.join("cwd")) else {
            continue;
        };
        if !super::is_within(&cwd, root) {
            continue;
        }
        if let (Some(agent), arguments) = program(&dir)
            && !has(&arguments, SERVICE)
            && !has(&arguments, UPDATER)
        {
            found.entry(agent).or_insert(pid);
        }
    }
    Some(found)
}

/// A process that holds one of `files` open; `None` when none does, or none can be seen. One that is no service comes first.
pub(super) fn holder(processes: &Path, files: &BTreeSet<PathBuf>) -> Option<u32> {
    let own = std::process::id();
    let holds = |pid: &u32| {
        let fds = fs::read_dir(processes.join(pid.to_string()).join("fd"));
        fds.into_iter()
            .flatten()
            .flatten()
            .any(|fd| fs::read_link(fd.path()).is_ok_and(|target| files.contains(&target)))
    };
    let all = pids(processes)?.into_iter();
    let holders: Vec<u32> = all.filter(|pid| *pid != own).filter(holds).collect();
    let other = holders.iter().find(|pid| !is_service(processes, **pid));
    other.or(holders.first()).copied()
}

/// Whether a process is an agent's service in the background, which outlives those who talk to it.
pub(super) fn is_service(processes: &Path, pid: u32) -> bool {
    let (agent, arguments) = program(&processes.join(pid.to_string()));
    agent.is_some() && has(&arguments, SERVICE)
}

/// Whether a process runs this agent.
pub(super) fn is_of(processes: &Path, pid: u32, agent: Agent) -> bool {
    program(&processes.join(pid.to_string())).0 == Some(agent)
}

/// The agent that a process runs, and its arguments.
fn program(dir: &Path) -> (Option<Agent>, Vec<u8>) {
    let exe = fs::read_link(dir.join("exe")).unwrap_or_default();
    let arguments = fs::read(dir.join("cmdline")).unwrap_or_default();
    (agent_of(&exe, &arguments), arguments)
}

/// When process `pid` began, in the system's own count; `None` when there is none, or only what its parent hasn't asked for.
pub(super) fn start_time(processes: &Path, pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(processes.join(pid.to_string()).join("stat")).ok()?;
    // The name stands in parentheses and may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let is_over = matches!(fields.next()?, "Z" | "X");
    fields.nth(18)?.parse().ok().filter(|_| !is_over)
}

fn has(arguments: &[u8], wanted: &str) -> bool {
    arguments
        .split(|b| *b == 0)
        .any(|argument| argument == wanted.as_bytes())
}

fn pids(processes: &Path) -> Option<Vec<u32>> {
    let entries = fs::read_dir(processes).ok()?;
    let pid = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    Some(entries.flatten().filter_map(pid).collect())
}

/// Whose process this is, by its program and the arguments that NUL bytes end.
pub(super) fn agent_of(exe: &Path, arguments: &[u8]) -> Option<Agent> {
    let arguments: Vec<&Path> = arguments
        .split(|b| *b == 0)
        .take(ARGUMENTS_MAX)
        .map(|bytes| Path::new(OsStr::from_bytes(bytes)))
        .collect();
    let is_script = stem(exe).is_some_and(|name| INTERPRETERS.iter().any(|known| name.starts_with(known)));
    let mut names: Vec<&Path> = vec![exe];
    names.extend(arguments.first());
    if is_script {
        let script = |argument: &&&Path| !argument.as_os_str().as_bytes().starts_with(b"-");
        names.extend(arguments.iter().skip(1).filter(script).take(2));
    }
    Agent::ALL.into_iter().find(|agent| {
        let programs = agent.adapter().programs();
        names.iter().any(|path| {
            let in_package = |part: &OsStr| programs.iter().any(|p| part.as_bytes() == p.as_bytes());
            let mut package = path.iter().skip_while(|part| *part != "node_modules");
            stem(path).is_some_and(|name| programs.contains(&name)) || package.any(in_package)
        })
    })
}

/// The last part of a path, without an ending that scripts have and without what `/proc` says of a replaced program.
fn stem(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_suffix(" (deleted)").unwrap_or(name);
    let ends = [".js", ".mjs", ".cjs", ".py", ".exe"];
    Some(ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(exe: &str, arguments: &[&str]) -> Option<Agent> {
        agent_of(Path::new(exe), arguments.join("\0").as_bytes())
    }

    #[test]
    fn agents_are_known_by_program_or_script() {
        let node = "/usr/bin/node";
        assert_eq!(
            agent("/opt/claude", &["claude", "-p", "x"]),
            Some(Agent::ClaudeCode)
        );
        assert_eq!(agent(node, &["node", "/usr/bin/gemini"]), Some(Agent::Gemini));
        let qwen = "/lib/node_modules/@qwen-code/qwen-code/cli.js";
        assert_eq!(agent(node, &["node", "--no-warnings", qwen]), Some(Agent::Qwen));
        assert_eq!(
            agent("/usr/bin/python3.11", &["python", "/venv/bin/aider"]),
            Some(Agent::Aider)
        );
        assert_eq!(agent("/x/codex (deleted)", &["codex"]), Some(Agent::Codex));
        assert_eq!(agent("/usr/bin/vim", &["vim", "claude"]), None);
        assert_eq!(agent(node, &["node", "server.js"]), None);
    }
}
