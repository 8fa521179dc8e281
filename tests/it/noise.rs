//! Files that fill a store are named, and so is an ignore file whose going away took much in.

use std::time::Duration;

use serde_json::Value;
use stepback_tests::{Project, Sandbox, eventually_some};

use crate::support::warnings;

fn warned(project: &Project<'_>, kind: &str) -> Value {
    eventually_some(kind, Duration::from_secs(30), || {
        warnings(project, kind).into_iter().next()
    })
}

#[test]
fn a_file_that_is_rewritten_again_and_again_is_named() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("echo 1 > a; mkdir data; echo none > 'data/my db'");
    project.attach();
    for _ in 0..4 {
        project.sh("head -c 30000000 /dev/urandom > 'data/my db'; echo more >> a");
        project.save();
    }
    let told = warned(&project, "noisy");
    let (message, hint) = (told["message"].as_str().unwrap(), told["hint"].as_str().unwrap());
    assert!(
        message.starts_with("data/my db was captured 4 times"),
        "{message}"
    );
    assert!(message.contains("114.4 MiB"), "{message}");
    assert!(hint.contains("`/data/my db`"), "{hint}");
    assert!(hint.contains("stepback forget -p 'data/my db'"), "{hint}");
    let found = project.stepback(&["doctor"]).exits(1).text();
    assert!(found.contains(message) && found.contains(hint), "{found}");
    let shown = project.stepback(&["status"]).exits(0).text();
    assert!(shown.contains(message) && shown.contains(hint), "{shown}");
    let log = project.stepback(&["daemon", "logs"]).exits(0).text();
    let logged = log.matches("data/my db was captured").count();
    assert_eq!(logged, 1, "{log}");

    // What the hint says gives the room back, and the warning goes.
    let before = project.status()["store"]["bytes"].as_u64().unwrap();
    let done = project.json(&["forget", "-p", "data/my db", "-y"]);
    assert!(
        done["freed_bytes"].as_u64().unwrap() > 100_000_000,
        "{done} of {before}"
    );
    assert!(warnings(&project, "noisy").is_empty());
}

/// Each of them is small; and it is still known after a restart.
#[test]
fn a_directory_of_files_that_are_rewritten_again_and_again_is_named() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("mkdir -p build/o; echo none > build/o/0");
    project.attach();
    for _ in 0..6 {
        project.sh("for i in 1 2 3 4 5 6 7 8 9; do head -c 2200000 /dev/urandom > build/o/$i; done");
        project.save();
    }
    sandbox.stepback(sandbox.dir(), &["daemon", "restart"]).exits(0);
    let told = warned(&project, "noisy");
    let (message, hint) = (told["message"].as_str().unwrap(), told["hint"].as_str().unwrap());
    assert!(
        message.starts_with("files in build/o/ were captured 54 times"),
        "{message}"
    );
    assert!(hint.contains("`/build/o/`"), "{hint}");
}

#[test]
fn an_ignore_file_that_went_away_and_uncovered_much_is_named() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("mkdir -p sub/build; echo build/ > sub/.gitignore; echo 1 > a
         i=0; while [ $i -lt 1001 ]; do echo $i > sub/build/f$i; i=$((i+1)); done");
    let first = project.attach();
    assert!(warnings(&project, "uncovered").is_empty());
    project.sh("rm sub/.gitignore");
    let second = project.save();
    let told = warned(&project, "uncovered");
    let message = told["message"].as_str().unwrap();
    assert!(
        message.starts_with("sub/.gitignore is gone: 1001 files"),
        "{message}"
    );
    assert!(message.ends_with(&format!("checkpoint {second}")), "{message}");
    let hint = format!("`stepback restore {first} -p sub/.gitignore` puts it back");
    assert_eq!(told["hint"], hint.as_str());
    project.stepback(&["restore", &first.to_string(), "-p", "sub/.gitignore", "-y"]);
    project.settle();
    assert!(warnings(&project, "uncovered").is_empty());
}
