//! The server in this process, on a socket in a temporary directory: what it says to clients that behave, and to those
//! that don't.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stepback_engine::engine::Environment;
use stepback_engine::rules::GitEnvironment;
use stepback_proto::frame::{self, FrameError};
use stepback_proto::{
    Answer, Consent, FRAME_BYTES_MAX, FailureKind, Hello, MAGIC, PROTOCOL, Reply, Request, Verb, Welcome,
};
use tokio_util::sync::CancellationToken;

use super::{Limits, Seldom};
use crate::config::Config;
use crate::daemon::Daemon;
use crate::paths::Paths;
use crate::socket;

pub(super) struct Server {
    dir: tempfile::TempDir,
    pub(super) daemon: Arc<Daemon>,
    runtime: Option<tokio::runtime::Runtime>,
    served: Option<tokio::task::JoinHandle<()>>,
}

impl Server {
    pub(super) fn start(limits: Limits) -> Self {
        let dir = tempfile::Builder::new()
            .permissions(PermissionsExt::from_mode(0o700))
            .tempdir()
            .unwrap();
        let state = dir.path().join("state");
        let paths = Paths {
            socket: dir.path().join("s.sock"),
            config: state.join("c"),
            config_is_named: false,
            state,
        };
        paths.make_state().unwrap();
        let listener = socket::listen(&paths.socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let environment = Environment {
            state_dir: paths.state.clone(),
            runtime_dir: None,
            git: GitEnvironment::default(),
            conversations: Default::default(),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let handle = runtime.handle().clone();
        let shutdown = CancellationToken::new();
        let daemon = Daemon::start(paths, environment, Config::default(), None, handle, shutdown).unwrap();
        let _entered = runtime.enter();
        let listener = tokio::net::UnixListener::from_std(listener).unwrap();
        let served = runtime.spawn(super::serve(
            Arc::clone(&daemon),
            listener,
            tokio::sync::mpsc::channel(1).1,
            limits,
            Duration::from_secs(2),
        ));
        drop(_entered);
        Self {
            dir,
            daemon,
            runtime: Some(runtime),
            served: Some(served),
        }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.daemon.paths.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    pub(super) fn introduced(&self) -> UnixStream {
        let mut stream = self.connect();
        frame::write(
            &mut stream,
            &Hello {
                magic: MAGIC,
                protocol: PROTOCOL,
            },
        )
        .unwrap();
        let welcome: Welcome = frame::read(&mut stream).unwrap().unwrap();
        assert_eq!((welcome.protocol, welcome.pid), (PROTOCOL, std::process::id()));
        stream
    }

    /// The last frame of the answer.
    pub(super) fn ask(&self, place: &str, verb: Verb) -> Answer {
        let mut stream = self.introduced();
        frame::write(
            &mut stream,
            &Request {
                place: PathBuf::from(place).into(),
                verb,
            },
        )
        .unwrap();
        let mut last = None;
        while let Some(answer) = frame::read::<Answer>(&mut stream).unwrap() {
            last = Some(answer);
        }
        last.expect("an answer")
    }

    pub(super) fn failure(&self, place: &str, verb: Verb) -> FailureKind {
        match self.ask(place, verb) {
            Answer::Failed(failure) => failure.kind,
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.daemon.shutdown.cancel();
        let runtime = self.runtime.take().unwrap();
        if let Some(served) = self.served.take() {
            runtime.block_on(served).unwrap();
        }
        runtime.shutdown_background();
    }
}

fn is_closed(stream: &mut UnixStream) -> bool {
    let mut byte = [0];
    matches!(stream.read(&mut byte), Ok(0))
        || stream
            .read(&mut byte)
            .is_err_and(|e| e.kind() != std::io::ErrorKind::WouldBlock)
}

#[test]
fn answers_what_needs_no_root() {
    let server = Server::start(Limits::default());
    let Answer::Done(Reply::Daemon(info)) = server.ask("/", Verb::Ping) else {
        panic!("no pong")
    };
    assert_eq!(info.socket.as_path(), server.daemon.paths.socket);
    assert!(info.rss_bytes > 0);
    assert_eq!(server.ask("/", Verb::Roots), Answer::Done(Reply::Empty));
    let Answer::Done(Reply::Status(status)) = server.ask("/x", Verb::Status { verify: false }) else {
        panic!()
    };
    assert_eq!(status.root, None);
    assert_eq!(
        server.failure(
            "/x",
            Verb::Save {
                label: None,
                pin: false
            }
        ),
        FailureKind::NotAttached
    );
    assert_eq!(server.failure("x", Verb::Ping), FailureKind::Usage);
    assert_eq!(
        server.failure(
            "/x",
            Verb::Rewind {
                id: None,
                how: Consent::Yes
            }
        ),
        FailureKind::NotAttached
    );
    let attach = |path: PathBuf| {
        Verb::Attach(stepback_proto::Attach {
            path: path.into(),
            here: false,
            include: Vec::new(),
            max_file_size: None,
            force: false,
            new: false,
            yes: false,
        })
    };
    assert_eq!(
        server.failure("/", attach("/nowhere/at/all".into())),
        FailureKind::NoSuchPath
    );
    let file = server.dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert_eq!(server.failure("/", attach(file)), FailureKind::RefusedRoot);
}

#[test]
fn another_protocol_is_welcomed_and_closed() {
    let server = Server::start(Limits::default());
    let mut stream = server.connect();
    frame::write(
        &mut stream,
        &Hello {
            magic: MAGIC,
            protocol: PROTOCOL + 1,
        },
    )
    .unwrap();
    let welcome: Welcome = frame::read(&mut stream).unwrap().unwrap();
    assert_eq!(welcome.protocol, PROTOCOL);
    assert!(frame::read::<Welcome>(&mut stream).unwrap().is_none());
}

#[test]
fn strangers_get_no_byte() {
    let server = Server::start(Limits::default());
    let wrong_magic = {
        let mut bytes = Vec::new();
        frame::write(
            &mut bytes,
            &Hello {
                magic: *b"http",
                protocol: PROTOCOL,
            },
        )
        .unwrap();
        bytes
    };
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 64],
        vec![0, 0, 0, 1, 7],
        wrong_magic,
    ] {
        let mut stream = server.connect();
        stream.write_all(&bytes).unwrap();
        assert!(is_closed(&mut stream), "{bytes:?}");
    }
    assert!(matches!(server.ask("/", Verb::Ping), Answer::Done(_)));
}

#[test]
fn a_request_that_is_none_fails() {
    let server = Server::start(Limits::default());
    let oversized = (FRAME_BYTES_MAX as u32 + 1).to_be_bytes().to_vec();
    for bytes in [vec![0, 0, 0, 3, 1, 2, 3], oversized] {
        let mut stream = server.introduced();
        stream.write_all(&bytes).unwrap();
        let Ok(Some(Answer::Failed(failure))) = frame::read(&mut stream) else {
            panic!("{bytes:?}")
        };
        assert_eq!(failure.kind, FailureKind::Usage);
        assert!(is_closed(&mut stream));
    }
    let mut torn = server.introduced();
    torn.write_all(&[0, 0, 0, 9, 1]).unwrap();
    torn.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(!matches!(
        frame::read::<Answer>(&mut torn),
        Err(FrameError::Malformed(_)) | Ok(Some(_))
    ));
}

#[test]
fn the_slow_are_closed() {
    let server = Server::start(Limits {
        patience: Duration::from_millis(200),
        ..Limits::default()
    });
    let start = Instant::now();
    let mut silent = server.connect();
    let mut half = server.introduced();
    half.write_all(&[0, 0]).unwrap();
    assert!(is_closed(&mut silent) && is_closed(&mut half));
    assert!(start.elapsed() >= Duration::from_millis(200));
}

#[test]
fn too_many_at_once_are_told_so() {
    let server = Server::start(Limits {
        connections: 0,
        ..Limits::default()
    });
    let label = None;
    assert_eq!(
        server.failure("/", Verb::Save { label, pin: false }),
        FailureKind::Busy
    );
    let verify = Verb::Status { verify: true };
    assert_eq!(server.failure("/", verify), FailureKind::Busy);
    // It still says who it is, and what it watches.
    for verb in [Verb::Ping, Verb::Roots, Verb::Status { verify: false }] {
        assert!(matches!(server.ask("/", verb), Answer::Done(_)));
    }
}

#[test]
fn those_that_follow_take_no_place_of_others() {
    let server = Server::start(Limits {
        connections: 1,
        followers: 2,
        ..Limits::default()
    });
    let mut follower = server.introduced();
    let place = PathBuf::from("/").into();
    let verb = Verb::Watch;
    frame::write(&mut follower, &Request { place, verb }).unwrap();
    let mut held = vec![follower];
    let deadline = Instant::now() + Duration::from_secs(10);
    // Whether another one is refused. One that isn't hears of nothing.
    let mut is_full = || {
        assert!(Instant::now() < deadline, "there is room for ever");
        let mut follower = server.introduced();
        let place = PathBuf::from("/").into();
        let verb = Verb::Watch;
        frame::write(&mut follower, &Request { place, verb }).unwrap();
        follower
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        match frame::read(&mut follower) {
            Ok(Some(Answer::Failed(failure))) => failure.kind == FailureKind::Busy,
            _ => {
                held.push(follower);
                false
            }
        }
    };
    while !is_full() {}
    let label = None;
    assert_eq!(
        server.failure("/", Verb::Save { label, pin: false }),
        FailureKind::NotAttached
    );
    assert!(held.len() <= 3, "{}", held.len());
    held.clear();
    let label = None;
    assert_eq!(
        server.failure("/", Verb::Save { label, pin: false }),
        FailureKind::NotAttached
    );
}

#[test]
fn the_silent_keep_nobody_out() {
    let server = Server::start(Limits {
        connections: 2,
        ..Limits::default()
    });
    let mut silent: Vec<_> = (0..3 * super::INTRODUCTIONS_MAX)
        .map(|_| server.connect())
        .collect();
    assert!(matches!(server.ask("/", Verb::Ping), Answer::Done(_)));
    assert!(is_closed(&mut silent[0]), "the first has made room");
    let last = silent.last_mut().unwrap();
    last.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(!is_closed(last), "the last may still speak");
}

#[test]
fn large_requests_are_read_a_few_at_once() {
    let server = Server::start(Limits::default());
    // Each says that it will send a megabyte, and doesn't.
    let held: Vec<_> = (0..super::LARGE_MAX)
        .map(|_| {
            let mut stream = server.introduced();
            stream.write_all(&(FRAME_BYTES_MAX as u32).to_be_bytes()).unwrap();
            stream
        })
        .collect();
    assert!(
        matches!(server.ask("/", Verb::Ping), Answer::Done(_)),
        "small ones pass"
    );
    drop(held);
    let label = Some("x".repeat(100 * 1024));
    assert_eq!(
        server.failure("/", Verb::Save { label, pin: false }),
        FailureKind::NotAttached
    );
}

#[test]
fn a_follower_ends_with_the_daemon_and_shutdown_is_answered() {
    let server = Server::start(Limits::default());
    let mut follower = server.introduced();
    frame::write(
        &mut follower,
        &Request {
            place: PathBuf::from("/").into(),
            verb: Verb::Watch,
        },
    )
    .unwrap();
    assert_eq!(server.ask("/", Verb::Shutdown), Answer::Done(Reply::Empty));
    assert_eq!(
        frame::read::<Answer>(&mut follower).unwrap(),
        Some(Answer::Done(Reply::Empty))
    );
    assert!(server.daemon.shutdown.is_cancelled());
}

#[test]
fn what_is_true_again_and_again_is_said_once_a_minute() {
    let (mut seldom, start) = (Seldom::default(), Instant::now());
    let said: Vec<u64> = (0..=1210)
        .filter(|tenth| seldom.is_due(start + Duration::from_millis(tenth * 100)))
        .collect();
    assert_eq!(said, [0, 600, 1200]);
}
