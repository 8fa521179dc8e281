//! A rewind and a redo of files and a conversation, killed or refused at every fault point in turn: afterwards both are on
//! the same side, or the report says that the conversation was left.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use stepback_engine::engine::Engine;

use super::support::{fixture, look, slug, write};
use crate::faults::{BASE, ROOT, STORE, WORK, every, numbered};
use crate::support::Sandbox;

const ID: &str = "bb015940-e7c6-49f8-9734-6c6705e466d5";

struct Scene {
    sandbox: Sandbox,
    work: &'static str,
    /// The transcript, a file of the same session that is written anew, and one that is only there later.
    files: [PathBuf; 3],
    old: Vec<Option<String>>,
    new: Vec<Option<String>>,
}

impl Scene {
    fn new(work: &'static str) -> Self {
        let mut sandbox = Sandbox::new();
        let root = sandbox.root();
        let claude = sandbox.path().join("home/.claude");
        let project = claude.join("projects").join(slug(&root));
        let files = [
            project.join(format!("{ID}.jsonl")),
            project.join(ID).join("tool-results/a.txt"),
            claude.join("file-history").join(ID).join("b@v1"),
        ];
        sandbox.write("hello.txt", "one\n");
        write(&files[0], &fixture("claude/turn1.jsonl", &root));
        write(&files[1], "the first result\n");
        assert_eq!(sandbox.attach().id, 1);
        let mut scene = Self {
            sandbox,
            work,
            files,
            old: Vec::new(),
            new: Vec::new(),
        };
        scene.new = scene.state();
        scene.sandbox.write("hello.txt", "two\n");
        write(&scene.files[0], &fixture("claude/turn2.jsonl", &root));
        fs::write(&scene.files[1], "another\n").unwrap();
        write(&scene.files[2], "later\n");
        scene.old = scene.state();
        scene.sandbox.capture();
        if work == "Redo" {
            scene.sandbox.rewind(1);
            std::mem::swap(&mut scene.old, &mut scene.new);
            assert_eq!(scene.state(), scene.old);
        }
        scene
    }

    /// The file of the project, and those of the agent.
    fn state(&self) -> Vec<Option<String>> {
        let text = |path: &PathBuf| path.exists().then(|| look(path).text);
        let mut state = vec![self.sandbox.read("hello.txt")];
        state.extend(self.files.iter().map(text));
        state
    }

    fn child(&mut self, env: &[(&str, &str)]) -> Output {
        let engine = self.sandbox.engine.take().unwrap();
        let (store, id) = (engine.store_path().to_owned(), engine.id().to_owned());
        drop(engine);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "faults::child", "--nocapture", "--test-threads=1"])
            .env_remove("STEPBACK_FAULT")
            .env_remove("STEPBACK_FAULT_LOG")
            .env(BASE, self.sandbox.path())
            .env(STORE, &store)
            .env(ROOT, &id)
            .env(WORK, self.work)
            .envs(env.iter().copied());
        let output = command.output().unwrap();
        let settings = Sandbox::settings();
        self.sandbox.engine =
            Some(Engine::open(&self.sandbox.environment(), &store, &id, &settings).unwrap());
        output
    }
}

fn points(work: &'static str) -> Vec<String> {
    let mut scene = Scene::new(work);
    let log = scene.sandbox.path().join("points.log");
    let done = scene.child(&[("STEPBACK_FAULT_LOG", log.to_str().unwrap())]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(scene.state(), scene.new, "{work} without a fault");
    numbered(&log)
}

fn one(work: &'static str, point: &str, action: &str, undo: bool) {
    let what = format!("{work} {point}:{action}");
    let mut scene = Scene::new(work);
    let output = scene.child(&[("STEPBACK_FAULT", &format!("{point}:{action}"))]);
    if action == "kill" {
        assert_ne!(output.status.code(), Some(9), "{what}");
    }
    if scene.sandbox.engine().unfinished().unwrap().is_some() {
        let recovered = scene.sandbox.on(|engine, cx| engine.recover(undo, cx)).unwrap();
        assert!(recovered.notes.is_empty(), "{what}: {:?}", recovered.notes);
        assert_eq!(
            scene.state(),
            if undo {
                scene.old.clone()
            } else {
                scene.new.clone()
            },
            "{what}"
        );
    } else if action != "kill" && point.starts_with("talk.") {
        // Left, and said so: the files are there.
        assert_eq!(scene.state()[0], scene.new[0], "{what}");
    } else {
        let state = scene.state();
        assert!(state == scene.old || state == scene.new, "{what}: {state:?}");
    }
    let findings = scene.sandbox.engine().verify().unwrap();
    assert!(findings.is_empty(), "{what}: {findings:?}");
    // All that was there can be had again.
    let newest = scene.sandbox.engine().checkpoints().last().unwrap().n;
    if scene.state() == scene.new && work == "Rewind" {
        scene.sandbox.redo();
        assert_eq!(scene.state(), scene.old, "{what}, after redo (newest {newest})");
    }
}

fn walk(work: &'static str) {
    let every = every(3);
    let points = points(work);
    assert!(
        points.iter().any(|point| point.starts_with("talk.")),
        "{points:?}"
    );
    let mut runs = 0;
    for (i, point) in points.iter().enumerate() {
        let own = point.starts_with("talk.");
        if !own && i % every != 0 {
            continue;
        }
        for action in if own { &["kill", "eio"][..] } else { &["kill"][..] } {
            one(work, point, action, runs % 2 == 0);
            runs += 1;
        }
    }
    println!("{work}: {} points, {runs} runs", points.len());
}

#[test]
fn files_and_conversation_of_a_rewind_stay_together() {
    walk("Rewind");
}

#[test]
fn files_and_conversation_of_a_redo_stay_together() {
    walk("Redo");
}
