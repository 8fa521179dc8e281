//! Everything that can be asked of a root's actor, in the engine's words.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use stepback_engine::conversation::Mode;
use stepback_engine::engine::{Operation, Select, Sides};
use stepback_engine::path::TreePath;
use stepback_engine::progress::Progress;
use stepback_engine::restore::PlanId;
use stepback_engine::time::Time;
use stepback_proto::{Failure, Hook};

use crate::locks::{Held, Reach};
use crate::outlet::Outlet;
use crate::root::PUTTING_BACK;

/// A job with the place where its answer goes.
#[derive(Debug)]
pub struct Errand {
    /// What.
    pub job: Job,
    /// Where the answer goes.
    pub answers: Outlet,
    /// Counts, and is cancelled when the client goes away.
    pub progress: Arc<Progress>,
}

/// The closed list of jobs.
#[derive(Debug)]
pub enum Job {
    /// The capture that ends an `attach`.
    FirstCapture {
        /// The root is new: it goes again if this fails.
        created: bool,
        /// For people.
        notes: Vec<String>,
        /// The next `attach` of this directory waits for it.
        turn: Held,
    },
    /// Stop watching; with `forget` delete everything too.
    Detach {
        /// Also the checkpoints.
        forget: bool,
    },
    /// The status, with the store checked.
    Verify,
    /// Full scan and checkpoint.
    Save {
        /// Its label.
        label: Option<String>,
        /// Pin it.
        pin: bool,
    },
    /// Checkpoints, newest first.
    List {
        /// At most so many.
        limit: Option<u64>,
        /// Of this session.
        session: Option<String>,
        /// That changed this path.
        path: Option<TreePath>,
    },
    /// A checkpoint's details.
    Show(Select),
    /// A file's bytes.
    Cat(Select, TreePath),
    /// What differs.
    Diff {
        /// Between what.
        sides: Sides,
        /// Only here.
        within: Vec<TreePath>,
        /// How it is told.
        form: Form,
    },
    /// Rewind, restore or redo, and what becomes of conversations.
    Operate(Operation, Mode, Consent),
    /// Finish or undo what was interrupted.
    Recover {
        /// Undo.
        undo: bool,
    },
    /// Open a session.
    SessionStart {
        /// Its name.
        name: Option<String>,
        /// The command of `run`.
        command: Option<String>,
        /// Its process and when that started.
        process: Option<(u32, u64)>,
    },
    /// End a session.
    SessionEnd {
        /// Which.
        name: Option<String>,
        /// Put back its start.
        revert: Option<Consent>,
    },
    /// All sessions.
    SessionList,
    /// One session.
    SessionShow(Option<String>),
    /// Keep, or no longer.
    Pin(Select, bool),
    /// Delete checkpoints.
    Drop {
        /// Which.
        ids: Vec<Select>,
        /// Only say what would go.
        preview: bool,
    },
    /// Apply retention.
    Prune {
        /// Only say what would go.
        preview: bool,
    },
    /// A checkpoint as a patch for `git apply`.
    ExportPatch(Select),
    /// A checkpoint as a tar.
    ExportTar(Select),
    /// What an agent is doing.
    Hook(Box<Heard>),
    /// An agent at work in another root is about to run a command that may destroy work here.
    SaveBefore {
        /// Which.
        agent: String,
        /// When its word came.
        received: Instant,
        /// Is told when it is saved, or why not.
        waiting: Sender<Result<(), Failure>>,
    },
    /// An agent ran a command that may destroy work, after it had waited for the save in vain.
    Unsaved {
        /// Since when it waited.
        from: Time,
        /// When it gave up.
        to: Time,
        /// Which.
        agent: String,
    },
    /// Purge paths, or capture them again.
    Forget {
        /// Which.
        paths: Vec<TreePath>,
        /// Capture them again.
        undo: bool,
        /// Only name what would go.
        preview: bool,
        /// Other roots that hold one of them.
        also_in: Vec<PathBuf>,
    },
}

/// A word of an agent's.
#[derive(Debug)]
pub struct Heard {
    /// What it says.
    pub hook: Hook,
    /// When it came.
    pub received: Instant,
    /// How long the transcript that it names was then, in bytes.
    pub transcript_bytes: Option<u64>,
    /// The agent waits until it was taken.
    pub waits: bool,
    /// Whoever answers the agent, and has more to do before.
    pub waiting: Option<Sender<Result<(), Failure>>>,
}

/// How a diff is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A patch.
    Patch,
    /// Files with line counts.
    Files,
    /// Files.
    Names,
}

/// Whether an operation is shown or done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consent {
    /// Shown.
    Preview,
    /// Done.
    Yes,
    /// Done if the plan is still this one.
    YesTo(PlanId),
}

impl Job {
    /// Takes in every change on disk and ends with a checkpoint that the tree equals.
    pub fn saves_all(&self) -> bool {
        match self {
            Self::FirstCapture { .. } | Self::Save { .. } | Self::SessionStart { .. } => true,
            Self::SessionEnd { revert, .. } => !matches!(revert, Some(Consent::Preview)),
            _ => false,
        }
    }

    /// Looks at everything on disk first: when that went well, a capture would, too.
    pub fn looks_at_everything(&self) -> bool {
        self.saves_all()
            || matches!(
                self,
                Self::Operate(..) | Self::Recover { .. } | Self::SessionEnd { .. }
            )
    }

    /// May write below the root.
    pub fn writes(&self) -> bool {
        match self {
            Self::Operate(_, _, consent)
            | Self::SessionEnd {
                revert: Some(consent),
                ..
            } => *consent != Consent::Preview,
            Self::Recover { .. } => true,
            _ => false,
        }
    }

    /// Whether it is done though nobody waits for it any more: nobody ever did, or what comes next relies on it.
    pub const fn is_done_anyway(&self) -> bool {
        match self {
            Self::FirstCapture { .. } | Self::Hook(..) | Self::SaveBefore { .. } | Self::Unsaved { .. } => {
                true
            }
            Self::Detach { .. }
            | Self::Verify
            | Self::Save { .. }
            | Self::List { .. }
            | Self::Show(_)
            | Self::Cat(..)
            | Self::Diff { .. }
            | Self::Operate(..)
            | Self::Recover { .. }
            | Self::SessionStart { .. }
            | Self::SessionEnd { .. }
            | Self::SessionList
            | Self::SessionShow(_)
            | Self::Pin(..)
            | Self::Drop { .. }
            | Self::Prune { .. }
            | Self::ExportPatch(_)
            | Self::ExportTar(_)
            | Self::Forget { .. } => false,
        }
    }

    /// Which work on roots around this one and in it has to wait for it, and it for that.
    pub fn reach(&self) -> Reach {
        match self {
            job if job.writes() => Reach::Overlapping,
            Self::Detach { .. } | Self::Hook(..) | Self::SaveBefore { .. } | Self::Unsaved { .. } => {
                Reach::Records
            }
            job if job.reads_the_store_alone() => Reach::Records,
            _ => Reach::Own,
        }
    }

    /// Never looks at the disk: whatever goes wrong, the engine's picture of the tree is as it was.
    pub const fn reads_the_store_alone(&self) -> bool {
        matches!(
            self,
            Self::List { .. }
                | Self::Show(_)
                | Self::Cat(..)
                | Self::SessionList
                | Self::Pin(..)
                | Self::ExportPatch(_)
                | Self::ExportTar(_)
                | Self::Verify
        )
    }

    /// Changes nothing, neither on disk nor in what is known of the root.
    pub const fn only_tells(&self) -> bool {
        matches!(
            self,
            Self::List { .. } | Self::Show(_) | Self::Cat(..) | Self::SessionList
        )
    }

    /// The store alone has the answer, for a session if it has ended: it can be had while the actor hangs.
    pub const fn can_be_told_aside(&self) -> bool {
        match self {
            Self::Diff { sides, .. } => matches!(sides, Sides::BaseTo(_) | Sides::Between(..)),
            Self::SessionShow(_) | Self::ExportPatch(_) | Self::ExportTar(_) => true,
            job => job.only_tells(),
        }
    }

    /// Tells little, and nothing of the files.
    pub const fn is_short_word(&self) -> bool {
        matches!(self, Self::List { .. } | Self::Show(_) | Self::SessionList)
    }

    /// Copies contents out of the store, which may take long, and changes nothing.
    pub const fn copies_much(&self) -> bool {
        matches!(self, Self::Cat(..) | Self::ExportPatch(_) | Self::ExportTar(_))
    }

    /// Nothing is lost when it stops half-way because the client went away.
    pub fn may_be_cancelled(&self) -> bool {
        match self {
            // A new root whose attach is given up leaves nothing behind.
            Self::FirstCapture { created, .. } => *created,
            Self::Verify | Self::List { .. } | Self::Show(_) | Self::Cat(..) | Self::Diff { .. } => true,
            Self::ExportPatch(_) | Self::ExportTar(_) | Self::SessionShow(_) | Self::SessionList => true,
            Self::Operate(_, _, consent)
            | Self::SessionEnd {
                revert: Some(consent),
                ..
            } => *consent == Consent::Preview,
            Self::Drop { preview, .. } | Self::Forget { preview, .. } | Self::Prune { preview } => *preview,
            _ => false,
        }
    }

    /// What people are told is being done, while it takes long.
    pub fn what(&self) -> &'static str {
        match self {
            Self::FirstCapture { .. } => "indexing",
            Self::Verify => "verifying",
            Self::Operate(_, _, Consent::Yes | Consent::YesTo(_)) | Self::Recover { .. } => PUTTING_BACK,
            Self::Cat(..) | Self::ExportPatch(_) | Self::ExportTar(_) => "reading",
            Self::Forget { .. } => "purging",
            Self::Prune { .. } => "pruning",
            _ => "scanning",
        }
    }
}
