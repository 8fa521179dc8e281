//! Where the daemon's own story goes: the journal under systemd, else a file that is turned over when it is full.
//! No contents of files and no prompts are ever logged.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

use crate::error::{At, Error, Result};
use crate::state_file;

/// The log file is turned over at this size; one older file is kept.
const FILE_BYTES_MAX: u64 = 4 << 20;

const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// What logging has been started.
#[derive(Debug)]
pub struct Log {
    /// The log file, if it is one.
    pub file: Option<PathBuf>,
    /// What is logged.
    pub gate: Gate,
    /// To open the file again.
    pub book: Option<Book>,
}

/// What is logged, which can change.
#[derive(Debug, Clone)]
pub struct Gate(reload::Handle<EnvFilter, Registry>);

impl Gate {
    /// From now on `filter` says what is logged.
    ///
    /// # Errors
    /// When the filter isn't one; the earlier one stays.
    pub fn set(&self, filter: &str) -> Result<(), String> {
        let filter = parse(filter)?;
        self.0.reload(filter).map_err(|e| e.to_string())
    }
}

/// Starts logging. `under_systemd` asks for the journal; without one the file takes its place.
///
/// # Errors
/// When the log file can't be written, or the filter isn't one, which [`check`] tells before.
pub fn start(filter: &str, file: &Path, under_systemd: bool) -> Result<Log> {
    let cannot = |why: String| Error::refused(format!("logging can't be started: {why}"), "");
    let (filter, gate) = reload::Layer::new(parse(filter).map_err(cannot)?);
    let journal = if under_systemd {
        tracing_journald::layer().ok()
    } else {
        None
    };
    let book = match &journal {
        Some(_) => None,
        None => Some(Book(Arc::new(Mutex::new(Rotating::open(file)?)))),
    };
    let to_file = book.clone().map(|book| {
        let to_book = move || book.clone();
        fmt::layer().with_ansi(false).with_writer(to_book)
    });
    let in_file = book.is_some().then(|| file.to_owned());
    let to_terminal = io::stderr()
        .is_terminal()
        .then(|| fmt::layer().with_writer(io::stderr));
    tracing_subscriber::registry()
        .with(filter)
        .with(journal)
        .with(to_file)
        .with(to_terminal)
        .try_init()
        .map_err(|e| cannot(e.to_string()))?;
    std::panic::set_hook(Box::new(|info| tracing::error!("a thread panicked: {info}")));
    Ok(Log {
        file: in_file,
        gate: Gate(gate),
        book,
    })
}

/// Checks a filter: a level, or several `target=level`, with commas between them.
///
/// # Errors
/// What is wrong with it.
pub fn check(filter: &str) -> Result<(), String> {
    parse(filter).map(drop)
}

/// A word that is no level would be taken for a target, and all else would be silent.
fn parse(filter: &str) -> Result<EnvFilter, String> {
    let cannot = |why: &str| {
        Err(format!(
            "the log filter {filter:?} can't be used: {why}; it is one of {}, or TARGET=LEVEL, with commas between several",
            LEVELS.join(", ")
        ))
    };
    for part in filter.split(',') {
        let (target, level) = part.rsplit_once('=').unwrap_or(("stepbackd", part));
        if !LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level)) {
            return cannot(&format!("{level:?} is no level"));
        }
        if target.is_empty() {
            return cannot("a target is missing");
        }
    }
    EnvFilter::try_new(filter).or_else(|e| cannot(&e.to_string()))
}

/// The log file, which whoever logs shares.
#[derive(Debug, Clone)]
pub struct Book(Arc<Mutex<Rotating>>);

impl Book {
    /// Opens the file again: somebody may have moved it away, and wants that one to end.
    ///
    /// # Errors
    /// When it can't be; then the earlier one goes on.
    pub fn open_again(&self) -> Result<()> {
        let mut log = self.lock();
        *log = Rotating::open(&log.path)?;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Rotating> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for Book {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.lock().write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.lock().flush()
    }
}

#[derive(Debug)]
struct Rotating {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Rotating {
    fn open(path: &Path) -> Result<Self> {
        let file = open(path).at(path)?;
        let bytes = file.metadata().at(path)?.len();
        Ok(Self {
            path: path.to_owned(),
            file,
            bytes,
        })
    }

    fn turn_over(&mut self) -> io::Result<()> {
        std::fs::rename(&self.path, self.path.with_extension("log.1"))?;
        self.file = open(&self.path)?;
        self.bytes = 0;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(state_file::flags())
        .open(path)
}

impl Write for Rotating {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.bytes + line.len() as u64 > FILE_BYTES_MAX && self.bytes > 0 {
            // On an error the old file goes on: a log that is too long is better than none.
            let _ = self.turn_over();
        }
        let written = self.file.write(line)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_levels_are_taken() {
        for good in [
            "error",
            "INFO",
            "trace",
            "stepbackd=debug",
            "warn,stepback_engine=trace",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "loud",
            "",
            "bogus",
            "info,",
            "warn, stepbackd=debug",
            "stepbackd",
            "stepbackd=loud",
            "=info",
            "off",
            "stepbackd=[",
            "[=info",
        ] {
            let error = check(bad).unwrap_err();
            assert!(
                error.contains("error, warn, info, debug, trace"),
                "{bad}: {error}"
            );
        }
    }

    #[test]
    fn a_file_that_was_moved_away_ends_when_it_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let (path, away) = (dir.path().join("x.log"), dir.path().join("away"));
        let mut book = Book(Arc::new(Mutex::new(Rotating::open(&path).unwrap())));
        book.write_all(b"one\n").unwrap();
        std::fs::rename(&path, &away).unwrap();
        book.clone().open_again().unwrap();
        book.write_all(b"two\n").unwrap();
        assert_eq!(std::fs::read(&away).unwrap(), b"one\n");
        assert_eq!(std::fs::read(&path).unwrap(), b"two\n");
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        book.open_again().unwrap_err();
        book.write_all(b"three\n").unwrap();
    }

    #[test]
    fn a_full_file_is_turned_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.log");
        let mut log = Rotating::open(&path).unwrap();
        let line = vec![b'x'; 1 << 20];
        for _ in 0..9 {
            log.write_all(&line).unwrap();
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 20);
        assert_eq!(
            std::fs::metadata(dir.path().join("x.log.1")).unwrap().len(),
            4 << 20
        );
        assert_eq!(Rotating::open(&path).unwrap().bytes, 1 << 20);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
