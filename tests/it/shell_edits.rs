//! What a shell does while nobody calls `save`.

use std::time::{Duration, Instant};

use stepback_tests::{Sandbox, eventually};

use crate::support::{entry, repository};

#[test]
fn one_checkpoint_within_a_second_of_the_last_write_and_rewind_undoes_all() {
    let sandbox = Sandbox::alone();
    let project = sandbox.project("p");
    repository(&project, "");
    project.sh("printf 'v1\n' > a; mkdir d; printf 'x\n' > d/x; printf 'gone\n' > gone; git add -A; git commit -qm two");
    project.sh("printf 'dirty\n' > src/b");
    project.attach();
    let first = project.save();
    let before = project.tree();
    let ids = project.ids();

    project.sh(
        "sed -i s/v1/v2/ a\ncat > new <<EOF\nhere\nEOF\nrm gone\nmv d e\nchmod +x docs/deep/c\ngit checkout -q -- src/b\n\
         ln -s a l",
    );
    let last_write = Instant::now();
    let edited = project.tree();
    eventually(
        "a checkpoint after the last write",
        Duration::from_secs(10),
        || project.ids().len() > ids.len(),
    );
    let took = last_write.elapsed();
    assert!(took < Duration::from_millis(1500), "the checkpoint took {took:?}");
    project.settle();

    let now = project.ids();
    assert_eq!(now.len(), ids.len() + 1, "one burst is one checkpoint");
    let made = entry(&project, now[0]);
    assert_eq!(made["trigger"], "auto");
    assert_eq!(made["base"], first);
    assert_eq!(project.show(now[0], "a"), b"v2\n");
    assert_eq!(project.show(now[0], "new"), b"here\n");
    assert_eq!(project.show(now[0], "e/x"), b"x\n");
    assert_eq!(project.show(now[0], "src/b"), b"two\n");
    let against_disk = project.json(&["diff", &now[0].to_string(), "-w"]);
    assert_eq!(
        against_disk["files"],
        serde_json::json!([]),
        "the checkpoint is the tree"
    );

    let report = project.json(&["rewind", "-y"]);
    assert_eq!(report["target"], first);
    assert_eq!(
        report["saved"],
        serde_json::Value::Null,
        "the state before was a checkpoint already"
    );
    before.same(&project.tree(), "after rewind");
    project.redo();
    edited.same(&project.tree(), "after redo");
}
