//! A connection to a daemon: the hello, and one request with its answer.

use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use stepback_proto::frame::{self, FrameError};
use stepback_proto::{Answer, Hello, Item, MAGIC, PROTOCOL, Progress, Reply, Request, Welcome};

use crate::dial::{check_peer, connect};
use crate::error::{Error, Result};

/// So many bytes are asked for at once. The daemon sends short parts together.
const READ_BYTES: usize = 64 * 1024;

/// The least time that anything is waited for: none at all means for ever.
const SOON: Duration = Duration::from_millis(1);

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

/// Connects to `socket` and says hello; `patience` bounds how long both may take.
///
/// # Errors
/// When something is there but can't be reached (no permission), is of another user, or breaks the hello.
pub fn probe(socket: &Path, patience: Duration) -> Result<Probe> {
    let began = Instant::now();
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
        pid: 0,
        until: None,
        meanwhile: None,
    };
    connection.limit(Some(patience.saturating_sub(began.elapsed()).max(SOON)))?;
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
    connection.pid = welcome.pid;
    connection.limit(None)?;
    connection.may_send_for_ever()?;
    Ok(if welcome.protocol == PROTOCOL {
        Probe::Ready(connection)
    } else {
        Probe::WrongVersion(welcome)
    })
}

/// A connection that waits for its request.
pub struct Connection {
    stream: BufReader<UnixStream>,
    /// The daemon's process, as it says.
    pid: u32,
    /// When the end of the answer has to be there.
    until: Option<Instant>,
    /// What is done again and again while nothing comes, and how often; on an error the answer isn't waited for any longer.
    meanwhile: Option<(Duration, Meanwhile)>,
}

type Meanwhile = Box<dyn FnMut() -> Result<()>>;

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
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

    /// The end of the answer has to be there then, however much progress is told before.
    pub fn end_by(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// While nothing comes, `act` is called `every` so often. An error of it ends the waiting.
    pub fn meanwhile(&mut self, every: Duration, act: impl FnMut() -> Result<()> + 'static) {
        self.meanwhile = Some((every, Box::new(act)));
    }

    /// Waits, up to the limit, until something comes.
    fn wait(&mut self) -> Result<()> {
        let Some((every, act)) = &mut self.meanwhile else {
            return Ok(());
        };
        let lost = |e: io::Error| Error::Lost(e.into());
        let limit = self.stream.get_ref().read_timeout().map_err(lost)?;
        let began = Instant::now();
        while self.stream.buffer().is_empty() {
            let left = limit.map(|limit| limit.saturating_sub(began.elapsed()).max(SOON));
            let wait = left.map_or(*every, |left| left.min(*every));
            self.stream.get_ref().set_read_timeout(Some(wait)).map_err(lost)?;
            match self.stream.fill_buf() {
                Ok(_) => break,
                Err(e) if !timed_out(&e) => return Err(lost(e)),
                Err(e) if limit.is_some_and(|limit| began.elapsed() >= limit) => {
                    return Err(self.unanswered(silence(&e)));
                }
                Err(_) => act()?,
            }
        }
        self.limit(limit)
    }

    fn unanswered(&self, why: impl Into<String>) -> Error {
        Error::Unanswered {
            pid: self.pid,
            why: why.into(),
        }
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
            if let Some(until) = self.until {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(self.unanswered("the answer takes too long"));
                }
                self.limit(Some(left))?;
            }
            self.wait()?;
            match frame::read(&mut self.stream) {
                Ok(Some(Answer::Progress(progress))) => each(Part::Progress(progress))?,
                Ok(Some(Answer::Item(item))) => each(Part::Item(item))?,
                Ok(Some(Answer::Done(reply))) => return Ok(reply),
                Ok(Some(Answer::Failed(failure))) => return Err(Error::Told(failure)),
                Ok(None) => return Err(Error::Lost(io::Error::from(io::ErrorKind::UnexpectedEof).into())),
                Err(FrameError::Io(e)) if timed_out(&e) => return Err(self.unanswered(silence(&e))),
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
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::thread;

    use stepback_proto::{Failure, FailureKind, Verb, WirePath};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A daemon of this protocol that greets one client, and then does `serve` with it.
    fn greet_once(dir: &Path, protocol: u32, serve: impl FnOnce(UnixStream) + Send + 'static) -> PathBuf {
        let socket = dir.join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let hello: Hello = frame::read(&mut stream).unwrap().unwrap();
            assert_eq!((hello.magic, hello.protocol), (MAGIC, PROTOCOL));
            let welcome = Welcome {
                protocol,
                version: "1.2.3".into(),
                pid: 42,
            };
            frame::write(&mut stream, &welcome).unwrap();
            serve(stream);
        });
        socket
    }

    /// One that answers one request with this.
    fn answer_once(dir: &Path, answers: Vec<Answer>) -> PathBuf {
        greet_once(dir, PROTOCOL, move |mut stream| {
            let _: Request = frame::read(&mut stream).unwrap().unwrap();
            for answer in answers {
                frame::write(&mut stream, &answer).unwrap();
            }
        })
    }

    fn ready(socket: &Path) -> Connection {
        let Probe::Ready(connection) = probe(socket, PATIENCE).unwrap() else {
            panic!("no daemon")
        };
        connection
    }

    fn request() -> Request {
        Request {
            place: WirePath(b"/".to_vec()),
            verb: Verb::Roots,
        }
    }

    fn progress() -> Progress {
        Progress {
            what: "scan".into(),
            done: 1,
            total: 2,
        }
    }

    fn ask(socket: &Path) -> (Vec<Item>, Result<Reply>) {
        let mut items = Vec::new();
        let reply = ready(socket).ask(&request(), &mut |part| {
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
        let item = Item::Bytes(b"x".to_vec());
        let parts = [Answer::Progress(progress()), Answer::Item(item.clone())];
        let socket = answer_once(dir.path(), [&parts[..], &[Answer::Done(Reply::Empty)]].concat());
        let (items, reply) = ask(&socket);
        assert_eq!(items, [item]);
        assert_eq!(reply.unwrap(), Reply::Empty);
    }

    #[test]
    fn progress_is_no_answer() {
        let dir = tempfile::tempdir().unwrap();
        let socket = greet_once(dir.path(), PROTOCOL, |mut stream| {
            // Until the client hangs up.
            while frame::write(&mut stream, &Answer::Progress(progress())).is_ok() {
                thread::yield_now();
            }
        });
        let mut connection = ready(&socket);
        connection.end_by(Instant::now() + Duration::from_millis(50));
        let began = Instant::now();
        assert!(matches!(
            connection.ask(&request(), &mut |_| Ok(())),
            Err(Error::Unanswered { pid: 42, .. })
        ));
        assert!(began.elapsed() < PATIENCE);
    }

    #[test]
    fn while_nothing_comes_something_else_is_done_that_may_end_it() {
        let dir = tempfile::tempdir().unwrap();
        let socket = greet_once(dir.path(), PROTOCOL, |mut stream| {
            let _: Request = frame::read(&mut stream).unwrap().unwrap();
            // Until the client hangs up.
            let _ = frame::read::<Request>(&mut stream);
        });
        let mut connection = ready(&socket);
        connection.limit(Some(PATIENCE)).unwrap();
        let mut looks = 0;
        connection.meanwhile(Duration::from_millis(1), move || {
            looks += 1;
            if looks < 3 {
                Ok(())
            } else {
                Err(Error::usage("it hangs", ""))
            }
        });
        let began = Instant::now();
        let said = connection.ask(&request(), &mut |_| Ok(())).unwrap_err();
        assert_eq!(said.to_string(), "it hangs");
        assert!(began.elapsed() < PATIENCE);
    }

    #[test]
    fn a_failure_and_a_torn_answer_differ() {
        let dir = tempfile::tempdir().unwrap();
        let failure = Failure {
            kind: FailureKind::NotAttached,
            message: "no root here".into(),
            hint: String::new(),
        };
        let socket = answer_once(dir.path(), vec![Answer::Failed(failure)]);
        assert!(matches!(ask(&socket).1, Err(Error::Told(f)) if f.kind == FailureKind::NotAttached));
        let dir = tempfile::tempdir().unwrap();
        let socket = answer_once(dir.path(), vec![]);
        assert!(matches!(ask(&socket).1, Err(Error::Lost(_))));
    }

    #[test]
    fn another_protocol_and_nobody_are_values() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(
            probe(&dir.path().join("none"), PATIENCE).unwrap(),
            Probe::Absent
        ));
        std::fs::File::create(dir.path().join("file")).unwrap();
        assert!(matches!(
            probe(&dir.path().join("file"), PATIENCE).unwrap(),
            Probe::Absent
        ));
        let socket = greet_once(dir.path(), PROTOCOL + 1, drop);
        assert!(matches!(probe(&socket, PATIENCE).unwrap(), Probe::WrongVersion(w) if w.pid == 42));
    }

    #[test]
    fn one_that_hangs_up_on_the_hello_is_absent() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        thread::spawn(move || drop(listener.accept()));
        assert!(matches!(probe(&socket, PATIENCE).unwrap(), Probe::Absent));
    }

    #[test]
    fn a_path_longer_than_the_address_structure_works() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("d".repeat(90)).join("e".repeat(90));
        std::fs::create_dir_all(&long).unwrap();
        let real = answer_once(dir.path(), vec![Answer::Done(Reply::Empty)]);
        let socket = long.join("s");
        std::fs::hard_link(&real, &socket).unwrap();
        assert_eq!(ask(&socket).1.unwrap(), Reply::Empty);
    }
}
