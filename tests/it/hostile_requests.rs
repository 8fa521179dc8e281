//! What those who get in may send: paths that lead out, garbage, and more connections than there is room for.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use stepback_proto::{Attach, Consent, FailureKind, Selector, Verb, WirePath};
use stepback_tests::{Sandbox, Wire, eventually};

#[test]
fn hostile_paths_reach_nothing() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("printf 'v1\n' > a; mkdir d; printf 'in\n' > d/f; ln -s ../../outside out");
    let outside = sandbox.dir().join("work/outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("f"), "secret\n").unwrap();
    project.attach();
    let first = project.save();
    let (tree, ids) = (project.tree(), project.ids());
    let root = project.path.as_os_str().as_encoded_bytes();
    let wire = || Wire::connect(&sandbox.socket()).unwrap().introduced();
    let id = || Selector::Number(first);
    let path = |bytes: &[u8]| WirePath(bytes.to_vec());
    let below = |rest: &[u8]| [root, rest].concat();

    for place in [
        &b""[..],
        b"p",
        b".",
        &below(b"/../outside"),
        &below(b"/./d"),
        &below(b"/d\0x"),
        &below(b"/d/.."),
    ] {
        let failure = wire().failure(
            place,
            Verb::Save {
                label: None,
                pin: false,
            },
        );
        assert_eq!(failure.kind, FailureKind::Usage, "{place:?}: {failure:?}");
        let attach = Attach {
            path: path(place),
            here: true,
            include: Vec::new(),
            max_file_size: None,
            force: true,
            new: false,
            yes: true,
        };
        let failure = wire().failure(root, Verb::Attach(attach));
        assert_eq!(failure.kind, FailureKind::Usage, "{place:?}: {failure:?}");
    }
    let hostile = [
        below(b"/../outside/f"),
        below(b"/d/../../outside/f"),
        below(b"/a\0"),
        outside.join("f").into_os_string().into_encoded_bytes(),
        below(b"/.git/config"),
        below(b"/d/.git"),
        b"/etc/passwd".to_vec(),
        b"a".to_vec(),
    ];
    for named in &hostile {
        for verb in [
            Verb::Restore {
                id: id(),
                paths: vec![path(named)],
                how: Consent::Yes,
            },
            Verb::List {
                limit: None,
                session: None,
                path: Some(path(named)),
            },
        ] {
            let failure = wire().failure(root, verb);
            assert!(
                matches!(failure.kind, FailureKind::Usage | FailureKind::NoSuchPath),
                "{named:?}: {failure:?}"
            );
        }
    }
    for named in [
        &b"../outside/f"[..],
        b"d/../../outside/f",
        b"out/f",
        b"a\0",
        b"/etc/passwd",
        b".git/config",
        b"",
    ] {
        let failure = wire().failure(
            root,
            Verb::Cat {
                id: id(),
                path: path(named),
            },
        );
        assert_eq!(failure.kind, FailureKind::NoSuchPath, "{named:?}: {failure:?}");
    }
    for name in ["../x", "a/b", "", "x\0", ".", "-"] {
        let failure = wire().failure(
            root,
            Verb::SessionStart {
                name: Some(name.into()),
                command: None,
                pid: None,
            },
        );
        assert_eq!(failure.kind, FailureKind::Usage, "{name:?}: {failure:?}");
    }
    tree.same(&project.tree(), "after all that");
    assert_eq!(project.ids(), ids);
    // Text is only text: it changes no record.
    let label = "a\0b\n\n{\"n\":99}\n\u{1b}[2J".to_owned();
    let _ = wire().ask(
        root,
        Verb::Save {
            label: Some(label),
            pin: false,
        },
    );
    let id = project.status()["id"].as_str().unwrap().to_owned();
    let before = project.list();
    project.stepback(&["daemon", "restart"]).exits(0);
    project.settle();
    assert_eq!(project.list(), before, "{id} reads as it was written");
    project.fsck();
}

#[test]
fn garbage_halves_and_ten_thousand_connections_cost_little_and_keep_nobody_out() {
    let sandbox = Sandbox::alone();
    let daemon = sandbox.daemon();
    let project = sandbox.project("p");
    project.attach();
    let socket = sandbox.socket();
    let memory = |name: &str| -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_start_matches(':')
            .trim()
            .trim_end_matches(" kB")
            .trim()
            .parse()
            .unwrap()
    };
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        &[0xff; 4096],
        &[0, 0, 0, 1, 7],
        &[0, 0, 0, 0],
    ] {
        let mut wire = Wire::connect(&socket).unwrap();
        wire.send(bytes);
        assert_eq!(wire.rest(), b"", "a stranger gets no byte: {bytes:?}");
    }
    let mut oversized = Wire::connect(&socket).unwrap().introduced();
    oversized.send(&u32::MAX.to_be_bytes());
    assert!(!oversized.rest().is_empty(), "it is told what is wrong");

    let before = memory("VmRSS");
    let descriptors = || {
        fs::read_dir(format!("/proc/{}/fd", daemon.pid()))
            .unwrap()
            .count()
    };
    let open = descriptors();
    let flood = {
        let socket = socket.clone();
        let half = [&0x000f_ffff_u32.to_be_bytes()[..], &[7; 60_000]].concat();
        std::thread::spawn(move || {
            // So many at once as this process may have open, ten thousand in all.
            let mut held = std::collections::VecDeque::new();
            let mut refused = 0;
            for n in 0..10_000 {
                if held.len() >= 3_000 {
                    held.pop_front();
                }
                let Ok(mut stream) = UnixStream::connect(&socket) else {
                    refused += 1;
                    continue;
                };
                stream.set_nonblocking(true).unwrap();
                match n % 4 {
                    0 => {}
                    1 => drop(stream.write_all(b"garbage garbage garbage")),
                    2 => drop(stream.write_all(&[0, 0, 0, 8])),
                    _ => drop(stream.write_all(&half)),
                }
                held.push_back(stream);
            }
            (held.len(), refused)
        })
    };
    let mut longest = Duration::ZERO;
    let mut answered = 0;
    while !flood.is_finished() {
        let began = Instant::now();
        project.stepback(&["list"]).exits(0);
        longest = longest.max(began.elapsed());
        answered += 1;
    }
    let (held, refused) = flood.join().unwrap();
    let grown = memory("VmHWM").saturating_sub(before);
    println!(
        "10,000 connections ({held} held, {refused} refused): {answered} commands meanwhile, the longest {longest:?}, \
         {grown} KiB more at the most"
    );
    assert!(answered > 0, "the flood was over before anything was asked");
    assert!(longest < Duration::from_secs(10), "{longest:?}");
    assert!(grown < 48 * 1024, "{grown} KiB");
    eventually("the descriptors are given back", Duration::from_secs(60), || {
        descriptors() <= open + 4
    });
}
