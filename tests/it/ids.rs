//! Every form of an ID.

use std::time::Duration;

use stepback_tests::{Project, Sandbox, eventually};

/// Four checkpoints: of attach, and three saves, the last two of them more than a second apart.
fn four(project: &Project<'_>) -> Vec<u64> {
    project.write("f", "0\n");
    let mut ids = vec![project.attach()];
    for i in 1..=3 {
        if i == 3 {
            let then = clock(project);
            eventually("two seconds have passed", Duration::from_secs(10), || {
                clock(project) >= then + 2
            });
        }
        project.write("f", format!("{i}\n"));
        ids.push(project.save());
    }
    ids
}

fn clock(project: &Project<'_>) -> u64 {
    project.sh("date +%s").text().trim().parse().unwrap()
}

#[track_caller]
fn means(project: &Project<'_>, id: &str, wanted: u64) {
    let shown = project.json(&["show", id]);
    assert_eq!(shown["id"], wanted, "{id}");
}

#[test]
fn numbers_words_and_counts_back() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let ids = four(&project);
    means(&project, &ids[1].to_string(), ids[1]);
    means(&project, &format!("#{}", ids[1]), ids[1]);
    means(&project, "latest", ids[3]);
    means(&project, "first", ids[0]);
    means(&project, "~0", ids[3]);
    means(&project, "~2", ids[1]);
    means(&project, "@0s", ids[3]);
    for id in [
        "999",
        "#999",
        "~99",
        "@9999d",
        "@2001-01-01T00:00",
        "turn:1",
        "turn:~1",
    ] {
        project.fails(&["show", id], 1, "no_such_checkpoint");
    }
    project.fails(&["show", "session:nowhere"], 1, "no_such_session");
}

#[test]
fn words_that_are_no_id_are_bad_usage() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    for id in [
        "banana",
        "#",
        "~",
        "@",
        "@yesterdayish",
        "-1x",
        "7x",
        "turn:",
        "@10y",
    ] {
        let said = project.stepback(&["show", "--", id]).exits(2);
        assert!(said.stdout.is_empty() && !said.stderr.is_empty(), "{said:#?}");
    }
}

#[test]
fn times_are_in_the_clients_zone() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    let ids = four(&project);
    let time = crate::support::entry(&project, ids[2])["time"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(time.ends_with('Z'), "{time}");
    // The second after the third checkpoint, as a clock in Japan shows it: the fourth is later than that.
    let there = project
        .sh(&format!(
            "TZ=JST-9 date -d '{time} + 1 second' +%Y-%m-%dT%H:%M:%S"
        ))
        .text();
    let id = format!("@{}", there.trim());
    let shown = project
        .stepback_env(&["--json", "show", &id], &[("TZ", "JST-9")])
        .exits(0)
        .json();
    assert_eq!(shown["id"], ids[2], "{id} of {time}");
    let shown = project
        .stepback_env(&["--json", "show", "@2100-01-01T00:00"], &[("TZ", "JST-9")])
        .exits(0)
        .json();
    assert_eq!(shown["id"], ids[3]);
}

#[test]
fn a_session_is_its_start() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.write("f", "0\n");
    project.attach();
    let started = project.json(&["session", "start", "work"]);
    project.write("f", "1\n");
    project.save();
    project.json(&["session", "end", "work"]);
    means(&project, "session:work", started["checkpoint"].as_u64().unwrap());
}

#[test]
fn an_id_with_a_path_gives_the_files_bytes() {
    let sandbox = Sandbox::new();
    let project = sandbox.project("p");
    project.sh("mkdir d; printf 'v1\\n\\377\\000end' > d/b; ln -s d/b l");
    let first = project.attach();
    project.sh("printf 'v2\n' > d/b");
    project.save();
    assert_eq!(project.show(first, "d/b"), b"v1\n\xff\0end");
    assert_eq!(
        project.stepback(&["show", "first:d/b"]).exits(0).stdout,
        b"v1\n\xff\0end"
    );
    assert_eq!(project.stepback(&["show", "latest:d/b"]).exits(0).text(), "v2\n");
    project.fails(&["show", "latest:nowhere"], 1, "no_such_path");
    // Relative to the root, wherever one stands.
    let below = sandbox
        .stepback(&project.file("d"), &["show", "latest:d/b"])
        .exits(0);
    assert_eq!(below.text(), "v2\n");
}
