//! Room kept back on the disk, so that a rewind can be recorded when nothing else can.

use std::path::Path;

use crate::error::{At, Result};

use super::files::{self, FILE_MODE, TempFile};

/// Size of the reserve in bytes.
pub const RESERVE_BYTES: u64 = 4 << 20;
/// It is only made where so many times its size is free, so as not to be what fills the disk.
const ROOM: u64 = 4;

/// Gives the room up.
pub fn release(file: &Path) -> Result<()> {
    files::remove(file)
}

/// Takes the room, unless it is taken or scarce.
pub fn restore(file: &Path) -> Result<()> {
    if file
        .symlink_metadata()
        .is_ok_and(|meta| meta.len() == RESERVE_BYTES)
    {
        return Ok(());
    }
    let dir = file.parent().expect("the reserve is in the store");
    let free = nix::sys::statvfs::statvfs(dir).at(dir)?;
    #[allow(clippy::useless_conversion, reason = "the widths differ between systems")]
    let free = u64::from(free.blocks_available()).saturating_mul(free.fragment_size());
    if free < RESERVE_BYTES * ROOM {
        return Ok(());
    }
    let made = TempFile::new(dir, "tmp_reserve_", FILE_MODE).and_then(|mut temp| {
        fill(&mut temp).at(file)?;
        temp.rename(file)
    });
    match made {
        Err(error) if error.is_no_space() => Ok(()),
        other => other,
    }
}

fn fill(temp: &mut TempFile) -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    if nix::fcntl::posix_fallocate(
        temp.file(),
        0,
        nix::libc::off_t::try_from(RESERVE_BYTES).expect("4 MiB"),
    )
    .is_ok()
    {
        return Ok(());
    }
    let piece = vec![0x55; 1 << 16];
    for _ in 0..RESERVE_BYTES / (1 << 16) {
        temp.write_all(&piece).map_err(|error| match error {
            crate::Error::Io { source, .. } => source,
            other => std::io::Error::other(other),
        })?;
    }
    Ok(())
}
