//! Asking before something is changed.

use std::io::{self, BufRead, IsTerminal};

use crate::error::{At, Error, Result};
use crate::render::Printer;

/// Asks `question` on the terminal; anything but a yes is [`Error::Declined`], and so is having nobody to ask.
///
/// # Errors
/// [`Error::Declined`]; [`Error::Io`] when the terminal can't be read.
pub fn ask(printer: &Printer, question: &str) -> Result<()> {
    if !can_ask() {
        return Err(Error::Declined {
            message: "nothing changed: this asks before it acts, and there is no terminal to ask on".into(),
            hint: "-y says yes".into(),
        });
    }
    printer.question(&format!("{question} [y/N] "));
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer).at("stdin")?;
    if read == 0 {
        printer.question("\n");
    }
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Error::Declined {
            message: "nothing changed".into(),
            hint: String::new(),
        }),
    }
}

/// Whether there is a person at both ends.
pub fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}
