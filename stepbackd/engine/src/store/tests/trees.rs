use proptest::prelude::*;

use super::super::{MODE_TREE, TreeEntry, encode_tree, parse_tree};
use super::{git, sandbox};
use crate::oid::{ObjectKind, Oid};

fn names() -> impl Strategy<Value = std::collections::BTreeMap<Vec<u8>, u8>> {
    let byte = prop_oneof![
        Just(b'a'),
        Just(b'-'),
        Just(b'.'),
        Just(b'0'),
        Just(0xff),
        Just(b'\n'),
        1u8..=255
    ];
    let name = prop::collection::vec(byte, 1..6).prop_filter("a name", |name| {
        !name.contains(&b'/') && name != b"." && name != b".." && !name.eq_ignore_ascii_case(b".git")
    });
    prop::collection::btree_map(name, 0u8..4, 0..24)
}

fn entries(names: std::collections::BTreeMap<Vec<u8>, u8>, blob: Oid) -> Vec<TreeEntry> {
    let of = |(name, kind)| match kind {
        0 => TreeEntry {
            mode: MODE_TREE,
            name,
            oid: Oid::EMPTY_TREE,
        },
        1 => TreeEntry {
            mode: 0o100_755,
            name,
            oid: blob,
        },
        2 => TreeEntry {
            mode: 0o120_000,
            name,
            oid: blob,
        },
        _ => TreeEntry {
            mode: 0o100_644,
            name,
            oid: blob,
        },
    };
    names.into_iter().map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn trees_are_those_of_git_mktree(names in names()) {
        let store = sandbox();
        let blob = store.blob(b"x");
        let entries = entries(names, blob);
        let ours = encode_tree(&entries);
        let mut input = Vec::new();
        for entry in &entries {
            let kind = if entry.mode == MODE_TREE { "tree" } else { "blob" };
            input.extend_from_slice(format!("{:06o} {kind} {}\t", entry.mode, entry.oid).as_bytes());
            input.extend_from_slice(&entry.name);
            input.push(0);
        }
        if let Some(theirs) = git(store.path(), &["mktree", "-z"], &input) {
            let oid = Oid::of(ObjectKind::Tree, &ours);
            prop_assert_eq!(String::from_utf8(theirs).unwrap(), format!("{oid}\n"));
            prop_assert_eq!(store.read_tree(oid).unwrap().len(), entries.len());
        }
        let mut back = parse_tree(&ours).unwrap();
        back.sort_by(|a, b| a.name.cmp(&b.name));
        prop_assert_eq!(back, entries);
    }

    #[test]
    fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_tree(&bytes);
        let _ = super::super::parse_commit(bytes);
    }
}

#[test]
fn impossible_names_and_cut_trees_are_malformed() {
    let entry = |name: &[u8]| TreeEntry {
        mode: 0o100_644,
        name: name.to_vec(),
        oid: Oid::EMPTY_TREE,
    };
    for name in [b"".as_slice(), b".", b"..", b"a/b"] {
        assert!(parse_tree(&encode_tree(&[entry(name)])).is_err());
    }
    let whole = encode_tree(&[entry(b"name")]);
    assert!((1..whole.len()).all(|len| parse_tree(&whole[..len]).is_err()));
}
