//! From an actor to a client: frames in batches, a short queue of these, and a file behind it for what a slow client doesn't
//! take, so that no client ever holds an actor up, and no answer is ever held in memory as a whole.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use stepback_proto::frame::{self, FrameError};
use stepback_proto::{Answer, CHUNK_BYTES_MAX, Failure, FailureKind, Item, Reply};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::convert;

/// Batches on the way to one client.
const QUEUE_MAX: usize = 8;

/// The most bytes of a batch, but for a single frame that is larger: a list is a few writes rather than hundreds, and what
/// one client makes us hold is 1 MiB.
const BATCH_BYTES_MAX: usize = CHUNK_BYTES_MAX;

/// What came so long ago goes together with what comes now.
const LINGER: Duration = Duration::from_millis(5);

/// How long an actor waits for a client that doesn't read, in all for a request.
const PATIENCE: Duration = Duration::from_secs(1);

/// The most bytes of one answer that wait in a file for a client that doesn't read.
const SPOOL_BYTES_MAX: u64 = 1 << 30;

const LOST_HINT: &str = "read it at once, for instance into a file";
const LOGS_HINT: &str = "`stepback daemon logs` shows what happened; please report it";

/// The client has gone away, or what was sent couldn't be kept for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// Where an actor puts its answers. Dropping it ends the answer.
#[derive(Debug)]
pub struct Outlet {
    sender: mpsc::Sender<Batch>,
    batch: Batch,
    /// When the first frame of the batch came.
    since: Option<Instant>,
    /// The last frame has been said.
    ended: bool,
    runtime: Handle,
    spool: PathBuf,
    /// What is left of [`PATIENCE`].
    patience: Duration,
    spilled: Spilled,
    shared: Arc<Shared>,
}

/// Whole frames.
#[derive(Debug, Default)]
pub struct Batch {
    /// Of which it consists, as they are written.
    pub frames: Vec<u8>,
    /// The last frame ends the answer.
    pub last: bool,
}

impl Batch {
    /// Adds a frame, if it is none that is too large.
    fn add(&mut self, answer: &Answer) -> Result<(), FrameError> {
        frame::write(&mut self.frames, answer)?;
        self.last = matches!(answer, Answer::Done(_) | Answer::Failed(_));
        Ok(())
    }

    /// One frame; of one that is too large, what is wrong with it.
    fn of(answer: &Answer) -> Self {
        let mut batch = Self::default();
        if let Err(e) = batch.add(answer) {
            let failure = convert::fail(FailureKind::Internal, format!("the answer: {e}"), LOGS_HINT);
            batch.add(&Answer::Failed(failure)).expect("a short frame");
        }
        batch
    }
}

/// What a client hasn't taken, nor the queue.
#[derive(Debug)]
enum Spilled {
    Nothing,
    File {
        file: File,
        /// What it may still take.
        room: u64,
    },
    /// It couldn't be kept: the client is told why at the end.
    Lost(Box<Failure>),
}

/// What comes after the queue.
#[derive(Debug)]
pub enum Rest {
    /// Frames.
    File(File),
    /// Only that the answer can't be had as a whole.
    Lost(Failure),
}

/// Where a connection takes them.
#[derive(Debug)]
pub struct Inlet {
    receiver: mpsc::Receiver<Batch>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    handed_over: Mutex<Option<Rest>>,
    may_be_cancelled: AtomicBool,
    doing: OnceLock<&'static str>,
}

/// A new pair; `spool` is a private directory for files.
pub fn pair(runtime: Handle, spool: PathBuf) -> (Outlet, Inlet) {
    let (sender, receiver) = mpsc::channel(QUEUE_MAX);
    let shared = Arc::new(Shared::default());
    let outlet = Outlet {
        sender,
        batch: Batch::default(),
        since: None,
        ended: false,
        runtime,
        spool,
        patience: PATIENCE,
        spilled: Spilled::Nothing,
        shared: Arc::clone(&shared),
    };
    (outlet, Inlet { receiver, shared })
}

impl Outlet {
    /// Sends one part, together with others that come soon. Blocks for a moment at most. Not to be called on a thread of
    /// the runtime.
    ///
    /// # Errors
    /// [`Gone`] when nobody will read it.
    pub fn send(&mut self, answer: &Answer) -> Result<(), Gone> {
        if self.sender.is_closed() || self.ended {
            return Err(Gone);
        }
        let mut more = Batch::of(answer);
        if self.batch.frames.len() + more.frames.len() > BATCH_BYTES_MAX {
            self.flush()?;
        }
        self.ended = more.last;
        if self.batch.frames.is_empty() {
            self.batch = more;
        } else {
            self.batch.frames.append(&mut more.frames);
            self.batch.last = more.last;
        }
        let now = Instant::now();
        let waited = now.duration_since(*self.since.get_or_insert(now));
        if self.ended || waited >= LINGER {
            self.flush()?;
        }
        Ok(())
    }

    /// Sends what has come together.
    fn flush(&mut self) -> Result<(), Gone> {
        self.since = None;
        let batch = std::mem::take(&mut self.batch);
        if batch.frames.is_empty() {
            return Ok(());
        }
        if !matches!(self.spilled, Spilled::Nothing) {
            return self.spill(&batch);
        }
        let batch = match self.sender.try_send(batch) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Closed(_)) => return Err(Gone),
            Err(TrySendError::Full(batch)) => batch,
        };
        let started = Instant::now();
        let free = async { tokio::time::timeout(self.patience, self.sender.reserve()).await };
        let late = match self.runtime.block_on(free) {
            Ok(Ok(permit)) => {
                permit.send(batch);
                None
            }
            Ok(Err(_)) => return Err(Gone),
            Err(_) => Some(batch),
        };
        self.patience = self.patience.saturating_sub(started.elapsed());
        late.map_or(Ok(()), |batch| self.spill(&batch))
    }

    /// Puts it behind what was spilled before. Whatever goes wrong, what the client gets stays whole frames.
    fn spill(&mut self, batch: &Batch) -> Result<(), Gone> {
        if let Spilled::Nothing = self.spilled {
            self.spilled = match unnamed_file(&self.spool) {
                Ok(file) => Spilled::File {
                    file,
                    room: SPOOL_BYTES_MAX,
                },
                Err(e) => self.lost(&e),
            };
        }
        let Spilled::File { file, room } = &mut self.spilled else {
            return Err(Gone);
        };
        if let Err(e) = append(file, room, batch) {
            self.spilled = self.lost(&e);
            return Err(Gone);
        }
        Ok(())
    }

    fn lost(&self, error: &io::Error) -> Spilled {
        tracing::warn!("an answer is given up: {}: {error}", self.spool.display());
        let kind = if is_full(error) {
            FailureKind::NoSpace
        } else {
            FailureKind::Internal
        };
        let message = format!("the answer wasn't read, and couldn't be kept: {error}");
        Spilled::Lost(Box::new(convert::fail(kind, message, LOST_HINT)))
    }

    /// When the client goes away, the work stops half-way and nothing is lost.
    pub fn allow_cancelling(&self) {
        self.shared.may_be_cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether the client has gone away.
    pub fn is_gone(&self) -> bool {
        self.sender.is_closed()
    }

    /// What is being done, in a word, while it takes long. The first word stands.
    pub fn says(&self, doing: &'static str) {
        self.shared.doing.get_or_init(|| doing);
    }

    /// Sends an item.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn item(&mut self, item: Item) -> Result<(), Gone> {
        self.send(&Answer::Item(item))
    }

    /// Sends one part when the client takes it: for answers without end, from a task.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub async fn follow(&self, answer: Answer) -> Result<(), Gone> {
        self.sender.send(Batch::of(&answer)).await.map_err(|_| Gone)
    }

    /// Waits until the client goes away.
    pub async fn gone(&self) {
        self.sender.closed().await;
    }

    /// Ends the answer. A client that has gone away needs none.
    pub fn finish(mut self, result: Result<Reply, Failure>) {
        let is_done = result.is_ok();
        let _ = self.send(&last(result));
        if let (Spilled::Lost(failure), true) = (&mut self.spilled, is_done) {
            failure.message = format!("it is done, but {}", failure.message);
        }
    }

    /// Ends the answer when the client takes it: for one of which nothing else was sent, or all by [`Self::follow`].
    pub async fn end(self, result: Result<Reply, Failure>) {
        // One that has gone away needs none.
        let _ = self.follow(last(result)).await;
    }
}

fn last(result: Result<Reply, Failure>) -> Answer {
    match result {
        Ok(reply) => Answer::Done(reply),
        Err(failure) => Answer::Failed(failure),
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Otherwise the client would only see that the connection ends.
            let failure = convert::fail(FailureKind::Internal, "an internal error", LOGS_HINT);
            let told = matches!(self.spilled, Spilled::Nothing)
                && self
                    .sender
                    .try_send(Batch::of(&Answer::Failed(failure.clone())))
                    .is_ok();
            if told {
                return;
            }
            self.spilled = Spilled::Lost(Box::new(failure));
        } else {
            // One that ends without a last word has nobody to say it to.
            let _ = self.flush();
        }
        let rest = match std::mem::replace(&mut self.spilled, Spilled::Nothing) {
            Spilled::Nothing => return,
            Spilled::File { mut file, .. } => match file.rewind() {
                Ok(()) => Rest::File(file),
                Err(e) => match self.lost(&e) {
                    Spilled::Lost(failure) => Rest::Lost(*failure),
                    Spilled::Nothing | Spilled::File { .. } => return,
                },
            },
            Spilled::Lost(failure) => Rest::Lost(*failure),
        };
        let mut handed_over = self
            .shared
            .handed_over
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *handed_over = Some(rest);
    }
}

impl Inlet {
    /// The next frames; `None` after the last one in the queue: [`Self::rest`] may have more.
    pub async fn next(&mut self) -> Option<Batch> {
        self.receiver.recv().await
    }

    /// Whether the work shall be cancelled when the client goes away.
    pub fn may_be_cancelled(&self) -> bool {
        self.shared.may_be_cancelled.load(Ordering::Relaxed)
    }

    /// What is being done; nothing yet while the work waits for its turn.
    pub fn doing(&self) -> &'static str {
        self.shared.doing.get().copied().unwrap_or("waiting")
    }

    /// Once [`Self::next`] gave `None`: what was put aside.
    pub fn rest(&self) -> Option<Rest> {
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
    gone: bool,
}

impl<'a> Bytes<'a> {
    /// Into `to`.
    pub fn new(to: &'a mut Outlet) -> Self {
        Self {
            to,
            chunk: Vec::new(),
            gone: false,
        }
    }

    /// Whether nobody reads it any more.
    pub const fn is_gone(&self) -> bool {
        self.gone
    }

    fn send_chunk(&mut self) -> io::Result<()> {
        let chunk = std::mem::take(&mut self.chunk);
        if chunk.is_empty() {
            return Ok(());
        }
        self.to.item(Item::Bytes(chunk)).map_err(|Gone| {
            self.gone = true;
            io::Error::from(io::ErrorKind::BrokenPipe)
        })
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

fn append(file: &mut File, room: &mut u64, batch: &Batch) -> io::Result<()> {
    *room = room.checked_sub(batch.frames.len() as u64).ok_or_else(|| {
        let gib = SPOOL_BYTES_MAX >> 30;
        io::Error::other(format!("more than {gib} GiB wait to be read"))
    })?;
    file.write_all(&batch.frames)
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
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
mod tests;
