//! A plan and its steps.

use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

use std::collections::{BTreeMap, BTreeSet};

use super::journal::OperationKind;
use super::record;
use crate::node::{Kind, Node};
use crate::path::TreePath;

/// Identifies a plan: the SHA-1 of path, old and new version of each step. The same plan made twice has the same id.
pub type PlanId = [u8; 20];

/// A path that is left though it differs, or is suspected to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Kept {
    /// Where.
    pub path: TreePath,
    /// Why, in a few words.
    pub reason: String,
}

/// A path that is captured neither now nor in the target, and hasn't changed since by size and modification time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NotCovered {
    /// Where.
    pub path: TreePath,
    /// Why.
    pub reason: String,
}

/// What happens to a path, as people are shown it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedChange {
    /// Where.
    pub path: TreePath,
    /// `A` made, `M` overwritten, `D` removed, `T` type changed.
    pub status: char,
    /// What is on disk isn't what the operation that is taken back left there.
    pub edited_since: bool,
}

/// One path of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Where. The empty path is the root itself.
    pub path: TreePath,
    /// What stands there; `None`: nothing.
    #[serde(
        with = "record::optional_node",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub from: Option<Node>,
    /// What will stand there; `None`: nothing.
    #[serde(
        with = "record::optional_node",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub to: Option<Node>,
    /// `from` isn't captured (it is ignored, or is in an ignored directory): it goes into the before-checkpoint as an extra.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub extra: bool,
    /// See [`PlannedChange::edited_since`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub edited_since: bool,
}

impl Step {
    /// Both sides are directories: only permission bits or attributes change.
    pub(super) fn keeps_directory(&self) -> bool {
        is_dir(self.from.as_ref()) && is_dir(self.to.as_ref())
    }
}

pub(super) fn is_dir(node: Option<&Node>) -> bool {
    node.is_some_and(|node| node.kind == Kind::Dir)
}

/// What an operation does to each path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What it is for.
    pub operation: OperationKind,
    /// Sorted by path, so that a directory comes before what is below it. One step a path.
    pub steps: Vec<Step>,
    /// Left though they differ. Not empty: exit code 3.
    pub kept: Vec<Kept>,
    /// Uncaptured then and now.
    pub not_covered: Vec<NotCovered>,
}

impl Plan {
    /// Nothing would change.
    #[must_use]
    pub fn is_noop(&self) -> bool {
        self.steps.is_empty()
    }

    /// Bound to the paths and the versions on both sides.
    #[must_use]
    pub fn id(&self) -> PlanId {
        let mut hasher = Sha1::new();
        for step in &self.steps {
            for part in [
                step.path.as_bytes(),
                &fingerprint(step.from.as_ref()),
                &fingerprint(step.to.as_ref()),
            ] {
                hasher.update((part.len() as u64).to_be_bytes());
                hasher.update(part);
            }
        }
        hasher.finalize().into()
    }

    /// What people are shown: files, links and FIFOs; a directory only where nothing is in it on the side where it exists,
    /// or where its own bits or attributes change.
    #[must_use]
    pub fn changes(&self) -> Vec<PlannedChange> {
        let parents = self.parents();
        self.steps
            .iter()
            .filter(|step| step.keeps_directory() || !self.is_container(step, &parents))
            .map(|step| PlannedChange {
                path: step.path.clone(),
                status: status(step),
                edited_since: step.edited_since,
            })
            .collect()
    }

    /// What must go into the before-checkpoint besides the captured tree: by path, what stands there.
    #[must_use]
    pub fn extras(&self) -> BTreeMap<TreePath, Node> {
        let extras = self.steps.iter().filter(|step| step.extra);
        extras
            .filter_map(|step| Some((step.path.clone(), step.from.clone()?)))
            .collect()
    }

    /// Directories that some step lies directly in.
    pub(super) fn parents(&self) -> BTreeSet<TreePath> {
        self.steps
            .iter()
            .filter_map(|step| step.path.split_last().map(|(parent, _)| parent))
            .collect()
    }

    /// Whether the step only makes or removes a directory for the sake of what other steps do in it.
    pub(super) fn is_container(&self, step: &Step, parents: &BTreeSet<TreePath>) -> bool {
        let dir_or_nothing = |node: Option<&Node>| node.is_none_or(|node| node.kind == Kind::Dir);
        dir_or_nothing(step.from.as_ref()) && dir_or_nothing(step.to.as_ref()) && parents.contains(&step.path)
    }
}

fn status(step: &Step) -> char {
    match (&step.from, &step.to) {
        (None, _) => 'A',
        (_, None) => 'D',
        (Some(from), Some(to)) if from.same_type(to) => 'M',
        _ => 'T',
    }
}

fn fingerprint(node: Option<&Node>) -> Vec<u8> {
    let Some(node) = node else { return Vec::new() };
    let mut bytes = node.mode().to_be_bytes().to_vec();
    if let Kind::File(oid) | Kind::Link(oid) = node.kind {
        bytes.extend_from_slice(&oid.0);
    }
    for (name, value) in node.attributes.iter().flat_map(|attributes| attributes.iter()) {
        for part in [name, value] {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part);
        }
    }
    bytes
}
