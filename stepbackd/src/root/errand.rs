//! The jobs of an actor: what comes before and after each, and those that concern the actor itself.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stepback_engine::Error;
use stepback_engine::engine::Engine;
use stepback_engine::error::At;
use stepback_engine::fault;
use stepback_engine::path::for_shell;
use stepback_engine::progress::Progress;
use stepback_engine::store::Finding;
use stepback_proto::{Failure, FailureKind, Reply, Warning};

use crate::convert;
use crate::handler::{add_agents, running_agents};
use crate::locks::Refusal;
use crate::outlet::Outlet;
use crate::registry::Entry;
use crate::root::actor::Actor;
use crate::root::care::ended;
use crate::root::job::{Errand, Job};
use crate::root::mailbox::End;
use crate::root::perform::{JobError, Outcome, perform};
use crate::root::{Root, Work, now};

/// Findings of a check that are told: an answer has to fit a frame.
const FINDINGS_MAX: usize = 100;

/// A job that failed and left the engine's picture of the tree as it was.
const fn only_looked_up(job: &Job, error: &JobError) -> bool {
    match (job, error) {
        // Something in the engine or around it broke.
        (_, JobError::Failure(_)) => false,
        (job, _) if job.reads_the_store_alone() => true,
        // It was complete before its first part went out.
        (Job::Diff { .. }, JobError::Gone) => true,
        // Names are looked up before the disk is.
        (Job::Diff { .. } | Job::Drop { .. }, JobError::Engine(Error::NoSuchCheckpoint(_))) => true,
        (Job::Forget { preview: true, .. }, _) => true,
        (
            Job::Forget { .. },
            JobError::Engine(Error::NoSuchPath { .. } | Error::Refused { .. } | Error::Unfinished { .. }),
        ) => true,
        // An operation looks at the disk first, and goes back to an older picture of it on every error.
        (Job::Operate(..) | Job::Diff { .. }, _) => false,
        // What was named isn't there, which was seen before anything was done.
        (
            _,
            JobError::Engine(
                Error::NoSuchSession(_) | Error::SessionEnded(_) | Error::NoOpenSession | Error::NoSessionYet,
            ),
        ) => true,
        (Job::SessionStart { .. }, JobError::Engine(Error::BadName(_))) => true,
        _ => false,
    }
}

/// What is said when an operation on a root that shares files takes long.
fn busy_around(other: &Path) -> Failure {
    convert::fail(
        FailureKind::Busy,
        format!(
            "{} is being put back, and shares files with this root",
            other.display()
        ),
        format!(
            "`stepback -C {} status` shows how far it is; try again",
            for_shell(other)
        ),
    )
}

/// What was found, for people; `mending`: some of it is on the disk, and is being written again.
fn damage(findings: &[Finding], mending: bool) -> Vec<Warning> {
    let hint = if mending {
        "checkpoints that don't need it stay usable; what of it is on disk now is being written again: \
         `stepback status --verify` in a moment shows what is left"
    } else {
        "checkpoints that don't need it stay usable; nothing that is on disk now can mend it"
    };
    let warning = |message: String| Warning {
        kind: FailureKind::StoreDamaged.name().into(),
        message,
        hint: hint.into(),
    };
    let told = findings.iter().take(FINDINGS_MAX);
    let mut warnings: Vec<Warning> = told
        .map(|finding| warning(format!("{}: {}", finding.what, finding.how)))
        .collect();
    if findings.len() > FINDINGS_MAX {
        warnings.push(warning(format!("and {} more", findings.len() - FINDINGS_MAX)));
    }
    warnings
}

impl Actor {
    /// Does a job; `true`: the root is detached.
    pub(super) fn errand(&mut self, errand: Errand) -> bool {
        let Errand {
            job,
            mut answers,
            progress,
        } = errand;
        let first = matches!(job, Job::FirstCapture { .. });
        // One whose client went away while it waited would come as a surprise.
        let wanted = || job.is_done_anyway() || !answers.is_gone();
        let held = match self.daemon.locks.try_hold(&self.root.path, job.reach(), wanted) {
            Ok(held) if wanted() => held,
            Ok(_) | Err(Refusal::Unwanted) => {
                answers.finish(Err(self.failure(&JobError::Gone)));
                return false;
            }
            Err(Refusal::Busy(other)) => {
                answers.finish(Err(busy_around(&other)));
                return false;
            }
        };
        if self.root.mailbox.ending() == Some(End::Retire) {
            answers.finish(Err(ended(Some(End::Retire))));
            return false;
        }
        self.take_over();
        self.awaits_attach &= !first;
        if let Job::Detach { forget } = job {
            return self.detach(forget, answers);
        }
        if let Job::Hook(heard) = job {
            // A capture takes the lock itself.
            drop(held);
            let mut heard = *heard;
            let waiting = heard.waiting.take();
            let result = self.hook(heard);
            match waiting {
                // It may have given up.
                Some(waiting) => drop(waiting.send(result)),
                None => answers.finish(result.map(|()| Reply::Empty)),
            }
            return false;
        }
        if let Job::SaveBefore {
            agent,
            received,
            waiting,
        } = job
        {
            drop(held);
            let saved = self.save_before_foreign_command(&agent, received);
            drop(waiting.send(saved));
            return false;
        }
        if let Job::Unsaved { from, to, agent } = job {
            self.note_unsaved(from, to, &agent);
            self.publish();
            answers.finish(Ok(Reply::Empty));
            return false;
        }
        let saves_all = job.saves_all();
        let burst = if saves_all {
            self.root.mailbox.take_burst()
        } else {
            None
        };
        if saves_all {
            self.root.mailbox.capturing();
        }
        // An operation looks at everything first: that is as good as the first look.
        let is_first_look = !self.indexed && self.trouble.is_none() && !self.awaits_attach && job.writes();
        if saves_all || is_first_look {
            self.watch.begin_look();
        }
        let (there, missing) = if job.writes() {
            self.roots_below()
        } else {
            Default::default()
        };
        let started = Instant::now();
        let may_be_cancelled = job.may_be_cancelled();
        answers.says(job.what());
        self.root.works_on(Some(Work {
            what: job.what(),
            progress: Arc::clone(&progress),
            may_be_cancelled,
            ends_with_root: matches!(job, Job::FirstCapture { created: true, .. }),
        }));
        if !job.reads_the_store_alone() {
            self.daemon.keeper.make_way(Some(&self.root.store));
        }
        let mut result = match &job {
            Job::Verify => self.verify(&progress),
            Job::Prune { preview } => self.prune(*preview, &progress),
            job => self.with_engine(&progress, |engine, cx| {
                fault::point("actor.job").at(engine.path())?;
                perform(engine, job, cx, &mut answers)
            }),
        };
        self.root.works_on(None);
        // While it is held, nobody else of ours makes a directory there.
        for inner in missing.iter().filter(|inner| inner.path.is_dir()) {
            inner.mailbox.remade();
        }
        if let Ok(Outcome {
            reply: Reply::Report(report),
            ..
        }) = &mut result
        {
            let gone = there.iter().filter(|inner| !inner.path.is_dir());
            report.notes.extend(gone.map(|inner| {
                format!(
                    "{} is an attached root: its directory went, its checkpoints stay",
                    inner.path.display()
                )
            }));
        }
        drop(held);
        let took = started.elapsed();
        let answer = match result {
            Ok(mut outcome) => {
                if let Some(unreclaimed) = &outcome.packed {
                    self.packed(unreclaimed.as_deref());
                }
                if let (Some(_), Reply::List { current, .. }) = (&self.trouble, &mut outcome.reply) {
                    // Nobody knows what the tree is like now.
                    *current = None;
                }
                if let Some(trouble) = &mut self.trouble
                    && job.looks_at_everything()
                {
                    // What failed may work again, and captures needn't wait.
                    trouble.retry_at = Instant::now();
                }
                if saves_all {
                    self.went_well(&outcome.dirty);
                    self.note_loss(true);
                    self.looked(took);
                    self.root.mailbox.captured();
                } else if is_first_look && matches!(outcome.reply, Reply::Report(_)) {
                    self.looked(took);
                    self.root.mailbox.captured();
                }
                if first {
                    self.register().map(|()| outcome.reply)
                } else {
                    Ok(outcome.reply)
                }
            }
            Err(error) => {
                if let JobError::Engine(Error::Unpurged { why }) = &error {
                    self.packed(Some(&why.with_remedy()));
                    self.purge_failed();
                }
                let failure = self.failure(&error);
                if self.indexed && self.engine.is_some() && only_looked_up(&job, &error) {
                    self.root.mailbox.put_back(burst);
                } else if saves_all {
                    self.root.mailbox.put_back(burst);
                    self.job_went_wrong(error);
                } else {
                    // The engine may have gone back to an older picture of the tree.
                    self.watch.untold();
                    self.root.mailbox.everything_pending(Instant::now());
                }
                Err(failure)
            }
        };
        if job.writes() {
            self.look_for_root();
        }
        let abandoned = answer.is_err() && matches!(job, Job::FirstCapture { created: true, .. });
        if abandoned {
            self.abandon();
        }
        if job.only_tells() && answer.is_ok() {
            // There is nothing new to tell of the root: the client needn't wait for it.
            answers.finish(answer);
            self.publish();
            self.quiet_soon();
            return false;
        }
        self.publish();
        if let Job::FirstCapture { turn, .. } = job {
            // Now the stores tell whether the root is there.
            drop(turn);
        }
        let attached = first && answer.is_ok();
        answers.finish(answer);
        if attached {
            // After a kill the next daemon needn't read all files, and knows how large the root is.
            self.save_cache();
        }
        self.give_back(took);
        abandoned
    }

    /// Attached roots below this one: those whose directories are there, and those whose aren't.
    fn roots_below(&self) -> (Vec<Arc<Root>>, Vec<Arc<Root>>) {
        let roots = self.daemon.roots();
        let below = roots
            .into_iter()
            .filter(|root| root.path != self.root.path && root.path.starts_with(&self.root.path));
        below.partition(|root| root.path.is_dir())
    }

    /// The first capture is durable: the root is attached from now on.
    fn register(&self) -> Result<(), Failure> {
        if self.root.mailbox.ending() == Some(End::Retire) {
            // It was detached while its file system didn't answer.
            return Err(ended(Some(End::Retire)));
        }
        let attached = now();
        let Root { id, path, store, .. } = &*self.root;
        self.daemon.register(Entry {
            id: id.clone(),
            path: path.clone(),
            store: store.clone(),
            attached,
        })
    }

    /// A new root whose first capture failed leaves nothing behind.
    fn abandon(&mut self) {
        self.daemon.remove_root(&self.root);
        self.gaps.remove();
        self.went.remove();
        if let Some(engine) = self.engine.take()
            && engine.checkpoints().is_empty()
            && let Err(e) = engine.forget_all()
        {
            tracing::warn!(root = %self.root.id, "what was begun of a store stays: {e}");
        }
    }

    fn detach(&mut self, forget: bool, answers: Outlet) -> bool {
        if forget {
            self.daemon.keeper.make_way(Some(&self.root.store));
        }
        let checked = self
            .open()
            .and_then(|()| match self.engine.as_ref().map(Engine::unfinished) {
                Some(Ok(Some(header))) => Err(JobError::Engine(Error::Unfinished {
                    operation: header.operation.name().to_owned(),
                    target: header.target,
                })),
                Some(Err(e)) if forget => Err(JobError::Engine(e)),
                _ => Ok(()),
            });
        // Of a store that is gone there is nothing to delete.
        let forget_store = forget && self.root.store.is_dir();
        // A root that can't be opened can be let go all the same, but not deleted.
        let checked = match checked {
            Err(JobError::Engine(e)) if forget_store || matches!(e, Error::Unfinished { .. }) => {
                Err(convert::failure(&e))
            }
            _ => self.daemon.unregister(&self.root.id),
        };
        if let Err(failure) = checked {
            answers.finish(Err(failure));
            return false;
        }
        self.daemon.remove_root(&self.root);
        self.watch.turn_off();
        if forget {
            self.gaps.remove();
            self.went.remove();
        }
        let (path, id) = (convert::absolute(&self.root.path), self.root.id.clone());
        if !forget {
            self.catch_up_record();
            self.save_cache();
        }
        let result = match self.engine.take() {
            Some(engine) if forget_store => match engine.forget_all() {
                Ok(deleted) => Ok(convert::deleted(path, id, deleted)),
                Err(e) => Err(convert::failure(&e)),
            },
            _ => Ok(self.detached(forget)),
        };
        answers.finish(result);
        true
    }

    pub(super) fn detached(&self, forgotten: bool) -> Reply {
        Reply::Detached {
            path: convert::absolute(&self.root.path),
            id: self.root.id.clone(),
            forgotten,
        }
    }

    fn prune(&mut self, preview: bool, progress: &Progress) -> Result<Outcome, JobError> {
        let policy = self.config.retention;
        let pruned = self.with_engine(progress, |engine, cx| Ok(engine.prune(&policy, preview, cx)?))?;
        let packed = (!preview).then(|| pruned.unreclaimed.clone());
        Ok(Outcome {
            packed,
            ..convert::pruned(pruned).into()
        })
    }

    fn verify(&mut self, progress: &Progress) -> Result<Outcome, JobError> {
        let (findings, mending) = self.with_engine(progress, |engine, _| {
            let findings = engine.verify()?;
            let mending = engine.mend_from_disk(&findings)?;
            Ok((findings, mending))
        })?;
        if mending {
            self.root.mailbox.everything_pending(Instant::now());
        }
        let settled = self.root.mailbox.is_settled();
        let mut status = self.root.status(Duration::ZERO).status;
        let running = running_agents(&self.daemon, &self.root);
        add_agents(&self.root, running, &mut status);
        status.progress = None;
        status.settled = status.settled.map(|_| settled);
        status.warnings.extend(self.daemon.warnings_for(&self.root));
        status.warnings.extend(damage(&findings, mending));
        let daemon = self.daemon.info();
        Ok(Reply::Status(Box::new(stepback_proto::Status {
            daemon,
            root: Some(status),
        }))
        .into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_findings_are_cut_and_counted() {
        let finding = Finding::of_record("w", "h");
        let told = damage(&vec![finding.clone(); FINDINGS_MAX + 7], false);
        assert_eq!(told.len(), FINDINGS_MAX + 1);
        assert_eq!(told[FINDINGS_MAX].message, "and 7 more");
        assert_eq!(damage(&[finding], false).len(), 1);
    }
}
