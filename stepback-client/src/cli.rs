//! The command line: global options and the list of commands. Each command's own options stand in its file.

use std::path::PathBuf;

use clap::{ArgAction, Parser, Subcommand, ValueEnum, ValueHint};

use crate::commands::{
    attach, completions, daemon, detach, diff, drop, export, forget, git, hook, hooks, list, man, pin, prune,
    recover, redo, restore, rewind, run, save, session, show, status,
};

/// Where the help lists the options that every command has.
const GLOBAL: &str = "Global options";

/// Checkpoints of whole project directories, taken as edits settle, and put back exactly.
///
/// Once a directory is attached, every burst of edits becomes a checkpoint, whatever made the edits. `stepback list`
/// shows them, `stepback rewind` puts the directory back, `stepback redo` takes even that back. Nothing is written
/// into the project but by rewind, restore, redo, recover and a session's revert.
///
/// An ID is a number (7), latest, first, ~2 (two before the latest), @10m (the newest that is at least 10 minutes old;
/// s, m, h, d), @2026-11-29T14:05, session:NAME (its start), or turn:N (the start of an agent's turn).
///
/// Exit codes: 0 done, 1 failed and nothing changed unless it says so, 2 bad usage, 3 done but for the paths that are
/// named as kept; of `run`, the command's own, 126 and 127.
#[derive(Debug, Parser)]
#[command(name = "stepback", version, max_term_width = 100, propagate_version = false)]
pub struct Cli {
    /// Act on the root that holds PATH, rather than the current directory
    #[arg(short = 'C', long = "root", value_name = "PATH", value_hint = ValueHint::DirPath, global = true, help_heading = GLOBAL)]
    pub root: Option<PathBuf>,

    /// Print JSON, also for errors
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub json: bool,

    /// When to colour what people read
    #[arg(long, value_name = "WHEN", global = true, help_heading = GLOBAL, default_value = "auto")]
    pub color: Color,

    /// Print no notes, hints or progress; errors and data still come
    #[arg(short = 'q', long, global = true, help_heading = GLOBAL, action = ArgAction::SetTrue)]
    pub quiet: bool,

    #[command(subcommand)]
    pub command: Command,
}

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Also into files and pipes
    Always,
    /// Not at all
    Never,
}

/// What to do. The help of a command that has options stands with them.
#[derive(Debug, Subcommand)]
pub enum Command {
    Attach(attach::Args),
    Detach(detach::Args),
    /// List all attached directories
    Roots,
    Status(status::Args),
    Save(save::Args),
    #[command(visible_alias = "log")]
    List(list::Args),
    Show(show::Args),
    Diff(diff::Args),
    Rewind(rewind::Args),
    Restore(restore::Args),
    Redo(redo::Args),
    Recover(recover::Args),
    Run(run::Args),
    /// Name a span of checkpoints
    #[command(subcommand)]
    Session(session::Session),
    /// Keep a checkpoint for ever
    Pin(pin::Args),
    /// No longer keep a checkpoint for ever
    Unpin(pin::Args),
    Drop(drop::Args),
    Prune(prune::Args),
    Forget(forget::Args),
    /// Follow checkpoints and state changes as they come
    Watch,
    Export(export::Args),
    /// Start, stop and ask the daemon
    #[command(subcommand)]
    Daemon(daemon::Daemon),
    /// Check the installation; exit code 1 when something needs attention
    ///
    /// Looks at the programs, the settings, the service, the state directory and its disk, the socket, the daemon, its
    /// watches, each attached directory and its store, the clock, and agents' hooks. Names a remedy for whatever it finds. Starts no
    /// daemon.
    Doctor,
    Completions(completions::Args),
    Git(git::Args),
    Hook(hook::Args),
    #[command(subcommand)]
    Hooks(hooks::Hooks),
    #[command(hide = true)]
    Man(man::Args),
}

impl Command {
    /// Whether it tells or mends what is wrong with the daemon: then one that hangs isn't waited for long.
    pub const fn is_about_the_daemon(&self) -> bool {
        matches!(self, Self::Status(_) | Self::Daemon(_) | Self::Doctor)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(args: &[&str]) -> Cli {
        Cli::try_parse_from([&["stepback"], args].concat()).unwrap_or_else(|e| panic!("{args:?}: {e}"))
    }

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_options_stand_before_or_after_the_command() {
        for args in [
            &["-q", "--json", "-C", "x", "status"],
            &["status", "-q", "--json", "-C", "x"],
        ] {
            let cli = parse(args);
            assert!(cli.json && cli.quiet && cli.root == Some("x".into()));
        }
        assert!(parse(&["session", "list", "--json"]).json);
        assert_eq!(parse(&["daemon", "status", "--root=y"]).root, Some("y".into()));
    }

    #[test]
    fn every_form_of_the_contract_is_taken() {
        for line in [
            "attach . --here --include *.log --include x --max-file-size 10MiB --force --new -y",
            "detach p --forget -y",
            "roots",
            "status --verify",
            "save -m label --pin",
            "list -n 5 --session s --path p",
            "log --all",
            "log -f",
            "show 7:a",
            "diff",
            "diff 1 2 --stat -- a b",
            "diff 1 -w --name-status",
            "diff -- -x",
            "rewind -n",
            "rewind ~2 -y --all",
            "restore 7 -p a -p b -n -y",
            "redo -n -y",
            "recover --undo",
            "run --name n -- true --json -x",
            "session start n",
            "session end n --revert -n -y",
            "session end --keep",
            "session show",
            "session list",
            "pin 3",
            "unpin 3",
            "drop 3 4 -y",
            "prune --dry-run",
            "prune --roots -y",
            "forget -p a -p b -y",
            "forget --undo -p a",
            "watch",
            "export 3 --patch f",
            "export 3 --tar -",
            "git -- log --oneline",
            "completions bash",
            "daemon start",
            "daemon logs -f",
            "doctor",
            "daemon install",
            "daemon uninstall",
        ] {
            parse(&line.split(' ').collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "",
            "frobnicate",
            "rewind 1 2",
            "restore 7",
            "list -n x",
            "list -n 3 --all",
            "diff 1 2 3",
            "export 3",
            "export 3 --tar a --patch b",
            "session end --keep --revert",
            "session end -n",
            "attach --max-file-size 10MB",
            "drop",
            "forget",
            "forget a",
            "run",
            "git --",
        ] {
            let words: Vec<_> = line.split(' ').filter(|w| !w.is_empty()).collect();
            assert!(
                Cli::try_parse_from([&["stepback"], &words[..]].concat()).is_err(),
                "{line}"
            );
        }
    }
}
