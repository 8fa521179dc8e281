//! Finding the daemon's socket, the hello, and one request with its answer.

use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use stepback_proto::frame::{self, FrameError};
use stepback_proto::{Answer, Hello, Item, MAGIC, Note, PROTOCOL, Progress, Reply, Request, Welcome};

use crate::dial::{check_peer, connect};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::process;

/// How long the daemon may take for its first word. It answers a hello at once unless it is stopped or its queue of
/// connections is full.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(30);

/// The same where the daemon itself is what is asked about.
const SOON: Duration = Duration::from_secs(5);

/// How long the service manager may take to start a daemon. It says so once that answers.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// So many bytes are asked for at once. The daemon sends short parts together.
const READ_BYTES: usize = 64 * 1024;

/// What is at a socket.
#[derive(Debug)]
pub enum Probe {
    /// A daemon that speaks our protocol and waits for the request.
    Ready(Connection),
    /// A daemon of another protocol.
    WrongVersion(Welcome),
    /// Nobody listens.
    Absent,
}

/// Where a daemon may be found.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// How long a daemon may take for its first word.
    patience: Duration,
    /// How long the service manager may take to start one.
    start_patience: Duration,
    explicit: Option<PathBuf>,
    default: PathBuf,
    state: PathBuf,
}

impl Endpoint {
    /// By the environment.
    pub fn new(environment: &Environment) -> Self {
        let state = environment.state.clone();
        let default = match &environment.runtime {
            Some(runtime) => runtime.join("stepback/stepbackd.sock"),
            None => state.join("stepbackd.sock"),
        };
        Self {
            patience: WELCOME_TIMEOUT,
            start_patience: START_TIMEOUT,
            explicit: environment.socket.clone(),
            default,
            state,
        }
    }

    /// The same, but with a daemon that has to answer, or to be started by the service manager, within `patience`.
    pub fn with_patience(&self, patience: Duration) -> Self {
        Self {
            patience,
            start_patience: patience,
            ..self.clone()
        }
    }

    /// The same for a command that is about the daemon itself: one that hangs is what it is there to tell.
    pub fn soon_told(&self) -> Self {
        Self {
            patience: SOON,
            ..self.clone()
        }
    }

    /// How long the service manager may take to start the daemon.
    pub const fn start_patience(&self) -> Duration {
        self.start_patience
    }

    /// The daemon's state directory.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// `STEPBACK_SOCKET` names the socket.
    pub fn is_named(&self) -> bool {
        self.explicit.is_some()
    }

    /// The process of the daemon that serves, or that served last and was killed, as it wrote it down.
    pub fn recorded_pid(&self) -> Option<u32> {
        Some(self.note()?.pid)
    }

    /// The process that serves our state directory, whether it answers or not: it has written itself down, it runs the
    /// daemon's program, and somebody holds the lock of the state directory, which that program does as long as it lives.
    pub fn serving_pid(&self) -> Option<u32> {
        self.recorded_pid()
            .filter(|pid| process::is_daemon(*pid) && self.is_locked())
    }

    fn is_locked(&self) -> bool {
        File::open(self.state.join("lock")).is_ok_and(|file| {
            matches!(
                Flock::lock(file, FlockArg::LockSharedNonblock),
                Err((_, Errno::EWOULDBLOCK))
            )
        })
    }

    /// The socket that a daemon is looked for first: `STEPBACK_SOCKET`, else what `STATE/daemon.json` names, else the
    /// default.
    pub fn socket(&self) -> PathBuf {
        self.explicit
            .clone()
            .or_else(|| self.recorded())
            .unwrap_or_else(|| self.default.clone())
    }

    /// Looks for a daemon. One that hangs up on the hello is about to go: it is looked for once more.
    ///
    /// # Errors
    /// When something is there but can't be reached (no permission), or breaks the hello.
    pub fn probe(&self) -> Result<Probe> {
        match self.look()? {
            Probe::Absent => {}
            found => return Ok(found),
        }
        self.look()
    }

    fn look(&self) -> Result<Probe> {
        let first = self.socket();
        match self.named(&first, probe(&first, self.patience))? {
            // What the file names is from a daemon that died; another may be at the usual place.
            Probe::Absent if self.explicit.is_none() && first != self.default => {
                self.named(&self.default, probe(&self.default, self.patience))
            }
            found => Ok(found),
        }
    }

    /// Adds to a silence at this socket the process that has it.
    fn named(&self, socket: &Path, found: Result<Probe>) -> Result<Probe> {
        match found {
            Err(Error::Silent { pid: None, why }) if self.recorded().as_deref() == Some(socket) => {
                let pid = self.serving_pid();
                Err(Error::Silent { pid, why })
            }
            found => found,
        }
    }

    /// What the running daemon wrote down about itself. A file that is missing, half-written or of another shape only
    /// means that there is nothing to learn from it.
    fn note(&self) -> Option<Note> {
        let bytes = std::fs::read(self.state.join("daemon.json")).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    fn recorded(&self) -> Option<PathBuf> {
        let socket = self.note()?.socket();
        socket.is_absolute().then_some(socket)
    }
}

/// Connects to `socket` and says hello; `patience` bounds how long the answer may take.
///
/// # Errors
/// As [`Endpoint::probe`].
pub fn probe(socket: &Path, patience: Duration) -> Result<Probe> {
    let stream = match connect(socket, patience) {
        Ok(stream) => stream,
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) =>
        {
            return Ok(Probe::Absent);
        }
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => return Ok(Probe::Absent),
        Err(e) if timed_out(&e) => {
            let why = format!("{}: it takes no connections", socket.display());
            return Err(Error::silent(why));
        }
        Err(source) => {
            return Err(Error::Io {
                path: socket.to_owned(),
                source,
            });
        }
    };
    check_peer(&stream, socket)?;
    let mut connection = Connection {
        stream: BufReader::with_capacity(READ_BYTES, stream),
    };
    connection.limit(Some(patience))?;
    let welcome = match connection.hello() {
        Ok(welcome) => welcome,
        Err(FrameError::Io(e)) if hung_up(&e) => return Ok(Probe::Absent),
        Err(FrameError::Io(e)) => {
            return Err(Error::silent(format!("{}: {}", socket.display(), silence(&e))));
        }
        Err(other) => {
            let socket = socket.display();
            return Err(Error::silent(format!(
                "{socket} isn't a stepback daemon's socket: {other}"
            )));
        }
    };
    connection.limit(None)?;
    connection.may_send_for_ever()?;
    Ok(if welcome.protocol == PROTOCOL {
        Probe::Ready(connection)
    } else {
        Probe::WrongVersion(welcome)
    })
}

/// A connection that waits for its request.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<UnixStream>,
}

/// A part of an answer that isn't its end.
pub enum Part {
    /// How far long work is.
    Progress(Progress),
    /// A piece of the answer.
    Item(Item),
}

impl Connection {
    /// How long to wait for the next frame; for ever when `None`.
    ///
    /// # Errors
    /// When the socket refuses the option.
    pub fn limit(&self, wait: Option<Duration>) -> Result<()> {
        self.stream
            .get_ref()
            .set_read_timeout(wait)
            .map_err(|e| Error::Lost(e.into()))
    }

    /// A large request is taken when the daemon has room for it.
    fn may_send_for_ever(&self) -> Result<()> {
        self.stream
            .get_ref()
            .set_write_timeout(None)
            .map_err(|e| Error::Lost(e.into()))
    }

    fn hello(&mut self) -> std::result::Result<Welcome, FrameError> {
        frame::write(
            self.stream.get_mut(),
            &Hello {
                magic: MAGIC,
                protocol: PROTOCOL,
            },
        )?;
        frame::read(&mut self.stream)?
            .ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection").into())
    }

    /// Sends the request and hands out the parts of the answer until its end.
    ///
    /// # Errors
    /// What the daemon failed with ([`Error::Told`]), what the connection failed with, what `each` failed with.
    pub fn ask(mut self, request: &Request, each: &mut dyn FnMut(Part) -> Result<()>) -> Result<Reply> {
        match frame::write(self.stream.get_mut(), request) {
            Ok(()) => {}
            // The daemon may have said why before it hung up (`busy`): read that rather than report a broken pipe.
            Err(FrameError::Io(_)) => {}
            Err(FrameError::TooLarge(_)) => {
                return Err(Error::usage(
                    "this request is too large for the daemon",
                    "name fewer paths",
                ));
            }
            Err(other) => return Err(Error::Lost(other)),
        }
        loop {
            match frame::read(&mut self.stream) {
                Ok(Some(Answer::Progress(progress))) => each(Part::Progress(progress))?,
                Ok(Some(Answer::Item(item))) => each(Part::Item(item))?,
                Ok(Some(Answer::Done(reply))) => return Ok(reply),
                Ok(Some(Answer::Failed(failure))) => return Err(Error::Told(failure)),
                Ok(None) => return Err(Error::Lost(io::Error::from(io::ErrorKind::UnexpectedEof).into())),
                Err(FrameError::Io(e)) if timed_out(&e) => return Err(Error::silent(silence(&e))),
                Err(e) => return Err(Error::Lost(e)),
            }
        }
    }
}

/// Whether the other side closed, as a daemon does that ends.
fn hung_up(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
    )
}

fn timed_out(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn silence(e: &io::Error) -> String {
    if timed_out(e) {
        "nothing came for a long time".into()
    } else {
        e.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::UnixListener;
    use std::thread;

    use stepback_proto::{Failure, FailureKind, Verb, WirePath};

    use super::*;

    fn serve_once(dir: &Path, protocol: u32, answers: Vec<Answer>) -> PathBuf {
        let socket = dir.join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let hello: Hello = frame::read(&mut stream).unwrap().unwrap();
            assert_eq!(
                hello,
                Hello {
                    magic: MAGIC,
                    protocol: PROTOCOL
                }
            );
            frame::write(
                &mut stream,
                &Welcome {
                    protocol,
                    version: "1.2.3".into(),
                    pid: 42,
                },
            )
            .unwrap();
            if protocol == PROTOCOL {
                let _: Request = frame::read(&mut stream).unwrap().unwrap();
                for answer in answers {
                    frame::write(&mut stream, &answer).unwrap();
                }
            }
        });
        socket
    }

    fn ask(socket: &Path) -> (Vec<Item>, Result<Reply>) {
        let Probe::Ready(connection) = probe(socket, WELCOME_TIMEOUT).unwrap() else {
            panic!("no daemon")
        };
        let mut items = Vec::new();
        let request = Request {
            place: WirePath(b"/".to_vec()),
            verb: Verb::Roots,
        };
        let reply = connection.ask(&request, &mut |part| {
            if let Part::Item(item) = part {
                items.push(item);
            }
            Ok(())
        });
        (items, reply)
    }

    #[test]
    fn an_answer_is_its_items_and_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let progress = Answer::Progress(Progress {
            what: "scan".into(),
            done: 1,
            total: 2,
        });
        let item = Item::Bytes(b"x".to_vec());
        let socket = serve_once(
            dir.path(),
            PROTOCOL,
            vec![progress, Answer::Item(item.clone()), Answer::Done(Reply::Empty)],
        );
        let (items, reply) = ask(&socket);
        assert_eq!(items, [item]);
        assert_eq!(reply.unwrap(), Reply::Empty);
    }

    #[test]
    fn a_failure_and_a_torn_answer_differ() {
        let dir = tempfile::tempdir().unwrap();
        let failure = Failure {
            kind: FailureKind::NotAttached,
            message: "no root here".into(),
            hint: String::new(),
        };
        let socket = serve_once(dir.path(), PROTOCOL, vec![Answer::Failed(failure)]);
        assert!(matches!(ask(&socket).1, Err(Error::Told(f)) if f.kind == FailureKind::NotAttached));
        let dir = tempfile::tempdir().unwrap();
        let socket = serve_once(dir.path(), PROTOCOL, vec![]);
        assert!(matches!(ask(&socket).1, Err(Error::Lost(_))));
    }

    #[test]
    fn another_protocol_and_nobody_are_values() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(
            probe(&dir.path().join("none"), WELCOME_TIMEOUT).unwrap(),
            Probe::Absent
        ));
        std::fs::File::create(dir.path().join("file")).unwrap();
        assert!(matches!(
            probe(&dir.path().join("file"), WELCOME_TIMEOUT).unwrap(),
            Probe::Absent
        ));
        let socket = serve_once(dir.path(), PROTOCOL + 1, vec![]);
        assert!(matches!(probe(&socket, WELCOME_TIMEOUT).unwrap(), Probe::WrongVersion(w) if w.pid == 42));
    }

    #[test]
    fn one_that_hangs_up_on_the_hello_is_absent() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        thread::spawn(move || drop(listener.accept()));
        assert!(matches!(probe(&socket, WELCOME_TIMEOUT).unwrap(), Probe::Absent));
    }

    #[test]
    fn a_path_longer_than_the_address_structure_works() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("d".repeat(90)).join("e".repeat(90));
        std::fs::create_dir_all(&long).unwrap();
        let real = serve_once(dir.path(), PROTOCOL, vec![Answer::Done(Reply::Empty)]);
        let socket = long.join("s");
        std::fs::hard_link(&real, &socket).unwrap();
        assert_eq!(ask(&socket).1.unwrap(), Reply::Empty);
    }

    #[test]
    fn the_recorded_socket_comes_before_the_default() {
        let dir = tempfile::tempdir().unwrap();
        let mut environment = Environment {
            state: dir.path().to_owned(),
            ..Environment::default()
        };
        assert_eq!(
            Endpoint::new(&environment).socket(),
            dir.path().join("stepbackd.sock")
        );
        environment.runtime = Some("/run/user/1".into());
        assert_eq!(
            Endpoint::new(&environment).socket(),
            Path::new("/run/user/1/stepback/stepbackd.sock")
        );
        for socket in [&b"/elsewhere/s"[..], b"/100%25/\t\"s", b"/\xff%/s"] {
            let socket = Path::new(std::ffi::OsStr::from_bytes(socket));
            let json = serde_json::to_vec(&Note::new(7, socket, "1")).unwrap();
            let mut file = std::fs::File::create(dir.path().join("daemon.json")).unwrap();
            io::Write::write_all(&mut file, &json).unwrap();
            assert_eq!(Endpoint::new(&environment).socket(), socket);
        }
        environment.socket = Some("/mine".into());
        assert_eq!(Endpoint::new(&environment).socket(), Path::new("/mine"));
    }
}
