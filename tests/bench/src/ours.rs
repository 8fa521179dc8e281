//! Ours: the engine as a library, and the daemon over its socket.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
use stepback_tests::{Sandbox, eventually_some};

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

/// What the kernel says of a process.
#[derive(Debug, Clone)]
pub struct Usage {
    /// Resident memory, program text included, MiB.
    pub memory: f64,
    /// Processor time of the process, ended threads included, ms. The kernel counts in steps of 10.
    pub processor: f64,
    /// How often each thread was put on a processor.
    pub wakeups: BTreeMap<OsString, f64>,
}

/// Of a process and all its threads.
pub fn usage(pid: i32) -> Usage {
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let status = read(proc.join("status"));
    let resident = status.lines().find_map(|line| {
        line.strip_prefix("VmRSS:")?
            .trim()
            .strip_suffix(" kB")?
            .parse::<f64>()
            .ok()
    });
    // The second field, a name in parentheses, may have spaces; user and system time are fields 14 and 15.
    let stat = read(proc.join("stat"));
    let fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(11)
        .take(2);
    let ticks: f64 = fields.filter_map(|field| field.parse::<f64>().ok()).sum();
    let threads = std::fs::read_dir(proc.join("task"))
        .into_iter()
        .flatten()
        .flatten();
    let wakeups = threads.filter_map(|thread| {
        // Time on a processor, time waiting for one, how often.
        let sched = read(thread.path().join("schedstat"));
        Some((thread.file_name(), sched.split_whitespace().nth(2)?.parse().ok()?))
    });
    Usage {
        memory: resident.unwrap_or(0.0) / 1024.0,
        processor: ticks * 10.0,
        wakeups: wakeups.collect(),
    }
}

impl Usage {
    /// Wake-ups since `before`, of threads that there were then; those that have ended had nothing more to do.
    pub fn wakeups_since(&self, before: &Self) -> f64 {
        let of = |(thread, count): (&OsString, &f64)| (count - before.wakeups.get(thread)?).into();
        self.wakeups.iter().filter_map(of).sum()
    }
}
