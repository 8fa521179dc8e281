//! Where the daemon has its things: who may reach them, and how much room there is. Only looked at from outside.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access, geteuid};
use stepback_proto::UNSAVED_DIR;

use super::{DaemonFound, Outcome, Patient, Severity};
use crate::render::path::word;
use crate::size;

/// With less room than this nothing new is kept soon.
const ROOM_BYTES: u64 = 2 << 30;
/// The same as a share of small file systems: one in so many.
const ROOM_SHARE: u64 = 20;
/// With less room than this nothing new is kept now.
const ROOM_BYTES_MIN: u64 = 16 << 20;

/// What a daemon makes in STATE, or needs there to start.
const DIRS: &[&str] = &["cache", "cookies", "gaps", "log", "spool", "stores"];
/// ... as regular files.
const FILES: &[&str] = &["alive", "daemon.json", "lock", "log/stepbackd.log", "roots.json"];
/// What a daemon starts without.
const SIDE_FILES: &[&str] = &["clock", "hooks.json", "reserve"];

/// STATE is ours, and ours alone, and what is in it is what a daemon takes it for.
pub fn state(patient: &Patient<'_>) -> Outcome {
    let state = &patient.app.environment.state;
    let shown = state.display();
    let metadata = match fs::metadata(state) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Outcome::fine(format!("{shown} will be made by the first daemon"));
        }
        Err(e) => {
            return Outcome::one(
                Severity::Error,
                format!("{shown}: {e}"),
                "check the owner and the mode of that path and of the directories above it",
            );
        }
    };
    if !metadata.is_dir() {
        return Outcome::one(
            Severity::Error,
            format!("{shown} is not a directory"),
            "move it away, or set STEPBACK_STATE_DIR",
        );
    }
    let mut outcome = Outcome::fine(format!("{shown}"));
    ours_alone(&mut outcome, "the state directory", state, &metadata);
    if access(state.as_path(), AccessFlags::W_OK | AccessFlags::X_OK).is_err() {
        outcome.add(
            Severity::Error,
            format!("{shown} can't be written to"),
            "make it writable for you, or set STEPBACK_STATE_DIR",
        );
    }
    let kinds: [(&[&str], _, _); 4] = [
        (DIRS, Severity::Error, true),
        (FILES, Severity::Error, false),
        (SIDE_FILES, Severity::Warning, false),
        (&[UNSAVED_DIR], Severity::Warning, true),
    ];
    for (names, severity, is_dir) in kinds {
        for path in names.iter().map(|name| state.join(name)) {
            if let Some(what) = in_the_way(&path, is_dir) {
                outcome.add(
                    severity,
                    format!("{} {what}", path.display()),
                    format!("move {} away", path.display()),
                );
            }
        }
    }
    outcome
}

/// What is wrong with what stands at `path`, if anything is.
fn in_the_way(path: &Path, is_dir: bool) -> Option<&'static str> {
    match fs::metadata(path) {
        Ok(there) if is_dir && !there.is_dir() => Some("is not a directory"),
        Ok(there) if !is_dir && !there.is_file() => Some("is not a regular file"),
        Err(e) if e.kind() == io::ErrorKind::NotFound && path.is_symlink() => Some("is a link to nothing"),
        // What can't be looked at is told of STATE itself.
        _ => None,
    }
}

fn ours_alone(outcome: &mut Outcome, what: &str, path: &Path, metadata: &Metadata) {
    let shown = path.display();
    if metadata.uid() != geteuid().as_raw() {
        outcome.add(
            Severity::Error,
            format!("{what} {shown} belongs to user {}", metadata.uid()),
            "run stepback as that user (without sudo), or choose another place with STEPBACK_STATE_DIR and \
             STEPBACK_SOCKET",
        );
    } else if metadata.mode() & 0o077 != 0 {
        outcome.add(
            Severity::Warning,
            format!(
                "{what} {shown} can be reached by others (mode {:o})",
                metadata.mode() & 0o7777
            ),
            format!("chmod go= {}", word(&path.to_string_lossy())),
        );
    }
}

/// There is room for new checkpoints.
pub fn disk(patient: &Patient<'_>) -> Outcome {
    let Some(place) = there(&patient.app.environment.state) else {
        return Outcome::default();
    };
    let room = match statvfs(place) {
        Ok(room) => room,
        Err(e) => {
            return Outcome::one(
                Severity::Warning,
                format!("the free space of {} can't be told: {e}", place.display()),
                "check that file system",
            );
        }
    };
    #[allow(clippy::useless_conversion, reason = "the types differ between systems")]
    let (unit, free, all) = (
        u64::from(room.fragment_size()),
        u64::from(room.blocks_available()),
        u64::from(room.blocks()),
    );
    let free = free.saturating_mul(unit);
    let floor = ROOM_BYTES.min(all.saturating_mul(unit) / ROOM_SHARE);
    let message = format!("{} is free where the checkpoints are", size::human(free));
    let hint = "free some space there, or let go of checkpoints: `stepback prune`, `stepback drop`";
    match free {
        free if free < ROOM_BYTES_MIN => Outcome::one(Severity::Error, format!("only {message}"), hint),
        free if free < floor => Outcome::one(Severity::Warning, format!("only {message}"), hint),
        _ => Outcome::fine(message),
    }
}

/// The checkpoints are on a file system that keeps what it was told to keep.
pub fn file_system(patient: &Patient<'_>) -> Outcome {
    let kind = there(&patient.app.environment.state).and_then(remote);
    match kind {
        Some(kind) => Outcome::one(
            Severity::Warning,
            format!("the checkpoints are on {kind}: locks and syncs may not hold there, and it is slow"),
            "set STEPBACK_STATE_DIR to a directory on a local disk",
        ),
        None => Outcome::fine("a local one"),
    }
}

/// File systems of other machines and of programs, by what `statfs` calls them.
#[cfg(target_os = "linux")]
fn remote(place: &Path) -> Option<&'static str> {
    const REMOTE: &[(i64, &str)] = &[
        (0x6969, "NFS"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB"),
        (0x517b, "SMB"),
        (0x0102_1997, "9p"),
        (0x6573_5546, "FUSE"),
        (0x5346_414f, "AFS"),
        (0x7375_7245, "Coda"),
    ];
    #[allow(clippy::useless_conversion, reason = "32 bits with a sign on some systems")]
    let magic = i64::from(nix::sys::statfs::statfs(place).ok()?.filesystem_type().0) & 0xffff_ffff;
    REMOTE.iter().find(|(m, _)| *m == magic).map(|(_, name)| *name)
}

#[cfg(not(target_os = "linux"))]
fn remote(_place: &Path) -> Option<&'static str> {
    None
}

fn there(path: &Path) -> Option<&Path> {
    path.ancestors().find(|dir| dir.exists())
}

/// The socket can be reached by us alone.
pub fn socket(patient: &Patient<'_>) -> Outcome {
    let socket = match &patient.daemon {
        DaemonFound::Runs(info) => info.socket.as_path().to_owned(),
        _ => patient.app.endpoint.socket(),
    };
    let shown = socket.display();
    let mut of_dir = Outcome::default();
    if let Some(dir) = socket.parent()
        && let Ok(metadata) = fs::symlink_metadata(dir)
    {
        let ours = metadata.uid() == geteuid().as_raw();
        if metadata.is_dir() && ours && metadata.mode() & 0o022 != 0 {
            let runs = matches!(patient.daemon, DaemonFound::Runs(_));
            of_dir.add(
                if runs { Severity::Warning } else { Severity::Error },
                format!(
                    "no daemon starts with the socket's directory {}, which others can write to (mode {:o})",
                    dir.display(),
                    metadata.mode() & 0o7777
                ),
                format!("chmod go= {}", word(&dir.to_string_lossy())),
            );
        } else if metadata.is_dir() {
            ours_alone(&mut of_dir, "the socket's directory", dir, &metadata);
        } else {
            of_dir.add(
                Severity::Error,
                format!("the socket's directory {} is not a directory", dir.display()),
                "move it away, or set STEPBACK_SOCKET to another path",
            );
        }
    }
    let metadata = match fs::symlink_metadata(&socket) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            of_dir.fine = format!("none at {shown}");
            return of_dir;
        }
        Err(e) => {
            return Outcome::one(
                Severity::Error,
                format!("{shown}: {e}"),
                "check the owner and the mode of that path and of the directories above it",
            );
        }
    };
    if !metadata.file_type().is_socket() {
        return Outcome::one(
            Severity::Error,
            format!("{shown} is not a socket"),
            "move it away, or set STEPBACK_SOCKET to another path",
        );
    }
    of_dir.fine = format!("{shown}");
    ours_alone(&mut of_dir, "the socket", &socket, &metadata);
    of_dir
}
