//! What can be seen of a root from outside, at once: whether its directory and its store are there. Its actor may hear of
//! it later, and is told to look when it doesn't know yet.

use std::path::Path;

use stepback_engine::Error;
use stepback_engine::engine::{GitChange, Presence, Whereabouts};
use stepback_engine::path::for_shell;
use stepback_proto::{Backend, Failure, FailureKind, RootState, RootStatus, Warning};

use crate::convert;
use crate::root::{PUTTING_BACK, Root, lock};

impl Root {
    /// Is the directory there, as far as is known which it is?
    pub(super) fn presence(&self) -> Presence {
        let whereabouts = lock(&self.known).whereabouts.clone();
        whereabouts.map_or(Presence::Here, |whereabouts| whereabouts.presence())
    }

    /// Brings what the actor told last up to what is there now. A root that is polled, looked at for the first time or
    /// being put back is left to its actor: its file system may not answer, or is just being changed by us.
    pub(super) fn correct(&self, status: &mut RootStatus, whereabouts: Option<&Whereabouts>) {
        let put_back = lock(&self.work)
            .as_ref()
            .is_some_and(|work| work.what == PUTTING_BACK);
        if status.backend == Backend::Poll || status.state == RootState::Indexing || put_back {
            return;
        }
        let Some(whereabouts) = whereabouts else { return };
        let (there, store) = (whereabouts.clone(), self.store.clone());
        let look = move || (there.presence(), store.is_dir(), there.git_change());
        let Some((presence, has_store, git)) = self.looks.take(look) else {
            // Its file system doesn't answer: what the actor told last stays.
            return;
        };
        let known = status.state;
        status.warnings.retain(|warning| warning.kind != GIT_CHANGED);
        if presence == Presence::Here {
            status
                .warnings
                .extend(git.map(|git| git_changed(whereabouts, git)));
        }
        match presence {
            Presence::Here if absent(known) => {
                status.state = RootState::Indexing;
                status.settled = Some(false);
                without_absence(&mut status.warnings);
            }
            Presence::Here if known != RootState::Failed && !has_store => {
                status.state = RootState::Failed;
                status.settled = Some(false);
                status
                    .warnings
                    .insert(0, convert::warning(store_gone(&self.path, &self.store)));
            }
            Presence::Here => {}
            Presence::Missing | Presence::Replaced => {
                status.state = state_of(presence);
                // Nothing that is there waits to be captured.
                status.settled = Some(!self.mailbox.is_capturing());
                without_absence(&mut status.warnings);
                status.warnings.insert(0, absence(whereabouts, presence));
            }
        }
        if status.state != known {
            self.mailbox.look();
        }
    }
}

/// The state of a root whose directory isn't there, or isn't the one that was attached.
pub(super) const fn state_of(presence: Presence) -> RootState {
    match presence {
        Presence::Replaced => RootState::Replaced,
        Presence::Here | Presence::Missing => RootState::Missing,
    }
}

const fn absent(state: RootState) -> bool {
    matches!(state, RootState::Missing | RootState::Replaced)
}

fn without_absence(warnings: &mut Vec<Warning>) {
    let ours = [FailureKind::RootMissing.name(), FailureKind::RootReplaced.name()];
    warnings.retain(|warning| !ours.contains(&warning.kind.as_str()));
}

/// What is said of a root that isn't there.
pub(super) fn absence(whereabouts: &Whereabouts, presence: Presence) -> Warning {
    let path = whereabouts.path.clone();
    let shown = path.display().to_string();
    let (error, message) = match presence {
        Presence::Replaced => (
            Error::RootReplaced(path),
            format!("another directory is at {shown}: nothing is captured"),
        ),
        Presence::Here | Presence::Missing if whereabouts.mount_point => (
            Error::NotMounted(path),
            format!("nothing is mounted at {shown}: nothing is captured"),
        ),
        Presence::Here | Presence::Missing => (
            Error::RootMissing(path),
            format!("{shown} isn't there: nothing is captured"),
        ),
    };
    let mut failure = convert::failure(&error);
    failure.message = message;
    convert::warning(failure)
}

/// The kind of the warning that [`git_changed`] gives.
const GIT_CHANGED: &str = "git_changed";

/// What is said of a root whose git repository isn't the one that it had when it was attached last.
pub(super) fn git_changed(whereabouts: &Whereabouts, change: GitChange) -> Warning {
    let what = match change {
        GitChange::Gone => "its git repository is gone",
        GitChange::New => "it has a git repository now",
        GitChange::Replaced => "another git repository is here",
    };
    let back = match change {
        GitChange::New => "",
        GitChange::Gone | GitChange::Replaced => "put `.git` back, which no rewind does; or ",
    };
    Warning {
        kind: GIT_CHANGED.into(),
        message: format!("{what} since the root was attached; every checkpoint is still there"),
        hint: format!(
            "{back}`stepback attach --here {}` takes it as it is",
            for_shell(&whereabouts.path)
        ),
    }
}

/// What is said of a root whose store was removed.
pub(super) fn store_gone(root: &Path, store: &Path) -> Failure {
    convert::fail(
        FailureKind::StoreDamaged,
        format!("the store {} is gone: nothing is captured", store.display()),
        format!(
            "put it back, or `stepback attach --here {}` starts a new history",
            for_shell(root)
        ),
    )
}
