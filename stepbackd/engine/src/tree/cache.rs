//! The tree on disk between two lives of the daemon. Losing it costs time only, so anything odd in it makes it absent.
//!
//! A header (magic with version, root id, depth, common modes), the directories one within the other, a SHA-1 over all.
//! Numbers are little-endian. Written to a temporary file and renamed, never synced.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use sha1::{Digest, Sha1};

use super::dir::{Dir, Entry, File, Left, Name, Sig, Slot};
use crate::error::{At, Result};
use crate::node::{Attributes, CommonModes, Perm, Reason};
use crate::oid::Oid;
use crate::path::check_name;
use crate::rules::Below;

/// Changes with every change of the format.
const MAGIC: &[u8] = b"stepback tree 2\n";

/// What a cache holds.
#[derive(Debug)]
pub(super) struct Cached {
    pub root: Box<Dir>,
    pub depth: usize,
    pub common: Option<CommonModes>,
}

/// The bytes of a cache.
pub(super) fn encode(root: &Dir, depth: usize, common: Option<CommonModes>, root_id: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256 + usize::try_from(root.files).unwrap_or(0) * 96);
    bytes.extend_from_slice(MAGIC);
    put_bytes(&mut bytes, root_id.as_bytes());
    put_number(&mut bytes, depth as u64);
    bytes.push(u8::from(common.is_some()));
    for perm in common
        .iter()
        .flat_map(|common| [common.file, common.exec, common.dir])
    {
        put_perm(&mut bytes, perm);
    }
    put_dir(&mut bytes, root);
    let sum = Sha1::digest(&bytes);
    bytes.extend_from_slice(&sum);
    bytes
}

/// Reads a cache; `run` gets work that recurses so many levels.
pub(super) fn decode(
    bytes: &[u8],
    root_id: &str,
    run: impl FnOnce(usize, &mut (dyn FnMut() + Send)),
) -> Option<Cached> {
    let end = bytes.len().checked_sub(20)?;
    if Sha1::digest(&bytes[..end])[..] != bytes[end..] {
        return None;
    }
    let mut reader = Reader(bytes[..end].strip_prefix(MAGIC)?);
    if reader.bytes()? != root_id.as_bytes() {
        return None;
    }
    let depth = usize::try_from(reader.number()?).ok()?;
    let common = match reader.byte()? {
        0 => None,
        _ => Some(CommonModes {
            file: reader.perm()?,
            exec: reader.perm()?,
            dir: reader.perm()?,
        }),
    };
    let mut root = None;
    run(depth, &mut || root = reader.dir(depth));
    let root = Box::new(root?);
    reader.0.is_empty().then_some(Cached { root, depth, common })
}

/// Puts the bytes in place of an earlier cache.
pub(crate) fn replace(file: &Path, bytes: &[u8]) -> Result<()> {
    let mut temporary = file.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = Path::new(&temporary);
    let mut options = fs::OpenOptions::new();
    let mut out = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(temporary)
        .at(temporary)?;
    out.write_all(bytes).at(temporary)?;
    fs::rename(temporary, file).at(file)
}

fn put_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_time(out: &mut Vec<u8>, ns: i64) {
    out.extend_from_slice(&ns.to_le_bytes());
}

fn put_perm(out: &mut Vec<u8>, perm: Perm) {
    out.extend_from_slice(&(u16::try_from(perm.bits()).unwrap_or(0)).to_le_bytes());
}

fn put_oid(out: &mut Vec<u8>, oid: Option<Oid>) {
    out.push(u8::from(oid.is_some()));
    out.extend(oid.iter().flat_map(|oid| oid.0));
}

fn put_attributes(out: &mut Vec<u8>, attributes: &Attributes) {
    let count = attributes.as_ref().map_or(0, |attributes| attributes.len());
    out.extend_from_slice(&u32::try_from(count).unwrap_or(0).to_le_bytes());
    for (name, value) in attributes.iter().flat_map(|attributes| attributes.iter()) {
        put_bytes(out, name);
        put_bytes(out, value);
    }
}

fn put_dir(out: &mut Vec<u8>, dir: &Dir) {
    put_number(out, dir.ino);
    put_time(out, dir.ctime_ns);
    put_perm(out, dir.perm);
    put_attributes(out, &dir.attributes);
    out.push(u8::from(dir.racy));
    out.push(match dir.below {
        Below::ByRules => 0,
        Below::All => 1,
        Below::Exceptions => 2,
    });
    // Only what is surely in the store counts after a restart.
    let persisted = !dir.unsaved;
    put_oid(out, dir.tree.filter(|_| persisted));
    put_oid(out, dir.side.filter(|_| persisted));
    out.extend_from_slice(&u32::try_from(dir.entries.len()).unwrap_or(u32::MAX).to_le_bytes());
    for Entry { name, slot } in &dir.entries {
        put_bytes(out, name);
        match slot {
            Slot::File(file) => put_file(out, 0, file),
            Slot::Link(file) => put_file(out, 1, file),
            Slot::Fifo(file) => put_file(out, 2, file),
            Slot::Left(left) => {
                out.push(3);
                out.push(
                    REASONS
                        .iter()
                        .position(|reason| *reason == left.reason)
                        .unwrap_or(0) as u8,
                );
                put_number(out, left.size);
                put_time(out, left.mtime_ns);
            }
            Slot::Dir(dir) => {
                out.push(4);
                put_dir(out, dir);
            }
        }
    }
}

fn put_file(out: &mut Vec<u8>, tag: u8, file: &File) {
    out.push(tag);
    put_number(out, file.sig.ino);
    put_number(out, file.sig.size);
    put_time(out, file.sig.mtime_ns);
    put_time(out, file.sig.ctime_ns);
    out.extend_from_slice(&file.oid.0);
    put_perm(out, file.perm);
    out.push(u8::from(file.racy || file.unsaved));
    put_attributes(out, &file.attributes);
}

const REASONS: [Reason; 7] = [
    Reason::TooLarge,
    Reason::Unreadable,
    Reason::Special,
    Reason::Changing,
    Reason::Forgotten,
    Reason::Quota,
    Reason::Late,
];

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn count(&mut self) -> Option<usize> {
        self.take()
            .map(u32::from_le_bytes)
            .and_then(|count| usize::try_from(count).ok())
    }

    fn time(&mut self) -> Option<i64> {
        self.take().map(i64::from_le_bytes)
    }

    fn perm(&mut self) -> Option<Perm> {
        let bits = u16::from_le_bytes(self.take()?);
        Some(Perm::of_mode(u32::from(bits)))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.count()?;
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn oid(&mut self) -> Option<Option<Oid>> {
        Some(match self.byte()? {
            0 => None,
            _ => Some(Oid(self.take()?)),
        })
    }

    fn attributes(&mut self) -> Option<Attributes> {
        let mut attributes = BTreeMap::new();
        for _ in 0..self.count()? {
            attributes.insert(self.bytes()?.to_vec(), self.bytes()?.to_vec());
        }
        Some((!attributes.is_empty()).then(|| Arc::new(attributes)))
    }

    fn dir(&mut self, levels: usize) -> Option<Dir> {
        let mut dir = Dir {
            ino: self.number()?,
            ctime_ns: self.time()?,
            perm: self.perm()?,
            attributes: self.attributes()?,
            racy: self.byte()? != 0,
            below: match self.byte()? {
                0 => Below::ByRules,
                1 => Below::All,
                2 => Below::Exceptions,
                _ => return None,
            },
            tree: self.oid()?,
            side: self.oid()?,
            listed: false,
            unsaved: false,
            builtin_hits: 0,
            rules: None,
            files: 0,
            left: 0,
            entries: Vec::new(),
        };
        let count = self.count()?;
        // No entry takes fewer bytes, so a wrong count can't ask for memory that isn't there.
        dir.entries.reserve_exact(count.min(self.0.len() / 20));
        for _ in 0..count {
            let name: Name = self.bytes()?.into();
            let sorted = dir.entries.last().is_none_or(|last| last.name < name);
            if !sorted || check_name(&name).is_err() {
                return None;
            }
            let slot = match self.byte()? {
                0 => Slot::File(self.file()?),
                1 => Slot::Link(Box::new(self.file()?)),
                2 => Slot::Fifo(Box::new(self.file()?)),
                3 => Slot::Left(Box::new(Left {
                    reason: *REASONS.get(usize::from(self.byte()?))?,
                    size: self.number()?,
                    mtime_ns: self.time()?,
                })),
                4 => Slot::Dir(Box::new(self.dir(levels.checked_sub(1)?)?)),
                _ => return None,
            };
            dir.entries.push(Entry { name, slot });
        }
        dir.count();
        Some(dir)
    }

    fn file(&mut self) -> Option<File> {
        Some(File {
            sig: Sig {
                ino: self.number()?,
                size: self.number()?,
                mtime_ns: self.time()?,
                ctime_ns: self.time()?,
            },
            oid: Oid(self.take()?),
            perm: self.perm()?,
            racy: self.byte()? != 0,
            attributes: self.attributes()?,
            unsaved: false,
        })
    }
}
