//! `prune --roots`: deletes the checkpoints of roots whose directory is gone, attached or not.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stepback_engine::engine::{Deleted, Engine, GoneRoot, Settings};
use stepback_proto::{Failure, FailureKind, Reply};

use crate::convert;
use crate::daemon::Daemon;
use crate::locks::Reach;
use crate::root::{gaps, now};

/// How long an actor that ends may take for what it is doing.
const ACTOR_PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Deletes those of `only`; all are named by a preview. Blocks.
///
/// # Errors
/// Those of the stores. What went before stays gone, and another call goes on.
pub fn prune(daemon: &Arc<Daemon>, only: &[String], preview: bool) -> Result<Reply, Failure> {
    let mut gone = Engine::gone_roots(&daemon.environment).map_err(|e| convert::failure(&e))?;
    let (mut freed_bytes, mut notes) = (0, Vec::new());
    if preview {
        notes.extend(gone.iter().map(about));
    } else {
        gone.retain(|root| only.contains(&root.id));
        for root in &gone {
            let deleted = remove(daemon, root)?;
            freed_bytes += deleted.freed_bytes;
            notes.extend(deleted.unreclaimed.map(convert::unreclaimed));
        }
    }
    Ok(Reply::Pruned {
        removed: Vec::new(),
        roots: gone.iter().map(convert::gone_root).collect(),
        freed_bytes,
        notes,
    })
}

/// What people should know before they say yes.
fn about(gone: &GoneRoot) -> String {
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    let mut said = format!(
        "{}: {} checkpoint{}",
        gone.path.display(),
        gone.checkpoints,
        plural(gone.checkpoints)
    );
    if gone.pinned > 0 {
        said += &format!(", {} pinned", gone.pinned);
    }
    if let Some(newest) = gone.newest {
        let days = now().seconds().saturating_sub(newest.seconds()).max(0) / (24 * 3600);
        said += &match days {
            0 => ", the newest of the last 24 hours".to_owned(),
            1 => ", the newest 1 day old".to_owned(),
            days => format!(", the newest {days} days old"),
        };
    }
    if gone.others > 0 {
        said += &format!(
            "; it shares its store with {} other{}: only what nobody else needs is given back",
            gone.others,
            plural(gone.others)
        );
    }
    said + "; if the directory was moved, `stepback attach NEWPATH` continues its history"
}

/// Deletes all of a root.
fn remove(daemon: &Arc<Daemon>, gone: &GoneRoot) -> Result<Deleted, Failure> {
    let engine_failure = |e: stepback_engine::Error| convert::failure(&e);
    daemon.keeper.make_way(Some(&gone.store));
    let running = daemon.roots().into_iter().find(|root| root.id == gone.id);
    let settings = Settings::default();
    let open = || Engine::open(&daemon.environment, &gone.store, &gone.id, &settings);
    // While an operation is unfinished, its journal is the way to get the directory back.
    if let Some(header) = open()
        .and_then(|engine| engine.unfinished())
        .map_err(engine_failure)?
    {
        return Err(convert::failure(&stepback_engine::Error::Unfinished {
            operation: header.operation.name().to_owned(),
            target: header.target,
        }));
    }
    daemon.unregister(&gone.id)?;
    if let Some(root) = running {
        daemon.remove_root(&root);
        let until = Instant::now() + ACTOR_PATIENCE;
        while !root.has_ended() {
            if Instant::now() >= until {
                let message = format!("{} is still being worked on", gone.path.display());
                return Err(convert::fail(FailureKind::Busy, message, "try again"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
    let _held = daemon.locks.hold(&gone.path, Reach::Records);
    let engine = open().map_err(engine_failure)?;
    let deleted = engine.forget_all().map_err(engine_failure)?;
    gaps::remove(&daemon.paths.gaps_of(&gone.id));
    gaps::remove(&daemon.paths.went_of(&gone.id));
    Ok(deleted)
}
