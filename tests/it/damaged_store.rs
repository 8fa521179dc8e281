//! Parts of a store rot or go: what is damaged is named by every command that needs it, and the rest is usable.

use std::fs;
use std::path::PathBuf;

use stepback_tests::{Project, Sandbox};

use crate::support::{V1, V3, is};

/// Three checkpoints of `files` files, of which `f0` is `v1`, `v2` and `v3`, with the daemon stopped.
fn project(sandbox: &Sandbox, files: usize) -> Project<'_> {
    // A burst that settles while the files are written would be one checkpoint more.
    sandbox.configure("settle_ms = 60000\nmax_wait_ms = 60000\n");
    let project = sandbox.project("p");
    project.sh("mkdir d");
    for version in 1..=3 {
        for i in 0..files {
            project.write(&format!("d/f{i}"), format!("file {i} of version {version}\n"));
        }
        project.write("f0", format!("v{version}\n"));
        if version == 1 {
            project.attach();
        }
        assert_eq!(project.save(), version);
    }
    project
}

/// The object id that a path has in checkpoint `n`; of the checkpoint's whole tree for the empty path.
fn object(project: &Project<'_>, n: u64, path: &str) -> String {
    let id = project.status()["id"].as_str().unwrap().to_owned();
    let name = format!("refs/checkpoints/{id}/watch/{n}:{path}");
    project
        .store_git(&format!("rev-parse '{name}'"))
        .trim()
        .to_owned()
}

fn loose(project: &Project<'_>, object: &str) -> PathBuf {
    let path = project
        .store()
        .join("objects")
        .join(&object[..2])
        .join(&object[2..]);
    assert!(path.is_file(), "{object} is no loose object");
    path
}

/// What is damaged is named by `status --verify` and by all `commands`, which fail for it; the others of the root work.
#[track_caller]
fn check(project: &Project<'_>, named: &str, commands: &[&[&str]]) {
    project.stepback(&["daemon", "restart"]).exits(0);
    project.save();
    let before = project.tree();
    let verified = project.json(&["status", "--verify"]);
    let warnings = verified["root"]["warnings"].as_array().unwrap();
    let damaged: Vec<&str> = warnings
        .iter()
        .filter(|warning| warning["kind"] == "store_damaged")
        .map(|warning| warning["message"].as_str().unwrap())
        .collect();
    assert!(
        damaged.iter().any(|message| message.contains(named)),
        "{named} in {damaged:#?}"
    );
    for command in commands {
        let refused = project.fails(command, 1, "store_damaged");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains(named), "{command:?}: {message}");
        assert!(!refused["hint"].as_str().unwrap().is_empty(), "{command:?}");
    }
    before.same(&project.tree(), "what fails changes nothing");
    // The undamaged ones stay usable, back and forth, and new ones are made.
    project.rewind(1);
    is(project, "f0", V1);
    project.redo();
    before.same(&project.tree(), "after redo");
    project.rewind(3);
    is(project, "f0", V3);
    project.json(&["diff", "1", "3"]);
    project.write("f0", "v4\n");
    let new = project.save();
    assert_eq!(project.show(new, "f0"), b"v4\n");
}

#[test]
fn a_checkpoint_whose_ref_is_gone() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox, 2);
    let id = project.status()["id"].as_str().unwrap().to_owned();
    let name = format!("refs/checkpoints/{id}/watch/2");
    fs::remove_file(project.store().join(&name)).unwrap();
    let named = format!("refs/checkpoints/{id}/2");
    check(
        &project,
        &named,
        &[&["rewind", "2", "-y"], &["diff", "2"], &["show", "2"]],
    );
    let list = project.stepback(&["list"]).exits(0);
    assert!(
        list.stderr.contains(&format!("not listed: {named} is missing")),
        "{list:?}"
    );
    // Dropping it is the end of it.
    project.json(&["drop", "2", "-y"]);
    let list = project.stepback(&["list"]).exits(0);
    assert!(!list.stderr.contains("not listed"), "{list:?}");
}

#[test]
fn loose_objects_that_are_cut_off_or_gone() {
    for cut in [true, false] {
        let sandbox = Sandbox::new();
        let project = project(&sandbox, 2);
        let blob = object(&project, 2, "f0");
        let file = loose(&project, &blob);
        if cut {
            let bytes = fs::read(&file).unwrap();
            fs::remove_file(&file).unwrap();
            fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
        } else {
            fs::remove_file(&file).unwrap();
        }
        check(
            &project,
            &blob,
            &[&["rewind", "2", "-y"], &["diff", "2"], &["show", "2:f0"]],
        );
        // A list needs no contents.
        assert!(project.ids().contains(&2));
    }
}

#[test]
fn a_tree_that_is_gone_is_never_taken_for_an_empty_one() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox, 2);
    let (top, dir) = (object(&project, 2, ""), object(&project, 2, "d"));
    for tree in [&dir, &top] {
        fs::remove_file(loose(&project, tree)).unwrap();
        check(
            &project,
            tree,
            &[
                &["rewind", "2", "-y"],
                &["diff", "2"],
                &["restore", "2", "-p", "d", "-y"],
            ],
        );
    }
}

#[test]
fn a_bit_that_flipped_in_a_pack() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox, 60);
    let blob = object(&project, 2, "d/f30");
    let pack_dir = project.store().join("objects/pack");
    let index = fs::read_dir(&pack_dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "idx"))
        .find(|path| {
            let listed = project.store_git(&format!("verify-pack -v '{}'", path.display()));
            listed.contains(&blob)
        })
        .expect("it is in a pack");
    let listed = project.store_git(&format!("verify-pack -v '{}'", index.display()));
    let line = listed.lines().find(|line| line.starts_with(&blob)).unwrap();
    let fields: Vec<usize> = line.split_whitespace().filter_map(|f| f.parse().ok()).collect();
    let &[_, packed, offset] = &fields[..] else {
        panic!("{line}")
    };
    let pack = index.with_extension("pack");
    let mut bytes = fs::read(&pack).unwrap();
    bytes[offset + packed - 6] ^= 0x10;
    fs::remove_file(&pack).unwrap();
    fs::write(&pack, bytes).unwrap();
    check(
        &project,
        &blob,
        &[&["rewind", "2", "-y"], &["show", "2:d/f30"], &["diff", "2"]],
    );
}

#[test]
fn a_broken_line_of_packed_refs_costs_one_checkpoint() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox, 1);
    let store = project.store();
    let id = project.status()["id"].as_str().unwrap().to_owned();
    project.stepback(&["daemon", "stop"]).exits(0);
    sandbox.sh(&store, "git pack-refs --all").exits(0);
    let packed = store.join("packed-refs");
    let text = fs::read_to_string(&packed).unwrap();
    let of_2 = text
        .lines()
        .find(|line| line.ends_with(&format!("refs/checkpoints/{id}/watch/2")))
        .unwrap();
    fs::write(&packed, text.replace(of_2, &of_2.replace(" refs", "\u{1}refs"))).unwrap();
    fs::remove_file(store.join("HEAD")).unwrap();
    assert_eq!(project.ids(), [3, 1]);
    project.json(&["rewind", "1", "-y"]);
    is(&project, "f0", V1);
    let damaged = || {
        let verified = project.json(&["status", "--verify"]);
        let warnings = verified["root"]["warnings"].as_array().unwrap().clone();
        warnings
            .into_iter()
            .filter(|warning| warning["kind"] == "store_damaged")
            .any(|warning| warning["message"].as_str().unwrap().starts_with("line "))
    };
    assert!(damaged());
    // A checkpoint whose line is whole can go, and the broken line stays where it can be looked into.
    project.write("f0", "v4\n");
    assert!(project.save() > 3, "numbers are never given again");
    project.json(&["drop", "3", "-y"]);
    project.json(&["recover"]);
    let aside = fs::read_to_string(store.join("damaged-packed-refs-1")).unwrap();
    assert!(aside.contains("\u{1}refs"), "{aside}");
    assert!(!damaged());
    project.fsck();
}

#[test]
fn a_store_that_was_renamed_is_found_and_one_that_lost_its_objects_makes_way() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox, 1);
    let store = project.store();
    project.stepback(&["daemon", "stop"]).exits(0);
    let renamed = store.with_file_name("renamed.git");
    fs::rename(&store, &renamed).unwrap();
    let failed = project.json_code(&["save"], 1);
    assert_eq!(failed["error"]["kind"], "store_damaged", "{failed}");
    project.attach();
    assert_eq!(project.store(), renamed);
    assert_eq!(project.ids(), [3, 2, 1]);
    project.json(&["rewind", "1", "-y"]);
    is(&project, "f0", V1);

    project.stepback(&["daemon", "stop"]).exits(0);
    fs::rename(renamed.join("objects"), sandbox.dir().join("objects")).unwrap();
    let failed = project.json_code(&["attach", "--here"], 1);
    let hint = failed["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("attach --here --new"), "{failed}");
    project.json(&["attach", "--here", "--new", "-y"]);
    assert_ne!(project.store(), renamed);
    assert_eq!(project.ids(), [1]);
    assert!(renamed.join("refs").is_dir(), "what is left of it stays");
    project.write("f0", "v9\n");
    project.save();
    project.fsck();
}

/// What nothing changed since isn't looked at by itself; once it is found to be damaged, the disk has it still.
#[test]
fn what_is_found_damaged_is_written_again_from_the_disk() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("f", "kept\n");
    project.attach();
    project.settle();
    let path = loose(&project, &object(&project, 1, "f"));
    fs::remove_file(&path).unwrap();
    fs::write(&path, "xx").unwrap();
    let found = project.json(&["status", "--verify"]);
    assert!(
        found["root"]["warnings"].to_string().contains("store_damaged"),
        "{found:#}"
    );
    stepback_tests::eventually("it is whole", std::time::Duration::from_secs(30), || {
        let found = project.json(&["status", "--verify"]);
        !found["root"]["warnings"].to_string().contains("store_damaged")
    });
    project.fsck();

    // Of what only an earlier checkpoint has, the disk has nothing: nothing is looked at.
    project.write("f", "other\n");
    project.save();
    fs::remove_file(&path).unwrap();
    project.settle();
    for _ in 0..2 {
        let found = project.json(&["status", "--verify"])["root"].clone();
        assert!(
            found["warnings"]
                .to_string()
                .contains("nothing that is on disk now"),
            "{found:#}"
        );
        assert_eq!(found["settled"], true, "{found:#}");
    }
}

/// With the packs goes what makes a checkpoint of the position. A save that finds nothing changed counts on none of it.
#[test]
fn a_save_after_the_packs_went_is_there_after_a_restart() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox, 2);
    project.json(&["prune", "-y"]);
    for entry in fs::read_dir(project.store().join("objects/pack")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let before = project.tree();
    let n = project.save();
    project.write("f0", "later\n");
    project.stepback(&["daemon", "restart"]).exits(0);
    project.rewind(n);
    before.same(&project.tree(), "what was saved");
}

#[test]
fn a_directory_in_the_place_of_an_object_holds_up_no_save() {
    let sandbox = Sandbox::new();
    let project = project(&sandbox, 2);
    let path = loose(&project, &object(&project, 3, "f0"));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("x"), "x").unwrap();
    project.write("g", "v3\n");
    let n = project.save();
    assert_eq!(project.show(n, "g"), b"v3\n");
    assert!(project.store().join("damaged-object-1/x").is_file());
    project.fsck();
}
