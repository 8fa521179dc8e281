//! Large files: what they may cost in memory, and those that nobody may read at all.

use std::fs;

use nix::unistd::Pid;
use stepback_tests::{Finished, Project, Sandbox, forget_peak, peak_bytes, read_bytes, resident_bytes};

use crate::support::{number_from, random_bytes};

/// What a question about large files may cost the daemon above what it holds anyway, bytes.
const MORE: u64 = 64 << 20;

/// What a client may address in all, KiB: as much, beside its program and libraries.
const CLIENT_KIB: u64 = (64 << 10) + (32 << 10);

/// Runs the client with no more memory than that; a panic or an abort isn't 0.
fn bounded(project: &Project<'_>, args: &str) -> Finished {
    let program = project.sandbox.program("stepback");
    project.sh(&format!(
        "ulimit -v {CLIENT_KIB}; exec '{}' {args}",
        program.display()
    ))
}

/// What `work` costs the daemon at its highest, bytes.
fn costs(pid: Pid, work: impl FnOnce()) -> u64 {
    forget_peak(pid);
    let before = resident_bytes(pid);
    work();
    peak_bytes(pid).saturating_sub(before)
}

fn mib() -> u64 {
    number_from("STEPBACK_MIB", 100)
}

#[test]
fn a_diff_of_large_files_names_them_and_holds_none() {
    let sandbox = Sandbox::new();
    sandbox.configure("max_file_size = \"1 GiB\"\n");
    let daemon = sandbox.daemon();
    let project = sandbox.project("p");
    let make = |word: &str| project.sh(&format!("yes 'a line of {word} text' | head -c {}M > big", mib()));
    make("old");
    project.sh("yes '' | head -c 8M > lines");
    project.attach();
    make("new");
    project.sh("yes 1 | head -c 8M > lines");
    let more = costs(daemon.pid(), || {
        project.save();
    });
    assert!(more < MORE, "a capture streams: {} MiB", more >> 20);
    for args in ["diff 1 2", "diff 1 2 --stat", "--json diff 1 2", "diff 1"] {
        let more = costs(daemon.pid(), || {
            let said = bounded(&project, args).text();
            assert!(said.len() < 1000, "{args}: {} bytes", said.len());
            let word = if args.contains("--json") {
                "\"binary\":true"
            } else {
                "inary"
            };
            assert!(said.contains("lines"), "{args}: {said}");
            assert!(
                said.contains("big") && (said.contains(word) || said.contains("Bin")),
                "{args}: {said}"
            );
        });
        println!("{args}: {} KiB", more >> 10);
        assert!(more < MORE, "{args}: {} MiB", more >> 20);
    }
}

#[test]
fn an_exported_patch_of_a_large_file_is_streamed_and_applies() {
    let sandbox = Sandbox::new();
    sandbox.configure("max_file_size = \"1 GiB\"\n");
    let daemon = sandbox.daemon();
    let project = sandbox.project("p");
    // As large as it has to be, and a patch that is written soon.
    let mut bytes = random_bytes(1, 4 << 20);
    bytes.resize(usize::try_from(mib()).unwrap() << 20, b'x');
    let old = bytes.clone();
    project.write("big", &bytes);
    project.attach();
    bytes[1000] ^= 1;
    project.write("big", &bytes);
    project.save();
    project.write("big", "small now\n");
    project.save();
    fs::remove_file(project.file("big")).unwrap();
    project.save();
    let (forth, back) = (sandbox.project("forth"), sandbox.project("back"));
    forth.write("big", &old);
    for id in [2, 3, 4] {
        let patch = sandbox.dir().join(format!("patch{id}"));
        let more = costs(daemon.pid(), || {
            bounded(&project, &format!("export {id} --patch '{}'", patch.display()));
        });
        println!(
            "{id}: {} MiB more, a patch of {} MiB",
            more >> 20,
            fs::metadata(&patch).unwrap().len() >> 20
        );
        assert!(more < MORE, "{} MiB", more >> 20);
        forth.sh(&format!("git apply '{}'", patch.display()));
        if id == 2 {
            assert!(forth.read("big") == bytes, "forth");
        }
    }
    assert!(!forth.file("big").exists());
    back.sh("git init -q");
    for id in [4, 3, 2] {
        let patch = sandbox.dir().join(format!("patch{id}"));
        back.sh(&format!("git apply -R '{}'", patch.display()));
    }
    assert!(back.read("big") == old, "back");
}

#[test]
fn a_file_above_the_limit_is_never_read() {
    let sandbox = Sandbox::new();
    let daemon = sandbox.daemon();
    let project = sandbox.project("p");
    project.write("small", "1");
    project.sh("truncate -s 1G before");
    let started = read_bytes(daemon.pid());
    project.attach();
    project.sh("truncate -s 1G after; echo 2 > small; touch before");
    project.settle();
    project.save();
    project.write("small", "3");
    // It is not in the checkpoint, and kept.
    project.stepback(&["rewind", "1", "-y"]).exits(3);
    let read = read_bytes(daemon.pid()) - started;
    println!("{} KiB read", read >> 10);
    assert!(read < 64 << 20, "{} MiB were read", read >> 20);
    let left_out = project.status()["not_captured"].clone();
    let paths: Vec<_> = left_out
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["path"].clone())
        .collect();
    assert_eq!(paths, ["after", "before"]);
}

#[test]
fn a_file_at_the_limit_is_streamed() {
    let sandbox = Sandbox::new();
    sandbox.configure(&format!("max_file_size = \"{} MiB\"\n", mib()));
    let daemon = sandbox.daemon();
    let project = sandbox.project("p");
    let bytes = random_bytes(2, usize::try_from(mib()).unwrap() << 20);
    project.write("big", &bytes);
    let sum = project.sha256("big");
    let attached = costs(daemon.pid(), || {
        project.attach();
    });
    project.write("big", "other");
    project.save();
    let rewound = costs(daemon.pid(), || {
        project.rewind(1);
    });
    assert_eq!(project.sha256("big"), sum);
    println!("attach {} MiB, rewind {} MiB", attached >> 20, rewound >> 20);
    assert!(attached < MORE, "attach: {} MiB", attached >> 20);
    assert!(rewound < MORE, "rewind: {} MiB", rewound >> 20);
    let archived = costs(daemon.pid(), || {
        bounded(&project, "export 1 --tar ../tree.tar");
    });
    let shown = costs(daemon.pid(), || {
        bounded(&project, "show 1:big > ../shown");
    });
    assert!(fs::read(project.path.with_file_name("shown")).unwrap() == bytes);
    println!("tar {} MiB, show {} MiB", archived >> 20, shown >> 20);
    assert!(archived < MORE && shown < MORE);
}

#[test]
fn a_large_file_is_streamed_from_a_pack_too_and_maintenance_puts_none_there() {
    const MORE: u64 = 16 << 20;
    let sandbox = Sandbox::new();
    let daemon = sandbox.daemon();
    let project = sandbox.project("p");
    project.write("big", random_bytes(3, 20 << 20));
    let sum = project.sha256("big");
    project.attach();
    for word in ["other", "and another"] {
        project.write("big", word);
        project.save();
    }
    let loose_kib = || {
        let said = project.store_git("count-objects -v");
        let size = said.lines().find_map(|line| line.strip_prefix("size: "));
        size.unwrap().parse::<u64>().unwrap()
    };
    project.json(&["drop", "2", "-y"]);
    let packed = project.store_git("count-objects -v").contains("packs: 1");
    assert!(packed && loose_kib() > 20 << 10, "{} KiB are loose", loose_kib());
    project.fsck();
    // Other programs may have put it there, and versions before this one did.
    for place in ["loose", "packed"] {
        if place == "packed" {
            project.store_git("-c pack.compression=0 repack -a -d -q");
            assert!(loose_kib() < 1000, "{} KiB are loose", loose_kib());
        }
        project.json(&["status"]);
        let shown = costs(daemon.pid(), || {
            bounded(&project, "show 1:big > ../shown");
        });
        assert_eq!(project.sha256("../shown"), sum);
        let rewound = costs(daemon.pid(), || {
            project.rewind(1);
        });
        assert_eq!(project.sha256("big"), sum);
        let verified = costs(daemon.pid(), || {
            project.json(&["status", "--verify"]);
        });
        let back = costs(daemon.pid(), || {
            project.rewind(3);
        });
        println!(
            "{place}: show {} KiB, rewind {}, status --verify {}, rewind back {}",
            shown >> 10,
            rewound >> 10,
            verified >> 10,
            back >> 10
        );
        for more in [shown, rewound, verified, back] {
            assert!(more < MORE, "{place}: {} MiB", more >> 20);
        }
    }
}
