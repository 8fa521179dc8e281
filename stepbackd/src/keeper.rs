//! Maintenance of the stores: one thread, one store at a time, only while nobody uses it. Whoever wants the store has it
//! back after a grace that grows each time, so that a busy root is never held up for long and its store is folded at last.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stepback_engine::Error;
use stepback_engine::rules::GitEnvironment;
use stepback_engine::store::{Interrupt, Maintained, Store, Thoroughness, size};
use stepback_proto::Warning;

use crate::memory;

/// A store that wasn't used for so long is idle.
const IDLE: Duration = Duration::from_secs(5);
/// What is unreachable in packs is removed at most this often.
const FULL_EVERY: Duration = Duration::from_secs(24 * 3600);
/// The first and the longest grace.
const GRACE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(20));
/// The first and the longest pause after a failure.
const RETRY: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(24 * 3600));

/// What was done.
enum Kept {
    /// There was nothing to do.
    Nothing,
    /// Somebody was faster, or the end has come.
    Later,
    This(Thoroughness, Maintained),
}

/// A store to be looked at.
struct Due {
    path: PathBuf,
    thinned: bool,
    owed: bool,
}

/// Looks after all stores.
#[derive(Debug, Default)]
pub struct Keeper {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stores: BTreeMap<PathBuf, Care>,
    running: Option<(PathBuf, Arc<Interrupt>)>,
    ended: bool,
}

/// What is known of a store.
#[derive(Debug)]
struct Care {
    /// When somebody used it last.
    used: Instant,
    /// It was used since it was looked at.
    dirty: bool,
    /// Checkpoints went since the store was packed anew as a whole.
    thinned: bool,
    grace: Duration,
    failures: u32,
    not_before: Option<Instant>,
    failure: Option<Warning>,
    /// What was to be given back at once, and wasn't: packing it anew as a whole is owed.
    owed: bool,
    /// Of retention, which works by itself.
    thinning: Option<Warning>,
}

impl Default for Care {
    fn default() -> Self {
        Self {
            used: Instant::now(),
            dirty: true,
            thinned: false,
            grace: GRACE.0,
            failures: 0,
            not_before: None,
            failure: None,
            owed: false,
            thinning: None,
        }
    }
}

/// What is to be told of a failure.
fn failure_of(what: &str, why: &str, hint: &str) -> Warning {
    let hint = match hint {
        "" => "checkpoints are made all the same; `stepback daemon logs` says more",
        hint => hint,
    };
    Warning {
        kind: "maintenance".into(),
        message: format!("{what} failed: {why}"),
        hint: hint.into(),
    }
}

impl Care {
    fn due(&self) -> Option<Instant> {
        let idle = self.used + IDLE;
        (self.dirty).then(|| self.not_before.map_or(idle, |at| at.max(idle)))
    }

    fn went_well(&mut self) {
        self.grace = GRACE.0;
        self.failures = 0;
        self.failure = None;
        self.not_before = None;
    }
}

impl Keeper {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody is about to use a store, or any when it is `None`: maintenance of it ends soon.
    pub fn make_way(&self, store: Option<&Path>) {
        self.make_way_within(store, GRACE.1);
    }

    /// As [`Self::make_way`], for somebody who is waited for: the grace is the shortest one.
    pub fn make_way_quickly(&self, store: &Path) {
        self.make_way_within(Some(store), GRACE.0);
    }

    fn make_way_within(&self, store: Option<&Path>, grace_max: Duration) {
        let mut state = self.lock();
        if let Some(store) = store {
            let care = state.stores.entry(store.to_owned()).or_default();
            care.used = Instant::now();
            care.dirty = true;
        }
        let Some((running, interrupt)) = state.running.clone() else {
            // The thread may be waiting for a first store to be dirty.
            self.changed.notify_all();
            return;
        };
        if store.is_some_and(|store| *store != running) {
            return;
        }
        let grace = state.stores.get(&running).map_or(GRACE.0, |care| care.grace);
        let grace = grace.min(grace_max);
        let still = |state: &mut State| {
            state
                .running
                .as_ref()
                .is_some_and(|(_, other)| Arc::ptr_eq(other, &interrupt))
        };
        let waited = self.changed.wait_timeout_while(state, grace, still);
        let (mut state, result) = waited.unwrap_or_else(PoisonError::into_inner);
        if result.timed_out() {
            interrupt.ask();
            if let Some(care) = state.stores.get_mut(&running) {
                care.grace = (care.grace * 2).min(GRACE.1);
            }
        }
    }

    /// Whether the store is being maintained at this moment.
    pub fn works_on(&self, store: &Path) -> bool {
        self.lock()
            .running
            .as_ref()
            .is_some_and(|(path, _)| path == store)
    }

    /// Checkpoints of a store went: their space is to be given back some time.
    pub fn thinned(&self, store: &Path) {
        let mut state = self.lock();
        let care = state.stores.entry(store.to_owned()).or_default();
        care.thinned = true;
        care.dirty = true;
        self.changed.notify_all();
    }

    /// Something went wrong with keeping a store small: it is told in the status until it has gone well.
    pub fn went_wrong(&self, store: &Path, why: &str, hint: &str) {
        tracing::warn!("maintenance of {} failed: {why}", store.display());
        let mut state = self.lock();
        let care = state.stores.entry(store.to_owned()).or_default();
        let pause = RETRY.0.saturating_mul(1 << care.failures.min(12)).min(RETRY.1);
        care.failures += 1;
        care.not_before = Some(Instant::now() + pause);
        care.failure = Some(failure_of("maintenance of the store", why, hint));
    }

    /// Retention was applied, or why not and a hint: it is told in the status until it has gone well.
    pub fn thinning(&self, store: &Path, result: Result<(), (&str, &str)>) {
        let mut state = self.lock();
        let care = state.stores.entry(store.to_owned()).or_default();
        care.thinning = result.err().map(|(why, hint)| {
            tracing::warn!("thinning {} failed: {why}", store.display());
            failure_of("thinning out old checkpoints", why, hint)
        });
    }

    /// A job has packed the store, or has not: what it says of that counts as maintenance. The space is then given back
    /// as soon as that works.
    pub fn packed(&self, store: &Path, unreclaimed: Option<&str>) {
        if let Some(why) = unreclaimed {
            self.went_wrong(store, why, "");
        }
        let mut state = self.lock();
        let Some(care) = state.stores.get_mut(store) else {
            return;
        };
        if unreclaimed.is_none() {
            care.went_well();
            care.thinned = false;
            care.owed = false;
        } else {
            care.owed = true;
            care.dirty = true;
            self.changed.notify_all();
        }
    }

    /// What people should know of a store.
    pub fn warning(&self, store: &Path) -> Option<Warning> {
        let state = self.lock();
        let care = state.stores.get(store)?;
        care.failure.clone().or_else(|| care.thinning.clone())
    }

    /// Ends what runs, and the thread.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.ended = true;
        if let Some((_, interrupt)) = &state.running {
            interrupt.ask();
        }
        self.changed.notify_all();
    }

    /// Works until it is stopped. `stores`: where they are.
    pub fn run(&self, stores: &Path, git: &GitEnvironment) {
        measure_all(stores);
        let program = git.program.as_deref();
        while let Some(Due { path, thinned, owed }) = self.next() {
            self.work(&path, || {
                let store = Store::open(&path)?;
                let full = owed || thinned && is_full_due(&store);
                let how = match (full, store.wants_folding()?) {
                    (true, _) => Thoroughness::Full,
                    (false, true) => Thoroughness::Fold,
                    (false, false) => return Ok(Kept::Nothing),
                };
                let Some(interrupt) = self.begin(&path) else {
                    return Ok(Kept::Later);
                };
                let maintained = store.maintain(program, git.path.as_deref(), how, &interrupt)?;
                Ok(Kept::This(how, maintained))
            });
        }
    }

    /// From now on whoever wants the store knows whom to interrupt. `None`: somebody was faster, or the end has come.
    fn begin(&self, path: &Path) -> Option<Arc<Interrupt>> {
        let mut state = self.lock();
        if state.ended || state.stores.get(path).is_some_and(|care| care.dirty) {
            return None;
        }
        let interrupt = Arc::new(Interrupt::default());
        state.running = Some((path.to_owned(), Arc::clone(&interrupt)));
        Some(interrupt)
    }

    /// Does `work`, and remembers how it ended. A panic must not leave it as running: all who want the store would wait.
    fn work(&self, path: &Path, work: impl FnOnce() -> Result<Kept, Error>) {
        let result = catch_unwind(AssertUnwindSafe(work));
        self.lock().running = None;
        self.changed.notify_all();
        match result {
            Ok(result) => self.end(path, result),
            Err(_) => self.failed(
                path,
                "an internal error",
                "`stepback daemon logs` shows it; please report it",
            ),
        }
    }

    /// Waits for a store that is due.
    fn next(&self) -> Option<Due> {
        let mut state = self.lock();
        loop {
            if state.ended {
                return None;
            }
            let now = Instant::now();
            let due = |(path, care): (&PathBuf, &Care)| Some((care.due()?, path.clone()));
            let first = state.stores.iter().filter_map(due).min();
            state = match first {
                Some((at, path)) if at <= now => {
                    // One that was detached for good is nothing to look after.
                    if !path.is_dir() {
                        state.stores.remove(&path);
                        continue;
                    }
                    let care = state.stores.get_mut(&path)?;
                    care.dirty = false;
                    let (thinned, owed) = (care.thinned, care.owed);
                    return Some(Due { path, thinned, owed });
                }
                Some((at, _)) => {
                    let waited = self.changed.wait_timeout(state, at - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn end(&self, path: &Path, result: Result<Kept, Error>) {
        match result {
            Ok(Kept::This(how, Maintained::Done { before, after })) => {
                tracing::info!("{} packed ({how:?}): {before} -> {after} bytes", path.display());
                memory::give_back();
                let mut state = self.lock();
                let care = state.stores.entry(path.to_owned()).or_default();
                care.went_well();
                care.thinned &= how != Thoroughness::Full;
                care.owed &= how != Thoroughness::Full;
            }
            Ok(Kept::This(_, Maintained::Busy)) | Err(Error::Cancelled) => {
                let mut state = self.lock();
                let care = state.stores.entry(path.to_owned()).or_default();
                care.dirty = true;
                care.used = Instant::now();
            }
            // What failed before was about something that is to be done no more.
            Ok(Kept::Nothing) => {
                if let Some(care) = self.lock().stores.get_mut(path) {
                    care.went_well();
                }
            }
            Ok(Kept::Later) => {}
            Err(error) => self.failed(path, &error.to_string(), &error.hint()),
        }
    }

    /// It failed, and is tried again after the pause.
    fn failed(&self, path: &Path, why: &str, hint: &str) {
        self.went_wrong(path, why, hint);
        if let Some(care) = self.lock().stores.get_mut(path) {
            care.dirty = true;
        }
    }
}

/// Whether it is time to remove what is unreachable in packs.
fn is_full_due(store: &Store) -> bool {
    match store.packed_whole_at().map(|at| at.elapsed()) {
        // The clock was set back since.
        Some(Err(_)) | None => true,
        Some(Ok(age)) => age >= FULL_EVERY,
    }
}

/// So that the sum over all stores is known, also of those that no attached root uses.
fn measure_all(stores: &Path) {
    for entry in std::fs::read_dir(stores).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|it| it == "git")
            && let Err(e) = size::measure(&path)
        {
            tracing::debug!("the size of {} isn't known: {e}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_due_when_it_is_idle_and_not_soon_after_a_failure() {
        let keeper = Keeper::default();
        let store = Path::new("/nowhere/x.git");
        keeper.make_way(Some(store));
        let due = || keeper.lock().stores[store].due();
        assert!(due().unwrap() > Instant::now() + IDLE / 2);
        keeper.went_wrong(store, "no luck", "");
        assert!(due().unwrap() > Instant::now() + RETRY.0 / 2);
        keeper.went_wrong(store, "no luck", "");
        assert!(due().unwrap() > Instant::now() + RETRY.0 * 3 / 2);
        assert_eq!(keeper.warning(store).unwrap().kind, "maintenance");
        let done = Maintained::Done { before: 2, after: 1 };
        keeper.end(store, Ok(Kept::This(Thoroughness::Fold, done)));
        assert_eq!(keeper.warning(store), None);
    }

    #[test]
    fn a_failure_is_told_until_it_went_well_or_there_is_nothing_to_do() {
        let keeper = Keeper::default();
        let store = Path::new("/nowhere/x.git");
        keeper.make_way(Some(store));
        keeper.thinning(store, Err(("no luck", "")));
        keeper.went_wrong(store, "none either", "");
        assert!(keeper.warning(store).unwrap().message.contains("none either"));
        keeper.end(store, Ok(Kept::Later));
        assert!(keeper.warning(store).unwrap().message.contains("none either"));
        keeper.end(store, Ok(Kept::Nothing));
        assert!(keeper.warning(store).unwrap().message.contains("no luck"));
        keeper.thinning(store, Ok(()));
        assert_eq!(keeper.warning(store), None);
    }

    #[test]
    fn space_that_was_not_given_back_is_owed() {
        let keeper = Keeper::default();
        let store = Path::new("/nowhere/x.git");
        let owed = || keeper.lock().stores[store].owed;
        keeper.make_way(Some(store));
        keeper.packed(store, Some("a broken ref"));
        assert!(owed() && keeper.lock().stores[store].due().is_some());
        let done = Maintained::Done { before: 2, after: 1 };
        keeper.end(store, Ok(Kept::This(Thoroughness::Fold, done)));
        assert!(owed());
        keeper.end(store, Ok(Kept::This(Thoroughness::Full, done)));
        assert!(!owed());
        keeper.packed(store, Some("a broken ref"));
        keeper.packed(store, None);
        assert!(!owed() && keeper.warning(store).is_none());
    }

    #[test]
    fn who_wants_the_store_waits_for_the_grace_and_ends_the_work() {
        let keeper = Keeper::default();
        let store = Path::new("/nowhere/x.git");
        keeper.make_way(Some(store));
        keeper.lock().running = Some((store.to_owned(), Arc::default()));
        keeper.make_way(Some(Path::new("/nowhere/y.git")));
        assert_eq!(keeper.lock().stores[store].grace, GRACE.0);
        keeper.make_way(Some(store));
        assert_eq!(keeper.lock().stores[store].grace, GRACE.0 * 2);
    }

    #[test]
    fn nothing_begins_once_somebody_wants_the_store() {
        let keeper = Keeper::default();
        let store = Path::new("/nowhere/x.git");
        let looked_at = || keeper.lock().stores.entry(store.to_owned()).or_default().dirty = false;
        looked_at();
        keeper.make_way(Some(store));
        assert!(keeper.begin(store).is_none());
        looked_at();
        assert!(keeper.begin(store).is_some());
    }

    #[test]
    fn after_a_panic_nobody_waits_and_it_is_tried_again() {
        let keeper = Keeper::default();
        let store = Path::new("/nowhere/x.git");
        keeper.work(store, || {
            keeper.begin(store).unwrap();
            panic!("a test asks for it")
        });
        assert!(keeper.lock().running.is_none());
        assert_eq!(keeper.warning(store).unwrap().kind, "maintenance");
        assert!(keeper.lock().stores[store].due().is_some());
    }

    #[test]
    fn who_is_waited_for_gives_the_shortest_grace_only() {
        let keeper = Keeper::default();
        let store = Path::new("/nowhere/x.git");
        keeper.make_way(Some(store));
        let mut state = keeper.lock();
        state.running = Some((store.to_owned(), Arc::default()));
        state.stores.get_mut(store).unwrap().grace = GRACE.1;
        drop(state);
        let started = Instant::now();
        keeper.make_way_quickly(store);
        assert!((GRACE.0..GRACE.1).contains(&started.elapsed()));
    }
}
