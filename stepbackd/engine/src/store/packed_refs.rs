//! The file `packed-refs`: refs that have no file of their own. A line that can't be read costs its own ref and no other.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::files;
use super::loose::Stamp;
use super::ref_file::{check_name, lock_file};
use crate::error::{At, Result};
use crate::fault;
use crate::oid::Oid;

const HEADER: &str = "# pack-refs with: peeled fully-peeled sorted \n";

/// What the file held when it was read last, by the stamp it had: it may have thousands of lines.
#[derive(Debug, Default)]
pub struct Cache(Mutex<Option<(Stamp, Arc<Packed>)>>);

/// What the file says.
#[derive(Debug, Default, Clone)]
pub struct Packed {
    /// Refs by name.
    pub refs: BTreeMap<String, Oid>,
    /// What isn't one.
    pub broken: Vec<Broken>,
}

impl Packed {
    /// Lines that say something.
    pub fn len(&self) -> usize {
        self.refs.len() + self.broken.len()
    }
}

/// A line that can't be read.
#[derive(Debug, Clone)]
pub struct Broken {
    /// The ref, when the line still tells which.
    pub name: Option<String>,
    /// Its number, from 1.
    pub number: usize,
    line: Vec<u8>,
}

impl Broken {
    /// What is wrong, for whoever asks for the ref.
    pub fn how(&self) -> String {
        format!("can't be read in line {} of packed-refs", self.number)
    }
}

/// All packed refs; none when there is no such file.
pub fn read(store: &Path, cache: &Cache) -> Result<Arc<Packed>> {
    let path = store.join("packed-refs");
    let Some(mut file) = files::open_existing(&path)? else {
        return Ok(Arc::default());
    };
    // The file is only ever replaced, so another content is another inode.
    let stamp = Stamp::of(&file.metadata().at(&path)?);
    let mut last = cache.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, packed)) = last.as_ref().filter(|(known, _)| *known == stamp) {
        return Ok(Arc::clone(packed));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).at(&path)?;
    let packed = Arc::new(parse(&bytes));
    *last = Some((stamp, Arc::clone(&packed)));
    Ok(packed)
}

fn parse(bytes: &[u8]) -> Packed {
    let mut packed = Packed::default();
    for (index, line) in bytes.split_inclusive(|b| *b == b'\n').enumerate() {
        // Comments, and what tags point to.
        if line.starts_with(b"#") || line.starts_with(b"^") {
            continue;
        }
        // Without its end, a name may be the beginning of another one.
        let text = line
            .strip_suffix(b"\n")
            .and_then(|line| str::from_utf8(line).ok());
        let parts = text.and_then(|text| text.split_once(' '));
        match parts.filter(|(_, name)| check_name(name).is_ok()) {
            Some((oid, name)) if oid.parse::<Oid>().is_ok() => {
                let oid = oid.parse().expect("parsed right above");
                packed.refs.insert(name.to_owned(), oid);
            }
            parts => packed.broken.push(Broken {
                name: parts.map(|(_, name)| name.to_owned()),
                number: index + 1,
                line: line.to_owned(),
            }),
        }
    }
    packed
}

/// Replaces what the file says, durably. Broken lines of refs that are whole now go, the others stay. The caller holds
/// the lock of the refs.
pub fn write(store: &Path, packed: &Packed) -> Result<()> {
    let path = store.join("packed-refs");
    fault::point("store.ref").at(&path)?;
    let mut text = Vec::with_capacity(HEADER.len() + packed.refs.len() * 120);
    text.extend_from_slice(HEADER.as_bytes());
    for (name, oid) in &packed.refs {
        text.extend_from_slice(format!("{oid} {name}\n").as_bytes());
    }
    for broken in &packed.broken {
        let is_whole_now = broken
            .name
            .as_ref()
            .is_some_and(|name| packed.refs.contains_key(name));
        if !is_whole_now {
            // Only the last one may lack its end, and must go on to.
            text.extend_from_slice(&broken.line);
        }
    }
    let mut temp = lock_file(&path)?;
    temp.write_all(&text)?;
    temp.sync()?;
    temp.rename(&path)?;
    files::sync_dir(store)
}

/// Writes the file anew without its broken lines; what it was stays beside it, under the name that is returned. The
/// caller holds the lock of the refs.
pub fn set_broken_aside(store: &Path, packed: &Packed) -> Result<PathBuf> {
    let path = store.join("packed-refs");
    let mut names = (1..).map(|k| store.join(format!("damaged-packed-refs-{k}")));
    let aside = names
        .find(|name| !name.exists())
        .expect("there is always another number");
    files::replace(&aside, &std::fs::read(&path).at(&path)?)?;
    let whole = Packed {
        refs: packed.refs.clone(),
        broken: Vec::new(),
    };
    write(store, &whole)?;
    Ok(aside)
}
