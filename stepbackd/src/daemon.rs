//! What the whole daemon has: settings, registry, roots, watcher; attaching and letting go of roots; start and stop.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use stepback_engine::engine::{AttachRequest, Engine, Environment, Settings};
use stepback_engine::time::Time;
use stepback_proto::{DaemonInfo, Event, Failure, FailureKind, Warning};
use tokio::runtime::Handle;
use tokio::sync::{Notify, broadcast};
use tokio_util::sync::CancellationToken;

use crate::alive::{self, Alive};
use crate::config::Config;
use crate::convert;
use crate::cookie::Cookies;
use crate::error::{At, Error, Result};
use crate::first_looks;
use crate::hooks_seen::HooksSeen;
use crate::idle_trees::IdleTrees;
use crate::keeper::Keeper;
use crate::locks::{Locks, Reach};
use crate::paths::Paths;
use crate::place;
use crate::registry::{Entry, Registry};
use crate::root::actor::{Actor, Origin};
use crate::root::job::Job;
use crate::root::mailbox::End;
use crate::root::{Root, now, standstill};
use crate::steady::Steady;
use crate::talkers::Talkers;
use crate::unsaved;
use crate::watch::{Silent, Watcher};

/// Events that a slow follower may be behind; one that is further behind is told so and let go.
const EVENTS_MAX: usize = 1024;

/// How long `status` and `roots` wait, right after the start, until stores are open.
const OPEN_PATIENCE: Duration = Duration::from_secs(1);

/// A shorter time without a daemon isn't kept as a gap, in milliseconds.
const AWAY_MS_MIN: i64 = 1000;

/// An actor's stack: deep directories are walked recursively.
pub const STACK_BYTES: usize = 16 << 20;

/// An event of a root.
#[derive(Debug, Clone)]
pub struct Happening {
    /// The root's id.
    pub root: String,
    /// As clients are told it.
    pub event: Event,
}

/// One daemon: one STATE.
pub struct Daemon {
    /// Where its things are.
    pub paths: Paths,
    /// What engines may know of the world.
    pub environment: Environment,
    /// File events.
    pub watcher: Arc<Watcher>,
    /// "Everything until now has been seen."
    pub cookies: Arc<Cookies>,
    /// Maintains the stores.
    pub keeper: Arc<Keeper>,
    /// Roots that share files wait for each other.
    pub locks: Arc<Locks>,
    /// An `attach` of a directory waits for the one before it: until the first checkpoint is durable no store tells that
    /// the root is there, and another would be made.
    attaching: Arc<Locks>,
    /// Roots that have their tree in memory.
    pub idle_trees: IdleTrees,
    /// What happens, for those who follow.
    pub events: broadcast::Sender<Happening>,
    /// Carries sockets and timers; actors wait on it.
    pub runtime: Handle,
    /// An actor has something to do.
    pub work_begins: Notify,
    /// Cancelled when the daemon shall stop.
    pub shutdown: CancellationToken,
    config: RwLock<Arc<Config>>,
    /// Why the settings weren't read when that was asked for last.
    config_broken: Mutex<Option<Failure>>,
    registry: Mutex<Registry>,
    roots: RwLock<Vec<Arc<Root>>>,
    log: Option<PathBuf>,
    started: Instant,
    /// When hooks were heard of.
    pub hooks_seen: HooksSeen,
    /// Whose sessions they told of.
    pub talkers: Talkers,
    /// Until when it lived, for the next one.
    pub alive: Alive,
    /// By which moment checkpoints have their age.
    pub steady: Steady,
    /// When no daemon was running before this one.
    pub away: Option<(Time, Time)>,
}

impl Daemon {
    /// Reads the registry and starts an actor for each root. Nothing is awaited.
    ///
    /// # Errors
    /// When the registry is broken, or the system gives no threads.
    pub fn start(
        paths: Paths,
        environment: Environment,
        config: Config,
        log: Option<PathBuf>,
        runtime: Handle,
        shutdown: CancellationToken,
    ) -> Result<Arc<Self>> {
        let registry = Registry::read(&paths.registry())?;
        let cookies = Arc::new(Cookies::new(paths.cookies()));
        let known = registry.roots().to_vec();
        let (alive, until) = Alive::open(&paths.alive(), paths.lock(), shutdown.clone())?;
        let steady = Steady::begin(paths.clock(), until, now());
        let away = until.map(|until| (until, now()));
        // A restart is no news.
        let away = away.filter(|(from, to)| to.ms() - from.ms() >= AWAY_MS_MIN);
        alive.beat();
        let daemon = Arc::new(Self {
            watcher: Watcher::start(Arc::clone(&cookies)),
            cookies,
            environment,
            keeper: Arc::default(),
            locks: Arc::default(),
            attaching: Arc::default(),
            idle_trees: IdleTrees::default(),
            events: broadcast::channel(EVENTS_MAX).0,
            runtime,
            work_begins: Notify::new(),
            shutdown,
            config: RwLock::new(Arc::new(config)),
            config_broken: Mutex::default(),
            registry: Mutex::new(registry),
            roots: RwLock::default(),
            log,
            started: Instant::now(),
            alive,
            steady,
            away,
            hooks_seen: HooksSeen::read(paths.hooks()),
            talkers: Talkers::default(),
            paths,
        });
        daemon.watcher.set_silent(daemon.silent());
        let beating = Arc::clone(&daemon);
        daemon.runtime.spawn(async move {
            let mut tick = tokio::time::interval(alive::EVERY);
            while beating.shutdown.run_until_cancelled(tick.tick()).await.is_some() {
                let daemon = Arc::clone(&beating);
                // One that fails has said so; one that hangs with its disk only holds up the next.
                let _ = tokio::task::spawn_blocking(move || daemon.alive.beat()).await;
            }
        });
        daemon.runtime.spawn(standstill::watch(Arc::clone(&daemon)));
        let (keeper, environment) = (Arc::clone(&daemon.keeper), daemon.environment.clone());
        std::thread::Builder::new()
            .name("keeper".into())
            .spawn(move || keeper.run(&environment.state_dir.join("stores"), &environment.git))
            .at(daemon.paths.cache())?;
        let cache = daemon.paths.cache();
        let roots: Vec<(u64, Root)> = known
            .into_iter()
            .map(|Entry { id, path, store, .. }| {
                // It grows with the number of files. Without one, the first look reads every file.
                let size = cache.join(format!("{id}.tree")).metadata();
                let size = size.map_or(u64::MAX, |metadata| metadata.len());
                (size, Root::new(id, path, store))
            })
            .collect();
        let in_queue: Vec<_> = roots
            .iter()
            .map(|(size, root)| (*size, Arc::clone(&root.mailbox)))
            .collect();
        let tickets = first_looks::tickets(&in_queue, Instant::now());
        for ((_, root), ticket) in roots.into_iter().zip(tickets) {
            daemon.spawn(root, Origin::Start(ticket))?;
        }
        unsaved::take(&daemon);
        Ok(daemon)
    }

    /// The settings of now.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the settings again. A broken file leaves the old ones, and a warning in every status until a good one was
    /// read.
    ///
    /// # Errors
    /// What is broken, with file and line.
    pub fn reload(&self) -> Result<()> {
        let read = Config::read(&self.paths);
        let broken = read.as_ref().err().map(|e| {
            let message = format!("settings not read: {e}; the earlier ones stay");
            convert::fail(FailureKind::Config, message, e.hint())
        });
        *self.broken_config() = broken;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(read?);
        self.watcher.set_silent(self.silent());
        for root in self.roots() {
            root.mailbox.reload();
        }
        Ok(())
    }

    pub fn warnings_for(&self, root: &Root) -> Vec<Warning> {
        let broken = self.broken_config().clone();
        let settings = broken.into_iter().map(convert::warning);
        settings
            .chain(self.keeper.warning(&root.store))
            .chain(self.steady.warning(now()))
            .collect()
    }

    fn silent(&self) -> Silent {
        Silent::with(&self.config().poll_file_systems)
    }

    fn broken_config(&self) -> MutexGuard<'_, Option<Failure>> {
        self.config_broken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All roots, by path.
    pub fn roots(&self) -> Vec<Arc<Root>> {
        self.roots.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The innermost root that holds `place`. May ask the file system when no root holds it as written.
    pub fn root_at(&self, place: &Path) -> Option<Arc<Root>> {
        let roots = self.roots();
        let find = |place: &Path| {
            let path = place::innermost(roots.iter().map(|root| root.path.as_path()), place)?;
            roots.iter().find(|root| root.path == path).cloned()
        };
        find(place).or_else(|| find(&place::real(place)?))
    }

    /// Finds or makes the root that `request` names, and sees that an actor has it; with the job to send to it next.
    /// Blocks, and waits as long as it is `wanted`.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn attach(
        self: &Arc<Self>,
        request: &AttachRequest,
        wanted: impl Fn() -> bool,
    ) -> Result<(Arc<Root>, Job), Failure> {
        let directory = request.directory().map_err(|e| convert::failure(&e))?;
        let unwanted = |_| convert::fail(FailureKind::Busy, "the client went away", "");
        let turn = self
            .attaching
            .try_hold(&directory, Reach::Records, &wanted)
            .map_err(unwanted)?;
        // Its store isn't known yet.
        self.keeper.make_way(None);
        // Nobody works on this root while its record changes.
        let _held = self
            .locks
            .try_hold(&directory, Reach::Records, &wanted)
            .map_err(unwanted)?;
        let settings = |path: &Path| {
            let config = self.config().for_root(path);
            Settings {
                include: config.include,
                max_file_size: config.max_file_size,
                conversations: config.conversations,
            }
        };
        let found = Engine::attach(&self.environment, request, &settings(&request.path), now())
            .map_err(|e| convert::failure(&e))?;
        let mut engine = found.engine;
        let settings = settings(engine.path());
        engine.set_settings(&settings);
        let (mut running, mut fallen, mut away) = (None, None, None);
        for root in self.roots() {
            let has_fallen = root.mailbox.ending() == Some(End::Fall);
            let same = root.id == engine.id() && root.path == engine.path();
            if same && root.store == engine.store_path() {
                // One that has fallen is to be found until another one is in its place.
                *(if has_fallen { &mut fallen } else { &mut running }) = Some(root);
            } else if root.id == engine.id() || root.path == engine.path() {
                // It or its store has moved, or another root is in its place now.
                if root.id == engine.id() {
                    away = root.absent_since();
                }
                self.remove_root(&root);
                if root.id != engine.id() {
                    self.unregister(&root.id)?;
                }
            }
        }
        let root = match running {
            Some(root) => {
                root.mailbox.adopt(engine);
                root
            }
            None => {
                let root = Root::new(
                    engine.id().into(),
                    engine.path().into(),
                    engine.store_path().into(),
                );
                let root = self
                    .spawn(root, Origin::Attach(Box::new(engine), away))
                    .map_err(|e| convert::fail(FailureKind::Internal, e.to_string(), ""))?;
                if let Some(fallen) = fallen {
                    fallen.end(End::Retire);
                }
                root
            }
        };
        let job = Job::FirstCapture {
            created: found.created,
            notes: found.notes,
            turn,
        };
        Ok((root, job))
    }

    /// Writes a root into the registry.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn register(&self, entry: Entry) -> Result<(), Failure> {
        self.registry().put(entry).map_err(|e| own_failure(&e))
    }

    /// Takes a root out of the registry.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn unregister(&self, id: &str) -> Result<(), Failure> {
        self.registry().remove(id).map_err(|e| own_failure(&e))
    }

    /// Ends the root's actor as soon as it can; nobody finds the root any more.
    pub fn remove_root(&self, root: &Arc<Root>) {
        self.roots
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|other| !Arc::ptr_eq(other, root));
        root.end(End::Retire);
    }

    /// The root's actor died of an error of ours, for the `falls`-th time, at `since`: another one takes its place, unless
    /// an `attach` or `detach` was faster.
    pub fn begin_anew(self: &Arc<Self>, fallen: &Arc<Root>, falls: u32, since: Time) {
        let turn = self.attaching.hold(&fallen.path, Reach::Own);
        if self.shutdown.is_cancelled() || !self.roots().iter().any(|root| Arc::ptr_eq(root, fallen)) {
            return;
        }
        let mut root = Root::new(fallen.id.clone(), fallen.path.clone(), fallen.store.clone());
        root.falls = falls;
        match self.spawn(root, Origin::Anew(since)) {
            Ok(_) => fallen.end(End::Retire),
            // It stays where it is, as one that failed.
            Err(e) => tracing::error!(root = %fallen.id, "the root can't be begun anew: {e}"),
        }
        drop(turn);
    }

    /// How long it may still take until every store is open, as far as anybody waits for that.
    pub fn open_patience(&self) -> Duration {
        OPEN_PATIENCE.saturating_sub(self.started.elapsed())
    }

    /// What `ping` and `status` say of the daemon.
    pub fn info(&self) -> DaemonInfo {
        DaemonInfo {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            rss_bytes: resident_bytes(),
            socket: convert::absolute(&self.paths.socket),
            log: self.log.as_deref().map(convert::absolute),
        }
    }

    /// Lets every root take its pending checkpoint and end, for at most `patience`; no git is left. Blocks.
    pub fn stop(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        let git_deadline = Instant::now() + patience / 2;
        let git = &self.environment.git.children;
        let roots = self.roots();
        self.alive.beat();
        self.keeper.stop();
        for root in &roots {
            root.end(End::Stop);
        }
        while roots.iter().any(|root| !root.has_ended()) {
            let now = Instant::now();
            if now >= git_deadline {
                // What hangs in a git comes free by that.
                git.end();
            }
            if now >= deadline {
                tracing::warn!("some roots haven't ended in time; their next start finds what they left");
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        git.end();
    }

    fn spawn(self: &Arc<Self>, root: Root, origin: Origin) -> Result<Arc<Root>> {
        let root = Arc::new(root);
        let actor = Actor::new(Arc::clone(self), Arc::clone(&root), origin);
        let thread = std::thread::Builder::new()
            .name(format!("root {}", root.id))
            .stack_size(STACK_BYTES)
            .spawn(move || actor.run())
            .at(&root.path)?;
        root.runs_in(thread);
        let mut roots = self.roots.write().unwrap_or_else(PoisonError::into_inner);
        // One whose place it takes was to be found until now: nobody is told meanwhile that nothing is attached.
        roots.retain(|other| other.id != root.id);
        roots.push(Arc::clone(&root));
        roots.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(root)
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the wire says of an error around the roots.
pub fn own_failure(error: &Error) -> Failure {
    let kind = match error {
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            FailureKind::Permission
        }
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => FailureKind::NoSpace,
        Error::Broken { .. } | Error::Variable { .. } => FailureKind::Config,
        Error::Io { .. } | Error::Refused { .. } => FailureKind::Internal,
    };
    convert::fail(kind, error.to_string(), error.hint())
}

fn resident_bytes() -> u64 {
    let kib = std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
        });
    kib.unwrap_or(0) * 1024
}
