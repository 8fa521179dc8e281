//! What can't be seen in bytes and plain modes: ACLs, attributes, set-id bits, links, names and depths.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use nix::unistd::geteuid;
use stepback_tests::{Project, Sandbox};

use crate::support::{V1, is, paths};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// An ACL as the kernel has it: `rwx` bits of the owner, of user 65534, of the group, of the mask, of others.
fn acl(owner: u16, other_user: u16, group: u16, mask: u16, others: u16) -> Vec<u8> {
    const NO_ID: u32 = u32::MAX;
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, bits, id) in [
        (0x01u16, owner, NO_ID),
        (0x02, other_user, 65534),
        (0x04, group, NO_ID),
        (0x10, mask, NO_ID),
        (0x20, others, NO_ID),
    ] {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(bits.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// Everything that the kernel lists for a path, without following links.
fn attributes(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let names = xattr::list(path).unwrap();
    let mut found: Vec<_> = names
        .filter_map(|name| Some((name.as_bytes().to_vec(), xattr::get(path, &name).ok()??)))
        .collect();
    found.sort();
    found
}

type Picture = Vec<(String, u32, Vec<(Vec<u8>, Vec<u8>)>)>;

fn picture(project: &Project<'_>, names: &[&str]) -> Picture {
    let of = |name: &&str| {
        let path = project.path.join(name);
        let metadata = fs::symlink_metadata(&path).ok()?;
        let attributes = if metadata.is_symlink() {
            Vec::new()
        } else {
            attributes(&path)
        };
        Some(((*name).to_owned(), metadata.mode() & 0o7777, attributes))
    };
    names.iter().filter_map(of).collect()
}

/// `false`, with a printed reason, where the file system takes no ACLs or attributes.
fn takes(path: &Path, name: &str, value: &[u8]) -> bool {
    match xattr::set(path, name, value) {
        Ok(()) => true,
        Err(error) => {
            println!("skipped: {name} can't be set here: {error}");
            false
        }
    }
}

#[test]
fn acls_of_files_and_directories_come_back() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("mkdir d plain; for f in a b c gone d/in; do printf 'v1\\n' > $f; done");
    let at = |name: &str| project.path.join(name);
    if !takes(&at("a"), ACCESS, &acl(6, 4, 4, 4, 0)) || !takes(&at("d"), DEFAULT, &acl(7, 5, 5, 5, 0)) {
        return;
    }
    xattr::set(at("gone"), ACCESS, &acl(6, 6, 0, 6, 4)).unwrap();
    xattr::set(at("d"), ACCESS, &acl(7, 5, 5, 7, 5)).unwrap();
    xattr::set(at("c"), ACCESS, &acl(6, 4, 0, 4, 0)).unwrap();
    // Made under a default ACL, so that it has one by itself; and one there that has none.
    project.sh("printf 'v1\\n' > d/inherits");
    xattr::remove(at("d/in"), ACCESS).ok();
    let names = ["", "a", "b", "c", "gone", "d", "d/in", "d/inherits", "plain"];
    project.attach();
    let first = project.save();
    let before = picture(&project, &names);
    assert!(
        before
            .iter()
            .any(|(name, _, attributes)| name == "d/inherits" && !attributes.is_empty())
    );

    // Changed with the bytes, alone, taken away, newly given, gone with the file.
    project.sh("printf 'v2\\n' > a; rm gone; printf 'v2\\n' > d/in; rm d/inherits");
    xattr::set(at("a"), ACCESS, &acl(6, 0, 0, 0, 0)).unwrap();
    xattr::remove(at("c"), ACCESS).unwrap();
    xattr::set(at("b"), ACCESS, &acl(6, 6, 6, 6, 0)).unwrap();
    xattr::remove(at("d"), DEFAULT).unwrap();
    xattr::set(at("plain"), DEFAULT, &acl(7, 7, 7, 7, 7)).unwrap();
    let second = project.save();
    let after = picture(&project, &names);
    project.rewind(first);
    assert_eq!(picture(&project, &names), before);
    project.redo();
    assert_eq!(picture(&project, &names), after);

    // An ACL alone makes a checkpoint.
    xattr::remove(at("b"), ACCESS).unwrap();
    project.settle();
    assert!(project.ids()[0] > second);
    // Directories that are made again, with all that is in them.
    project.sh("rm -rf d plain a");
    project.rewind(first);
    assert_eq!(picture(&project, &names), before);
}

/// An operation narrows such a directory first, which the kernel writes into its ACL.
#[test]
fn a_directory_with_an_acl_is_closed_again_to_those_to_whom_it_was_opened() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("mkdir e; printf 'v1\\n' > e/f; chmod 750 e");
    let dir = project.path.join("e");
    if !takes(&dir, ACCESS, &acl(7, 7, 5, 7, 0)) {
        return;
    }
    let names = ["e", "e/f"];
    let before = picture(&project, &names);
    project.attach();
    for bits in ["775", "570", "777"] {
        project.sh(&format!("printf 'v2\\n' > e/f; chmod {bits} e"));
        project.stepback(&["save"]).exits(0);
        let opened = picture(&project, &names);
        project.stepback(&["rewind", "1", "-y"]).exits(0);
        assert_eq!(picture(&project, &names), before, "{bits}");
        is(&project, "e/f", V1);
        project.stepback(&["redo", "-y"]).exits(0);
        assert_eq!(picture(&project, &names), opened, "{bits}");
        project.stepback(&["rewind", "1", "-y"]).exits(0);
        assert_eq!(picture(&project, &names), before, "{bits}");
    }
}

#[test]
fn user_attributes_of_directories_and_of_the_root_come_back_and_no_link_is_followed() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let outside = sandbox.dir().join("work/outside");
    fs::write(&outside, "KEEP\n").unwrap();
    project.sh("mkdir d; printf 'v1\\n' > f; ln -s f link; ln -s ../outside far");
    let at = |name: &str| project.path.join(name);
    if !takes(&at("d"), "user.kind", b"x\0\xff") {
        return;
    }
    xattr::set(&project.path, "user.root", b"1").unwrap();
    xattr::set(at("f"), "user.empty", b"").unwrap();
    xattr::set(&outside, "user.far", b"1").unwrap();
    let names = ["", "d", "f", "link", "far"];
    project.attach();
    let first = project.save();
    let before = picture(&project, &names);
    // What a link leads to is no part of the link.
    xattr::set(&outside, "user.far", b"2").unwrap();
    assert_eq!(project.save(), first);

    xattr::set(at("d"), "user.kind", b"y").unwrap();
    xattr::remove(&project.path, "user.root").unwrap();
    project.sh("rm link f; ln -s far link; printf 'v1\\n' > f");
    project.save();
    project.rewind(first);
    assert_eq!(picture(&project, &names), before);
    assert_eq!(xattr::get(&outside, "user.far").unwrap(), Some(b"2".to_vec()));
    project.sh("rm -r d f");
    project.rewind(first);
    assert_eq!(picture(&project, &names), before);
}

#[test]
fn hard_links_come_apart_and_that_is_said() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\\n' > a; ln a b; ln a ../outside; printf 'v1\\n' > single");
    project.attach();
    let first = project.save();
    let tree = project.tree();
    project.sh("printf 'v2\\n' > a; printf 'v2\\n' > single");
    project.save();
    let report = project.stepback(&["rewind", &first.to_string(), "-y"]).exits(0);
    let said = format!("{}{}", report.text(), report.stderr);
    assert!(
        said.contains(
            "a, b: each a file of its own now, no hard link; names that this leaves alone keep the bytes"
        ),
        "{said}"
    );
    tree.same(&project.tree(), "after the rewind");
    assert_eq!(fs::metadata(project.path.join("a")).unwrap().nlink(), 1);
    assert_eq!(
        fs::read(sandbox.dir().join("work/outside")).unwrap(),
        b"v2\n",
        "a name outside the root keeps its bytes"
    );
    let report = project.stepback(&["redo", "-y"]).exits(0);
    assert!(!report.stderr.contains("hard link") && !report.text().contains("hard link"));

    project.sh("rm a b; printf 'v3\\n' > a; ln a b");
    let report = project.stepback(&["rewind", "latest", "-y"]).exits(0);
    let said = format!("{}{}", report.text(), report.stderr);
    assert!(
        said.contains("a, b: each a file of its own now, no hard link\n"),
        "no name is left alone: {said}"
    );
    is(&project, "b", crate::support::V2);
}

#[test]
fn all_twelve_bits_of_files_and_directories_under_any_umask() {
    for umask in ["077", "002", "022"] {
        let sandbox = Sandbox::new();
        let start = format!("umask {umask}; exec \"$@\"");
        let prefix = ["sh", "-c", &start, "sh"].map(OsStr::new);
        let _daemon = sandbox.daemon_under(&prefix);
        let project = sandbox.project("p");
        let modes = [
            0o600, 0o644, 0o664, 0o666, 0o755, 0o700, 0o400, 0o1644, 0o2755, 0o4755, 0o6711, 0o7777,
        ];
        let dirs = [0o700, 0o755, 0o775, 0o777, 0o1777, 0o2775, 0o3770, 0o500, 0o7755];
        let chmod = |name: &str, mode| {
            fs::set_permissions(project.path.join(name), fs::Permissions::from_mode(mode)).unwrap();
        };
        let set = |rotate: usize| {
            for (i, _) in dirs.iter().enumerate() {
                chmod(&format!("d{i}"), dirs[(i + rotate) % dirs.len()]);
            }
            for (i, _) in modes.iter().enumerate() {
                chmod(&format!("f{i}"), modes[(i + rotate) % modes.len()]);
            }
        };
        for (i, _) in dirs.iter().enumerate() {
            project.sh(&format!("mkdir d{i}; printf 'v1\\n' > d{i}/in"));
        }
        for (i, _) in modes.iter().enumerate() {
            project.write(&format!("f{i}"), "v1\n");
        }
        set(0);
        project.attach();
        let first = project.save();
        let before = project.tree();
        set(1);
        let second = project.save();
        assert!(second > first, "modes alone make a checkpoint");
        let after = project.tree();
        project.rewind(first);
        before.same(&project.tree(), &format!("umask {umask}, modes alone"));
        project.rewind(second);
        after.same(&project.tree(), &format!("umask {umask}, forward"));
        project.sh("chmod -R u+rwX .; rm -rf d* f*");
        let report = project.rewind(first);
        assert_eq!(paths(&report["kept"]), [""; 0]);
        before.same(&project.tree(), &format!("umask {umask}, all made again"));
    }
}

/// Root gives nobody's program back as nobody's, or without the bits that would make it root's.
#[test]
fn set_id_bits_never_change_hands() {
    if !geteuid().is_root() {
        println!("skipped: files are given away by root alone");
        return;
    }
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("mkdir theirs; for f in mine kept theirs/gone; do printf 'v1\\n' > $f; done");
    let mode = |name: &str| fs::metadata(project.path.join(name)).map(|m| (m.uid(), m.mode() & 0o7777));
    let give = |name: &str, mode| {
        let path = project.path.join(name);
        chown(&path, Some(65534), Some(65534)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    give("theirs", 0o755);
    give("kept", 0o4755);
    give("theirs/gone", 0o6755);
    project.sh("chmod 4755 mine");
    project.attach();
    let first = project.save();
    fs::write(project.path.join("kept"), "v2\n").unwrap();
    fs::set_permissions(project.path.join("kept"), fs::Permissions::from_mode(0o4755)).unwrap();
    project.sh("rm mine theirs/gone");
    project.save();
    let report = project.stepback(&["rewind", &first.to_string(), "-y"]).code();
    assert!([0, 3].contains(&report));
    assert_eq!(mode("kept").unwrap(), (65534, 0o4755), "as its owner had it");
    assert_eq!(mode("mine").unwrap(), (0, 0o4755));
    let (owner, bits) = mode("theirs/gone").unwrap();
    assert!(owner == 65534 || bits & 0o6000 == 0, "{owner} {bits:o}");
    is(&project, "theirs/gone", V1);
}

#[test]
fn files_of_just_the_size_and_paths_longer_than_the_system_takes() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let part = "d".repeat(200);
    let down = format!("i=0; while [ $i -lt 30 ]; do mkdir -p {part}; cd -P {part}; i=$((i+1)); done");
    project.sh(&format!(
        "{down}; printf 'v1\\n' > deep; mkdir -m 710 dir; ln -s deep link"
    ));
    project.write("just", "x".repeat(1000));
    project.write("over", "x".repeat(1001));
    project.write("none", "");
    project.json(&["attach", "--here", "--max-file-size", "1000"]);
    let first = project.save();
    assert_eq!(
        paths(&project.json(&["show", "latest"])["not_captured"]),
        ["over"]
    );
    assert_eq!(project.show(first, "just").len(), 1000);

    project.sh(&format!("{down}; printf 'v2\\n' > deep; rmdir dir; rm link"));
    project.write("just", "grown\n");
    project.write("none", "no more\n");
    project.save();
    project.rewind(first);
    let told = project.sh(&format!(
        "{down} >/dev/null; cat deep; readlink link; stat -c %a dir"
    ));
    assert_eq!(told.text(), "v1\ndeep\n710\n");
    assert_eq!(project.read("just").len(), 1000);
    assert_eq!(project.read("none"), b"");
    assert_eq!(project.read("over").len(), 1001);
    project.sh("rm -rf d*");
    project.rewind(first);
    let told = project.sh(&format!(
        "{down} >/dev/null; cat deep; readlink link; stat -c %a dir"
    ));
    assert_eq!(told.text(), "v1\ndeep\n710\n");
    // A name as long as can be, with every odd byte in it.
    let mut name = vec![b'n'; 255];
    name[..5].copy_from_slice(b"\xff\n\\\" ");
    let odd = project.path.join(OsStr::from_bytes(&name));
    symlink(OsStr::from_bytes(&name), &odd).unwrap();
    let with = project.save();
    fs::remove_file(&odd).unwrap();
    project.rewind(with);
    assert_eq!(fs::read_link(&odd).unwrap().as_os_str().as_bytes(), name);
}
