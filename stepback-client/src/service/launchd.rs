//! launchd: one agent of the user's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Before, Installed, WORK_TIMEOUT, call, is_ours, text, variables, write};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::whole;

const LABEL: &str = "stepbackd";

const AGENT_TEXT: &str = include_str!("../../../launchd/stepbackd.plist");

/// What a comment begins and ends with.
const COMMENT: [&str; 2] = ["<!-- ", " -->"];

/// What the template has in place of the program.
const PROGRAM: &str = "@BINDIR@/stepbackd";

pub fn installed(environment: &Environment) -> Option<Installed> {
    let file = file(environment)?;
    let text = fs::read_to_string(&file).ok()?;
    let state = value(&text, "STEPBACK_STATE_DIR")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(value(&text, "XDG_STATE_HOME")?).join("stepback")))
        .or_else(|| Some(environment.home.as_ref()?.join(".local/state/stepback")))?;
    let program = text
        .split("<array>")
        .nth(1)
        .and_then(first_string)
        .map(PathBuf::from);
    Some(Installed {
        file,
        own: true,
        state,
        program,
    })
}

pub fn put(environment: &Environment, binary: &Path) -> Result<Before> {
    let file = file(environment).ok_or_else(|| Error::Environment {
        message: "HOME isn't set, so that there is no place for a launchd agent".into(),
        hint: "set HOME".into(),
    })?;
    let text = agent_text(environment, binary)?;
    write(&[(file, text)], COMMENT)
}

/// Takes back what [`put`] and [`enable`] have done to the file.
pub fn take_back(environment: &Environment, before: &Before) -> Result<()> {
    if before.was_empty() {
        return remove(environment);
    }
    before.back()
}

pub fn enable(environment: &Environment) -> Result<()> {
    let Some(file) = file(environment) else {
        return Ok(());
    };
    // One that is loaded already would be refused.
    let _ = launchctl(environment, &["bootout", &target()], WORK_TIMEOUT);
    launchctl(environment, &["bootstrap", &domain(), text(&file)?], WORK_TIMEOUT).map_err(|e| {
        Error::Environment {
            message: format!("`launchctl bootstrap` failed: {e}"),
            hint: "nothing was installed; see `launchctl print`".into(),
        }
    })
}

pub fn start(environment: &Environment, limit: Duration) -> io::Result<()> {
    launchctl(environment, &["kickstart", &target()], limit)
}

pub fn remove(environment: &Environment) -> Result<()> {
    // One that isn't loaded needs no unloading.
    let _ = launchctl(environment, &["bootout", &target()], WORK_TIMEOUT);
    match file(environment) {
        Some(file) if !fs::read_to_string(&file).is_ok_and(|text| !is_ours(&text, COMMENT)) => {
            whole::remove(&file)
        }
        _ => Ok(()),
    }
}

fn agent_text(environment: &Environment, binary: &Path) -> Result<String> {
    let pairs: String = variables(environment)?
        .iter()
        .map(|(name, value)| {
            let (name, value) = (escaped(name), escaped(value));
            format!("        <key>{name}</key>\n        <string>{value}</string>\n")
        })
        .collect();
    let agent = AGENT_TEXT.replace(PROGRAM, &escaped(text(binary)?));
    if pairs.is_empty() {
        return Ok(agent);
    }
    let variables = format!("    <key>EnvironmentVariables</key>\n    <dict>\n{pairs}    </dict>\n");
    Ok(agent.replace("</dict>\n</plist>", &format!("{variables}</dict>\n</plist>")))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// The string behind a key of an agent that [`agent_text`] made.
fn value(agent: &str, key: &str) -> Option<String> {
    first_string(agent.split(&format!("<key>{key}</key>")).nth(1)?)
}

fn first_string(text: &str) -> Option<String> {
    let inner = text.split("<string>").nth(1)?.split("</string>").next()?;
    Some(
        inner
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&amp;", "&"),
    )
}

fn file(environment: &Environment) -> Option<PathBuf> {
    let home = environment.home.as_ref()?;
    Some(home.join("Library/LaunchAgents").join(format!("{LABEL}.plist")))
}

/// The user's graphical login, which is where agents live.
fn domain() -> String {
    format!("gui/{}", nix::unistd::geteuid())
}

fn target() -> String {
    format!("{}/{LABEL}", domain())
}

fn launchctl(environment: &Environment, args: &[&str], limit: Duration) -> io::Result<()> {
    let program = environment
        .program("launchctl")
        .ok_or_else(|| io::Error::other("launchctl is not in PATH"))?;
    call(&program, args, limit).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_is_a_property_list_with_what_was_asked() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment {
            home: Some(dir.path().to_owned()),
            for_service: vec![("STEPBACK_STATE_DIR", "/s/<&>".into())],
            ..Environment::default()
        };
        let binary = Path::new("/opt/a & b/stepbackd");
        assert!(put(&environment, binary).unwrap().is_changed());
        let again = put(&environment, binary).unwrap();
        assert!(!again.is_changed(), "nothing is new");
        let there = installed(&environment).unwrap();
        assert_eq!(there.program.as_deref(), Some(binary));
        assert_eq!(there.state, Path::new("/s/<&>"));
        let agent: plist::Value = plist::from_file(&there.file).unwrap();
        let agent = agent.as_dictionary().unwrap();
        let arguments = agent["ProgramArguments"].as_array().unwrap();
        assert_eq!(arguments[0].as_string(), binary.to_str());
        assert_eq!(arguments[1].as_string(), Some("--foreground"));
        assert_eq!(
            agent["EnvironmentVariables"].as_dictionary().unwrap()["STEPBACK_STATE_DIR"].as_string(),
            Some("/s/<&>")
        );
        assert_eq!(agent["Umask"].as_unsigned_integer(), Some(0o077));
        whole::remove(&there.file).unwrap();
        assert_eq!(installed(&environment), None);
    }
}
