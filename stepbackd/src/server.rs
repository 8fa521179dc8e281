//! Accepts connections: whose they are, and how many at once.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::connection;
use crate::daemon::Daemon;

/// Connections that are served at once.
pub const CONNECTIONS_MAX: usize = 128;

/// Further ones that are told at once that there is no room; those beyond wait in the socket's queue until one of either
/// kind has ended.
const REFUSALS_MAX: usize = 64;

/// How long a connection may take for its hello and request.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long one may take that is refused anyway.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(2);

/// How long the last answers may take when the daemon stops.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// Bounds of a server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// For hello and request together.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: CONNECTIONS_MAX,
            patience: PATIENCE,
        }
    }
}

/// Serves `listener` until the daemon's shutdown is cancelled. Then lets the roots end, and the answers that are under
/// way, all within `patience_at_end`.
pub async fn serve(daemon: Arc<Daemon>, listener: UnixListener, limits: Limits, patience_at_end: Duration) {
    let tasks = TaskTracker::new();
    let served = Arc::new(Semaphore::new(limits.connections));
    let refused = Arc::new(Semaphore::new(REFUSALS_MAX));
    loop {
        let stream = tokio::select! {
            () = daemon.shutdown.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(e) => {
                    // Out of descriptors, most likely: some connection has to end first.
                    tracing::warn!("no connection can be accepted: {e}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        if !is_ours(&stream) {
            tracing::warn!("a connection of another user was closed");
            continue;
        }
        tokio::select! {
            biased;
            () = daemon.shutdown.cancelled() => break,
            permit = Arc::clone(&served).acquire_owned() => {
                let daemon = Arc::clone(&daemon);
                tasks.spawn(async move {
                    if let Err(e) = connection::serve(daemon, stream, limits.patience).await {
                        tracing::debug!("a connection ended early: {e}");
                    }
                    drop(permit);
                });
            }
            permit = Arc::clone(&refused).acquire_owned() => {
                tasks.spawn(async move {
                    if let Err(e) = connection::refuse(stream, REFUSAL_PATIENCE).await {
                        tracing::debug!("a connection that was refused ended early: {e}");
                    }
                    drop(permit);
                });
            }
        }
    }
    drop(listener);
    let roots =
        tokio::task::spawn_blocking(move || daemon.stop(patience_at_end.saturating_sub(LAST_ANSWERS)));
    if let Err(e) = roots.await {
        tracing::error!("the roots didn't end well: {e}");
    }
    tasks.close();
    let _ = tokio::time::timeout(LAST_ANSWERS, tasks.wait()).await;
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
