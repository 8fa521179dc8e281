//! Asking the user's git, with verbs that only read, in an environment that holds nothing but what git needs to find its
//! settings.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use super::GitEnvironment;
use super::repo::GitDir;
use super::split_index::StandIn;
use crate::error::{At, Error, Result};

/// More of what git says on stderr isn't kept, in bytes.
const STDERR_BYTES_MAX: u64 = 64 * 1024;

/// A git that says nothing for so long is ended: it may be reading settings from a FIFO or from a file system that is gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// Settings that concern what is ignored.
#[derive(Debug, Default)]
pub(super) struct Config {
    /// `core.excludesFile`, `~` replaced; may be relative to the top of the work tree.
    pub excludes_file: Option<PathBuf>,
    /// `core.ignoreCase`.
    pub ignore_case: bool,
    /// The files that git read settings from.
    pub files: Vec<PathBuf>,
}

/// Reads the settings that hold in `dir`. `None` without git.
pub(super) fn config(git: &GitEnvironment, dir: &Path) -> Result<Option<Config>> {
    let mut config = Config::default();
    let mut has_excludes = false;
    let mut origin = None;
    let answered = run(
        git,
        dir,
        &["config", "--list", "--show-origin", "-z"],
        0,
        &mut |field| {
            let Some(file) = origin.take() else {
                origin = Some(field.to_vec());
                return;
            };
            if let Some(file) = file.strip_prefix(b"file:") {
                let file = dir.join(as_path(file));
                if config.files.last() != Some(&file) {
                    config.files.push(file);
                }
            }
            let (key, value) = match field.iter().position(|byte| *byte == b'\n') {
                Some(end) => (&field[..end], Some(&field[end + 1..])),
                None => (field, None),
            };
            match key {
                b"core.excludesfile" => has_excludes = true,
                b"core.ignorecase" => config.ignore_case = is_true(value),
                _ => {}
            }
        },
    )?;
    if answered != Answer::Yes {
        return Ok(None);
    }
    if has_excludes {
        let mut value = None;
        run(
            git,
            dir,
            &["config", "-z", "--type=path", "--get", "core.excludesFile"],
            1,
            &mut |field| {
                value = Some(field.to_vec());
            },
        )
        .map_err(|error| match error {
            Error::Rules { path, why } => Error::Rules {
                path,
                why: format!("core.excludesFile: {why}"),
            },
            other => other,
        })?;
        config.excludes_file = value.map(|value| as_path(&value).to_owned());
    }
    Ok(Some(config))
}

fn is_true(value: Option<&[u8]>) -> bool {
    let Some(value) = value else { return true };
    let text = String::from_utf8_lossy(value).trim().to_ascii_lowercase();
    matches!(text.as_str(), "true" | "yes" | "on") || text.parse::<i64>().is_ok_and(|number| number != 0)
}

/// How git took a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// It answered.
    Yes,
    /// There is no git.
    NoGit,
    /// For git this is no repository.
    NotARepository,
}

/// Gives each path in the index of the repository at `dir`, relative to `dir`, and whether it is a submodule.
pub(super) fn tracked(
    git: &GitEnvironment,
    dir: &Path,
    git_dir: &GitDir,
    each: &mut dyn FnMut(&[u8], bool),
) -> Result<Answer> {
    let mut each = |field: &[u8]| {
        if let Some(tab) = field.iter().position(|byte| *byte == b'\t') {
            each(&field[tab + 1..], field.starts_with(b"160000 "));
        }
    };
    if let Some(scratch) = &git.scratch
        && let Some(stand_in) =
            StandIn::of(&git_dir.own, &git_dir.common, scratch, || object_format(git, dir))?
    {
        let path = stand_in.path().to_string_lossy().into_owned();
        let arguments = [
            "--git-dir",
            &path,
            "--work-tree",
            ".",
            "ls-files",
            "-z",
            "--stage",
        ];
        return run(git, dir, &arguments, 0, &mut each).map_err(|error| of_index(error, git_dir));
    }
    run(git, dir, &["ls-files", "-z", "--stage"], 0, &mut each).map_err(|error| of_index(error, git_dir))
}

/// What git says of an index that it can't read doesn't name the file.
fn of_index(error: Error, git_dir: &GitDir) -> Error {
    match error {
        Error::Rules { why, .. } if why.contains("index") || why.contains("bad signature") => Error::Rules {
            path: git_dir.own.join("index"),
            why,
        },
        other => other,
    }
}

/// The file that git complains of in `said`, as in `bad config line 1 in file .git/config`.
fn file_named(said: &str, dir: &Path) -> Option<PathBuf> {
    let named = said.split_once(" in file ")?.1.trim();
    Some(dir.join(named))
}

/// `sha1` or `sha256`.
fn object_format(git: &GitEnvironment, dir: &Path) -> Result<String> {
    let mut format = "sha1".to_owned();
    run(
        git,
        dir,
        &["config", "-z", "--get", "extensions.objectFormat"],
        1,
        &mut |field| {
            format = String::from_utf8_lossy(field).into_owned();
        },
    )?;
    Ok(format)
}

/// Runs git and gives each NUL-ended field of its answer. `fine`: an exit code that isn't a failure either.
fn run(
    git: &GitEnvironment,
    dir: &Path,
    arguments: &[&str],
    fine: i32,
    each: &mut dyn FnMut(&[u8]),
) -> Result<Answer> {
    let Some(program) = &git.program else {
        return Ok(Answer::NoGit);
    };
    let mut command = git.children.command(program, git.path.as_deref());
    command
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for (name, value) in [
        ("HOME", git.home.as_ref().map(|path| path.as_os_str())),
        (
            "XDG_CONFIG_HOME",
            git.config_home.as_ref().map(|path| path.as_os_str()),
        ),
        ("PATH", git.path.as_deref()),
    ] {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command
        .env("LC_ALL", "C")
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("GIT_NO_LAZY_FETCH", "1");
    command.args([
        "-c",
        "core.fsmonitor=false",
        "-c",
        "core.hooksPath=/dev/null",
        "-c",
        "safe.directory=*",
        "-C",
    ]);
    command.arg(dir).args(arguments);
    let Some((mut child, entry)) = git.children.start(&mut command, program)? else {
        return Ok(Answer::NoGit);
    };
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    // Both pipes are emptied at once: git must not wait for one while we wait for the other.
    let (done, waiting) = channel::<()>();
    let heard = AtomicU64::new(0);
    let (read, said, late) = std::thread::scope(|scope| {
        let (heard, entry) = (&heard, &entry);
        let watchdog = scope.spawn(move || {
            let mut known = 0;
            while waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let now = heard.load(Ordering::Relaxed);
                if now == known {
                    entry.kill();
                    return true;
                }
                known = now;
            }
            false
        });
        let said = scope.spawn(|| {
            let mut said = Vec::new();
            if let Some(mut stderr) = stderr {
                // What can't be read of it is missed only in a message.
                let _ = stderr.by_ref().take(STDERR_BYTES_MAX).read_to_end(&mut said);
                let _ = std::io::copy(&mut stderr, &mut std::io::sink());
            }
            said
        });
        let mut field = Vec::new();
        let mut read = Ok(());
        if let Some(stdout) = stdout {
            let mut stdout = BufReader::with_capacity(64 * 1024, stdout);
            loop {
                field.clear();
                match stdout.read_until(0, &mut field) {
                    Ok(0) => break,
                    Ok(_) => {
                        heard.fetch_add(1, Ordering::Relaxed);
                        each(field.strip_suffix(&[0]).unwrap_or(&field));
                    }
                    Err(error) => {
                        read = Err(error);
                        break;
                    }
                }
            }
        }
        let said = said.join().unwrap_or_default();
        drop(done);
        (read, said, watchdog.join().unwrap_or_default())
    });
    drop(entry);
    let status = child.wait().at(program)?;
    read.at(program)?;
    if !status.success() && git.children.have_ended() {
        return Err(Error::Cancelled);
    }
    if status.success() || status.code() == Some(fine) {
        return Ok(Answer::Yes);
    }
    let said = String::from_utf8_lossy(&said);
    if said.contains("not a git repository") {
        return Ok(Answer::NotARepository);
    }
    let why = match said.lines().next() {
        _ if late => "it took too long",
        Some(line) => line,
        None => "it said nothing",
    };
    let verb = if arguments.contains(&"ls-files") {
        "ls-files"
    } else {
        arguments[0]
    };
    Err(Error::Rules {
        path: file_named(why, dir).unwrap_or_else(|| dir.to_owned()),
        why: format!("git {verb} failed: {why}"),
    })
}

fn as_path(bytes: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}
