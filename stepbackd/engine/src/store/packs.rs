//! Objects in packs, read through libgit2.
//!
//! libgit2 was seen to loop for ever on a truncated loose object, so it never gets to see one: its object database is
//! opened on a directory that has nothing but a link to the packs.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use git2::{ErrorCode, ObjectType, Odb, OdbLookupFlags};

use crate::error::{At, Error, Result, damaged_object};
use crate::oid::{ObjectKind, Oid};

use super::files;

/// The packs of a store.
pub struct Packs {
    open: RwLock<Open>,
    store: PathBuf,
    view: PathBuf,
}

struct Open {
    odb: Odb<'static>,
    /// The packs that were there.
    names: BTreeSet<OsString>,
    /// libgit2 wants a path in UTF-8; this one stands for any that isn't.
    _dir: Option<File>,
}

impl Open {
    fn new(store: &Path, view: &Path) -> Result<Self> {
        let git = |e: git2::Error| Error::Library {
            store: store.to_owned(),
            what: e.message().to_owned(),
        };
        let names = pack_names(view)?;
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
            names,
            _dir: dir,
        })
    }
}

fn pack_names(view: &Path) -> Result<BTreeSet<OsString>> {
    let names = files::names(&view.join("pack"))?;
    Ok(names
        .into_iter()
        .filter(|name| name.as_encoded_bytes().ends_with(b".pack"))
        .collect())
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
        Ok(Self {
            open: RwLock::new(Open::new(store, view)?),
            store: store.to_owned(),
            view: view.to_owned(),
        })
    }

    fn open_now(&self) -> RwLockReadGuard<'_, Open> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// libgit2 goes on reading a pack that was deleted, as long as it has it open; what is in it would count as stored
    /// though nobody will find it again. So when a pack has gone, all are opened anew.
    pub fn notice_lost(&self) -> Result<()> {
        let there = pack_names(&self.view)?;
        if self.open_now().names.is_subset(&there) {
            return Ok(());
        }
        let anew = Open::new(&self.store, &self.view)?;
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = anew;
        Ok(())
    }

    /// Looks for packs that others have made. What a pack held that is gone doesn't count as stored any more.
    pub fn refresh(&self) -> Result<()> {
        self.notice_lost()?;
        // Those that a later loss would be noticed of.
        let names = pack_names(&self.view)?;
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.names = names;
        open.odb
            .refresh()
            .map_err(|error| unreadable(&self.store, &error))
    }

    /// Whether a pack that is known has such an object, good or not.
    pub fn lists(&self, oid: Oid) -> bool {
        self.open_now()
            .odb
            .exists_ext(to_git(oid), OdbLookupFlags::NO_REFRESH)
    }

    /// A whole object, verified. `None` when no pack has it, new packs included.
    pub fn read(&self, oid: Oid) -> Result<Option<(ObjectKind, Vec<u8>)>> {
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
                Ok(Some((kind, object.data().to_vec())))
            }
            Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(self.damaged(oid, &error)),
        }
    }

    /// Kind and size without reading the contents, so unverified. `None` when no pack has it.
    pub fn header(&self, oid: Oid) -> Result<Option<(ObjectKind, u64)>> {
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

fn unreadable(store: &Path, error: &git2::Error) -> Error {
    Error::Damaged {
        store: store.to_owned(),
        what: format!("its packs can't be read ({})", error.message()),
    }
}

fn to_git(oid: Oid) -> git2::Oid {
    git2::Oid::from_bytes(&oid.0).expect("twenty bytes are an object id")
}
