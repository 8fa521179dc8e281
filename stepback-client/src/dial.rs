//! Connecting to a socket: with a path of any length, within a time, and only to our own user.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::getsockopt;
#[cfg(not(target_os = "linux"))]
use nix::sys::socket::sockopt::LocalPeerCred;
#[cfg(target_os = "linux")]
use nix::sys::socket::sockopt::PeerCredentials;

use crate::error::{Error, Result};

/// The most bytes of a socket's path that a `sockaddr_un` surely takes on every system.
const SUN_PATH_MAX: usize = 100;

/// Connects to a socket whose path may be longer than the kernel's address structure. What is sent, too, has to be taken
/// within `patience`.
///
/// # Errors
/// Those of the system; `WouldBlock` when nobody takes the connection in time: the listener's queue is full.
pub fn connect(socket: &Path, patience: Duration) -> io::Result<UnixStream> {
    if socket.as_os_str().len() <= SUN_PATH_MAX {
        return within(socket, patience);
    }
    let (Some(dir), Some(name)) = (socket.parent(), socket.file_name()) else {
        return within(socket, patience);
    };
    let dir = File::open(dir)?;
    let short = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string());
    within(&short.join(name), patience)
}

/// On Linux a connect waits for room in the queue for as long as a send may take.
#[cfg(target_os = "linux")]
fn within(socket: &Path, patience: Duration) -> io::Result<UnixStream> {
    use nix::sys::socket::sockopt::SendTimeout;
    use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, UnixAddr};
    use nix::sys::time::TimeVal;

    let address = UnixAddr::new(socket)?;
    let flags = SockFlag::SOCK_CLOEXEC;
    let descriptor = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let seconds = i64::try_from(patience.as_secs()).unwrap_or(i64::MAX);
    let limit = TimeVal::new(seconds, patience.subsec_micros().into());
    socket::setsockopt(&descriptor, SendTimeout, &limit)?;
    socket::connect(descriptor.as_raw_fd(), &address)?;
    Ok(descriptor.into())
}

/// Elsewhere a full queue refuses at once.
#[cfg(not(target_os = "linux"))]
fn within(socket: &Path, patience: Duration) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket)?;
    stream.set_write_timeout(Some(patience))?;
    Ok(stream)
}

/// Whoever listens must be our own user: nobody else is told our paths, nor believed.
///
/// # Errors
/// [`Error::Stranger`]; when the system doesn't say who it is.
pub fn check_peer(stream: &UnixStream, socket: &Path) -> Result<()> {
    #[cfg(target_os = "linux")]
    let peer = getsockopt(stream, PeerCredentials).map(|peer| peer.uid());
    #[cfg(not(target_os = "linux"))]
    let peer = getsockopt(stream, LocalPeerCred).map(|peer| peer.uid());
    let peer = peer.map_err(|e| Error::Io {
        path: socket.to_owned(),
        source: e.into(),
    })?;
    let me = nix::unistd::geteuid().as_raw();
    if peer == me {
        return Ok(());
    }
    Err(Error::Stranger {
        socket: socket.to_owned(),
        who: peer,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::time::Instant;

    use nix::sys::socket::{Backlog, listen};

    use super::*;

    #[test]
    fn a_listener_that_takes_nobody_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        listen(&listener, Backlog::new(1).unwrap()).unwrap();
        let patience = Duration::from_millis(50);
        let began = Instant::now();
        let mut held = Vec::new();
        let refused = loop {
            match connect(&socket, patience) {
                Ok(stream) => held.push(stream),
                Err(e) => break e,
            }
            assert!(held.len() < 100, "the queue has no end");
        };
        assert!(began.elapsed() >= patience);
        let kind = refused.kind();
        let expected = if cfg!(target_os = "linux") {
            io::ErrorKind::WouldBlock
        } else {
            io::ErrorKind::ConnectionRefused
        };
        assert_eq!(kind, expected, "{refused}");
    }
}
