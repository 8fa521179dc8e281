//! A recorded conversation under a new id. Nothing that exists is touched, so this is safe whatever runs.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

use super::chunks::{self, Lines};
use super::plan::Lengths;
use super::put::{self, Trouble};
use super::record::{Kept, Part};
use super::{Agent, jsonl, sqlite};
use crate::oid::{ObjectKind, Oid};
use crate::path::TreePath;
use crate::store::Store;

/// What a session of an agent is made of.
pub(crate) enum Way {
    /// Files that have the id in their names and in their records.
    Files,
    /// Rows of tables.
    Rows {
        /// A new id for this one, that follows from a seed.
        new_id: fn(&str, &str) -> String,
        /// What ids within a session begin with: they need new ones, too.
        prefixes: &'static [&'static str],
    },
    /// It can't be forked: why.
    None(&'static str),
}

/// Writes the session as recorded under a new id, which follows from `seed`; gives that id.
pub(super) fn fork(
    dir: &Path,
    store: &Store,
    kept: &Kept,
    lengths: &Lengths,
    seed: &str,
) -> Result<String, Trouble> {
    match kept.id.agent.adapter().fork_of() {
        Way::Files => fork_files(dir, store, kept, lengths, seed),
        Way::Rows { new_id, prefixes } => {
            fork_rows(dir, store, kept, &new_id(&kept.id.session, seed), prefixes, seed)
        }
        Way::None(why) => Err(io::Error::other(why).into()),
    }
}

/// A UUID that follows from `seed`, of the kind of `old`.
fn uuid(old: &str, seed: &str) -> String {
    let hex = Oid::of(ObjectKind::Blob, format!("{seed} {old}").as_bytes()).to_string();
    // Version 7 begins with the time: kept, so that the new one sorts where the old one does.
    let version = old.as_bytes().get(14).copied().map_or('4', char::from);
    let head = if version == '7' && old.len() == 36 {
        &old[..13]
    } else {
        ""
    };
    let fresh = format!("{}-{}", &hex[..8], &hex[8..12]);
    let head = if head.is_empty() { fresh.as_str() } else { head };
    let version = if version == '7' { '7' } else { '4' };
    format!(
        "{head}-{version}{}-8{}-{}",
        &hex[12..15],
        &hex[15..18],
        &hex[18..30]
    )
}

fn fork_files(
    dir: &Path,
    store: &Store,
    kept: &Kept,
    lengths: &Lengths,
    seed: &str,
) -> Result<String, Trouble> {
    let old = &kept.id.session;
    let new = uuid(old, seed);
    let mut pairs = vec![(old.clone().into_bytes(), new.clone().into_bytes())];
    let mut in_paths = vec![(old.clone(), new.clone())];
    if kept.id.agent == Agent::Gemini && old.len() >= 8 {
        in_paths.push((old[..8].to_owned(), new[..8].to_owned()));
    }
    if kept.id.agent == Agent::Codex && begins_elsewhere(store, kept)? {
        // Its first record names the rollout that it begins in, which may have the same id: only the id itself is new.
        let field = |id: &str| format!("\"id\":\"{id}\"").into_bytes();
        pairs = vec![(field(old), field(&new))];
    }
    let chained = kept.id.agent.adapter().is_chained();
    for part in kept.parts.iter().filter(|part| part.table.is_none()) {
        let mut path = String::from_utf8_lossy(part.path.as_bytes()).into_owned();
        for (from, to) in &in_paths {
            path = path.replace(from.as_str(), to);
        }
        let Ok(path) = TreePath::new(path.as_bytes()) else {
            continue;
        };
        if path == part.path {
            // Nothing says whose it is: it can't be two sessions'.
            continue;
        }
        let len = lengths.get(&part.path).copied().unwrap_or_else(|| part.size());
        put::new_file(dir, &path, part.mode, &mut |file| {
            copy(store, part, len, &pairs, chained && part.is_lines(), file)
        })?;
    }
    Ok(new)
}

fn begins_elsewhere(store: &Store, kept: &Kept) -> Result<bool, Trouble> {
    let mut found = false;
    for part in kept.parts.iter().filter(|part| part.table.is_none()) {
        let Some(first) = part.chunks.first() else {
            continue;
        };
        let body = store.read(first.oid, ObjectKind::Blob)?;
        let line = body.split(|b| *b == b'\n').next().unwrap_or_default();
        found |= String::from_utf8_lossy(line).contains("\"history_base\":{");
    }
    Ok(found)
}

/// Copies line by line, ids replaced, a chain that is broken mended.
fn copy(
    store: &Store,
    part: &Part,
    len: u64,
    pairs: &[(Vec<u8>, Vec<u8>)],
    chained: bool,
    to: &mut std::fs::File,
) -> Result<(), Trouble> {
    let mut to = io::BufWriter::new(to);
    let mut chain = jsonl::Chain::default();
    let mut last = None;
    let mut noting = Lines::new(|line: &[u8]| {
        if chained {
            chain.note(line);
        }
        Ok(())
    });
    chunks::read(store, &part.chunks, len, &mut |bytes| {
        last = bytes.last().copied();
        noting.write_all(bytes)
    })??;
    noting.finish()?;
    let mut written: u64 = 0;
    let mut lines = Lines::new(|line: &[u8]| {
        if written > 0 {
            to.write_all(b"\n")?;
        }
        written += 1;
        let line = if chained { chain.mend(line) } else { line.to_vec() };
        to.write_all(&jsonl::replace(&line, pairs))
    });
    chunks::read(store, &part.chunks, len, &mut |bytes| lines.write_all(bytes))??;
    lines.finish()?;
    if last == Some(b'\n') {
        to.write_all(b"\n")?;
    }
    to.flush()?;
    Ok(())
}

fn fork_rows(
    dir: &Path,
    store: &Store,
    kept: &Kept,
    new: &str,
    prefixes: &[&str],
    seed: &str,
) -> Result<String, Trouble> {
    let told = |e: sqlite::Trouble| match e {
        sqlite::Trouble::Database(e) => Trouble::File(io::Error::other(e.to_string())),
        sqlite::Trouble::Other(e) => Trouble::File(io::Error::other(e)),
        sqlite::Trouble::Store(e) => Trouble::Store(e),
    };
    let Some(db) = kept
        .parts
        .iter()
        .find_map(|part| part.table.as_ref())
        .map(|t| t.db.clone())
    else {
        return Err(io::Error::other("no rows of it are recorded").into());
    };
    let mut inner: BTreeSet<String> = BTreeSet::new();
    for part in &kept.parts {
        inner.extend(sqlite::ids(store, part, prefixes).map_err(told)?);
        // Sessions below it.
        inner.extend(part.table.iter().flat_map(|table| table.ids.iter().cloned()));
    }
    inner.remove(&kept.id.session);
    let mut pairs = vec![(kept.id.session.clone(), new.to_owned())];
    pairs.extend(inner.into_iter().map(|old| {
        let new = sqlite::same_length(&old, seed);
        (old, new)
    }));
    sqlite::change(&dir.join(db.as_path()), |transaction| {
        for part in kept
            .parts
            .iter()
            .filter(|part| part.table.is_some() && !part.is_derived())
        {
            sqlite::copy(transaction, store, part, &pairs)?;
        }
        Ok(())
    })
    .map_err(told)?;
    Ok(new.to_owned())
}
