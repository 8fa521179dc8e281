//! Side tables: what a git tree can't hold. A permanent format.
//!
//! Beside the git tree of a snapshot stands a side tree of the same shape. For each directory it has at most two entries:
//!
//! - the blob `m`, the directory's own table;
//! - the tree `d`, with the side tree of each subdirectory that has one, by its name.
//!
//! A directory without either has none; when there is nothing in the whole snapshot, its side tree is the empty tree. So equal
//! states have equal ids, and a change in one directory rewrites only the side trees above it.
//!
//! A table is text, one fact a line, words parted by one space:
//!
//! | line | says |
//! |---|---|
//! | `. 0700` | permission bits of the directory itself |
//! | `X ATTRIBUTE VALUE` | an attribute of the directory itself |
//! | `f 0600 NAME` | permission bits of a file |
//! | `p 0644 NAME` | a FIFO and its bits; it isn't in the git tree |
//! | `x NAME ATTRIBUTE VALUE` | an attribute of a file or FIFO |
//!
//! Bits stand here only when they aren't the common ones for that git mode ([`CommonModes`], kept with each checkpoint), of a
//! FIFO always. Names, attribute names and values are bytes with `%XX` for `%`, space, control bytes and bytes that
//! aren't UTF-8 ([`path::escape`]). The own bits come first, then own attributes by name, then entries by name in byte
//! order, each with its bits before its attributes by name. A line that isn't of these kinds makes the table invalid.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::node::{Attributes, CommonModes, Kind, Node, Perm};
use crate::path;

/// Name of the table in a side tree.
pub(super) const TABLE: &[u8] = b"m";
/// Name of the subdirectories in a side tree.
pub(super) const BELOW: &[u8] = b"d";

/// What a directory's table says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Table {
    /// Own bits, unless common.
    pub perm: Option<Perm>,
    /// Own attributes.
    pub attributes: Attributes,
    /// Entries of which something is said.
    pub entries: BTreeMap<Vec<u8>, Fact>,
}

/// What is said of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Fact {
    /// Bits, unless common.
    pub perm: Option<Perm>,
    /// It is a FIFO.
    pub fifo: bool,
    /// Attributes.
    pub attributes: Attributes,
}

/// The common bits for what stands there.
pub(super) fn common_perm(kind: &Kind, executable: bool, common: &CommonModes) -> Perm {
    match kind {
        Kind::File(_) if executable => common.exec,
        Kind::File(_) | Kind::Fifo => common.file,
        Kind::Dir => common.dir,
        Kind::Link(_) => Perm::of_mode(0o777),
    }
}

impl Table {
    /// Notes what the git tree doesn't say of an entry that isn't a directory.
    pub fn add(&mut self, name: &[u8], node: &Node, common: &CommonModes) {
        let fifo = node.kind == Kind::Fifo;
        let usual = common_perm(&node.kind, node.perm.is_executable(), common);
        let perm = (fifo || node.perm != usual).then_some(node.perm);
        if perm.is_some() || node.attributes.is_some() {
            self.entries.insert(
                name.to_vec(),
                Fact {
                    perm,
                    fifo,
                    attributes: node.attributes.clone(),
                },
            );
        }
    }

    /// As text; `None` when it says nothing.
    pub fn encode(&self) -> Option<String> {
        let mut text = String::new();
        if let Some(perm) = self.perm {
            text += &format!(". {perm}\n");
        }
        for (attribute, value) in self.attributes.iter().flat_map(|attributes| attributes.iter()) {
            text += &format!("X {} {}\n", word(attribute), word(value));
        }
        for (name, fact) in &self.entries {
            let name = word(name);
            if let Some(perm) = fact.perm {
                text += &format!("{} {perm} {name}\n", if fact.fifo { 'p' } else { 'f' });
            }
            for (attribute, value) in fact.attributes.iter().flat_map(|attributes| attributes.iter()) {
                text += &format!("x {name} {} {}\n", word(attribute), word(value));
            }
        }
        (!text.is_empty()).then_some(text)
    }

    /// From text; `None` when it isn't a table.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut table = Self::default();
        for line in std::str::from_utf8(text).ok()?.split_terminator('\n') {
            let words: Vec<&str> = line.split(' ').collect();
            match *words {
                [".", perm] => table.perm = Some(bits(perm)?),
                ["X", attribute, value] => put(&mut table.attributes, attribute, value)?,
                [kind @ ("f" | "p"), perm, name] => {
                    let fact = table.entries.entry(path::unescape(name)?).or_default();
                    fact.perm = Some(bits(perm)?);
                    fact.fifo = kind == "p";
                }
                ["x", name, attribute, value] => {
                    let fact = table.entries.entry(path::unescape(name)?).or_default();
                    put(&mut fact.attributes, attribute, value)?;
                }
                _ => return None,
            }
        }
        Some(table)
    }
}

fn word(bytes: &[u8]) -> String {
    path::escape(bytes).replace(' ', "%20")
}

fn bits(text: &str) -> Option<Perm> {
    let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o7777)?;
    (text.len() == 4).then(|| Perm::of_mode(bits))
}

fn put(attributes: &mut Attributes, name: &str, value: &str) -> Option<()> {
    let map = Arc::make_mut(attributes.get_or_insert_default());
    map.insert(path::unescape(name)?, path::unescape(value)?);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_attributes() -> impl Strategy<Value = Attributes> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..6);
        prop::option::of(prop::collection::btree_map(bytes(), bytes(), 1..3).prop_map(Arc::new))
    }

    fn any_perm() -> impl Strategy<Value = Option<Perm>> {
        prop::option::of((0u32..0o10000).prop_map(Perm::of_mode))
    }

    prop_compose! {
        fn any_fact()(perm in any_perm(), fifo: bool, attributes in any_attributes()) -> Fact {
            Fact { fifo: fifo && perm.is_some(), perm, attributes }
        }
    }

    proptest! {
        #[test]
        fn text_goes_both_ways(
            perm in any_perm(),
            attributes in any_attributes(),
            mut entries in prop::collection::btree_map(prop::collection::vec(any::<u8>(), 1..8), any_fact(), 0..6),
        ) {
            entries.retain(|_, fact| *fact != Fact::default());
            let table = Table { perm, attributes, entries };
            let text = table.encode().unwrap_or_default();
            prop_assert_eq!(Table::parse(text.as_bytes()), Some(table));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Table::parse(&bytes);
        }
    }

    /// These very bytes: checkpoints of years ago must be read.
    #[test]
    fn bytes_are_these() {
        let mut table = Table {
            perm: Some(Perm::of_mode(0o700)),
            ..Table::default()
        };
        put(&mut table.attributes, "user.a", "%00").unwrap();
        let common = &CommonModes::DEFAULT;
        let node = |kind, perm| Node::plain(kind, Perm::of_mode(perm));
        table.add(
            b"k.pem",
            &node(Kind::File(crate::oid::Oid([1; 20])), 0o600),
            common,
        );
        table.add(
            b"plain",
            &node(Kind::File(crate::oid::Oid([1; 20])), 0o644),
            common,
        );
        table.add(b"a pipe\n", &node(Kind::Fifo, 0o644), common);
        let mut noted = node(Kind::File(crate::oid::Oid([1; 20])), 0o755);
        put(&mut noted.attributes, "user.note", "x y").unwrap();
        table.add(b"run.sh", &noted, common);
        assert_eq!(
            table.encode().unwrap(),
            ". 0700\nX user.a %00\np 0644 a%20pipe%0A\nf 0600 k.pem\nx run.sh user.note x%20y\n"
        );
        for bad in ["f 600 a\n", "q\n", ". 0800\n", "f 0600 a b\n", "f 0600 %4\n"] {
            assert_eq!(Table::parse(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
