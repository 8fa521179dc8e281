//! Purging what should never have been recorded, end to end.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stepback_tests::{Project, Random, Sandbox, finish, keys, pause, start};

use crate::support::rounds;

const SECRET: &str = "TOKEN=correct horse battery staple";
const DEADLINE: Duration = Duration::from_secs(60);

fn blob(project: &Project<'_>, text: &str) -> String {
    let hashed = project.sh(&format!("printf '%s\\n' '{text}' | git hash-object --stdin"));
    hashed.text().trim().to_owned()
}

fn is_in(project: &Project<'_>, store: &Path, oid: &str) -> bool {
    let script = format!(
        "if git --git-dir='{}' cat-file -e {oid} 2>/dev/null; then echo yes; else echo no; fi",
        store.display()
    );
    project.sandbox.sh(Path::new("/"), &script).text().trim() == "yes"
}

fn not_captured(project: &Project<'_>, id: u64) -> Vec<(String, String)> {
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    project.json(&["show", &id.to_string()])["not_captured"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (text(&entry["path"]), text(&entry["reason"])))
        .collect()
}

/// X05: the first checkpoint was made before there was an ignore file.
#[test]
fn a_secret_recorded_before_any_ignore_file_is_purged() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh(&format!(
        "git init -q .; printf '%s\\n' '{SECRET}' > .env; echo 1 > a"
    ));
    let first = project.attach();
    project.sh("echo 2 > a");
    let second = project.save();
    project.sh("echo .env > .gitignore");
    let third = project.save();
    let (store, oid) = (project.store(), blob(&project, SECRET));
    let (tree, git) = (project.tree(), project.git());
    assert!(is_in(&project, &store, &oid));

    // Nobody is there to be asked.
    let declined = project.fails(&["forget", "-p", ".env"], 1, "declined");
    assert!(declined["hint"].as_str().unwrap().contains("-y"));
    assert!(is_in(&project, &store, &oid));

    let done = project.json(&["forget", "-p", ".env", "-y"]);
    keys(&done, &["paths", "checkpoints", "freed_bytes", "still_held"]);
    assert_eq!(
        (&done["paths"], &done["checkpoints"], &done["still_held"]),
        (&json!([".env"]), &json!(2), &json!([]))
    );
    assert!(done["freed_bytes"].as_u64().unwrap() > 0);
    assert!(!is_in(&project, &store, &oid));
    project.fsck();
    tree.same(&project.tree(), "forget touches nothing in the project");
    git.same(&project.git(), "nor below .git");
    for id in [first, second] {
        assert_eq!(not_captured(&project, id), [(".env".into(), "forgotten".into())]);
    }
    let bases: Vec<Value> = project.list().iter().map(|c| c["base"].clone()).collect();
    assert_eq!(bases, [json!(second), json!(first), Value::Null]);

    // Also when the ignore file is gone, and after a restart, it stays left out.
    project.sh("rm .gitignore");
    let report = project.rewind(first);
    assert_eq!(report["not_covered"][0]["path"], ".env", "{report:#}");
    sandbox.stepback(sandbox.dir(), &["daemon", "restart"]).exits(0);
    project.sh("echo 3 > a");
    let fourth = project.save();
    assert_eq!(
        not_captured(&project, fourth),
        [(".env".into(), "forgotten".into())]
    );
    assert!(!is_in(&project, &store, &oid));
    assert_eq!(project.read(".env"), format!("{SECRET}\n").as_bytes());
    // Where it was ignored nobody misses it.
    project.rewind(third);
    project.sh("rm .gitignore");

    let undone = project.json(&["forget", "--undo", "-p", ".env"]);
    keys(&undone, &["paths", "checkpoints", "freed_bytes", "still_held"]);
    project.save();
    assert!(is_in(&project, &store, &oid));
    project.fails(&["forget", "--undo", "-p", ".env"], 1, "no_such_path");
    project.fails(&["forget", "-p", "nowhere", "-y"], 1, "no_such_path");
    project.fails(&["forget", "-p", "../other", "-y"], 1, "no_such_path");
    project.fails(&["forget", "-p", ".", "-y"], 1, "declined");
}

#[test]
fn what_people_are_told() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh(&format!(
        "printf '%s\\n' '{SECRET}' | tee .env > copy; mkdir in; echo x > in/a"
    ));
    project.attach();
    project.json(&["attach", "in", "--here"]);
    let said = project.stepback(&["forget", "-p", ".env", "-y"]).exits(0);
    assert!(
        said.text()
            .starts_with("forgotten: .env; purged from 1 checkpoint, ")
    );
    assert!(said.stderr.contains("still held at copy"), "{said:?}");
    assert!(said.stderr.contains("transcripts"), "{said:?}");
    let said = project.stepback(&["forget", "-p", "in/a", "-y"]).exits(0);
    assert!(said.stderr.contains("in is attached, too"), "{said:?}");
    let status = project.status();
    assert_eq!(status["not_captured"].as_array().unwrap().len(), 2, "{status:#}");
}

/// Worktrees share a store: what the other one holds stays, and is named; and so when one is deleted.
#[test]
fn a_worktree_keeps_what_is_its_own() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("main");
    project.sh(&format!(
        "git init -q .; echo 1 > a; git add a; git commit -qm 1; git worktree add -q ../side
         printf '%s\\n' '{SECRET}' > .env; cp .env ../side/env.txt
         head -c 3000000 /dev/urandom > big; head -c 400000 /dev/urandom > ../side/other"
    ));
    let side = Project::at(&sandbox, sandbox.dir().join("work/side"));
    project.attach();
    side.attach();
    let store = project.store();
    assert_eq!(store, side.store());
    let oid = blob(&project, SECRET);
    let done = project.json(&["forget", "-p", ".env", "-y"]);
    let held = done["still_held"].as_array().unwrap();
    assert_eq!(held.len(), 1);
    assert!(held[0].as_str().unwrap().ends_with("/side/env.txt"), "{held:?}");
    assert!(is_in(&project, &store, &oid));

    let size = |project: &Project<'_>| {
        let counted = project.store_git("count-objects -v");
        let field = |name: &str| {
            let line = counted.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().parse::<u64>().unwrap()
        };
        field("size:") + field("size-pack:")
    };
    let before = size(&side);
    let tree = side.tree();
    project.json(&["detach"]);
    // Also of one that was detached before.
    let gone = side.json(&["detach", project.path.to_str().unwrap(), "--forget", "-y"]);
    keys(&gone, &["path", "id", "forgotten", "freed_bytes"]);
    assert!(gone["freed_bytes"].as_u64().unwrap() > 2_900_000, "{gone}");
    assert!(before - size(&side) > 2_900, "kibibytes, as git counts");
    side.fsck();
    side.sh("rm -r *");
    side.rewind(1);
    tree.same(&side.tree(), "the other worktree has all of its own");
    let all = side.json(&["detach", "--forget", "-y"]);
    assert!(all["freed_bytes"].as_u64().unwrap() > 400_000, "{all}");
    assert!(!store.exists());
}

#[test]
fn a_killed_purge_is_finished_by_another() {
    let sandbox = Sandbox::new();
    let mut random = Random::new("killed purges");
    let mut daemon = sandbox.daemon();
    let project = sandbox.project("p");
    project.sh("i=0; while [ $i -lt 60 ]; do mkdir -p d$((i%7)); echo $i > d$((i%7))/f$i; i=$((i+1)); done");
    project.attach();
    let mut whole = Duration::from_millis(400);
    let mut interrupted = 0;
    for round in 0..rounds().div_ceil(4) {
        let secret = format!("{SECRET} {round}");
        let name = format!("env{round}");
        project.sh(&format!("printf '%s\\n' '{secret}' > {name}"));
        for edit in 0..4 {
            project.sh(&format!("echo '{round} {edit}' > d{edit}/e"));
            project.save();
        }
        let oid = blob(&project, &secret);
        let store = project.store();
        let before = project.list();
        let mut purge = sandbox.command(sandbox.program("stepback"), &project.path);
        purge.args(["forget", "-p", &name, "-y"]);
        let started = Instant::now();
        let client = start(&mut purge);
        pause(whole.mul_f64(random.below(1_200) as f64 / 1_000.0));
        daemon.kill();
        let said = finish(client, "stepback forget", DEADLINE);
        if said.code() == 0 {
            whole = started.elapsed();
        } else {
            interrupted += 1;
        }
        daemon = sandbox.daemon();
        let ids = |list: &[Value]| -> Vec<(Value, Value)> {
            list.iter()
                .map(|c| (c["id"].clone(), c["base"].clone()))
                .collect()
        };
        let now = project.list();
        // A reconciling look may have made one more.
        let now = &now[now.len() - before.len()..];
        assert_eq!(ids(now), ids(&before), "no checkpoint is lost, in round {round}");
        let verified = project.json(&["status", "--verify"])["root"]["warnings"].clone();
        let damaged = |w: &Value| w["kind"] == "store_damaged";
        assert!(!verified.as_array().unwrap().iter().any(damaged), "{verified:#}");
        project.json(&["forget", "-p", &name, "-y"]);
        assert!(!is_in(&project, &store, &oid), "in round {round}");
        assert_eq!(project.status()["warnings"], json!([]), "in round {round}");
        project.fsck();
        for checkpoint in project.list() {
            let id = checkpoint["id"].as_u64().unwrap();
            assert!(!project.show(id, "d0/f0").is_empty());
        }
    }
    println!(
        "{interrupted} of {} purges were interrupted",
        rounds().div_ceil(4)
    );
}
