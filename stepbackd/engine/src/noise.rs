//! Files that are rewritten again and again: a database, a log, a build output that nobody ignored. Each version is kept,
//! so they are what fills a store. They go on being captured; people are told what they cost.
//!
//! Bounded: the table has [`PATHS_MAX`] paths, and the one of the fewest bytes makes room. Nothing is kept over a restart.

use std::collections::HashMap;

use crate::path::TreePath;
use crate::time::Time;

/// A file of which so many bytes of versions were captured in an hour is noisy,
pub const BYTES_PER_HOUR: u64 = 100 << 20;
/// if they were at least so many versions: one large file that comes once is no noise.
pub const VERSIONS_MIN: u64 = 3;
/// So is a file of which more than so many large versions were captured in an hour,
pub const LARGE_PER_HOUR: u64 = 20;
/// which are those above so many bytes.
pub const LARGE_BYTES: u64 = 1 << 20;

/// Smaller versions aren't counted: they can't come fast enough to matter.
const COUNTED_BYTES_MIN: u64 = 32 << 10;
/// So many paths are counted.
const PATHS_MAX: usize = 512;
/// An hour is counted in so many parts; what is told is of the last 55 to 60 minutes.
const PARTS: usize = 12;
const PART_MS: i64 = 3_600_000 / PARTS as i64;

/// What a file cost in the last hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noisy {
    /// Which.
    pub path: TreePath,
    /// Bytes of its versions, before they are compressed.
    pub bytes: u64,
    /// How many versions.
    pub versions: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Part {
    /// Which part of time, counted from 1970.
    number: i64,
    bytes: u64,
    versions: u64,
    large: u64,
}

/// Counts what was captured of each file in the last hour.
#[derive(Debug, Default)]
pub struct Noise {
    files: HashMap<TreePath, [Part; PARTS]>,
}

impl Noise {
    /// A version of so many bytes was captured.
    pub fn add(&mut self, path: &TreePath, bytes: u64, now: Time) {
        if bytes < COUNTED_BYTES_MIN {
            return;
        }
        let number = now.ms().div_euclid(PART_MS);
        if !self.files.contains_key(path) && self.files.len() >= PATHS_MAX {
            let least = self
                .files
                .iter()
                .min_by_key(|(path, parts)| (sum(parts, number).bytes, *path));
            if let Some(least) = least.map(|(path, _)| path.clone()) {
                self.files.remove(&least);
            }
        }
        let parts = self.files.entry(path.clone()).or_default();
        let at = usize::try_from(number.rem_euclid(PARTS as i64)).unwrap_or(0);
        let part = &mut parts[at];
        if part.number != number {
            *part = Part {
                number,
                ..Part::default()
            };
        }
        part.bytes = part.bytes.saturating_add(bytes);
        part.versions += 1;
        part.large += u64::from(bytes > LARGE_BYTES);
    }

    /// Those that cost too much in the hour before `now`, the dearest first.
    #[must_use]
    pub fn noisy(&self, now: Time) -> Vec<Noisy> {
        let number = now.ms().div_euclid(PART_MS);
        let mut found: Vec<Noisy> = self
            .files
            .iter()
            .filter_map(|(path, parts)| {
                let sum = sum(parts, number);
                let noisy =
                    sum.bytes > BYTES_PER_HOUR && sum.versions >= VERSIONS_MIN || sum.large > LARGE_PER_HOUR;
                noisy.then(|| Noisy {
                    path: path.clone(),
                    bytes: sum.bytes,
                    versions: sum.versions,
                })
            })
            .collect();
        found.sort_by(|a, b| (b.bytes, &a.path).cmp(&(a.bytes, &b.path)));
        found
    }

    /// Forgets what is at or below a path.
    pub fn forget(&mut self, path: &TreePath) {
        self.files.retain(|known, _| !known.starts_with(path));
    }
}

/// Of the hour that ends in part `number`.
fn sum(parts: &[Part; PARTS], number: i64) -> Part {
    let recent = parts
        .iter()
        .filter(|part| (number - PARTS as i64 + 1..=number).contains(&part.number));
    recent.fold(Part::default(), |sum, part| Part {
        number,
        bytes: sum.bytes.saturating_add(part.bytes),
        versions: sum.versions + part.versions,
        large: sum.large + part.large,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn path(text: &str) -> TreePath {
        TreePath::new(text.as_bytes()).unwrap()
    }

    fn minute(minute: i64) -> Time {
        Time((1_700_000_000_000 + minute * 60_000) * 1_000_000)
    }

    #[test]
    fn noise_is_named_and_dies_away() {
        let mut noise = Noise::default();
        for at in 0..6 {
            noise.add(&path("db"), 20 * MIB, minute(at));
            noise.add(&path("small"), 100, minute(at));
        }
        let named = noise.noisy(minute(6));
        assert_eq!(
            named,
            [Noisy {
                path: path("db"),
                bytes: 120 * MIB,
                versions: 6
            }]
        );
        assert!(noise.noisy(minute(70)).is_empty());
        noise.add(&path("db"), 20 * MIB, minute(70));
        assert!(
            noise.noisy(minute(70)).is_empty(),
            "the hour before is not counted"
        );
    }

    #[test]
    fn large_versions_are_counted_and_one_large_file_is_no_noise() {
        let mut noise = Noise::default();
        noise.add(&path("iso"), 900 * MIB, minute(0));
        for at in 0..20 {
            noise.add(&path("log"), MIB + 1, minute(at));
        }
        assert!(noise.noisy(minute(20)).is_empty());
        noise.add(&path("log"), MIB + 1, minute(20));
        assert_eq!(noise.noisy(minute(20))[0].path, path("log"));
        noise.forget(&path("log"));
        assert!(noise.noisy(minute(20)).is_empty());
    }

    #[test]
    fn the_table_is_bounded_and_keeps_the_dearest() {
        let mut noise = Noise::default();
        for round in 0..4 {
            noise.add(&path("db"), 40 * MIB, minute(round));
            for i in 0..2_000 {
                noise.add(&path(&format!("f{i}")), COUNTED_BYTES_MIN, minute(round));
            }
        }
        assert_eq!(noise.files.len(), PATHS_MAX);
        assert_eq!(noise.noisy(minute(4))[0].versions, 4);
    }
}
