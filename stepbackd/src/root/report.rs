//! What an actor tells of itself: the status that others read without asking, and events for those who follow.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stepback_engine::conversation::{Agent, SessionId};
use stepback_engine::engine::{Budget, Engine, Uncovered, Usage, Whereabouts};
use stepback_engine::mounts::Astray;
use stepback_engine::node::{NotCaptured, Reason};
use stepback_engine::noise::Noisy;
use stepback_engine::path::{TreePath, for_shell};
use stepback_engine::restore::is_leftover;
use stepback_engine::store::Finding;
use stepback_proto::{Backend, Event, RootState, RootStatus, Warning};

use crate::convert;
use crate::daemon::Happening;
use crate::root::actor::Actor;
use crate::root::{elsewhere, lock, now, room, sight};
use crate::watch::Unwatched;

/// The disk use of a store is counted on with each change, and measured now and then: no more often than this, and for at
/// most a fiftieth of the time.
const MEASURE_EVERY: Duration = Duration::from_secs(300);
const MEASURE_SHARE: u32 = 50;
/// Where events come from on this system.
const EVENTS: Backend = if cfg!(target_os = "macos") {
    Backend::Fsevents
} else if cfg!(target_os = "linux") {
    Backend::Inotify
} else {
    Backend::Kqueue
};
/// A session that was opened by hand is mentioned after so long.
const SESSION_MS_LONG: i64 = 7 * 24 * 3600 * 1000;
/// So many characters of a path that is too long for events are shown.
const PATH_SHOWN_MAX: usize = 80;
/// A checkpoint may be so much younger than now, in milliseconds, before the clock is in doubt.
const AHEAD_MS_MAX: i64 = 60_000;
/// So many noisy files are named in the status.
const NOISY_NAMED_MAX: usize = 5;
/// So many records that can't be read are named in the status.
const DAMAGED_NAMED_MAX: usize = 3;

impl Actor {
    /// Brings the status up to date and tells of new checkpoints and of a new state.
    pub(super) fn publish(&mut self) {
        let told = self.told;
        let read = self.engine.as_ref().and_then(|engine| {
            // The engine may be the one in which something just went wrong.
            catch_unwind(AssertUnwindSafe(|| Read::of(engine, told))).ok()
        });
        let state = self.state(read.as_ref());
        let warnings = self.warnings(read.as_ref());
        let root = convert::absolute(&self.root.path);
        let mut happened = Vec::new();
        {
            let mut known = lock(&self.root.known);
            let status = &mut known.status;
            if status.state != state {
                tracing::info!(root = %self.root.id, "{:?} -> {state:?}", status.state);
                happened.push(Event::State {
                    root: root.clone(),
                    state,
                });
            }
            status.state = state;
            status.backend = match self.poll {
                Some(_) => Backend::Poll,
                None if self.daemon.watcher.works() => EVENTS,
                None => Backend::None,
            };
            status.watches = self.watch.count();
            status.poll_seconds = self.poll.map(|every| every.as_secs_f64().ceil() as u64);
            status.missed = self.missed;
            status.gaps = self.gaps.list();
            status.warnings = warnings;
            status.drift = self.turns.drift();
            status.agents = self.turns.agents();
            known.absent_since = self.absent.map(|_| self.absent_since);
            known.opened |= read.is_some() || self.trouble.is_some();
            self.root.reported.notify_all();
            let status = &mut known.status;
            if let Some(read) = &read {
                read.fill(status);
                known.current = read.current;
                known.not_captured = Arc::clone(&read.not_captured);
                known.whereabouts = Some(read.whereabouts.clone());
                known.agents.clone_from(&read.agents);
            }
        }
        if let Some(read) = read {
            self.log_noise(&read.noisy);
            self.watch_processes(read.has_processes || self.turns.has_processes());
            if self.told != read.newest {
                let now = Instant::now();
                let pause = self.timers.measure_pause.max(MEASURE_EVERY);
                self.timers.store_bytes.get_or_insert(now + pause);
                let store = read.usage.map_or(0, |usage| usage.store);
                let hurry = self.pressure.may_hurry(store) && read.is_pressed(&self.config.quota);
                let thin = now + if hurry { Duration::ZERO } else { self.thin_pause() };
                let at = self.timers.thin.get_or_insert(thin);
                *at = thin.min(*at);
            }
            self.told = Some(read.newest.unwrap_or(0));
            happened.extend(read.untold.into_iter().map(|checkpoint| {
                tracing::info!(root = %self.root.id, checkpoint = checkpoint.id, "{}", checkpoint.trigger.name());
                Event::Checkpoint {
                    root: root.clone(),
                    checkpoint: Box::new(checkpoint),
                }
            }));
        }
        for event in happened {
            // Nobody may be listening.
            let _ = self.daemon.events.send(Happening {
                root: self.root.id.clone(),
                event,
            });
        }
    }

    pub(super) fn measure_store(&mut self) {
        let started = Instant::now();
        let bytes = self.engine.as_ref().map(Engine::store_bytes);
        self.timers.measure_pause = started.elapsed() * MEASURE_SHARE;
        self.timers.store_bytes = None;
        if let Some(Ok(bytes)) = bytes {
            lock(&self.root.known).status.store_bytes = bytes;
        }
    }

    /// Each noisy file is logged once, until it is quiet again.
    fn log_noise(&mut self, noisy: &[Noisy]) {
        for noisy in noisy.iter().filter(|noisy| !self.noisy.contains(&noisy.path)) {
            tracing::warn!(root = %self.root.id, "{}; {}", too_noisy(noisy), quieter(noisy));
        }
        self.noisy = noisy.iter().map(|noisy| noisy.path.clone()).collect();
    }

    fn state(&self, read: Option<&Read>) -> RootState {
        if let Some(presence) = self.absent {
            sight::state_of(presence)
        } else if self.trouble.is_some() {
            RootState::Failed
        } else if !self.indexed {
            RootState::Indexing
        } else if read.is_some_and(|read| read.unfinished.is_some() || read.bad_journal.is_some()) {
            RootState::Degraded
        } else if self.poll.is_some() {
            RootState::Polling
        } else {
            RootState::Watching
        }
    }

    fn warnings(&self, read: Option<&Read>) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let whereabouts = match read {
            Some(read) => Some(read.whereabouts.clone()),
            None => lock(&self.root.known).whereabouts.clone(),
        };
        match (self.absent, whereabouts) {
            (Some(presence), Some(whereabouts)) => warnings.push(sight::absence(&whereabouts, presence)),
            // Until then its file system may not answer, and nothing else would be told.
            (None, Some(whereabouts)) if self.indexed => {
                let change = whereabouts.git_change();
                warnings.extend(change.map(|change| sight::git_changed(&whereabouts, change)));
            }
            _ => {}
        }
        if let Some(trouble) = &self.trouble {
            warnings.push(convert::warning(trouble.failure.clone()));
        }
        warnings.extend(read.and_then(|read| read.bad_journal.clone()));
        let mut warn = |kind: &str, message: String, hint: &str| {
            warnings.push(Warning {
                kind: kind.into(),
                message,
                hint: hint.into(),
            });
        };
        if let Some(every) = self.poll {
            let message = if self.watch.refused() {
                let needed = self.watch.needed();
                format!("not enough watches for file events here, where {needed} directories need one each")
            } else if let Some((number, one, why)) = self.watch.unwatched() {
                not_watched(number, &one, why)
            } else {
                "this file system doesn't tell of every change".to_owned()
            };
            let message = format!(
                "{message}: everything is looked at every {} s",
                every.as_secs_f64().ceil()
            );
            let hint = if self.watch.refused() {
                "raise the limit: sudo sysctl fs.inotify.max_user_watches=1048576, then `stepback attach` again"
            } else {
                "`stepback save` captures at once"
            };
            warn("polling", message, hint);
        }
        if let Some(message) = read.and_then(|read| damaged(&read.damaged)) {
            let hint = "`stepback status --verify` names what is damaged; the other checkpoints are usable";
            warn("damaged", message, hint);
        }
        for path in read.iter().flat_map(|read| read.leftovers()) {
            let message = format!(
                "{path}: left by an interrupted operation of stepback, of which nothing else is known"
            );
            warn("leftover", message, "`stepback recover` clears it");
        }
        if let Some(paths) = read.and_then(|read| read.half_forgotten.as_ref()) {
            let named: Vec<String> = paths.iter().map(TreePath::to_string).collect();
            let message = format!(
                "a purge isn't finished: the bytes of {} may still be in the store",
                named.join(", ")
            );
            let paths: Vec<String> = paths.iter().map(|path| for_shell(path.as_path())).collect();
            let hint = format!(
                "the daemon goes on with it by itself; `stepback forget -p {}` does so now",
                paths.join(" -p ")
            );
            warn("forget_unfinished", message, &hint);
        }
        for noisy in read
            .iter()
            .flat_map(|read| read.noisy.iter().take(NOISY_NAMED_MAX))
        {
            warn("noisy", too_noisy(noisy), &quieter(noisy));
        }
        for uncovered in read.iter().flat_map(|read| &read.uncovered) {
            let message = format!(
                "{} is gone: {} files ({}) that were ignored are captured since checkpoint {}",
                uncovered.rules,
                uncovered.files,
                mebibytes(uncovered.bytes),
                uncovered.checkpoint
            );
            let rules = for_shell(uncovered.rules.as_path());
            let hint = format!("`stepback restore {} -p {rules}` puts it back", uncovered.before);
            warn("uncovered", message, &hint);
        }
        for note in read.iter().flat_map(|read| &read.rule_notes) {
            let hint = "install git, then `stepback daemon restart`; or take them in with `stepback attach --include`";
            warn("git_missing", note.clone(), hint);
        }
        for (path, how) in read.iter().flat_map(|read| &read.astray) {
            let (what, remedy) = match how {
                Astray::Unmounted => ("what was mounted there isn't", "mount it again"),
                Astray::Covered => ("something is mounted over captured files", "unmount it"),
            };
            warn(
                "mount",
                format!("{path}: {what}: it is neither captured nor changed by a rewind"),
                &format!(
                    "{remedy}; or `stepback attach --here {}` takes it as it is",
                    for_shell(&self.root.path)
                ),
            );
        }
        for (agent, note) in read.iter().flat_map(|read| &read.conversation_notes) {
            warn(
                "conversation",
                format!("conversations of {} aren't kept, files are: {note}", agent.name()),
                "`conversations = false` in config.toml turns this off",
            );
        }
        if let Some(message) = read.and_then(|read| from_later(&read.from_later)) {
            let hint = "set the clock; numbers and `~2` name checkpoints whatever the clock says";
            warn("clock", message, hint);
        }
        for name in read.iter().flat_map(|read| &read.long_sessions) {
            warn(
                "session_open",
                format!("session {name} has been open for more than 7 days"),
                &format!("`stepback session end {name}` ends it"),
            );
        }
        if let Some((read, usage)) = read.and_then(|read| Some((read, read.usage?))) {
            warnings.extend(room::warnings(usage, &self.config.quota, read.refused()));
        }
        warnings.extend(self.elsewhere.iter().map(elsewhere::warning));
        warnings.extend(self.went.warning(now()));
        warnings
    }
}

/// What is said of directories that can't be watched. Their paths are long.
fn not_watched(number: usize, one: &TreePath, why: Unwatched) -> String {
    let why = match why {
        Unwatched::TooLong => "the path is too long for the system",
        Unwatched::Silent => "the file system there doesn't tell of every change",
    };
    let shown: String = one.to_string().chars().take(PATH_SHOWN_MAX).collect();
    let more = if shown.len() < one.to_string().len() {
        "..."
    } else {
        ""
    };
    let directories = if number == 1 { "directory" } else { "directories" };
    format!("{number} {directories} can't be watched, {why} ({shown}{more})")
}

/// What is said of checkpoints that were made later than now.
fn from_later(numbers: &[u64]) -> Option<String> {
    const WHY: &str = "from later than now: the clock was ahead then, or is behind now";
    match numbers {
        [] => None,
        [n] => Some(format!("checkpoint {n} is {WHY}")),
        [first, .., last] => {
            let count = numbers.len();
            Some(format!("{count} checkpoints, from {first} to {last}, are {WHY}"))
        }
    }
}

/// What is said of records that can't be read; the first few are named.
fn damaged(findings: &[Finding]) -> Option<String> {
    let named: Vec<_> = findings
        .iter()
        .take(DAMAGED_NAMED_MAX)
        .map(|finding| format!("{} ({})", finding.what, finding.how))
        .collect();
    let more = match findings.len() - named.len() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let records = match findings.len() {
        0 => return None,
        1 => "a record of the store".to_owned(),
        n => format!("{n} records of the store"),
    };
    Some(format!("{records} can't be read: {}{more}", named.join(", ")))
}

/// What is said of a file that fills the store.
fn too_noisy(noisy: &Noisy) -> String {
    if noisy.is_dir {
        return format!(
            "files in {}/ were captured {} times in the last hour: {} of versions, before compression",
            noisy.path,
            noisy.versions,
            mebibytes(noisy.bytes)
        );
    }
    format!(
        "{} was captured {} times in the last hour: {} of versions, before compression",
        noisy.path,
        noisy.versions,
        mebibytes(noisy.bytes)
    )
}

/// What helps against it.
fn quieter(noisy: &Noisy) -> String {
    let path = &noisy.path;
    let slash = if noisy.is_dir { "/" } else { "" };
    format!(
        "if nobody needs it back: put the line `/{}{slash}` into .gitignore or .stepbackignore; `stepback forget -p {}` purges \
         what is stored of it, too",
        as_pattern(path),
        for_shell(path.as_path())
    )
}

/// A path as ignore files take it literally.
fn as_pattern(path: &TreePath) -> String {
    let mut pattern = String::new();
    for c in path.to_string().chars() {
        if matches!(c, '\\' | '*' | '?' | '[') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    if pattern.ends_with(' ') {
        pattern.insert(pattern.len() - 1, '\\');
    }
    pattern
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Those mount points that aren't as they were and that would be captured.
fn astray(engine: &Engine) -> Vec<(TreePath, Astray)> {
    if engine.astray().is_empty() {
        return Vec::new();
    }
    let left_out = engine.not_captured(None).unwrap_or_default();
    let named = |path: &TreePath| left_out.iter().any(|entry| entry.path == *path);
    let all = engine.astray().iter().filter(|(path, _)| named(path));
    all.map(|(path, how)| (path.clone(), *how)).collect()
}

/// What is read from the engine for a status.
struct Read {
    files: u64,
    session: String,
    sessions: Vec<String>,
    long_sessions: Vec<String>,
    damaged: Vec<Finding>,
    half_forgotten: Option<Vec<TreePath>>,
    noisy: Vec<Noisy>,
    uncovered: Vec<Uncovered>,
    has_processes: bool,
    checkpoints: u64,
    redo: u64,
    last: Option<stepback_proto::Last>,
    /// Checkpoints that were made later than now.
    from_later: Vec<u64>,
    newest: Option<u64>,
    current: Option<u64>,
    untold: Vec<stepback_proto::CheckpointEntry>,
    unfinished: Option<stepback_proto::Unfinished>,
    /// Of a journal that can't be read.
    bad_journal: Option<Warning>,
    builtin: Vec<String>,
    rule_notes: Vec<String>,
    astray: Vec<(TreePath, Astray)>,
    not_captured: Arc<[NotCaptured]>,
    whereabouts: Whereabouts,
    agents: Vec<SessionId>,
    conversation_notes: Vec<(Agent, String)>,
    usage: Option<Usage>,
}

impl Read {
    fn of(engine: &Engine, told: Option<u64>) -> Self {
        let open: Vec<_> = engine
            .sessions()
            .iter()
            .rev()
            .filter(|session| session.is_open())
            .collect();
        let checkpoints = engine.checkpoints();
        let newest = checkpoints.last().map(|c| c.n);
        let latest = now().ms() + AHEAD_MS_MAX;
        let from_later = checkpoints.iter().filter(|c| c.time.ms() > latest);
        let from_later = from_later.map(|c| c.n).collect();
        // Those of before the daemon's start are no news.
        let told = told.unwrap_or_else(|| newest.unwrap_or(0));
        let untold = checkpoints.iter().rev().take_while(|c| c.n > told);
        let mut untold: Vec<_> = untold
            .map(|c| convert::checkpoint(c, engine.pinned(c.n)))
            .collect();
        untold.reverse();
        let (unfinished, bad_journal) = match engine.unfinished() {
            Ok(unfinished) => (unfinished, None),
            Err(error) => (None, Some(convert::warning(convert::failure(&error)))),
        };
        Self {
            files: engine.files(),
            session: engine.session_now().to_owned(),
            sessions: open.iter().map(|session| session.name.clone()).collect(),
            long_sessions: open
                .iter()
                .filter(|s| s.process.is_none() && now().ms() - s.started.ms() > SESSION_MS_LONG)
                .map(|session| session.name.clone())
                .collect(),
            damaged: engine.damaged().to_vec(),
            half_forgotten: engine.interrupted_forget().ok().flatten(),
            noisy: engine.noisy(now()),
            uncovered: engine.uncovered(),
            has_processes: open.iter().any(|session| session.process.is_some()),
            checkpoints: checkpoints.len() as u64,
            redo: engine.redo_stack().len() as u64,
            last: checkpoints.last().map(convert::last),
            from_later,
            newest,
            current: engine.current(),
            untold,
            unfinished: unfinished.as_ref().map(convert::unfinished),
            bad_journal,
            builtin: engine.builtin_hits(),
            rule_notes: engine.rule_notes(),
            astray: astray(engine),
            not_captured: engine.not_captured(None).unwrap_or_default().into(),
            whereabouts: engine.whereabouts(),
            agents: engine.agent_sessions(),
            conversation_notes: engine.conversation_notes(),
            usage: engine.usage().ok(),
        }
    }

    /// Staging directories that no journal knows.
    fn leftovers(&self) -> impl Iterator<Item = &TreePath> {
        let known = self.unfinished.is_some() || self.bad_journal.is_some();
        let all = self
            .not_captured
            .iter()
            .filter(move |entry| !known && is_leftover(entry));
        all.map(|entry| &entry.path)
    }

    /// How much is left out for want of room.
    fn refused(&self) -> usize {
        let refused = self.not_captured.iter().filter(|it| it.reason == Reason::Quota);
        refused.count()
    }

    /// Whether the budget is used up, or something was left out for it.
    fn is_pressed(&self, budget: &Budget) -> bool {
        self.usage.is_some_and(|usage| usage.room(budget) == 0) || self.refused() > 0
    }

    fn fill(&self, status: &mut RootStatus) {
        status.files = self.files;
        status.session.clone_from(&self.session);
        status.sessions.clone_from(&self.sessions);
        status.checkpoints = self.checkpoints;
        status.redo = self.redo;
        status.last = self.last;
        status.unfinished.clone_from(&self.unfinished);
        status.builtin.clone_from(&self.builtin);
        if let Some(usage) = self.usage {
            status.store_bytes = usage.store;
        }
    }
}
