//! From an actor to a client: a short queue, and a file behind it for what a slow client doesn't take, so that no client
//! ever holds an actor up, and no answer is ever held in memory as a whole.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stepback_proto::{Answer, CHUNK_BYTES_MAX, Failure, Item, Reply, frame};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// Answers on the way to one client. With the largest ones this is 1 MiB.
const QUEUE_MAX: usize = 8;

/// How long an actor waits for a client that doesn't read, once for a request.
const PATIENCE: Duration = Duration::from_secs(1);

/// The client has gone away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// Where an actor puts its answers. Dropping it ends the answer.
#[derive(Debug)]
pub struct Outlet {
    sender: mpsc::Sender<Answer>,
    runtime: Handle,
    spool: PathBuf,
    spilled: Option<BufWriter<File>>,
    shared: Arc<Shared>,
}

/// Where a connection takes them.
#[derive(Debug)]
pub struct Inlet {
    receiver: mpsc::Receiver<Answer>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    handed_over: Mutex<Option<File>>,
    may_be_cancelled: AtomicBool,
}

/// A new pair; `spool` is a private directory for files.
pub fn pair(runtime: Handle, spool: PathBuf) -> (Outlet, Inlet) {
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    let shared = Arc::new(Shared::default());
    let outlet = Outlet {
        sender,
        runtime,
        spool,
        spilled: None,
        shared: Arc::clone(&shared),
    };
    (outlet, Inlet { receiver, shared })
}

impl Outlet {
    /// Sends one part. Blocks for a moment at most. Not to be called on a thread of the runtime.
    ///
    /// # Errors
    /// [`Gone`] when nobody will read it.
    pub fn send(&mut self, answer: Answer) -> Result<(), Gone> {
        if let Some(file) = &mut self.spilled {
            return if self.sender.is_closed() {
                Err(Gone)
            } else {
                spill(file, &answer)
            };
        }
        let answer = match self.sender.try_send(answer) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Closed(_)) => return Err(Gone),
            Err(TrySendError::Full(answer)) => answer,
        };
        match self
            .runtime
            .block_on(async { tokio::time::timeout(PATIENCE, self.sender.reserve()).await })
        {
            Ok(Ok(permit)) => permit.send(answer),
            Ok(Err(_)) => return Err(Gone),
            Err(_) => {
                let file = unnamed_file(&self.spool).map_err(|e| {
                    tracing::warn!("an answer is given up: {}: {e}", self.spool.display());
                    Gone
                })?;
                spill(self.spilled.insert(BufWriter::new(file)), &answer)?;
            }
        }
        Ok(())
    }

    /// When the client goes away, the work stops half-way and nothing is lost.
    pub fn allow_cancelling(&self) {
        self.shared.may_be_cancelled.store(true, Ordering::Relaxed);
    }

    /// Sends an item.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn item(&mut self, item: Item) -> Result<(), Gone> {
        self.send(Answer::Item(item))
    }

    /// Sends one part when the client takes it: for answers without end, from a task.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub async fn follow(&self, answer: Answer) -> Result<(), Gone> {
        self.sender.send(answer).await.map_err(|_| Gone)
    }

    /// Waits until the client goes away.
    pub async fn gone(&self) {
        self.sender.closed().await;
    }

    /// Ends the answer. A client that has gone away needs none.
    pub fn finish(mut self, result: Result<Reply, Failure>) {
        let _ = self.send(match result {
            Ok(reply) => Answer::Done(reply),
            Err(failure) => Answer::Failed(failure),
        });
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        let Some(file) = self.spilled.take() else { return };
        let file = file
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
            .and_then(|mut file| {
                file.rewind()?;
                Ok(file)
            });
        match file {
            Ok(file) => {
                *self
                    .shared
                    .handed_over
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner) = Some(file)
            }
            Err(e) => tracing::warn!("an answer is given up: {}: {e}", self.spool.display()),
        }
    }
}

impl Inlet {
    /// The next part; `None` after the last one in the queue: [`Self::rest`] may have more.
    pub async fn next(&mut self) -> Option<Answer> {
        self.receiver.recv().await
    }

    /// Whether the work shall be cancelled when the client goes away.
    pub fn may_be_cancelled(&self) -> bool {
        self.shared.may_be_cancelled.load(Ordering::Relaxed)
    }

    /// Once [`Self::next`] gave `None`: what was put into a file, as frames.
    pub fn rest(&self) -> Option<File> {
        self.shared
            .handed_over
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

/// Cuts what is written into items of bytes.
#[derive(Debug)]
pub struct Bytes<'a> {
    to: &'a mut Outlet,
    chunk: Vec<u8>,
}

impl<'a> Bytes<'a> {
    /// Into `to`.
    pub fn new(to: &'a mut Outlet) -> Self {
        Self {
            to,
            chunk: Vec::new(),
        }
    }

    fn send_chunk(&mut self) -> io::Result<()> {
        let chunk = std::mem::take(&mut self.chunk);
        if chunk.is_empty() {
            return Ok(());
        }
        self.to
            .item(Item::Bytes(chunk))
            .map_err(|Gone| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

impl Write for Bytes<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = CHUNK_BYTES_MAX - self.chunk.len();
        let taken = bytes.len().min(room);
        self.chunk.extend_from_slice(&bytes[..taken]);
        if self.chunk.len() == CHUNK_BYTES_MAX {
            self.send_chunk()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send_chunk()
    }
}

fn spill(file: &mut BufWriter<File>, answer: &Answer) -> Result<(), Gone> {
    // `frame::write` flushes; its parts are large enough for that not to matter.
    frame::write(file, answer).map_err(|e| {
        tracing::warn!("an answer is given up: {e}");
        Gone
    })
}

fn unnamed_file(dir: &std::path::Path) -> io::Result<File> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let path = dir.join(format!(
        "{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    ));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_does_not_take_goes_to_a_file() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (mut outlet, mut inlet) = pair(runtime.handle().clone(), dir.path().to_owned());
        let bytes: Vec<u8> = (0..30 * CHUNK_BYTES_MAX + 5).map(|n| n as u8).collect();
        let mut to = Bytes::new(&mut outlet);
        to.write_all(&bytes).unwrap();
        to.flush().unwrap();
        outlet.finish(Ok(Reply::Empty));
        assert_eq!(
            std::fs::read_dir(dir.path()).unwrap().count(),
            0,
            "the file has no name"
        );
        let mut got = Vec::new();
        let mut done = 0;
        let mut take = |answer| match answer {
            Answer::Item(Item::Bytes(chunk)) => got.extend(chunk),
            Answer::Done(Reply::Empty) => done += 1,
            other => panic!("{other:?}"),
        };
        while let Some(answer) = runtime.block_on(inlet.next()) {
            take(answer);
        }
        let mut file = inlet.rest().expect("the queue holds less than this");
        while let Some(answer) = frame::read(&mut file).unwrap() {
            take(answer);
        }
        assert!(done == 1 && got == bytes);
    }

    #[test]
    fn a_client_that_went_away_stops_it() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (mut outlet, inlet) = pair(runtime.handle().clone(), "/nowhere".into());
        drop(inlet);
        assert_eq!(outlet.item(Item::Bytes(vec![1])), Err(Gone));
        assert!(
            Bytes::new(&mut outlet)
                .write_all(&vec![0; CHUNK_BYTES_MAX])
                .is_err()
        );
    }
}
