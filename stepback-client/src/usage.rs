//! A command line that isn't understood: one line, a hint and exit code 2.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};

use crate::cli::{Cli, Color};
use crate::error::Error;
use crate::render::Printer;
use crate::render::path::word;

/// Global options that take the next word.
const WITH_VALUE: [&str; 3] = ["-C", "--root", "--color"];

/// Reports what clap says about `args`; the exit code. Help and version that were asked for go to stdout.
pub fn not_understood(args: &[OsString], error: &clap::Error) -> u8 {
    let json = args.iter().take_while(|a| *a != "--").any(|a| a == "--json");
    let printer = Printer::new(json, false, Color::Auto);
    if !error.use_stderr() {
        return match printer.text(&error.to_string()) {
            Ok(()) => 0,
            Err(e) => printer.fail(&e),
        };
    }
    let path = commands(args);
    let (message, hint) = explained(args, &path, error);
    let code = printer.fail(&Error::Usage { message, hint });
    if !json && path.is_empty() && is_missing_command(error) {
        printer.question(&format!("\n{}", Cli::command().render_help()));
    }
    code
}

fn is_missing_command(error: &clap::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
    )
}

/// The one line and the hint.
fn explained(args: &[OsString], path: &[String], error: &clap::Error) -> (String, String) {
    if is_missing_command(error) {
        let hint = match path {
            [] => "`stepback COMMAND --help` says more about each of these".into(),
            path => format!(
                "`stepback {}` takes one of {}",
                path.join(" "),
                below(path).join(", ")
            ),
        };
        return ("a command is missing".into(), hint);
    }
    let (message, tip) = in_one_line(&error.to_string());
    let hint = with_dashes(args, path, error)
        .map(|line| format!("`{line}`"))
        .or(tip)
        .unwrap_or_else(|| {
            let path: String = path.iter().map(|name| format!(" {name}")).collect();
            format!("see `stepback{path} --help`")
        });
    (message, hint)
}

/// The message and the tip in clap's several lines.
fn in_one_line(text: &str) -> (String, Option<String>) {
    let mut message = String::new();
    let mut tip = None;
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        if let Some(text) = line.strip_prefix("tip: ") {
            tip = Some(text.to_owned());
        } else if line.starts_with("Usage: ") {
            break;
        } else if !line.starts_with("For more information") {
            let line = line.strip_prefix("error: ").unwrap_or(line);
            message += if message.is_empty() { "" } else { " " };
            message += line;
        }
    }
    (message, tip)
}

/// The names of the commands that the words lead to: `["daemon", "logs"]`.
fn commands(args: &[OsString]) -> Vec<String> {
    let mut command = Cli::command();
    let mut path = Vec::new();
    let mut words = args.iter().skip(1).map(|a| a.to_string_lossy());
    while let Some(word) = words.next() {
        if word == "--" {
            break;
        }
        if WITH_VALUE.contains(&&*word) {
            words.next();
        } else if let Some(found) = command.find_subcommand(&*word) {
            path.push(found.get_name().to_owned());
            command = found.clone();
        } else if !word.starts_with('-') {
            break;
        }
    }
    path
}

/// The commands below one.
fn below(path: &[String]) -> Vec<String> {
    let top = Cli::command();
    let command = path
        .iter()
        .try_fold(&top, |at, name| at.find_subcommand(name))
        .unwrap_or(&top);
    command
        .get_subcommands()
        .filter(|c| !c.is_hide_set())
        .map(Command::get_name)
        .map(str::to_owned)
        .collect()
}

/// `run ls src` as it ought to be: `stepback run -- ls src`.
fn with_dashes(args: &[OsString], path: &[String], error: &clap::Error) -> Option<String> {
    if !matches!(path, [one] if one == "run" || one == "git") || error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(first)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let words: Vec<_> = args.iter().map(|a| a.to_string_lossy()).collect();
    let at = words.iter().position(|w| w == first)?;
    if first.starts_with('-') || words.iter().any(|w| w == "--") {
        return None;
    }
    let quoted = |words: &[std::borrow::Cow<'_, str>]| -> String {
        words.iter().map(|w| format!(" {}", word(w))).collect()
    };
    Some(format!(
        "stepback{} --{}",
        quoted(&words[1..at]),
        quoted(&words[at..])
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn usage(line: &str) -> (String, String) {
        let words = line.split(' ').filter(|w| !w.is_empty());
        let args: Vec<OsString> = std::iter::once("stepback").chain(words).map(Into::into).collect();
        let error = Cli::try_parse_from(&args).unwrap_err();
        explained(&args, &commands(&args), &error)
    }

    #[test]
    fn usage_errors_are_one_line_and_a_hint() {
        for (line, message, hint) in [
            (
                "",
                "a command is missing",
                "`stepback COMMAND --help` says more about each of these",
            ),
            (
                "--color never daemon",
                "a command is missing",
                "`stepback daemon` takes one of start, stop, restart, status, logs, install, uninstall",
            ),
            (
                "-C session session",
                "a command is missing",
                "`stepback session` takes one of start, end, list, show",
            ),
            (
                "status --frob",
                "unexpected argument '--frob' found",
                "see `stepback status --help`",
            ),
            (
                "restore 7",
                "the following required arguments were not provided: --path <PATH>",
                "see `stepback restore --help`",
            ),
            (
                "log -n x",
                "invalid value 'x' for '--limit <N>': N is a whole number",
                "see `stepback list --help`",
            ),
            (
                "daemon logs x",
                "unexpected argument 'x' found",
                "see `stepback daemon logs --help`",
            ),
            (
                "run ls src",
                "unexpected argument 'ls' found",
                "`stepback run -- ls src`",
            ),
            (
                "-q run --name a ls -l",
                "unexpected argument 'ls' found",
                "`stepback -q run --name a -- ls -l`",
            ),
            (
                "git log --all",
                "unexpected argument 'log' found",
                "`stepback git -- log --all`",
            ),
        ] {
            assert_eq!(usage(line), (message.into(), hint.into()), "{line}");
        }
        let (message, hint) = usage("lst");
        assert_eq!(message, "unrecognized subcommand 'lst'");
        assert!(hint.contains("list"), "{hint}");
        assert!(!usage("attach --max-file-size 1MB").0.contains('\n'));
    }
}
