//! "Everything until now has been seen": the event queue is first in, first out, so when the event of a file that we make
//! in a watched directory of our own comes back, all events before it have come.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

/// The cookies that are out.
#[derive(Debug)]
pub struct Cookies {
    dir: PathBuf,
    next: AtomicU64,
    out: Mutex<HashMap<OsString, oneshot::Sender<()>>>,
}

impl Cookies {
    /// In `dir`, which is to be watched. Files that an earlier daemon left there are removed.
    pub fn new(dir: PathBuf) -> Self {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let _ = std::fs::remove_file(entry.path());
        }
        Self {
            dir,
            next: AtomicU64::new(0),
            out: Mutex::default(),
        }
    }

    /// Where they are made.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// An event told of this file in the directory. For the watcher's callback: doesn't wait.
    pub fn came_back(&self, name: &OsStr) {
        let waiting = self
            .out
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
        if let Some(waiting) = waiting {
            // Whoever waited may have lost patience.
            let _ = waiting.send(());
        }
    }

    /// Waits until all events of what happened before this call have come. `false` when they haven't within `patience`.
    pub async fn seen_everything(self: &Arc<Self>, patience: Duration) -> bool {
        let name = OsString::from(self.next.fetch_add(1, Ordering::Relaxed).to_string());
        let (sender, back) = oneshot::channel();
        self.out
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.clone(), sender);
        let path = self.dir.join(&name);
        let made = tokio::task::spawn_blocking(move || {
            let made = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
                .is_ok();
            let _ = std::fs::remove_file(&path);
            made
        });
        let seen = tokio::time::timeout(patience, async {
            matches!(made.await, Ok(true)) && back.await.is_ok()
        });
        let seen = seen.await.unwrap_or(false);
        self.out
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&name);
        seen
    }
}
