//! Reading one entry: contents into the store, attributes, a stable stat.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use nix::errno::Errno;
use xattr::FileExt;

use super::dir::{File, Left, Sig, Slot, is_racy};
use super::limits::Room;
use crate::error::{At, Error, Result};
use crate::node::{Attributes, Perm, Reason};
use crate::oid::{ObjectKind, Oid};
use crate::root::{DirHandle, FileType, Stat};
use crate::store::{LARGE_BYTES, ObjectWriter};

/// A file that changes while it is read is read again so often in all.
const TRIES: u32 = 3;

/// What came of reading.
pub(super) enum Outcome {
    /// This is there.
    Slot(Slot),
    /// Nothing is there any more.
    Gone,
    /// Something of another type is there now; look again.
    OtherType,
}

/// What became of an open file's bytes.
enum Contents {
    /// They are this object; whether a writer was given it.
    Stored(Oid, bool),
    /// They weren't as many as was said.
    Changed,
    /// They are new, and there is no room for them.
    NoRoom,
}

/// What reading needs.
pub(super) struct Reader<'a> {
    pub writer: &'a ObjectWriter<'a>,
    pub max_file_size: u64,
    /// For new contents.
    pub room: Option<&'a Room>,
    pub now_ns: i64,
}

/// The slot of something left out.
pub(super) fn left(reason: Reason, stat: &Stat) -> Slot {
    Slot::Left(Box::new(Left {
        reason,
        size: stat.size,
        mtime_ns: stat.mtime_ns,
    }))
}

impl Reader<'_> {
    /// Reads a regular file. `earlier`: what was known of it and is surely in the store.
    pub fn file(&self, dir: &DirHandle, name: &[u8], stat: &Stat, earlier: Option<&File>) -> Result<Outcome> {
        let mut last = *stat;
        for _ in 0..TRIES {
            if last.size > self.max_file_size {
                return Ok(Outcome::Slot(left(Reason::TooLarge, &last)));
            }
            let mut file = match dir.open_file(name) {
                Ok(file) => file,
                Err(error) => return unopened(error, &last),
            };
            let before = match Stat::of(&file) {
                Ok(before) => before,
                Err(_) => return Ok(Outcome::Slot(left(Reason::Unreadable, &last))),
            };
            if before.kind != FileType::File {
                return Ok(Outcome::OtherType);
            }
            last = before;
            if before.size > self.max_file_size {
                continue;
            }
            let known = earlier
                .filter(|earlier| !earlier.unsaved)
                .map(|earlier| earlier.oid);
            if before.size > LARGE_BYTES && !self.has_room(&mut file, before.size) {
                return Ok(Outcome::Slot(left(Reason::Quota, &before)));
            }
            let read = match self.contents(&mut file, before.size, known) {
                Err(Error::Io { path, .. }) if path.as_os_str().is_empty() => {
                    return Ok(Outcome::Slot(left(Reason::Unreadable, &before)));
                }
                Ok(Contents::NoRoom) => return Ok(Outcome::Slot(left(Reason::Quota, &before))),
                Ok(Contents::Stored(oid, unsaved)) => Some((oid, unsaved)),
                Ok(Contents::Changed) => None,
                Err(error) => return Err(error),
            };
            let attributes = attributes(&file);
            let (Some((oid, unsaved)), Ok(after)) = (read, Stat::of(&file)) else {
                continue;
            };
            if Sig::of(&after) != Sig::of(&before) {
                last = after;
                continue;
            }
            let Ok(attributes) = attributes else {
                return Ok(Outcome::Slot(left(Reason::Unreadable, &before)));
            };
            let racy = is_racy(after.mtime_ns, after.ctime_ns, self.now_ns);
            let perm = Perm::of_mode(after.mode);
            return Ok(Outcome::Slot(Slot::File(File {
                sig: Sig::of(&after),
                attributes,
                oid,
                perm,
                racy,
                unsaved,
            })));
        }
        let reason = if last.size > self.max_file_size {
            Reason::TooLarge
        } else {
            Reason::Changing
        };
        Ok(Outcome::Slot(left(reason, &last)))
    }

    /// Whether there is room for an open file's bytes, or they are in the store already.
    fn has_room(&self, file: &mut fs::File, size: u64) -> bool {
        if self.room.is_none_or(|room| room.take(size)) {
            return true;
        }
        // A file that can't be read through is none that is in the store.
        let oid = Oid::of_blob(size, file).ok().flatten();
        file.rewind().is_ok() && oid.is_some_and(|oid| self.writer.has(oid).unwrap_or(false))
    }

    /// Puts an open file's bytes, for which there is room if they are many, into the store.
    fn contents(&self, file: &mut fs::File, size: u64, known: Option<Oid>) -> Result<Contents> {
        if size > LARGE_BYTES {
            let put = self.writer.put_stream(size, file)?;
            return Ok(put.map_or(Contents::Changed, |oid| Contents::Stored(oid, true)));
        }
        let length = usize::try_from(size).unwrap_or(0);
        let body = match whole(file, length) {
            Ok(Some(body)) => body,
            Ok(None) => return Ok(Contents::Changed),
            Err(source) => {
                return Err(Error::Io {
                    path: std::path::PathBuf::new(),
                    source,
                });
            }
        };
        if let Some(known) = known
            && Oid::of(ObjectKind::Blob, &body) == known
        {
            return Ok(Contents::Stored(known, false));
        }
        let Some(room) = self.room else {
            return Ok(Contents::Stored(self.writer.put(ObjectKind::Blob, &body)?, true));
        };
        if !room.take(size) {
            let oid = Oid::of(ObjectKind::Blob, &body);
            if !self.writer.has(oid)? {
                return Ok(Contents::NoRoom);
            }
            return Ok(Contents::Stored(self.writer.put(ObjectKind::Blob, &body)?, true));
        }
        let (oid, is_new) = self.writer.put_if_new(ObjectKind::Blob, &body)?;
        if !is_new {
            room.give_back(size);
        }
        Ok(Contents::Stored(oid, true))
    }

    /// Reads a symbolic link.
    pub fn link(&self, dir: &DirHandle, name: &[u8], stat: &Stat) -> Result<Outcome> {
        let target = match dir.read_link(name) {
            Ok(target) => target,
            Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => {
                return Ok(Outcome::OtherType);
            }
            Err(error) => return unopened(error, stat),
        };
        let oid = self.writer.put(ObjectKind::Blob, &target)?;
        Ok(Outcome::Slot(Slot::Link(Box::new(File {
            sig: Sig::of(stat),
            attributes: None,
            oid,
            perm: Perm::of_mode(0o777),
            racy: is_racy(stat.mtime_ns, stat.ctime_ns, self.now_ns),
            unsaved: true,
        }))))
    }

    /// A FIFO, which has no contents; it isn't opened.
    pub fn fifo(&self, stat: &Stat) -> Slot {
        Slot::Fifo(Box::new(File {
            sig: Sig::of(stat),
            attributes: None,
            oid: Oid([0; 20]),
            perm: Perm::of_mode(stat.mode),
            racy: false,
            unsaved: false,
        }))
    }
}

/// All of a file that is said to have `length` bytes; `None` when it has more or less. One read does, as it asks for one byte
/// more: a second one, which would find the end, is spared.
fn whole(file: &mut fs::File, length: usize) -> io::Result<Option<Vec<u8>>> {
    let mut body = vec![0; length + 1];
    let mut end = 0;
    loop {
        match file.read(&mut body[end..]) {
            Ok(read) => {
                end += read;
                if read == 0 || end >= length {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    body.truncate(end);
    Ok((end == length).then_some(body))
}

/// What an entry is that can't be opened.
fn unopened(error: io::Error, stat: &Stat) -> Result<Outcome> {
    Ok(match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT) => Outcome::Gone,
        Some(Errno::ELOOP | Errno::ENXIO | Errno::ENOTDIR) => Outcome::OtherType,
        _ if is_ours(&error) => return Err(error).at("a file of the root"),
        _ => Outcome::Slot(left(Reason::Unreadable, stat)),
    })
}

/// Whether an error says something about this process instead of about the file.
pub(super) fn is_ours(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw),
        Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM)
    )
}

/// The attributes of something open that are captured. A file system without attributes has none.
pub(super) fn attributes(file: &impl FileExt) -> io::Result<Attributes> {
    let names = match file.list_xattr() {
        Ok(names) => names,
        Err(error) if is_unsupported(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut found = BTreeMap::new();
    for name in names {
        let bytes = name.as_bytes();
        if !is_captured(bytes) {
            continue;
        }
        if let Some(value) = file.get_xattr(&name)? {
            found.insert(bytes.to_vec(), value);
        }
    }
    Ok((!found.is_empty()).then(|| Arc::new(found)))
}

/// Whether an attribute of this name is captured.
fn is_captured(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name == b"system.posix_acl_access" || name == b"system.posix_acl_default"
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw),
        Some(Errno::ENOTSUP | Errno::ENOSYS)
    )
}

#[cfg(test)]
mod tests {
    use super::whole;

    #[test]
    fn a_file_is_whole_only_with_the_length_that_was_said() {
        let path = tempfile::NamedTempFile::new().expect("own file");
        for (bytes, length, is_whole) in [
            (0, 0, true),
            (1, 0, false),
            (0, 1, false),
            (9, 8, false),
            (9, 9, true),
            (9, 10, false),
            (70_000, 70_000, true),
        ] {
            let body = vec![b'x'; bytes];
            std::fs::write(path.path(), &body).expect("own file");
            let mut file = std::fs::File::open(path.path()).expect("own file");
            let read = whole(&mut file, length).expect("a file");
            assert_eq!(
                read,
                is_whole.then_some(body),
                "{bytes} bytes, said to be {length}"
            );
        }
    }

    #[test]
    fn a_file_that_says_it_is_empty_and_is_not_is_not_whole() {
        let Ok(mut file) = std::fs::File::open("/proc/self/stat") else {
            return;
        };
        assert_eq!(file.metadata().expect("it is open").len(), 0);
        assert_eq!(whole(&mut file, 0).expect("it can be read"), None);
    }
}
