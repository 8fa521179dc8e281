//! What is said over the wire: plain data, no behaviour. Positions in structs and enums are the format; see the crate
//! doc before changing any.

mod agent;
mod answer;
mod change;
mod checkpoint;
mod conversation;
mod hello;
mod path;
mod request;
mod session;
mod status;

pub use agent::{AgentLine, Drift, Hook, HookEvent, HookSeen, SAVE_PATIENCE, Tool};
pub use answer::{Answer, Attached, Event, Failure, FailureKind, Item, Progress, PrunedRoot, Reply};
pub use change::{ChangeKind, DiffFile, PlanChange, Preview, RecoverOutcome, Report, Side};
pub use checkpoint::{CheckpointEntry, FileCounts, RedoEntry, Trigger};
pub use conversation::{ConversationLine, RewindWhat};
pub use hello::{Hello, Welcome};
pub use path::{NamedPath, WirePath};
pub use request::{Attach, Consent, DiffForm, DiffSides, Request, Selector, Verb};
pub use session::{SessionDetail, SessionLine, SessionPath, TurnLine};
pub use status::{
    Backend, DaemonInfo, Gap, Last, RootLine, RootState, RootStatus, Status, Unfinished, Warning,
};
