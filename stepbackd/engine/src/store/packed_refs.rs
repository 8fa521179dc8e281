//! The file `packed-refs`: refs that have no file of their own.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{At, Error, Result};
use crate::fault;
use crate::oid::Oid;

use super::files;
use super::loose::Stamp;
use super::refs::lock_file;

const HEADER: &str = "# pack-refs with: peeled fully-peeled sorted \n";

/// What the file held when it was read last, by the stamp it had: it may have thousands of lines.
#[derive(Debug, Default)]
pub struct Cache(Mutex<Option<(Stamp, Packed)>>);

/// Refs by name.
type Packed = Arc<BTreeMap<String, Oid>>;

/// All packed refs; none when there is no such file.
pub fn read(store: &Path, cache: &Cache) -> Result<Packed> {
    let path = store.join("packed-refs");
    let Some(file) = files::open_existing(&path)? else {
        return Ok(Packed::default());
    };
    // The file is only ever replaced, so another content is another inode.
    let stamp = Stamp::of(&file.metadata().at(&path)?);
    let mut last = cache.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, refs)) = last.as_ref().filter(|(known, _)| *known == stamp) {
        return Ok(Arc::clone(refs));
    }
    let refs = Arc::new(parse(store, &path, file)?);
    *last = Some((stamp, Arc::clone(&refs)));
    Ok(refs)
}

fn parse(store: &Path, path: &Path, mut file: File) -> Result<BTreeMap<String, Oid>> {
    let damaged = |how: String| Error::Damaged {
        store: store.to_owned(),
        what: format!("packed-refs {how}"),
    };
    let mut text = String::new();
    match file.read_to_string(&mut text) {
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            return Err(damaged("isn't text".into()));
        }
        other => other.at(path)?,
    };
    if !text.is_empty() && !text.ends_with('\n') {
        return Err(damaged("is truncated".into()));
    }
    let mut refs = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        // Comments, and what tags point to.
        if line.starts_with(['#', '^']) {
            continue;
        }
        let parsed = line
            .split_once(' ')
            .and_then(|(oid, name)| Some((name.to_owned(), oid.parse().ok()?)));
        let (name, oid) = parsed.ok_or_else(|| damaged(format!("has a broken line {}", number + 1)))?;
        refs.insert(name, oid);
    }
    Ok(refs)
}

/// Replaces all packed refs, durably. The caller holds the lock of the refs.
pub fn write(store: &Path, refs: &BTreeMap<String, Oid>) -> Result<()> {
    let path = store.join("packed-refs");
    fault::point("store.ref").at(&path)?;
    let mut text = String::with_capacity(HEADER.len() + refs.len() * 120);
    text.push_str(HEADER);
    for (name, oid) in refs {
        text.push_str(&format!("{oid} {name}\n"));
    }
    let mut temp = lock_file(&path)?;
    temp.write_all(text.as_bytes())?;
    temp.sync()?;
    temp.rename(&path)?;
    files::sync_dir(store)
}
