//! Checks everything that a root needs of its store. What is damaged, and is still on the disk, the next look writes again.

use std::collections::HashSet;

use super::Engine;
use crate::error::Result;
use crate::oid::Oid;
use crate::store::Finding;
use crate::tree::Tree;

impl Engine {
    /// Checks every object that this root's refs need.
    ///
    /// # Errors
    /// When the store can't be read at all; what is damaged is in the result.
    pub fn verify(&self) -> Result<Vec<Finding>> {
        let mut findings = self.damaged.clone();
        findings.extend(self.store.nameless_refs()?);
        let prefixes = [
            crate::checkpoint::refs_prefix(self.id()),
            format!("refs/stepback/{}/", self.id()),
        ];
        for prefix in prefixes {
            for finding in self.store.verify(&prefix)? {
                if !findings.iter().any(|known| known.what == finding.what) {
                    findings.push(finding);
                }
            }
        }
        let sides = self.store.all_refs(&crate::side::refs_prefix(self.id()))?;
        // Somebody may have deleted refs since they were read.
        let refs = self.store.all_refs(&crate::checkpoint::refs_prefix(self.id()))?;
        for checkpoint in &self.checkpoints {
            let what = crate::checkpoint::ref_name(self.id(), &checkpoint.session, checkpoint.n);
            let how = match refs.get(&what) {
                None => Some("is missing"),
                Some(Ok(commit)) if *commit != checkpoint.commit => Some("names another commit"),
                // One that can't be read was named above.
                _ => None,
            };
            if let Some(how) = how {
                let how = format!("{how}: checkpoint {} is lost when the daemon ends", checkpoint.n);
                findings.push(Finding::of_record(what, how));
            }
            let what = crate::side::ref_name(self.id(), checkpoint.n);
            if !sides.contains_key(&what) {
                let how = format!(
                    "is missing: checkpoint {} can be looked at, and not be gone back to",
                    checkpoint.n
                );
                findings.push(Finding::of_record(what, how));
            }
        }
        Ok(findings)
    }

    /// After [`Self::verify`]: where the tree, as it is known, has an object that was found damaged, the next look reads
    /// everything, and writes again what isn't there whole; whether it does. After that look the tree has no such object
    /// any more, so nothing is tried twice. So it is with what makes a checkpoint of the position. Of other refs and
    /// records, and of what only older checkpoints have, the disk has nothing.
    ///
    /// # Errors
    /// When the cache, which says what is stored, can't be removed; when the store can't be read.
    pub fn mend_from_disk(&mut self, findings: &[Finding]) -> Result<bool> {
        let records = !findings.is_empty() && self.misses_position()?;
        if records {
            self.doubts = true;
        }
        Ok(self.mend_objects(findings)? || records)
    }

    /// As [`Self::mend_from_disk`], but by names alone: the next look asks the store whether all is there that is taken as
    /// stored, and reads everything only if it isn't.
    pub const fn doubt_names(&mut self) {
        self.doubts = true;
    }

    fn mend_objects(&mut self, findings: &[Finding]) -> Result<bool> {
        let damaged: HashSet<Oid> = findings.iter().filter_map(|finding| finding.object).collect();
        if damaged.is_empty() || !self.may_be_on_disk(&damaged)? {
            return Ok(false);
        }
        let told = self.told();
        self.remove_cache()?;
        self.distrust_tree(Some(told));
        Ok(true)
    }

    /// Whether the tree has one of these objects. One that isn't known may.
    fn may_be_on_disk(&self, objects: &HashSet<Oid>) -> Result<bool> {
        let of_cache;
        let tree = if self.holds_tree() {
            &self.tree
        } else {
            let Some(tree) = Tree::load(&self.cache_file(), self.id()) else {
                return Ok(true);
            };
            of_cache = tree;
            &of_cache
        };
        let others = tree.is_stored(&|oid| Ok(!objects.contains(&oid)))?;
        Ok(!others)
    }
}
