//! The layout of a store: made, checked, and cleared of what crashes leave.

use std::path::Path;

use nix::fcntl::FlockArg;

use crate::error::{At, Error, Result};
use crate::oid::{ObjectKind, Oid};

use super::files::{self, OBJECT_MODE, TempFile};
use super::{LARGE_BYTES, Store, deflate, large, lock, loose};

/// git works by this, should anyone use it here; libgit2 never reads it. No reflogs, no automatic maintenance, no hooks
/// from elsewhere. Large files aren't stored as differences: those can't be read in pieces.
fn config() -> String {
    format!(
        "\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
\tlogAllRefUpdates = false
\thooksPath = /dev/null
\tfsync = all
\tbigFileThreshold = {LARGE_BYTES}
[gc]
\tauto = 0
[maintenance]
\tauto = false
"
    )
}

const HEAD: &str = "ref: refs/heads/main\n";

/// Makes whatever is missing. The configuration comes last: with it, the store is complete.
pub fn create(dir: &Path) -> Result<()> {
    let private = dir.join("stepback");
    if !private.is_dir() && !files::names(dir)?.is_empty() {
        let message = format!(
            "{}: there is something else in the place of a store",
            dir.display()
        );
        return Err(Error::Refused {
            message,
            hint: "move it away, then try again".into(),
        });
    }
    files::make_dirs(dir)?;
    files::make_dir(&private)?;
    // Two that create the same store at once take turns.
    let _alone = lock::flock(&private.join("lock"), FlockArg::LockExclusive)?;
    if dir.join("config").exists() {
        return Ok(());
    }
    for part in ["objects", "objects/info", "objects/pack", "refs", "refs/heads"] {
        files::make_dir(&dir.join(part))?;
    }
    files::sync_dir(&dir.join("objects"))?;
    files::replace(&dir.join("HEAD"), HEAD.as_bytes())?;
    files::replace(&dir.join("config"), config().as_bytes())
}

/// Writes `HEAD` anew when it has gone: it is the same in every store, and git takes none without it for a repository.
pub fn mend_head(dir: &Path) -> Result<()> {
    let head = dir.join("HEAD");
    if dir.join("config").exists() && !head.exists() {
        files::replace(&head, HEAD.as_bytes())?;
    }
    Ok(())
}

/// Whether the parts are there. Nothing is made up for a part that has gone.
pub fn check(dir: &Path) -> Result<()> {
    dir.metadata().at(dir)?;
    for (part, is_dir) in [
        ("stepback", true),
        ("config", false),
        ("HEAD", false),
        ("objects", true),
        ("objects/pack", true),
        ("refs", true),
    ] {
        let found = dir
            .join(part)
            .metadata()
            .is_ok_and(|meta| meta.is_dir() == is_dir);
        if !found {
            return Err(Error::DamagedRecord {
                store: dir.to_owned(),
                what: format!("{part} is missing"),
                hint: "put it back from a backup, or begin a new history: `stepback attach --here --new`; then that \
                       directory may be removed"
                    .into(),
            });
        }
    }
    Ok(())
}

/// Empty directories are entries with the empty tree, so it must be an object; libgit2 would only pretend.
pub fn write_empty_tree(store: &Store) -> Result<()> {
    let path = loose::path(&store.objects, Oid::EMPTY_TREE);
    let _lock = store.lock()?;
    if store.has(Oid::EMPTY_TREE)? {
        return Ok(());
    }
    let mut temp = TempFile::new(&store.objects, "tmp_obj_", OBJECT_MODE)?;
    temp.write_all(&deflate::loose(ObjectKind::Tree, b"").at(&path)?)?;
    temp.sync()?;
    let dir = path.parent().expect("in a fan-out directory");
    files::make_dir(dir)?;
    temp.rename(&path)?;
    files::sync_dir(dir)?;
    files::sync_dir(&store.objects)
}

/// Removes temporary files and locks of writers that were killed. Nobody else writes while this has the exclusive lock;
/// when somebody uses the store, it is left for another time.
pub fn remove_leftovers(store: &Store) -> Result<()> {
    match store.try_lock_exclusive()? {
        Some(_alone) => remove_half_made(store),
        None => Ok(()),
    }
}

/// The same for whoever has the exclusive lock.
pub fn remove_half_made(store: &Store) -> Result<()> {
    let _refs = store.lock_refs()?;
    for dir in [&store.dir, &store.private, &store.objects, &store.pack_dir()] {
        for name in files::names(dir)? {
            let bytes = name.as_encoded_bytes();
            // git's own begin with `.tmp-`.
            if bytes.starts_with(b"tmp_") || bytes.starts_with(b".tmp-") {
                files::remove(&dir.join(name))?;
            }
        }
    }
    large::remove_aside(&store.private)?;
    files::remove(&store.dir.join("packed-refs.lock"))?;
    remove_ref_locks(&store.dir.join("refs"))
}

/// A pack counts once its index is there; one without the other was being written or removed. Only for when all that refs
/// need was found elsewhere: an index may have been lost.
pub fn remove_torn_packs(dir: &Path) -> Result<()> {
    let names = files::names(dir)?;
    for name in &names {
        let path = Path::new(name);
        let alone = |other: &str| !names.iter().any(|name| *name == path.with_extension(other));
        let torn = match path.extension().and_then(|it| it.to_str()) {
            Some("pack") => alone("idx"),
            Some("idx" | "rev" | "mtimes" | "bitmap") => alone("pack"),
            _ => false,
        };
        if torn {
            files::remove(&dir.join(path))?;
        }
    }
    Ok(())
}

fn remove_ref_locks(dir: &Path) -> Result<()> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if files::is_absent(&error) => return Ok(()),
        other => other.at(dir)?,
    };
    for entry in entries {
        let entry = entry.at(dir)?;
        if entry.file_type().at(entry.path())?.is_dir() {
            remove_ref_locks(&entry.path())?;
        } else if entry.file_name().as_encoded_bytes().ends_with(b".lock") {
            files::remove(&entry.path())?;
        }
    }
    Ok(())
}
