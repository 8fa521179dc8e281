//! The parts that the time goes to, each alone: `cargo bench -p stepback-engine`. Both programs as people run them, beside
//! their peers, are measured by `make bench`.

#![allow(
    missing_docs,
    clippy::disallowed_methods,
    reason = "criterion's macros make public functions; the clock is the caller's, which is what this is"
)]

use std::collections::BTreeSet;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use stepback_engine::checkpoint::Trigger;
use stepback_engine::engine::{AttachRequest, Context, Engine, Environment, Scope, Settings, Why};
use stepback_engine::oid::ObjectKind;
use stepback_engine::path::TreePath;
use stepback_engine::progress::Progress;
use stepback_engine::rules::{GitEnvironment, Rules};
use stepback_engine::store::{Store, TreeEntry, encode_tree, parse_tree};
use stepback_engine::time::Time;
use stepback_engine::tree::NoWatch;

const DIRS: usize = 100;
const FILES_A_DIR: usize = 20;

/// Text, about as compressible as source code.
fn text(seed: usize) -> Vec<u8> {
    (0..120)
        .flat_map(|line| format!("let v{} = call({});\n", seed ^ (line * 7919), line).into_bytes())
        .collect()
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// A directory of 2,000 files that was captured once.
struct Root {
    engine: Engine,
    dir: tempfile::TempDir,
}

impl Root {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let root = dir.path().join("root");
        for number in 0..DIRS {
            let below = root.join(format!("a{}/d{number}", number % 10));
            fs::create_dir_all(&below).expect("own directory");
            for file in 0..FILES_A_DIR {
                fs::write(below.join(format!("f{file}")), text(number * 100 + file)).expect("own file");
            }
        }
        fs::write(root.join(".gitignore"), "*.o\n/build/\n!keep.o\n").expect("own file");
        let env = Environment {
            state_dir: dir.path().join("state"),
            runtime_dir: None,
            git: GitEnvironment::default(),
            conversations: Default::default(),
        };
        let settings = Settings {
            include: Vec::new(),
            max_file_size: 100 << 20,
            conversations: false,
        };
        let request = AttachRequest {
            path: root,
            ..AttachRequest::default()
        };
        let engine = Engine::attach(&env, &request, &settings, now())
            .expect("a new root")
            .engine;
        let mut made = Self { engine, dir };
        made.capture(Scope::All);
        made
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("root")
    }

    fn capture(&mut self, scope: Scope) {
        let progress = Progress::default();
        let cx = Context {
            now: now(),
            watch: &NoWatch,
            progress: &progress,
        };
        let captured = self.engine.capture(scope, &Why::plain(Trigger::Auto), &cx);
        black_box(captured.expect("a checkpoint"));
    }
}

/// Hash and compress: a store is told of 200 new blobs.
fn hash_and_deflate(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = Store::create(&dir.path().join("s.git")).expect("a new store");
    let bodies: Vec<Vec<u8>> = (0..200).map(text).collect();
    let mut group = c.benchmark_group("store");
    group.throughput(Throughput::Bytes(
        bodies.iter().map(|body| body.len() as u64).sum(),
    ));
    group.bench_function("hash and deflate 200 blobs", |b| {
        b.iter(|| {
            let writer = store.writer();
            for body in &bodies {
                black_box(writer.put(ObjectKind::Blob, body).expect("room"));
            }
            // Dropped unfinished, it leaves nothing: each round is the first.
        });
    });
    group.finish();
}

/// The bytes of a directory of 1,000 entries, made and taken apart.
fn trees(c: &mut Criterion) {
    let oid = stepback_engine::oid::Oid::of(ObjectKind::Blob, b"x");
    let entries: Vec<TreeEntry> = (0..1000)
        .map(|n| TreeEntry::blob(&format!("file-{n:05}"), oid))
        .collect();
    let bytes = encode_tree(&entries);
    c.bench_function("tree of 1,000 entries: encode", |b| {
        b.iter(|| encode_tree(black_box(&entries)))
    });
    c.bench_function("tree of 1,000 entries: parse", |b| {
        b.iter(|| parse_tree(black_box(&bytes)))
    });
}

/// One changed file: its blob, the trees above it, and a durable checkpoint.
fn checkpoint(c: &mut Criterion) {
    let mut root = Root::new();
    let place = root.path();
    let mut round = 0;
    c.bench_function("checkpoint of one file of 2,000", |b| {
        b.iter_batched(
            || {
                round += 1;
                let name = format!("a{n}/d{n}/f3", n = round % 10);
                fs::write(place.join(&name), text(round + 1_000_000)).expect("own file");
                Scope::Paths(BTreeSet::from([TreePath::new(name.as_bytes()).expect("a path")]))
            },
            |scope| root.capture(scope),
            BatchSize::PerIteration,
        );
    });
    c.bench_function("scan of 2,000 files without a change", |b| {
        b.iter(|| root.capture(Scope::All))
    });
}

/// What `attach` and the start of the daemon do with each record: read it and take it apart.
fn list(c: &mut Criterion) {
    let mut root = Root::new();
    for round in 0..50 {
        fs::write(root.path().join("a0/d0/f0"), text(round + 2_000_000)).expect("own file");
        root.capture(Scope::All);
    }
    let (store, id) = (root.engine.store_path().to_owned(), root.engine.id().to_owned());
    let store = Store::open(&store).expect("own store");
    let prefix = stepback_engine::checkpoint::refs_prefix(&id);
    let refs = store.refs(&prefix).expect("whole refs");
    c.bench_function("list: read and decode 51 checkpoints", |b| {
        b.iter(|| {
            for (name, commit) in &refs {
                let checkpoint = stepback_engine::checkpoint::Checkpoint::load(&store, &id, name, *commit);
                black_box(checkpoint.expect("a whole record"));
            }
        });
    });
}

/// Is this path captured?
fn rules(c: &mut Criterion) {
    let root = Root::new();
    let rules = rules_of(&root.path());
    let paths: Vec<TreePath> = (0..1000)
        .map(|n| {
            format!(
                "a{}/d{}/f{}{}",
                n % 10,
                n % 100,
                n % 20,
                if n % 3 == 0 { ".o" } else { "" }
            )
        })
        .map(|path| TreePath::new(path.as_bytes()).expect("a path"))
        .collect();
    c.bench_function("rules: match 1,000 paths", |b| {
        b.iter(|| {
            paths
                .iter()
                .filter(|path| rules.ignores(path, false).expect("readable rules"))
                .count()
        });
    });
}

fn rules_of(root: &Path) -> Rules {
    Rules::of_disk(root, &GitEnvironment::default(), &[], 100 << 20, &[]).expect("readable rules")
}

criterion_group!(parts, hash_and_deflate, trees, checkpoint, list, rules);
criterion_main!(parts);
