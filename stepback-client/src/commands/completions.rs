//! `stepback completions`

use clap::CommandFactory;
use clap_complete::Shell;

use crate::app::App;
use crate::cli::Cli;
use crate::error::Result;

/// Print a shell's completion script.
///
/// For example: `stepback completions bash > ~/.local/share/bash-completion/completions/stepback`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which shell
    shell: Shell,
}

pub fn run(app: &App, args: &Args) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "stepback", &mut script);
    app.printer.text(&String::from_utf8_lossy(&script))?;
    Ok(0)
}
