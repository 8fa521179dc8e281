//! One request: to whom it goes, and in which words.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use stepback_engine::conversation::{self, Agent, Mode};
use stepback_engine::engine::Operation;
use stepback_engine::path::{TreePath, for_shell};
use stepback_engine::progress::Progress;
use stepback_proto::{
    Answer, Failure, FailureKind, Item, Reply, Request, RewindWhat, RootStatus, Status, Verb,
};
use tokio::sync::broadcast::error::RecvError;

use crate::attach::{attach, detach};
use crate::convert;
use crate::daemon::Daemon;
use crate::hooks;
use crate::named::{self, relative};
use crate::outlet::Outlet;
use crate::process;
use crate::prune_roots;
use crate::root::job::{Errand, Job};
use crate::root::mailbox::End;
use crate::root::{self, Root, Told, aside};
use crate::unsaved;

/// How long `status` waits for the events of what was written before it.
const EVENTS_PATIENCE: Duration = Duration::from_millis(50);

/// The most bytes of a label, and of a command that is kept with its session: lists carry them.
const TEXT_BYTES_MAX: usize = 4096;

/// Answers `request`. Returns when the answer is complete, or when an actor has taken the request over.
pub async fn handle(daemon: Arc<Daemon>, request: Request, answers: Outlet, progress: Arc<Progress>) {
    let place = match named::absolute(&request.place, "the place of a request") {
        Ok(place) => place,
        Err(failure) => return answers.end(Err(failure)).await,
    };
    match request.verb {
        Verb::Ping => answers.end(Ok(Reply::Daemon(daemon.info()))).await,
        // The connection sees to the rest, once the reply is written.
        Verb::Shutdown => answers.end(Ok(Reply::Empty)).await,
        Verb::Roots => {
            blocking(move || {
                let mut answers = answers;
                let deadline = Instant::now() + daemon.open_patience();
                let roots = daemon.roots();
                for root in &roots {
                    let patience = deadline.saturating_duration_since(Instant::now());
                    let others = roots.iter().filter(|it| it.store == root.store).count() - 1;
                    let shared = (others > 0).then(|| Item::SharedStore {
                        id: root.id.clone(),
                        others: others as u64,
                    });
                    let mut items = [Some(Item::Root(root.line(patience))), shared]
                        .into_iter()
                        .flatten();
                    if items.any(|item| answers.item(item).is_err()) {
                        return;
                    }
                }
                answers.finish(Ok(Reply::Empty));
            })
            .await;
        }
        Verb::Watch => watch(daemon, place, answers).await,
        Verb::Hook(hook) => blocking(move || hooks::hook(&daemon, &place, *hook, answers, progress)).await,
        Verb::HooksSeen => {
            // Somebody may be writing it down.
            blocking(move || answers.finish(Ok(Reply::HooksSeen(daemon.hooks_seen.list())))).await;
        }
        Verb::Status { verify } => status(daemon, place, verify, answers, progress).await,
        Verb::Attach(attach) => blocking(move || self::attach(&daemon, attach, answers, progress)).await,
        Verb::Prune {
            roots: true,
            only,
            preview,
        } => blocking(move || answers.finish(prune_roots::prune(&daemon, &only, preview))).await,
        Verb::Detach { forget, exact } => {
            blocking(move || detach(&daemon, &place, forget, exact, answers, progress)).await;
        }
        verb => {
            blocking(move || match daemon.root_at(&place) {
                Some(root) => {
                    match has_conversations(&daemon, &root, &verb).and_then(|()| job(&root, verb)) {
                        Ok(mut job) => {
                            if let Job::Forget { paths, also_in, .. } = &mut job {
                                *also_in = others_with(&daemon, &root, paths);
                            }
                            send_or_aside(&daemon, &root, job, answers, progress);
                        }
                        Err(failure) => answers.finish(Err(failure)),
                    }
                }
                None => answers.finish(Err(not_attached(&place, Remedy::Attach))),
            })
            .await;
        }
    }
}

/// Runs what may wait (for files, locks, or a client) where waiting harms nobody.
async fn blocking(work: impl FnOnce() + Send + 'static) {
    if let Err(e) = tokio::task::spawn_blocking(work).await {
        tracing::error!("a request failed: {e}");
    }
}

/// What helps where no root is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    Attach,
    Roots,
}

pub fn not_attached(place: &Path, remedy: Remedy) -> Failure {
    let is_dir = match place.metadata() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        metadata => Some(metadata.is_ok_and(|metadata| metadata.is_dir())),
    };
    let message = match is_dir {
        None => format!("{}: no such directory", place.display()),
        Some(_) => format!("{} is not in an attached directory", place.display()),
    };
    let hint = match is_dir {
        Some(is_dir) if remedy == Remedy::Attach => {
            let dir = if is_dir {
                place
            } else {
                place.parent().unwrap_or(place)
            };
            format!("`stepback attach {}` attaches it", for_shell(dir))
        }
        _ => "`stepback roots` lists the attached directories".into(),
    };
    convert::fail(FailureKind::NotAttached, message, hint)
}

/// Puts a job into the root's mailbox, or has it answered at once when its actor stands still.
pub fn send_or_aside(
    daemon: &Arc<Daemon>,
    root: &Arc<Root>,
    job: Job,
    answers: Outlet,
    progress: Arc<Progress>,
) {
    if !root.stands_still() {
        send(root, job, answers, progress);
        return;
    }
    if job.may_be_cancelled() {
        answers.allow_cancelling();
    }
    let errand = Errand {
        job,
        answers,
        progress,
    };
    aside::answer(daemon, root, errand);
}

/// Puts a job into the root's mailbox; `false`: that is full, or the root is ending, which is the answer.
pub fn send(root: &Root, job: Job, answers: Outlet, progress: Arc<Progress>) -> bool {
    if job.may_be_cancelled() {
        answers.allow_cancelling();
    }
    let sent = root.mailbox.send(Errand {
        job,
        answers,
        progress,
    });
    if let Err(refused) = sent {
        let (errand, end) = *refused;
        let failure = match end {
            Some(End::Stop) => convert::fail(
                FailureKind::DaemonUnavailable,
                "the daemon is stopping",
                "try again",
            ),
            Some(End::Fall) => root::fallen(),
            Some(End::Retire) => convert::fail(FailureKind::Busy, "the root is being let go", "try again"),
            None => convert::fail(
                FailureKind::Busy,
                "too many requests wait for this root",
                "try again later",
            ),
        };
        errand.answers.finish(Err(failure));
        return false;
    }
    true
}

/// Whoever wants a conversation back, or forked, has to be told where none is kept.
fn has_conversations(daemon: &Daemon, root: &Root, verb: &Verb) -> Result<(), Failure> {
    let wanted = match verb {
        Verb::RewindAs { fork: true, .. } => "to be forked",
        Verb::RewindAs {
            what: RewindWhat::Conversation,
            ..
        } => "to be put back",
        _ => return Ok(()),
    };
    if daemon.config().for_root(&root.path).conversations {
        return Ok(());
    }
    let message = format!("conversations aren't kept (`conversations = false`): there is none {wanted}");
    let hint = "a rewind without --conversation-only and --fork puts the files back";
    Err(convert::fail(FailureKind::Config, message, hint))
}

/// The job that `verb` asks of `root`.
fn job(root: &Root, verb: Verb) -> Result<Job, Failure> {
    let within = |path: &_| named::within(root, path);
    Ok(match verb {
        Verb::Save {
            label: Some(label), ..
        } if label.len() > TEXT_BYTES_MAX => {
            let message = format!("a label of {} bytes is too long", label.len());
            let hint = format!("at most {TEXT_BYTES_MAX} bytes");
            return Err(convert::fail(FailureKind::Usage, message, hint));
        }
        Verb::Save { label, pin } => Job::Save { label, pin },
        Verb::List { limit, session, path } => Job::List {
            limit,
            session,
            path: path.as_ref().map(within).transpose()?,
        },
        Verb::Show { id } => Job::Show(convert::select(id)),
        Verb::Cat { id, path } => Job::Cat(convert::select(id), relative(&path)?),
        Verb::Diff { between, paths, form } => Job::Diff {
            sides: convert::sides(between),
            within: paths.iter().map(within).collect::<Result<_, _>>()?,
            form: convert::form(form),
        },
        Verb::Rewind { id, how } => Job::Operate(
            Operation::Rewind(id.map(convert::select)),
            Mode::default(),
            convert::consent(how)?,
        ),
        Verb::RewindAs { id, what, fork, how } => Job::Operate(
            Operation::Rewind(id.map(convert::select)),
            convert::mode(what, fork),
            convert::consent(how)?,
        ),
        Verb::Restore { id, paths, how } => {
            let paths = paths.iter().map(within).collect::<Result<_, _>>()?;
            Job::Operate(
                Operation::Restore(convert::select(id), paths),
                Mode::default(),
                convert::consent(how)?,
            )
        }
        Verb::Redo { how } => Job::Operate(Operation::Redo, Mode::default(), convert::consent(how)?),
        Verb::Recover { undo } => Job::Recover { undo },
        Verb::SessionStart { name, command, pid } => {
            // A process that is gone already ends the session at the first look.
            let process = pid.map(|pid| (pid, process::start_time(pid).unwrap_or(0)));
            Job::SessionStart {
                name,
                command: command.map(shortened),
                process,
            }
        }
        Verb::SessionEnd { name, revert } => Job::SessionEnd {
            name,
            revert: revert.map(convert::consent).transpose()?,
        },
        Verb::SessionList => Job::SessionList,
        Verb::SessionShow { name } => Job::SessionShow(name),
        Verb::Pin { id, pinned } => Job::Pin(convert::select(id), pinned),
        Verb::Drop { ids, preview } => Job::Drop {
            ids: ids.into_iter().map(convert::select).collect(),
            preview,
        },
        Verb::Prune { preview, .. } => Job::Prune { preview },
        Verb::ExportPatch { id } => Job::ExportPatch(convert::select(id)),
        Verb::ExportTar { id } => Job::ExportTar(convert::select(id)),
        Verb::Forget { paths, undo, preview } => Job::Forget {
            paths: paths.iter().map(within).collect::<Result<_, _>>()?,
            undo,
            preview,
            also_in: Vec::new(),
        },
        // Handled before.
        Verb::Attach(_)
        | Verb::Detach { .. }
        | Verb::Roots
        | Verb::Status { .. }
        | Verb::Watch
        | Verb::Hook(_)
        | Verb::HooksSeen
        | Verb::Ping
        | Verb::Shutdown => {
            return Err(convert::fail(FailureKind::Internal, "not a job of a root", ""));
        }
    })
}

/// The other roots that one of `paths` of `root` is in, or that are in it: they have checkpoints of their own.
fn others_with(daemon: &Daemon, root: &Root, paths: &[TreePath]) -> Vec<PathBuf> {
    let full: Vec<PathBuf> = paths.iter().map(|path| root.path.join(path.as_path())).collect();
    let holds = |other: &Path| {
        full.iter()
            .any(|path| path.starts_with(other) || other.starts_with(path))
    };
    daemon
        .roots()
        .iter()
        .filter(|other| other.id != root.id && holds(&other.path))
        .map(|other| other.path.clone())
        .collect()
}

/// A command is only shown: its beginning is enough.
pub fn shortened(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX).rfind(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}

async fn status(daemon: Arc<Daemon>, place: PathBuf, verify: bool, answers: Outlet, progress: Arc<Progress>) {
    let finder = Arc::clone(&daemon);
    // There may be hundreds of processes to ask about; meanwhile the events come.
    let found = tokio::task::spawn_blocking(move || {
        unsaved::take(&finder);
        let root = finder.root_at(&place)?;
        let running = running_agents(&finder, &root);
        Some((root, running))
    });
    let seen = daemon.cookies.seen_everything(EVENTS_PATIENCE).await;
    let found = match found.await {
        Ok(found) => found,
        Err(e) => return tracing::error!("a request failed: {e}"),
    };
    blocking(move || {
        let mut answers = answers;
        let Some((root, running)) = found else {
            return answers.finish(Ok(Reply::Status(Box::new(Status {
                daemon: daemon.info(),
                root: None,
            }))));
        };
        let Told {
            mut status,
            current,
            not_captured,
        } = root.status(daemon.open_patience());
        if let Some(n) = current
            && answers.item(Item::Current(n)).is_err()
        {
            return;
        }
        for path in &*not_captured {
            if answers.item(convert::not_captured(path)).is_err() {
                return;
            }
        }
        add_agents(&root, running, &mut status);
        if verify {
            return send_or_aside(&daemon, &root, Job::Verify, answers, progress);
        }
        status.warnings.extend(daemon.warnings_for(&root));
        // Without word from the watcher nobody can say that all is in.
        status.settled = status.settled.map(|settled| settled && seen);
        answers.finish(Ok(Reply::Status(Box::new(Status {
            daemon: daemon.info(),
            root: Some(status),
        }))));
    })
    .await;
}

/// The agents of which a process works in a root; `None` when that isn't to be known.
pub fn running_agents(daemon: &Daemon, root: &Root) -> Option<BTreeSet<Agent>> {
    let wanted = daemon.config().for_root(&root.path).conversations;
    wanted.then(|| conversation::running(&daemon.environment.conversations, &root.path).unwrap_or_default())
}

/// What is known of agents in a root beyond what hooks told: sessions whose conversations are kept, and processes.
pub fn add_agents(root: &Root, running: Option<BTreeSet<Agent>>, status: &mut RootStatus) {
    if let Some(running) = running {
        convert::add_agents(&mut status.agents, &root.agents(), &running);
    }
}

/// Follows the root of the place, or all when it is in none.
async fn watch(daemon: Arc<Daemon>, place: PathBuf, answers: Outlet) {
    let mut events = daemon.events.subscribe();
    let finder = Arc::clone(&daemon);
    let root = tokio::task::spawn_blocking(move || finder.root_at(&place).map(|root| root.id.clone())).await;
    let root = root.unwrap_or_default();
    let end = loop {
        let happening = tokio::select! {
            happening = events.recv() => happening,
            () = daemon.shutdown.cancelled() => break Ok(Reply::Empty),
            () = answers.gone() => return,
        };
        match happening {
            Ok(happening) if root.as_ref().is_some_and(|root| *root != happening.root) => {}
            Ok(happening) => {
                if answers
                    .follow(Answer::Item(Item::Event(Box::new(happening.event))))
                    .await
                    .is_err()
                {
                    return;
                }
            }
            Err(RecvError::Lagged(missed)) => {
                let message = format!("{missed} events were missed: they weren't read in time");
                break Err(convert::fail(
                    FailureKind::Busy,
                    message,
                    "`stepback list` shows all checkpoints",
                ));
            }
            Err(RecvError::Closed) => break Ok(Reply::Empty),
        }
    };
    answers.end(end).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_is_cut_between_characters() {
        assert_eq!(shortened("make".into()), "make");
        let cut = shortened("ä".repeat(TEXT_BYTES_MAX) + "x");
        assert_eq!(cut, "ä".repeat(TEXT_BYTES_MAX / 2) + "…");
        let cut = shortened(format!("x{}", "ä".repeat(TEXT_BYTES_MAX)));
        assert!(cut.len() <= TEXT_BYTES_MAX + '…'.len_utf8() && cut.ends_with("ä…"));
    }
}
