//! Hostile bytes: whatever comes over the wire, decoding ends with a message or an error, never with a panic, and costs
//! no more memory than it was long.
//!
//! `corpus/` holds where mutations start from: a frame's body of every kind of message, and bytes that were interesting
//! once. A body that makes this test fail belongs there, too. `STEPBACK_EXECUTIONS` says how many bodies are tried
//! (`make fuzz`: ten million), `STEPBACK_SEED` tries the same ones again.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::Cursor;
use std::path::PathBuf;
use std::thread;

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde::Serialize;
use serde::de::DeserializeOwned;
use stepback_proto::frame::{self, FrameError};
use stepback_proto::{
    Answer, Attach, ChangeKind, CheckpointEntry, Consent, DaemonInfo, DiffFile, DiffForm, DiffSides, Event,
    FRAME_BYTES_MAX, Failure, FailureKind, FileCounts, Hello, Hook, HookEvent, Item, MAGIC, NamedPath,
    PROTOCOL, Preview, Progress, RedoEntry, Reply, Report, Request, RootState, Selector, SessionLine, Side,
    Tool, Trigger, Verb, Welcome, WirePath,
};

/// So many are tried in a test run.
const EXECUTIONS: u64 = 200_000;

/// A mutated body isn't longer; what matters is in the first bytes.
const BODY_BYTES_MAX: usize = 4096;

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Decodes as every message that has a frame of its own. A message that was read must write the same bytes.
fn decode_all(body: &[u8]) {
    fn one<T: Serialize + DeserializeOwned>(body: &[u8]) {
        match frame::decode::<T>(body) {
            Ok(message) => assert_eq!(frame::encode(&message).unwrap(), body),
            Err(FrameError::Malformed(_)) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    one::<Hello>(body);
    one::<Welcome>(body);
    one::<Request>(body);
    one::<Answer>(body);
}

/// Reads as a stream: whole, cut, and with the length that the bytes themselves say.
fn read_all(body: &[u8], cut: usize) {
    let mut framed = u32::try_from(body.len()).unwrap().to_be_bytes().to_vec();
    framed.extend(body);
    framed.truncate(cut % (framed.len() + 1));
    let _ = frame::read::<Request>(&mut Cursor::new(&framed));
    let _ = frame::read::<Answer>(&mut Cursor::new(body));
    #[cfg(feature = "tokio")]
    {
        use tokio_util::codec::Decoder;
        let mut bytes = tokio_util::bytes::BytesMut::from(&framed[..]);
        let _ = frame::codec().decode(&mut bytes);
    }
}

struct Mutator {
    random: TestRng,
    seeds: Vec<Vec<u8>>,
}

impl Mutator {
    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.random.next_u64() % n.max(1) as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.random.next_u32().to_le_bytes()[0]
    }

    fn seed(&mut self) -> Vec<u8> {
        let at = self.below(self.seeds.len());
        self.seeds[at].clone()
    }

    /// A body to try: random bytes seldom, else one of the corpus with a few things done to it.
    fn body(&mut self) -> Vec<u8> {
        if self.below(8) == 0 {
            let length = self.below(300);
            return (0..length).map(|_| self.byte()).collect();
        }
        let mut body = self.seed();
        for _ in 0..=self.below(6) {
            let at = self.below(body.len() + 1);
            match self.below(8) {
                0 if at < body.len() => body[at] ^= 1 << self.below(8),
                1 if at < body.len() => body[at] = self.byte(),
                // Variants and lengths are small numbers, and hostile ones are huge.
                2 if at < body.len() => body[at] = u8::try_from(self.below(48)).unwrap(),
                3 => {
                    let huge =
                        [u64::MAX, 1 << 62, 1 << 32, FRAME_BYTES_MAX as u64, 1 << 20, 0][self.below(6)];
                    let end = (at + 8).min(body.len());
                    body.splice(at..end, huge.to_le_bytes());
                }
                4 => {
                    let byte = self.byte();
                    body.insert(at, byte);
                }
                5 if at < body.len() => drop(body.remove(at)),
                6 => body.truncate(at),
                _ => {
                    let other = self.seed();
                    let from = self.below(other.len() + 1);
                    body.truncate(at);
                    body.extend(&other[from..]);
                }
            }
        }
        body.truncate(BODY_BYTES_MAX);
        body
    }
}

/// The most memory that this process has had so far, in KiB, where the system tells.
fn peak_kib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[test]
fn no_bytes_make_decoding_panic() {
    let seeds: Vec<Vec<u8>> = fs::read_dir(corpus())
        .unwrap()
        .map(|entry| fs::read(entry.unwrap().path()).unwrap())
        .collect();
    assert!(seeds.len() > 50, "the corpus is gone: {}", seeds.len());
    for seed in &seeds {
        decode_all(seed);
        read_all(seed, seed.len());
    }
    let executions = number("STEPBACK_EXECUTIONS").unwrap_or(EXECUTIONS);
    let seed = number("STEPBACK_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let threads = thread::available_parallelism().map_or(1, |n| n.get() as u64);
    println!("STEPBACK_SEED={seed}, {executions} bodies on {threads} threads");
    thread::scope(|scope| {
        for thread in 0..threads {
            let seeds = seeds.clone();
            scope.spawn(move || {
                let mut bytes = [0; 32];
                bytes[..8].copy_from_slice(&seed.to_le_bytes());
                bytes[8..16].copy_from_slice(&(thread + 1).to_le_bytes());
                let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
                let mut mutator = Mutator { random, seeds };
                for _ in 0..executions.div_ceil(threads) {
                    let body = mutator.body();
                    let cut = mutator.below(body.len() + 5);
                    let tried = std::panic::catch_unwind(|| {
                        decode_all(&body);
                        read_all(&body, cut);
                    });
                    assert!(tried.is_ok(), "this body belongs into the corpus: {body:?}");
                }
            });
        }
    });
    if let Some(peak) = peak_kib() {
        println!("{peak} KiB at the most");
        assert!(peak < 256 * 1024, "{peak} KiB");
    }
}

/// Writes `corpus/` anew, but for what isn't made here.
#[test]
#[ignore = "writes into the source tree"]
fn write_the_corpus() {
    fs::create_dir_all(corpus()).unwrap();
    let write = |name: String, body: Vec<u8>| fs::write(corpus().join(name), body).unwrap();
    let hello = Hello {
        magic: MAGIC,
        protocol: PROTOCOL,
    };
    write("hello".into(), frame::encode(&hello).unwrap());
    let welcome = Welcome {
        protocol: PROTOCOL,
        version: "0.1.0".into(),
        pid: 7,
    };
    write("welcome".into(), frame::encode(&welcome).unwrap());
    for (n, verb) in verbs().into_iter().enumerate() {
        let place = path("/p");
        write(
            format!("request-{n:02}"),
            frame::encode(&Request { place, verb }).unwrap(),
        );
    }
    for (n, answer) in answers().into_iter().enumerate() {
        write(format!("answer-{n:02}"), frame::encode(&answer).unwrap());
    }
    // A path, a list and a text that say that they are longer than everything.
    write("huge-path".into(), (1u64 << 62).to_le_bytes().to_vec());
    let mut list = frame::encode(&path("/p")).unwrap();
    list.extend(10u32.to_le_bytes());
    list.extend(u64::MAX.to_le_bytes());
    write("huge-list".into(), list);
    write(
        "no-such-verb".into(),
        [&[0; 8][..], &u32::MAX.to_le_bytes()].concat(),
    );
    write(
        "http".into(),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
    );
    write("empty".into(), Vec::new());
}

fn path(text: &str) -> WirePath {
    WirePath(text.as_bytes().to_vec())
}

fn verbs() -> Vec<Verb> {
    let id = || Selector::Number(7);
    vec![
        Verb::Attach(Attach {
            path: path("/p"),
            here: true,
            include: vec!["notes/**".into(), "*.log".into()],
            max_file_size: Some(1 << 20),
            force: false,
            new: false,
            yes: true,
        }),
        Verb::Detach {
            forget: true,
            exact: true,
        },
        Verb::Roots,
        Verb::Status { verify: true },
        Verb::Save {
            label: Some("before".into()),
            pin: true,
        },
        Verb::List {
            limit: Some(3),
            session: Some("s".into()),
            path: Some(path("/p/a")),
        },
        Verb::Show { id: Selector::Latest },
        Verb::Cat {
            id: Selector::First,
            path: path("a/b"),
        },
        Verb::Diff {
            between: DiffSides::Between(Selector::Back(2), Selector::At(-1)),
            paths: vec![path("/p/a"), path("/p/b")],
            form: DiffForm::Patch,
        },
        Verb::Diff {
            between: DiffSides::PositionToTree,
            paths: vec![],
            form: DiffForm::Names,
        },
        Verb::Rewind {
            id: Some(Selector::Session("s".into())),
            how: Consent::YesTo(vec![1; 20]),
        },
        Verb::Restore {
            id: Selector::TurnBack(1),
            paths: vec![path("/p/a")],
            how: Consent::Preview,
        },
        Verb::Redo { how: Consent::Yes },
        Verb::Recover { undo: true },
        Verb::SessionStart {
            name: None,
            command: Some("make".into()),
            pid: Some(9),
        },
        Verb::SessionEnd {
            name: Some("s".into()),
            revert: Some(Consent::Yes),
        },
        Verb::SessionList,
        Verb::SessionShow { name: None },
        Verb::Pin {
            id: id(),
            pinned: false,
        },
        Verb::Drop {
            ids: vec![id(), Selector::Turn(3)],
            preview: true,
        },
        Verb::Watch,
        Verb::ExportPatch { id: id() },
        Verb::ExportTar { id: id() },
        Verb::Ping,
        Verb::Shutdown,
        Verb::Hook(Box::new(Hook {
            agent: "a".into(),
            session: "s".into(),
            transcript: Some(path("/t")),
            pid: Some(1),
            event: HookEvent::ToolStart(Tool {
                name: "Edit".into(),
                edits: vec![path("/p/a")],
                destructive: true,
                writes: true,
            }),
        })),
        Verb::HooksSeen,
    ]
}

fn checkpoint() -> Box<CheckpointEntry> {
    Box::new(CheckpointEntry {
        id: 2,
        base: Some(1),
        session: "watch".into(),
        sessions: vec!["watch".into()],
        time_ms: 1,
        trigger: Trigger::Auto,
        label: None,
        agent: Some("a".into()),
        agent_session: None,
        turn: Some(1),
        prompt: Some("do it".into()),
        tools: vec!["Edit".into()],
        files: FileCounts::default(),
        tree: "t".into(),
        commit: "c".into(),
        conversation: vec![],
        pinned: false,
        not_captured: 0,
    })
}

fn answers() -> Vec<Answer> {
    let named = || NamedPath {
        path: path("a"),
        reason: "too-large".into(),
    };
    let line = SessionLine {
        session: "s".into(),
        command: None,
        started_ms: 1,
        ended_ms: Some(2),
        checkpoints: 3,
    };
    let items = [
        Item::Checkpoint(checkpoint()),
        Item::Bytes(vec![0; 64]),
        Item::DiffFile(DiffFile {
            path: path("a"),
            status: ChangeKind::TypeChanged,
            old_mode: Some(0o100_644),
            new_mode: None,
            insertions: 1,
            deletions: 2,
            binary: true,
        }),
        Item::Event(Box::new(Event::State {
            root: path("/p"),
            state: RootState::Missing,
        })),
        Item::Event(Box::new(Event::Checkpoint {
            root: path("/p"),
            checkpoint: checkpoint(),
        })),
        Item::NotCaptured(named()),
        Item::Kept(named()),
        Item::NotCovered(named()),
        Item::Session(line),
    ];
    let replies = [
        Reply::Empty,
        Reply::Detached {
            path: path("/p"),
            id: "p-1".into(),
            forgotten: false,
        },
        Reply::Saved {
            id: 1,
            created: true,
            tree: "t".into(),
            not_captured: 0,
        },
        Reply::List {
            root: path("/p"),
            current: Some(2),
            redo: vec![RedoEntry {
                id: 1,
                operation: "rewind".into(),
                target: 1,
                time_ms: 5,
            }],
        },
        Reply::Checkpoint(checkpoint()),
        Reply::Diff {
            from: Side::Checkpoint(1),
            to: Side::Tree,
        },
        Reply::Preview(Preview {
            target: 1,
            plan: vec![9; 20],
            noop: false,
        }),
        Reply::Report(Report {
            target: 1,
            saved: Some(2),
            back: None,
            written: 3,
            removed: 4,
            redoable: true,
            redo: 1,
            notes: vec!["n".into()],
        }),
        Reply::SessionStarted {
            session: "s".into(),
            checkpoint: 1,
        },
        Reply::Pinned { id: 1, pinned: true },
        Reply::Dropped {
            dropped: vec![1, 2],
            redo: vec![],
            freed_bytes: 9,
            notes: vec![],
        },
        Reply::Daemon(DaemonInfo {
            version: "0.1.0".into(),
            pid: 7,
            uptime_s: 1,
            rss_bytes: 2,
            socket: path("/s"),
            log: None,
        }),
    ];
    let progress = Answer::Progress(Progress {
        what: "indexing".into(),
        done: 1,
        total: 0,
    });
    let failed = Answer::Failed(Failure {
        kind: FailureKind::Internal,
        message: "m".into(),
        hint: "h".into(),
    });
    let mut answers = vec![progress, failed];
    answers.extend(items.into_iter().map(Answer::Item));
    answers.extend(replies.into_iter().map(Answer::Done));
    answers
}
