//! What waits for a root's actor: jobs, dirty paths, and word from the daemon. One lock, one condition.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stepback_engine::engine::Engine;
use stepback_engine::path::TreePath;
use stepback_engine::time::Time;

use crate::pending::{Burst, Pending};
use crate::root::job::Errand;

/// Jobs that may wait for one root; further ones are refused as busy.
pub const ERRANDS_MAX: usize = 64;

/// The mailbox of one actor.
#[derive(Debug, Default)]
pub struct Mailbox {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    errands: VecDeque<Errand>,
    pending: Pending,
    /// A burst was taken and isn't captured yet.
    capturing: bool,
    reload: bool,
    look: bool,
    rest: bool,
    make_room: Option<u64>,
    remade: bool,
    adopted: Option<Box<Engine>>,
    /// Events since then may have been lost, and why.
    lost: Option<(Time, &'static str)>,
    /// The actor was woken for the time last: a job goes first now.
    jobs_turn: bool,
    end: Option<End>,
    #[cfg(test)]
    panics: bool,
}

/// Why an actor ends; a later one in this list overrides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// The daemon stops: what is pending is still captured.
    Stop,
    /// The actor has died of an error of ours: nothing more is done.
    Fall,
    /// The root is no longer attached here: nothing more is done.
    Retire,
}

/// What the actor is woken for.
#[derive(Debug)]
pub enum Wake {
    /// A job.
    Errand(Box<Errand>),
    /// The time that was asked for, or that a burst is due.
    Time,
    /// The settings were read again.
    Reload,
    /// Somebody saw that the root or its store isn't what the actor tells.
    Look,
    /// Others need the memory of the tree.
    Rest,
    /// All stores together use so many bytes too much: this root is to give its share.
    MakeRoom(u64),
    /// The end.
    End(End),
}

/// When the actor wants to be woken.
#[derive(Debug, Clone, Copy)]
pub struct Alarm {
    /// At this time whatever happens.
    pub at: Option<Instant>,
    /// For pending paths: settle and longest wait; `None`: not now.
    pub settle: Option<(Duration, Duration)>,
    /// For pending paths not before this time.
    pub not_before: Option<Instant>,
}

impl Mailbox {
    /// Puts a job in; gives it back when the mailbox is full or the actor has ended.
    ///
    /// # Errors
    /// The job, and whether the actor has ended.
    pub fn send(&self, errand: Errand) -> Result<(), Box<(Errand, Option<End>)>> {
        let mut state = self.lock();
        if state.end.is_some() || state.errands.len() >= ERRANDS_MAX {
            return Err(Box::new((errand, state.end)));
        }
        // A short word doesn't wait for copies of whole files and trees.
        let waiting = state.errands.iter();
        let copies = waiting.rev().take_while(|it| it.job.copies_much()).count();
        let at = state.errands.len() - if errand.job.is_short_word() { copies } else { 0 };
        state.errands.insert(at, errand);
        self.wake.notify_all();
        Ok(())
    }

    /// An event told of this path.
    pub fn pending(&self, path: TreePath, now: Instant) {
        self.mark(|pending| pending.add(path, now));
    }

    /// Events may have been lost.
    pub fn everything_pending(&self, now: Instant) {
        self.mark(|pending| pending.add_everything(now));
    }

    /// Events since then may have been lost, for this reason: everything is pending.
    pub fn lost(&self, since: Time, why: &'static str, now: Instant) {
        let mut state = self.lock();
        let earlier = state.lost.filter(|(earlier, _)| *earlier <= since);
        state.lost = Some(earlier.unwrap_or((since, why)));
        drop(state);
        self.everything_pending(now);
    }

    /// Since when events may have been lost, and why, once everything was looked at.
    pub fn take_lost(&self) -> Option<(Time, &'static str)> {
        self.lock().lost.take()
    }

    fn mark(&self, change: impl FnOnce(&mut Pending)) {
        let mut state = self.lock();
        let first = state.pending.is_empty();
        change(&mut state.pending);
        if first {
            self.wake.notify_all();
        }
    }

    /// Takes what is pending, for a capture. Until [`Self::captured`] or [`Self::put_back`] the root isn't settled.
    pub fn take_burst(&self) -> Option<Burst> {
        let mut state = self.lock();
        let burst = state.pending.take();
        state.capturing |= burst.is_some();
        burst
    }

    /// A scan begins that isn't caused by events: until [`Self::captured`] the root isn't settled.
    pub fn capturing(&self) {
        self.lock().capturing = true;
    }

    /// The burst is captured.
    pub fn captured(&self) {
        self.lock().capturing = false;
    }

    /// The burst couldn't be captured.
    pub fn put_back(&self, burst: Option<Burst>) {
        let mut state = self.lock();
        if let Some(burst) = burst {
            state.pending.put_back(burst);
        }
        state.capturing = false;
    }

    /// Nothing is pending and no capture runs.
    pub fn is_settled(&self) -> bool {
        let state = self.lock();
        state.pending.is_empty() && !state.capturing
    }

    /// A capture runs.
    pub fn is_capturing(&self) -> bool {
        self.lock().capturing
    }

    /// Nothing is pending.
    pub fn nothing_pending(&self) -> bool {
        self.lock().pending.is_empty()
    }

    /// When the longest wait for what is pending ends.
    pub fn overdue(&self, max_wait: Duration) -> Option<Instant> {
        self.lock().pending.overdue(max_wait)
    }

    /// Whether a burst is due at `now`.
    pub fn is_due(&self, now: Instant, settle: Duration, max_wait: Duration) -> bool {
        self.lock()
            .pending
            .due(settle, max_wait)
            .is_some_and(|due| due <= now)
    }

    /// The settings were read again.
    pub fn reload(&self) {
        self.lock().reload = true;
        self.wake.notify_all();
    }

    /// The root or its store isn't what the actor tells: it shall look.
    pub fn look(&self) {
        self.lock().look = true;
        self.wake.notify_all();
    }

    /// Others need the memory of the root's tree: it gives it back when it has nothing to do.
    pub fn rest(&self) {
        self.lock().rest = true;
        self.wake.notify_all();
    }

    /// All stores together use so many bytes too much: it gives its share when it has nothing to do.
    pub fn make_room(&self, over: u64) {
        self.lock().make_room = Some(over);
        self.wake.notify_all();
    }

    /// Whether others need its memory, and it wasn't heard yet.
    #[cfg(test)]
    pub fn take_rest(&self) -> bool {
        std::mem::take(&mut self.lock().rest)
    }

    /// The actor dies of an error of ours.
    #[cfg(test)]
    pub fn panic(&self) {
        self.lock().panics = true;
        self.wake.notify_all();
    }

    /// An operation on a root around this one has made its directory again: it shall take it for the root.
    pub fn remade(&self) {
        self.lock().remade = true;
        self.look();
    }

    /// Whether that was said since the last time.
    pub fn take_remade(&self) -> bool {
        std::mem::take(&mut self.lock().remade)
    }

    /// Another engine for the same root, with other options.
    pub fn adopt(&self, engine: Engine) {
        self.lock().adopted = Some(Box::new(engine));
        self.wake.notify_all();
    }

    /// Takes the engine that was handed over, if one was.
    pub fn adopted(&self) -> Option<Box<Engine>> {
        self.lock().adopted.take()
    }

    /// Ends the actor.
    pub fn end(&self, end: End) {
        let mut state = self.lock();
        state.end = state.end.max(Some(end));
        self.wake.notify_all();
    }

    /// Whether the actor shall end.
    pub fn ending(&self) -> Option<End> {
        self.lock().end
    }

    /// Takes all jobs that wait.
    pub fn drain(&self) -> Vec<Errand> {
        self.lock().errands.drain(..).collect()
    }

    /// Takes the jobs that somebody waits for: the actor hangs.
    pub fn take_awaited(&self) -> Vec<Errand> {
        let mut state = self.lock();
        let waiting = std::mem::take(&mut state.errands);
        let (others, awaited): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|errand| errand.job.is_done_anyway());
        state.errands = others.into();
        awaited
    }

    /// Waits for the next thing to do. A burst that is due goes before jobs, so that many of them don't starve it; but
    /// not twice in a row, so that it doesn't starve them.
    pub fn wait(&self, alarm: Alarm) -> Wake {
        let mut state = self.lock();
        loop {
            if let Some(end) = state.end {
                return Wake::End(end);
            }
            #[cfg(test)]
            assert!(!state.panics, "a test asks for it");
            if std::mem::take(&mut state.reload) {
                return Wake::Reload;
            }
            if std::mem::take(&mut state.look) {
                return Wake::Look;
            }
            let burst = alarm
                .settle
                .and_then(|(settle, max_wait)| state.pending.due(settle, max_wait));
            let burst = burst.map(|due| alarm.not_before.map_or(due, |not_before| due.max(not_before)));
            let next = match (alarm.at, burst) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            let now = Instant::now();
            let jobs_turn = std::mem::take(&mut state.jobs_turn) && !state.errands.is_empty();
            if !jobs_turn && next.is_some_and(|next| next <= now) {
                state.jobs_turn = true;
                return Wake::Time;
            }
            if let Some(errand) = state.errands.pop_front() {
                return Wake::Errand(Box::new(errand));
            }
            if state.rest && state.pending.is_empty() {
                state.rest = false;
                return Wake::Rest;
            }
            if let Some(over) = state.make_room.take() {
                return Wake::MakeRoom(over);
            }
            state = match next {
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(next) => {
                    let patience = next.saturating_duration_since(now);
                    self.wake
                        .wait_timeout(state, patience)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_millis(20);

    fn alarm() -> Alarm {
        Alarm {
            at: None,
            settle: Some((SETTLE, SETTLE * 10)),
            not_before: None,
        }
    }

    #[test]
    fn a_burst_wakes_when_it_has_settled() {
        let mailbox = Mailbox::default();
        let start = Instant::now();
        mailbox.pending(TreePath::new(b"a").unwrap(), start);
        assert!(!mailbox.is_settled());
        assert!(matches!(mailbox.wait(alarm()), Wake::Time));
        assert!(start.elapsed() >= SETTLE);
        let burst = mailbox.take_burst();
        assert!(burst.is_some() && mailbox.nothing_pending() && !mailbox.is_settled());
        mailbox.put_back(burst);
        assert!(!mailbox.is_settled());
        mailbox.take_burst();
        mailbox.captured();
        assert!(mailbox.is_settled());
    }

    #[test]
    fn a_time_that_is_always_past_leaves_jobs_their_turn() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mailbox = Mailbox::default();
        for _ in 0..2 {
            let (answers, _inlet) = crate::outlet::pair(runtime.handle().clone(), "/nowhere".into());
            let errand = Errand {
                job: crate::root::job::Job::Verify,
                answers,
                progress: std::sync::Arc::default(),
            };
            mailbox.send(errand).unwrap();
        }
        let past = Alarm {
            at: Some(Instant::now()),
            ..alarm()
        };
        for _ in 0..2 {
            assert!(matches!(mailbox.wait(past), Wake::Time));
            assert!(matches!(mailbox.wait(past), Wake::Errand(_)));
        }
        assert!(matches!(mailbox.wait(past), Wake::Time));
    }

    #[test]
    fn a_short_word_does_not_wait_for_copies_but_for_changes() {
        use crate::root::job::Job;
        use stepback_engine::engine::Select;
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mailbox = Mailbox::default();
        let list = || Job::List {
            limit: None,
            session: None,
            path: None,
        };
        let copy = || Job::Cat(Select::Number(1), TreePath::new(b"a").unwrap());
        let pin = || Job::Pin(Select::Number(1), true);
        for job in [copy(), pin(), copy(), copy(), list(), copy()] {
            let (answers, _inlet) = crate::outlet::pair(runtime.handle().clone(), "/nowhere".into());
            let errand = Errand {
                job,
                answers,
                progress: std::sync::Arc::default(),
            };
            mailbox.send(errand).unwrap();
        }
        let told: Vec<bool> = mailbox.drain().iter().map(|it| it.job.is_short_word()).collect();
        assert_eq!(told, [false, false, true, false, false, false]);
    }

    #[test]
    fn retiring_overrides_stopping_and_nothing_comes_after() {
        let mailbox = Mailbox::default();
        mailbox.end(End::Stop);
        mailbox.end(End::Retire);
        mailbox.end(End::Stop);
        assert!(matches!(mailbox.wait(alarm()), Wake::End(End::Retire)));
    }
}
