//! Accepts connections: whose they are, and how many at once.
//!
//! A connection is first introduced (hello and request), then served. Both are bounded, apart from each other: whoever
//! says nothing keeps nobody out who does. When too many are being introduced, the one that has been silent for longest
//! has to go.

mod places;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::Receiver;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::places::Places;
use crate::connection;
use crate::daemon::Daemon;

/// Requests that are served at once; further ones are told `busy`.
pub const CONNECTIONS_MAX: usize = 128;

/// Those beside them that follow what happens, until they hang up.
pub const FOLLOWERS_MAX: usize = 64;

/// Connections that may be without a whole request at once; those beyond wait in the socket's queue for a moment.
const INTRODUCTIONS_MAX: usize = 128;

/// So long none has to go for another: a client needs less.
const INTRODUCTION_MIN: Duration = Duration::from_millis(50);

/// Large requests (up to 1 MiB) that are read at once.
const LARGE_MAX: usize = 8;

/// How long a connection may take for its hello and request.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long one may take that is refused anyway.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(2);

/// How often the log says that no connection can be accepted, as long as that lasts.
const REFUSALS_EVERY: Duration = Duration::from_secs(60);

/// How long the last answers may take when the daemon stops.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// Bounds of a server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Requests that are served at once.
    pub connections: usize,
    /// Clients that follow what happens.
    pub followers: usize,
    /// For hello and request together.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: CONNECTIONS_MAX,
            followers: FOLLOWERS_MAX,
            patience: PATIENCE,
        }
    }
}

/// When something was said last that is true again and again.
#[derive(Debug, Default)]
struct Seldom(Option<Instant>);

impl Seldom {
    /// Whether it is time to say it again: then it counts as said.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self
            .0
            .is_none_or(|last| now.duration_since(last) >= REFUSALS_EVERY);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

/// Serves `listener`, and those of `more` in place of it, until the daemon's shutdown is cancelled. Then lets the roots
/// end, and the answers that are under way, all within `patience_at_end`.
pub async fn serve(
    daemon: Arc<Daemon>,
    mut listener: UnixListener,
    mut more: Receiver<UnixListener>,
    limits: Limits,
    patience_at_end: Duration,
) {
    let tasks = TaskTracker::new();
    let places = Places::new(limits);
    let large = Arc::new(Semaphore::new(LARGE_MAX));
    let mut hall = Hall::new();
    let mut refusals = Seldom::default();
    loop {
        let stream = tokio::select! {
            () = daemon.shutdown.cancelled() => break,
            Some(another) = more.recv() => {
                listener = another;
                continue;
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(e) => {
                    // Out of descriptors, most likely: some connection has to end first.
                    if refusals.is_due(Instant::now()) {
                        tracing::warn!("no connection can be accepted: {e}");
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        if !is_ours(&stream) {
            tracing::warn!("a connection of another user was closed");
            continue;
        }
        let Some(Some(guest)) = daemon.shutdown.run_until_cancelled(hall.enter()).await else {
            break;
        };
        let (daemon, large) = (Arc::clone(&daemon), Arc::clone(&large));
        let places = places.clone();
        tasks.spawn(async move {
            let introduction = connection::introduce(stream, large, limits.patience);
            let introduced = match guest.leaves.run_until_cancelled(introduction).await {
                Some(Ok(introduced)) => introduced,
                Some(Err(e)) => return tracing::debug!("a connection ended early: {e}"),
                None => return tracing::debug!("a silent connection made room"),
            };
            drop(guest);
            let ended = match places.take(introduced.needs()) {
                Some(place) => connection::serve(daemon, introduced, place).await,
                None => connection::refuse(introduced, REFUSAL_PATIENCE).await,
            };
            if let Err(e) = ended {
                tracing::debug!("a connection ended early: {e}");
            }
        });
    }
    drop(listener);
    let patience = patience_at_end.saturating_sub(LAST_ANSWERS);
    let roots = tokio::task::spawn_blocking(move || daemon.stop(patience));
    // It sees to that itself, unless what it writes hangs with its disk.
    match tokio::time::timeout(patience + LAST_ANSWERS / 2, roots).await {
        Ok(Ok(())) => {}
        Ok(Err(e)) => tracing::error!("the roots didn't end well: {e}"),
        Err(_) => tracing::warn!("the end isn't waited for any longer: a disk doesn't answer"),
    }
    tasks.close();
    let _ = tokio::time::timeout(LAST_ANSWERS / 2, tasks.wait()).await;
}

/// Where connections are until their request is whole.
struct Hall {
    places: Arc<Semaphore>,
    /// In the order in which they came. Those that have left by themselves are taken out now and then.
    guests: VecDeque<(Instant, CancellationToken)>,
}

/// A connection in the hall, until dropped.
struct Guest {
    leaves: CancellationToken,
    _place: OwnedSemaphorePermit,
}

impl Drop for Guest {
    fn drop(&mut self) {
        // So that the hall knows it as gone.
        self.leaves.cancel();
    }
}

impl Hall {
    fn new() -> Self {
        Self {
            places: Arc::new(Semaphore::new(INTRODUCTIONS_MAX)),
            guests: VecDeque::new(),
        }
    }

    /// Room for one more, if need be by sending the first away. `None` never comes: the places aren't closed.
    async fn enter(&mut self) -> Option<Guest> {
        if self.guests.len() >= 2 * INTRODUCTIONS_MAX {
            self.guests.retain(|(_, leaves)| !leaves.is_cancelled());
        }
        let place = match Arc::clone(&self.places).try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                while self
                    .guests
                    .front()
                    .is_some_and(|(_, leaves)| leaves.is_cancelled())
                {
                    self.guests.pop_front();
                }
                let first = self.guests.pop_front();
                let since = first.as_ref().map_or(Duration::ZERO, |(came, _)| came.elapsed());
                let waits = INTRODUCTION_MIN.saturating_sub(since);
                let place = Arc::clone(&self.places).acquire_owned();
                tokio::pin!(place);
                let place = match tokio::time::timeout(waits, &mut place).await {
                    Ok(place) => {
                        // Another one left: the first may stay.
                        if let Some(first) = first {
                            self.guests.push_front(first);
                        }
                        place
                    }
                    Err(_) => {
                        if let Some((_, leaves)) = first {
                            leaves.cancel();
                        }
                        place.await
                    }
                };
                place.ok()?
            }
        };
        let leaves = CancellationToken::new();
        self.guests.push_back((Instant::now(), leaves.clone()));
        Some(Guest {
            leaves,
            _place: place,
        })
    }
}

fn is_ours(stream: &UnixStream) -> bool {
    let peer: io::Result<u32> = stream.peer_cred().map(|peer| peer.uid());
    peer.is_ok_and(|uid| uid == nix::unistd::geteuid().as_raw())
}

#[cfg(test)]
mod root_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trouble_tests;
