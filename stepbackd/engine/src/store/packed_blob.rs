//! A large blob in a pack, read in pieces: libgit2 would hold it whole. Nothing is believed that a file says of itself before
//! it was checked.

use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use crate::error::{At, Error};
use crate::oid::{ObjectKind, Oid};

use super::files;
use super::inflate::{Contents, Fault, Stream};
use super::pack_entry::{EntryHeader, Form, PACK_HEADER_BYTES};
use super::pack_index::{CHECKSUM_BYTES, Index};

/// How a blob stands in a pack.
pub enum PackedBlob {
    /// As a whole: its contents.
    Whole(Box<Contents>, u64),
    /// As the difference to another object.
    Delta,
}

/// Looks a blob up in the packs that a store has now.
pub fn open(store: &Path, oid: Oid) -> Result<PackedBlob, Fault> {
    let dir = store.join("objects/pack");
    for name in files::names(&dir)? {
        let index = dir.join(name);
        if index.extension().is_some_and(|it| it == "idx")
            && let Some(offset) = offset_in(store, &index, oid)?
            && let Some(found) = open_at(&index.with_extension("pack"), offset)?
        {
            return Ok(found);
        }
    }
    Err(Fault::Damaged(
        "isn't in the index of any pack that is whole".into(),
    ))
}

/// Where an object begins in the pack of this index. `None` when it isn't there, and when the index isn't whole.
fn offset_in(store: &Path, index: &Path, oid: Oid) -> Result<Option<u64>, Error> {
    let found = Index::open(store, index).and_then(|index| match index {
        Some(index) => index.find(oid),
        None => Ok(None),
    });
    match found {
        // Another pack may have it.
        Err(Error::Damaged { .. }) => Ok(None),
        found => found,
    }
}

/// What begins at this place of a pack. `None` when the pack isn't there.
fn open_at(pack: &Path, offset: u64) -> Result<Option<PackedBlob>, Fault> {
    let Some(mut file) = files::open_existing(pack)? else {
        return Ok(None);
    };
    let meta = file.metadata().at(pack)?;
    let end = meta.len().saturating_sub(CHECKSUM_BYTES);
    if !meta.is_file() || offset < PACK_HEADER_BYTES || offset >= end {
        return Err(Fault::Damaged(
            "is said to be where its pack doesn't reach".into(),
        ));
    }
    file.seek(SeekFrom::Start(offset)).at(pack)?;
    let mut file = BufReader::with_capacity(64 << 10, file.take(end - offset));
    let header = match EntryHeader::read(&mut file) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(Fault::Damaged("is truncated".into()));
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(Fault::Damaged("has a wrong header".into()));
        }
        other => other.at(pack)?,
    };
    match header.form {
        Form::Whole(ObjectKind::Blob) => {
            let stream = Stream::new(file, pack.to_owned());
            let contents = Contents::new(stream, ObjectKind::Blob, header.size);
            Ok(Some(PackedBlob::Whole(Box::new(contents), header.size)))
        }
        Form::DeltaOfBefore(_) | Form::DeltaOfNamed => Ok(Some(PackedBlob::Delta)),
        Form::Whole(_) => Err(Fault::Damaged("is no blob where it is said to be".into())),
    }
}
