//! One kind of work of the engine, again and again, to be looked at with `perf`, `strace -c` or `callgrind`.
//!
//! `profile checkpoint|scan|save|first|rewind TREE STATE COUNT`: `TREE` is a directory with files, `STATE` an empty one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use stepback_engine::checkpoint::Trigger;
use stepback_engine::engine::{
    AttachRequest, Context, Engine, Environment, Operation, Scope, Select, Settings, Why,
};
use stepback_engine::path::TreePath;
use stepback_engine::progress::Progress;
use stepback_engine::time::Time;
use stepback_engine::tree::NoWatch;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [work, tree, state, count] = arguments.as_slice() else {
        eprintln!("profile checkpoint|scan|save|first|rewind TREE STATE COUNT");
        return;
    };
    let (tree, state) = (PathBuf::from(tree), PathBuf::from(state));
    let count: usize = count.parse().expect("COUNT is a number");
    let mut files = Vec::new();
    list(&tree, &tree, &mut files);
    files.sort();
    let mut engine = attach(&tree, &state);
    let told = |what: &str, engine: &mut Engine, scope: Scope| {
        let trigger = match what {
            "save" => Trigger::Save,
            _ => Trigger::Auto,
        };
        let start = Instant::now();
        let captured = engine
            .capture(scope, &Why::plain(trigger), &cx(&Progress::default()))
            .expect("a checkpoint");
        println!("{what}: {:.2} ms", start.elapsed().as_secs_f64() * 1000.0);
        captured.id
    };
    let mut last = told("first", &mut engine, Scope::All);
    match work.as_str() {
        "checkpoint" => {
            for round in 0..count {
                let file = &files[(round * 7919 + 13) % files.len()];
                edit(&tree.join(file), round);
                let path = TreePath::new(file.as_bytes()).expect("a path");
                told("checkpoint", &mut engine, Scope::Paths(BTreeSet::from([path])));
            }
        }
        "scan" => {
            for _ in 0..count {
                told("scan", &mut engine, Scope::All);
            }
        }
        "save" => {
            for _ in 0..count {
                told("scan", &mut engine, Scope::All);
                told("save", &mut engine, Scope::All);
            }
        }
        "rewind" => {
            for round in 0..2 {
                for file in files.iter().step_by(files.len() / count) {
                    edit(&tree.join(file), round + 1);
                }
                let now = told("edits", &mut engine, Scope::All);
                if round == 0 {
                    last = now;
                }
            }
            for _ in 0..if count > 5000 { 4 } else { 8 } {
                let start = Instant::now();
                let report = engine
                    .execute(
                        &Operation::Rewind(Some(Select::Number(last))),
                        None,
                        &cx(&Progress::default()),
                    )
                    .expect("a rewind");
                println!(
                    "rewind of {}: {:.2} ms",
                    report.written,
                    start.elapsed().as_secs_f64() * 1000.0
                );
                last = if last == 2 { 3 } else { 2 };
            }
        }
        _ => {}
    }
}

fn cx(progress: &Progress) -> Context<'_> {
    Context {
        now: now(),
        watch: &NoWatch,
        progress,
    }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

fn attach(tree: &Path, state: &Path) -> Engine {
    let env = Environment {
        state_dir: state.to_owned(),
        runtime_dir: None,
        git: stepback_engine::rules::GitEnvironment {
            program: Some("git".into()),
            path: std::env::var_os("PATH"),
            ..Default::default()
        },
        conversations: Default::default(),
    };
    let settings = Settings {
        include: Vec::new(),
        max_file_size: 100 << 20,
        conversations: false,
    };
    let request = AttachRequest {
        path: tree.to_owned(),
        ..AttachRequest::default()
    };
    Engine::attach(&env, &request, &settings, now())
        .expect("a root")
        .engine
}

fn list(dir: &Path, top: &Path, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        // An edit needs some bytes; an ignore file may be shorter.
        if name.as_encoded_bytes().starts_with(b".") || name == "node_modules" {
            continue;
        }
        if path.is_dir() {
            list(&path, top, files);
        } else {
            files.push(path.strip_prefix(top).expect("below").display().to_string());
        }
    }
}

fn edit(path: &Path, seed: usize) {
    let mut text = std::fs::read(path).expect("a file");
    let mark = format!("{seed:08x}{:016x}", now().0);
    text[..24].copy_from_slice(mark.as_bytes());
    std::fs::write(path, text).expect("a file");
}
