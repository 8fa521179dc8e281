//! One connection: hello, one request, its answer. Bounded in bytes and in time until the request is whole.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use stepback_engine::progress::Progress;
use stepback_proto::frame::{self, FrameError};
use stepback_proto::{Answer, FailureKind, Hello, MAGIC, PROTOCOL, Request, Verb, Welcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::bytes::BytesMut;
use tokio_util::codec::{Decoder, LengthDelimitedCodec};

use crate::convert;
use crate::daemon::Daemon;
use crate::handler;
use crate::outlet::{self, Rest};

/// How often a client is told how far long work is.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// A larger hello or request is one of a few that are read at once.
const USUAL_BYTES: usize = 16 * 1024;

/// Why a connection ended before its answer.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// Not a client of ours.
    #[error("not a client of ours")]
    Stranger,
    /// Closed, torn or malformed.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Closed between frames, where one was due.
    #[error("closed")]
    Closed,
    /// No whole request in time.
    #[error("no whole request within {0:?}")]
    TooSlow(Duration),
    /// Another protocol number.
    #[error("a client of protocol {0}")]
    OtherProtocol(u32),
}

impl From<std::io::Error> for Ended {
    fn from(error: std::io::Error) -> Self {
        Self::Frame(error.into())
    }
}

/// A connection whose request is whole.
pub struct Introduced {
    reader: Reader,
    writer: Writer,
    request: Request,
}

/// What a request needs of the places of those that are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// One of the usual ones, for a while.
    Usual,
    /// To be heard before work is at stake. It ends soon, whatever a file system does.
    Urgent,
    /// To be heard always. It is answered at once.
    Short,
    /// To stay until the client hangs up.
    Follower,
}

impl Introduced {
    /// What its request needs.
    pub fn needs(&self) -> Needs {
        match self.request.verb {
            Verb::Ping | Verb::Shutdown => Needs::Short,
            Verb::Status { verify: false } | Verb::Roots | Verb::Hook(_) => Needs::Urgent,
            Verb::Watch => Needs::Follower,
            _ => Needs::Usual,
        }
    }
}

/// Takes hello and request, within `patience` together. `large` bounds how many requests that are larger than usual are
/// read at once, of all connections.
///
/// # Errors
/// Why it ended early.
pub async fn introduce(
    stream: UnixStream,
    large: Arc<Semaphore>,
    patience: Duration,
) -> Result<Introduced, Ended> {
    let (mut reader, mut writer) = split(stream, large);
    let introduction = async {
        greet(&mut reader, &mut writer).await?;
        reader.receive().await
    };
    let request = within(patience, introduction).await;
    // No more will be read that is large.
    reader.large = None;
    match request {
        Err(Ended::Frame(e @ (FrameError::Malformed(_) | FrameError::TooLarge(_)))) => {
            let hint = "the program that sent it isn't a stepback of this protocol";
            let failure = convert::fail(FailureKind::Usage, e.to_string(), hint);
            writer.send(&Answer::Failed(failure)).await?;
            Err(e.into())
        }
        request => Ok(Introduced {
            request: request?,
            reader,
            writer,
        }),
    }
}

/// Answers the request. Its `place` among those that are served is free again when both are done, the connection and what
/// was begun for it: what a file system holds up is counted, though its client is gone.
///
/// # Errors
/// Why it ended early.
pub async fn serve(
    daemon: Arc<Daemon>,
    introduced: Introduced,
    place: OwnedSemaphorePermit,
) -> Result<(), Ended> {
    let Introduced {
        mut reader,
        mut writer,
        request,
    } = introduced;
    let stops = request.verb == Verb::Shutdown;
    let progress = Arc::new(Progress::default());
    let (to, mut answers) = outlet::pair(daemon.runtime.clone(), daemon.paths.spool());
    let place = Arc::new(place);
    let (handled, held) = (
        handler::handle(Arc::clone(&daemon), request, to, Arc::clone(&progress)),
        Arc::clone(&place),
    );
    let work = tokio::spawn(async move {
        handled.await;
        drop(held);
    });
    // A first tick that is due at once would be waited for: timers have a granularity of 1 ms.
    let mut tick = tokio::time::interval_at(tokio::time::Instant::now() + PROGRESS_EVERY, PROGRESS_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut told = (0, 0);
    loop {
        tokio::select! {
            answer = answers.next() => match answer {
                Some(batch) => {
                    writer.0.write_all(&batch.frames).await?;
                    if batch.last {
                        break;
                    }
                }
                None => break,
            },
            _ = tick.tick() => {
                let (done, total) = progress.get();
                if (done, total) != told {
                    told = (done, total);
                    let what = answers.doing().into();
                    writer.send(&Answer::Progress(stepback_proto::Progress { what, done, total })).await?;
                }
            }
            () = reader.gone() => {
                if answers.may_be_cancelled() {
                    progress.cancel();
                }
                return Err(Ended::Closed);
            }
        }
    }
    match answers.rest() {
        Some(Rest::File(file)) => writer.send_file(file).await?,
        Some(Rest::Lost(failure)) => writer.send(&Answer::Failed(failure)).await?,
        None => {}
    }
    if stops {
        daemon.shutdown.cancel();
    }
    if let Err(e) = work.await {
        tracing::error!("a request failed: {e}");
    }
    Ok(())
}

/// Says that there is no room.
///
/// # Errors
/// When the client doesn't take it within `patience`.
pub async fn refuse(mut introduced: Introduced, patience: Duration) -> Result<(), Ended> {
    let (message, hint) = match introduced.needs() {
        Needs::Follower => (
            "as many clients follow what happens as the daemon can serve",
            "end one of them (`stepback watch`)",
        ),
        _ => ("the daemon serves as many clients as it can", "try again later"),
    };
    let failure = convert::fail(FailureKind::Busy, message, hint);
    within(patience, introduced.writer.send(&Answer::Failed(failure))).await
}

/// Hello and welcome.
async fn greet(reader: &mut Reader, writer: &mut Writer) -> Result<(), Ended> {
    let hello: Hello = match reader.receive().await {
        Err(Ended::Frame(FrameError::Malformed(_) | FrameError::TooLarge(_))) => {
            return Err(Ended::Stranger);
        }
        hello => hello?,
    };
    if hello.magic != MAGIC {
        return Err(Ended::Stranger);
    }
    let version = env!("CARGO_PKG_VERSION").to_owned();
    writer
        .send(&Welcome {
            protocol: PROTOCOL,
            version,
            pid: std::process::id(),
        })
        .await?;
    if hello.protocol != PROTOCOL {
        return Err(Ended::OtherProtocol(hello.protocol));
    }
    Ok(())
}

async fn within<T>(patience: Duration, work: impl Future<Output = Result<T, Ended>>) -> Result<T, Ended> {
    tokio::time::timeout(patience, work)
        .await
        .unwrap_or(Err(Ended::TooSlow(patience)))
}

fn split(stream: UnixStream, large: Arc<Semaphore>) -> (Reader, Writer) {
    let (read, write) = stream.into_split();
    (
        Reader {
            read,
            codec: frame::codec(),
            buffer: BytesMut::new(),
            large: Some(large),
        },
        Writer(write),
    )
}

struct Reader {
    read: OwnedReadHalf,
    codec: LengthDelimitedCodec,
    buffer: BytesMut,
    large: Option<Arc<Semaphore>>,
}

impl Reader {
    async fn receive<T: DeserializeOwned>(&mut self) -> Result<T, Ended> {
        let mut share = None;
        // The codec takes the prefix away: what comes after is no length.
        let mut length = None;
        loop {
            if length.is_none() {
                length = announced(&self.buffer);
            }
            // Before the codec makes room for so many bytes.
            if share.is_none()
                && length.is_some_and(|length| length > USUAL_BYTES)
                && let Some(large) = &self.large
            {
                // It is never closed.
                share = Arc::clone(large).acquire_owned().await.ok();
            }
            match self.codec.decode(&mut self.buffer) {
                Ok(Some(body)) => return Ok(frame::decode(&body)?),
                Ok(None) => {}
                Err(_) => return Err(FrameError::TooLarge(length.unwrap_or(usize::MAX)).into()),
            }
            if self.read.read_buf(&mut self.buffer).await? == 0 {
                return Err(match self.buffer.is_empty() {
                    true => Ended::Closed,
                    false => std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into(),
                });
            }
        }
    }

    /// Returns when the client has closed its side, or says more than one request.
    async fn gone(&mut self) {
        self.buffer.clear();
        let _ = self.read.read_buf(&mut self.buffer).await;
    }
}

/// The length that a frame says it has, once its prefix is there.
fn announced(buffer: &[u8]) -> Option<usize> {
    buffer
        .first_chunk()
        .map(|length| u32::from_be_bytes(*length) as usize)
}

struct Writer(OwnedWriteHalf);

impl Writer {
    async fn send<T: Serialize>(&mut self, message: &T) -> Result<(), Ended> {
        let mut bytes = Vec::new();
        frame::write(&mut bytes, message)?;
        self.0.write_all(&bytes).await?;
        Ok(())
    }

    async fn send_file(&mut self, mut file: File) -> Result<(), Ended> {
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let read = tokio::task::spawn_blocking(move || {
                let length = file.read(&mut buffer)?;
                Ok::<_, std::io::Error>((file, buffer, length))
            });
            let length;
            (file, buffer, length) = read.await.map_err(std::io::Error::from)??;
            if length == 0 {
                return Ok(());
            }
            self.0.write_all(&buffer[..length]).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_bound_on_large_requests_is_none_on_others() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        // Nothing large is read.
        let (mut reader, _writer) = split(ours, Arc::new(Semaphore::new(0)));
        let mut frame = Vec::new();
        frame::write(&mut frame, &"a request of an ordinary length".to_owned()).unwrap();
        let read = tokio::spawn(async move {
            let first: String = reader.receive().await.unwrap();
            let second: String = reader.receive().await.unwrap();
            (first, second)
        });
        for _ in 0..2 {
            for part in frame.chunks(7) {
                theirs.write_all(part).await.unwrap();
                // The reader has each part alone.
                tokio::task::yield_now().await;
            }
        }
        let (first, second) = within(Duration::from_secs(20), async { Ok(read.await.unwrap()) })
            .await
            .unwrap();
        assert_eq!(first, second);
    }
}
