//! Objects in packs, read through libgit2.
//!
//! libgit2 was seen to loop for ever on a truncated loose object, so it never gets to see one: its object database is
//! opened on a directory that has nothing but a link to the packs.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use git2::{ErrorCode, ObjectType, Odb, OdbLookupFlags};
use rayon::prelude::*;

use crate::error::{At, Error, Result, damaged_object};
use crate::oid::{ObjectKind, Oid};

use super::inflate::Fault;
use super::loose::Stamp;
use super::packed_blob::{self, PackedBlob};
use super::writer::LARGE_BYTES;
use super::{files, pack};

/// So many objects that were read and found good are remembered, at about 30 bytes each.
const GOOD_MAX: usize = 32_768;
/// So many are read one by one to be checked; beyond, the packs are read through once.
const CHECK_EACH_MAX: usize = 1_000;
/// ... unless they are larger than this, in bytes.
const CHECK_WHOLE_MAX: u64 = 2 << 30;

/// The packs of a store.
pub struct Packs {
    open: RwLock<Open>,
    /// Objects that were read and found good since the packs were as they are.
    good: Mutex<HashSet<Oid>>,
    /// The names of the packs that are known are on the disk.
    durable: AtomicBool,
    /// All that the packs hold is as it was written: their checksums are right.
    sound: AtomicBool,
    /// How many objects were read to be checked.
    checked: AtomicUsize,
    /// Something was read since the packs were opened.
    read: AtomicBool,
    /// They were let go of and couldn't be opened anew.
    closed: AtomicBool,
    /// Held while the packs are read through.
    checking: Mutex<()>,
    /// How often packs that were known weren't there any more.
    losses: AtomicUsize,
    store: PathBuf,
    view: PathBuf,
}

struct Open {
    odb: Odb<'static>,
    /// The packs and indexes that were there, and which files they were.
    packs: BTreeMap<OsString, Stamp>,
    /// libgit2 wants a path in UTF-8; this one stands for any that isn't.
    _dir: Option<File>,
}

impl Open {
    fn new(store: &Path, view: &Path) -> Result<Self> {
        let git = |e: git2::Error| Error::Library {
            store: store.to_owned(),
            what: e.message().to_owned(),
        };
        let packs = pack_files(view)?;
        let odb = Odb::new().map_err(git)?;
        let dir = if let Some(path) = view.to_str() {
            odb.add_disk_alternate(path).map_err(git)?;
            None
        } else {
            let dir = File::open(view).at(view)?;
            odb.add_disk_alternate(&format!("/proc/self/fd/{}", dir.as_raw_fd()))
                .map_err(git)?;
            Some(dir)
        };
        Ok(Self {
            odb,
            packs,
            _dir: dir,
        })
    }

    /// Whether a pack isn't there any more, or is another file.
    fn has_lost(&self, there: &BTreeMap<OsString, Stamp>) -> bool {
        self.packs
            .iter()
            .any(|(name, stamp)| there.get(name) != Some(stamp))
    }
}

fn pack_files(view: &Path) -> Result<BTreeMap<OsString, Stamp>> {
    let dir = view.join("pack");
    let mut found = BTreeMap::new();
    for name in files::names(&dir)? {
        // Both: a pack counts once its index is there.
        if ![&b".pack"[..], b".idx"]
            .iter()
            .any(|end| name.as_encoded_bytes().ends_with(end))
        {
            continue;
        }
        let path = dir.join(&name);
        match path.symlink_metadata() {
            Ok(meta) => drop(found.insert(name, Stamp::of(&meta))),
            Err(error) if files::is_absent(&error) => {}
            Err(error) => return Err(error).at(path),
        }
    }
    Ok(found)
}

impl std::fmt::Debug for Packs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packs")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

impl Packs {
    /// `view` is the directory that is kept for libgit2; what it needs is made.
    pub fn open(store: &Path, view: &Path) -> Result<Self> {
        files::make_dir(view)?;
        let link = view.join("pack");
        match symlink("../../objects/pack", &link) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error).at(link),
            _ => {}
        }
        // Its cache is one for the process and up to 256 MiB; ours are per root and bounded.
        git2::opts::enable_caching(false);
        // We check what we read ourselves, by the same hash.
        git2::opts::strict_hash_verification(false);
        Ok(Self {
            open: RwLock::new(Open::new(store, view)?),
            good: Mutex::default(),
            durable: AtomicBool::new(false),
            sound: AtomicBool::new(false),
            checked: AtomicUsize::new(0),
            read: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            checking: Mutex::default(),
            losses: AtomicUsize::new(0),
            store: store.to_owned(),
            view: view.to_owned(),
        })
    }

    fn open_now(&self) -> RwLockReadGuard<'_, Open> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// libgit2 goes on reading a pack that was deleted, as long as it has it open; what is in it would count as stored
    /// though nobody will find it again. So when a pack has gone, or is another file, all are opened anew; whether
    /// they were.
    pub fn notice_lost(&self) -> Result<bool> {
        let there = pack_files(&self.view)?;
        if !self.is_closed() && !self.open_now().has_lost(&there) {
            return Ok(false);
        }
        self.open_anew()?;
        Ok(true)
    }

    fn open_anew(&self) -> Result<()> {
        let anew = Open::new(&self.store, &self.view)?;
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        self.take(&mut open, anew);
        Ok(())
    }

    fn take(&self, open: &mut Open, anew: Open) {
        let same = open.packs == anew.packs;
        if open.has_lost(&anew.packs) {
            self.losses.fetch_add(1, Ordering::SeqCst);
        }
        *open = anew;
        self.closed.store(false, Ordering::SeqCst);
        self.read.store(false, Ordering::SeqCst);
        if !same {
            self.unsure();
            self.good().clear();
        }
    }

    /// Lets go of what was read: packs are mapped into memory. libgit2 has each pack once in a process and counts who
    /// uses it, so nobody may when they are opened anew.
    ///
    /// # Errors
    /// When they can't be: until they can, nothing is found in them, and whoever wants to read them is told why.
    pub fn let_go(&self) -> Result<()> {
        if !self.read.load(Ordering::SeqCst) {
            return Ok(());
        }
        let nothing = Odb::new().map_err(|error| unreadable(&self.store, &error))?;
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        self.closed.store(true, Ordering::SeqCst);
        open.odb = nothing;
        let anew = Open::new(&self.store, &self.view)?;
        self.take(&mut open, anew);
        Ok(())
    }

    /// How often packs that were known weren't there any more: maintenance has put others in their place, or they are lost.
    pub fn losses(&self) -> usize {
        self.losses.load(Ordering::SeqCst)
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn reopen(&self) -> Result<()> {
        if self.is_closed() {
            self.open_anew()?;
        }
        Ok(())
    }

    /// There may be packs of which nothing is known.
    fn unsure(&self) {
        self.durable.store(false, Ordering::SeqCst);
        self.sound.store(false, Ordering::SeqCst);
        self.checked.store(0, Ordering::SeqCst);
    }

    /// Reads all packs through, and whether their checksums are right.
    fn check_whole(&self) -> Result<()> {
        let _one = self.checking.lock().unwrap_or_else(PoisonError::into_inner);
        if self.sound.load(Ordering::SeqCst) {
            return Ok(());
        }
        let known = self.open_now().packs.clone();
        if known.values().map(|stamp| stamp.size()).sum::<u64>() > CHECK_WHOLE_MAX {
            return Ok(());
        }
        let dir = self.view.join("pack");
        let packs: Vec<_> = known
            .keys()
            .map(|name| dir.join(name))
            .filter(|path| path.extension().is_some_and(|ending| ending == "pack"))
            .collect();
        let sound = packs.par_iter().map(|path| pack::is_sound(path));
        if !sound.collect::<Result<Vec<_>>>()?.contains(&false) {
            let open = self.open_now();
            self.sound.store(
                open.packs == known && pack_files(&self.view)? == known,
                Ordering::SeqCst,
            );
        }
        Ok(())
    }

    /// Looks for packs that others have made. What a pack held that is gone doesn't count as stored any more.
    pub fn refresh(&self) -> Result<()> {
        let there = pack_files(&self.view)?;
        if self.is_closed() || self.open_now().has_lost(&there) {
            return self.open_anew();
        }
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if open.packs == there {
            return Ok(());
        }
        self.unsure();
        // Those that a later loss would be noticed of.
        open.packs = there;
        open.odb
            .refresh()
            .map_err(|error| unreadable(&self.store, &error))
    }

    /// Makes the names of packs durable that others have just given them.
    pub fn sync(&self) -> Result<()> {
        if self.durable.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let synced = files::sync_dir(&self.view.join("pack"));
        if synced.is_err() {
            self.durable.store(false, Ordering::SeqCst);
        }
        synced
    }

    /// Reads something of an object in packs that are known. libgit2 would look for new ones by itself when none of them has
    /// it; nobody would notice later that such a one has gone. So it is done here before.
    fn in_known_packs<T, E: From<Error>>(
        &self,
        oid: Oid,
        read: impl FnOnce() -> Result<Option<T>, E>,
    ) -> Result<Option<T>, E> {
        self.read.store(true, Ordering::SeqCst);
        if !self.lists(oid) {
            self.refresh()?;
            if !self.lists(oid) {
                return Ok(None);
            }
        }
        read()
    }

    fn good(&self) -> MutexGuard<'_, HashSet<Oid>> {
        self.good.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a good object is in a pack that is known. It needn't be read again when that was done since the packs are
    /// as they are. When many are asked for, the packs are read through instead, once.
    ///
    /// # Errors
    /// [`Error::Damaged`] when it can't be relied on.
    pub fn has(&self, oid: Oid) -> Result<bool> {
        self.reopen()?;
        if !self.lists(oid) {
            return Ok(false);
        }
        if self.sound.load(Ordering::SeqCst) || self.good().contains(&oid) {
            return Ok(true);
        }
        if self.checked.fetch_add(1, Ordering::SeqCst) == CHECK_EACH_MAX {
            self.check_whole()?;
        }
        if self.sound.load(Ordering::SeqCst) {
            return Ok(true);
        }
        match self.copy_blob(oid, &mut io::sink()) {
            Ok(found) => Ok(found.is_some()),
            Err(Fault::Damaged(how)) => Err(damaged_object(&self.store, oid, &how)),
            Err(Fault::System(error)) => Err(error),
            Err(Fault::Sink(error)) => Err(error).at(&self.store),
        }
    }

    /// Whether a pack that is known has such an object, good or not.
    pub fn lists(&self, oid: Oid) -> bool {
        let open = self.open_now();
        !open.packs.is_empty() && open.odb.exists_ext(to_git(oid), OdbLookupFlags::NO_REFRESH)
    }

    /// A whole object, verified. `None` when no pack has it, new packs included.
    pub fn read(&self, oid: Oid) -> Result<Option<(ObjectKind, Vec<u8>)>> {
        self.reopen()?;
        match self.in_known_packs(oid, || self.read_once(oid)) {
            // Maintenance may have put a new pack in the place of one that was known and not yet opened.
            Err(error) => match self.notice_lost()? {
                true => self.read_once(oid),
                false => Err(error),
            },
            found => found,
        }
    }

    fn read_once(&self, oid: Oid) -> Result<Option<(ObjectKind, Vec<u8>)>> {
        // libgit2 makes the empty tree up when there is none.
        let open = self.open_now();
        if oid == Oid::EMPTY_TREE && !open.odb.exists(to_git(oid)) {
            return Ok(None);
        }
        match open.odb.read(to_git(oid)) {
            Ok(object) => {
                let kind = self.kind(oid, object.kind())?;
                if Oid::of(kind, object.data()) != oid {
                    return Err(damaged_object(
                        &self.store,
                        oid,
                        "has other contents than its name says",
                    ));
                }
                self.was_good(oid);
                Ok(Some((kind, object.data().to_vec())))
            }
            Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(self.damaged(oid, &error)),
        }
    }

    fn was_good(&self, oid: Oid) {
        let mut good = self.good();
        if good.len() >= GOOD_MAX {
            good.clear();
        }
        good.insert(oid);
    }

    /// Hands a blob on, a large one in pieces; its size in bytes. Whether it was good is known only when this returns. An
    /// object of another kind is checked, but not handed on. `None` when no pack has it, new packs included.
    pub fn copy_blob(&self, oid: Oid, to: &mut dyn Write) -> Result<Option<(ObjectKind, u64)>, Fault> {
        self.reopen()?;
        let mut to = Counted { to, bytes: 0 };
        match self.in_known_packs(oid, || self.copy_once(oid, &mut to)) {
            // As in `read`; but what was handed on can't be taken back.
            Err(fault) if to.bytes == 0 && !matches!(fault, Fault::Sink(_)) => match self.notice_lost()? {
                true => self.copy_once(oid, &mut to),
                false => Err(fault),
            },
            done => done,
        }
    }

    fn copy_once(&self, oid: Oid, to: &mut dyn Write) -> Result<Option<(ObjectKind, u64)>, Fault> {
        if let Some((ObjectKind::Blob, size)) = self.header_once(oid)?
            && size > LARGE_BYTES
        {
            let in_pack = |fault| match fault {
                Fault::Damaged(how) => Fault::Damaged(format!("{how}, in its pack")),
                other => other,
            };
            match packed_blob::open(&self.store, oid).map_err(in_pack)? {
                PackedBlob::Whole(contents, size) => {
                    contents.copy(oid, to).map_err(in_pack)?;
                    self.was_good(oid);
                    return Ok(Some((ObjectKind::Blob, size)));
                }
                PackedBlob::Delta => {}
            }
        }
        let Some((kind, body)) = self.read_once(oid)? else {
            return Ok(None);
        };
        if kind == ObjectKind::Blob {
            to.write_all(&body).map_err(Fault::Sink)?;
        }
        Ok(Some((kind, body.len() as u64)))
    }

    /// Kind and size without reading the contents, so unverified. `None` when no pack has it.
    pub fn header(&self, oid: Oid) -> Result<Option<(ObjectKind, u64)>> {
        self.reopen()?;
        match self.in_known_packs(oid, || self.header_once(oid)) {
            Err(error) => match self.notice_lost()? {
                true => self.header_once(oid),
                false => Err(error),
            },
            found => found,
        }
    }

    fn header_once(&self, oid: Oid) -> Result<Option<(ObjectKind, u64)>> {
        match self.open_now().odb.read_header(to_git(oid)) {
            Ok((size, kind)) => Ok(Some((self.kind(oid, kind)?, size as u64))),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(self.damaged(oid, &error)),
        }
    }

    fn kind(&self, oid: Oid, kind: ObjectType) -> Result<ObjectKind> {
        match kind {
            ObjectType::Blob => Ok(ObjectKind::Blob),
            ObjectType::Tree => Ok(ObjectKind::Tree),
            ObjectType::Commit => Ok(ObjectKind::Commit),
            _ => Err(damaged_object(
                &self.store,
                oid,
                "is of a kind that is never written here",
            )),
        }
    }

    fn damaged(&self, oid: Oid, error: &git2::Error) -> Error {
        damaged_object(
            &self.store,
            oid,
            &format!("is damaged in its pack ({})", error.message()),
        )
    }
}

/// Counts what was handed on.
struct Counted<'a> {
    to: &'a mut dyn Write,
    bytes: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn unreadable(store: &Path, error: &git2::Error) -> Error {
    Error::Damaged {
        store: store.to_owned(),
        what: format!("its packs can't be read ({})", error.message()),
    }
}

fn to_git(oid: Oid) -> git2::Oid {
    git2::Oid::from_bytes(&oid.0).expect("twenty bytes are an object id")
}
