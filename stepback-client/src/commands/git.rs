//! `stepback git`: the user's git on the store, without the means to write.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use stepback_proto::{Failure, FailureKind, Reply, Verb};

use crate::app::App;
use crate::environment;
use crate::error::{Error, Result};

/// What git is run for.
const VERBS: [&str; 11] = [
    "log",
    "show",
    "diff",
    "ls-tree",
    "cat-file",
    "archive",
    "for-each-ref",
    "fsck",
    "count-objects",
    "rev-parse",
    "grep",
];

/// Run git on the store of this directory, read-only.
///
/// For example: `stepback git -- for-each-ref`. VERB is one of log, show, diff, ls-tree, cat-file, archive,
/// for-each-ref, fsck, count-objects, rev-parse, grep; options that write files or run programs are refused.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The verb and its arguments
    #[arg(last = true, required = true, value_name = "VERB")]
    words: Vec<OsString>,
}

pub fn run(app: &App, args: &Args) -> Result<u8> {
    check(&args.words)?;
    let (_, reply) = app.collect(Verb::Status { verify: false })?;
    let Reply::Status(status) = reply else {
        return Err(Error::Unexpected("status"));
    };
    let Some(root) = status.root else {
        return Err(Error::Told(Failure {
            kind: FailureKind::NotAttached,
            message: format!("no attached directory holds {}", app.place()?.display()),
            hint: "`stepback attach` starts to watch it".into(),
        }));
    };
    let mut git = Command::new("git");
    for name in environment::git_variables() {
        git.env_remove(name);
    }
    git.env("GIT_OPTIONAL_LOCKS", "0").env("GIT_NO_LAZY_FETCH", "1");
    let mut dir = OsString::from("--git-dir=");
    dir.push(root.store.as_path());
    git.arg(dir).args(&args.words);
    Err(Error::Io {
        path: "git".into(),
        source: git.exec(),
    })
}

/// Whether this is a verb that reads, without an option that writes or runs something.
fn check(words: &[OsString]) -> Result<()> {
    let verb = words
        .first()
        .and_then(|w| w.to_str())
        .filter(|w| VERBS.contains(w));
    let Some(verb) = verb else {
        return Err(Error::usage(
            format!(
                "git {} isn't among what stepback runs on a store",
                words[0].to_string_lossy()
            ),
            format!("the verbs are {}", VERBS.join(" ")),
        ));
    };
    let refused = words[1..]
        .iter()
        .take_while(|w| *w != "--")
        .find(|w| acts(verb, w));
    match refused {
        None => Ok(()),
        Some(word) => Err(Error::usage(
            format!(
                "git {verb} {} would write a file or run a program",
                word.to_string_lossy()
            ),
            "redirect the output instead",
        )),
    }
}

/// Whether the option makes `verb` write a file or run a program. git takes an unambiguous beginning for the whole
/// option, so that a beginning is enough here, too.
fn acts(verb: &str, word: &OsStr) -> bool {
    let long: &[&str] = match verb {
        "log" | "show" | "diff" => &["--output", "--ext-diff"],
        "archive" => &["--output", "--exec", "--remote"],
        "grep" => &["--open-files-in-pager", "--ext-grep"],
        "fsck" => &["--lost-found"],
        "cat-file" => &["--filters"],
        _ => &[],
    };
    let bytes = word.as_bytes();
    if let Some(rest) = bytes.strip_prefix(b"--") {
        let name = rest.split(|b| *b == b'=').next().unwrap_or(rest);
        return !name.is_empty() && long.iter().any(|option| option.as_bytes()[2..].starts_with(name));
    }
    // A cluster of short options ends with the first one that takes a value.
    let (short, with_value): (u8, &[u8]) = match verb {
        "archive" => (b'o', b""),
        "grep" => (b'O', b"efABCm"),
        _ => return false,
    };
    match bytes.strip_prefix(b"-") {
        None => false,
        Some(cluster) => cluster
            .iter()
            .take_while(|c| !with_value.contains(c))
            .any(|c| *c == short),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(line: &str) -> bool {
        check(&line.split(' ').map(OsString::from).collect::<Vec<_>>()).is_ok()
    }

    #[test]
    fn reading_is_allowed() {
        for line in [
            "log --all --oneline",
            "log --output-indicator-new=x",
            "log --remotes --text",
            "show HEAD:--output",
            "diff --exit-code a b",
            "diff -- --output",
            "archive --format=tar x",
            "grep -eFOO x",
            "grep -n -A3 foo x",
            "fsck --connectivity-only",
            "cat-file --batch",
            "rev-parse x",
        ] {
            assert!(allowed(line), "{line}");
        }
    }

    #[test]
    fn writing_and_running_is_refused() {
        for line in [
            "gc",
            "commit",
            "-c x=y log",
            "--exec-path=/x log",
            "log --output=x",
            "log --output x",
            "diff --outp=x",
            "show --ext-diff",
            "archive -o f x",
            "archive -vof x",
            "archive --output f x",
            "archive --remote=x --exec=y x",
            "grep -O foo",
            "grep -nOvi foo",
            "grep --open foo",
            "fsck --lost-found",
            "cat-file --filters x:y",
        ] {
            assert!(!allowed(line), "{line}");
        }
    }
}
