//! `kill -9` of the daemon at random moments: of rewinds, and of saves.

use std::time::{Duration, Instant};

use serde_json::Value;
use stepback_tests::{Project, Random, Sandbox, Snapshot, finish, pause, start};

use crate::support::rounds;

const FILES: u64 = 2_000;
const DEADLINE: Duration = Duration::from_secs(60);

/// Two states of a tree of [`FILES`] files, each a checkpoint.
struct Two {
    ids: [u64; 2],
    trees: [Snapshot; 2],
}

/// A moment within what takes `whole` when nobody kills it, or a little after.
fn moment(whole: Duration, random: &mut Random) -> Duration {
    whole.mul_f64(random.below(1_100) as f64 / 1_000.0)
}

fn two_states(project: &Project<'_>) -> Two {
    project.sh(&format!(
        "i=0; while [ $i -lt {FILES} ]; do d=d$((i%20))/s$((i%3)); mkdir -p $d; echo \"one $i\" > $d/f$i; i=$((i+1)); done
         mkdir only-one; echo x > only-one/x; ln -s d1 swap; chmod 640 d1/s1/f1"
    ));
    project.attach();
    let one = project.save();
    let first = project.tree();
    project.sh("for f in d*/s0/f* d*/s1/f*; do echo \"two of $f\" > $f; done
         rm -r d3/s2 only-one; rm swap; mkdir swap; echo y > swap/y; mkdir -p new/deep; echo z > new/deep/z
         chmod 600 d1/s1/f1; chmod +x d2/s2/*; mv d4 moved");
    let two = project.save();
    Two {
        ids: [one, two],
        trees: [first, project.tree()],
    }
}

#[test]
fn a_killed_rewind_is_finished_or_undone_exactly() {
    let sandbox = Sandbox::new();
    let mut random = Random::new("killed rewinds");
    let mut daemon = sandbox.daemon();
    let project = sandbox.project("p");
    let two = two_states(&project);
    // The tree stands on states[at].
    let mut at = 1;
    let started = Instant::now();
    project.rewind(two.ids[0]);
    let whole = started.elapsed();
    two.trees[0].same(&project.tree(), "after a rewind that nobody killed");
    project.rewind(two.ids[1]);
    let (mut finished, mut undone, mut not_begun, mut already_done) = (0, 0, 0, 0);

    for round in 0..rounds() {
        let to = 1 - at;
        let id = two.ids[to].to_string();
        let mut rewind = sandbox.command(sandbox.program("stepback"), &project.path);
        rewind
            .args(["rewind", &id, "-y"])
            .env("STEPBACK_NO_AUTOSTART", "1");
        let client = start(&mut rewind);
        pause(moment(whole, &mut random));
        daemon.kill();
        let said = finish(client, "stepback rewind", DEADLINE);
        daemon = sandbox.daemon();

        let unfinished = project.status()["unfinished"].clone();
        let when = format!(
            "in round {round}, to {to}, client exit {}, unfinished {unfinished}",
            said.code()
        );
        if unfinished == Value::Null {
            let nothing = project.json(&["recover"]);
            assert_eq!(nothing["outcome"], "nothing", "{when}");
            if two.trees[to] == project.tree() {
                already_done += 1;
                at = to;
            } else {
                two.trees[at].same(&project.tree(), &when);
                assert_ne!(said.code(), 0, "{when}: it said that it was done");
                not_begun += 1;
            }
        } else {
            assert_eq!(unfinished["operation"], "rewind", "{when}");
            assert_eq!(unfinished["target"], two.ids[to], "{when}");
            if round % 2 == 0 {
                assert_eq!(project.json(&["recover"])["outcome"], "finished", "{when}");
                two.trees[to].same(&project.tree(), &when);
                at = to;
                finished += 1;
            } else {
                assert_eq!(
                    project.json(&["recover", "--undo"])["outcome"],
                    "undone",
                    "{when}"
                );
                two.trees[at].same(&project.tree(), &when);
                undone += 1;
            }
            assert_eq!(project.status()["unfinished"], Value::Null, "{when}");
        }
        assert_eq!(project.tree().leftovers(), Vec::<String>::new(), "{when}");
        project.fsck();
    }
    println!("finished {finished}, undone {undone}, not begun {not_begun}, already done {already_done}");
    assert!(
        finished + undone > 0,
        "no kill fell into a rewind: the moments are wrong"
    );
    project.rewind(two.ids[0]);
    two.trees[0].same(&project.tree(), "at the end");
}

#[test]
fn nothing_else_may_write_while_an_operation_is_unfinished() {
    let sandbox = Sandbox::new();
    let mut random = Random::new("unfinished");
    let mut daemon = sandbox.daemon();
    let project = sandbox.project("p");
    let two = two_states(&project);
    let started = Instant::now();
    project.rewind(two.ids[0]);
    let whole = started.elapsed();
    project.rewind(two.ids[1]);
    for _ in 0..40 {
        let mut rewind = sandbox.command(sandbox.program("stepback"), &project.path);
        rewind
            .args(["rewind", &two.ids[0].to_string(), "-y"])
            .env("STEPBACK_NO_AUTOSTART", "1");
        let client = start(&mut rewind);
        pause(moment(whole, &mut random));
        daemon.kill();
        finish(client, "stepback rewind", DEADLINE);
        daemon = sandbox.daemon();
        if project.status()["unfinished"] == Value::Null {
            if two.trees[0] == project.tree() {
                project.rewind(two.ids[1]);
            }
            continue;
        }
        let first = two.ids[0].to_string();
        for args in [
            &["rewind", "first", "-y"][..],
            &["restore", &first, "-p", "d1", "-y"],
            &["redo", "-y"],
            &["drop", &first, "-y"],
            &["forget", "-p", "d1", "-y"],
            &["forget", "--undo", "-p", "d1"],
            &["detach", "-y"],
            &["detach", "--forget", "-y"],
        ] {
            let error = project.fails(args, 1, "unfinished");
            assert!(
                error["hint"].as_str().unwrap().contains("stepback recover"),
                "{error}"
            );
        }
        let text = project.stepback(&["status"]).exits(0).text();
        assert!(text.contains("stepback recover"), "{text}");
        let told = project.stepback(&["save"]).exits(0).stderr;
        assert!(
            told.contains("interrupted rewind") && told.contains("stepback recover"),
            "{told}"
        );
        assert!(!told.contains(".stepback-tmp"), "{told}");
        assert_eq!(project.json(&["recover", "--undo"])["outcome"], "undone");
        two.trees[1].same(&project.tree(), "after recover --undo");
        return;
    }
    panic!("no kill fell into a rewind in 40 rounds");
}

#[test]
fn a_killed_save_leaves_a_clean_store_and_the_tree_alone() {
    let sandbox = Sandbox::new();
    let mut random = Random::new("killed saves");
    let mut daemon = sandbox.daemon();
    let project = sandbox.project("p");
    let two = two_states(&project);
    let started = Instant::now();
    project.sh("for f in new/deep/z d*/s1/f*; do echo warm >> $f; done");
    project.save();
    let whole = started.elapsed();

    for round in 0..rounds() {
        let when = format!("in round {round}");
        project.sh(&format!(
            "for f in d*/s1/f* d*/s0/f*; do echo 'round {round}' > $f; done; echo {round} > new/{round}"
        ));
        let tree = project.tree();
        let before = project.ids();
        let mut save = sandbox.command(sandbox.program("stepback"), &project.path);
        save.args(["save"]).env("STEPBACK_NO_AUTOSTART", "1");
        let client = start(&mut save);
        pause(moment(whole, &mut random));
        daemon.kill();
        let said = finish(client, "stepback save", DEADLINE);
        daemon = sandbox.daemon();
        tree.same(&project.tree(), &when);
        // git lists objects first and reads refs then: a checkpoint that is published in between would look torn.
        project.settle();
        project.fsck();
        let after = project.ids();
        assert!(
            before.iter().all(|id| after.contains(id)),
            "{when}: {before:?} became {after:?}"
        );
        let id = project.save();
        if said.code() == 0 {
            let told: u64 = said
                .text()
                .split(|c: char| !c.is_ascii_digit())
                .find_map(|n| n.parse().ok())
                .unwrap();
            assert!(
                project.ids().contains(&told),
                "{when}: {told} was announced and is gone"
            );
        }
        assert_eq!(
            project.show(id, &format!("new/{round}")),
            format!("{round}\n").into_bytes(),
            "{when}"
        );
        assert_eq!(
            project.json(&["diff", &id.to_string(), "-w"])["files"],
            serde_json::json!([]),
            "{when}"
        );
    }
    let last = project.save();
    let tree = project.tree();
    project.rewind(two.ids[0]);
    two.trees[0].same(&project.tree(), "after all the kills");
    project.rewind(last);
    tree.same(&project.tree(), "and forth");
    let count = project.store_git("count-objects -v");
    assert!(count.contains("garbage: 0"), "{count}");
}
