//! Roots of different sizes: which is looked at first, and how often one is that is polled.

use std::time::Duration;

use stepback_tests::{Project, Sandbox, eventually};

use crate::support::number_from;

const PATIENCE: Duration = Duration::from_secs(120);

fn filled<'a>(sandbox: &'a Sandbox, name: &str, files: u64) -> Project<'a> {
    let project = sandbox.project(name);
    let script = "n=$1; i=0; while [ $((i * 1000)) -lt $n ]; do mkdir d$i; seq $((n < 1000 ? n : 1000)) | split -l 1 -a 3 - d$i/f; i=$((i+1)); done";
    let mut make = sandbox.command("sh", &project.path);
    make.args(["-euc", script, "sh", &files.to_string()]);
    assert!(make.status().unwrap().success());
    project
}

#[test]
fn the_time_between_looks_grows_with_the_root_and_is_told() {
    let sandbox = Sandbox::alone();
    let kind = sandbox.sh(sandbox.dir(), "stat -f -c %t .").text();
    let kind = kind.trim();
    sandbox.configure(&format!(
        "poll_seconds_min = 0.1\npoll_file_systems = [\"{kind}\"]\n"
    ));
    let (small, large) = (
        filled(&sandbox, "small", 10),
        filled(&sandbox, "large", number_from("STEPBACK_FILES", 40_000)),
    );
    for project in [&small, &large] {
        project.attach();
    }
    let seconds = |project: &Project<'_>| project.status()["poll_seconds"].as_u64().unwrap();
    // The first look reads every file; how long one takes is known after the second.
    eventually("it is looked at less often", PATIENCE, || seconds(&large) > 1);
    let (of_small, of_large) = (seconds(&small), seconds(&large));
    println!("every {of_small} s and every {of_large} s");
    assert_eq!(of_small, 1, "a part of a second, rounded up");
    let status = large.status();
    let told = status["warnings"][0]["message"].as_str().unwrap();
    assert!(told.contains("everything is looked at every "), "{status:#}");
    let text = large.stepback(&["status"]).exits(0).text();
    assert!(text.contains("looked at every "), "{text}");
    large.write("d3/faaa", "edited\n");
    eventually("an edit is found", PATIENCE, || {
        large.show(large.ids()[0], "d3/faaa") == b"edited\n"
    });
}

#[test]
fn small_roots_are_looked_at_before_huge_ones_after_a_start() {
    let sandbox = Sandbox::alone();
    let daemon = sandbox.daemon();
    let files = number_from("STEPBACK_FILES", 20_000);
    // Neither the order of names nor that of attaching is that of sizes.
    let sizes = [
        ("a-huge", files + 10_000),
        ("m-small", 30),
        ("b-large", files),
        ("z-small", 10),
        ("k-small", 20),
    ];
    let projects = sizes.map(|(name, files)| filled(&sandbox, name, files));
    for project in &projects {
        project.attach();
        project.settle();
    }
    daemon.kill();
    let log = || {
        std::fs::read_to_string(sandbox.dir().join("daemon.log")).unwrap_or_default()
            + &std::fs::read_to_string(sandbox.state().join("log/stepbackd.log")).unwrap_or_default()
    };
    let watched = |skip: usize| -> Vec<String> {
        let log = log();
        let lines = log.lines().filter(|line| line.contains("-> Watching")).skip(skip);
        lines
            .map(|line| {
                line.split("root=")
                    .nth(1)
                    .unwrap_or_default()
                    .split(' ')
                    .next()
                    .unwrap_or_default()
                    .to_owned()
            })
            .collect()
    };
    let before = watched(0).len();
    assert!(before >= sizes.len(), "{}", log());
    let _daemon = sandbox.daemon();
    eventually("all are watched", PATIENCE, || {
        projects
            .iter()
            .all(|project| project.status()["state"] == "watching")
    });
    let order = watched(before);
    println!("{order:?}");
    let at = |name: &str| order.iter().position(|root| root.contains(name)).unwrap();
    for small in ["m-small", "z-small", "k-small"] {
        assert!(at(small) < at("a-huge") && at(small) < at("b-large"), "{order:?}");
    }
}
