//! The whole project is gone, `.git` and all.

use std::fs;

use stepback_tests::{Sandbox, eventually};

use crate::support::repository;

#[test]
fn rm_rf_of_the_project_is_taken_back() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    repository(&project, "");
    project.sh("printf 'secret\n' > untracked; printf 'ignored\n' > ignored.txt; chmod 750 .");
    project.attach();
    let first = project.save();
    let tree = project.tree().without("ignored.txt");
    fs::remove_dir_all(&project.path).unwrap();

    let place = project.path.to_str().unwrap();
    let report = sandbox
        .stepback(sandbox.dir(), &["--json", "-C", place, "rewind", "first", "-y"])
        .exits(0)
        .json();
    assert_eq!(report["target"], first);
    tree.same(&project.tree(), "after the root was made again");
    assert!(
        project.git().is_empty(),
        "what was below .git is not ours to make"
    );

    project.write("after", "v1\n");
    project.settle();
    assert_eq!(
        project.stepback(&["show", "latest:after"]).exits(0).text(),
        "v1\n",
        "it is watched again"
    );
}

/// The path as a shell has it, through a link to a directory above, and one that is itself such a link.
#[test]
fn a_root_that_is_gone_is_found_through_links() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("real/p");
    project.sh("mkdir d; printf 'v1\n' > d/a");
    project.attach();
    let tree = project.tree();
    let above = project.path.parent().unwrap();
    let link = above.with_file_name("link");
    std::os::unix::fs::symlink("real", &link).unwrap();
    let itself = above.with_file_name("itself");
    std::os::unix::fs::symlink("link/p", &itself).unwrap();
    for place in [link.join("p"), link.join("p/d"), link.join("../real/p"), itself] {
        fs::remove_dir_all(&project.path).unwrap();
        let args = ["-C", place.to_str().unwrap(), "rewind", "first", "-y"];
        sandbox.stepback(sandbox.dir(), &args).exits(0);
        tree.same(&project.tree(), "after the root was made again");
    }
    let script = format!(
        "cd {}/p && rm -r ../p && exec {} rewind first -y",
        link.display(),
        sandbox.program("stepback").display()
    );
    sandbox.sh(sandbox.dir(), &script);
    tree.same(
        &project.tree(),
        "after the directory that one stands in was made again",
    );
}

#[test]
fn a_missing_root_says_so_and_no_checkpoint_says_all_deleted() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("mkdir d; printf 'v1\n' > d/a");
    project.attach();
    let first = project.save();
    let place = project.path.to_str().unwrap().to_owned();
    fs::remove_dir_all(&project.path).unwrap();
    let ask = |args: &[&str]| {
        let args: Vec<&str> = ["--json", "-C", &place].iter().chain(args).copied().collect();
        sandbox.stepback(sandbox.dir(), &args).exits(0).json()
    };
    eventually("the root is missing", std::time::Duration::from_secs(30), || {
        ask(&["status"])["root"]["state"] == "missing"
    });
    let list = ask(&["list", "--all"]);
    assert_eq!(list["checkpoints"][0]["id"], first, "{list:#}");
}
