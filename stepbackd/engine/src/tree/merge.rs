//! What is there against what is known, by name.

use super::dir::{Entry, Name, Slot};
use super::look::{Item, Read};
use crate::root::FileType;

/// So many files are read by one task,
const READS_PER_TASK: usize = 32;
/// or files of so many bytes.
const READ_BYTES_PER_TASK: u64 = 4 << 20;

/// The entries of a directory being put together, by name; `None` where there is nothing captured (yet). The name of an
/// entry that is being looked at is with its [`Item`] until then.
pub(super) type Slots = Vec<(Name, Option<Slot>)>;

/// Pairs the entries of a list (sorted) with the known ones; also those that are gone.
pub(super) fn merge_listed(
    listed: Vec<(Vec<u8>, Option<FileType>)>,
    entries: Vec<Entry>,
) -> (Slots, Vec<Item>, Vec<Entry>) {
    let mut slots = Vec::with_capacity(listed.len());
    let mut items = Vec::with_capacity(listed.len());
    let mut gone = Vec::new();
    let mut known = entries.into_iter().peekable();
    for (name, kind) in listed {
        while let Some(entry) = known.next_if(|entry| *entry.name < *name) {
            gone.push(entry);
        }
        let old = known
            .next_if(|entry| *entry.name == *name)
            .map(|entry| entry.slot);
        items.push(Item {
            at: slots.len(),
            name: Name::from_vec(name),
            kind,
            old,
        });
        slots.push(Default::default());
    }
    gone.extend(known);
    (slots, items, gone)
}

/// The known entries, all of which are to be looked at.
pub(super) fn merge_known(entries: Vec<Entry>) -> (Slots, Vec<Item>, Vec<Entry>) {
    let slots = entries.iter().map(|_| Default::default()).collect();
    let items = entries.into_iter().enumerate().map(|(at, entry)| Item {
        at,
        name: entry.name,
        kind: None,
        old: Some(entry.slot),
    });
    (slots, items.collect(), Vec::new())
}

/// The known entries as they are, but for the wanted ones, which are to be looked at.
pub(super) fn merge_wanted<'a>(
    wanted: impl Iterator<Item = &'a Name>,
    entries: Vec<Entry>,
) -> (Slots, Vec<Item>, Vec<Entry>) {
    let mut slots: Slots = Vec::with_capacity(entries.len() + 1);
    let mut items = Vec::new();
    let mut known = entries.into_iter().peekable();
    for name in wanted {
        while let Some(entry) = known.next_if(|entry| entry.name < *name) {
            slots.push((entry.name, Some(entry.slot)));
        }
        let old = known.next_if(|entry| entry.name == *name).map(|entry| entry.slot);
        items.push(Item {
            at: slots.len(),
            name: name.clone(),
            kind: None,
            old,
        });
        slots.push(Default::default());
    }
    slots.extend(known.map(|entry| (entry.name, Some(entry.slot))));
    (slots, items, Vec::new())
}

/// Files in groups that are worth a task each.
pub(super) fn batches(reads: Vec<Read>) -> Vec<Vec<Read>> {
    let mut batches: Vec<Vec<Read>> = Vec::new();
    let mut bytes = 0;
    for read in reads {
        bytes += read.stat.size;
        match batches.last_mut() {
            Some(batch) if batch.len() < READS_PER_TASK && bytes <= READ_BYTES_PER_TASK => batch.push(read),
            _ => {
                bytes = read.stat.size;
                batches.push(vec![read]);
            }
        }
    }
    batches
}
