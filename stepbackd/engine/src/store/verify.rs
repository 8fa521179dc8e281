//! Checks everything that refs lead to.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt::Write;
use std::rc::Rc;

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
    /// The object that isn't whole; `None` when it is a ref or a record.
    pub object: Option<Oid>,
}

impl Finding {
    /// A ref or a record, and how it is wrong.
    pub fn of_record(what: impl Into<String>, how: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            how: how.into(),
            object: None,
        }
    }
}

/// An object to be looked at, and where it was met: `refs/...` or `refs/...:path`.
struct Task {
    oid: Oid,
    kind: ObjectKind,
    place: String,
}

/// An object that is missing or not as it should be.
struct Bad {
    oid: Oid,
    /// The ref that led to it first.
    from: String,
    finding: Finding,
}

/// What an object leads to: kind, name in a tree, object.
type Part = (ObjectKind, Vec<u8>, Oid);

impl Store {
    /// Checks that every object reachable from the refs under `prefix` is there, whole, and has the contents that its
    /// name says. A finding names all refs that need the object. Memory: 20 bytes per object, and the largest tree; some
    /// more when there are findings. What can't be read is a finding, not an error.
    ///
    /// # Errors
    /// When the refs can't be listed at all.
    pub fn verify(&self, prefix: &str) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        let mut seen = HashSet::new();
        let refs = match self.all_refs(prefix) {
            Ok(refs) => refs,
            Err(Error::Damaged { what, .. }) => {
                findings.push(Finding::of_record(what, "refs can't be listed"));
                return Ok(findings);
            }
            Err(error) => return Err(error),
        };
        let mut unreadable = Vec::new();
        let mut starts = Vec::new();
        let mut bad = Vec::new();
        for (name, found) in refs {
            match found {
                Err(how) => unreadable.push(Finding::of_record(format!("ref {name}"), how)),
                Ok(oid) => {
                    self.verify_from(&name, oid, &mut seen, &mut bad);
                    starts.push((name, oid));
                }
            }
        }
        drop(seen);
        self.name_all_refs(&mut bad, &starts);
        findings.extend(bad.into_iter().map(|bad| bad.finding));
        findings.extend(unreadable);
        Ok(findings)
    }

    fn verify_from(&self, name: &str, oid: Oid, seen: &mut HashSet<Oid>, bad: &mut Vec<Bad>) {
        let mut tasks = vec![Task {
            oid,
            kind: ObjectKind::Commit,
            place: name.to_owned(),
        }];
        while let Some(task) = tasks.pop() {
            if !seen.insert(task.oid) {
                continue;
            }
            match self.parts(task.oid, task.kind) {
                Ok(parts) => tasks.extend(parts.into_iter().map(|part| task.below(part))),
                Err(error) => {
                    let how = match error {
                        Error::Damaged { what, .. } => what
                            .strip_prefix(&format!("object {} ", task.oid))
                            .map_or(what.clone(), str::to_owned),
                        other => other.to_string(),
                    };
                    bad.push(Bad {
                        oid: task.oid,
                        from: name.to_owned(),
                        finding: Finding {
                            what: format!("{} {} ({})", task.kind.name(), task.oid, task.place),
                            how,
                            object: Some(task.oid),
                        },
                    });
                }
            }
        }
    }

    /// What an object leads to. A blob, which leads nowhere, is read all the same.
    fn parts(&self, oid: Oid, kind: ObjectKind) -> Result<Vec<Part>> {
        match kind {
            ObjectKind::Commit => Ok(vec![(ObjectKind::Tree, Vec::new(), self.read_commit(oid)?.tree)]),
            ObjectKind::Tree => {
                let entries = self.read_tree(oid)?.into_iter();
                let ours = entries.filter(|entry| entry.mode != MODE_GITLINK);
                let parts = ours.map(|object::TreeEntry { mode, name, oid }| {
                    let kind = if mode == MODE_TREE {
                        ObjectKind::Tree
                    } else {
                        ObjectKind::Blob
                    };
                    (kind, name, oid)
                });
                Ok(parts.collect())
            }
            ObjectKind::Blob => {
                self.copy_blob(oid, &mut std::io::sink())?;
                Ok(Vec::new())
            }
        }
    }

    /// Objects are shared: each finding is given all other refs that lead to its object.
    fn name_all_refs(&self, bad: &mut [Bad], starts: &[(String, Oid)]) {
        if bad.is_empty() {
            return;
        }
        let wanted: HashMap<Oid, usize> = bad.iter().enumerate().map(|(at, bad)| (bad.oid, at)).collect();
        let mut known = HashMap::new();
        let mut needed_by = vec![Vec::new(); bad.len()];
        for (name, oid) in starts {
            for at in &*self.leads_to(*oid, &wanted, &mut known) {
                if bad[*at].from != *name {
                    needed_by[*at].push(name.as_str());
                }
            }
        }
        for (bad, others) in bad.iter_mut().zip(needed_by) {
            if !others.is_empty() {
                bad.finding.what.truncate(bad.finding.what.len() - 1);
                bad.finding.what += &format!("; also {})", listed(others));
            }
        }
    }

    /// Which of the `wanted` objects a commit leads to. Trees are deep: no recursion.
    fn leads_to(
        &self,
        commit: Oid,
        wanted: &HashMap<Oid, usize>,
        known: &mut HashMap<Oid, Rc<BTreeSet<usize>>>,
    ) -> Rc<BTreeSet<usize>> {
        struct Open {
            oid: Oid,
            parts: std::vec::IntoIter<Part>,
            found: BTreeSet<usize>,
        }
        let open = |kind, oid| Open {
            oid,
            // What can't be read leads nowhere, and is one of those that are looked for.
            parts: self.parts(oid, kind).unwrap_or_default().into_iter(),
            found: wanted.get(&oid).copied().into_iter().collect(),
        };
        let nothing = Rc::new(BTreeSet::new());
        let mut way = Vec::new();
        if !known.contains_key(&commit) {
            way.push(open(ObjectKind::Commit, commit));
        }
        while let Some(at) = way.last_mut() {
            match at.parts.next() {
                Some((ObjectKind::Blob, _, oid)) => at.found.extend(wanted.get(&oid)),
                Some((kind, _, oid)) => match known.get(&oid) {
                    Some(found) => at.found.extend(found.iter()),
                    None => way.push(open(kind, oid)),
                },
                None => {
                    let Open { oid, found, .. } = way.pop().expect("it is the last");
                    if let Some(above) = way.last_mut() {
                        above.found.extend(found.iter());
                    }
                    let found = if found.is_empty() {
                        Rc::clone(&nothing)
                    } else {
                        Rc::new(found)
                    };
                    known.insert(oid, found);
                }
            }
        }
        Rc::clone(&known[&commit])
    }
}

impl Task {
    fn below(&self, (kind, name, oid): Part) -> Self {
        let place = match self.kind {
            ObjectKind::Commit => format!("{}:", self.place),
            _ if self.place.ends_with(':') => format!("{}{}", self.place, String::from_utf8_lossy(&name)),
            _ => format!("{}/{}", self.place, String::from_utf8_lossy(&name)),
        };
        Self { oid, kind, place }
    }
}

/// More refs than this aren't named one by one.
const EACH_NAMED_MAX: usize = 20;

/// Names of refs, those that end in numbers in the order of these. In a long list three and more numbers in a row are
/// `first to last`.
fn listed(names: Vec<&str>) -> String {
    let mut all: Vec<(&str, Option<u64>, &str)> = names
        .into_iter()
        .map(|name| match name.rsplit_once('/') {
            Some((namespace, number)) => (namespace, number.parse().ok(), name),
            None => ("", None, name),
        })
        .collect();
    all.sort_unstable();
    let long = all.len() > EACH_NAMED_MAX;
    let mut out = String::new();
    let follows = |a: &(&str, Option<u64>, &str), b: &(&str, Option<u64>, &str)| {
        a.0 == b.0 && a.1.zip(b.1).is_some_and(|(a, b)| a.checked_add(1) == Some(b))
    };
    for run in all.chunk_by(follows) {
        let names: &[_] = match run {
            [(_, _, first), _, .., (_, Some(last), _)] if long => &[format!("{first} to {last}")],
            few => &few
                .iter()
                .map(|(_, _, name)| (*name).to_owned())
                .collect::<Vec<_>>(),
        };
        for name in names {
            let comma = if out.is_empty() { "" } else { ", " };
            write!(out, "{comma}{name}").expect("a string takes all");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_of_refs_is_contracted() {
        let names = |numbers: &[u64]| -> Vec<String> {
            let names = numbers.iter().map(|n| format!("refs/r/side/{n}"));
            names.chain(["refs/r/root".to_owned()]).collect()
        };
        let listed = |numbers| listed(names(numbers).iter().map(String::as_str).collect());
        assert_eq!(
            listed(&[10, 2, 3, 4]),
            "refs/r/root, refs/r/side/2, refs/r/side/3, refs/r/side/4, refs/r/side/10"
        );
        let many: Vec<u64> = (1..=19).chain([30, 31]).collect();
        assert_eq!(
            listed(&many),
            "refs/r/root, refs/r/side/1 to 19, refs/r/side/30, refs/r/side/31"
        );
    }
}
