//! Attaching and detaching directories.

use std::path::Path;
use std::sync::Arc;

use stepback_engine::engine::{Engine, Settings};
use stepback_engine::progress::Progress;
use stepback_proto::{Attach, Failure, FailureKind, Reply};

use crate::convert;
use crate::daemon::Daemon;
use crate::handler::{Remedy, not_attached, send};
use crate::locks::Reach;
use crate::named::{self};
use crate::outlet::Outlet;
use crate::place;
use crate::root::gaps;
use crate::root::job::Job;

pub fn attach(daemon: &Arc<Daemon>, attach: Attach, answers: Outlet, progress: Arc<Progress>) {
    let path = match named::absolute(&attach.path, "the directory to attach") {
        Ok(path) => path,
        Err(failure) => return answers.finish(Err(failure)),
    };
    let path = match path.canonicalize() {
        Ok(real) => real,
        Err(e) => {
            let kind = match e.kind() {
                std::io::ErrorKind::PermissionDenied => FailureKind::Permission,
                _ => FailureKind::NoSuchPath,
            };
            return answers.finish(Err(convert::fail(kind, format!("{}: {e}", path.display()), "")));
        }
    };
    if !path.is_dir() {
        let message = format!("{} is not a directory", path.display());
        return answers.finish(Err(convert::fail(
            FailureKind::RefusedRoot,
            message,
            "attach the directory it is in",
        )));
    }
    match daemon.attach(&convert::attach(attach, path), || !answers.is_gone()) {
        Ok((root, job)) => drop(send(&root, job, answers, progress)),
        Err(failure) => answers.finish(Err(failure)),
    }
}

/// A place that was named is itself what is meant, attached or detached before; one that wasn't, the root around it.
pub fn detach(
    daemon: &Arc<Daemon>,
    place: &Path,
    forget: bool,
    exact: bool,
    answers: Outlet,
    progress: Arc<Progress>,
) {
    let around = daemon.root_at(place);
    let real = place::real(place).unwrap_or_else(|| place.to_owned());
    let named = around
        .as_ref()
        .filter(|root| root.path == place || root.path == real);
    if let Some(root) = named {
        root.cancel_look();
        send(root, Job::Detach { forget }, answers, progress);
        return;
    }
    if forget {
        match find_detached(daemon, place, &real) {
            Ok(Some(engine)) => return answers.finish(forget_detached(daemon, engine)),
            Ok(None) => {}
            Err(e) => return answers.finish(Err(convert::failure(&e))),
        }
    }
    match around {
        Some(root) if !exact => {
            root.cancel_look();
            send(&root, Job::Detach { forget }, answers, progress);
        }
        Some(root) => answers.finish(Err(convert::fail(
            FailureKind::NotAttached,
            format!("{} is not an attached directory itself", place.display()),
            format!("it is in one: `stepback detach {}`", root.path.display()),
        ))),
        None => answers.finish(Err(not_attached(place, Remedy::Roots))),
    }
}

/// The root that was attached at just this path once, and is detached now.
fn find_detached(
    daemon: &Daemon,
    place: &Path,
    real: &Path,
) -> Result<Option<Engine>, stepback_engine::Error> {
    let settings = Settings::default();
    match Engine::find(&daemon.environment, place, &settings)? {
        Some(engine) => Ok(Some(engine)),
        None => Engine::find(&daemon.environment, real, &settings),
    }
}

fn forget_detached(daemon: &Daemon, engine: Engine) -> Result<Reply, Failure> {
    let _held = daemon.locks.hold(engine.path(), Reach::Records);
    daemon.keeper.make_way(Some(engine.store_path()));
    let (path, id) = (convert::absolute(engine.path()), engine.id().to_owned());
    let deleted = engine.forget_all().map_err(|e| convert::failure(&e))?;
    gaps::remove(&daemon.paths.gaps_of(&id));
    gaps::remove(&daemon.paths.went_of(&id));
    Ok(convert::deleted(path, id, deleted))
}
