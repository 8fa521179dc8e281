//! What was too much for the moment of a record is added to it later. Transcripts grow at their end: what one was then is
//! what it still begins with.

use std::path::Path;

use super::chunks::{self, Chunk};
use super::look::open;
use super::read::{self, ReadError};
use super::record::{Kept, Part};
use crate::error::Result;
use crate::oid::ObjectKind;
use crate::root::DirHandle;
use crate::store::{ObjectWriter, Store};

/// Adds what a session's files lack, from what a later record has of them, or from the files in the agent's directory, as
/// far as `budget` goes. Whether anything was added; what is gone stays missing.
///
/// # Errors
/// Those of the store.
pub(crate) fn complete(
    kept: &mut Kept,
    later: Option<&Kept>,
    dir: Option<&Path>,
    budget: &mut u64,
    (store, writer): (&Store, &ObjectWriter<'_>),
) -> Result<bool> {
    let handle = dir.and_then(|dir| DirHandle::open_root(dir).ok());
    let mut added = false;
    for part in kept.parts.iter_mut().filter(|part| part.due > 0) {
        let before = part.size();
        let known = later.and_then(|later| later.parts.iter().find(|later| later.is_at(part)));
        let pieces = match known.map(|known| of_later(part, &known.chunks, store, writer)) {
            Some(Ok(Some(pieces))) => Some(pieces),
            Some(Err(e)) => return Err(e),
            Some(Ok(None)) | None => match &handle {
                Some(handle) => of_file(part, handle, budget, writer)?,
                None => None,
            },
        };
        part.chunks = pieces.unwrap_or_else(|| part.chunks.clone());
        if part.size() == part.due {
            part.due = 0;
        }
        added |= part.size() > before;
    }
    kept.partial = kept.parts.iter().any(|part| part.due > 0);
    Ok(added)
}

/// The beginning of a later version, if that begins as this one does and is long enough.
fn of_later(
    part: &Part,
    later: &[Chunk],
    store: &Store,
    writer: &ObjectWriter<'_>,
) -> Result<Option<Vec<Chunk>>> {
    if chunks::total(later) < part.due || !later.starts_with(&part.chunks) {
        return Ok(None);
    }
    let mut pieces = Vec::new();
    let mut left = part.due;
    for chunk in later {
        if chunk.size <= left {
            pieces.push(*chunk);
            left -= chunk.size;
        } else if left > 0 {
            let body = store.read(chunk.oid, ObjectKind::Blob)?;
            let cut = &body[..usize::try_from(left).unwrap_or(body.len()).min(body.len())];
            pieces.push(Chunk {
                oid: writer.put(ObjectKind::Blob, cut)?,
                size: cut.len() as u64,
            });
            left = 0;
        }
    }
    Ok(Some(pieces))
}

fn of_file(
    part: &Part,
    handle: &DirHandle,
    budget: &mut u64,
    writer: &ObjectWriter<'_>,
) -> Result<Option<Vec<Chunk>>> {
    let Ok(file) = open(handle, &part.path) else {
        return Ok(None);
    };
    match read::rest(file, part, budget, writer) {
        Ok(pieces) => Ok(pieces),
        Err(ReadError::Transcript(_)) => Ok(None),
        Err(ReadError::Store(e)) => Err(e),
    }
}
