//! What people and programs read. This module is the only place that prints.

pub mod collapse;
pub mod conversation;
pub mod diff;
pub mod diffstat;
pub mod json;
pub mod list;
pub mod operation;
pub mod path;
pub mod progress;
pub mod status;
pub mod time;

use std::io::{self, IsTerminal, Write};

use anstream::{AutoStream, ColorChoice};
use owo_colors::{OwoColorize, Style};
use serde_json::Value;

use crate::cli::Color;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::pager::Sink;
use progress::ProgressLine;

/// Columns to fill when nothing says how wide the terminal is.
const WIDTH_DEFAULT: usize = 80;

/// Prints, and knows how: JSON or text, with colour or without, with notes or without.
#[derive(Debug, Clone, Copy)]
pub struct Printer {
    /// `--json`.
    pub json: bool,
    quiet: bool,
    color_out: bool,
    color_err: bool,
}

/// The outcome of writing to stdout: a reader that has gone away is an end, not an error.
pub fn written(result: io::Result<()>) -> Result<()> {
    result.map_err(|source| match source.kind() {
        io::ErrorKind::BrokenPipe => Error::OutputClosed,
        _ => Error::Io {
            path: "stdout".into(),
            source,
        },
    })
}

/// `text` in `style` if `on`.
pub fn paint(on: bool, style: Style, text: &str) -> String {
    if on && !text.is_empty() {
        text.style(style).to_string()
    } else {
        text.to_owned()
    }
}

impl Printer {
    /// By the global options and, for `auto`, by the terminal and `NO_COLOR`.
    pub fn new(json: bool, quiet: bool, color: Color) -> Self {
        let on = |auto: ColorChoice| match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => auto != ColorChoice::Never,
        };
        Self {
            json,
            quiet,
            color_out: on(AutoStream::choice(&io::stdout())),
            color_err: on(AutoStream::choice(&io::stderr())),
        }
    }

    /// Whether text on stdout is coloured.
    pub fn color(&self) -> bool {
        self.color_out
    }

    /// Whether a person reads stdout.
    pub fn on_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// Columns of the terminal on stdout; 80 where there is none.
    pub fn width(&self) -> usize {
        terminal_size::terminal_size_of(io::stdout()).map_or(WIDTH_DEFAULT, |(width, _)| width.0.into())
    }

    /// One JSON value on a line of its own.
    ///
    /// # Errors
    /// As [`written`].
    pub fn json(&self, value: &Value) -> Result<()> {
        self.text(&format!("{value}\n"))
    }

    /// Text on stdout, as it is.
    ///
    /// # Errors
    /// As [`written`].
    pub fn text(&self, text: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
    }

    /// Where a long answer goes: the pager on a terminal.
    pub fn sink(&self, environment: &Environment) -> Sink {
        if self.json {
            Sink::plain()
        } else {
            Sink::open(environment)
        }
    }

    /// Long text, through the pager on a terminal.
    ///
    /// # Errors
    /// As [`written`].
    pub fn page(&self, environment: &Environment, text: &str) -> Result<()> {
        let mut sink = self.sink(environment);
        written(sink.write_all(text.as_bytes()))?;
        written(sink.finish())
    }

    /// Something worth knowing that isn't the answer; not with `-q`.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            say(&format!("{text}\n"));
        }
    }

    /// What to do next; not with `-q`.
    pub fn hint(&self, text: &str) {
        if !self.quiet && !text.is_empty() {
            say(&format!(
                "{} {text}\n",
                paint(self.color_err, Style::new().cyan(), "hint:")
            ));
        }
    }

    /// Something that didn't go well, though the command goes on.
    pub fn warn(&self, text: &str) {
        let text = path::without_numbers(text);
        say(&format!(
            "{} {text}\n",
            paint(self.color_err, Style::new().yellow(), "stepback: warning:")
        ));
    }

    /// Begins a line below the `^C` that a terminal shows.
    pub fn below_interrupt(&self) {
        if io::stderr().is_terminal() {
            say("\n");
        }
    }

    /// What an interrupted command leaves behind.
    pub fn interrupted(&self, message: &str) {
        self.below_interrupt();
        say(&format!(
            "{} {message}\n",
            paint(self.color_err, Style::new().red(), "stepback:")
        ));
    }

    /// What a question is about, on stderr whatever `-q` says.
    pub fn question(&self, text: &str) {
        say(text);
    }

    /// Reports a failed command; its exit code.
    pub fn fail(&self, error: &Error) -> u8 {
        if matches!(error, Error::OutputClosed) {
            return error.exit_code();
        }
        if self.json {
            // When stdout is gone as well, the exit code still tells.
            let _ = self.json(&json::error(error));
        } else {
            let message = path::one_line(&path::without_numbers(&error.to_string()));
            say(&format!(
                "{} {message}\n",
                paint(self.color_err, Style::new().red(), "stepback:")
            ));
            self.hint(&path::one_line(&error.hint()));
        }
        error.exit_code()
    }

    /// A line that shows how far long work is, where somebody looks.
    pub fn progress(&self) -> ProgressLine {
        ProgressLine::new(!self.quiet && io::stderr().is_terminal())
    }
}

/// Writes to stderr. There is nowhere to report to when that fails.
fn say(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// `1 file`, `2 files`; large numbers with thin groups: `12,345 files`.
pub fn count(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(n), if n == 1 { one } else { many })
}

/// A number with commas.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(count(1, "file", "files"), "1 file");
        assert_eq!(count(0, "file", "files"), "0 files");
    }
}
