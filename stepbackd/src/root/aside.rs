//! What the store alone tells, for those who ask while the root's actor hangs in its file system.

use std::sync::Arc;

use stepback_engine::engine::{Context, Engine, Settings};
use stepback_engine::tree::NoWatch;
use stepback_proto::Reply;

use crate::convert;
use crate::daemon::Daemon;
use crate::root::job::Errand;
use crate::root::perform::{JobError, perform};
use crate::root::{Root, now};

/// Does a job that only tells, on an engine of its own. Returns at once.
pub fn tell(daemon: &Arc<Daemon>, root: &Arc<Root>, errand: Errand) {
    let (daemon_of, root) = (Arc::clone(daemon), Arc::clone(root));
    daemon.runtime.spawn_blocking(move || {
        let Errand {
            job,
            mut answers,
            progress,
        } = errand;
        let told = Engine::open(
            &daemon_of.environment,
            &root.store,
            &root.id,
            &Settings::default(),
        )
        .map_err(JobError::from)
        .and_then(|mut engine| {
            let cx = Context {
                now: now(),
                watch: &NoWatch,
                progress: &progress,
            };
            perform(&mut engine, &job, &cx, &mut answers)
        });
        let answer = match told {
            Ok(mut outcome) => {
                if let Reply::List { current, .. } = &mut outcome.reply {
                    // Nobody knows what the tree is like now.
                    *current = None;
                }
                Ok(outcome.reply)
            }
            Err(JobError::Engine(e)) => Err(convert::failure(&e)),
            Err(JobError::Failure(failure)) => Err(failure),
            // Nobody listens.
            Err(JobError::Gone) => return,
        };
        answers.finish(answer);
    });
}
