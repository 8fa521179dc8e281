//! Files that are rewritten again and again: a database, a log, a build output that nobody ignored, or a directory of many
//! such files, each of them small. Each version is kept, so they are what fills a store. They go on being captured; people
//! are told what they cost.
//!
//! Bounded: a table has [`PATHS_MAX`] paths, and the one of the fewest bytes makes room.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

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

/// So is a directory of whose files as much was captured, beside files that are noisy themselves, in at least so many
/// checkpoints: what is unpacked or checked out comes in a few.
pub const CAPTURES_MIN: u64 = 6;

/// Smaller versions of a file aren't counted: they can't come fast enough to matter.
const COUNTED_BYTES_MIN: u64 = 32 << 10;
/// So many paths are counted.
const PATHS_MAX: usize = 512;
/// An hour is counted in so many parts; what is told is of the last 55 to 60 minutes.
const PARTS: usize = 12;
const PART_MS: i64 = 3_600_000 / PARTS as i64;

/// What a file, or the files in a directory, cost in the last hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noisy {
    /// Which.
    pub path: TreePath,
    /// It is a directory.
    pub is_dir: bool,
    /// Bytes of its versions, before they are compressed.
    pub bytes: u64,
    /// How many versions.
    pub versions: u64,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Part {
    /// Which part of time, counted from 1970.
    number: i64,
    bytes: u64,
    versions: u64,
    large: u64,
    /// In so many checkpoints.
    captures: u64,
}

type Table = HashMap<TreePath, [Part; PARTS]>;

/// Counts what was captured of each file and directory in the last hour.
#[derive(Debug, Default)]
pub struct Noise {
    files: Table,
    dirs: Table,
}

/// As it is kept over a restart.
#[derive(Serialize, Deserialize)]
struct Kept {
    files: Vec<(TreePath, Vec<Part>)>,
    dirs: Vec<(TreePath, Vec<Part>)>,
}

impl Noise {
    /// What [`Self::to_bytes`] gave; nothing if it can't be read.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let kept: Option<Kept> = serde_json::from_slice(bytes).ok();
        let table = |all: Vec<(TreePath, Vec<Part>)>| {
            let mut table = Table::new();
            for (path, parts) in all.into_iter().take(PATHS_MAX) {
                parts.into_iter().for_each(|part| count(&mut table, &path, part));
            }
            table
        };
        kept.map_or_else(Self::default, |kept| Self {
            files: table(kept.files),
            dirs: table(kept.dirs),
        })
    }

    /// For the next start. Losing it costs a warning that comes later.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let used = |parts: &[Part; PARTS]| parts.iter().filter(|part| part.versions > 0).copied().collect();
        let all = |table: &Table| {
            table
                .iter()
                .map(|(path, parts)| (path.clone(), used(parts)))
                .collect()
        };
        let kept = Kept {
            files: all(&self.files),
            dirs: all(&self.dirs),
        };
        serde_json::to_vec(&kept).unwrap_or_default()
    }

    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.dirs.is_empty()
    }

    /// A checkpoint has new versions of these files, of so many bytes each.
    pub fn add(&mut self, files: &[(TreePath, u64)], now: Time) {
        let number = now.ms().div_euclid(PART_MS);
        let mut dirs: BTreeMap<TreePath, Part> = BTreeMap::new();
        for (path, bytes) in files {
            let part = Part {
                number,
                bytes: *bytes,
                versions: 1,
                large: u64::from(*bytes > LARGE_BYTES),
                captures: 1,
            };
            if let Some((dir, _)) = path.split_last().filter(|(dir, _)| !dir.is_root()) {
                let of_dir = dirs.entry(dir).or_default();
                *of_dir = Part {
                    captures: 1,
                    ..joined(of_dir, &part)
                };
            }
            if *bytes >= COUNTED_BYTES_MIN {
                count(&mut self.files, path, part);
            }
        }
        for (dir, part) in dirs {
            if part.bytes >= COUNTED_BYTES_MIN {
                count(&mut self.dirs, &dir, part);
            }
        }
    }

    /// Those that cost too much in the hour before `now`, the dearest first.
    #[must_use]
    pub fn noisy(&self, now: Time) -> Vec<Noisy> {
        let number = now.ms().div_euclid(PART_MS);
        let named = |path: &TreePath, is_dir, sum: Part| Noisy {
            path: path.clone(),
            is_dir,
            bytes: sum.bytes,
            versions: sum.versions,
        };
        let mut found: Vec<Noisy> = self
            .files
            .iter()
            .filter_map(|(path, parts)| {
                let sum = sum(parts, number);
                let noisy =
                    sum.bytes > BYTES_PER_HOUR && sum.versions >= VERSIONS_MIN || sum.large > LARGE_PER_HOUR;
                noisy.then(|| named(path, false, sum))
            })
            .collect();
        let is_in =
            |noisy: &&Noisy, dir: &TreePath| noisy.path.split_last().is_some_and(|(above, _)| above == *dir);
        let dirs: Vec<Noisy> = self
            .dirs
            .iter()
            .filter_map(|(path, parts)| {
                let sum = sum(parts, number);
                let known: u64 = found.iter().filter(|it| is_in(it, path)).map(|it| it.bytes).sum();
                let noisy = sum.bytes.saturating_sub(known) > BYTES_PER_HOUR && sum.captures >= CAPTURES_MIN;
                noisy.then(|| named(path, true, sum))
            })
            .collect();
        found.extend(dirs);
        found.sort_by(|a, b| (b.bytes, &a.path).cmp(&(a.bytes, &b.path)));
        found
    }

    /// Forgets what is at or below a path.
    pub fn forget(&mut self, path: &TreePath) {
        self.files.retain(|known, _| !known.starts_with(path));
        self.dirs.retain(|known, _| !known.starts_with(path));
    }
}

/// Adds to what a table has of a path.
fn count(table: &mut Table, path: &TreePath, part: Part) {
    let number = part.number;
    if !table.contains_key(path) && table.len() >= PATHS_MAX {
        let least = table
            .iter()
            .min_by_key(|(path, parts)| (sum(parts, number).bytes, *path));
        if let Some(least) = least.map(|(path, _)| path.clone()) {
            table.remove(&least);
        }
    }
    let parts = table.entry(path.clone()).or_default();
    let at = usize::try_from(number.rem_euclid(PARTS as i64)).unwrap_or(0);
    let known = parts[at];
    parts[at] = match known.number == number {
        true => joined(&known, &part),
        false => part,
    };
}

fn joined(a: &Part, b: &Part) -> Part {
    Part {
        number: b.number,
        bytes: a.bytes.saturating_add(b.bytes),
        versions: a.versions + b.versions,
        large: a.large + b.large,
        captures: a.captures + b.captures,
    }
}

/// Of the hour that ends in part `number`.
fn sum(parts: &[Part; PARTS], number: i64) -> Part {
    let recent = parts
        .iter()
        .filter(|part| (number - PARTS as i64 + 1..=number).contains(&part.number));
    recent.fold(Part::default(), |sum, part| joined(&sum, part))
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
            noise.add(&[(path("db"), 20 * MIB)], minute(at));
            noise.add(&[(path("small"), 100)], minute(at));
        }
        let named = noise.noisy(minute(6));
        assert_eq!(
            named,
            [Noisy {
                path: path("db"),
                is_dir: false,
                bytes: 120 * MIB,
                versions: 6
            }]
        );
        assert!(noise.noisy(minute(70)).is_empty());
        noise.add(&[(path("db"), 20 * MIB)], minute(70));
        assert!(
            noise.noisy(minute(70)).is_empty(),
            "the hour before is not counted"
        );
    }

    #[test]
    fn large_versions_are_counted_and_one_large_file_is_no_noise() {
        let mut noise = Noise::default();
        noise.add(&[(path("iso"), 900 * MIB)], minute(0));
        for at in 0..20 {
            noise.add(&[(path("log"), MIB + 1)], minute(at));
        }
        assert!(noise.noisy(minute(20)).is_empty());
        noise.add(&[(path("log"), MIB + 1)], minute(20));
        assert_eq!(noise.noisy(minute(20))[0].path, path("log"));
        noise.forget(&path("log"));
        assert!(noise.noisy(minute(20)).is_empty());
    }

    #[test]
    fn many_small_files_that_are_rewritten_in_one_directory_are_noise_together() {
        let mut noise = Noise::default();
        let all = |dir: &str| -> Vec<_> {
            let one = |i| (path(&format!("{dir}/f{i}")), 100_000);
            (0..200).map(one).collect()
        };
        noise.add(&all("unpacked"), minute(0));
        noise.add(&all("unpacked"), minute(1));
        for at in 0..7 {
            noise.add(&all("build/o"), minute(at));
            noise.add(&[(path("data/db"), 40 * MIB)], minute(at));
        }
        let named: Vec<_> = noise
            .noisy(minute(8))
            .into_iter()
            .map(|it| (it.path, it.is_dir))
            .collect();
        assert_eq!(named, [(path("data/db"), false), (path("build/o"), true)]);
        let again = Noise::of_bytes(&noise.to_bytes());
        assert_eq!(again.noisy(minute(8)), noise.noisy(minute(8)));
        assert!(Noise::of_bytes(b"no").is_empty());
        noise.forget(&path("build"));
        assert_eq!(noise.noisy(minute(8)).len(), 1);
    }

    #[test]
    fn the_table_is_bounded_and_keeps_the_dearest() {
        let mut noise = Noise::default();
        for round in 0..4 {
            noise.add(&[(path("db"), 40 * MIB)], minute(round));
            for i in 0..2_000 {
                noise.add(&[(path(&format!("f{i}")), COUNTED_BYTES_MIN)], minute(round));
            }
        }
        assert_eq!(noise.files.len(), PATHS_MAX);
        assert_eq!(noise.noisy(minute(4))[0].versions, 4);
    }
}
