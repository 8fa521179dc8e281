//! The newest changes once more, in one piece: the file `ahead`, which is written over in place, so that one small barrier
//! makes a whole checkpoint durable, objects and refs together.
//!
//! What holds at every instant:
//! - A record is durable before any object or ref that it speaks of gets its name. These are then not synced one by one.
//! - The file is emptied only after a sync of the whole file system. Until then everything since is in it.
//! - While it isn't empty, refs change only through it; whoever can't go that way empties it first.
//! - A record that was torn by a power loss, and what an earlier round has left behind it, fits no chain and isn't read.
//!
//! A record names the boot of the system that it was made in. In the same boot nothing of what the system was given can be
//! lost, whoever was killed: the file is only emptied, and a deletion that was cut off is ended, so that refs which belong
//! together go together. After another boot `replay` brings about all that it says.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha1::{Digest, Sha1};

use crate::error::{At, Result};
use crate::fault;
use crate::oid::Oid;

use super::files::{self, FILE_MODE, TempFile};
use super::size::Size;

/// Size of the file. A checkpoint of one file takes 3 to 10 KiB.
const BYTES: usize = 256 << 10;
/// A larger batch goes the long way.
const BATCH_MAX: usize = 64 << 10;
/// From here on it is worth being emptied by somebody who isn't waited for.
const WELL_FILLED: usize = BYTES / 2;
/// What is overwritten to empty it: the disk writes so much at once or not at all.
const SECTOR: usize = 512;

const MAGIC: &[u8; 4] = b"SBa1";
/// Magic, length of the body, hash of the record before (of the first: a random number).
const HEADER: usize = 28;
const HASH: usize = 20;
const BOOT: usize = 36;

const OBJECT: u8 = 1;
const REF_SET: u8 = 2;
const REF_GONE: u8 = 3;

type Hash = [u8; HASH];

/// What becomes durable at once.
#[derive(Debug, Default)]
pub struct Batch(Vec<u8>);

impl Batch {
    /// An object as its loose file has it.
    pub fn object(&mut self, oid: Oid, file: &[u8]) {
        self.entry(OBJECT, file);
        self.0.extend_from_slice(&oid.0);
    }

    /// A ref's new value.
    pub fn set(&mut self, name: &str, oid: Oid) {
        self.entry(REF_SET, name.as_bytes());
        self.0.extend_from_slice(&oid.0);
    }

    /// A ref that goes.
    pub fn gone(&mut self, name: &str) {
        self.entry(REF_GONE, name.as_bytes());
    }

    fn entry(&mut self, kind: u8, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.0.push(kind);
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(bytes);
    }
}

/// One thing that a record says.
#[derive(Debug, PartialEq, Eq)]
pub enum Entry {
    /// An object's loose file.
    Object(Oid, Vec<u8>),
    /// A ref's value; `None` when it is gone.
    Ref(String, Option<Oid>),
}

/// The file of one open store. Whoever calls this holds the lock of the refs, but for [`Ahead::is_empty`].
#[derive(Debug)]
pub struct Ahead {
    path: PathBuf,
    /// Of the store.
    size: Arc<Size>,
    state: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// Opened before the first change that it has to vouch for: a sync through it tells of every error since.
    file_system: File,
    /// Hash of the first record, if any.
    first: Option<Hash>,
    /// Hash of the last one.
    last: Hash,
    /// Where the next one goes.
    end: usize,
    /// A record isn't, or isn't wholly, what the store has: the file must be emptied before anything is added.
    spoilt: bool,
}

impl Ahead {
    /// That of the store whose private directory this is.
    pub fn new(private: &Path, size: Arc<Size>) -> Self {
        Self {
            path: private.join("ahead"),
            size,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, Option<Open>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a batch durable; `false` when it has to be done another way: it is too large, or the system doesn't tell its
    /// boots apart, or there is no room for the file. After an error nothing of the batch counts.
    pub fn append(&self, batch: &Batch) -> Result<bool> {
        let Some(boot) = boot().filter(|_| batch.0.len() <= BATCH_MAX) else {
            return Ok(false);
        };
        let mut state = self.state();
        let Some(open) = self.current(&mut state, true)? else {
            return Ok(false);
        };
        let length = HEADER + BOOT + batch.0.len() + HASH;
        if open.spoilt || open.end + length > BYTES {
            open.empty(false).at(&self.path)?;
        }
        if open.end == 0 {
            // No record of an earlier round must seem to follow this one.
            open.last = nonce();
        }
        let mut record = Vec::with_capacity(length);
        record.extend_from_slice(MAGIC);
        let body = u32::try_from(BOOT + batch.0.len()).expect("at most BATCH_MAX and a little");
        record.extend_from_slice(&body.to_le_bytes());
        record.extend_from_slice(&open.last);
        record.extend_from_slice(&boot);
        record.extend_from_slice(&batch.0);
        let hash: Hash = Sha1::digest(&record).into();
        record.extend_from_slice(&hash);
        let written = fault::point("store.write")
            .and_then(|()| open.file.write_all_at(&record, open.end as u64))
            .and_then(|()| fault::point("store.fsync"))
            .and_then(|()| open.file.sync_data());
        if let Err(error) = written {
            // It may be on the disk all the same.
            open.spoilt = true;
            let _ = open.empty(false);
            return Err(error).at(&self.path);
        }
        open.first.get_or_insert(hash);
        open.last = hash;
        open.end += record.len();
        Ok(true)
    }

    /// A batch that was appended didn't get its names: it mustn't come back.
    pub fn abandon(&self) {
        if let Some(open) = self.state().as_mut() {
            open.spoilt = true;
            // If this fails, whoever comes next must do it.
            let _ = open.empty(false);
        }
    }

    /// Makes everything durable by one sync of the file system, and empties the file. `wipe`: nothing of what stood in it
    /// can be read from it afterwards.
    ///
    /// # Errors
    /// When the disk refuses; then the file is as it was.
    pub fn settle(&self, wipe: bool) -> Result<()> {
        let mut state = self.state();
        match self.current(&mut state, false)? {
            Some(open) if wipe && open.is_blank().at(&self.path)? => Ok(()),
            Some(open) if open.first.is_some() || open.spoilt || wipe => open.empty(wipe).at(&self.path),
            _ => Ok(()),
        }
    }

    /// What is in it now; `None` when that is nothing, or isn't what the store has.
    pub fn mark(&self) -> Result<Option<Mark>> {
        let mut state = self.state();
        let Some(open) = self.current(&mut state, false)? else {
            return Ok(None);
        };
        let Some(first) = open.first.filter(|_| !open.spoilt) else {
            return Ok(None);
        };
        Ok(Some(Mark {
            file_system: open.file_system.try_clone().at(&self.path)?,
            first,
            last: open.last,
            end: open.end,
        }))
    }

    /// Empties it if nothing else is in it than at `mark`, since which the file system was synced. Whether it did.
    ///
    /// # Errors
    /// When the disk refuses; then it is as it was, or empty.
    pub fn empty_to(&self, mark: &Mark) -> Result<bool> {
        let mut state = self.state();
        let Some(open) = self.current(&mut state, false)? else {
            return Ok(false);
        };
        let same =
            !open.spoilt && (open.first, open.last, open.end) == (Some(mark.first), mark.last, mark.end);
        if same {
            open.blank(SECTOR).at(&self.path)?;
        }
        Ok(same)
    }

    /// Whether so much is in it that it should be emptied before somebody has to wait for that.
    pub fn is_well_filled(&self) -> bool {
        self.state().as_ref().is_some_and(|open| open.end >= WELL_FILLED)
    }

    /// Whether nothing is in it, by a look that needs no lock.
    pub fn is_empty(&self) -> Result<bool> {
        let Some(file) = files::open_existing(&self.path)? else {
            return Ok(true);
        };
        let mut magic = [0; 4];
        match file.read_exact_at(&mut magic, 0) {
            Ok(()) => Ok(magic != *MAGIC),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(true),
            Err(error) => Err(error).at(&self.path),
        }
    }

    /// What is to be brought about, in order: all that is in it if another boot of the system left it, else the last record
    /// if that only deletes.
    pub fn left(&self) -> Result<Vec<Entry>> {
        let mut state = self.state();
        let Some(open) = self.current(&mut state, false)? else {
            return Ok(Vec::new());
        };
        let mut entries = Vec::new();
        let mut in_this_boot = false;
        let (mut at, mut last) = (0, [0; HASH]);
        while let Some(record) = open.read(at, last).at(&self.path)? {
            let (made_in, mut rest) = record.body.split_at_checked(BOOT).unwrap_or_default();
            if boot().is_some_and(|boot| boot == made_in) {
                entries.clear();
            }
            while let Some((entry, after)) = parse(rest) {
                entries.push(entry);
                rest = after;
            }
            at += record.length;
            last = record.hash;
            in_this_boot |= boot().is_some_and(|boot| boot == made_in);
        }
        if in_this_boot && !entries.iter().all(|entry| matches!(entry, Entry::Ref(_, None))) {
            return Ok(Vec::new());
        }
        Ok(entries)
    }

    /// The open file, as it is now: others may have written to it, or put another one in its place.
    fn current<'s>(&self, state: &'s mut Option<Open>, make: bool) -> Result<Option<&'s mut Open>> {
        let gone = |open: &Open| open.file.metadata().is_ok_and(|meta| meta.nlink() == 0);
        if state.as_ref().is_some_and(gone) {
            *state = None;
        }
        if state.is_none() {
            let there = self.path.exists() || (make && self.make()?);
            if !there {
                return Ok(None);
            }
            let dir = self.path.parent().expect("in the store");
            let file = File::options().read(true).write(true).open(&self.path);
            *state = Some(Open {
                file_system: File::open(dir).at(dir)?,
                file: file.at(&self.path)?,
                first: None,
                last: [0; HASH],
                end: 0,
                spoilt: false,
            });
        }
        let open = state.as_mut().expect("opened right above");
        open.catch_up().at(&self.path)?;
        Ok(Some(open))
    }

    /// Makes the file, all of it on the disk: writing over it later changes nothing else. `false` when there is no room.
    fn make(&self) -> Result<bool> {
        let dir = self.path.parent().expect("in the store");
        let made = TempFile::new(dir, "tmp_ahead_", FILE_MODE).and_then(|mut temp| {
            temp.write_all(&vec![0; BYTES])?;
            temp.sync()?;
            temp.rename(&self.path)?;
            files::sync_dir(dir)
        });
        match made {
            Ok(()) => {
                self.size.add_file(BYTES as u64);
                Ok(true)
            }
            Err(crate::error::Error::Io { source, .. })
                if [nix::libc::ENOSPC, nix::libc::EDQUOT]
                    .map(Some)
                    .contains(&source.raw_os_error()) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// What was in the file at some moment.
#[derive(Debug)]
pub struct Mark {
    /// The description that vouches for all since the file was empty, see [`Open`].
    file_system: File,
    first: Hash,
    last: Hash,
    end: usize,
}

impl Mark {
    /// Makes everything on the file system durable.
    pub fn sync(&self) -> io::Result<()> {
        fault::point("store.fsync")?;
        sync_file_system(&self.file_system)
    }
}

struct Record {
    body: Vec<u8>,
    hash: Hash,
    length: usize,
}

impl Open {
    /// Finds the end anew if it isn't where it was.
    fn catch_up(&mut self) -> io::Result<()> {
        let first = self.read(0, [0; HASH])?.map(|record| record.hash);
        if first != self.first {
            (self.first, self.last, self.end) = (first, [0; HASH], 0);
        }
        while let Some(record) = self.read(self.end, self.last)? {
            self.last = record.hash;
            self.end += record.length;
        }
        Ok(())
    }

    /// The record at `at`, if there is a whole one that follows the one with the hash `last`.
    fn read(&self, at: usize, last: Hash) -> io::Result<Option<Record>> {
        if at + HEADER + BOOT + HASH > BYTES {
            return Ok(None);
        }
        let mut header = [0; HEADER];
        if !self.fill(&mut header, at)? {
            return Ok(None);
        }
        let length = u32::from_le_bytes(header[4..8].try_into().expect("four bytes")) as usize;
        if header[..4] != *MAGIC
            || (at > 0 && header[8..] != last)
            || length < BOOT
            || at + HEADER + length + HASH > BYTES
        {
            return Ok(None);
        }
        let mut body = vec![0; length + HASH];
        if !self.fill(&mut body, at + HEADER)? {
            return Ok(None);
        }
        let stated = body.split_off(length);
        let hash: Hash = Sha1::new()
            .chain_update(header)
            .chain_update(&body)
            .finalize()
            .into();
        Ok((stated == hash).then_some(Record {
            body,
            hash,
            length: HEADER + length + HASH,
        }))
    }

    /// Reads so much from there; `false` when there is less.
    fn fill(&self, bytes: &mut [u8], at: usize) -> io::Result<bool> {
        match self.file.read_exact_at(bytes, at as u64) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            other => other.map(|()| true),
        }
    }

    fn is_blank(&self) -> io::Result<bool> {
        let mut bytes = vec![0; BYTES];
        Ok(self.fill(&mut bytes, 0)? && bytes.iter().all(|byte| *byte == 0))
    }

    /// Everything is durable first.
    fn empty(&mut self, wipe: bool) -> io::Result<()> {
        fault::point("store.fsync")?;
        sync_file_system(&self.file_system)?;
        self.blank(if wipe { BYTES } else { SECTOR })
    }

    /// Everything that it says is durable elsewhere.
    fn blank(&mut self, bytes: usize) -> io::Result<()> {
        fault::point("store.write")?;
        self.file.write_all_at(&vec![0; bytes], 0)?;
        fault::point("store.fsync")?;
        self.file.sync_data()?;
        (self.first, self.last, self.end, self.spoilt) = (None, [0; HASH], 0, false);
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn sync_file_system(any: &File) -> io::Result<()> {
    nix::unistd::syncfs(any).map_err(io::Error::from)
}

#[cfg(not(target_os = "linux"))]
fn sync_file_system(_: &File) -> io::Result<()> {
    nix::unistd::sync();
    Ok(())
}

/// The first entry, and what comes after it.
fn parse(bytes: &[u8]) -> Option<(Entry, &[u8])> {
    let (&kind, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    if kind == REF_GONE {
        return Some((Entry::Ref(String::from_utf8(text.to_vec()).ok()?, None), rest));
    }
    let (oid, rest) = rest.split_first_chunk::<20>()?;
    let entry = match kind {
        OBJECT => Entry::Object(Oid(*oid), text.to_vec()),
        REF_SET => Entry::Ref(String::from_utf8(text.to_vec()).ok()?, Some(Oid(*oid))),
        _ => return None,
    };
    Some((entry, rest))
}

fn nonce() -> Hash {
    use std::hash::{BuildHasher, RandomState};
    let mut bytes = [0; HASH];
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&RandomState::new().hash_one(0).to_le_bytes()[..part.len()]);
    }
    bytes
}

/// Which run of the system this is, as a UUID; `None` where that isn't told.
fn boot() -> Option<[u8; BOOT]> {
    static BOOT_ID: std::sync::OnceLock<Option<[u8; BOOT]>> = std::sync::OnceLock::new();
    *BOOT_ID.get_or_init(|| {
        let text = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
        text.trim_ascii_end().try_into().ok()
    })
}

#[cfg(test)]
impl Ahead {
    /// Tests let every record stem from another boot.
    pub fn age(&self) {
        let mut state = self.state();
        let open = self.current(&mut state, false).unwrap().expect("there is one");
        let (mut at, mut last, mut aged_last) = (0, [0; HASH], [0; HASH]);
        while let Some(record) = open.read(at, last).unwrap() {
            let mut bytes = Vec::new();
            bytes.extend_from_slice(MAGIC);
            bytes.extend_from_slice(&u32::try_from(record.body.len()).unwrap().to_le_bytes());
            bytes.extend_from_slice(&if at == 0 { nonce() } else { aged_last });
            bytes.extend_from_slice(&[b'0'; BOOT]);
            bytes.extend_from_slice(&record.body[BOOT..]);
            aged_last = Sha1::digest(&bytes).into();
            bytes.extend_from_slice(&aged_last);
            open.file.write_all_at(&bytes, at as u64).unwrap();
            last = record.hash;
            at += record.length;
        }
    }
}
