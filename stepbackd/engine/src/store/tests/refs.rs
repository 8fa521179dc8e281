use std::fs;

use super::super::Expected::{Absent, Any, Is};
use super::{Sandbox, assert_clean, git, sandbox};
use crate::error::Error;
use crate::oid::Oid;

/// Two commits to point to.
fn commits(store: &Sandbox) -> (Oid, Oid) {
    let entry = super::super::TreeEntry {
        mode: 0o100_644,
        name: b"f".to_vec(),
        oid: store.blob(b"x"),
    };
    (store.commit_of(&[]), store.commit_of(&[entry]))
}

fn is_refused(result: Result<(), Error>) -> bool {
    matches!(result, Err(Error::Refused { .. }))
}

#[test]
fn compare_and_swap() {
    let store = sandbox();
    let (a, b) = commits(&store);
    let name = "refs/checkpoints/x-1/watch/1";
    assert_eq!(store.read_ref(name).unwrap(), None);
    assert!(is_refused(store.set_ref(name, a, Is(b))));
    store.set_ref(name, a, Absent).unwrap();
    assert!(is_refused(store.set_ref(name, b, Absent)));
    assert!(is_refused(store.set_ref(name, b, Is(b))));
    store.set_ref(name, b, Is(a)).unwrap();
    store.set_ref(name, a, Any).unwrap();
    assert_eq!(store.read_ref(name).unwrap(), Some(a));
    assert_clean(&store);
    store.delete_ref(name).unwrap();
    store.delete_ref(name).unwrap();
    assert_eq!(store.read_ref(name).unwrap(), None);
    assert!(
        !store.path().join("refs/checkpoints").exists(),
        "empty directories go"
    );
    assert!(store.path().join("refs").exists());
}

#[test]
fn only_one_of_many_wins_a_swap() {
    let store = sandbox();
    let (a, b) = commits(&store);
    store.set_ref("refs/x/y", a, Absent).unwrap();
    let others: Vec<_> = (0..8)
        .map(|_| super::Store::open(store.path()).unwrap())
        .collect();
    let won = std::thread::scope(|scope| {
        let all: Vec<_> = others
            .iter()
            .map(|one| scope.spawn(|| one.set_ref("refs/x/y", b, Is(a)).is_ok()))
            .collect();
        all.into_iter()
            .filter(|_| true)
            .map(|one| usize::from(one.join().unwrap()))
            .sum::<usize>()
    });
    assert_eq!(won, 1);
}

#[test]
fn lists_by_prefix_loose_and_packed_alike() {
    let store = sandbox();
    let (a, b) = commits(&store);
    for name in [
        "refs/c/x-1/s/1",
        "refs/c/x-1/s/10",
        "refs/c/x-1/t/2",
        "refs/c/x-12/s/1",
        "refs/d",
    ] {
        store.set_ref(name, a, Absent).unwrap();
    }
    let names = |prefix| {
        store
            .refs(prefix)
            .unwrap()
            .into_iter()
            .map(|(name, _)| name)
            .collect::<Vec<_>>()
    };
    let check = || {
        assert_eq!(
            names("refs/c/x-1/"),
            ["refs/c/x-1/s/1", "refs/c/x-1/s/10", "refs/c/x-1/t/2"]
        );
        assert_eq!(names("refs/c/x-1/s/1"), ["refs/c/x-1/s/1", "refs/c/x-1/s/10"]);
        assert_eq!(names("refs/c/x-1").len(), 4);
        assert_eq!(names("refs/").len(), 5);
        assert_eq!(names("refs/nothing/").len(), 0);
    };
    check();
    store.pack_refs().unwrap();
    assert!(!store.path().join("refs/c").exists());
    check();
    assert_clean(&store);
    store.set_ref("refs/c/x-1/s/1", b, Is(a)).unwrap();
    assert_eq!(
        store.read_ref("refs/c/x-1/s/1").unwrap(),
        Some(b),
        "a loose ref stands before a packed one"
    );
    check();
    let listed = git(
        store.path(),
        &["for-each-ref", "--format=%(refname) %(objectname)"],
        b"",
    );
    let ours: String = store
        .refs("refs/")
        .unwrap()
        .iter()
        .map(|(name, oid)| format!("{name} {oid}\n"))
        .collect();
    assert_eq!(listed.unwrap_or(ours.clone().into_bytes()), ours.into_bytes());
    store.delete_refs(&["refs/c/x-1/s/1", "refs/c/x-12/s/1"]).unwrap();
    assert_eq!(names("refs/"), ["refs/c/x-1/s/10", "refs/c/x-1/t/2", "refs/d"]);
    assert_clean(&store);
}

#[test]
fn refs_that_git_packed_are_read_and_deleted() {
    let store = sandbox();
    let (a, b) = commits(&store);
    store.set_ref("refs/c/1", a, Absent).unwrap();
    store.set_ref("refs/c/2", b, Absent).unwrap();
    if git(store.path(), &["pack-refs", "--all", "--prune"], b"").is_none() {
        return;
    }
    assert_eq!(
        store.refs("refs/c/").unwrap(),
        [("refs/c/1".into(), a), ("refs/c/2".into(), b)]
    );
    store.delete_ref("refs/c/1").unwrap();
    assert_eq!(store.refs("refs/c/").unwrap(), [("refs/c/2".into(), b)]);
}

#[test]
fn a_ref_and_a_directory_of_refs_cant_have_one_name() {
    let store = sandbox();
    let (a, _) = commits(&store);
    for packed in [false, true] {
        store.set_ref("refs/x/y", a, Any).unwrap();
        if packed {
            store.pack_refs().unwrap();
        }
        assert!(is_refused(store.set_ref("refs/x/y/z", a, Absent)));
        assert!(is_refused(store.set_ref("refs/x", a, Absent)));
        assert_eq!(store.read_ref("refs/x/y/z").unwrap(), None);
        assert_eq!(store.read_ref("refs/x").unwrap(), None);
        store.delete_ref("refs/x").unwrap();
        store.delete_ref("refs/x/y/z").unwrap();
        assert_eq!(store.refs("refs/").unwrap().len(), 1);
    }
    store.delete_ref("refs/x/y").unwrap();
    fs::create_dir_all(store.path().join("refs/x/empty/deep")).unwrap();
    store.set_ref("refs/x", a, Absent).unwrap();
    assert_clean(&store);
}

#[test]
fn a_broken_ref_is_named_and_can_be_replaced_or_deleted() {
    let store = sandbox();
    let (a, _) = commits(&store);
    let name = "refs/checkpoints/r/s/1";
    for content in [
        "",
        "\n",
        "ref: refs/heads/main\n",
        "4b825dc6",
        &format!("{a}"),
        &format!("{a}\n\n"),
        &"0".repeat(4096),
    ] {
        store.set_ref(name, a, Any).unwrap();
        fs::write(store.file(name), content).unwrap();
        for result in [
            store.refs("refs/").map(drop),
            store.read_ref(name).map(drop),
            store.set_ref(name, a, Is(a)),
        ] {
            assert!(
                matches!(result, Err(Error::Damaged { what, .. }) if what.contains(name)),
                "{content:?}"
            );
        }
    }
    store.set_ref(name, a, Any).unwrap();
    fs::write(store.file(name), "").unwrap();
    store.delete_ref(name).unwrap();
    assert_eq!(store.refs("refs/").unwrap(), []);
    for content in ["", "# pack-refs with: peeled\n"] {
        fs::write(store.path().join("packed-refs"), content).unwrap();
        assert_eq!(store.refs("refs/").unwrap(), []);
    }
}

#[test]
fn a_packed_line_that_cannot_be_read_costs_its_own_ref_alone() {
    let store = sandbox();
    let (a, _) = commits(&store);
    let good = format!("{a} refs/good");
    for (broken, name) in [
        (format!("{a} refs/cut").into_bytes(), None),
        (format!("{a}\n").into_bytes(), None),
        (b"rubbish refs/x\n".to_vec(), Some("refs/x")),
        (b"\0\n".to_vec(), None),
        ([a.to_string().as_bytes(), b" refs/\x80\n"].concat(), None),
    ] {
        let packed = store.path().join("packed-refs");
        fs::write(&packed, [good.as_bytes(), b"\n", &broken].concat()).unwrap();
        assert_eq!(store.read_ref("refs/good").unwrap(), Some(a));
        assert!(
            matches!(store.refs("refs/"), Err(Error::Damaged { .. })),
            "{broken:?}"
        );
        assert_eq!(store.verify("refs/").unwrap().len(), 1, "{broken:?}");
        assert_eq!(store.nameless_refs().unwrap().is_empty(), name.is_some());
        assert!(store.pack_refs().is_err(), "nothing is moved, so nothing is lost");
        // Others change, and the broken line stays.
        store
            .set_refs(&(0..40).map(|i| (format!("refs/many/{i}"), a)).collect::<Vec<_>>())
            .unwrap();
        store.delete_ref("refs/good").unwrap();
        let left = fs::read(&packed).unwrap();
        assert!(left.ends_with(&broken));
        assert_eq!(store.read_ref("refs/good").unwrap(), None);
        if let Some(name) = name {
            assert!(matches!(store.read_ref(name), Err(Error::Damaged { what, .. }) if what.contains(name)));
        }
        let aside = store.set_broken_refs_aside().unwrap().unwrap();
        assert_eq!(fs::read(aside).unwrap(), left);
        assert_eq!(store.refs("refs/").unwrap().len(), 40);
        assert_eq!(store.set_broken_refs_aside().unwrap(), None);
        fs::remove_file(&packed).unwrap();
    }
}

#[test]
fn names_that_git_would_refuse_are_refused() {
    let store = sandbox();
    let long = format!("refs/{}", "x".repeat(116));
    for name in [
        "HEAD",
        "refs",
        "refs/",
        "refs//a",
        "refs/a/",
        "refs/../x",
        "refs/.a",
        "refs/a.lock",
        "refs/a..b",
        "refs/a b",
        "refs/a~",
        "refs/a@{b",
        "refs/a\n",
        "refs/é",
        "/refs/a",
        "refs/a.",
        "",
        &long,
    ] {
        assert!(is_refused(store.set_ref(name, Oid::EMPTY_TREE, Any)), "{name:?}");
        assert!(is_refused(store.delete_ref(name)), "{name:?}");
        assert!(store.read_ref(name).is_err(), "{name:?}");
    }
    store.set_ref(&long[..120], commits(&store).0, Absent).unwrap();
}
