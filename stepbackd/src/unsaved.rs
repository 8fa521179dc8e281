//! Notes of hooks that waited in vain for the save before a command that may destroy work: each becomes a gap of its root.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use stepback_engine::progress::Progress;
use stepback_engine::time::Time;
use stepback_proto::Unsaved;

use crate::daemon::Daemon;
use crate::handler::send;
use crate::outlet;
use crate::root::job::Job;
use crate::state_file;

/// Takes all notes that are there. One that can't be told now stays for the next time.
pub fn take(daemon: &Daemon) {
    let entries = match fs::read_dir(daemon.paths.unsaved()) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return,
        Err(e) => return tracing::warn!("{}: {e}", daemon.paths.unsaved().display()),
    };
    for entry in entries.flatten() {
        let file = entry.path();
        // Another is still being written.
        if file.extension().is_some_and(|end| end == "json") && tell(daemon, &file) {
            match fs::remove_file(&file) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    tracing::warn!("{}: {e}", file.display());
                }
                _ => {}
            }
        }
    }
}

/// Tells the root of it; `true`: the note has done its work. What happened outside of every root was nobody's to save.
fn tell(daemon: &Daemon, file: &Path) -> bool {
    let note = state_file::read(file).map_err(|e| e.to_string());
    let note = note.and_then(|bytes| serde_json::from_slice::<Unsaved>(&bytes).map_err(|e| e.to_string()));
    let note = match note {
        Ok(note) => note,
        Err(e) => {
            tracing::warn!("{}: {e}", file.display());
            return true;
        }
    };
    let Some(root) = daemon.root_at(&note.place()) else {
        return true;
    };
    let (nobody, _) = outlet::pair(daemon.runtime.clone(), daemon.paths.spool());
    let job = Job::Unsaved {
        from: Time::from_ms(note.from_ms),
        to: Time::from_ms(note.to_ms),
        agent: note.agent,
    };
    send(&root, job, nobody, Arc::new(Progress::default()))
}
