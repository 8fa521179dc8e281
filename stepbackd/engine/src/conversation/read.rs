//! Transcripts into the store, in pieces: all of one, or what it grew by.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::chunks::{self, Chunk, Cutter};
use super::look::{check_owned, stamp};
use super::record::{Kept, Part};
use crate::path::TreePath;
use crate::root::Stat;
use crate::store::ObjectWriter;

/// A larger transcript isn't kept.
const PART_BYTES_MAX: u64 = 1 << 30;
/// A larger transcript isn't read whole where it only grew.
const READ_WHOLE_MAX: u64 = 4 << 20;
/// Of such a one so many pieces at its end are compared, and the first.
const PIECES_COMPARED: usize = 4;

/// What can go wrong while a transcript is read into the store.
pub(super) enum ReadError {
    /// With the transcript: it isn't kept.
    Transcript(io::Error),
    /// With the store.
    Store(crate::Error),
}

impl ReadError {
    pub fn on(self, path: &Path) -> Self {
        match self {
            Self::Transcript(e) => {
                Self::Transcript(io::Error::new(e.kind(), format!("{}: {e}", path.display())))
            }
            store => store,
        }
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Transcript(error)
    }
}

impl From<crate::Error> for ReadError {
    fn from(error: crate::Error) -> Self {
        Self::Store(error)
    }
}

/// A file as it is now, or, with `until`, of that length, and whether all of it could be taken.
pub(super) fn file(
    mut file: File,
    path: &TreePath,
    until: Option<u64>,
    known: Option<&Kept>,
    thorough: bool,
    budget: &mut u64,
    writer: &ObjectWriter<'_>,
) -> Result<(Part, bool), ReadError> {
    let mut stat = Stat::of(&file)?;
    check_owned(&stat)?;
    // So it has another stamp than the whole file, which is looked at again.
    stat.size = until.map_or(stat.size, |until| until.min(stat.size));
    if stat.size > PART_BYTES_MAX {
        return Err(io::Error::other("it is too large to be kept").into());
    }
    let mut part = Part::file(path.clone(), stat.mode & 0o7777, stat.mtime_ns, stamp(&stat));
    let earlier = known.and_then(|kept| {
        kept.parts
            .iter()
            .find(|part| part.table.is_none() && part.path == *path)
    });
    let pieces = earlier.map_or(&[][..], |part| &part.chunks);
    if earlier.is_some_and(|earlier| earlier.stamp == part.stamp) && chunks::total(pieces) == stat.size {
        part.chunks = pieces.to_vec();
        return Ok((part, true));
    }
    let grew = chunks::total(pieces) <= stat.size;
    if grew
        && !thorough
        && stat.size > READ_WHOLE_MAX
        && let Some(chunks) = read_growth(&mut file, stat.size, pieces, budget, writer)?
    {
        let whole = chunks::total(&chunks) == stat.size;
        part.chunks = chunks;
        part.due = if whole { 0 } else { stat.size };
        return Ok((part, whole));
    }
    file.seek(SeekFrom::Start(0))?;
    let mut cutter = Cutter::new(writer, pieces);
    let taken = copy(&mut file, stat.size, budget, &mut cutter)?;
    part.chunks = cutter.finish()?;
    let whole = taken == stat.size;
    part.due = if whole { 0 } else { stat.size };
    Ok((part, whole))
}

/// Pieces of what a file was when `part` was taken, if it has only grown since: those that are known, and as much more as
/// `budget` allows.
pub(super) fn rest(
    mut file: File,
    part: &Part,
    budget: &mut u64,
    writer: &ObjectWriter<'_>,
) -> Result<Option<Vec<Chunk>>, ReadError> {
    let stat = Stat::of(&file)?;
    check_owned(&stat)?;
    let same = part.stamp.split('.').next() == stamp(&stat).split('.').next();
    if !same || stat.size < part.due {
        return Ok(None);
    }
    read_growth(&mut file, part.due, &part.chunks, budget, writer)
}

/// For a transcript that only grew: of what is known, the first and the last pieces are compared, then the growth is read.
/// `None`: it didn't only grow.
fn read_growth(
    file: &mut File,
    size: u64,
    pieces: &[Chunk],
    budget: &mut u64,
    writer: &ObjectWriter<'_>,
) -> Result<Option<Vec<Chunk>>, ReadError> {
    let mut cutter = Cutter::new(writer, pieces);
    let mut at = 0;
    let mut first = true;
    while let Some(due) = cutter.due() {
        if !first && cutter.remaining() > PIECES_COMPARED {
            cutter.trust();
        } else {
            file.seek(SeekFrom::Start(at))?;
            let mut body = vec![0; usize::try_from(due.size).unwrap_or(usize::MAX)];
            file.read_exact(&mut body)?;
            if !cutter.push(&body)? {
                return Ok(None);
            }
        }
        first = false;
        at += due.size;
    }
    file.seek(SeekFrom::Start(at))?;
    copy(file, size - at, budget, &mut cutter)?;
    Ok(Some(cutter.finish()?))
}

/// Reads `size` bytes, or what is left of the budget; says how many.
fn copy(file: &mut File, size: u64, budget: &mut u64, cutter: &mut Cutter<'_, '_>) -> Result<u64, ReadError> {
    let mut buffer = vec![0; chunks::CHUNK_BYTES_MAX];
    let mut taken = 0;
    while taken < size && *budget > 0 {
        let want = buffer
            .len()
            .min(usize::try_from(size - taken).unwrap_or(usize::MAX));
        let read = file.read(&mut buffer[..want])?;
        if read == 0 {
            // It was cut while it was read: it will be looked at again.
            break;
        }
        cutter.push(&buffer[..read])?;
        taken += read as u64;
        *budget = budget.saturating_sub(read as u64);
    }
    Ok(taken)
}
