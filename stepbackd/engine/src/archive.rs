//! A recorded tree as a tar.

use std::io::{self, Write};

use tar::{Builder, EntryType, Header};

use crate::error::Result;
use crate::node::{CommonModes, Kind, Node, Snapshot};
use crate::oid::{ObjectKind, Oid};
use crate::path::TreePath;
use crate::store::{LARGE_BYTES, Store};
use crate::time::Time;
use crate::tree::stored::read_dir;

/// Writes the tree with its modes; every entry has the time of the checkpoint and no owner.
///
/// # Errors
/// Outside: those of `to`. Inside: those of the store.
pub fn write(
    store: &Store,
    snapshot: Snapshot,
    common: &CommonModes,
    time: Time,
    to: &mut dyn Write,
) -> io::Result<Result<()>> {
    let mut archive = Archive {
        store,
        common,
        time,
        builder: Builder::new(to),
    };
    if let Err(e) = archive.dir(&TreePath::root(), snapshot)? {
        return Ok(Err(e));
    }
    archive.builder.finish()?;
    Ok(Ok(()))
}

struct Archive<'a> {
    store: &'a Store,
    common: &'a CommonModes,
    time: Time,
    builder: Builder<&'a mut dyn Write>,
}

/// The store's error, which must not be taken for one of the archive's receiver.
macro_rules! of_store {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(e) => return Ok(Err(e)),
        }
    };
}

impl Archive<'_> {
    fn dir(&mut self, path: &TreePath, snapshot: Snapshot) -> io::Result<Result<()>> {
        let dir = of_store!(read_dir(self.store, snapshot, self.common));
        for entry in dir.entries {
            let path = path.join(&entry.name);
            of_store!(self.entry(&path, &entry.node)?);
            if let Some(below) = entry.below {
                of_store!(self.dir(&path, below)?);
            }
        }
        Ok(Ok(()))
    }

    fn entry(&mut self, path: &TreePath, node: &Node) -> io::Result<Result<()>> {
        let mut header = Header::new_gnu();
        header.set_mode(node.perm.bits());
        header.set_mtime(u64::try_from(self.time.seconds()).unwrap_or(0));
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(0);
        match node.kind {
            Kind::Dir => {
                header.set_entry_type(EntryType::Directory);
                self.builder
                    .append_data(&mut header, path.as_path(), io::empty())?;
            }
            Kind::Fifo => {
                header.set_entry_type(EntryType::Fifo);
                self.builder
                    .append_data(&mut header, path.as_path(), io::empty())?;
            }
            Kind::Link(oid) => {
                use std::os::unix::ffi::OsStrExt;
                let target = of_store!(self.store.read(oid, ObjectKind::Blob));
                header.set_entry_type(EntryType::Symlink);
                let target = std::path::Path::new(std::ffi::OsStr::from_bytes(&target));
                self.builder.append_link(&mut header, path.as_path(), target)?;
            }
            Kind::File(oid) => {
                let size = of_store!(self.store.blob_size(oid));
                header.set_entry_type(EntryType::Regular);
                header.set_size(size);
                if size > LARGE_BYTES {
                    of_store!(self.large(&mut header, path, oid)?);
                } else {
                    let bytes = of_store!(self.store.read(oid, ObjectKind::Blob));
                    self.builder
                        .append_data(&mut header, path.as_path(), bytes.as_slice())?;
                }
            }
        }
        Ok(Ok(()))
    }

    /// A file that isn't held in memory as a whole: a thread of its own takes it out of the store.
    fn large(&mut self, header: &mut Header, path: &TreePath, oid: Oid) -> io::Result<Result<()>> {
        let (reader, mut writer) = io::pipe()?;
        let store = self.store;
        std::thread::scope(|scope| {
            let copy = scope.spawn(move || store.copy_blob(oid, &mut writer));
            let appended = self.builder.append_data(header, path.as_path(), reader);
            let copied = copy
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            // Where nobody takes it any more, the copy couldn't go on either.
            appended?;
            Ok(copied.map(drop))
        })
    }
}
