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
    let script = String::from_utf8_lossy(&script);
    app.printer.text(&match args.shell {
        Shell::Bash => for_bash(&script),
        _ => script.into_owned(),
    })?;
    Ok(0)
}

/// Completes the command of `run`, which the generator leaves out for this shell.
const RUN: &str = r#"    if [[ " ${COMP_WORDS[*]:0:COMP_CWORD} " == *" run "* && "${prev}" == "--" ]] ; then
        COMPREPLY=( $(compgen -c -- "${cur}") )
        return 0
    fi
"#;

/// How the generator offers all that a command takes.
const OFFER: &str = r#"            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )"#;

/// Mends what the generator makes for bash: where a command takes an ID or a path next, options are offered only once
/// a `-` is typed. Otherwise all that is offered begins with one, and the shell fills it in.
fn for_bash(script: &str) -> String {
    let mut out = String::with_capacity(script.len());
    let mut options_only = false;
    for line in script.lines() {
        if let Some(words) = line
            .trim()
            .strip_prefix("opts=\"")
            .and_then(|l| l.strip_suffix('"'))
        {
            options_only = words.split_whitespace().all(|word| word.starts_with('-'));
        }
        match line.split_once(" || ${COMP_CWORD} -eq ") {
            Some((condition, _)) if options_only => {
                out += condition;
                out += " ]] ; then";
            }
            // The last word in a block, where neither an option nor its value is due.
            _ if options_only && line == OFFER => out += "            COMPREPLY=()",
            _ => out += line,
        }
        out.push('\n');
        if line == "    opts=\"\"" {
            out += RUN;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bash_offers_options_once_a_dash_is_typed_and_commands_to_run() {
        let mut script = Vec::new();
        clap_complete::generate(Shell::Bash, &mut Cli::command(), "stepback", &mut script);
        let made = String::from_utf8(script).unwrap();
        let mended = for_bash(&made);
        let block = |text: &str, name: &str| {
            let (_, rest) = text.split_once(&format!("\n        {name})\n")).unwrap();
            rest.split_once(";;").unwrap().0.to_owned()
        };
        let eager = "|| ${COMP_CWORD} -eq";
        assert!(block(&made, "stepback__subcmd__rewind").contains(eager));
        let rewind = block(&mended, "stepback__subcmd__rewind");
        assert!(
            !rewind.contains(eager) && rewind.contains("COMPREPLY=()"),
            "{rewind}"
        );
        assert!(block(&mended, "stepback__subcmd__daemon").contains(eager));
        assert!(block(&mended, "stepback").contains(eager));
        assert_eq!(mended.matches(RUN).count(), 1);
    }
}
