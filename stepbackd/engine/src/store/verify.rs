//! Checks everything that refs lead to.

use std::collections::HashSet;

use crate::error::{Error, Result};
use crate::oid::{ObjectKind, Oid};

use super::Store;
use super::object::{self, MODE_GITLINK, MODE_TREE};

/// One thing that [`Store::verify`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Which object or ref, and the first place that leads to it.
    pub what: String,
    /// How it is wrong.
    pub how: String,
}

/// An object to be looked at, and where it was met: `refs/...` or `refs/...:path`.
struct Task {
    oid: Oid,
    kind: ObjectKind,
    place: String,
}

impl Store {
    /// Checks that every object reachable from the refs under `prefix` is there, whole, and has the contents that its
    /// name says. Memory: 20 bytes per object, and the largest tree. What can't be read is a finding, not an error.
    ///
    /// # Errors
    /// When the refs can't be listed at all.
    pub fn verify(&self, prefix: &str) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        let mut seen = HashSet::new();
        let refs = match self.all_refs(prefix) {
            Ok(refs) => refs,
            Err(Error::Damaged { what, .. }) => {
                findings.push(Finding {
                    what,
                    how: "refs can't be listed".into(),
                });
                return Ok(findings);
            }
            Err(error) => return Err(error),
        };
        for (name, found) in refs {
            match found {
                Err(how) => findings.push(Finding {
                    what: format!("ref {name}"),
                    how,
                }),
                Ok(oid) => self.verify_from(
                    Task {
                        oid,
                        kind: ObjectKind::Commit,
                        place: name,
                    },
                    &mut seen,
                    &mut findings,
                ),
            }
        }
        Ok(findings)
    }

    fn verify_from(&self, start: Task, seen: &mut HashSet<Oid>, findings: &mut Vec<Finding>) {
        let mut tasks = vec![start];
        while let Some(task) = tasks.pop() {
            if !seen.insert(task.oid) {
                continue;
            }
            if let Err(error) = self.verify_one(&task, &mut tasks) {
                let how = match error {
                    Error::Damaged { what, .. } => what
                        .strip_prefix(&format!("object {} ", task.oid))
                        .map_or(what.clone(), str::to_owned),
                    other => other.to_string(),
                };
                findings.push(Finding {
                    what: format!("{} {} ({})", task.kind.name(), task.oid, task.place),
                    how,
                });
            }
        }
    }

    fn verify_one(&self, task: &Task, tasks: &mut Vec<Task>) -> Result<()> {
        match task.kind {
            ObjectKind::Commit => {
                let tree = self.read_commit(task.oid)?.tree;
                tasks.push(Task {
                    oid: tree,
                    kind: ObjectKind::Tree,
                    place: format!("{}:", task.place),
                });
            }
            ObjectKind::Tree => {
                for object::TreeEntry { mode, name, oid } in self.read_tree(task.oid)? {
                    let kind = if mode == MODE_TREE {
                        ObjectKind::Tree
                    } else {
                        ObjectKind::Blob
                    };
                    let slash = if task.place.ends_with(':') { "" } else { "/" };
                    if mode != MODE_GITLINK {
                        let place = format!("{}{slash}{}", task.place, String::from_utf8_lossy(&name));
                        tasks.push(Task { oid, kind, place });
                    }
                }
            }
            ObjectKind::Blob => {
                self.copy_blob(task.oid, &mut std::io::sink())?;
            }
        }
        Ok(())
    }
}
