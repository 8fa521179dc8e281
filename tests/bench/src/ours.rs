//! Ours: the engine as a library, and the daemon over its socket.

use std::collections::BTreeSet;
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::unistd::Pid;
use stepback_engine::checkpoint::Trigger;
use stepback_engine::engine::{AttachRequest, Captured, Context, Engine, Environment, Scope, Settings, Why};
use stepback_engine::path::TreePath;
use stepback_engine::progress::Progress;
use stepback_engine::rules::GitEnvironment;
use stepback_engine::time::Time;
use stepback_engine::tree::NoWatch;
use stepback_proto::{
    Answer, Event, Hello, Item, MAGIC, PROTOCOL, Reply, Request, RootState, Status, Verb, Welcome, frame,
};
use stepback_tests::{Sandbox, eventually_some, resident_bytes};

use crate::samples::Samples;

/// How long anything may take before the run is given up.
const PATIENCE: Duration = Duration::from_secs(600);

/// The engine of a tree, with a state directory of its own.
pub struct OurEngine {
    engine: Engine,
}

impl OurEngine {
    /// A root of which nothing is captured yet.
    pub fn attach(sandbox: &Sandbox, tree: &Path, state: &Path) -> Self {
        let env = Environment {
            state_dir: state.to_owned(),
            runtime_dir: None,
            git: GitEnvironment {
                children: Default::default(),
                program: Some("git".into()),
                home: Some(sandbox.home()),
                config_home: Some(sandbox.home().join(".config")),
                path: std::env::var_os("PATH"),
                scratch: Some(sandbox.dir().join("tmp")),
            },
            conversations: Default::default(),
        };
        let settings = Settings {
            include: Vec::new(),
            max_file_size: 100 << 20,
            conversations: false,
        };
        let request = AttachRequest {
            path: tree.to_owned(),
            // The largest tree has more files than are attached without.
            force: true,
            ..AttachRequest::default()
        };
        let found = Engine::attach(&env, &request, &settings, now()).expect("a new root");
        Self { engine: found.engine }
    }

    /// Captures these paths, or everything.
    pub fn capture(&mut self, paths: &[String]) -> Captured {
        let scope = if paths.is_empty() {
            Scope::All
        } else {
            let paths = paths
                .iter()
                .map(|path| TreePath::new(path.as_bytes()).expect("a path"));
            Scope::Paths(paths.collect::<BTreeSet<_>>())
        };
        let cx = Context {
            now: now(),
            watch: &NoWatch,
            progress: &Progress::default(),
        };
        let captured = self.engine.capture(scope, &Why::plain(Trigger::Auto), &cx);
        captured.expect("a checkpoint")
    }

    /// Forgets the root with all its checkpoints.
    pub fn forget(self) {
        self.engine.forget_all().expect("own store");
    }

    /// Its store.
    pub fn store(&self) -> &Path {
        self.engine.store_path()
    }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// A request, its answer read part by part.
pub struct Asked {
    stream: BufReader<UnixStream>,
}

/// Where a sandbox's daemon listens.
fn socket(sandbox: &Sandbox) -> PathBuf {
    sandbox.dir().join("run/stepback/stepbackd.sock")
}

impl Asked {
    /// Sends a request about `place`.
    pub fn send(sandbox: &Sandbox, place: &Path, verb: Verb) -> Option<Self> {
        let socket = socket(sandbox);
        let dir = std::fs::File::open(socket.parent()?).ok()?;
        // Its path may be too long for an address.
        let short = format!(
            "/proc/self/fd/{}/stepbackd.sock",
            std::os::fd::AsRawFd::as_raw_fd(&dir)
        );
        let stream = UnixStream::connect(short).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let mut stream = BufReader::new(stream);
        let hello = Hello {
            magic: MAGIC,
            protocol: PROTOCOL,
        };
        frame::write(stream.get_mut(), &hello).ok()?;
        frame::read::<Welcome>(&mut stream).ok()??;
        let request = Request {
            place: place.into(),
            verb,
        };
        frame::write(stream.get_mut(), &request).ok()?;
        Some(Self { stream })
    }

    /// The next part.
    pub fn next(&mut self) -> Option<Answer> {
        frame::read(&mut self.stream).ok().flatten()
    }

    /// The end, whatever comes before it.
    pub fn end(mut self) -> Option<Reply> {
        loop {
            match self.next()? {
                Answer::Done(reply) => return Some(reply),
                Answer::Failed(failure) => panic!("{failure:?}"),
                Answer::Progress(_) | Answer::Item(_) => {}
            }
        }
    }

    /// The next checkpoint of those that are followed: its number and when it came.
    pub fn checkpoint(&mut self) -> (u64, Instant) {
        loop {
            match self.next().expect("the daemon follows") {
                Answer::Item(Item::Event(event)) => {
                    if let Event::Checkpoint { checkpoint, .. } = *event {
                        return (checkpoint.id, Instant::now());
                    }
                }
                Answer::Progress(_) | Answer::Item(_) => {}
                end => panic!("no more events: {end:?}"),
            }
        }
    }
}

/// What `status` says of a root.
pub fn status(sandbox: &Sandbox, place: &Path) -> Option<Status> {
    match Asked::send(sandbox, place, Verb::Status { verify: false })?.end()? {
        Reply::Status(status) => Some(*status),
        other => panic!("{other:?}"),
    }
}

/// Waits until a root is watched and quiet.
pub fn watched(sandbox: &Sandbox, place: &Path) -> Status {
    eventually_some("the root is watched", PATIENCE, || {
        status(sandbox, place).filter(|status| {
            status
                .root
                .as_ref()
                .is_some_and(|root| root.state == RootState::Watching && root.settled == Some(true))
        })
    })
}

/// Resident memory of a process, program text included, MiB.
pub fn memory(pid: Pid) -> Samples {
    Samples::of(resident_bytes(pid) as f64 / f64::from(1 << 20))
}
