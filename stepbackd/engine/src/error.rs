//! What can go wrong, with the path it went wrong at.

use std::io;
use std::path::{Path, PathBuf};

use crate::oid::Oid;
use crate::path::{TreePath, for_shell};

/// The engine's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong in the engine. Each variant is one that a caller may have to tell apart; `Display` is one line for
/// people, [`Error::hint`] what they can do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused something.
    #[error("{}: {source}", path.display())]
    Io {
        /// At which path.
        path: PathBuf,
        /// How.
        source: io::Error,
    },
    /// An object, ref or record of the store isn't what it must be.
    #[error("the store {} is damaged: {what}", store.display())]
    Damaged {
        /// The store.
        store: PathBuf,
        /// Which object, ref or record, and how.
        what: String,
    },
    /// A record of a root in the store that can't be read, with the way to go on without it.
    #[error("the store {} is damaged: {what}", store.display())]
    DamagedRecord {
        /// The store.
        store: PathBuf,
        /// Which record, and how.
        what: String,
        /// How to go on.
        hint: String,
    },
    /// libgit2 refused something: opening a store's packs, comparing two files by lines.
    #[error("the store {}: {what}", store.display())]
    Library {
        /// The store.
        store: PathBuf,
        /// What libgit2 says.
        what: String,
    },
    /// No such checkpoint in this root.
    #[error("there is no checkpoint {0} here")]
    NoSuchCheckpoint(String),
    /// A path that isn't there, in the states that it was looked for in.
    #[error("{path}: not in {place}")]
    NoSuchPath {
        /// The path.
        path: TreePath,
        /// Where it was looked for.
        place: String,
    },
    /// No such session in this root.
    #[error("there is no session {0:?} here")]
    NoSuchSession(String),
    /// A name that no session can have.
    #[error("{0:?} can't be a session's name")]
    BadName(String),
    /// The session isn't open any more.
    #[error("session {0} has ended already")]
    SessionEnded(String),
    /// The session opened last is meant, and none is open.
    #[error("no session is open")]
    NoOpenSession,
    /// The session opened last is meant, and there never was one.
    #[error("no session was opened here yet")]
    NoSessionYet,
    /// The redo stack is empty.
    #[error("nothing to redo")]
    NothingToRedo,
    /// The tree changed between the preview and the yes.
    #[error("the plan has changed since it was shown")]
    StalePlan,
    /// An operation was interrupted and is neither finished nor undone yet.
    #[error("an interrupted {operation} to {target} is unfinished")]
    Unfinished {
        /// Which kind.
        operation: String,
        /// Its target.
        target: u64,
    },
    /// The root isn't there.
    #[error("{}: the directory isn't there", .0.display())]
    RootMissing(PathBuf),
    /// The root was a mount point, and nothing is mounted there.
    #[error("{}: nothing is mounted there", .0.display())]
    NotMounted(PathBuf),
    /// The root isn't there, and can't be made again where it was.
    #[error("{}: the directory isn't there, and can't be made again: {why}", path.display())]
    CannotMakeRoot {
        /// The root.
        path: PathBuf,
        /// Why.
        why: &'static str,
    },
    /// Another directory is in the root's place.
    #[error("{}: another directory is in the place of the one that was attached", .0.display())]
    RootReplaced(PathBuf),
    /// A directory that isn't to be attached.
    #[error("{} can't be attached: {why}", path.display())]
    RefusedRoot {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
        /// What to do instead.
        hint: String,
    },
    /// An include pattern that can take nothing in.
    #[error("the include pattern {pattern:?} can't be used: {why}")]
    BadPattern {
        /// The pattern.
        pattern: String,
        /// Why.
        why: &'static str,
    },
    /// A purge whose bytes may still be in the store.
    #[error("no checkpoint has it any more, but its bytes are still in the store: {why}")]
    Unpurged {
        /// Why they couldn't be removed.
        why: Box<Error>,
    },
    /// A store can't be packed: a pack is written before what it replaces goes.
    #[error("packing the store {} needs {} MiB of free space, and {} MiB are free", store.display(), needed.div_ceil(1 << 20), free >> 20)]
    NoRoom {
        /// The store.
        store: PathBuf,
        /// So much, in bytes.
        needed: u64,
        /// So much there is, in bytes.
        free: u64,
    },
    /// Rules or options that can't be used. A failing rule fails the capture, never widens it.
    #[error("{}: {why}", path.display())]
    Rules {
        /// The file that has the rule.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A change that can't be carried out, found before anything was changed.
    #[error("{path}: {why}")]
    CannotRestore {
        /// The first such path.
        path: TreePath,
        /// Why.
        why: String,
    },
    /// A caller broke a rule of the command, such as dropping a pinned checkpoint.
    #[error("{message}")]
    Refused {
        /// What and why.
        message: String,
        /// What to do.
        hint: String,
    },
    /// The caller's cancel flag was set.
    #[error("cancelled")]
    Cancelled,
}

impl Error {
    /// What to do about it; empty when there is nothing to say.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Io { source, .. } if is_no_space(source) => {
                "free some space on that file system, then try again; nothing was lost".into()
            }
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "check the owner and the mode of that path and of the directories above it".into()
            }
            Self::Io { source, .. } if source.raw_os_error() == Some(nix::errno::Errno::EIO as i32) => {
                "the disk or file system reports a fault: check it (`dmesg`), then try again".into()
            }
            Self::Io { source, .. } if source.kind() == io::ErrorKind::CrossesDevices => {
                "something was mounted or unmounted there meanwhile: try again; `stepback recover` first if something is unfinished"
                    .into()
            }
            Self::Io { source, .. } if has_lost_its_server(source) => {
                "the file system there has lost its server: mount it again, or let go of it with `umount -l`".into()
            }
            Self::Damaged { .. } => {
                "`stepback status --verify` names what is damaged and every checkpoint that needs it; others stay usable".into()
            }
            Self::NoSuchCheckpoint(_) => "`stepback list` shows the checkpoints of this root".into(),
            Self::NoSuchSession(_) => "`stepback session list` shows the sessions of this root".into(),
            Self::BadName(_) => {
                "use letters, digits, '_' and '-', at most 32, the first a letter or digit".into()
            }
            Self::Unpurged { why } => match why.hint().as_str() {
                "" => "do the same again once that is mended".into(),
                hint => format!("do the same again once that is mended: {hint}"),
            },
            Self::NoRoom { .. } => {
                "free some space on that file system; checkpoints are made all the same".into()
            }
            Self::SessionEnded(_) => "`stepback session list` shows which are open".into(),
            Self::NoOpenSession | Self::NoSessionYet => "`stepback session start` opens one".into(),
            Self::NothingToRedo => {
                "`stepback list` shows the checkpoints; `stepback rewind N` goes to any of them".into()
            }
            Self::StalePlan => "look at the new plan and answer again".into(),
            Self::Unfinished { .. } => {
                "`stepback recover` finishes it, `stepback recover --undo` takes it back".into()
            }
            Self::RootMissing(path) => {
                let path = for_shell(path);
                format!(
                    "if it was moved, `stepback attach NEWPATH` continues its history there; if not, put it back, or \
                     `stepback -C {path} rewind` makes it again"
                )
            }
            Self::NotMounted(_) => "mount it again; a rewind doesn't make what is to be mounted".into(),
            Self::CannotMakeRoot { .. } => "put it, or what holds it, back where it was".into(),
            Self::RootReplaced(path) => {
                let attach = format!("stepback attach --here {}", for_shell(path));
                format!("`{attach} -y` continues the history here, `{attach} --new` starts a new one")
            }
            Self::RefusedRoot { hint, .. }
            | Self::Refused { hint, .. }
            | Self::DamagedRecord { hint, .. } => hint.clone(),
            Self::BadPattern { .. } => "patterns are those of .gitignore, relative to the root".into(),
            Self::Rules { path, .. } if path.file_name().is_some_and(|name| name == "index") => {
                "git can't read it either: move it away, and `git reset` makes it anew; until then nothing is captured"
                    .into()
            }
            Self::Rules { .. } => "mend that file, then try again; until then nothing is captured".into(),
            _ => String::new(),
        }
    }

    /// For where only a line can be told: what is wrong with a record of the store, with the way to go on.
    #[must_use]
    pub fn with_remedy(&self) -> String {
        match self {
            Self::DamagedRecord { hint, .. } => format!("{self} ({hint})"),
            _ => self.to_string(),
        }
    }

    /// Whether a full disk or quota is the cause.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_no_space(source))
    }
}

fn is_no_space(source: &io::Error) -> bool {
    matches!(
        source.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

fn has_lost_its_server(source: &io::Error) -> bool {
    use nix::errno::Errno::{EHOSTDOWN, EHOSTUNREACH, ENODEV, ENOTCONN, ESTALE, ETIMEDOUT};
    source
        .raw_os_error()
        .map(nix::errno::Errno::from_raw)
        .is_some_and(|errno| {
            matches!(
                errno,
                ENOTCONN | ESTALE | EHOSTDOWN | EHOSTUNREACH | ETIMEDOUT | ENODEV
            )
        })
}

/// An object that should be in the store and isn't, or isn't whole.
#[must_use]
pub fn damaged_object(store: &Path, oid: Oid, how: &str) -> Error {
    Error::Damaged {
        store: store.to_owned(),
        what: format!("object {oid} {how}"),
    }
}

/// Gives an I/O result the path that it is about.
pub trait At<T> {
    /// The same result, the error with `path`.
    ///
    /// # Errors
    /// [`Error::Io`] for any error.
    fn at(self, path: impl AsRef<Path>) -> Result<T>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|source| Error::Io {
            path: path.as_ref().to_owned(),
            source,
        })
    }
}

impl<T> At<T> for nix::Result<T> {
    fn at(self, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|errno| Error::Io {
            path: path.as_ref().to_owned(),
            source: errno.into(),
        })
    }
}
