//! The commands, one file each.

pub mod attach;
pub mod completions;
pub mod daemon;
pub mod detach;
pub mod diff;
pub mod doctor;
pub mod drop;
pub mod export;
pub mod forget;
pub mod git;
pub mod hook;
pub mod hooks;
pub mod list;
pub mod man;
mod operation;
pub mod pin;
pub mod prune;
pub mod recover;
pub mod redo;
pub mod restore;
pub mod rewind;
pub mod roots;
pub mod run;
pub mod save;
pub mod session;
pub mod show;
pub mod status;
pub mod watch;

use stepback_proto::NamedPath;

use crate::app::App;
use crate::cli::Command;
use crate::error::Result;
use crate::render::path::{one_line, shown};

/// Exit code of what was done but for some paths.
const IN_PART: u8 = 3;

/// Runs a command; its exit code.
///
/// # Errors
/// Whatever the command fails with.
pub fn run(app: &App, command: Command) -> Result<u8> {
    match command {
        Command::Attach(args) => attach::run(app, &args),
        Command::Detach(args) => detach::run(app, &args),
        Command::Roots => roots::run(app),
        Command::Status(args) => status::run(app, &args),
        Command::Save(args) => save::run(app, args),
        Command::List(args) => list::run(app, args),
        Command::Show(args) => show::run(app, &args),
        Command::Diff(args) => diff::run(app, &args),
        Command::Rewind(args) => rewind::run(app, &args),
        Command::Restore(args) => restore::run(app, &args),
        Command::Redo(args) => redo::run(app, &args),
        Command::Recover(args) => recover::run(app, &args),
        Command::Run(args) => run::run(app, &args),
        Command::Session(session) => session::run(app, session),
        Command::Pin(args) => pin::run(app, &args, true),
        Command::Unpin(args) => pin::run(app, &args, false),
        Command::Drop(args) => drop::run(app, &args),
        Command::Prune(args) => prune::run(app, &args),
        Command::Forget(args) => forget::run(app, &args),
        Command::Watch => watch::run(app),
        Command::Export(args) => export::run(app, &args),
        Command::Daemon(daemon) => daemon::run(app, daemon),
        Command::Doctor => doctor::run(app),
        Command::Completions(args) => completions::run(app, &args),
        Command::Git(args) => git::run(app, &args),
        Command::Man(args) => man::run(&args),
        Command::Hooks(hooks) => hooks::run(app, hooks),
        Command::Hook(args) => {
            hook::run(app, &args);
            Ok(0)
        }
    }
}

/// How many paths that aren't captured are named on stderr.
const NOT_CAPTURED_MAX: usize = 200;

/// Names on stderr what a checkpoint that was just made leaves out. That is no failure, but it is told even with `-q`.
fn warn_not_captured(app: &App, paths: &[NamedPath]) {
    for p in paths.iter().take(NOT_CAPTURED_MAX) {
        app.printer.warn(&format!(
            "not captured: {} ({})",
            shown(&p.path),
            one_line(&p.reason)
        ));
    }
    if paths.len() > NOT_CAPTURED_MAX {
        let more = paths.len() - NOT_CAPTURED_MAX;
        app.printer.warn(&format!(
            "not captured: {more} more (`stepback status --json` names them)"
        ));
    }
}
