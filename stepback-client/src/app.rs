//! One invocation: parse, act, turn an error into a line and an exit code.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::Parser;
use jiff::Timestamp;
use stepback_proto::{Item, Reply, Request, Selector, Verb, WirePath};

use crate::cli::Cli;
use crate::connection::{Connection, Part};
use crate::endpoint::Endpoint;
use crate::environment::{Environment, local_zone};
use crate::error::{Error, Result};
use crate::render::Printer;
use crate::{autostart, child, commands, place, selector, usage};

/// What every command works with.
pub struct App {
    /// The environment, as it was at the start.
    pub environment: Environment,
    /// Where the daemon is.
    pub endpoint: Endpoint,
    /// The only thing that prints.
    pub printer: Printer,
    root: Option<PathBuf>,
}

/// Runs the program; its exit code.
pub fn main() -> u8 {
    let args: Vec<OsString> = std::env::args_os().collect();
    if let Some(code) = child::become_command(&args).or_else(|| commands::run::become_witness(&args)) {
        return code;
    }
    // An agent takes what its hook prints, and its exit code, for an answer.
    let for_an_agent = args.get(1).is_some_and(|word| word == "hook");
    if for_an_agent {
        std::panic::set_hook(Box::new(|_| std::process::exit(0)));
    }
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(e) if for_an_agent && e.use_stderr() => return 0,
        Err(e) => return usage::not_understood(&args, &e),
    };
    let printer = Printer::new(cli.json, cli.quiet, cli.color);
    match act(cli, printer) {
        Ok(code) => code,
        Err(_) if for_an_agent => 0,
        Err(e) => printer.fail(&e),
    }
}

fn act(cli: Cli, printer: Printer) -> Result<u8> {
    let environment = Environment::read()?;
    let mut endpoint = Endpoint::new(&environment);
    if cli.command.is_about_the_daemon() {
        endpoint = endpoint.soon_told();
    }
    let app = App {
        environment,
        endpoint,
        printer,
        root: cli.root,
    };
    commands::run(&app, cli.command)
}

impl App {
    /// The current directory.
    ///
    /// # Errors
    /// When it is gone and the shell doesn't say what it was.
    pub fn cwd(&self) -> Result<PathBuf> {
        place::current(&self.environment)
    }

    /// Where the client stands: `-C`, else the current directory.
    ///
    /// # Errors
    /// As [`Self::cwd`].
    pub fn place(&self) -> Result<PathBuf> {
        match &self.root {
            Some(root) if root.is_absolute() => Ok(place::named(Path::new("/"), root)),
            Some(root) => Ok(place::named(&self.cwd()?, root)),
            None => self.cwd(),
        }
    }

    /// A path of the command line as an absolute one.
    ///
    /// # Errors
    /// As [`Self::cwd`], and for an empty path.
    pub fn absolute(&self, path: &Path) -> Result<WirePath> {
        if path.as_os_str().is_empty() {
            return Err(Error::usage(
                "a path can't be empty",
                "`.` is the current directory",
            ));
        }
        let from = if path.is_absolute() {
            PathBuf::from("/")
        } else {
            self.cwd()?
        };
        Ok(place::absolute(&from, path).into())
    }

    /// An ID of the command line.
    ///
    /// # Errors
    /// [`Error::Usage`] when it is none.
    pub fn selector(&self, id: &OsStr) -> Result<Selector> {
        let text = id.to_string_lossy();
        selector::parse(&text, Timestamp::now(), &local_zone())
            .map_err(|message| Error::usage(message, selector::FORMS))
    }

    /// Asks about the place; `each` gets the items of the answer as they come.
    ///
    /// # Errors
    /// Whatever the daemon, the connection or `each` fail with.
    pub fn ask(&self, verb: Verb, each: &mut dyn FnMut(Item) -> Result<()>) -> Result<Reply> {
        self.ask_at(&self.place()?, verb, each)
    }

    /// As [`Self::ask`], about another place.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn ask_at(
        &self,
        place: &Path,
        verb: Verb,
        each: &mut dyn FnMut(Item) -> Result<()>,
    ) -> Result<Reply> {
        let connection = autostart::connect(&self.endpoint, &self.environment)?;
        self.ask_on(connection, place, verb, each)
    }

    /// As [`Self::ask_at`], on a connection of the caller's.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn ask_on(
        &self,
        connection: Connection,
        place: &Path,
        verb: Verb,
        each: &mut dyn FnMut(Item) -> Result<()>,
    ) -> Result<Reply> {
        let mut progress = self.printer.progress();
        let request = Request {
            place: place.to_owned().into(),
            verb,
        };
        connection.ask(&request, &mut |part| match part {
            Part::Progress(now) => {
                progress.show(&now);
                Ok(())
            }
            Part::Item(item) => {
                progress.clear();
                each(item)
            }
        })
    }

    /// Asks about the place and keeps all items: for answers that are small, or are one JSON value.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn collect(&self, verb: Verb) -> Result<(Vec<Item>, Reply)> {
        let mut items = Vec::new();
        let reply = self.ask(verb, &mut |item| {
            items.push(item);
            Ok(())
        })?;
        Ok((items, reply))
    }
}
