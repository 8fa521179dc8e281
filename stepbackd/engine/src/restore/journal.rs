//! The journal: what an operation is about to do, durable before it begins, removed when all is done.
//!
//! All files are in the root's directory of the store, none below the root:
//!
//! - `journal`: JSON, `{"version":1,"header":HEADER,"plan":PLAN,"stagings":[{"parent":"dir","name":".stepback-tmp-..."}],
//!   "opened":[{"path":"dir","perm":"0555"}]}`. `stagings` are the staging directories, by the directory that holds them;
//!   the file for step number i of the plan is named i there; some have only other ones in them, which follow. `opened` are
//!   directories that the owner could not write to and that were opened for the time of the operation, with the bits to put
//!   back. Generation 0.
//! - `recovery-K`: the same two lists for the K-th attempt to finish or undo it, K from 1.
//! - `damaged-*`: one of these files that could not be read, set aside by `recover`.
//! - `staged-K`: empty; in generation K's staging directories every file is complete. Without it they may hold half
//!   written files, and nothing in the tree was changed from them.
//!
//! Both end in a field `sha1`: the hash, in hexadecimal digits, of the file as it is without that field. Those of older
//! programs have none.
//!
//! The operation is unfinished exactly as long as `journal` is there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

use super::record;
use super::step::Plan;
use crate::durable::{self, Points};
use crate::error::{At, Error, Result};
use crate::fault;
use crate::node::Perm;
use crate::oid::Oid;
use crate::path::TreePath;
use crate::time::Time;

const VERSION: u32 = 1;
const JOURNAL: &str = "journal";
const POINTS: Points = Points {
    write: "journal.write",
    fsync: "journal.fsync",
    rename: "journal.rename",
    fsync_dir: "journal.fsync-dir",
};

/// What an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperationKind {
    /// The whole root.
    Rewind,
    /// Selected paths.
    Restore,
    /// Takes back one of the others.
    Redo,
    /// Back to a session's start.
    SessionRevert,
}

impl OperationKind {
    /// As in messages and in `--json`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rewind => "rewind",
            Self::Restore => "restore",
            Self::Redo => "redo",
            Self::SessionRevert => "session-revert",
        }
    }
}

/// What is known of an operation besides its plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalHeader {
    /// What it is.
    pub operation: OperationKind,
    /// The checkpoint whose state is put back.
    pub target: u64,
    /// When it began.
    pub started: Time,
    /// The before-checkpoint, if one had to be made.
    pub saved: Option<u64>,
    /// Number of the redo entry that was made for it, or that a redo takes back.
    pub redo: Option<u64>,
    /// Whatever else the caller wants to find again.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub data: serde_json::Value,
}

/// A staging directory: where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StagingPlace {
    pub parent: TreePath,
    pub name: String,
}

impl StagingPlace {
    pub fn path(&self) -> TreePath {
        self.parent.join(self.name.as_bytes())
    }
}

/// A directory that is opened for its owner for a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Opened {
    pub path: TreePath,
    /// Its bits before and after.
    pub perm: Perm,
    /// Already for the staging directory in it.
    #[serde(skip)]
    pub for_staging: bool,
}

/// What one attempt needs to be remembered of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Generation {
    pub stagings: Vec<StagingPlace>,
    pub opened: Vec<Opened>,
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Journal {
    pub version: u32,
    pub header: JournalHeader,
    #[serde(with = "record::plan")]
    pub plan: Plan,
    #[serde(flatten)]
    pub first: Generation,
}

impl Journal {
    pub fn new(header: JournalHeader, plan: Plan, first: Generation) -> Self {
        Self {
            version: VERSION,
            header,
            plan,
            first,
        }
    }
}

/// The operation that was interrupted, if there is one. `journal_dir` is the root's directory of its store.
///
/// # Errors
/// [`Error::DamagedRecord`] when there is a journal that can't be read: see [`set_aside`].
pub fn unfinished(journal_dir: &Path) -> Result<Option<JournalHeader>> {
    Ok(read(journal_dir)?.map(|journal| journal.header))
}

/// The paths that the interrupted operation changes.
///
/// # Errors
/// As [`unfinished`].
pub fn unfinished_paths(journal_dir: &Path) -> Result<Vec<TreePath>> {
    let journal = read(journal_dir)?;
    let steps = journal.into_iter().flat_map(|journal| journal.plan.steps);
    Ok(steps.map(|step| step.path).collect())
}

/// Makes the journal durable; the operation is unfinished from now on. When it fails, it isn't, unless the error came
/// after the rename: then the caller must [`clear`] it.
pub(super) fn begin(dir: &Path, journal: &Journal) -> Result<()> {
    remove_attempts(dir)?;
    write_durably(dir, JOURNAL, &encode(dir, journal)?)
}

pub(super) fn read(dir: &Path) -> Result<Option<Journal>> {
    let path = dir.join(JOURNAL);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if is_damage(&error) => return Err(damaged(dir, JOURNAL, &error)),
        Err(error) => return Err(error).at(path),
    };
    let version: Versioned = decode(dir, JOURNAL, &bytes)?;
    if version.version != VERSION {
        return Err(Error::Refused {
            message: format!(
                "an interrupted operation has a journal of version {}, this program knows {VERSION}",
                version.version
            ),
            hint: "use the newer stepback that wrote it".into(),
        });
    }
    decode(dir, JOURNAL, &bytes).map(Some)
}

/// Takes a journal that can't be read out of the way, under a name beside it, and gives that name. What the operation had
/// done stays done.
///
/// # Errors
/// What the system says; then the journal stands.
pub fn set_aside(dir: &Path) -> Result<PathBuf> {
    let to = put_aside(dir, JOURNAL)?;
    // They belong to it. One that can't go now goes with the next operation.
    let _ = remove_attempts(dir);
    Ok(to)
}

fn put_aside(dir: &Path, name: &str) -> Result<PathBuf> {
    let to = (1..)
        .map(|k| dir.join(format!("damaged-{name}-{k}")))
        .find(|to| !to.exists())
        .expect("numbers don't run out");
    fs::rename(dir.join(name), &to).at(dir.join(name))?;
    durable::sync_dir(dir)?;
    Ok(to)
}

/// Whether a file that is there can't be read for what it is or for what became of its disk. Other errors may pass.
fn is_damage(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::IsADirectory || error.raw_os_error() == Some(nix::errno::Errno::EIO as i32)
}

/// Remembers one more attempt; returns its number.
pub(super) fn add_generation(dir: &Path, generation: &Generation) -> Result<usize> {
    let number = (1..)
        .find(|k| !dir.join(recovery_name(*k)).exists())
        .expect("numbers don't run out");
    write_durably(dir, &recovery_name(number), &encode(dir, generation)?)?;
    Ok(number)
}

/// All attempts after the first, oldest first.
pub(super) fn later_generations(dir: &Path) -> Result<Vec<Generation>> {
    let mut generations = Vec::new();
    for number in 1.. {
        let name = recovery_name(number);
        match fs::read(dir.join(&name)) {
            Ok(bytes) => match decode(dir, &name, &bytes) {
                Ok(generation) => generations.push(generation),
                // What it staged is named by the next capture; everything else can be finished without it.
                Err(_) => {
                    put_aside(dir, &name)?;
                    let nothing = Generation::default();
                    write_durably(dir, &name, &encode(dir, &nothing)?)?;
                    generations.push(nothing);
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(error).at(dir.join(name)),
        }
    }
    Ok(generations)
}

/// Everything is staged, and durable: from now on the tree may be changed.
pub(super) fn mark_staged(dir: &Path, generation: usize) -> Result<()> {
    write_durably(dir, &staged_name(generation), b"")
}

pub(super) fn is_staged(dir: &Path, generation: usize) -> bool {
    dir.join(staged_name(generation)).exists()
}

/// The operation is finished, or undone, or never began, and what came out is on record. Safe to call when there is no
/// journal.
///
/// # Errors
/// The operation counts as unfinished then.
pub fn clear(dir: &Path) -> Result<()> {
    fault::point("clear.journal").at(dir)?;
    match fs::remove_file(dir.join(JOURNAL)) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).at(dir.join(JOURNAL)),
    }
    fault::point("clear.fsync-dir").at(dir)?;
    durable::sync_dir(dir)?;
    // Whatever is left of the attempts is removed by the next operation if it can't be now.
    let _ = remove_attempts(dir);
    Ok(())
}

fn remove_attempts(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).at(dir)? {
        let entry = entry.at(dir)?;
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        if name.starts_with(b"recovery-") || name.starts_with(b"staged-") || name.ends_with(b".tmp") {
            fs::remove_file(entry.path()).at(entry.path())?;
        }
    }
    Ok(())
}

fn recovery_name(number: usize) -> String {
    format!("recovery-{number}")
}

fn staged_name(number: usize) -> String {
    format!("staged-{number}")
}

/// Before the digits of the checksum, which is the last field of the object.
const CHECKSUM: &[u8] = br#","sha1":""#;
const CHECKSUM_END: &[u8] = br#""}"#;
const DIGITS: usize = 40;

fn encode<T: Serialize>(dir: &Path, value: &T) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(value).map_err(io::Error::from).at(dir)?;
    let sum = checksum(&bytes);
    bytes.truncate(bytes.len() - 1);
    bytes.extend_from_slice(CHECKSUM);
    bytes.extend_from_slice(sum.as_bytes());
    bytes.extend_from_slice(CHECKSUM_END);
    Ok(bytes)
}

/// In hexadecimal digits, of a file as it is without its checksum.
fn checksum(bytes: &[u8]) -> String {
    Oid(Sha1::digest(bytes).into()).to_string()
}

/// `false`: a bit has changed since it was written. A file of before there were checksums has none.
fn is_as_written(bytes: &[u8]) -> bool {
    let tail = CHECKSUM.len() + DIGITS + CHECKSUM_END.len();
    let Some((object, tail)) = bytes.len().checked_sub(tail).map(|at| bytes.split_at(at)) else {
        return true;
    };
    let Some(digits) = tail
        .strip_prefix(CHECKSUM)
        .and_then(|tail| tail.strip_suffix(CHECKSUM_END))
    else {
        return true;
    };
    checksum(&[object, b"}"].concat()).as_bytes() == digits
}

fn decode<T: for<'de> Deserialize<'de>>(dir: &Path, name: &str, bytes: &[u8]) -> Result<T> {
    if !is_as_written(bytes) {
        return Err(damaged(dir, name, &"it isn't what was written"));
    }
    serde_json::from_slice(bytes).map_err(|error| damaged(dir, name, &error))
}

fn damaged(dir: &Path, name: &str, error: &dyn std::fmt::Display) -> Error {
    Error::DamagedRecord {
        store: dir.to_owned(),
        what: format!("the {name} of an interrupted operation can't be read: {error}"),
        hint: "`stepback recover` sets it aside; every checkpoint stays usable".into(),
    }
}

fn write_durably(dir: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    durable::write_with(&dir.join(name), bytes, Some(&POINTS))
}
