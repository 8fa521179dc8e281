//! Attaching and detaching directories.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stepback_engine::engine::{Engine, Settings};
use stepback_engine::progress::Progress;
use stepback_proto::{Attach, Failure, FailureKind, Reply};

use crate::convert;
use crate::daemon::Daemon;
use crate::handler::{Remedy, not_attached, send, send_or_aside};
use crate::locks::Reach;
use crate::named::{self};
use crate::outlet::Outlet;
use crate::place;
use crate::root::gaps;
use crate::root::job::Job;
use crate::root::looks::Looks;

/// So long the file system of a directory that is to be attached may take to answer.
const ANSWER: Duration = Duration::from_secs(10);

pub fn attach(daemon: &Arc<Daemon>, attach: Attach, answers: Outlet, progress: Arc<Progress>) {
    let path = match named::absolute(&attach.path, "the directory to attach") {
        Ok(path) => path,
        Err(failure) => return answers.finish(Err(failure)),
    };
    let stands_still = |path: &Path| {
        let roots = daemon.roots();
        let root = roots.iter().find(|root| root.path == path);
        root.and_then(|root| root.no_answer())
    };
    if let Some(failure) = stands_still(&path) {
        return answers.finish(Err(failure));
    }
    let named = path.clone();
    let Some(looked) = Looks::default().take_within(ANSWER, move || {
        let real = named.canonicalize()?;
        let is_dir = real.is_dir();
        Ok::<_, std::io::Error>((real, is_dir))
    }) else {
        let message = format!("{}: its file system doesn't answer", path.display());
        let hint = "try again when it does; `umount -l` lets go of a mount whose server is gone";
        return answers.finish(Err(convert::fail(FailureKind::Busy, message, hint)));
    };
    let (path, is_dir) = match looked {
        Ok(looked) => looked,
        Err(e) => {
            let kind = match e.kind() {
                std::io::ErrorKind::PermissionDenied => FailureKind::Permission,
                _ => FailureKind::NoSuchPath,
            };
            return answers.finish(Err(convert::fail(kind, format!("{}: {e}", path.display()), "")));
        }
    };
    if !is_dir {
        let message = format!("{} is not a directory", path.display());
        return answers.finish(Err(convert::fail(
            FailureKind::RefusedRoot,
            message,
            "attach the directory it is in",
        )));
    }
    let wanted = || !answers.is_gone() && stands_still(&path).is_none();
    match daemon.attach(&convert::attach(attach, path.clone()), wanted) {
        Ok((root, job)) => drop(send(&root, job, answers, progress)),
        Err(failure) => answers.finish(Err(stands_still(&path).unwrap_or(failure))),
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
        return send_or_aside(daemon, root, Job::Detach { forget }, answers, progress);
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
            send_or_aside(daemon, &root, Job::Detach { forget }, answers, progress);
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
