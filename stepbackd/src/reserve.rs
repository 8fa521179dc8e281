//! A little room kept back in STATE, given up at a start on a full disk, so that the daemon can say where it listens and
//! its roots can tell what is wrong. What rewinds need is kept back in each store.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::state_file;

/// Its size. A note and a few empty files need less.
const BYTES: usize = 64 * 1024;

/// It is made only where so much is free.
const ROOM_BYTES: u64 = 16 << 20;

/// Gives the room up if there is no other.
pub fn release_if_full(file: &Path) {
    if free(file).is_some_and(|free| free < BYTES as u64) && std::fs::remove_file(file).is_ok() {
        tracing::warn!("the disk of {} is full", file.display());
    }
}

/// Keeps the room back, unless that is so already, or room is scarce.
pub fn keep(file: &Path) {
    let kept = file
        .metadata()
        .is_ok_and(|metadata| metadata.len() == BYTES as u64);
    if kept || free(file).is_none_or(|free| free < ROOM_BYTES) {
        return;
    }
    if let Err(e) = make(file) {
        tracing::warn!("{}: {e}", file.display());
        let _ = std::fs::remove_file(file);
    }
}

fn make(file: &Path) -> io::Result<()> {
    let mut to: File = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(state_file::flags())
        .open(file)?;
    // Not zeros: some file systems keep no room for those.
    to.write_all(&vec![0x55; BYTES])?;
    to.sync_all()
}

fn free(file: &Path) -> Option<u64> {
    let room = nix::sys::statvfs::statvfs(file.parent()?).ok()?;
    #[allow(clippy::useless_conversion, reason = "the widths differ between systems")]
    Some(u64::from(room.blocks_available()).saturating_mul(u64::from(room.fragment_size())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_once_and_stays_where_there_is_room() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("reserve");
        keep(&file);
        assert_eq!(file.metadata().unwrap().len(), BYTES as u64);
        keep(&file);
        release_if_full(&file);
        assert!(file.exists());
        std::fs::write(&file, "short").unwrap();
        keep(&file);
        assert_eq!(file.metadata().unwrap().len(), BYTES as u64);
    }
}
