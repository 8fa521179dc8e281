//! Purging what should never have been recorded, end to end.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stepback_tests::{Project, Random, Sandbox, eventually, finish, keys, pause, start};

use crate::support::{Mount, bytes_on_disk, random_bytes, rounds, warnings};

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

/// Names that mean something to a shell, to git or to a pattern are names; what isn't a path of the root is refused.
#[test]
fn odd_paths_are_literal() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let odd = ["*.env", "sp ace/f g", "new\nline", "-y", "a\\b", "d/e/"];
    project.sh("mkdir -p 'sp ace' d/e inner/sub; echo 1 > d/e/s; echo kept > a.env; echo kept > d/f; ln -s d link; echo 1 > inner/sub/x");
    for name in &odd[..5] {
        project.write(name, format!("of {name}\n"));
    }
    project.attach();
    let store = project.store();
    for name in odd {
        let oid = blob(&project, &format!("of {name}"));
        let done = project.json(&["forget", &format!("-p{name}"), "-y"]);
        assert_eq!(done["paths"], json!([name.trim_end_matches('/')]));
        assert_eq!(done["checkpoints"], 1, "{name:?}");
        assert!(!is_in(&project, &store, &oid), "{name:?}");
    }
    assert_eq!(project.show(1, "a.env"), b"kept\n");
    assert_eq!(project.show(1, "d/f"), b"kept\n");
    // From a directory below, and by an absolute path.
    let below = project.file("inner/sub");
    let forget = |path: &str| sandbox.stepback(&below, &["forget", "-p", path, "-y"]);
    let said = forget("../../d/f").exits(0).text();
    assert!(
        said.starts_with("forgotten: d/f; purged from 1 checkpoint"),
        "{said}"
    );
    forget(below.join("x").to_str().unwrap()).exits(0);
    // The link, not what it leads to; nothing is looked for through it.
    project.fails(&["forget", "-p", "link/f", "-y"], 1, "no_such_path");
    project.json(&["forget", "-p", "link", "-y"]);
    for path in [
        ".",
        "..",
        "/",
        "../p",
        ".git",
        "d/../..",
        project.path.to_str().unwrap(),
    ] {
        let said = project.stepback(&["forget", "-p", path, "-y"]).exits(1);
        assert!(said.stderr.contains("hint: "), "{path}: {said:?}");
    }
    assert_eq!(project.ids(), [1]);
    let said = project.stepback(&["forget", "--undo", "-p", "."]).exits(0).text();
    assert_eq!(said, "captured again from now on: .\n");
    project.save();
    assert_eq!(project.status()["not_captured"], json!([]));
    project.fsck();
}

/// What has no room to be packed is removed all the same, since it lies loose: a full disk stops no purge.
#[test]
fn on_a_full_disk_a_secret_goes_and_space_comes_back() {
    let sandbox = Sandbox::new();
    let state = sandbox.dir().join("state");
    let Some(_mount) = Mount::tmpfs(&sandbox, &state, "size=40m,mode=700") else {
        return;
    };
    let project = sandbox.project("p");
    project.sh(&format!("printf '%s\\n' '{SECRET}' > .env"));
    project.attach();
    for i in 0..6 {
        project.write("f", random_bytes(i, 400_000));
        project.save();
    }
    let (store, oid) = (project.store(), blob(&project, SECRET));
    let filler = state.join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
    let done = project.json(&["forget", "-p", ".env", "-y"]);
    assert_eq!(done["checkpoints"], 7);
    assert!(!is_in(&project, &store, &oid));
    project.fsck();
    let before = bytes_on_disk(&store);
    let ids = project.ids();
    project.json(&["drop", "2", "3", "latest", "-y"]);
    let freed = before.saturating_sub(bytes_on_disk(&store));
    assert!(freed > 2 * 400_000, "{freed}");
    project.json(&["prune"]);
    project.fsck();
    assert!(ids.iter().filter(|id| !project.ids().contains(id)).count() == 3);
    assert!(
        project.show(project.ids()[0], "f") == random_bytes(5, 400_000),
        "the newest was dropped, what is on disk is kept"
    );
    std::fs::remove_file(&filler).unwrap();
    project.write("f", random_bytes(7, 400_000));
    project.save();
    project.json(&["prune"]);
    assert!(warnings(&project, "maintenance").is_empty());
    project.fsck();
}

/// While the bytes are still there nobody is told that they are gone.
#[test]
fn a_purge_that_cannot_remove_the_bytes_is_an_error_until_it_can() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh(&format!("printf '%s\\n' '{SECRET}' > .env; echo 1 > a"));
    project.attach();
    let (store, oid) = (project.store(), blob(&project, SECRET));
    let broken = store.join("refs/checkpoints/broken");
    std::fs::write(&broken, "no object id\n").unwrap();
    for _ in 0..2 {
        let error = project.fails(&["forget", "-p", ".env", "-y"], 1, "store_damaged");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("bytes are still in the store"), "{message}");
        assert!(
            error["hint"].as_str().unwrap().contains("do the same again"),
            "{error}"
        );
        assert!(is_in(&project, &store, &oid));
    }
    assert!(!warnings(&project, "maintenance").is_empty());
    // Also so it isn't captured any more.
    project.sh("echo 2 > a");
    let id = project.save();
    assert_eq!(not_captured(&project, id), [(".env".into(), "forgotten".into())]);
    std::fs::remove_file(&broken).unwrap();
    project.json(&["forget", "-p", ".env", "-y"]);
    assert!(!is_in(&project, &store, &oid));
    assert!(warnings(&project, "maintenance").is_empty());
    project.fsck();
}

/// What a purge couldn't remove is known over a restart, and goes of the daemon's own accord as soon as it can.
#[test]
fn the_daemon_finishes_a_purge_that_was_cut_off() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh(&format!("printf '%s\\n' '{SECRET}' > .env; echo 1 > a"));
    project.attach();
    let (store, oid) = (project.store(), blob(&project, SECRET));
    let broken = store.join("refs/checkpoints/broken");
    std::fs::write(&broken, "no object id\n").unwrap();
    project.fails(&["forget", "-p", ".env", "-y"], 1, "store_damaged");
    let restart = || sandbox.stepback(sandbox.dir(), &["daemon", "restart"]).exits(0);
    restart();
    let told = warnings(&project, "forget_unfinished");
    assert!(told[0]["message"].as_str().unwrap().contains(".env"), "{told:?}");
    let found = project.stepback(&["doctor"]).exits(1).text();
    assert!(found.contains("the bytes of .env"), "{found}");
    assert!(is_in(&project, &store, &oid));
    std::fs::remove_file(&broken).unwrap();
    restart();
    eventually("it is finished", DEADLINE, || {
        warnings(&project, "forget_unfinished").is_empty()
    });
    assert!(!is_in(&project, &store, &oid));
    project.fsck();
}

#[test]
fn while_an_operation_is_unfinished_nothing_is_purged() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh(&format!("printf '%s\\n' '{SECRET}' > .env; mkdir d; i=0; while [ $i -lt 300 ]; do echo 1 > d/$i; i=$((i+1)); done"));
    project.attach();
    project.sh("for f in d/*; do echo 2 > $f; done");
    project.save();
    let (store, oid) = (project.store(), blob(&project, SECRET));
    // A rewind is killed as soon as its journal is there.
    let journal = || {
        let dirs = std::fs::read_dir(store.join("stepback"))
            .into_iter()
            .flatten()
            .flatten();
        dirs.into_iter().any(|dir| dir.path().join("journal").exists())
    };
    let mut interrupted = false;
    for _ in 0..20 {
        let mut rewind = sandbox.command(sandbox.program("stepback"), &project.path);
        let client = start(rewind.args(["rewind", "1", "-y"]));
        let started = Instant::now();
        while !journal() && started.elapsed() < Duration::from_secs(5) {
            std::hint::spin_loop();
        }
        nix::sys::signal::kill(sandbox.daemon_pid().unwrap(), nix::sys::signal::Signal::SIGKILL).unwrap();
        finish(client, "stepback rewind", DEADLINE);
        if project.status()["unfinished"] != Value::Null {
            interrupted = true;
            break;
        }
        project.sh("for f in d/*; do echo 3 > $f; done");
        project.save();
    }
    if !interrupted {
        println!("skipped: no rewind was caught in the middle");
        return;
    }
    for command in [
        &["forget", "-p", ".env", "-y"][..],
        &["drop", "1", "-y"],
        &["prune"],
        &["forget", "--undo", "-p", ".env"],
    ] {
        let error = project.fails(command, 1, "unfinished");
        assert!(
            error["hint"].as_str().unwrap().contains("stepback recover"),
            "{error}"
        );
    }
    assert!(is_in(&project, &store, &oid));
    project.stepback(&["recover"]).exits(0);
    project.json(&["forget", "-p", ".env", "-y"]);
    assert!(!is_in(&project, &store, &oid));
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
