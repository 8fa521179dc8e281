//! Twenty clients at once on three roots.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use stepback_proto::{Answer, FailureKind, Hello, MAGIC, PROTOCOL, Request, Verb, Welcome, frame};
use stepback_tests::{Project, Random, Sandbox, Snapshot, eventually};

use crate::support::seconds;

const CLIENTS: u64 = 20;
const STATES: usize = 6;

struct Known<'a> {
    project: Project<'a>,
    ids: Vec<u64>,
    trees: Vec<String>,
    snapshots: Vec<Snapshot>,
}

fn known<'a>(sandbox: &'a Sandbox, name: &str) -> Known<'a> {
    let project = sandbox.project(name);
    project.sh("mkdir -p d; for i in 1 2 3 4 5 6 7 8 9; do echo same > d/same$i; done; echo 0 > f");
    project.attach();
    let mut known = Known {
        project,
        ids: Vec::new(),
        trees: Vec::new(),
        snapshots: Vec::new(),
    };
    for state in 0..STATES {
        let script = format!("echo {name} state {state} > f; rm -f d/only*; echo {state} > d/only{state}");
        known.project.sh(&script);
        let saved = known.project.json(&["save"]);
        known.ids.push(saved["id"].as_u64().unwrap());
        known.trees.push(saved["tree"].as_str().unwrap().to_owned());
        known.snapshots.push(known.project.tree());
    }
    known
}

impl Known<'_> {
    /// One request, whose answer must be right whatever the others do.
    fn ask(&self, random: &mut Random) {
        let state = random.below(STATES as u64) as usize;
        let id = self.ids[state].to_string();
        let name = self.project.path.file_name().unwrap().to_str().unwrap();
        match random.below(10) {
            0..=2 => {
                let listed = self.project.list();
                for (id, tree) in self.ids.iter().zip(&self.trees) {
                    let entry = listed.iter().find(|c| c["id"] == *id).unwrap();
                    assert_eq!(entry["tree"], tree.as_str());
                }
                let order: Vec<_> = listed.iter().map(|c| c["id"].as_u64().unwrap()).collect();
                assert!(order.is_sorted_by(|a, b| a > b), "newest first: {order:?}");
            }
            3..=4 => {
                let text = self
                    .project
                    .stepback(&["show", &format!("{id}:f")])
                    .exits(0)
                    .text();
                assert_eq!(text, format!("{name} state {state}\n"));
            }
            5..=6 => {
                let other = (state + 1) % STATES;
                let diff = self.project.json(&["diff", &id, &self.ids[other].to_string()]);
                let mut paths = crate::support::paths(&diff["files"]);
                paths.sort();
                let mut wanted = vec![format!("d/only{state}"), format!("d/only{other}"), "f".to_owned()];
                wanted.sort();
                assert_eq!(paths, wanted);
            }
            7..=8 => {
                let saved = self.project.json(&["save"]);
                let tree = saved["tree"].as_str().unwrap().to_owned();
                assert!(self.trees.contains(&tree), "no state of this root: {saved}");
            }
            _ => {
                let report = self.project.rewind(self.ids[state]);
                assert_eq!(report["target"], self.ids[state]);
                assert_eq!(report["kept"], serde_json::json!([]));
            }
        }
    }
}

#[test]
fn those_that_follow_keep_nobody_out_and_one_too_many_is_told_so() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("a", "v1\n");
    project.attach();
    let socket = project.json(&["daemon", "status"])["socket"].clone();
    let hello = Hello {
        magic: MAGIC,
        protocol: PROTOCOL,
    };
    let follow = Request {
        place: Path::new("/").into(),
        verb: Verb::Watch,
    };
    let connect = |_| {
        let mut stream = UnixStream::connect(socket.as_str().unwrap()).unwrap();
        frame::write(&mut stream, &hello).unwrap();
        frame::read::<Welcome>(&mut stream).unwrap().unwrap();
        frame::write(&mut stream, &follow).unwrap();
        stream
    };
    let is_refused = |stream: &mut UnixStream| {
        let soon = Some(Duration::from_millis(100));
        stream.set_read_timeout(soon).unwrap();
        matches!(frame::read(stream), Ok(Some(Answer::Failed(f))) if f.kind == FailureKind::Busy)
    };
    let mut held: Vec<_> = (0..140).map(connect).collect();
    eventually("one too many is refused", Duration::from_secs(20), || {
        held.push(connect(0));
        held.last_mut().is_some_and(is_refused)
    });
    for args in [
        &["status"][..],
        &["roots"],
        &["save"],
        &["doctor"],
        &["daemon", "status"],
    ] {
        project.stepback(args).exits(0);
    }
    drop(held);
    eventually("there is room again", Duration::from_secs(20), || {
        !is_refused(&mut connect(0))
    });
    // A full one ends all the same.
    let _held: Vec<_> = (0..140).map(connect).collect();
    project.stepback(&["daemon", "stop"]).exits(0);
}

#[test]
fn twenty_clients_on_three_roots_get_right_answers() {
    let sandbox = Sandbox::new();
    let roots: Vec<Known<'_>> = ["red", "green", "blue"]
        .iter()
        .map(|name| known(&sandbox, name))
        .collect();
    let asked = AtomicU64::new(0);
    let seed = Random::new("many clients").next();
    let end = Instant::now() + Duration::from_secs(seconds(8));
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (roots, asked) = (&roots, &asked);
            scope.spawn(move || {
                let mut random = Random::seeded(seed.wrapping_add(client));
                while Instant::now() < end {
                    roots[random.below(3) as usize].ask(&mut random);
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    println!("{} requests in {} s", asked.into_inner(), seconds(8));
    for root in &roots {
        let state = STATES / 2;
        root.project.rewind(root.ids[state]);
        root.snapshots[state].same(&root.project.tree(), "at the end");
        root.project.fsck();
    }
}
