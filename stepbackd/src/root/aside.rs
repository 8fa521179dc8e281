//! What can be done while the root's actor hangs in its file system: what the store alone tells, letting go of the root, and
//! saying why nothing else can be done.

use std::sync::Arc;

use stepback_engine::Error;
use stepback_engine::engine::{Context, Engine, Settings};
use stepback_engine::tree::NoWatch;
use stepback_proto::{Failure, FailureKind, Item, Reply};

use crate::convert;
use crate::daemon::Daemon;
use crate::outlet::Outlet;
use crate::root::care::ended;
use crate::root::job::{Errand, Job};
use crate::root::mailbox::End;
use crate::root::perform::{JobError, Outcome, perform};
use crate::root::{PUTTING_BACK, Root, lock, now};

/// Answers a job without the actor. Returns at once.
pub fn answer(daemon: &Arc<Daemon>, root: &Arc<Root>, errand: Errand) {
    let (daemon_of, root) = (Arc::clone(daemon), Arc::clone(root));
    daemon.runtime.spawn_blocking(move || {
        let Errand {
            job,
            mut answers,
            progress,
        } = errand;
        let cx = Context {
            now: now(),
            watch: &NoWatch,
            progress: &progress,
        };
        let answer = match &job {
            Job::Detach { forget: false } => let_go(&daemon_of, &root, &mut answers),
            job if job.can_be_told_aside() => engine(&daemon_of, &root).and_then(|mut engine| {
                if is_about_now(&engine, job) {
                    return Err(JobError::Failure(no_answer(&root)));
                }
                perform(&mut engine, job, &cx, &mut answers).map(|Outcome { reply, .. }| reply)
            }),
            _ => Err(JobError::Failure(no_answer(&root))),
        };
        let answer = match answer {
            Ok(mut reply) => {
                if let Reply::List { current, .. } = &mut reply {
                    // Nobody knows what the tree is like now.
                    *current = None;
                }
                Ok(reply)
            }
            Err(JobError::Engine(e)) => Err(convert::failure(&e)),
            Err(JobError::Failure(failure)) => Err(failure),
            // Nobody listens.
            Err(JobError::Gone) => return,
        };
        answers.finish(answer);
    });
}

/// One of its own, of which only what is in the store may be asked.
fn engine(daemon: &Daemon, root: &Root) -> Result<Engine, JobError> {
    let settings = Settings::default();
    Ok(Engine::open(
        &daemon.environment,
        &root.store,
        &root.id,
        &settings,
    )?)
}

/// Whether it asks for a session up to now.
fn is_about_now(engine: &Engine, job: &Job) -> bool {
    let Job::SessionShow(name) = job else { return false };
    let sessions = engine.sessions();
    let session = match name {
        Some(name) => sessions.iter().rfind(|session| session.name == *name),
        None => sessions.last(),
    };
    session.is_some_and(|session| session.end.is_none_or(|end| engine.checkpoint(end).is_err()))
}

fn no_answer(root: &Root) -> Failure {
    root.no_answer().unwrap_or_else(|| {
        convert::fail(
            FailureKind::Busy,
            "its file system didn't answer, and does again",
            "try again",
        )
    })
}

/// Detaches it: its actor ends when it comes back, and does nothing more then.
fn let_go(daemon: &Daemon, root: &Arc<Root>, answers: &mut Outlet) -> Result<Reply, JobError> {
    let Failure { message, .. } = no_answer(root);
    let writes = lock(&root.work)
        .as_ref()
        .is_some_and(|work| work.what == PUTTING_BACK);
    if writes {
        return Err(JobError::Failure(no_answer(root)));
    }
    // A root that can't be opened can be let go all the same.
    if let Ok(Some(header)) = engine(daemon, root).and_then(|engine| Ok(engine.unfinished()?)) {
        return Err(JobError::Engine(Error::Unfinished {
            operation: header.operation.name().to_owned(),
            target: header.target,
        }));
    }
    daemon.unregister(&root.id).map_err(JobError::Failure)?;
    daemon.remove_root(root);
    root.cancel_look();
    tracing::info!(root = %root.id, "detached, while its file system doesn't answer");
    for errand in root.mailbox.drain() {
        errand.answers.finish(Err(ended(Some(End::Retire))));
    }
    let note = format!("{message}; what changed since the last checkpoint isn't captured any more");
    // It is done, whether or not the client still listens.
    let _ = answers.item(Item::Note(note));
    Ok(Reply::Detached {
        path: convert::absolute(&root.path),
        id: root.id.clone(),
        forgotten: false,
    })
}
